// The pass-time curve at load: what is measured, what limits it, and that the cache is as before.
#include "draft/control/measure_passes.h"

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

struct Subject {
    std::unique_ptr<ModelFiles> files = make_tiny_model({});
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
    Model model{*files, device, {}};
    Forward forward{model, {.max_tokens = 40, .max_logit_rows = 40}};
    KvCache cache{device, model.kv_shape(), model.config().n_layers, 64, 40};

    void commit(std::int64_t n_tokens) {
        std::vector<TokenId> tokens;
        std::vector<NodeId> nodes;
        NodeId above = kCommittedTip;
        for (std::int64_t i = 0; i < n_tokens; ++i) {
            tokens.push_back(static_cast<TokenId>(i % 97));
            nodes.push_back(above = cache.add_node(above));
        }
        static_cast<void>(forward.run(cache, tokens, nodes, {}));
        cache.commit(forward.exec(), nodes);
    }
    std::vector<float> next_logits() {
        const TokenId token = 5;
        const NodeId node = cache.add_node(kCommittedTip);
        const std::int32_t row = 0;
        const ConstTensorView logits = forward.run(cache, {&token, 1}, {&node, 1}, {&row, 1});
        std::vector<float> copy(float_row(logits, 0), float_row(logits, 0) + logits.cols());
        cache.forget();
        return copy;
    }
};

TEST(MeasurePasses, FillsTheCurveAndLeavesTheCacheAsItWas) {
    Subject subject;
    subject.commit(10);
    const std::vector<float> before = subject.next_logits();
    PassTimes times(32);
    measure_passes(times, subject.forward, subject.cache, 5.0);
    EXPECT_TRUE(times.measured());
    EXPECT_GT(times.at(1), 0.0);
    EXPECT_LT(times.at(32), 1.0);
    // 32 tokens of this model take many times as long as one.
    EXPECT_GT(times.at(32), 1.5 * times.at(1));
    EXPECT_EQ(subject.cache.n_nodes(), 0);
    EXPECT_EQ(subject.cache.n_committed(), 10);
    EXPECT_EQ(subject.next_logits(), before);
}

TEST(MeasurePasses, WithoutTimeOnlyAPassOfOneNodeIsMeasured) {
    Subject subject;
    PassTimes times(32);
    measure_passes(times, subject.forward, subject.cache, 0.0);
    EXPECT_TRUE(times.measured());
    EXPECT_EQ(times.at(32), times.at(1));
}

TEST(MeasurePasses, StaysWithinThePassAndTheContext) {
    Subject subject;
    PassTimes more_than_a_pass(512);
    measure_passes(more_than_a_pass, subject.forward, subject.cache, 5.0);
    EXPECT_TRUE(more_than_a_pass.measured());
    subject.commit(40);
    subject.commit(21);
    PassTimes three_left(32);
    measure_passes(three_left, subject.forward, subject.cache, 5.0);
    EXPECT_TRUE(three_left.measured());
    subject.commit(3);
    PassTimes none_left(32);
    measure_passes(none_left, subject.forward, subject.cache, 5.0);
    EXPECT_FALSE(none_left.measured());
    EXPECT_EQ(subject.cache.n_committed(), 64);
}

}  // namespace
}  // namespace slipstream::draft
