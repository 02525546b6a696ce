// Random texts over a model that is split, streamed and disturbed, beside the same split with everything resident: the
// same logits, bit for bit, and the same KV at the end.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/cache/kv_ring.h"
#include "tests/runtime/random_walk.h"
#include "tests/support/target_texts.h"
#include "tests/support/tensor_engine.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = SplitEngine::kContext;
constexpr std::int64_t kRingContext = 3600;  // more than the KV chunks of a ring

/// A tree, whose nodes a target numbers itself.
struct RandomTree {
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;  // -1: the text's end

    RandomTree(std::int64_t n, Dice& dice) : tokens(random_tokens(n, dice.seed())) {
        for (std::int64_t i = 0; i < n; ++i) parents.push_back(i == 0 ? -1 : static_cast<std::int32_t>(dice.below(i)));
    }
    [[nodiscard]] std::vector<NodeId> hang(Target& target) const {
        std::vector<NodeId> nodes;
        for (const std::int32_t parent : parents)
            nodes.push_back(target.add_node(parent < 0 ? kCommittedTip : nodes[parent]));
        return nodes;
    }
    /// From the root to `node`.
    [[nodiscard]] std::vector<NodeId> path(std::int64_t node, const std::vector<NodeId>& nodes) const {
        std::vector<NodeId> path;
        for (; node >= 0; node = parents[node]) path.insert(path.begin(), nodes[node]);
        return path;
    }
};

void append_rows(std::vector<float>& all, const LogitRows& rows) {
    for (std::int64_t i = 0; i < rows.rows(); ++i) all.insert(all.end(), rows.row(i).begin(), rows.row(i).end());
}

/// Logits of all nodes, in one pass or in two.
std::vector<float> logits_of(Target& target, const RandomTree& tree, const std::vector<NodeId>& nodes,
                             std::size_t n_first) {
    std::vector<float> all;
    for (std::size_t begin = 0; begin < nodes.size();) {
        const std::size_t n = begin == 0 ? n_first : nodes.size() - begin;
        std::vector<std::int32_t> rows;
        for (std::size_t i = 0; i < n; ++i) rows.push_back(static_cast<std::int32_t>(i));
        append_rows(all, target.run({.tokens = std::span(tree.tokens).subspan(begin, n),
                                     .nodes = std::span(nodes).subspan(begin, n),
                                     .logit_tokens = rows}));
        begin += n;
    }
    return all;
}

void feed(Target& target, std::span<const TokenId> text) {
    while (!text.empty()) {
        const auto n = std::min<std::size_t>(text.size(), static_cast<std::size_t>(512 - target.n_committed() % 512));
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < n; ++i) nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back()));
        static_cast<void>(target.run({.tokens = text.first(n), .nodes = nodes}));
        target.commit(nodes);
        text = text.subspan(n);
    }
}

