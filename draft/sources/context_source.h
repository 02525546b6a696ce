// The source "context": tokens that followed the last tokens earlier in this sequence, or in the sequences before it.
// In a merged tree it proposes by the mixed counts of contexts of 0 to 4 tokens (context_model.h, context_mixer.h).
// Alone, it grows N-Grammys' rows of w tokens from the context n-grams (Stewart et al. 2024, section 4.2;
// ngrammys_shape.h).
//
// Deviation from the paper: in a merged tree, contexts of all lengths at once and, under the root, the most frequent
// tokens of the sequence after any context.
#pragma once

#include <array>
#include <vector>

#include "draft/paper_tree.h"
#include "draft/sources/context_mixer.h"
#include "draft/sources/context_model.h"
#include "draft/sources/ngrammys_shape.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

class ContextSource final : public TableSource, public PaperTree {
public:
    struct Options {
        /// Most contexts that are counted, which bounds the memory. When it is reached, older text is forgotten.
        std::size_t max_contexts = std::size_t{1} << 21;
        /// When a new text begins and more contexts than this are counted, besides 4 for each token of the text,
        /// counting begins anew with the text. So a server, whose texts differ, does not need more and more memory.
        std::size_t max_old_contexts = std::size_t{48} << 10;
        NgrammysOptions shape;  // rows of the source's own tree
    };
    /// Token ids must be in [0, vocab).
    ContextSource(std::int64_t vocab, const Options& options);

    [[nodiscard]] std::string_view name() const override { return "context"; }
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation& observation) override;
    void reset() override;
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override;
    void save(TableWriter& writer) const override;
    void load(TableReader& reader) override;

private:
    static constexpr int kMaxOrder = ContextModel::kMaxOrder;

    // Position on a path. A cursor is an index into places_.
    struct Place {
        ContextModel::Keys keys{};  // keys of the last tokens of the path, shortest context first
        int n_keys = 0;             // number of `keys` that may be in the table
        int longest = 0;            // length of the longest context seen before; 0: none
        std::uint32_t context = 0;  // index in model_ of the context with length `longest`
        bool at_root = false;       // true: place of the cursor of root(), where frequent tokens are candidates too
    };
    struct Candidate {
        TokenId token;
        int highest;  // length of the longest context after which the token was seen
        std::array<ContextMixer::BinIndex, ContextMixer::kOrders> bins;
        float probability;
    };

    [[nodiscard]] Place place_behind(std::span<const TokenId> text) const;
    void find_longest(Place& place) const;
    void collect(const Place& place, std::size_t per_order, std::size_t most);
    void weigh(const Place& place);
    void learn(std::span<const TokenId> text, TokenId next);

    ContextModel model_;
    ContextMixer mixer_;
    Options options_;
    std::vector<Place> places_;  // [cursor]: positions on paths since the last root()
    std::vector<Candidate> candidates_;
    std::vector<std::uint16_t> slots_;  // [vocab]: 1 + index into candidates_; 0: none
    std::vector<TokenId> text_;         // text of the last observation
};

}  // namespace slipstream::draft
