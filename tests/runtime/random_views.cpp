// Random texts over views of several devices: after each step a view is valid on all devices or on none, each of its
// slots holds the bytes of the position that it stands for, and its pages hold what was chosen.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tests/runtime/random_walk.h"
#include "tests/support/tiny_model.h"
#include "tests/support/view_slots.h"
#include "tests/support/viewed_split.h"

namespace slipstream {
namespace {

constexpr std::int64_t kLayers = 3;
constexpr std::int64_t kMostTokens = 520;

ViewOptions random_view(Dice& dice) {
    ViewOptions view;
    if (dice.one_in(4)) view.kind = ViewKind::Window;
    view.score = dice.pick({GroupScore::Mass, GroupScore::Mean});
    view.budget_tokens = dice.pick({32, 64, 200, 256, 264, 1024, 1536, 2048});
    view.recent_tokens = view.budget_tokens * dice.pick({10, 50, 75, 90}) / 100;
    view.rebuild_tokens = dice.pick({0, 1, 8, 16, 64});
    view.growth_tokens = dice.pick({8, 40, 130, 300});
    view.in_steps = dice.one_in(3);
    if (dice.one_in(2)) view.type = ViewType::Q4;
    return view;
}

ViewedSplitOptions random_split(Dice& dice, WalkFaults& faults, std::size_t n_devices) {
    ViewedSplitOptions options;
    options.kind = dice.one_in(2) ? SplitKind::Layers : SplitKind::Tensor;
    options.parts = n_devices == 2 ? std::vector<std::int64_t>{2, 1} : std::vector<std::int64_t>{1, 1, 1};
    options.view = random_view(dice);
    options.streams = dice.pick({KvStreams::Nowhere, KvStreams::Everywhere, KvStreams::BehindTheFirst});
    options.context_tokens = dice.pick({2048, 4096, 4096});
    options.forward = {.max_tokens = kMostTokens, .max_logit_rows = 64};
    options.scratch_nodes = kMostTokens;
    // Some have no room for a whole layer of a long text, but for the KV chunks of two prefill chunks and a transfer.
    options.ring_bytes = static_cast<std::size_t>(dice.pick({131072, 170000, 170000, 310000, 310000, 360000}));
    for (std::size_t rank = 0; rank < n_devices; ++rank) options.devices.push_back(faults.device(rank, dice));
    return options;
}

class ViewWalk {
public:
    ViewWalk(std::uint32_t seed, bool with_faults, WalkFigures& figures)
        : dice_(seed),
          with_faults_(with_faults),
          figures_(figures),
          files_(make_tiny_model({.n_layers = kLayers,
                                  .n_q_heads = 6,
                                  .n_kv_heads = 3,
                                  .context_tokens = 4096,
                                  .window = dice_.one_in(3) ? 300 : 0,
                                  .biases = true,
                                  .kv_dtype = dice_.one_in(3) ? DType::Q8_0 : DType::F16})),
          n_devices_(static_cast<std::size_t>(dice_.pick({2, 3}))),
          faults_(n_devices_),
          options_(random_split(dice_, faults_, n_devices_)),
          split_(*files_, options_) {}

