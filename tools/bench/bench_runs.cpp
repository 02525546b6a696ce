#include "tools/bench/bench_runs.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "tools/base/amounts.h"
#include "tools/cli/console_callbacks.h"
#include "tools/cli/session_options.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/sampling_options.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

std::string describe_sampling(const SamplerOptions& sampling) {
    std::string penalty =
        sampling.repeat_penalty != 1.0 ? fmt::format(", repeat penalty {}", sampling.repeat_penalty) : "";
    if (sampling.presence_penalty != 0.0) penalty += fmt::format(", presence penalty {}", sampling.presence_penalty);
    if (sampling.frequency_penalty != 0.0) penalty += fmt::format(", frequency penalty {}", sampling.frequency_penalty);
    if (!penalty.empty() && sampling.repeat_window != SamplerOptions{}.repeat_window)
        penalty += fmt::format(", over the last {}", window_text(sampling.repeat_window));
    if (!sampling.bias.empty()) penalty += fmt::format(", {} biased", counted(std::ssize(sampling.bias), "token"));
    if (sampling.temperature == 0.0) return fmt::format("greedy{}", penalty);
    return fmt::format("temperature {}, top-k {}, top-p {}, min-p {}{}, seed {}", sampling.temperature, sampling.top_k,
                       sampling.top_p, sampling.min_p, penalty, sampling.seed);
}

WeightBytes weight_bytes(const LoadedModel& model, std::int64_t n_tokens) {
    WeightBytes sum;
    for (const auto& shard : model.models()) {
        const WeightBytes part = weight_bytes(shard->config(), shard->weights(), n_tokens);
        sum.layers += part.layers;
        sum.head += part.head;
    }
    return sum;
}

PlacedModel place_and_measure(BenchResult& result, OpenedModel opened, const ComputeOptions& compute,
                              CommandContext& context) {
    PlacedModel placed(std::move(opened), compute, console_callbacks(context));
    // Measured before the weights are loaded, since it needs memory, which is free again afterwards.
    result.machine = measure_machine(placed.device(), compute.n_threads);
    throw_if_interrupted();
    result.form = placed.device_forms().forms;
    result.model = placed.path().string();
    result.context_tokens = placed.context_tokens();
    result.kv_dtype = placed.kv_dtype();
    return placed;
}

LoadedModel load_for_bench(BenchResult& result, PlacedModel placed, const RunNeeds& needs, CommandContext& context) {
    LoadedModel model(std::move(placed), needs, console_callbacks(context));
    result.load_seconds = model.load_seconds();
    result.plan = std::make_shared<const JsonObject>(plan_json(model));
    result.weights = weight_bytes(model, 1);
    return model;
}

BenchResult run_bench(const BenchRequest& asked, CommandContext& context) {
    BenchRequest request = asked;
    std::optional<TextSession> session;
    if (request.session) session.emplace(open_bench_session(*request.session, context.settings, request.compute));
    OpenedModel opened =
        session ? open_session_model(*session, request.compute.devices, context, console_callbacks(context))
                : OpenedModel(choose_model(context));
    BenchResult result;
    result.mode = request.mode;
    result.repeat = request.repeat;
    result.sampling = describe_sampling(request.sampling);
    switch (request.mode) {
        case BenchMode::Plain:
            run_plain(result, request, std::move(opened), session ? &*session : nullptr, context);
            break;
        case BenchMode::Prompts:
            run_prompts(result, request, std::move(opened), context);
            break;
        case BenchMode::Passes:
            run_passes(result, request, std::move(opened), context);
            break;
    }
    return result;
}

}  // namespace slipstream::tools
