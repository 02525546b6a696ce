#include "draft/sources/cacheback_tree.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

static_assert(LruTable::kNone == FrozenTable::kNone);
constexpr std::uint32_t kNone = LruTable::kNone;

}  // namespace

void CachebackTree::grow(TokenTree& tree, const ShapeRequest& request, LruTable& dynamic, const FrozenTable* frozen) {
    CHECK(tree.size() == 1, "{} nodes", tree.size());
    tree_ = &tree;
    request_ = &request;
    max_nodes_ = static_cast<std::int32_t>(std::min(request.budget, options_.tree_tokens));
    const auto n_reserved = static_cast<std::int32_t>(options_.reserved_tokens * max_nodes_ / options_.tree_tokens);
    const std::int32_t max_first = max_nodes_ - n_reserved;
    ends_.clear();
    grow_from(kTreeRoot, max_first, dynamic);
    const std::int32_t n_first = tree.size();
    grow_from_ends(dynamic);
    if (frozen == nullptr) return;
    grow_from(kTreeRoot, std::min(max_nodes_, tree.size() + max_first - n_first), *frozen);
    list_leaves();
    grow_from_ends(*frozen);
}

template <typename Table>
void CachebackTree::grow_from_ends(Table& table) {
    // ends_ grows during the loop, so the tree is grown breadth-first.
    for (std::size_t i = 0; i < ends_.size() && tree_->size() < max_nodes_; ++i) grow_from(ends_[i], max_nodes_, table);
}

template <typename Table>
void CachebackTree::grow_from(TreeNode node, std::int32_t max_nodes, Table& table) {
    if (tree_->size() >= max_nodes || tree_->depth(node) >= request_->max_depth) return;
    if (!find_context(node, table.leader_tokens())) return;
    const std::uint32_t leader = table.query(context_);
    if (leader == kNone) return;
    list_followers(leader, node, table);
    for (const Ranked& branch : followers_) {
        if (tree_->size() >= max_nodes) break;
        add_branch(node, table.follower(branch.follower), max_nodes);
    }
}

template <typename Table>
void CachebackTree::list_followers(std::uint32_t leader, TreeNode node, const Table& table) {
    followers_.clear();
    for (std::uint32_t follower = table.first_follower(leader); follower != kNone;
         follower = table.next_follower(follower))
        followers_.push_back({follower, static_cast<std::uint32_t>(followers_.size()) + 1, 0.0F});
    if (noise_of(*request_).present())
        order_by_noise(static_cast<std::int64_t>(request_->text.size()) + tree_->depth(node), table);
}

template <typename Table>
void CachebackTree::order_by_noise(std::int64_t position, const Table& table) {
    const PathNoise& noise = *request_->noise;
    const auto first_token = [&](const Ranked& entry) { return table.follower(entry.follower).front(); };
    std::ranges::sort(followers_, [&](const Ranked& a, const Ranked& b) {
        return first_token(a) != first_token(b) ? first_token(a) < first_token(b) : a.age < b.age;
    });
    float total = 0.0F;
    for (const Ranked& entry : followers_) total += 1.0F / static_cast<float>(entry.age);
    for (auto begin = followers_.begin(); begin != followers_.end();) {
        float weight = 0.0F;
        auto end = begin;
        for (; end != followers_.end() && first_token(*end) == first_token(*begin); ++end)
            weight += 1.0F / static_cast<float>(end->age);
        const float rank = noise.rank(weight / total, position, first_token(*begin));
        for (; begin != end; ++begin) begin->rank = rank;
    }
    std::ranges::sort(followers_, [&](const Ranked& a, const Ranked& b) {
        const auto one = table.follower(a.follower);
        const auto other = table.follower(b.follower);
        const auto parting = std::ranges::mismatch(one, other);
        if (parting.in1 == one.end()) return a.age < b.age;
        const auto depth = parting.in1 - one.begin();
        const float here = depth == 0 ? a.rank : noise.gumbel(position + depth, *parting.in1);
        const float there = depth == 0 ? b.rank : noise.gumbel(position + depth, *parting.in2);
        return here != there ? here > there : *parting.in1 < *parting.in2;
    });
}

// Adds the tokens of `follower` as a branch below `node`, until the depth limit is reached or the whole tree has
// `max_nodes` nodes. If a node was added, the followers of the branch's last token will be looked up.
void CachebackTree::add_branch(TreeNode node, std::span<const TokenId> follower, std::int32_t max_nodes) {
    const std::int32_t n_before = tree_->size();
    for (const TokenId token : follower) {
        if (tree_->depth(node) >= request_->max_depth) break;
        const auto child = tree_->child(node, token);
        if (!child && tree_->size() >= max_nodes) break;
        node = child ? *child : tree_->add(node, token);
    }
    if (node.index >= n_before) ends_.push_back(node);
}

/// Copies the last `n_tokens` tokens of the path to `node`, the sequence before it included, to context_. Returns false
/// if there are fewer.
bool CachebackTree::find_context(TreeNode node, std::size_t n_tokens) {
    const std::span<const TokenId> text = request_->text;
    const auto depth = static_cast<std::size_t>(tree_->depth(node));
    if (text.size() + depth < n_tokens) return false;
    context_.resize(n_tokens);
    std::size_t at = n_tokens;
    for (; at > 0 && node != kTreeRoot; node = tree_->parent(node)) context_[--at] = tree_->token(node);
    std::ranges::copy(text.last(at), context_.begin());
    return true;
}

void CachebackTree::list_leaves() {
    is_inner_.assign(tree_->size(), 0);
    for (const TreeNode node : tree_->draft_nodes()) is_inner_[tree_->parent(node).index] = 1;
    ends_.clear();
    for (const TreeNode node : tree_->draft_nodes())
        if (is_inner_[node.index] == 0) ends_.push_back(node);
}

}  // namespace slipstream::draft