    void run() {
        for (int i = 0; i < 40; ++i) {
            const char* what = "";
            if (with_faults_ && dice_.one_in(4)) faults_.strike(dice_);
            try {
                step(what);
            } catch (const Error& error) {
                if (!with_faults_) throw Broken{fmt::format("step {} ({}): {}", i, what, error.what())};
                ++figures_.n_failures;
                split_.target->forget();
            }
            faults_.clear();
            try {
                check();
            } catch (const Broken& broken) {
                throw Broken{fmt::format("step {} ({}): {}", i, what, broken.text)};
            } catch (const Error& error) {  // a copy of the step before
                if (!with_faults_) throw Broken{fmt::format("step {} ({}), read: {}", i, what, error.what())};
                ++figures_.n_failures;
                split_.target->forget();
            }
            ++figures_.n_steps;
        }
    }

private:
    void step(const char*& what) {
        Target& target = *split_.target;
        const std::int64_t n = target.n_committed();
        const std::int64_t left = options_.context_tokens - n;
        const std::int64_t op = n == 0 && dice_.one_in(2) ? 4 : dice_.below(14);
        if (left < 60 || op == 0) {
            what = "truncate";
            const std::int64_t back = left < 60 ? 1 + dice_.below(n) : dice_.pick({1, 3, 17, 40, 256, 700});
            target.truncate(std::max<std::int64_t>(0, n - back));
        } else if (op <= 2 && left > 300) {
            what = "feed";
            const std::int64_t fed = dice_.pick({1, 60, 250, 256});
            run_chain(target, fed, fed, Wanted::Nothing);
        } else if (op == 3) {
            what = "cancelled pass";
            const std::atomic<bool> cancel{true};
            run_chain(target, 6, 0, Wanted::Logits, &cancel);
        } else if (op == 4 && left > 700) {
            what = "prompt by layers";
            prompt();
        } else if (op == 5) {
            what = "pass over the view";
            if (split_.over_view->n_text() > 0) static_cast<void>(logits_over_view(*split_.over_view));
        } else {
            what = "pass";
            const std::int64_t fed = dice_.pick({1, 2, 6, 16, 40});
            run_chain(target, fed, 1 + dice_.below(fed));
        }
    }
    void prompt() {
        Target& target = *split_.target;
        const std::int64_t begin = target.n_committed();
        const std::int64_t most = (options_.context_tokens - begin - 64) / 512;  // whole prefill chunks that have room
        const std::int64_t end = (begin / 512 + 1 + (most > 1 ? dice_.below(most) : 0)) * 512;
        if (!target.takes_prompt(end)) return;
        ++figures_.n_prompts;
        const std::vector<TokenId> prompt = random_tokens(end - begin, dice_.seed());
        const std::vector<TokenId> tokens = random_tokens(1 + dice_.below(20), dice_.seed());
        target.extend(end);
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back()));
        const auto root = static_cast<std::int32_t>(dice_.below(std::ssize(tokens)));
        std::atomic<bool> cancel{dice_.one_in(8)};
        std::int64_t n_before_cancel = dice_.one_in(4) ? dice_.below(12) : -1;
        const PassControl control{.cancel = &cancel, .on_progress = [&](double /*done*/) {
                                      if (n_before_cancel-- == 0) cancel = true;
                                  }};
        const LogitRows rows = target.run({.prompt = prompt,
                                           .tokens = tokens,
                                           .nodes = nodes,
                                           .logit_tokens = {&root, 1},
                                           .needs = LogitRequest{},
                                           .control = &control});
        if (rows.empty()) return target.forget();
        target.commit(std::span(nodes).first(static_cast<std::size_t>(root + 1)));
    }
    void check() {
        const std::int64_t n = split_.target->n_committed();
        for (const auto& rank : split_.ranks)
            if (rank->cache.n_committed() != n) throw Broken{"devices hold different texts"};
        const std::int64_t n_text = split_.over_view->n_text();
        if (n_text == 0) return;
        if (n_text != n) throw Broken{fmt::format("a view of {} positions, a text of {}", n_text, n)};
        for (const auto& rank : split_.ranks)
            for (std::int64_t layer = 0; layer < rank->cache.n_layers(); ++layer) check(*rank, layer);
    }
    void check(ViewedRank& rank, std::int64_t layer) {
        ViewSlots slots(rank, layer);
        if (const std::string what = slots.problem(); !what.empty()) throw Broken{what};
        figures_.n_checked += slots.n_checked();
    }

    Dice dice_;
    bool with_faults_;
    WalkFigures& figures_;
    std::unique_ptr<ModelFiles> files_;
    std::size_t n_devices_;
    WalkFaults faults_;
    ViewedSplitOptions options_;
    ViewedSplit split_;
};

}  // namespace

void walk_views(std::uint32_t seed, bool with_faults, WalkFigures& figures) {
    ViewWalk(seed, with_faults, figures).run();
}

}  // namespace slipstream