template <typename Engine>
class SplitWalk {
public:
    SplitWalk(Dice& dice, const std::vector<std::int64_t>& parts, bool with_faults, WalkFigures& figures)
        : dice_(dice),
          with_faults_(with_faults),
          figures_(figures),
          files_(make_tiny_model({.n_layers = 4,
                                  .n_q_heads = 6,
                                  .n_kv_heads = 3,
                                  .context_tokens = kRingContext,
                                  .window = dice.pick({0, 0, 0, 300, 300, 40, 256}),
                                  .weight_type = dice.pick({DType::BF16, DType::F32}),
                                  .biases = dice.one_in(2),
                                  .kv_dtype = dice.one_in(3) ? DType::Q8_0 : DType::F16})),
          // Half of the models with windows keep rings.
          kept_(files_->config().window(1) > 0 && dice.one_in(2) ? WindowedKv::Ring : WindowedKv::Whole),
          context_(kept_ == WindowedKv::Ring ? kRingContext : kContext),
          faults_(parts.size()) {
        for (std::size_t rank = 0; rank < parts.size(); ++rank)
            resident_devices_.push_back(std::make_unique<RankDevice>());
        resident_.emplace(*files_, parts, Streams::Nothing, std::size_t{1} << 17, resident_devices_, WindowedKv::Whole,
                          context_);
        for (std::size_t rank = 0; rank < parts.size(); ++rank)
            devices_.push_back(std::make_unique<RankDevice>(faults_.device(rank, dice)));
        const auto streams = dice.pick({Streams::Weights, Streams::Kv, Streams::Both});
        const std::size_t ring_bytes = dice.pick<std::size_t>({1 << 17, 150'000, 1 << 18, 1 << 19, 1 << 20});
        streamed_.emplace(*files_, parts, streams, ring_bytes, devices_, kept_, context_);
    }

    void run() {
        if (kept_ == WindowedKv::Ring) {
            const auto text = random_tokens(1800, dice_.seed());
            feed(target(), text);
            feed(other(), text);
        }
        for (int i = 0; i < 40; ++i) {
            what_ = "";
            if (with_faults_ && dice_.one_in(3)) faults_.strike(dice_);
            try {
                step();
            } catch (const Error& error) {
                if (!with_faults_) throw Broken{fmt::format("step {} ({}): {}", i, what_, error.what())};
                ++figures_.n_failures;
                streamed_->plain->forget();
                target().forget();
                faults_.clear();
            } catch (const Broken& broken) {
                throw Broken{fmt::format("step {} ({}): {}", i, what_, broken.text)};
            }
            even_up(i);
            ++figures_.n_steps;
        }
        faults_.clear();
        compare_kv();
    }

private:
    [[nodiscard]] Target& target() { return *streamed_->target; }
    [[nodiscard]] Target& other() { return *resident_->target; }

    void step() {
        const std::int64_t n = target().n_committed();
        const std::int64_t left = context_ - n;
        const std::int64_t op = dice_.below(12);
        if (left < 80 || op == 0) {
            what_ = "truncate";
            const std::int64_t back = left < 80 ? 1 + dice_.below(2500) : dice_.pick({1, 3, 40, 255, 256, 257, 700});
            std::int64_t kept = std::max<std::int64_t>(0, n - back);
            target().truncate(kept);
            // Rings keep all positions after a cut within the slack, and none after some deeper cuts.
            if (kept_ == WindowedKv::Ring && back > kCutSlackTokens && target().n_committed() == 0) kept = 0;
            other().truncate(kept);
        } else if (op == 1 && left > 530) {
            what_ = "feed";
            const auto text =
                random_tokens(std::min<std::int64_t>(dice_.pick({1, 60, 250, 256, 512}), 512 - n % 512), dice_.seed());
            feed(target(), text);
            feed(other(), text);
        } else if (op == 2) {
            what_ = "cancelled pass";
            const std::atomic<bool> cancel{true};
            run_chain(target(), 6, 0, Wanted::Logits, &cancel);
        } else if (op <= 4 && left > 700) {
            what_ = "prompt by layers";
            prompt(n, left);
        } else {
            what_ = "pass";
            pass();
        }
    }
    void pass() {
        if (dice_.one_in(3)) run_chain(*streamed_->plain, 4, 0);  // the same KV by another target
        const RandomTree tree(dice_.pick({1, 2, 6, 9}), dice_);
        const auto n = static_cast<std::int64_t>(tree.tokens.size());
        const std::vector<NodeId> nodes = tree.hang(target());
        const std::int64_t n_first = n > 2 && dice_.one_in(3) ? n / 2 : n;
        const std::vector<float> seen = logits_of(target(), tree, nodes, static_cast<std::size_t>(n_first));
        const std::vector<NodeId> others = tree.hang(other());
        compare(seen, logits_of(other(), tree, others, static_cast<std::size_t>(n)));
        const std::int64_t last = dice_.below(n);
        target().commit(tree.path(last, nodes));
        other().commit(tree.path(last, others));
    }
    void prompt(std::int64_t begin, std::int64_t left) {
        const std::int64_t end = (begin / 512 + 1 + (left > 1300 ? dice_.below(2) : 0)) * 512;
        if (!target().takes_prompt(end)) return;
        ++figures_.n_prompts;
        const std::vector<TokenId> prompt = random_tokens(end - begin, dice_.seed());
        const RandomTree tree(1 + dice_.below(9), dice_);
        target().extend(end);
        const std::vector<NodeId> nodes = tree.hang(target());
        std::vector<std::int32_t> rows;
        for (std::int32_t i = 0; i < std::ssize(nodes); ++i) rows.push_back(i);
        const std::atomic<bool> cancel{dice_.one_in(5)};
        const PassControl control{.cancel = &cancel};
        const LogitRows got = target().run({.prompt = prompt,
                                            .tokens = tree.tokens,
                                            .nodes = nodes,
                                            .logit_tokens = rows,
                                            .needs = LogitRequest{},
                                            .control = &control});
        if (got.empty()) {
            target().forget();
            if (kept_ == WindowedKv::Ring && target().n_committed() == 0) return other().truncate(0);
            if (target().n_committed() != begin)
                throw Broken{
                    fmt::format("{} of {} positions after a prompt that was given up", target().n_committed(), begin)};
            return;
        }
        std::vector<float> seen;
        append_rows(seen, got);
        feed(other(), prompt);
        const std::vector<NodeId> others = tree.hang(other());
        compare(seen, logits_of(other(), tree, others, others.size()));
        const std::int64_t last = dice_.below(std::ssize(nodes));
        target().commit(tree.path(last, nodes));
        other().commit(tree.path(last, others));
    }
    void compare(const std::vector<float>& seen, const std::vector<float>& expected) {
        figures_.n_checked += std::ssize(expected) / kTinyVocab;
        if (!same_bits(seen, expected)) throw Broken{"the logits differ from those without streaming"};
    }
    // A fault may cost the last chunks of a text, and nothing else.
    void even_up(int step) {
        const std::int64_t n = target().n_committed();
        for (std::size_t rank = 0; rank < streamed_->runner->n_ranks(); ++rank)
            if (streamed_->runner->cache(rank).n_committed() != n)
                throw Broken{fmt::format("step {}: devices hold different texts", step)};
        other().forget();
        if (with_faults_ && n < other().n_committed()) other().truncate(n);
        if (n != other().n_committed())
            throw Broken{
                fmt::format("step {} ({}): {} positions, {} without streaming", step, what_, n, other().n_committed())};
    }
    void compare_kv() {
        try {
            if (kv_of(target(), target()) != kv_of(other(), target()))
                throw Broken{"the KV differs from that without streaming"};
        } catch (const Error& error) {
            if (!with_faults_) throw Broken{fmt::format("KV: {}", error.what())};
            ++figures_.n_failures;  // a copy of the last step
        }
    }

    Dice& dice_;
    bool with_faults_;
    WalkFigures& figures_;
    const char* what_ = "";
    std::unique_ptr<ModelFiles> files_;
    WindowedKv kept_;       // by the streamed target
    std::int64_t context_;  // of both targets
    WalkFaults faults_;
    std::vector<std::unique_ptr<RankDevice>> resident_devices_;
    std::optional<Engine> resident_;
    std::vector<std::unique_ptr<RankDevice>> devices_;
    std::optional<Engine> streamed_;
};

}  // namespace

void walk_splits(std::uint32_t seed, bool with_faults, WalkFigures& figures) {
    Dice dice(seed);
    switch (dice.below(5)) {
        case 0:
            return SplitWalk<SplitEngine>(dice, {2, 2}, with_faults, figures).run();
        case 1:
            return SplitWalk<SplitEngine>(dice, {4}, with_faults, figures).run();
        case 2:
            return SplitWalk<SplitEngine>(dice, {2, 1, 1}, with_faults, figures).run();
        case 3:
            return SplitWalk<TensorEngine>(dice, {2, 1}, with_faults, figures).run();
        default:
            return SplitWalk<TensorEngine>(dice, {1, 1, 1}, with_faults, figures).run();
    }
}

}  // namespace slipstream
