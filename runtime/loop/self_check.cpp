#include "runtime/loop/self_check.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "runtime/loop/loop_needs.h"

namespace slipstream {

SelfCheck::SelfCheck(Target& plain) : plain_(&plain) {
    const TargetShape shape = plain.shape();
    CHECK(shape.max_tokens >= 1 && shape.max_logit_rows >= 1, "passes of {} tokens", shape.max_tokens);
    max_pass_tokens_ = static_cast<std::size_t>(shape.max_tokens);
    std::size_t of_node = 0;
    for (const KvLayout& layout : shape.kv) {
        row_bytes_.push_back(layout.scratch_row_bytes());
        of_node += 2 * row_bytes_.back();
    }
    fetched_.resize(2 * of_node);
    nodes_.reserve(shape.max_nodes / 2);
}

std::int64_t SelfCheck::scratch_nodes_for(std::int64_t budget) {
    // The accepted path is computed a second time: at worst a prefill chunk and a chain of the whole budget.
    return 2 * slipstream::scratch_nodes_for(budget);
}

bool SelfCheck::check(const CheckedPass& pass, const std::atomic<bool>* cancel) {
    CHECK(pass.tree != nullptr && pass.logits.rows() == pass.tree->size() && !pass.accepted.empty() &&
          plain_->n_committed() < std::ssize(pass.text));
    const auto missing = pass.text.subspan(plain_->n_committed());
    CHECK(pass.path.size() == missing.size() + pass.accepted.size() - 1, "{} rows for {} tokens and {} nodes",
          pass.path.size(), missing.size(), pass.accepted.size());
    nodes_.clear();
    NodeId above = kCommittedTip;
    for (std::size_t i = 0; i < missing.size(); ++i)
        nodes_.push_back(above = plain_->add_node(above, NodeKind::Certain));
    const PassControl control{.cancel = cancel};
    LogitRows plain;
    std::int32_t row = 0;
    for (std::size_t begin = 0; begin < missing.size(); begin += max_pass_tokens_) {
        const std::size_t n = std::min(missing.size() - begin, max_pass_tokens_);
        row = static_cast<std::int32_t>(n) - 1;
        plain = plain_->run({.tokens = missing.subspan(begin, n),
                             .nodes = std::span(nodes_).subspan(begin, n),
                             .logit_tokens = {&row, 1},
                             .control = &control});
        if (plain.empty()) return false;
    }
    compare_logits(pass, 0, plain);
    row = 0;
    for (std::size_t depth = 1; depth < pass.accepted.size(); ++depth) {
        const TokenId token = pass.tree->token(pass.accepted[depth]);
        nodes_.push_back(above = plain_->add_node(above));
        plain =
            plain_->run({.tokens = {&token, 1}, .nodes = {&above, 1}, .logit_tokens = {&row, 1}, .control = &control});
        if (plain.empty()) return false;
        compare_logits(pass, depth, plain);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) compare_rows(pass.path[i], nodes_[i]);
    ++figures_.passes;
    figures_.tokens += std::ssize(pass.accepted);
    return true;
}

void SelfCheck::compare_logits(const CheckedPass& pass, std::size_t depth, const LogitRows& plain) const {
    const TreeNode node = pass.accepted[depth];
    const float* guessed = pass.logits.row(logits_row_of(node)).data();
    const float* alone = plain.row(0).data();
    CHECK(pass.logits.cols() == plain.cols(), "{} and {} logits", pass.logits.cols(), plain.cols());
    if (std::memcmp(guessed, alone, plain.row(0).size_bytes()) == 0) return;
    std::int64_t id = 0;
    while (std::memcmp(guessed + id, alone + id, sizeof(float)) == 0) ++id;
    throw SelfCheckFailure(fmt::format(
        "self-check: the logits after position {} (node {} of a tree of {}) should be those of plain "
        "decoding, but that of token {} is {:.9g} ({:#010x}) instead of {:.9g} ({:#010x}); the output is "
        "not exact: use --draft none, and report this",
        std::ssize(pass.text) - 1 + static_cast<std::int64_t>(depth), node.index, pass.tree->size(), id, guessed[id],
        __builtin_bit_cast(std::uint32_t, guessed[id]), alone[id], __builtin_bit_cast(std::uint32_t, alone[id])));
}

void SelfCheck::compare_rows(NodeId guessed, NodeId plain) {
    const std::size_t half = fetched_.size() / 2;
    plain_->read_rows(guessed, fetched_.data());
    plain_->read_rows(plain, fetched_.data() + half);
    if (std::memcmp(fetched_.data(), fetched_.data() + half, half) == 0) return;
    std::size_t at = 0;
    while (fetched_[at] == fetched_[half + at]) ++at;
    std::size_t layer = 0;
    std::size_t in_layer = at;
    for (; in_layer >= 2 * row_bytes_[layer]; ++layer) in_layer -= 2 * row_bytes_[layer];
    throw SelfCheckFailure(
        fmt::format("self-check: the {} of position {} (layer {}, byte {}) should be those of plain decoding, but "
                    "differ; the output is not exact: use --draft none, and report this",
                    in_layer < row_bytes_[layer] ? "keys" : "values", plain_->position(guessed), layer,
                    in_layer % row_bytes_[layer]));
}

}  // namespace slipstream
