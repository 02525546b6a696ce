// The bigrams of the model itself as a source (N-Grammys, Stewart et al. 2024, section 4.2): what the model would say
// after the last token alone. It learns nothing from the text; the table is built once a model
// (draft/tables/model_ngrams.h). Its own tree: k rows of w tokens, the k best next tokens, each extended by the
// bigram's own best. Where there is noise, children and extensions are chosen by it.
#pragma once

#include <memory>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/tables/bigram_rows.h"

namespace slipstream::draft {

struct ModelBigramOptions {
    std::int64_t rows = 10;        // k
    std::int64_t row_tokens = 10;  // w
};

class ModelBigram final : public TableSource {
public:
    ModelBigram(std::shared_ptr<const BigramRows> table, const ModelBigramOptions& options);

    [[nodiscard]] std::string_view name() const override { return "bigram"; }
    [[nodiscard]] std::uint16_t n_cells() const override;
    void observe(const Observation&) override {}
    void reset() override {}
    /// A cursor is the last token of its path.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override { return table_->memory_bytes(); }

private:
    std::shared_ptr<const BigramRows> table_;
    ModelBigramOptions options_;
    std::vector<Proposal> proposed_;  // [rows]
};

}  // namespace slipstream::draft
