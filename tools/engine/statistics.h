// Figures of a run, and their JSON with the keys that scripts rely on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "kernels/device.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/text_generation.h"
#include "runtime/pass/expert_figures.h"
#include "tools/base/json_object.h"
#include "tools/engine/memory_plan.h"

namespace slipstream {
class ModelRunner;
struct ExpertPlan;
}  // namespace slipstream

namespace slipstream::tools {

class LoadedModel;
class OpenedModel;

struct SourceTotal {
    std::string name;
    std::int64_t offered = 0;
    std::int64_t accepted = 0;
    std::int64_t parents = 0;  // as in draft::SourceFigures
    double seconds = 0.0;
    // Number of passes of a source that makes its own, such as a draft model; else no value.
    std::optional<std::int64_t> passes{};

    /// Returns accepted / offered; 0 if nothing was offered.
    [[nodiscard]] double acceptance() const;
};

/// What each draft source offered, summed over several runs of one drafter, whether or not it was reset between them.
class SourceTotals {
public:
    SourceTotals() = default;
    /// Totals of one run that ended with `figures`.
    explicit SourceTotals(const std::vector<draft::SourceFigures>& figures) { add({}, figures); }

    /// Adds a run: `before` are the figures when it began, `after` those at its end.
    void add(const std::vector<draft::SourceFigures>& before, const std::vector<draft::SourceFigures>& after);
    [[nodiscard]] const std::vector<SourceTotal>& totals() const { return totals_; }
    /// Returns {NAME: {"offered": N, "accepted": N, "seconds": X}}.
    [[nodiscard]] JsonObject json() const;
    /// Returns [{"name": NAME, "passes": N, "offered": N, "accepted": N}] of the sources with passes of their own,
    /// cheapest first.
    [[nodiscard]] std::vector<JsonObject> levels() const;

private:
    std::vector<SourceTotal> totals_;  // one for each source, in the drafter's order
};

/// Totals of what has streamed up to a point in time.
struct StreamSnapshot {
    std::uint64_t weights_bytes = 0;     // read by passes
    std::uint64_t kv_bytes = 0;          // read by passes
    std::uint64_t logits_bytes = 0;      // bytes of logits copied from GPUs to the host
    std::vector<LinkFigures> links;      // [devices], host to device; empty if nothing streams
    std::vector<ExpertFigures> experts;  // [layers]; empty if no layer has experts
    double wait_seconds = 0.0;           // time that passes waited for streamed items
    double seconds = 0.0;                // reading of a steady clock
    [[nodiscard]] StreamSnapshot operator-(const StreamSnapshot& earlier) const;
};
[[nodiscard]] StreamSnapshot stream_snapshot(const LoadedModel& model, const ModelRunner& runner);

/// The KV view over which the target drafts.
struct ViewTotals {
    ViewType type = ViewType::Rows;
    double share = 0.0;     // tokens that a build keeps for each layer and kv head, as a fraction of the context
    std::size_t bytes = 0;  // memory on all devices
    // Of the positions after an accepted token for which it drafted, those at which one of its tokens was accepted:
    // what planning assumes, whatever the number of siblings.
    double acceptance = 0.0;
    std::int64_t rebuilds = 0;  // builds after the first one
};

struct RunFigures {
    std::uint64_t seed = 0;
    double first_token_seconds = 0.0;  // seconds from the start of the program to the first token; 0 if there was none
    SourceTotals sources{};
    StreamSnapshot streamed{};               // while decoding
    StreamSnapshot streamed_before{};        // during the prompt
    std::int64_t reused_prompt_tokens = 0;   // tokens of prompts whose KV was reused from earlier texts
    std::int64_t resumed_prompt_tokens = 0;  // tokens of the prompt that were read from a session and not computed
    std::int64_t checkpoints = 0;            // checkpoints of the prompt that were written
    std::uint64_t checkpoint_bytes = 0;      // size of the side file that has them, at its largest
    std::optional<ViewTotals> view{};        // empty: there is none
    std::optional<std::int64_t> checked_tokens{};  // compared by the self-check, all equal; empty: no self-check
};

/// Returns an object for each device, with its name and its memory by purpose, in bytes.
[[nodiscard]] std::vector<JsonObject> memory_json(const std::vector<std::string>& names,
                                                  const std::vector<DeviceMemory>& devices);

/// Whether the hits of slots are those of the plan, or assumed by --assume.
enum class HitsFrom : std::uint8_t { Plan, Assumed };
/// Returns the object "experts" of a plan: "slots" for "n_experts" experts in all layers, "hits", expected for a token,
/// and "hits_from", "copied_bytes" of experts, expected for a pass of the plan's tokens, and the "reason" if there are
/// no slots (no_slots_text()). "hits_from" is, if there are slots, "counts" of earlier texts, "prior" or "assumed";
/// "even" if tokens are expected to choose evenly; null if all experts fit. "distinct_from": where the number of
/// experts that several tokens need together comes from, "counts" or "even".
[[nodiscard]] JsonObject expert_plan_json(const ExpertPlan& plan, HitsFrom hits_from, const std::string& fixed_note);

/// Returns how the model is placed, with the byte counts of `plan`.
[[nodiscard]] JsonObject plan_json(const LoadedModel& model);

/// Returns one object, as --stats writes it; times in seconds, sizes in bytes.
[[nodiscard]] JsonObject statistics_json(const LoadedModel& model, const TextGenerationResult& result,
                                         const RunFigures& figures);
/// Returns one object, as --stats writes it, for a text for which no model was loaded: without devices, and with an
/// empty plan. Times in seconds, sizes in bytes.
[[nodiscard]] JsonObject statistics_json(const OpenedModel& model, const TextGenerationResult& result,
                                         const RunFigures& figures);

/// Results of a teacher-forced run.
struct TeacherForcedFigures {
    std::int64_t tokens = 0;  // tokens predicted, or fed
    double seconds = 0.0;
    std::optional<double> nats;           // negative log likelihood, summed over the tokens; only if they were a text
    double standard_error = 0.0;          // of the nats per token, if they were a text
    std::optional<std::int64_t> windows;  // evaluation windows; only if the tokens were a text
};

/// Returns one object with those keys of --stats that apply: model, devices, plan, tokens, seconds, tokens_per_second,
/// peak; for a text also perplexity, nats_per_token, nats_standard_error and windows.
[[nodiscard]] JsonObject statistics_json(const LoadedModel& model, const TeacherForcedFigures& figures);

/// Returns "85.2 tokens/s, 1.67 a pass"; "one pass" if no tokens were decoded after the first pass, so that there is no
/// rate.
[[nodiscard]] std::string speed_text(const TextGenerationResult& result);
/// Returns the last line of a run: "12 prompt tokens in 0.01 s, 100 tokens in 0.52 s (190.4 tokens/s, 2.31 a pass);
/// seed 7; ...". It has tokens a pass if there were draft tokens, and the seed if tokens were sampled.
[[nodiscard]] std::string summary_line(const TextGenerationResult& result, const SamplerOptions& sampling);
/// Returns what the self-check has found if it did not throw: "self-check: 48 tokens computed again without draft
/// tokens, all bits equal". `checked_tokens` is RunFigures::checked_tokens.
[[nodiscard]] std::string self_check_line(std::int64_t checked_tokens);

}  // namespace slipstream::tools
