// A running text as a source may meet it, at random: tokens are committed, the text is cut back (to nothing, too) and
// goes on otherwise, the source forgets and another text comes. Small alphabets, so that everything repeats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

class ChangingText {
public:
    ChangingText(std::uint32_t seed, TokenId alphabet) : random_(seed), alphabet_(alphabet) {}

    [[nodiscard]] const std::vector<TokenId>& text() const { return text_; }
    [[nodiscard]] std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
    }
    [[nodiscard]] TokenId token() { return static_cast<TokenId>(below(static_cast<std::size_t>(alphabet_))); }

    /// Changes the text in one way and tells the source. The text is not empty afterwards.
    void change(TableSource& source) {
        const std::size_t kind = text_.empty() ? 2 : below(20);
        if (kind == 0) {
            source.reset();
            text_.clear();
            add(source, 1 + below(40));
        } else if (kind == 1) {
            text_.resize(below(text_.size() + 1));
            source.observe({.text = text_});
            // What comes behind a cut may be any text: now and then a token before the cut differs as well.
            if (!text_.empty() && below(4) == 0) text_[below(text_.size())] = token();
            add(source, 1 + below(5));
        } else {
            add(source, kind == 2 ? 1 + below(40) : 1 + below(5));
        }
    }

private:
    void add(TableSource& source, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            // Half of the tokens repeat what stood a few places before, so that there are long matches.
            const std::size_t back = 1 + below(12);
            text_.push_back(below(2) == 0 && back <= text_.size() ? text_[text_.size() - back] : token());
        }
        source.observe({.text = text_, .n_new = static_cast<std::int64_t>(n)});
    }

    std::mt19937 random_;
    TokenId alphabet_;
    std::vector<TokenId> text_;
};

/// What holds of every list of proposals.
inline void expect_valid(std::span<const Proposal> proposals, const TableSource& source, std::int64_t position,
                         const PathNoise& noise) {
    for (std::size_t i = 0; i < proposals.size(); ++i) {
        const Proposal& proposal = proposals[i];
        EXPECT_GT(proposal.probability, 0.0F);
        EXPECT_LT(proposal.probability, 1.0F);
        EXPECT_LT(proposal.bin, source.n_bins());
        if (i == 0) continue;
        const Proposal& better = proposals[i - 1];
        EXPECT_GE(noise.rank(better.probability, position, better.token),
                  noise.rank(proposal.probability, position, proposal.token));
        for (std::size_t j = 0; j < i; ++j) EXPECT_NE(proposals[j].token, proposal.token);
    }
}

/// A random tree shape of a source is within what was asked.
inline void expect_within(const TokenTree& tree, const ShapeRequest& request) {
    EXPECT_LE(tree.size(), std::max<std::int64_t>(1, request.budget));
    for (const TreeNode node : tree.draft_nodes()) {
        EXPECT_LE(tree.depth(node), request.max_depth);
        EXPECT_LT(tree.parent(node), node);
    }
}

}  // namespace slipstream::draft
