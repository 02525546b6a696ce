#include "runtime/loop/verify.h"

#include <algorithm>

namespace slipstream {

void verify_tree(const TokenTree& tree, const LogitRows& logits, Sampler& sampler, const VerifyLimits& limits,
                 std::vector<TokenId>& text, std::vector<std::int32_t>& accepted) {
    CHECK(limits.max_new_tokens >= 1 && logits.rows() == tree.size() && !text.empty() && text.back() == tree.token(0));
    accepted.assign(1, 0);
    for (std::int32_t node = 0;;) {
        const TokenId token = sampler.sample(logits, node, static_cast<std::int64_t>(text.size()), text);
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
