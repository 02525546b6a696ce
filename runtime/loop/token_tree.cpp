#include "runtime/loop/token_tree.h"

#include "kernels/base/check.h"

namespace slipstream {

void TokenTree::reserve(std::size_t n_nodes) {
    tokens_.reserve(n_nodes);
    for (auto* links : {&parents_, &depths_, &first_child_, &next_sibling_}) links->reserve(n_nodes);
}

void TokenTree::reset(TokenId root) {
    tokens_.assign(1, root);
    parents_.assign(1, -1);
    depths_.assign(1, 0);
    first_child_.assign(1, -1);
    next_sibling_.assign(1, -1);
}

std::optional<std::int32_t> TokenTree::child(std::int32_t parent, TokenId token) const {
    CHECK(parent >= 0 && parent < size(), "node {} of {}", parent, size());
    for (std::int32_t node = first_child_[parent]; node >= 0; node = next_sibling_[node])
        if (tokens_[node] == token) return node;
    return std::nullopt;
}

std::int32_t TokenTree::add(std::int32_t parent, TokenId token) {
    if (const auto present = child(parent, token)) return *present;
    return append(parent, token);
}

std::int32_t TokenTree::append(std::int32_t parent, TokenId token) {
    CHECK(parent >= 0 && parent < size(), "node {} of {}", parent, size());
    const std::int32_t node = size();
    const auto above = static_cast<std::size_t>(parent);
    tokens_.push_back(token);
    parents_.push_back(parent);
    depths_.push_back(depths_[above] + 1);
    first_child_.push_back(-1);
    next_sibling_.push_back(first_child_[above]);
    first_child_[above] = node;
    return node;
}

}  // namespace slipstream
