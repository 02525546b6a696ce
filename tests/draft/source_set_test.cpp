// What sources are made with: a draft model's window by the bytes it may take and the longest text.
#include "draft/source_set.h"

#include <gtest/gtest.h>

#include "draft/models/draft_model.h"
#include "kernels/cpu_device.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

class SourceSetTest : public testing::Test {
protected:
    SourceSet sources(std::size_t window_tokens, std::int64_t text_tokens) {
        DraftOptions options;
        options.sources = {SourceKind::Suffix, SourceKind::Model, SourceKind::Context};
        // [layers][K|V][kv heads][head_dim]
        options.window_bytes = window_tokens * row_bytes(model_.kv_dtype(), 2 * 2 * 2 * 16);
        DraftContext target;
        target.vocab = 97;
        target.draft_model = &model_;
        target.text_tokens = text_tokens;
        return make_sources(options, target);
    }
    WindowShape window(std::size_t window_tokens, std::int64_t text_tokens) {
        const SourceSet set = sources(window_tokens, text_tokens);
        return dynamic_cast<DraftModel&>(*set.models.front()).window().shape();
    }

    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.context_tokens = 2048});
    CpuDevice device_{CpuDeviceOptions{.n_threads = 1}};
    Model model_{*files_, device_, {}};
};

TEST_F(SourceSetTest, TablesAndModelsStandInTheOrderAskedFor) {
    const SourceSet set = sources(0, 0);
    ASSERT_EQ(set.table_list().size(), 2U);
    EXPECT_EQ(set.table_list()[0]->name(), "suffix");
    EXPECT_EQ(set.table_list()[1]->name(), "context");
    ASSERT_EQ(set.model_list().size(), 1U);
    EXPECT_EQ(set.model_list()[0]->name(), "model");
    EXPECT_EQ(set.find("context"), 1U);
    EXPECT_EQ(set.find("model"), std::nullopt);
    ASSERT_EQ(set.paper_trees.size(), set.tables.size());
    for (std::size_t i = 0; i < set.tables.size(); ++i)
        EXPECT_EQ(dynamic_cast<PaperTree*>(set.tables[i].get()), set.paper_trees[i]);
    EXPECT_EQ(set.bigrams, nullptr);
    EXPECT_EQ(set.lookahead, nullptr);
}

TEST_F(SourceSetTest, WithoutBytesTheWindowIsThePapers) {
    for (const std::int64_t text_tokens : {0, 100, 600}) {
        const WindowShape shape = window(0, text_tokens);
        EXPECT_EQ(shape.slots, 240);
        EXPECT_EQ(shape.recent, 112);
    }
}

TEST_F(SourceSetTest, ATextThatFitsIsKeptWhole) {
    EXPECT_EQ(window(4000, 600).slots, 600);
    EXPECT_EQ(window(600, 600).slots, 600);
    EXPECT_EQ(window(4000, 100).slots, 240);
}

TEST_F(SourceSetTest, OfALongerOneAsMuchAsItsBytesHold) {
    const WindowShape shape = window(400, 600);
    EXPECT_EQ(shape.slots, 400);
    EXPECT_EQ(shape.recent, 192) << "half of it is dropped at once, but for the sinks' half";
    EXPECT_EQ(window(400, 0).slots, 400) << "how long texts get nobody knows";
}

TEST_F(SourceSetTest, TheModelsContextIsABound) {
    // Less the nodes of a tree of twice the budget.
    EXPECT_EQ(window(100000, 5000).slots, 2048 - 128);
}

}  // namespace
}  // namespace slipstream::draft
