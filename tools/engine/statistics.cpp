#include "tools/engine/statistics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "runtime/experts/distinct_experts.h"
#include "runtime/plan/expert_plan.h"
#include "runtime/plan/pass_items.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/amounts.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

// Returns the key "peak": most bytes on each device, of pinned memory, and of the process. `loaded`: null if nothing
// was loaded.
JsonObject peak_json(const LoadedModel* loaded) {
    std::vector<std::int64_t> device_bytes;
    if (loaded == nullptr) {
        device_bytes.push_back(0);
    } else {
        for (const EngineDevice& each : loaded->devices())
            device_bytes.push_back(static_cast<std::int64_t>(each.device->budget().peak_bytes()));
    }
    const PinnedArena* arena = loaded != nullptr ? loaded->arena() : nullptr;
    JsonObject peak;
    peak.integers("device_bytes", device_bytes)
        .unsigned_integer("pinned_bytes", arena != nullptr ? arena->peak_bytes() : 0)
        .unsigned_integer("rss_bytes", peak_resident_bytes());
    return peak;
}

std::vector<std::string> device_names(const PlacedModel& model) {
    std::vector<std::string> names;
    for (const EngineDevice& each : model.devices()) names.push_back(each.choice.name());
    return names;
}

std::string_view stop_text(StopReason reason) {
    switch (reason) {
        case StopReason::EndToken:
            return "the model ended the text";
        case StopReason::StopString:
            return "a stop text occurred";
        case StopReason::Length:
            return "--max-tokens is reached";
        case StopReason::Context:
            return "the context is full";
        case StopReason::Interrupt:
            return "interrupted";
    }
    return "?";
}

}  // namespace

std::vector<JsonObject> memory_json(const std::vector<std::string>& names, const std::vector<DeviceMemory>& devices) {
    std::vector<JsonObject> table;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        JsonObject& row = table.emplace_back();
        row.text("device", names[i]);
        for (const auto& [name, bytes] : devices[i].rows()) row.unsigned_integer(name, bytes);
        if (devices[i].free)
            row.unsigned_integer("free", *devices[i].free);
        else
            row.null("free");
    }
    return table;
}

JsonObject expert_plan_json(const ExpertPlan& plan, HitsFrom hits_from, const std::string& fixed_note) {
    JsonObject json;
    json.text("regime", expert_regime_name(plan.regime))
        .integer("slots", plan.n_slots)
        .integer("n_experts", plan.n_experts)
        .unsigned_integer("slot_bytes", plan.slot_bytes)
        .real("hits", plan.hits);
    if (plan.regime == ExpertRegime::Fit)
        json.null("hits_from");
    else
        json.text("hits_from", plan.regime != ExpertRegime::InSlots ? "even"
                               : hits_from == HitsFrom::Assumed     ? "assumed"
                               : plan.hits_are_counted              ? "counts"
                                                                    : "prior");
    json.text("distinct_from", plan.distinct_is_counted ? "counts" : "even")
        .unsigned_integer("copied_bytes", static_cast<std::uint64_t>(std::llround(plan.copied_bytes)))
        .unsigned_integer("cpu_bytes", static_cast<std::uint64_t>(std::llround(plan.cpu_bytes)));
    if (const std::string reason = no_slots_text(plan, fixed_note); !reason.empty())
        json.text("reason", reason);
    else
        json.null("reason");
    return json;
}

