// Reads a text, feeds its beginning to the target, then compares all views on the rest.
#include "tools/lab/views/view_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/amounts.h"
#include "tools/bench/bench_runs.h"
#include "tools/bench/bench_session.h"
#include "tools/bench/bench_tokens.h"
#include "tools/cli/console_callbacks.h"
#include "tools/cli/session_options.h"
#include "tools/engine/engine.h"
#include "tools/lab/views/view_comparison.h"
#include "tools/options/compute_options.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kDefaultDepth = 8192;
constexpr std::int64_t kDefaultPositions = 1024;

// How the text is used: `depth` tokens are fed, then the pass of `first_pass` tokens that builds the first views, then
// `positions` tokens on which the views are judged.
struct TextParts {
    std::int64_t depth = 0;
    std::int64_t first_pass = 0;
    std::int64_t positions = 0;
    [[nodiscard]] std::int64_t run() const { return first_pass + positions; }
    [[nodiscard]] std::int64_t all() const { return depth + run(); }
};

std::string text_name(const ViewsRequest& request) {
    return (request.session ? *request.session : request.file).string();
}

TextParts text_parts(const ViewsRequest& request, std::int64_t text_tokens, std::int64_t context_tokens) {
    TextParts parts{.first_pass = view_pass_tokens(request),
                    .positions = request.max_tokens.value_or(kDefaultPositions)};
    const std::int64_t room = std::min(text_tokens, context_tokens) - parts.run();
    parts.depth = request.depth.value_or(std::min(kDefaultDepth, room));
    if (parts.depth < kGroupTokens || parts.depth > room)
        throw RequestError(fmt::format(
            "a depth of {}, {} for the first views and {} to compare do not fit into {} of {} and a context of {}; "
            "give a longer text, raise --ctx, or lower --depth or --max-tokens",
            std::max(parts.depth, kGroupTokens), parts.first_pass, parts.positions, counted(text_tokens, "token"),
            text_name(request), context_tokens));
    return parts;
}

std::vector<TokenId> file_tokens(const ViewsRequest& request, const ModelFiles& model) {
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(model.tokenizer_source());
    std::vector<TokenId> tokens = start_tokens(*tokenizer);
    const std::vector<TokenId> body =
        text_tokens(*tokenizer,
                    read_text(request.file, "--file",
                              most_text_bytes(request.compute.context_tokens.value_or(model.config().context_tokens))),
                    model.config());
    tokens.insert(tokens.end(), body.begin(), body.end());
    return tokens;
}

// Feeds the part of `text` that the cache does not hold yet.
void feed(Forward& forward, KvCache& cache, std::span<const TokenId> text, ProgressBar& bar) {
    for (auto begin = static_cast<std::size_t>(cache.n_committed()); begin < text.size();) {
        const std::span<const TokenId> chunk =
            text.subspan(begin, std::min(text.size() - begin, static_cast<std::size_t>(kPrefillChunkTokens)));
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < chunk.size(); ++i)
            nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
        static_cast<void>(forward.run(cache, chunk, nodes, {}, {.cancel = &cancel_flag()}));
        throw_if_interrupted();
        cache.commit(forward.exec(), nodes);
        begin += chunk.size();
        bar.update(static_cast<double>(begin), static_cast<double>(text.size()),
                   fmt::format("{} of {} tokens fed", begin, text.size()));
    }
}

}  // namespace

ViewsResult run_views(const ViewsRequest& asked, CommandContext& context) {
    ViewsRequest request = asked;
    std::optional<TextSession> session;
    if (request.session) session.emplace(open_bench_session(*request.session, context.settings, request.compute));
    OpenedModel opened =
        session ? open_session_model(*session, request.compute.devices, context, console_callbacks(context))
                : OpenedModel(choose_model(context));
    const ModelConfig& config = opened.config();
    if (config.is_recurrent())
        throw RequestError(
            "a view holds a part of the KV, and the model's recurrent layers have none; take another model");
    const std::vector<TokenId> tokens = session ? session_text(*session) : file_tokens(request, opened.files());
    static_cast<void>(
        text_parts(request, std::ssize(tokens), request.compute.context_tokens.value_or(config.context_tokens)));
    if (request.compute.devices.size() > 1)
        throw RequestError("views are compared on one device; name one by --devices");
    ViewsResult result;
    PlacedModel placed = place_and_measure(result.run, std::move(opened), request.compute, context);
    const TextParts parts = text_parts(request, std::ssize(tokens), placed.context_tokens());
    context.console.note(
        fmt::format("views: {} of {} fed, then {} compared in passes of {}; all weights and KV stay "
                    "on the device",
                    counted(parts.depth, "token"), text_name(request), parts.positions, parts.first_pass));
    const std::vector<KvLayout> kv = placed.kv_layouts();
    // The session may be longer than the part that is compared.
    const std::int64_t longest = session ? std::max(parts.all(), std::ssize(tokens)) : parts.all();
    const RunNeeds needs{{.text_tokens = longest,
                          .forward = {.max_tokens = kPrefillChunkTokens, .max_logit_rows = kViewPassTokens},
                          .scratch_nodes = kPrefillChunkTokens},
                         ViewComparison::device_bytes(config, kv, longest, request, parts.depth, parts.run())};
    const LoadedModel model = load_for_bench(result.run, std::move(placed), needs, context);
    result.run.token_source = "text";
    result.run.sampling = describe_sampling(request.sampling);
    result.run.depth = parts.depth;
    result.pass_tokens = parts.first_pass;

    const auto runner = make_runner(model, needs, console_callbacks(context));
    if (runner->streams())
        throw RequestError(
            "views are compared where nothing streams, and model and KV do not fit on the device; "
            "lower --depth, --ctx or --view-budgets, or take a smaller model");
    ViewComparison comparison(*model.whole_model(), runner->cache(), runner->forward(), request, parts.depth,
                              parts.run());
    const std::span<const TokenId> text(tokens);
    if (session) {
        static_cast<void>(session->restore(runner->target(), model, console_callbacks(context)));
        runner->target().truncate(std::min(parts.depth, runner->target().n_committed()));
    }
    ProgressBar bar(context.console, "views");
    feed(runner->forward(), runner->cache(), text.first(parts.depth), bar);
    const auto next = [&](std::int64_t done) {
        return text.subspan(parts.depth + done, std::min(parts.first_pass, parts.run() - done));
    };
    comparison.begin(next(0));
    for (std::int64_t done = parts.first_pass; done < parts.run(); done += parts.first_pass) {
        comparison.compare(next(done));
        bar.update(static_cast<double>(done), static_cast<double>(parts.run()),
                   fmt::format("{} of {} positions compared", done, parts.positions));
    }
    result.views = comparison.figures();
    return result;
}

}  // namespace slipstream::tools
