#include "runtime/loop/self_check.h"

#include <cstring>

#include <fmt/format.h>

#include "runtime/loop/generation_loop.h"

namespace slipstream {

ForwardLimits SelfCheck::limits() {
    // Op by op: where passes are launched as graphs, that is checked as well.
    return {.max_tokens = kPrefillPieceTokens, .max_logit_rows = 1, .graphs = GraphUse::Never};
}

SelfCheck::SelfCheck(const Model& model, PassStream* pass) : forward_(model, limits(), pass) {
    fetched_.resize(4 * static_cast<std::size_t>(model.config().n_layers) * model.kv_shape().scratch_row_bytes());
}

std::int64_t SelfCheck::scratch_nodes_for(std::int64_t budget) {
    // The path once more: at worst a piece of prompt and a chain of the whole budget.
    return 2 * slipstream::scratch_nodes_for(budget);
}

bool SelfCheck::check(KvCache& cache, const CheckedPass& pass, const std::atomic<bool>* cancel) {
    CHECK(pass.tree != nullptr && pass.logits.rows() == pass.tree->size() && !pass.accepted.empty() &&
          cache.n_committed() < std::ssize(pass.text));
    const auto missing = pass.text.subspan(static_cast<std::size_t>(cache.n_committed()));
    CHECK(pass.path.size() == missing.size() + pass.accepted.size() - 1, "{} rows for {} tokens and {} nodes",
          pass.path.size(), missing.size(), pass.accepted.size());
    nodes_.reserve(static_cast<std::size_t>(cache.max_nodes() / 2));  // once
    nodes_.clear();
    NodeId above = kCommittedTip;
    for (std::size_t i = 0; i < missing.size(); ++i) nodes_.push_back(above = cache.add_node(above));
    auto row = static_cast<std::int32_t>(missing.size()) - 1;
    ConstTensorView plain = forward_.run(cache, missing, nodes_, {&row, 1}, {.cancel = cancel});
    if (plain.empty()) return false;
    compare_logits(pass, 0, plain);
    row = 0;
    for (std::size_t depth = 1; depth < pass.accepted.size(); ++depth) {
        const TokenId token = pass.tree->token(pass.accepted[depth]);
        nodes_.push_back(above = cache.add_node(above));
        plain = forward_.run(cache, {&token, 1}, {&above, 1}, {&row, 1}, {.cancel = cancel});
        if (plain.empty()) return false;
        compare_logits(pass, depth, plain);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) compare_rows(cache, pass.path[i], nodes_[i]);
    ++figures_.passes;
    figures_.tokens += std::ssize(pass.accepted);
    return true;
}

void SelfCheck::compare_logits(const CheckedPass& pass, std::size_t depth, const ConstTensorView& plain) const {
    const std::int32_t node = pass.accepted[depth];
    const float* guessed = pass.logits.row(node).data();
    const float* alone = float_row(plain, 0);
    CHECK(pass.logits.cols() == plain.cols(), "{} and {} logits", pass.logits.cols(), plain.cols());
    if (std::memcmp(guessed, alone, plain.row_stride_bytes) == 0) return;
    std::int64_t id = 0;
    while (std::memcmp(guessed + id, alone + id, sizeof(float)) == 0) ++id;
    throw SelfCheckFailure(fmt::format(
        "self-check: the logits behind position {} (node {} of a tree of {}) should be those of plain "
        "decoding, but that of token {} is {:.9g} ({:#010x}) instead of {:.9g} ({:#010x}); the output is "
        "not exact: use --draft none, and report this",
        std::ssize(pass.text) - 1 + static_cast<std::int64_t>(depth), node, pass.tree->size(), id, guessed[id],
        __builtin_bit_cast(std::uint32_t, guessed[id]), alone[id], __builtin_bit_cast(std::uint32_t, alone[id])));
}

void SelfCheck::compare_rows(const KvCache& cache, NodeId guessed, NodeId plain) {
    const std::size_t half = fetch_row(cache, guessed, 0);
    CHECK(fetch_row(cache, plain, half) == fetched_.size());
    forward_.exec().stream.synchronize();
    if (std::memcmp(fetched_.data(), fetched_.data() + half, half) == 0) return;
    std::size_t at = 0;
    while (fetched_[at] == fetched_[half + at]) ++at;
    const std::size_t part = at / cache.shape().scratch_row_bytes();
    throw SelfCheckFailure(fmt::format(
        "self-check: the {} of position {} (layer {}, byte {}) should be those of plain decoding, but "
        "differ; the output is not exact: use --draft none, and report this",
        part % 2 == 0 ? "keys" : "values", cache.position(guessed), part / 2, at % cache.shape().scratch_row_bytes()));
}

// Copies the rows of a node, [n_layers][K|V], to byte `at` of fetched_, in stream order; returns where they end.
std::size_t SelfCheck::fetch_row(const KvCache& cache, NodeId node, std::size_t at) {
    const std::size_t bytes = cache.shape().scratch_row_bytes();
    const std::size_t from = static_cast<std::size_t>(node) * bytes;
    for (std::int64_t layer = 0; layer < cache.n_layers(); ++layer) {
        for (const std::byte* rows : {cache.scratch_k(layer), cache.scratch_v(layer)}) {
            forward_.exec().stream.copy(fetched_.data() + at, rows + from, bytes);
            at += bytes;
        }
    }
    return at;
}

}  // namespace slipstream
