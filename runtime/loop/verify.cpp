#include "runtime/loop/verify.h"

#include <algorithm>

namespace slipstream {

void verify_tree(const TokenTree& tree, const LogitRows& logits, Sampler& sampler, const VerifyLimits& limits,
                 std::vector<TokenId>& text, std::vector<TreeNode>& accepted) {
    CHECK(limits.max_new_tokens >= 1 && logits.rows() == tree.size() && !text.empty() &&
          text.back() == tree.token(kTreeRoot));
    accepted.assign(1, kTreeRoot);
    for (TreeNode node = kTreeRoot;;) {
        const TokenId token = sampler.sample(logits, logits_row_of(node), std::ssize(text), text);
        text.push_back(token);
        if (static_cast<std::int64_t>(accepted.size()) == limits.max_new_tokens) return;
        if (std::find(limits.end_tokens.begin(), limits.end_tokens.end(), token) != limits.end_tokens.end()) return;
        const auto next = tree.child(node, token);
        if (!next) return;
        node = *next;
        accepted.push_back(node);
    }
}

}  // namespace slipstream
