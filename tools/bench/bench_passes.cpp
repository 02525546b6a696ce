// Times single passes of several numbers of tokens after a filled KV cache.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/sampling.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/loop/target.h"
#include "runtime/plan/split_plan.h"
#include "tools/base/amounts.h"
#include "tools/base/usage_error.h"
#include "tools/bench/bench_runs.h"
#include "tools/bench/bench_tokens.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/draft_options.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::uint64_t kFillSeed = 1;
constexpr int kMostFillingPasses = 64;

void check_pass_room(std::int64_t depth, std::int64_t largest, std::int64_t context_tokens) {
    if (depth + largest > context_tokens)
        throw RequestError(
            fmt::format("--depth {} and a pass of {} need a context of {}; it is {}: raise --ctx, or "
                        "lower --depth or --passes",
                        depth, counted(largest, "token"), depth + largest, context_tokens));
}

// Sets the bytes that a pass copies over the links, and the time of the slowest link: at its throttled rate, else at
// its measured rate.
void put_stream_figures(PassFigures& pass, const StreamSnapshot& all, std::int64_t n_passes,
                        std::span<const EngineDevice> devices) {
    if (all.weights_bytes + all.kv_bytes == 0) return;
    const auto n = static_cast<double>(n_passes);
    pass.streamed_bytes = static_cast<double>(all.weights_bytes + all.kv_bytes) / n;
    for (std::size_t i = 0; i < all.links.size(); ++i) {
        if (all.links[i].bytes == 0) continue;
        const auto bytes = static_cast<double>(all.links[i].bytes);
        const double throttled = devices[i].throttled_link_bytes_per_second;
        const double rate = throttled > 0.0 ? throttled : bytes / all.links[i].busy_seconds;
        // With one device, bytes that were copied ahead for later passes are left out: the bytes that passes read are
        // known.
        const double read = all.links.size() == 1 ? pass.streamed_bytes : bytes / n;
        pass.link_seconds = std::max(pass.link_seconds, read / rate);
    }
}

void add(StreamSnapshot& sum, const StreamSnapshot& passes) {
    sum.weights_bytes += passes.weights_bytes;
    sum.kv_bytes += passes.kv_bytes;
    sum.links.resize(passes.links.size());
    for (std::size_t i = 0; i < passes.links.size(); ++i) {
        sum.links[i].bytes += passes.links[i].bytes;
        sum.links[i].busy_seconds += passes.links[i].busy_seconds;
    }
}

/// Random tokens, other ones for each pass: of a mixture the same ones would choose the same experts, which have their
/// slots after the first pass.
class PassTokens {
public:
    PassTokens(std::int64_t largest, std::int64_t vocab) : tokens_(seeded_tokens(std::max(largest, kDrawn), vocab)) {}
    [[nodiscard]] std::span<const TokenId> next(std::int64_t n) {
        if (next_ + n > std::ssize(tokens_)) next_ = 0;
        next_ += n;
        return std::span(tokens_).subspan(static_cast<std::size_t>(next_ - n), static_cast<std::size_t>(n));
    }

private:
    static constexpr std::int64_t kDrawn = 1 << 16;
    std::vector<TokenId> tokens_;
    std::int64_t next_ = 0;
};

// A pass of draft tokens below a certain one; of more than generation drafts, `most_drafts`, one of prompt tokens.
double timed_pass(Target& target, std::span<const TokenId> tokens, std::int64_t most_drafts) {
    const NodeKind kind = std::ssize(tokens) > most_drafts + 1 ? NodeKind::Certain : NodeKind::Draft;
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        nodes.push_back(i == 0 ? target.add_node(kCommittedTip, NodeKind::Certain)
                               : target.add_node(nodes.back(), kind));
        rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto began = std::chrono::steady_clock::now();
    const PassControl control{.cancel = &cancel_flag()};
    // The logits that generation needs with the usual samplers: on a GPU only the best of each row are copied to the
    // host.
    static_cast<void>(target.run({.tokens = tokens,
                                  .nodes = nodes,
                                  .logit_tokens = rows,
                                  .needs = LogitRequest{.n_best = kMostTopLogits},
                                  .control = &control}));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    throw_if_interrupted();
    target.forget();
    return seconds;
}

