// Figures of a benchmark: samples and their median, the bytes that a pass must read, and the result of a run. They are
// computed from shapes and samples only, without clock or device, so that a test can check each number.
//
// Bytes are those of an ideal pass: every matrix, norm and bias is read once, and every KV row that some token attends
// to is read once. Rows of the embedding table are not counted (a few KB per token).
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
#include "tools/engine/engine.h"

namespace slipstream::tools {

struct Summary {
    double median = 0.0;  // of an even number of samples: the mean of the two in the middle
    double lowest = 0.0;
    double highest = 0.0;
    /// Returns (highest - lowest) / median; 0 if the median is 0.
    [[nodiscard]] double spread() const { return median > 0.0 ? (highest - lowest) / median : 0.0; }
};
/// Returns median, lowest and highest of `samples`, of which there must be at least one (CHECKed).
[[nodiscard]] Summary summarize(std::vector<double> samples);

/// Bytes of weights that a pass reads.
struct WeightBytes {
    double layers = 0.0;  // bytes of the layers, of experts as many as tokens choose evenly (expert_bytes())
    double head = 0.0;    // bytes read in passes with logits only: output norm and LM head
    [[nodiscard]] double all() const { return layers + head; }
};
/// Returns the bytes of weights that a pass of `n_tokens` tokens reads.
[[nodiscard]] WeightBytes weight_bytes(const ModelConfig& config, const ModelWeights& weights, std::int64_t n_tokens);

/// Returns the bytes of K and V of all layers that a pass reads: the committed rows inside each layer's window, and the
/// rows of the pass. The pass is a chain of `n_tokens` tokens after `depth` committed positions. `kv`: layout of each
/// layer.
[[nodiscard]] double kv_read_bytes(const ModelConfig& config, std::span<const KvLayout> kv, std::int64_t depth,
                                   std::int64_t n_tokens);

/// Tokens, time and bytes of one stretch of a run: one prefill, or the decoding that follows it.
struct PhaseSample {
    std::int64_t tokens = 0;
    double seconds = 0.0;
    double weight_bytes = 0.0;
    double kv_bytes = 0.0;
};

/// All measured samples of one phase, prefill or decode.
struct PhaseFigures {
    std::string_view name;
    std::vector<PhaseSample> samples;

    [[nodiscard]] PhaseSample total() const;
    [[nodiscard]] Summary seconds() const;
    [[nodiscard]] Summary tokens_per_second() const;
};

/// Figures of one column of a comparison: plain decoding, or decoding with one --draft. The samples of all columns are
/// pairs: sample i of each is the same turn of the same text, measured one after the other.
struct DraftFigures {
    std::string list;         // value of --draft
    std::int64_t budget = 1;  // most nodes of a pass
    std::vector<PhaseSample> prefill{};
    std::vector<PhaseSample> decode{};  // bytes are those that plain decoding would read
    std::int64_t passes = 0;            // decode passes
    std::int64_t nodes = 0;             // nodes of these passes, node 0 included
    double draft_seconds = 0.0;         // time spent on drafting while decoding
    SourceTotals sources{};
    std::int64_t texts = 0;        // texts that were compared with plain decoding's
    std::int64_t texts_equal = 0;  // number of `texts` with the same tokens as plain decoding's

    [[nodiscard]] std::int64_t tokens() const;
    [[nodiscard]] double seconds() const;
    /// Returns the rate over all decode samples together; 0 if there is none.
    [[nodiscard]] double tokens_per_second() const;
    [[nodiscard]] double tokens_per_pass() const;
    [[nodiscard]] double nodes_per_pass() const;
};
/// Returns tokens per second of `column` over those of `other`, pair by pair; nullopt if no pair has decoded tokens.
[[nodiscard]] std::optional<Summary> paired_ratio(const DraftFigures& column, const DraftFigures& other);

/// A stage of passes with one number of tokens: all layers of a device together.
struct StageFigures {
    std::string device;      // name of the device; empty: no device (stage "other")
    std::string_view stage;  // stage_name(), or "other": the rest of the pass
    double seconds = 0.0;    // seconds of the stage in one pass
    double bytes = 0.0;      // bytes that the stage reads in one pass
};

/// Figures of passes with one number of tokens.
struct PassFigures {
    std::int64_t tokens = 0;
    std::vector<double> seconds;     // seconds of each measured pass
    double weight_bytes = 0.0;       // weights that one pass reads
    double kv_bytes = 0.0;           // KV that one pass reads
    double streamed_bytes = 0.0;     // bytes of one pass that came over the links; 0 if nothing streams
    double link_seconds = 0.0;       // time that the slowest link needs for its part of streamed_bytes
    double predicted_seconds = 0.0;  // time of a pass as the plan predicts it
    double staged_seconds = 0.0;     // mean of the passes that are timed stage by stage
    std::vector<StageFigures> stages{};
};

enum class BenchMode : std::uint8_t { Plain, Prompts, Passes };
[[nodiscard]] std::string_view bench_mode_name(BenchMode mode);

struct BenchResult {
    BenchMode mode = BenchMode::Plain;
    std::optional<std::pair<std::string, std::string>> swept;  // option and value of --sweep; none: nothing is swept
    BenchMachine machine;
    std::string form;  // kernel variant
    std::string model;
    std::int64_t context_tokens = 0;
    DType kv_dtype = DType::F16;
    double load_seconds = 0.0;
    std::shared_ptr<const JsonObject> plan;  // placement, in the format of --stats; null before the model is loaded
    WeightBytes weights;
    std::int64_t repeat = 1;
    std::string token_source;          // "text", or "seeded ids" if there is no usable tokenizer
    std::string template_name{};       // chat template of the prompts; empty: raw text
    std::int64_t prompt_tokens = 0;    // Plain: tokens of the prompt that decoding follows
    bool own_prefill_text = false;     // Plain: prefill is that of the built-in text, not of the prompt
    std::int64_t n_prompts = 0;        // Prompts: lines of the file
    std::int64_t n_turns = 0;          // Prompts: turns of all lines
    std::int64_t depth = 0;            // Passes: committed positions
    std::string sampling;              // Plain, Prompts: "greedy", "temperature 0.8, ..."
    std::vector<PhaseFigures> phases;  // Plain, Prompts: prefill and decode of plain decoding
    // Plain, Prompts: figures of plain decoding, then of each --draft. Empty without --draft.
    std::vector<DraftFigures> drafts;
    std::vector<PassFigures> passes;  // Passes
};

}  // namespace slipstream::tools
