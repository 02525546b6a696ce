#include "runtime/loop/token_tree.h"

#include "kernels/base/check.h"

namespace slipstream {

void TokenTree::reserve(std::size_t n_nodes) {
    tokens_.reserve(n_nodes);
    depths_.reserve(n_nodes);
    for (auto* links : {&parents_, &first_child_, &next_sibling_}) links->reserve(n_nodes);
}

void TokenTree::reset(TokenId root) {
    tokens_.assign(1, root);
    depths_.assign(1, 0);
    for (auto* links : {&parents_, &first_child_, &next_sibling_}) links->assign(1, kNoTreeNode);
}

std::optional<TreeNode> TokenTree::child(TreeNode parent, TokenId token) const {
    CHECK(has(parent), "node {} of {}", parent.index, size());
    for (TreeNode node = first_child_[parent.index]; node != kNoTreeNode; node = next_sibling_[node.index])
        if (tokens_[node.index] == token) return node;
    return std::nullopt;
}

TreeNode TokenTree::add(TreeNode parent, TokenId token) {
    if (const auto present = child(parent, token)) return *present;
    return append(parent, token);
}

TreeNode TokenTree::append(TreeNode parent, TokenId token) {
    CHECK(has(parent), "node {} of {}", parent.index, size());
    const TreeNode node(size());
    const auto above = static_cast<std::size_t>(parent.index);
    tokens_.push_back(token);
    parents_.push_back(parent);
    depths_.push_back(depths_[above] + 1);
    first_child_.push_back(kNoTreeNode);
    next_sibling_.push_back(first_child_[above]);
    first_child_[above] = node;
    return node;
}

}  // namespace slipstream
