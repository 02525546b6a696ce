// A tiny model on a device with a view of its cache, and passes that build it.
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
#include "runtime/loop/device_target.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

/// Passes are told apart by what they feed and what they commit of it. Random tokens, the same behind as many
/// positions.
struct ViewedModel {
    static constexpr std::int64_t kContext = 2048;
    static constexpr std::int64_t kMaxTokens = 64;

    /// `resident_chunks`: of each layer; empty: all of the cache is resident.
    ViewedModel(const ModelFiles& files, Device& device, const ViewOptions& options,
                std::vector<std::int64_t> resident_chunks)
        : arena({.limit_bytes = std::size_t{64} << 20, .page_lock = lock_of(device), .device = &device}),
          model(files, device, {.context_tokens = kContext}),
          cache(device, model.kv_shape(), model.config().n_layers, kContext, kMaxTokens,
                {.resident_chunks = std::move(resident_chunks), .arena = &arena}),
          view(device, model.kv_shape(), model.config().n_layers, {.n_slots = options.slots(), .max_nodes = 32}),
          builder(device, cache, view, model.config(), options) {
        if (cache.streams())
            pass = std::make_unique<PassStream>(std::vector{PassReads{&model, &cache}}, arena,
                                                2 * cache.shape().chunk_bytes());
        const ForwardLimits limits{.max_tokens = kMaxTokens, .max_logit_rows = kMaxTokens};
        reserve_workspace(device, Forward::workspace_shapes(model.config(), model.kv_shape().dtype, limits));
        forward.emplace(model, limits, pass.get());
        over_view.emplace(model, limits);
        target.emplace(*forward, cache);
        target->build_view_with(&builder);
    }

    /// `n` tokens, of which `n_kept` are committed; with logits of the first, unless they are fed without.
    enum class Wanted : std::uint8_t { Nothing, Logits };
    void run(std::int64_t n, std::int64_t n_kept, Wanted wanted = Wanted::Logits,
             const std::atomic<bool>* cancel = nullptr) {
        const std::vector<TokenId> tokens = random_tokens(n, static_cast<std::uint32_t>(target->n_committed()));
        std::vector<NodeId> nodes;
        for (std::int64_t i = 0; i < n; ++i) nodes.push_back(target->add_node(i == 0 ? kCommittedTip : nodes.back()));
        const std::int32_t root = 0;
        const PassWatch watch{.cancel = cancel};
        static_cast<void>(target->run({.tokens = tokens,
                                       .nodes = nodes,
                                       .logit_tokens = {&root, wanted == Wanted::Logits ? 1U : 0U},
                                       .watch = &watch}));
        if (n_kept == 0) return target->forget();
        target->commit(std::span(nodes).first(static_cast<std::size_t>(n_kept)));
    }
    void feed(std::int64_t n) {
        for (std::int64_t left = n; left > 0; left -= kMaxTokens) {
            const std::int64_t piece = std::min(left, kMaxTokens);
            run(piece, piece, Wanted::Nothing);
        }
    }
    /// Passes until the view stands for the text.
    int run_until_built() {
        int n = 0;
        while (view.n_text() != cache.n_committed() && n < 5) run(6, 3), ++n;
        return n;
    }
    /// Logits of the same tree over the cache and over the view.
    [[nodiscard]] bool same_logits() {
        if (view.n_text() != cache.n_committed()) return false;
        const std::vector<float> whole =
            tree_over(*forward, cache, [&](NodeId above) { return cache.add_node(above); });
        cache.forget();
        const std::vector<float> seen = logits_over_view();
        return whole.size() == seen.size() && std::memcmp(whole.data(), seen.data(), whole.size() * sizeof(float)) == 0;
    }

    [[nodiscard]] std::vector<float> logits_over_view() {
        view.forget();
        std::vector<float> seen = tree_over(*over_view, view, [&](NodeId above) { return view.add_node(above); });
        view.forget();
        return seen;
    }

    PinnedArena arena;
    Model model;
    KvCache cache;
    KvView view;
    ViewBuilder builder;
    std::unique_ptr<PassStream> pass;
    std::optional<Forward> forward, over_view;
    std::optional<DeviceTarget> target;

private:
    static std::vector<TokenId> random_tokens(std::int64_t n, std::uint32_t seed) {
        std::mt19937 random(seed);
        std::vector<TokenId> tokens(static_cast<std::size_t>(n));
        for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 97);
        return tokens;
    }
    static PageLock lock_of(const Device& device) {
        return device.shares_host_memory() ? PageLock::Pageable : PageLock::Locked;
    }
    template <typename Add>
    static std::vector<float> tree_over(Forward& forward, PassKv& kv, Add&& add) {
        std::vector<NodeId> nodes;
        std::vector<std::int32_t> rows;
        for (std::int32_t i = 0; i < 20; ++i) {
            nodes.push_back(
                add(i == 0 ? kCommittedTip : nodes[static_cast<std::size_t>(i - (i % 3 == 0 ? 1 : i % 3))]));
            rows.push_back(i);
        }
        const ConstTensorView logits = forward.run(kv, random_tokens(20, 5), nodes, rows);
        return {float_row(logits, 0), float_row(logits, 0) + logits.rows() * logits.cols()};
    }
};

}  // namespace slipstream
