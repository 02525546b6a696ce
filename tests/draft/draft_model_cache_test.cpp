// The draft model's cache against fresh passes: trees, cuts, windows.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "draft/models/draft_model.h"
#include "kernels/cpu_device.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

// Grows random trees over a random text, level by level, takes random paths, cuts, and begins anew.
class RandomTexts {
public:
    RandomTexts(const DraftModelOptions& options, std::uint32_t seed)
        : files_(make_tiny_model({.n_layers = 2})),
          device_({.n_threads = 1}),
          model_(*files_, device_, {}),
          draft_(model_, 97, {.temperature = 0.0}, options),
          reference_(model_, {.max_tokens = 1024, .max_logit_rows = 1}),
          random_(seed) {
        begin(1 + below(30));
    }

    void begin(std::int64_t n_tokens) {
        text_.clear();
        extend(n_tokens);
        draft_.observe({.text = text_, .n_new = std::ssize(text_)});
    }

    // One tree; every expanded node's logits are those of a fresh pass over the window's tokens and its path.
    void step() {
        tree_.reset(text_.back());
        std::vector<TreeNode> level = {kTreeRoot};
        for (std::int64_t n_expanded = 0;;) {
            draft_.expand(tree_, text_, level);
            n_expanded += std::ssize(level);
            for (const TreeNode node : level) check(node);
            if (n_expanded + 3 > draft_.max_nodes()) break;
            std::vector<TreeNode> next;
            for (int i = 0; i < 3; ++i) {
                const TreeNode parent = level[below(std::ssize(level))];
                const std::int32_t size_before = tree_.size();
                const TreeNode node = tree_.add(parent, static_cast<TokenId>(below(97)));
                if (node.index == size_before) next.push_back(node);
            }
            level = next;
        }
        TreeNode node(static_cast<std::int32_t>(below(tree_.size())));  // the path to it is accepted
        std::vector<TokenId> path;
        for (; node != kTreeRoot; node = tree_.parent(node)) path.push_back(tree_.token(node));
        text_.insert(text_.end(), path.rbegin(), path.rend());
        if (path.empty() || below(4) > 0) text_.push_back(static_cast<TokenId>(below(97)));
        const std::int64_t n_new = std::ssize(path) + (std::ssize(text_) > n_text_ + std::ssize(path) ? 1 : 0);
        n_text_ = std::ssize(text_);
        draft_.observe({.text = text_, .n_new = n_new, .tree = &tree_});
        ASSERT_LT(draft_.window().n_tokens(), n_text_) << "all but the last token at most";
    }
    void cut(std::int64_t n_tokens) {
        text_.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, std::ssize(text_) - n_tokens)));
        n_text_ = std::ssize(text_);
        draft_.observe({.text = text_, .n_new = 0});
    }
    // As a prompt that goes on from this text: what both begin with stays cached.
    void begin_with_the_same(std::int64_t n_tokens) {
        extend(n_tokens);
        draft_.observe({.text = text_, .n_new = std::ssize(text_)});
    }

    [[nodiscard]] std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_()) % n; }
    [[nodiscard]] const WindowKv& window() const { return draft_.window(); }
    [[nodiscard]] std::int64_t n_text() const { return n_text_; }

private:
    void extend(std::int64_t n_tokens) {
        for (std::int64_t i = 0; i < n_tokens; ++i) text_.push_back(static_cast<TokenId>(below(97)));
        n_text_ = std::ssize(text_);
    }

    void check(TreeNode node) {
        // While a tree stands the window holds all but the tokens that its first pass fed.
        const WindowKv& window = draft_.window();
        std::vector<TokenId> tokens(text_.begin(), text_.begin() + std::min(window.shape().sinks, n_text_));
        for (std::int64_t at = std::ssize(tokens) + window.n_dropped(); at < n_text_; ++at) tokens.push_back(text_[at]);
        std::vector<TokenId> path;
        for (TreeNode at = node; at != kTreeRoot; at = tree_.parent(at)) path.push_back(tree_.token(at));
        tokens.insert(tokens.end(), path.rbegin(), path.rend());
        KvCache cache(device_, model_.kv_layouts(), 512, 512);
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
        const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
        const ConstTensorView row = reference_.run(cache, tokens, nodes, {&last, 1});
        const std::span<const float> logits = draft_.logits(node);
        ASSERT_TRUE(std::equal(logits.begin(), logits.end(), float_row(row, 0)))
            << "node " << node.index << " of a text of " << n_text_ << ", " << window.n_dropped() << " dropped";
    }

    std::unique_ptr<ModelFiles> files_;
    CpuDevice device_;
    Model model_;
    DraftModel draft_;
    Forward reference_;
    std::mt19937 random_;
    std::vector<TokenId> text_;
    std::int64_t n_text_ = 0;
    TokenTree tree_;
};

TEST(DraftModelCache, ItIsThatOfAFreshPass) {
    for (const std::uint32_t seed : {1U, 2U}) {
        RandomTexts texts({.max_nodes = 12, .rows = DraftRows::Whole}, seed);
        while (texts.n_text() < 200) {
            texts.step();
            if (HasFatalFailure()) return;
            if (texts.below(5) == 0) texts.cut(texts.below(12));
            if (texts.below(9) == 0) texts.begin_with_the_same(1 + texts.below(4));
        }
        EXPECT_EQ(texts.window().n_dropped(), 0);
    }
}

TEST(DraftModelCache, AWindowThatDroppedTokensIsThatOfAFreshPassOverTheOthers) {
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
        RandomTexts texts(
            {.max_nodes = 12, .window = {.sinks = 4, .recent = 20, .slots = 90}, .rows = DraftRows::Whole}, seed);
        for (int step = 0; step < 150; ++step) {
            texts.step();
            if (HasFatalFailure()) return;
            EXPECT_LE(texts.window().cache().n_committed(), 90 + 12);
            if (texts.below(20) == 0) texts.cut(texts.below(texts.below(2) == 0 ? 10 : 150));
            if (texts.below(20) == 0) texts.begin_with_the_same(1 + texts.below(300));
            if (texts.below(40) == 0) texts.begin(1 + texts.below(400));
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
