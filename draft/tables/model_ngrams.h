// Tables computed from the model itself, without any text (N-Grammys, Stewart et al. 2024, section 4.1).
// Bigrams: the model's best next tokens after each token alone. Unigrams: the tokens whose output embedding aligns best
// with the mean one. They follow from the weights, so they are computed once per model and kept on disk, in a file of
// their own (kind "bigram" of the table store). The extended bigrams of the paper need no table: they repeat the
// bigram's best continuation (model_bigram.h).
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

/// The model's predictions after each token alone, without a beginning-of-text token before it.
struct BigramTable {
    std::int64_t vocab = 0;
    std::int64_t k = 0;                  // candidates per token
    std::vector<std::int32_t> tokens{};  // [vocab, k], best first, ties by id; then -1
    std::vector<Half> log_p{};           // [vocab, k], log p at temperature 1
};

/// Most tokens that are kept as unigrams.
inline constexpr std::int64_t kCommonTokens = 256;

/// Both tables of one model.
struct ModelNgrams {
    BigramTable bigrams;
    /// The unigrams: the kCommonTokens tokens (or the whole vocabulary) whose output embedding aligns best with the
    /// mean one in the metric of the input embedding, best first. With V the input embedding, U the output embedding
    /// with rows u_x and mean row u: the tokens with the smallest u V^T V u_x^T. The paper's appendix computes this;
    /// its definition (section 4.1), the least distance |V (u_x - u)|, puts digits and brackets first. (Bundled models,
    /// 31000 tokens of fairy tales: the next token is one of the first 8 unigrams in 17 % of places, by the definition
    /// in 0.1 %.)
    std::vector<std::int32_t> common{};
};

/// How the tables are computed.
struct ModelNgramsOptions {
    std::int64_t k = 32;             // candidates per token; the paper tries up to 25
    std::int64_t pass_tokens = 256;  // most tokens of one pass
    /// Most bytes of logits in one pass: large vocabularies get shorter passes.
    std::size_t max_logit_bytes = std::size_t{64} << 20;
    /// Gets one line for the user if the tables could not be written. If empty, that is an error.
    std::function<void(std::string_view)> on_note{};
    /// Gets the work done and the work in all, about in proportion to time; may throw to cancel. May be empty.
    std::function<void(double, double)> on_progress{};
    const std::atomic<bool>* cancel = nullptr;  // another thread sets it to cancel; may be null
};

/// Computes the tables. Costs one pass over each token of the vocabulary, 2 * vocab * parameters operations (4096
/// tokens of a 6 M model: about a second on one core; estimated for 32000 tokens of a 7 B model, 4.5e14 operations:
/// over an hour on a CPU of 100 Gflop/s, seconds on a GPU). For the unigrams the embeddings are read three times.
/// `files` must be the files that `model` was loaded from. Returns nothing if it was cancelled. Throws OutOfBudget.
[[nodiscard]] std::optional<ModelNgrams> build_model_ngrams(const Model& model, const ModelFiles& files,
                                                            const ModelNgramsOptions& options);

/// Returns the tables as sections of a table file.
[[nodiscard]] std::vector<TableSection> model_ngrams_sections(const ModelNgrams& ngrams);
/// Reads what model_ngrams_sections() made. Throws FormatError if a section is missing, damaged, of another version, or
/// made for another vocabulary.
[[nodiscard]] ModelNgrams read_model_ngrams(const TableFile& file, std::int64_t vocab);

/// Where the tables of one model are kept.
struct NgramsPlace {
    const TableStore* store = nullptr;  // must outlive the call; null: in memory only
    std::uint64_t fingerprint = 0;      // model_fingerprint() of the model
};

/// Returns the tables on disk if they are there and have at least min(k, vocab) candidates per token. A damaged file is
/// set aside.
[[nodiscard]] std::optional<ModelNgrams> load_model_ngrams(const NgramsPlace& place, std::int64_t vocab,
                                                           std::int64_t k);

/// Returns the tables on disk, or computes them and writes them there; at least options.k candidates per token. A
/// damaged file is set aside. If the tables cannot be written, options.on_note gets a line and they serve this run;
/// without on_note, throws IoError. Returns nothing if it was cancelled. Throws OutOfBudget.
[[nodiscard]] std::optional<ModelNgrams> load_or_build_model_ngrams(const Model& model, const ModelFiles& files,
                                                                    const NgramsPlace& place,
                                                                    const ModelNgramsOptions& options);

}  // namespace slipstream::draft
