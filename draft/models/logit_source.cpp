#include "draft/models/logit_source.h"

#include <algorithm>
#include <utility>

#include "draft/stopwatch.h"
#include "kernels/base/check.h"
#include "kernels/sampling.h"

namespace slipstream::draft {

LogitSource::LogitSource(const LogitSourceShape& shape, const SamplerOptions& sampling, PlannedSeconds planned_seconds)
    : n_ids_(shape.n_ids),
      max_nodes_(shape.max_nodes),
      max_rows_(shape.max_rows > 0 ? shape.max_rows : shape.max_nodes),
      by_level_(shape.by_level),
      sampler_(sampling, n_ids_),
      rank_error_(shape.rank_error),
      list_(sampling, rank_error_),
      row_top_(list_.n_listed(), n_ids_),
      pass_curve_(shape.max_lead + max_nodes_, std::move(planned_seconds)) {
    const auto n_nodes = static_cast<std::size_t>(max_nodes_);
    const auto n_tokens = static_cast<std::size_t>(shape.max_lead + max_nodes_);
    if (shape.rows == DraftRows::Whole) logits_.resize(n_nodes * static_cast<std::size_t>(n_ids_));
    size_for(sampling);
    expanded_.reserve(n_nodes);
    index_of_.reserve(std::max<std::size_t>(1024, n_nodes));
    pass_tokens_.reserve(n_tokens);
    pass_nodes_.reserve(n_tokens);
    logit_rows_.reserve(n_nodes);
}

void LogitSource::set_sampling(const SamplerOptions& sampling) {
    forget_tree();
    sampler_ = Sampler(sampling, n_ids_);
    list_ = GuessList(sampling, rank_error_);
    row_top_ = RowTop(list_.n_listed(), n_ids_);
    size_for(sampling);
}

// Sizes best_ for the tokens that list_ takes of each row, and history_ for the tokens that penalties count; sets
// needs_.
void LogitSource::size_for(const SamplerOptions& sampling) {
    const bool whole = !logits_.empty();
    needs_ = {.n_best = whole || list_.n_listed() > kMostTopLogits ? 0 : list_.n_listed(), .n_ids = n_ids_};
    best_.resize(static_cast<std::size_t>(max_nodes_ * list_.n_listed()));
    history_.reserve(std::min<std::int64_t>(sampling.repeat_window, 4096) + max_nodes_);
}

// Returns the predicted seconds of all passes that expand() makes for `n_nodes` nodes of one level: each has at most
// max_rows_ nodes.
double LogitSource::expand_seconds(std::int64_t n_nodes) const {
    const std::int64_t n_full = n_nodes / max_rows_;
    const std::int64_t rest = n_nodes % max_rows_;
    double seconds = rest > 0 ? pass_curve_.at(rest) : 0.0;
    if (n_full > 0) seconds += static_cast<double>(n_full) * pass_curve_.at(max_rows_);
    return seconds;
}

void LogitSource::forget_tree() {
    expanded_.clear();
    index_of_.clear();
    n_lead_ = 0;
}

void LogitSource::lead(std::span<const TokenId> tokens) {
    NodeId above = kCommittedTip;
    for (const TokenId token : tokens) {
        append(token, above);
        above = pass_nodes_.back();
    }
    n_lead_ = std::ssize(tokens);
}

void LogitSource::append(TokenId token, NodeId parent) {
    pass_tokens_.push_back(known(token));
    pass_nodes_.push_back(add_node(parent));
}

void LogitSource::remember_history(std::span<const TokenId> text) {
    n_history_ = 0;
    history_.clear();
    if (!sampler_.options().remembers()) return;
    n_history_ = std::min(text.size(), static_cast<std::size_t>(sampler_.options().repeat_window));
    for (const TokenId token : text.last(n_history_)) history_.push_back(known(token));
}

void LogitSource::expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes) {
    CHECK(!nodes.empty());
    try {
        expand_all(tree, text, nodes);
    } catch (...) {
        forget_tree();  // its last nodes have no KV rows
        throw;
    }
}