JsonObject plan_json(const LoadedModel& model) {
    JsonObject plan;
    plan.integer("context_tokens", model.context_tokens())
        .text("kv_type", kv_type_name(model.kv_dtype()))
        .integer("threads", model.n_threads())
        .text("instruction_form", model.device_forms().forms)
        .unsigned_integer("weights_bytes", model.files().total_bytes())
        .unsigned_integer("kv_bytes", kv_bytes(model.config(), model.kv_dtype(), model.context_tokens()));
    if (!model.shards().empty()) {
        plan.text("split", split_name(model.split()))
            .integers(model.shards_matrices() ? "kv_heads" : "layers", parts_of(model.split(), model.shards()));
    }
    if (model.plan() != nullptr) {
        const ResidencyPlan& sums = model.plan()->sums();
        plan.unsigned_integer("device_bytes", sums.device_bytes)
            .unsigned_integer("ring_bytes", sums.ring_bytes)
            .unsigned_integer("resident_weights_bytes", sums.resident_weights_bytes)
            .unsigned_integer("resident_kv_bytes", sums.resident_kv_bytes)
            .unsigned_integer("streamed_weights_bytes", sums.streamed_weights_bytes)
            .unsigned_integer("streamed_kv_bytes", sums.streamed_kv_bytes)
            .objects("device_memory", memory_json(device_names(model), model.device_memory()))
            .integer("expect_tokens", model.plan()->pass_tokens())
            .real("pass_seconds", sums.pass_seconds);
    }
    const ExpertPlan experts = model.plan() != nullptr
                                   ? expert_plan(*model.plan())
                                   : resident_expert_plan(model.config(), counted_experts(model.expert_counts()));
    if (experts.n_experts > 0)
        plan.object("experts", expert_plan_json(experts, HitsFrom::Plan, model.fixed_experts_note()));
    else
        plan.null("experts");
    return plan;
}

StreamSnapshot StreamSnapshot::operator-(const StreamSnapshot& earlier) const {
    StreamSnapshot between{.weights_bytes = weights_bytes - earlier.weights_bytes,
                           .kv_bytes = kv_bytes - earlier.kv_bytes,
                           .logits_bytes = logits_bytes - earlier.logits_bytes,
                           .links = links,
                           .experts = experts,
                           .wait_seconds = wait_seconds - earlier.wait_seconds,
                           .seconds = seconds - earlier.seconds};
    for (std::size_t i = 0; i < std::min(links.size(), earlier.links.size()); ++i) {
        between.links[i].bytes -= earlier.links[i].bytes;
        between.links[i].busy_seconds -= earlier.links[i].busy_seconds;
    }
    for (std::size_t i = 0; i < std::min(experts.size(), earlier.experts.size()); ++i)
        between.experts[i] = experts[i] - earlier.experts[i];
    return between;
}

StreamSnapshot stream_snapshot(const LoadedModel& model, const ModelRunner& runner) {
    StreamSnapshot snapshot;
    snapshot.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    snapshot.logits_bytes = runner.logits_bytes();
    snapshot.experts = runner.expert_figures();
    if (!runner.streams()) return snapshot;
    const StreamFigures figures = runner.streamed();
    snapshot.weights_bytes = figures.weights_bytes;
    snapshot.kv_bytes = figures.kv_bytes;
    snapshot.wait_seconds = figures.wait_seconds;
    for (const EngineDevice& each : model.devices()) snapshot.links.push_back(each.device->link_in());
    return snapshot;
}

