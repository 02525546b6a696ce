// The unigrams of the model itself as a source (N-Grammys, Stewart et al. 2024, section 4.1): the same few tokens
// everywhere, those that the output embedding itself calls common. It learns nothing from the text; the table is built
// once a model (draft/tables/model_ngrams.h). Its own tree: k children of node 0.
//
// With noise it knows more: the best tokens by log p + gumbel, which differ from position to position. They are found
// once a position, among the tokens that are likeliest anyway: the noise of a whole vocabulary takes longer than a
// small model's pass. Most are passed over without a logarithm (noise_bar.h).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/tables/model_ngrams.h"

namespace slipstream::draft {

struct ModelUnigramOptions {
    UnigramRule rule = kUnigramRule;
    double temperature = 0.0;  // of the target; 0 (greedy) leaves probabilities as at 1
    std::int64_t rows = 10;    // k of its own tree, at most ModelUnigram::kBest
};

class ModelUnigram final : public TableSource {
public:
    /// Most children that it ever proposes.
    static constexpr std::size_t kBest = 16;
    /// Tokens that are looked at where there is noise, the likeliest ones.
    static constexpr std::size_t kNoisy = 256;

    ModelUnigram(const UnigramTable& table, const ModelUnigramOptions& options);

    [[nodiscard]] std::string_view name() const override { return "unigram"; }
    [[nodiscard]] std::uint16_t n_cells() const override;
    void observe(const Observation&) override {}
    void reset() override {}
    /// All paths look alike.
    [[nodiscard]] Cursor root(std::span<const TokenId>) override { return 0; }
    [[nodiscard]] Cursor advance(Cursor, TokenId) override { return 0; }
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    struct Best {
        std::int64_t position = -1;
        std::uint64_t seed = 0;
        std::size_t n = 0;
        std::array<Proposal, kBest> proposals{};
    };
    static constexpr std::size_t kRememberedPositions = 64;

    [[nodiscard]] const Best& best_at(std::int64_t position, const PathNoise& noise);

    ModelUnigramOptions options_;
    std::vector<float> probabilities_;  // [vocab], in (0, 1)
    std::vector<TokenId> likeliest_;    // [min(vocab, kNoisy)], by id
    Best greedy_;                       // without noise
    std::vector<Best> remembered_;      // [kRememberedPositions], position p in slot p mod their number
};

}  // namespace slipstream::draft