// Returns the needs of generation with this drafting, so that passes are measured with generation's plan: for the whole
// context and the drafter's trees, and for larger passes only if `largest` exceeds those.
RunNeeds needs_of_generating(const Drafting& drafting, std::int64_t largest, CommandContext& context) {
    const std::int64_t budget = drafting.budget();
    RunNeeds needs = drafting.needs(0);
    if (largest > budget)
        context.console.note(
            fmt::format("passes of {} need more memory than generating does, whose largest here has {}: less of the "
                        "model may stay on the device",
                        counted(largest, "token"), counted(budget, "token")));
    needs.forward.max_tokens = std::max(needs.forward.max_tokens, largest);
    needs.forward.max_logit_rows = std::max(needs.forward.max_logit_rows, largest);
    needs.scratch_nodes = std::max(needs.scratch_nodes, largest);
    return needs;
}

// Times passes of each size once more, stage by stage. Each stage is waited for, so on a GPU, where stages otherwise
// overlap and short passes are graphs, these passes are slower than the others.
void time_stages(BenchResult& result, ModelRunner& runner, PassTokens& tokens, std::int64_t most_drafts,
                 const LoadedModel& model) {
    runner.profile(StageEnd::Synchronized, nullptr);
    const auto n = static_cast<double>(result.repeat);
    for (PassFigures& pass : result.passes) {
        // A pass that is not measured: the ring still holds what passes of the previous size have copied ahead.
        static_cast<void>(timed_pass(runner.target(), tokens.next(pass.tokens), most_drafts));
        for (std::size_t rank = 0; rank < runner.n_ranks(); ++rank) runner.stages(rank).clear();
        double seconds = 0.0;
        for (std::int64_t i = 0; i < result.repeat; ++i)
            seconds += timed_pass(runner.target(), tokens.next(pass.tokens), most_drafts);
        pass.staged_seconds = seconds / n;
        double rest = pass.staged_seconds;
        for (std::size_t rank = 0; rank < runner.n_ranks(); ++rank) {
            const std::string device(model.devices()[rank].device->name());
            for (std::size_t i = 0; i < kPassStages; ++i) {
                const auto stage = static_cast<PassStage>(i);
                const StageTotal& total = runner.stages(rank).total(stage);
                if (total.calls == 0) continue;
                pass.stages.push_back(
                    {device, stage_name(stage), total.seconds / n, static_cast<double>(total.bytes) / n});
                rest -= total.seconds / n;
            }
            // Devices that share matrices compute at the same time, so each has a rest of its own.
            if (!model.shards_matrices()) continue;
            pass.stages.push_back({device, "other", std::max(rest, 0.0), 0.0});
            rest = pass.staged_seconds;
        }
        if (!model.shards_matrices()) pass.stages.push_back({"", "other", std::max(rest, 0.0), 0.0});
    }
}

// Returns the needs of the passes if no memory budget is set: nothing is planned then, so drafting options have no
// effect, and UsageError is thrown for them.
RunNeeds needs_of_passes(std::int64_t depth, std::int64_t largest, const CommandContext& context) {
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel))
        if (const Setting* setting = context.settings.on_command_line(option.name))
            throw UsageError(fmt::format(
                "{} has an effect on --passes only if a device's memory is limited (--device-memory); remove it",
                setting->where));
    return {{.text_tokens = depth + largest,
             .forward = {.max_tokens = largest, .max_logit_rows = largest},
             .scratch_nodes = std::max(largest, kChunkTokens)}};
}

}  // namespace