namespace {

// Returns an object for each size of passes that ran, as DistinctExperts has them: the mean "tokens" of these "passes",
// and the mean of the "distinct" experts that they needed in a layer.
std::vector<JsonObject> distinct_json(const std::vector<ExpertFigures>& figures) {
    DistinctExperts of_layers;
    std::array<std::uint64_t, DistinctExperts::kSizes> passes{};
    for (const ExpertFigures& layer : figures) {
        of_layers += layer.distinct;
        for (std::size_t i = 0; i < passes.size(); ++i)
            passes[i] = std::max(passes[i], layer.distinct.sums()[i].groups);
    }
    std::vector<JsonObject> sizes;
    for (std::size_t i = 0; i < passes.size(); ++i) {
        const DistinctSum& sum = of_layers.sums()[i];
        if (sum.groups == 0) continue;
        const auto groups = static_cast<double>(sum.groups);
        sizes.emplace_back()
            .real("tokens", static_cast<double>(sum.tokens) / groups)
            .unsigned_integer("passes", passes[i])
            .real("distinct", static_cast<double>(sum.distinct) / groups);
    }
    return sizes;
}

// Returns the object "experts" of --stats, with an object for each layer; those of layers without experts are all zero.
JsonObject experts_json(const std::vector<ExpertFigures>& figures) {
    std::vector<JsonObject> layers;
    for (const ExpertFigures& layer : figures)
        layers.emplace_back()
            .unsigned_integer("needed", layer.needed)
            .unsigned_integer("hits", layer.hits)
            .unsigned_integer("cpu", layer.cpu)
            .unsigned_integer("copied_bytes", layer.copied_bytes)
            .unsigned_integer("evicted", layer.evicted)
            .real("wait_seconds", layer.wait_seconds);
    JsonObject json;
    json.objects("layers", layers).objects("distinct_by_tokens", distinct_json(figures));
    return json;
}

// Returns the object of --stats for a generated text. `loaded`: null if nothing was loaded.
JsonObject text_json(const OpenedModel& model, const LoadedModel* loaded, const TextGenerationResult& result,
                     const RunFigures& figures) {
    const auto generated = static_cast<std::int64_t>(result.tokens.size());
    JsonObject json;
    json.text("model", model.path().string())
        .texts("devices", loaded != nullptr ? device_names(*loaded) : std::vector<std::string>{})
        .text("regime", regime_name(loaded != nullptr && loaded->plan() != nullptr ? loaded->plan()->sums().regime
                                                                                   : Regime::AllFits))
        .object("plan", loaded != nullptr ? plan_json(*loaded) : JsonObject())
        .unsigned_integer("seed", figures.seed)
        .integer("prompt_tokens", result.prompt_tokens)
        .integer("generated_tokens", generated)
        .integer("resumed_tokens", result.resumed_tokens)
        .integer("text_bytes", result.text_bytes)
        .text("stop_reason", stop_reason_name(result.stop_reason))
        .real("load_seconds", loaded != nullptr ? loaded->load_seconds() : 0.0)
        .real("first_token_seconds", figures.first_token_seconds)
        .real("prefill_seconds", result.prefill_seconds)
        .real("decode_seconds", result.decode_seconds)
        .real("tokens_per_second", result.tokens_per_second)
        .integer("passes", result.passes);
    if (result.passes > 0) {
        json.real("mean_accepted_tokens",
                  static_cast<double>(generated - result.resumed_tokens) / static_cast<double>(result.passes));
    } else {
        json.null("mean_accepted_tokens");
    }
    JsonObject streamed;
    const StreamSnapshot& stream = figures.streamed;
    streamed.unsigned_integer("weights_bytes", stream.weights_bytes)
        .unsigned_integer("kv_bytes", stream.kv_bytes)
        .unsigned_integer("logits_bytes", stream.logits_bytes)
        .unsigned_integer("prompt_weights_bytes", figures.streamed_before.weights_bytes)
        .unsigned_integer("prompt_kv_bytes", figures.streamed_before.kv_bytes);
    std::vector<double> busy;
    std::vector<double> rates;
    if (stream.seconds > 0.0) {
        constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
        for (const LinkFigures& link : stream.links) {
            busy.push_back(std::min(1.0, link.busy_seconds / stream.seconds));
            rates.push_back(static_cast<double>(link.bytes) / stream.seconds / kGib);
        }
    }
    streamed.reals("link_busy_fraction", busy).reals("link_gib_s", rates);
    JsonObject split;
    split.real("draft_seconds", result.split.draft)
        .real("verify_seconds", result.split.verify)
        .real("commit_seconds", result.split.commit)
        .real("sample_seconds", result.split.sample)
        .real("wait_seconds", figures.streamed.wait_seconds);
    json.real("budget_mean", result.budget_mean);
    if (figures.checked_tokens) {
        json.boolean("exact", true).integer("checked_tokens", *figures.checked_tokens);
        split.real("check_seconds", result.split.check);
    } else {
        json.null("exact");
    }
    JsonObject prompt;
    prompt.integer("reused_tokens", figures.reused_prompt_tokens)
        .integer("resumed_tokens", figures.resumed_prompt_tokens)
        .integer("checkpoints", figures.checkpoints)
        .unsigned_integer("checkpoint_bytes", figures.checkpoint_bytes);
    json.object("prompt", prompt);
    if (figures.view) {
        JsonObject view;
        view.text("type", view_type_name(figures.view->type))
            .real("share", figures.view->share)
            .unsigned_integer("bytes", figures.view->bytes)
            .unsigned_integer("aliased_bytes", 0)  // a view copies what is resident, too
            .real("acceptance", figures.view->acceptance)
            .integer("rebuilds", figures.view->rebuilds);
        json.object("view", view);
    } else {
        json.null("view");
    }
    if (stream.experts.empty())
        json.null("experts");
    else
        json.object("experts", experts_json(stream.experts));
    json.object("sources", figures.sources.json())
        .objects("rungs", figures.sources.levels())
        .object("streamed", streamed)
        .object("split", split)
        .null("drafting_hidden_fraction")
        .object("peak", peak_json(loaded));
    return json;
}

}  // namespace

