// The static tree of Token Recycling (Luo et al. 2024, arXiv 2408.08696, appendix; the template of the released
// program, 2.2.2): 80 nodes below the root, at most 6 deep. Rank r of a node means its r-th most probable follower,
// counted from 0. The template names a node by the ranks on the path from the root: "01" is the second follower of the
// first follower. A node with n children has those of ranks 0 to n - 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slipstream::draft {

/// A node of the tree: the child of node `parent` for that node's candidate of rank `rank` (0: the best). Both are -1
/// for the root.
struct StaticNode {
    std::int16_t parent = -1;
    std::int16_t rank = -1;
};

namespace recycling_detail {

/// The number of children of one node.
struct Children {
    std::string_view path;  // ranks from the root to the node, one digit each
    std::int16_t n;
};

inline constexpr Children kChildren[] = {
    {"", 8},     {"0", 8},    {"1", 4},    {"2", 3},    {"3", 2},     {"4", 1},     {"5", 1},
    {"6", 1},    {"7", 1},    {"00", 8},   {"01", 3},   {"02", 2},    {"03", 1},    {"04", 1},
    {"05", 1},   {"06", 1},   {"07", 1},   {"10", 2},   {"11", 1},    {"20", 1},    {"30", 1},
    {"40", 1},   {"50", 1},   {"000", 5},  {"001", 2},  {"002", 1},   {"003", 1},   {"004", 1},
    {"010", 1},  {"020", 1},  {"100", 1},  {"200", 1},  {"300", 1},   {"0000", 3},  {"0001", 1},
    {"0002", 1}, {"0010", 1}, {"0100", 1}, {"1000", 1}, {"00000", 2}, {"00010", 1},
};

constexpr std::size_t n_static_nodes() {
    std::size_t n = 1;
    for (const Children& children : kChildren) n += static_cast<std::size_t>(children.n);
    return n;
}

// Adds nodes layer by layer. kChildren has that order, so a parent is in the tree before its children are added.
constexpr auto make_static_tree() {
    std::array<StaticNode, n_static_nodes()> tree{};
    std::size_t n = 1;
    for (const Children& children : kChildren) {
        std::int16_t parent = 0;
        for (const char digit : children.path) {
            const auto rank = static_cast<std::int16_t>(digit - '0');
            std::size_t node = static_cast<std::size_t>(parent) + 1;
            while (tree[node].parent != parent || tree[node].rank != rank) ++node;
            parent = static_cast<std::int16_t>(node);
        }
        for (std::int16_t rank = 0; rank < children.n; ++rank) tree[n++] = {parent, rank};
    }
    return tree;
}

}  // namespace recycling_detail

/// The static tree of Token Recycling. Node 0 is the root; parents come before their children, layers one after
/// another.
inline constexpr auto kRecyclingTree = recycling_detail::make_static_tree();
static_assert(kRecyclingTree.size() == 81);

}  // namespace slipstream::draft
