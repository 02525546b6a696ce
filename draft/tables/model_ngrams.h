// Tables made out of the model itself, without any text (N-Grammys, Stewart et al. 2024, sections 4.1 and 4.2):
// bigrams, the model's own best next tokens after each token alone, and unigrams, tokens by how their output embedding
// lies with the mean one. They follow from the weights, so they are built once a model and kept on disk, in a file of
// their own (kind "bigram" of the table store). The extended bigrams of the paper need no table: they are the bigram's
// own best continuation, repeated (model_bigram.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "draft/tables/table_file.h"
#include "draft/tables/table_store.h"
#include "kernels/base/float16.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"

namespace slipstream::draft {

/// What the model says after each token that stands alone, without a beginning-of-text token before it.
struct BigramTable {
    std::int64_t vocab = 0;
    std::int64_t k = 0;                  // candidates of a token
    std::vector<std::int32_t> tokens{};  // [vocab, k], best first, ties by id; -1 behind the last
    std::vector<Half> log_p{};           // [vocab, k], log p at temperature 1
};

/// Most tokens that are kept as unigrams.
inline constexpr std::int64_t kCommonTokens = 256;

struct ModelNgrams {
    BigramTable bigrams;
    /// The unigrams: the kCommonTokens tokens (or as many as there are) whose output embedding lies best with the mean
    /// one in the metric of the input embedding, best first. V is the input embedding, U the output embedding with rows
    /// u_x and mean row u: the smallest alignments u V^T V u_x^T. That is what the paper's appendix computes; its
    /// definition (section 4.1), the least distance |V (u_x - u)|, puts digits and brackets first (bundled models,
    /// 31000 tokens of fairy tales: one of the first 8 tokens is the next one in 17 % of places, by the definition in
    /// 0.1 %).
    std::vector<std::int32_t> common{};
};

struct ModelNgramsOptions {
    std::int64_t k = 32;                                  // candidates of a token; the paper tries up to 25
    std::int64_t pass_tokens = 256;                       // at most, of one pass
    std::size_t max_logit_bytes = std::size_t{64} << 20;  // of one pass: large vocabularies get shorter ones
    /// What a user should know, one line: the tables could not be kept.
    std::function<void(std::string_view)> on_note{};
    /// Work done and work in all, about in proportion to time; may throw to give up.
    std::function<void(double, double)> on_progress{};
    const std::atomic<bool>* cancel = nullptr;  // turns true: the work is given up
};

/// Costs one pass over each token of the vocabulary, 2 * vocab * parameters operations (4096 tokens of a 6 M model:
/// about a second on one core; estimated for 32000 tokens of a 7 B model, 4.5e14: over an hour on a CPU of 100 Gflop/s,
/// seconds on a card); for the unigrams the embeddings are read three times. `files` are those that `model`
/// was loaded from. Nothing where it was cancelled. Throws OutOfBudget.
[[nodiscard]] std::optional<ModelNgrams> build_model_ngrams(const Model& model, const ModelFiles& files,
                                                            const ModelNgramsOptions& options);

/// The tables as sections of a table file.
[[nodiscard]] std::vector<TableSection> model_ngrams_sections(const ModelNgrams& ngrams);
/// Reads them back. Throws FormatError where a section is missing, damaged, of another version, or made for another
/// vocabulary.
[[nodiscard]] ModelNgrams read_model_ngrams(const TableFile& file, std::int64_t vocab);

/// Where the tables of a model persist.
struct NgramsPlace {
    const TableStore* store = nullptr;  // null: memory only
    std::uint64_t fingerprint = 0;      // of the model (model_fingerprint)
};

/// The tables on disk, where they are there and hold at least `k` candidates of a token. A damaged file is set aside.
[[nodiscard]] std::optional<ModelNgrams> load_model_ngrams(const NgramsPlace& place, std::int64_t vocab,
                                                           std::int64_t k);

/// The tables on disk, or new ones, kept there: at least options.k candidates of a token. A damaged file is set aside
/// by the store. Where they cannot be written, a note says so and they serve this run. Nothing where it was cancelled.
/// Throws OutOfBudget.
[[nodiscard]] std::optional<ModelNgrams> load_or_build_model_ngrams(const Model& model, const ModelFiles& files,
                                                                    const NgramsPlace& place,
                                                                    const ModelNgramsOptions& options);

}  // namespace slipstream::draft
