// Tables made out of the model itself, without any text (N-Grammys, Stewart et al. 2024, sections 4.1 and 4.2):
// bigrams, the model's own best next tokens after each token alone, and unigrams, tokens by their distance from the
// mean output embedding. They follow from the weights, so they are built once a model and kept on disk, in a file of
// their own (kind "bigram" of the table store). The extended bigrams of the paper need no table: they are the bigram's
// own best continuation, repeated (bigram_rows.h).
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

/// How tokens lie in the model's embeddings: V is the input embedding, U the output embedding with rows u_x and mean
/// row u, C = V^T V.
struct UnigramTable {
    std::vector<float> distances{};   // [vocab], |V (u_x - u)|
    std::vector<float> alignments{};  // [vocab], u C u_x^T
};

/// Which tokens come first where nothing else is known.
enum class UnigramRule : std::uint8_t {
    /// p proportional to exp(-distance), nearest first: the paper's definition (section 4.1).
    Distance,
    /// Smallest alignment first: what the paper's appendix computes. It gives no probabilities; by rank r (from 0) they
    /// are taken proportional to 1 / (r + 2.7), Zipf's law with Mandelbrot's correction.
    Alignment,
};
/// The one that does better by far (measured on the bundled models, 31000 tokens of fairy tales: one of the first 8
/// tokens is the next one in 17 % of places, by the definition in 0.1 %; of the first 32 in 27 % and 0.3 %; the draft
/// model alike, and in a 260K model of stories the definition puts digits and brackets first).
inline constexpr UnigramRule kUnigramRule = UnigramRule::Alignment;

/// log p [vocab] by a rule; sums to 1.
[[nodiscard]] std::vector<float> unigram_log_p(const UnigramTable& table, UnigramRule rule);

struct ModelNgrams {
    BigramTable bigrams;
    UnigramTable unigrams;
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
/// seconds on a card), and for the unigrams 4 * vocab * d_model^2 more (2 % of that). `files` are those that `model`
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