JsonObject statistics_json(const LoadedModel& model, const TextGenerationResult& result, const RunFigures& figures) {
    return text_json(model, &model, result, figures);
}

JsonObject statistics_json(const OpenedModel& model, const TextGenerationResult& result, const RunFigures& figures) {
    return text_json(model, nullptr, result, figures);
}

JsonObject statistics_json(const LoadedModel& model, const TeacherForcedFigures& figures) {
    const auto n = static_cast<double>(figures.tokens);
    JsonObject json;
    json.text("model", model.path().string())
        .texts("devices", device_names(model))
        .object("plan", plan_json(model))
        .integer("tokens", figures.tokens);
    if (figures.nats)
        json.real("perplexity", std::exp(*figures.nats / n))
            .real("nats_per_token", *figures.nats / n)
            .real("nats_standard_error", figures.standard_error);
    if (figures.windows) json.integer("windows", *figures.windows);
    json.real("seconds", figures.seconds)
        .real("tokens_per_second", figures.seconds > 0.0 ? n / figures.seconds : 0.0)
        .object("peak", peak_json(&model));
    return json;
}

std::string speed_text(const TextGenerationResult& result) {
    if (result.tokens_per_second <= 0.0) return "one pass";
    const std::string per_pass =
        result.passes > 0 && result.budget_mean > 1.0
            ? fmt::format(", {:.2f} a pass", static_cast<double>(std::ssize(result.tokens) - result.resumed_tokens) /
                                                 static_cast<double>(result.passes))
            : "";
    return fmt::format("{:.1f} tokens/s{}", result.tokens_per_second, per_pass);
}

std::string summary_line(const TextGenerationResult& result, const SamplerOptions& sampling) {
    const std::string seed = sampling.temperature > 0.0 ? fmt::format("seed {}; ", sampling.seed) : "";
    if (result.resumed_tokens > 0 && std::ssize(result.tokens) == result.resumed_tokens)
        return fmt::format("{}, {} of the session; {}{}", counted(result.prompt_tokens, "prompt token"),
                           counted(result.resumed_tokens, "token"), seed, stop_text(result.stop_reason));
    if (result.tokens.empty() && result.stop_reason == StopReason::Interrupt)
        return fmt::format("interrupted within a prompt of {}, after {:.2f} s", counted(result.prompt_tokens, "token"),
                           result.prefill_seconds);
    const std::string resumed =
        result.resumed_tokens > 0 ? fmt::format(" after {} of the session", result.resumed_tokens) : "";
    return fmt::format("{} in {:.2f} s, {}{} in {:.2f} s ({}); {}{}", counted(result.prompt_tokens, "prompt token"),
                       result.prefill_seconds, counted(std::ssize(result.tokens) - result.resumed_tokens, "token"),
                       resumed, result.decode_seconds, speed_text(result), seed, stop_text(result.stop_reason));
}

std::string self_check_line(std::int64_t checked_tokens) {
    return fmt::format("self-check: {} computed again without draft tokens, all bits equal",
                       counted(checked_tokens, "token"));
}

}  // namespace slipstream::tools
