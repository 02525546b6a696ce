// Figures of a bench: samples and their median, the bytes that a pass has to read, and what a run found. No clock and
// no device: counted from shapes alone, so that a test can check each number.
//
// Bytes are those of the ideal pass: every matrix, norm and bias once, every KV row that some token sees once. Rows
// gathered from the embedding table are not counted (a few KB a token).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "tools/base/json_object.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_view_report.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

struct Summary {
    double median = 0.0;  // of an even number of samples: the mean of the middle two
    double lowest = 0.0;
    double highest = 0.0;
    /// (highest - lowest) / median.
    [[nodiscard]] double spread() const { return median > 0.0 ? (highest - lowest) / median : 0.0; }
};
/// CHECKs that there is a sample.
[[nodiscard]] Summary summarize(std::vector<double> samples);

/// Bytes of weights that a pass reads.
struct WeightBytes {
    double layers = 0.0;  // every pass
    double head = 0.0;    // passes with logits: the last norm and the LM head
    [[nodiscard]] double all() const { return layers + head; }
};
[[nodiscard]] WeightBytes weight_bytes(const ModelWeights& weights);

/// Bytes of K and V that a pass of `n_tokens` in a chain behind `depth` committed positions reads, all layers: the
/// committed rows that a layer's window shows, and the pass's own. `kv`: layout of each layer.
[[nodiscard]] double kv_read_bytes(const ModelConfig& config, std::span<const KvLayout> kv, std::int64_t depth,
                                   std::int64_t n_tokens);

/// What one stretch of a run took and read.
struct PhaseSample {
    std::int64_t tokens = 0;
    double seconds = 0.0;
    double weight_bytes = 0.0;
    double kv_bytes = 0.0;
};

/// Prefill or decode, all measured runs of it.
struct PhaseFigures {
    std::string_view name;
    std::vector<PhaseSample> samples;

    [[nodiscard]] PhaseSample total() const;
    [[nodiscard]] Summary seconds() const;
    [[nodiscard]] Summary tokens_per_second() const;
};

/// One column of a comparison: plain decoding, or decoding with guesses. Samples of all columns are pairs: sample i of
/// each is the same turn of the same text, measured one after the other.
struct DraftFigures {
    std::string list;         // as --draft spells it
    std::int64_t budget = 1;  // most nodes of a pass
    std::vector<PhaseSample> prefill{};
    std::vector<PhaseSample> decode{};  // bytes are those of plain decoding
    std::int64_t passes = 0;            // of decode
    std::int64_t nodes = 0;             // of them, node 0 included
    double draft_seconds = 0.0;         // of decode
    SourceTotals sources{};
    std::int64_t texts = 0;        // conversations that were compared with plain decoding's
    std::int64_t texts_equal = 0;  // of them, those that are the same, token for token

    [[nodiscard]] std::int64_t tokens() const;
    [[nodiscard]] double seconds() const;
    /// Of all samples together; 0 without any.
    [[nodiscard]] double tokens_per_second() const;
    [[nodiscard]] double tokens_per_pass() const;
    [[nodiscard]] double nodes_per_pass() const;
};
/// Tokens a second of one column over another's, pair by pair; nothing where no pair has decoded tokens.
[[nodiscard]] std::optional<Summary> paired_ratio(const DraftFigures& column, const DraftFigures& other);

/// A stage of the passes of one number of tokens, all layers of a device together.
struct StageFigures {
    std::string device;      // empty: of no device ("other")
    std::string_view stage;  // stage_name(), or "other": the rest of the pass
    double seconds = 0.0;    // of one pass
    double bytes = 0.0;      // that it reads in one pass
};

/// Passes of one number of tokens.
struct PassFigures {
    std::int64_t tokens = 0;
    std::vector<double> seconds;  // of each
    double weight_bytes = 0.0;    // of one
    double kv_bytes = 0.0;
    double streamed_bytes = 0.0;     // of one, that came over the link; 0 where nothing streams
    double link_seconds = 0.0;       // that the link takes for them at its own speed
    double predicted_seconds = 0.0;  // by the plan
    double staged_seconds = 0.0;     // of one that is timed by stage, on average
    std::vector<StageFigures> stages{};
};

enum class BenchMode : std::uint8_t { Plain, Prompts, Passes, Views };
[[nodiscard]] std::string_view bench_mode_name(BenchMode mode);

struct BenchResult {
    BenchMode mode = BenchMode::Plain;
    std::optional<std::pair<std::string, std::string>> swept;  // option and value
    BenchMachine machine;
    std::string form;  // instruction form of the kernels
    std::string model;
    std::int64_t context_tokens = 0;
    std::string kv_type;
    double load_seconds = 0.0;
    std::shared_ptr<const JsonObject> plan;  // how it was placed, as statistics have it; null before it is loaded
    WeightBytes weights;
    std::int64_t repeat = 1;
    std::string token_source;        // "text", or "seeded ids" where no tokenizer serves
    std::string template_name{};     // of the chat template that the prompts went through; empty: raw text
    std::int64_t prompt_tokens = 0;  // Plain: in front of what is generated
    std::int64_t n_prompts = 0;      // Prompts: lines, and texts in them
    std::int64_t n_turns = 0;
    std::int64_t depth = 0;            // Passes, Views: committed positions
    std::int64_t pass_tokens = 0;      // Views
    std::string sampling;              // but for Passes: "greedy", "temperature 0.8, ..."
    std::vector<PhaseFigures> phases;  // Plain and Prompts: of plain decoding
    std::vector<DraftFigures> drafts;  // the same with each --draft, plain decoding first; empty where none was given
    std::vector<PassFigures> passes;   // Passes
    std::vector<ViewFigures> views;    // Views
};

}  // namespace slipstream::tools
