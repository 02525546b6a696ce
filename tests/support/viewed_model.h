// A tiny model on one device with a KV view, and passes that build the view.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/workspace.h"
#include "runtime/formats/model_files.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

/// Returns `n` random tokens below 97, the same for the same seed.
[[nodiscard]] inline std::vector<TokenId> random_tokens(std::int64_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens(static_cast<std::size_t>(n));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 97);
    return tokens;
}

enum class Wanted : std::uint8_t { Nothing, Logits };
/// Runs a pass over a chain of `n` random tokens, which depend only on the number of committed positions and on
/// `other_text`, and commits the first `n_kept` of them (0: drops all nodes). Wanted::Logits: the pass has logits of
/// the first token, else none.
inline void run_chain(Target& target, std::int64_t n, std::int64_t n_kept, Wanted wanted = Wanted::Logits,
                      const std::atomic<bool>* cancel = nullptr, std::uint32_t other_text = 0) {
    const std::vector<TokenId> tokens = random_tokens(n, static_cast<std::uint32_t>(target.n_committed()) + other_text);
    std::vector<NodeId> nodes;
    for (std::int64_t i = 0; i < n; ++i) nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back()));
    const std::int32_t root = 0;
    const PassControl control{.cancel = cancel};
    static_cast<void>(target.run({.tokens = tokens,
                                  .nodes = nodes,
                                  .logit_tokens = {&root, wanted == Wanted::Logits ? 1U : 0U},
                                  .control = &control}));
    if (n_kept == 0) return target.forget();
    target.commit(std::span(nodes).first(static_cast<std::size_t>(n_kept)));
}

/// Returns the logits of a tree of `n` nodes, [n, vocab]: `add` adds a node below another, `run` runs the pass.
template <typename Add, typename Run>
[[nodiscard]] std::vector<float> logits_of_tree(std::int64_t n, const Add& add, const Run& run) {
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> rows;
    for (std::int32_t i = 0; i < n; ++i) {
        nodes.push_back(add(i == 0 ? kCommittedTip : nodes[i - (i % 3 == 0 ? 1 : i % 3)]));
        rows.push_back(i);
    }
    const LogitRows logits = run(random_tokens(n, 5), nodes, rows);
    std::vector<float> all;
    for (std::int64_t i = 0; i < logits.rows(); ++i) all.insert(all.end(), logits.row(i).begin(), logits.row(i).end());
    return all;
}

/// Returns the logits of a fixed tree over a KV view, on one or several devices.
[[nodiscard]] inline std::vector<float> logits_over_view(ViewPasses& passes) {
    passes.forget();
    std::vector<float> seen = logits_of_tree(
        kMostViewRows, [&](NodeId above) { return passes.add_node(above); },
        [&](const auto& tokens, const auto& nodes, const auto& rows) { return passes.run(tokens, nodes, rows, {}); });
    passes.forget();
    return seen;
}
/// Returns the logits of the tree of logits_over_view(), computed over the whole KV cache.
[[nodiscard]] inline std::vector<float> logits_over_cache(Target& target) {
    std::vector<float> whole = logits_of_tree(
        kMostViewRows, [&](NodeId above) { return target.add_node(above); },
        [&](const auto& tokens, const auto& nodes, const auto& rows) {
            return target.run({.tokens = tokens, .nodes = nodes, .logit_tokens = rows});
        });
    target.forget();
    return whole;
}

[[nodiscard]] inline PageLock lock_of(const Device& device) {
    return device.shares_host_memory() ? PageLock::Pageable : PageLock::Locked;
}

/// A model with its KV cache, a view, the view's builder, and a target whose passes build the view. Each call of run()
/// says how many tokens its pass feeds and how many of them it commits.
struct ViewedModel {
    static constexpr std::int64_t kContext = 2048;
    static constexpr std::int64_t kMaxTokens = 64;

    /// `resident_chunks`: [n_layers]; empty: the whole cache is resident. `windows`: of layers that keep rings.
    ViewedModel(const ModelFiles& files, Device& device, const ViewOptions& options,
                std::vector<std::int64_t> resident_chunks, std::vector<std::int64_t> windows = {},
                std::int64_t context_tokens = kContext)
        : arena({.limit_bytes = std::size_t{64} << 20, .page_lock = lock_of(device), .device = &device}),
          model(files, device, {.context_tokens = context_tokens}),
          cache(device, model.kv_layouts(), context_tokens, kMaxTokens,
                {.resident_chunks = std::move(resident_chunks), .arena = &arena, .windows = std::move(windows)}),
          view(device, model.kv_layouts(), view_room(options, model.config(), 32)),
          builder(cache, view, model, options) {
        if (cache.streams())
            pass = std::make_unique<PassStream>(std::vector{PassReads{&model, &cache}}, arena,
                                                2 * largest_chunk_bytes(model.kv_layouts()));
        const ForwardLimits limits{.max_tokens = kMaxTokens, .max_logit_rows = kMaxTokens};
        reserve_workspace(device, Forward::workspace_shapes(model.config(), model.kv_dtype(), limits));
        forward.emplace(model, limits, pass.get());
        over_view.emplace(*forward, view);
        target.emplace(*forward, cache);
        target->build_views_with({&builder});
    }

    using Wanted = slipstream::Wanted;
    void run(std::int64_t n, std::int64_t n_kept, Wanted wanted = Wanted::Logits,
             const std::atomic<bool>* cancel = nullptr) {
        run_chain(*target, n, n_kept, wanted, cancel, other_text);
    }
    void feed(std::int64_t n) {
        for (std::int64_t left = n; left > 0; left -= kMaxTokens) {
            const std::int64_t piece = std::min(left, kMaxTokens);
            run(piece, piece, Wanted::Nothing);
        }
    }
    /// Runs passes until the view is valid for the text, at most 5. Returns their number.
    int run_until_built() {
        int n = 0;
        while (view.n_text() != cache.n_committed() && n < 5) run(6, 3), ++n;
        return n;
    }
    /// Returns whether a fixed tree has the same logits over the cache and over the view; false if the view is not
    /// valid for the text. The builder does not observe these passes.
    [[nodiscard]] bool same_logits() {
        if (view.n_text() != cache.n_committed()) return false;
        target->build_views_with({});
        const std::vector<float> whole = logits_over_cache(*target);
        target->build_views_with({&builder});
        const std::vector<float> seen = logits_over_view();
        return whole.size() == seen.size() && std::memcmp(whole.data(), seen.data(), whole.size() * sizeof(float)) == 0;
    }
    [[nodiscard]] std::vector<float> logits_over_view() { return slipstream::logits_over_view(*over_view); }

    std::uint32_t other_text = 0;  // another number: later passes feed other tokens

    PinnedArena arena;
    Model model;
    KvCache cache;
    KvView view;
    ViewBuilder builder;
    std::unique_ptr<PassStream> pass;
    std::optional<Forward> forward;
    std::optional<ViewPasses> over_view;
    std::optional<RankTarget> target;
};

}  // namespace slipstream
