// Sources whose words are a function of the text and the path: what a tree of them should be can be written down. They
// also see to it that they are asked as table_source.h and model_source.h say, and remember whatever they named.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "draft/models/model_source.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

using ToyText = std::vector<TokenId>;
/// What comes behind a text (committed tokens and a path): distinct tokens.
using ToyWords = std::function<std::vector<Proposal>(std::span<const TokenId>)>;
/// Texts with a token behind them that was proposed.
using ToyNamed = std::set<ToyText>;

/// Puts the words in the order that is asked for, as many as fit; notes them.
inline std::size_t say(std::vector<Proposal> words, std::span<const TokenId> text, std::int64_t position,
                       const PathNoise& noise, std::span<Proposal> out, ToyNamed* named) {
    EXPECT_EQ(position, std::ssize(text));
    std::ranges::stable_sort(words, [&](const Proposal& a, const Proposal& b) {
        return noise.rank(a.probability, position, a.token) > noise.rank(b.probability, position, b.token);
    });
    const std::size_t n = std::min(words.size(), out.size());
    std::copy_n(words.begin(), n, out.begin());
    for (std::size_t i = 0; named != nullptr && i < n; ++i) {
        ToyText longer(text.begin(), text.end());
        longer.push_back(out[i].token);
        named->insert(std::move(longer));
    }
    return n;
}

class ToySource final : public TableSource {
public:
    /// `silent_one_in`: of so many steps down one leads nowhere; 0: none.
    explicit ToySource(ToyWords words, std::uint16_t n_bins = 1, ToyNamed* named = nullptr,
                       std::uint32_t silent_one_in = 0)
        : words_(std::move(words)), n_bins_(n_bins), named_(named), silent_one_in_(silent_one_in) {}

    [[nodiscard]] std::string_view name() const override { return "toy"; }
    [[nodiscard]] std::uint16_t n_bins() const override { return n_bins_; }
    void observe(const Observation&) override {}
    void reset() override {}
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override {
        texts_.assign(1, ToyText(text.begin(), text.end()));
        return silent() ? kNowhere : 0;
    }
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override {
        if (silent()) return kNowhere;
        ToyText longer = texts_.at(cursor);  // throws on a cursor that was never given
        longer.push_back(token);
        texts_.push_back(std::move(longer));
        return texts_.size() - 1;
    }
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override {
        const ToyText& text = texts_.at(cursor);
        return say(words_(text), text, position, noise, out, named_);
    }
    [[nodiscard]] std::size_t memory_bytes() const override { return 0; }

private:
    bool silent() { return silent_one_in_ != 0 && random_() % silent_one_in_ == 0; }

    ToyWords words_;
    std::uint16_t n_bins_;
    ToyNamed* named_;
    std::uint32_t silent_one_in_;
    std::mt19937 random_{1};
    std::vector<ToyText> texts_;  // of the cursors
};

/// Of a tree builder, cheap to dear.
using Models = std::vector<ModelSource*>;

class ToyModel final : public ModelSource {
public:
    explicit ToyModel(ToyWords words, std::int64_t max_nodes = 64, ToyNamed* named = nullptr,
                      double seconds_per_node = 0.0, double seconds_per_batch = 0.0)
        : words_(std::move(words)),
          max_nodes_(max_nodes),
          named_(named),
          seconds_per_node_(seconds_per_node),
          seconds_per_batch_(seconds_per_batch) {}

    [[nodiscard]] std::string_view name() const override { return "toy model"; }
    [[nodiscard]] std::uint16_t n_bins() const override { return 1; }
    [[nodiscard]] std::int64_t max_nodes() const override { return max_nodes_; }
    void observe(const Observation&) override {}
    void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes) override {
        ASSERT_FALSE(nodes.empty());
        if (nodes.front() == kTreeRoot) expanded_.clear();
        ++n_batches;
        n_asked += std::ssize(nodes);
        for (const TreeNode node : nodes) {
            ASSERT_TRUE(tree.has(node));
            ASSERT_FALSE(has(node)) << "node " << node.index << " is expanded twice";
            ToyText whole(text.begin(), text.end());
            if (node != kTreeRoot) {
                ASSERT_TRUE(has(tree.parent(node))) << "the parent of node " << node.index << " is not expanded";
                whole = text_of(tree.parent(node));
                whole.push_back(tree.token(node));
            } else {
                ASSERT_TRUE(expanded_.empty());
                ASSERT_EQ(whole.back(), tree.token(kTreeRoot));
            }
            expanded_.emplace_back(node, std::move(whole));
        }
        ASSERT_LE(std::ssize(expanded_), max_nodes_);
    }
    [[nodiscard]] std::size_t propose(TreeNode node, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override {
        EXPECT_TRUE(has(node)) << "node " << node.index;
        const ToyText text = text_of(node);
        return say(words_(text), text, position, noise, out, named_);
    }
    [[nodiscard]] std::span<const Candidate> distribution(TreeNode) override { return {}; }
    [[nodiscard]] double expand_seconds(std::int64_t n) const override {
        return seconds_per_batch_ + seconds_per_node_ * static_cast<double>(n);
    }
    [[nodiscard]] std::int64_t n_expanded() const { return std::ssize(expanded_); }

    std::int64_t n_batches = 0;
    std::int64_t n_asked = 0;  // nodes, of all trees

private:
    [[nodiscard]] bool has(TreeNode node) const {
        return std::ranges::any_of(expanded_, [node](const auto& at) { return at.first == node; });
    }
    [[nodiscard]] ToyText text_of(TreeNode node) const {
        const auto found = std::ranges::find_if(expanded_, [node](const auto& at) { return at.first == node; });
        return found == expanded_.end() ? ToyText{} : found->second;
    }

    ToyWords words_;
    std::int64_t max_nodes_;
    ToyNamed* named_;
    double seconds_per_node_;
    double seconds_per_batch_;
    std::vector<std::pair<TreeNode, ToyText>> expanded_;
};

/// Random words behind every text, the same whenever it is asked: of `vocab` tokens about `share`, their probabilities
/// `mass` in all.
inline ToyWords random_words(std::uint32_t seed, TokenId vocab, double share, double mass, std::uint16_t n_bins = 1) {
    return [=](std::span<const TokenId> text) {
        std::uint32_t state = seed;
        for (const TokenId token : text) state = (state ^ static_cast<std::uint32_t>(token)) * 2654435761U + 12345U;
        std::mt19937 random(state);
        std::uniform_real_distribution<double> uniform;
        std::vector<Proposal> words;
        double sum = 0.0;
        for (TokenId token = 0; token < vocab; ++token) {
            if (uniform(random) >= share) continue;
            const double weight = 0.02 + std::pow(uniform(random), 4.0);
            sum += weight;
            words.push_back({.token = token,
                             .probability = static_cast<float>(weight),
                             .bin = static_cast<std::uint16_t>(random() % n_bins)});
        }
        for (Proposal& word : words) word.probability *= static_cast<float>(mass / sum);
        return words;
    };
}

/// Always the same words.
inline ToyWords fixed_words(std::vector<Proposal> words) {
    return [words = std::move(words)](std::span<const TokenId>) { return words; };
}

/// Committed tokens and those of the path down to `node`.
inline ToyText text_behind(std::span<const TokenId> text, const TokenTree& tree, TreeNode node) {
    ToyText path;
    for (; node != kTreeRoot; node = tree.parent(node)) path.push_back(tree.token(node));
    ToyText whole(text.begin(), text.end());
    whole.insert(whole.end(), path.rbegin(), path.rend());
    return whole;
}

}  // namespace slipstream::draft