void LogitSource::expand_all(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes) {
    pass_tokens_.clear();
    pass_nodes_.clear();
    if (nodes.front() == kTreeRoot) {
        forget_tree();
        start_tree(text);
        remember_history(text);
    }
    CHECK(std::ssize(expanded_) + std::ssize(nodes) <= max_nodes_ && (!expanded_.empty() || nodes.front() == kTreeRoot),
          "{} nodes after {}, room for {}", nodes.size(), expanded_.size(), max_nodes_);
    index_of_.resize(tree.size(), -1);
    while (!nodes.empty()) {
        const std::size_t n = n_at_once(tree, nodes);
        expand_at_once(tree, nodes.first(n));
        nodes = nodes.subspan(n);
        pass_tokens_.clear();
        pass_nodes_.clear();
    }
}

// Returns how many of `nodes` the next pass can take.
std::size_t LogitSource::n_at_once(const TokenTree& tree, std::span<const TreeNode> nodes) const {
    const std::span<const TreeNode> most = nodes.first(std::min(nodes.size(), static_cast<std::size_t>(max_rows_)));
    if (!by_level_) return most.size();
    const auto waits = [&](TreeNode node) { return node != kTreeRoot && index_of_[tree.parent(node).index] < 0; };
    const auto n = static_cast<std::size_t>(std::ranges::find_if(most, waits) - most.begin());
    CHECK(n > 0, "node {} before its parent", nodes.front().index);
    return n;
}

// Makes one pass over the tokens of lead() and these nodes, which must not be expanded yet (CHECKed), and keeps their
// logits.
void LogitSource::expand_at_once(const TokenTree& tree, std::span<const TreeNode> nodes) {
    const auto start = Clock::now();
    const auto first = static_cast<std::int32_t>(expanded_.size());
    logit_rows_.clear();
    for (const TreeNode node : nodes) {
        CHECK(index_of_[node.index] < 0, "node {} is expanded already", node.index);
        const TokenId token = known(tree.token(node));
        std::int32_t above = -1;
        if (node != kTreeRoot) {
            above = index_of(tree.parent(node));
            append(token, row_of(above));
        }
        index_of_[node.index] = static_cast<std::int32_t>(expanded_.size());
        expanded_.push_back({above, token});
        logit_rows_.push_back(static_cast<std::int32_t>(pass_tokens_.size()) - 1);
    }
    keep_rows(run(pass_tokens_, pass_nodes_, logit_rows_, needs_), first);
    ++n_passes_;
    pass_curve_.move_to(n_cached());
    pass_curve_.add(std::ssize(pass_tokens_), seconds_since(start));
}

// Copies the best tokens of each row of a pass, and whole rows if they are kept, to the expanded nodes: row i to the
// node with index first + i in expanded_.
void LogitSource::keep_rows(const LogitRows& rows, std::int32_t first) {
    const auto n_ids = static_cast<std::size_t>(n_ids_);
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
        const auto at = static_cast<std::size_t>(first + i);
        const bool heads = rows.on_device() && needs_.n_best > 0;
        const std::span<const TopToken> top = heads ? row_top_.best(rows, i, list_.n_listed())
                                                    : row_top_.best(rows.row(i).first(n_ids), list_.n_listed());
        expanded_[at].n_best = top.size();
        std::ranges::copy(top, best_of(static_cast<std::int32_t>(at)).begin());
        if (!logits_.empty())
            std::ranges::copy(rows.row(i).first(n_ids), logits_.begin() + static_cast<std::ptrdiff_t>(at * n_ids));
    }
}

std::span<TopToken> LogitSource::best_of(std::int32_t index) {
    const auto n = static_cast<std::size_t>(list_.n_listed());
    const auto at = static_cast<std::size_t>(index);
    return std::span(best_).subspan(at * n, expanded_[at].n_best);
}

std::int32_t LogitSource::index_of(TreeNode node) const {
    const bool is_known = node.index >= 0 && node.index < std::ssize(index_of_);
    const std::int32_t index = is_known ? index_of_[node.index] : -1;
    CHECK(index >= 0, "node {} is not expanded", node.index);
    return index;
}

}  // namespace slipstream::draft