void run_passes(BenchResult& result, const BenchRequest& request, OpenedModel opened, CommandContext& context) {
    const std::int64_t largest = *std::max_element(request.passes.begin(), request.passes.end());
    const ModelConfig& config = opened.config();
    const std::int64_t depth = request.depth.value_or(0);
    check_pass_room(depth, largest, request.compute.context_tokens.value_or(config.context_tokens));
    PlacedModel placed = place_and_measure(result, std::move(opened), request.compute, context);
    check_pass_room(depth, largest, placed.context_tokens());
    std::optional<Drafting> drafting;  // made before the target is loaded: a draft model takes memory from its budget
    if (placed.budgeted())
        drafting.emplace(std::span(request.drafts).first(1), placed, nullptr, request.sampling,
                         console_callbacks(context));
    RunNeeds needs =
        drafting ? needs_of_generating(*drafting, largest, context) : needs_of_passes(depth, largest, context);
    if (depth > 0) needs.other_bytes += fill_cache_bytes(config.kv_layouts(placed.kv_dtype()));
    const LoadedModel model = load_for_bench(result, std::move(placed), needs, context);
    result.token_source = "seeded ids";
    result.depth = depth;

    const auto runner = make_runner(model, needs, console_callbacks(context));
    if (request.trace) runner->profile(StageEnd::Enqueued, request.trace.get());
    Target& target = runner->target();
    const std::int64_t most_drafts = needs.forward.max_drafts > 0 ? needs.forward.max_drafts : largest;
    PassTokens tokens(largest, config.vocab);
    ProgressBar bar(context.console, "bench");
    runner->fill(depth, kFillSeed, [&](std::int64_t n) {
        throw_if_interrupted();
        bar.update(static_cast<double>(n), static_cast<double>(depth),
                   fmt::format("cache filled to {} of {}", n, depth));
    });
    for (const std::int64_t n : request.passes)
        result.passes.push_back({.tokens = n,
                                 .seconds = {},
                                 .weight_bytes = weight_bytes(model, n).all(),
                                 .kv_bytes = kv_read_bytes(config, target.shape().kv, depth, n)});
    // The slots for experts are filled first, with experts that random tokens choose.
    for (int i = 0; i < kMostFillingPasses && !runner->slots_are_full(); ++i)
        static_cast<void>(timed_pass(target, tokens.next(largest), most_drafts));
    std::vector<StreamSnapshot> streamed(result.passes.size());  // by passes of each size
    // If weights or KV stream, the ring carries items over from pass to pass: the first pass of each size starts with
    // what the previous size left, so it is not counted. If passes are recorded as CUDA graphs, the second pass of a
    // size records its graph; round 0 runs two passes, so that this is not measured.
    for (std::int64_t round = 0; round <= request.repeat; ++round) {
        for (PassFigures& pass : result.passes) {
            const StreamSnapshot before = stream_snapshot(model, *runner);
            if (runner->streams() || (round == 0 && runner->has_graphs()))
                static_cast<void>(timed_pass(target, tokens.next(pass.tokens), most_drafts));
            const double seconds = timed_pass(target, tokens.next(pass.tokens), most_drafts);
            if (round > 0) pass.seconds.push_back(seconds);  // round 0 is for warm-up
            add(streamed[&pass - result.passes.data()], stream_snapshot(model, *runner) - before);
        }
        bar.update(static_cast<double>(round + 1), static_cast<double>(request.repeat + 1),
                   fmt::format("{} of {} rounds", round + 1, request.repeat + 1));
    }
    if (runner->streams()) {
        // Random tokens do not share experts as texts do.
        std::vector<CountedExperts> counted = counted_experts(model.expert_counts());
        for (CountedExperts& layer : counted) layer.distinct.clear();
        const SplitPlan plan = model.plan()->with_counted(counted);
        for (PassFigures& pass : result.passes) {
            put_stream_figures(pass, streamed[&pass - result.passes.data()], 2 * (request.repeat + 1), model.devices());
            pass.predicted_seconds = plan.pass(pass.tokens, depth).seconds;
        }
    }
    if (request.stages) time_stages(result, *runner, tokens, most_drafts, model);
}

}  // namespace slipstream::tools
