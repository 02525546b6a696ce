#include "draft/rungs/draft_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "draft/stopwatch.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/sampling.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kPieceTokens = 128;  // of a text that is fed

// Nodes of a tree: no more than half the positions that the model knows, since they may all stand in one chain.
std::int64_t fit_nodes(std::int64_t wanted, const Model& model) {
    CHECK(wanted >= 1, "{} nodes", wanted);
    return std::clamp<std::int64_t>(model.context_tokens() / 2, 1, wanted);
}

// `wanted` with room behind it for a chain of max_nodes, inside the model's context; a quarter at least is dropped at
// once.
WindowShape fit_window(const WindowShape& wanted, const Model& model, std::int64_t max_nodes) {
    CHECK(wanted.sinks >= 0 && wanted.recent >= 1, "a window of {} sinks and {} recent", wanted.sinks, wanted.recent);
    WindowShape shape = wanted;
    shape.slots = std::min(shape.slots, model.context_tokens() - max_nodes);
    shape.recent = std::min(shape.recent, shape.slots - shape.slots / 4 - shape.sinks);
    if (shape.recent < 1)
        throw RequestError(fmt::format(
            "the draft model has a context of {} tokens, too few for a window of {} sink tokens, recent ones "
            "and guesses; take another draft model",
            model.context_tokens(), shape.sinks));
    return shape;
}

}  // namespace

DraftModel::DraftModel(const Model& model, std::int64_t target_vocab, const SamplerOptions& sampling,
                       const DraftModelOptions& options)
    : n_ids_(std::min(target_vocab, model.config().vocab)),
      max_nodes_(fit_nodes(options.max_nodes, model)),
      forward_(model,
               {.max_tokens = kPieceTokens + max_nodes_, .max_logit_rows = max_nodes_, .graphs = options.graphs}),
      window_(model, fit_window(options.window, model, max_nodes_),
              {.max_rows = kPieceTokens + max_nodes_, .max_depth = max_nodes_}),
      sampler_(sampling, n_ids_),
      list_(sampling),
      row_top_(list_.n_listed(), n_ids_),
      pass_curve_(kPieceTokens + max_nodes_, options.pass_plan) {
    const auto n_nodes = static_cast<std::size_t>(max_nodes_);
    const auto n_tokens = static_cast<std::size_t>(kPieceTokens + max_nodes_);
    const bool whole = options.rows == DraftRows::Whole;
    needs_ = {.n_best = whole || list_.n_listed() > kMostTopLogits ? 0 : list_.n_listed(), .n_ids = n_ids_};
    best_.resize(n_nodes * static_cast<std::size_t>(list_.n_listed()));
    if (whole) logits_.resize(n_nodes * static_cast<std::size_t>(n_ids_));
    expanded_.reserve(n_nodes);
    index_of_.reserve(std::max<std::size_t>(1024, n_nodes));
    pass_tokens_.reserve(n_tokens);
    pass_nodes_.reserve(n_tokens);
    logit_rows_.reserve(n_nodes);
    path_.reserve(n_tokens);
    history_.reserve(static_cast<std::size_t>(std::min<std::int64_t>(sampling.repeat_window, 4096) + max_nodes_));
}

void DraftModel::observe(const Observation& observation) {
    const std::span<const TokenId> text = observation.text;
    const bool continues = observation.n_new > 0 && observation.n_new < std::ssize(text);
    if (!continues) {
        take_back(text);
    } else if (!expanded_.empty()) {
        commit_accepted(text);
    }
    forget_tree();
}

void DraftModel::forget_tree() {
    window_.cache().forget();
    expanded_.clear();
    index_of_.clear();
    n_lead_ = 0;
}

// Rows of node 0 and of what was accepted below it, as far as it was expanded. The last token stays out of the cache,
// though it may stand on a node (a text that ends in the middle of a path): its logits are the next tree's.
void DraftModel::commit_accepted(std::span<const TokenId> text) {
    const std::int64_t root = window_.n_tokens() + n_lead_ - 1;
    CHECK(root + 1 < std::ssize(text) && known(text[static_cast<std::size_t>(root)]) == expanded_.front().token,
          "a tree at position {} of a text of {}", root, text.size());
    path_.clear();
    for (NodeId row = 0; row < n_lead_; ++row) path_.push_back(row);
    std::int32_t above = 0;
    for (std::int64_t at = root + 1; at + 1 < std::ssize(text); ++at) {
        const TokenId token = text[static_cast<std::size_t>(at)];
        const auto next = std::ranges::find_if(
            expanded_, [&](const Expanded& node) { return node.parent == above && node.token == token; });
        if (next == expanded_.end()) break;
        above = static_cast<std::int32_t>(next - expanded_.begin());
        path_.push_back(row_of(above));
    }
    window_.cache().commit(exec(), path_);
    remember(text);
}

// The window's tokens; those that were there before are the same.
void DraftModel::remember(std::span<const TokenId> text) {
    text_.insert(text_.end(), text.begin() + std::ssize(text_), text.begin() + window_.n_tokens());
}

// A text that was cut, or another one: what both begin with stays, but for the last token.
void DraftModel::take_back(std::span<const TokenId> text) {
    const auto differs = std::ranges::mismatch(text_, text.first(text.empty() ? 0 : text.size() - 1)).in1;
    window_.truncate(differs - text_.begin());
    text_.resize(static_cast<std::size_t>(window_.n_tokens()));
}

void DraftModel::expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const std::int32_t> nodes) {
    CHECK(!nodes.empty());
    pass_tokens_.clear();
    pass_nodes_.clear();
    if (nodes.front() == 0) start_tree(text);
    const auto start = Clock::now();
    const auto first = static_cast<std::int32_t>(expanded_.size());
    CHECK(first + std::ssize(nodes) <= max_nodes_ && (first > 0 || nodes.front() == 0),
          "{} nodes behind {}, room for {}", nodes.size(), first, max_nodes_);
    index_of_.resize(static_cast<std::size_t>(tree.size()), -1);
    logit_rows_.clear();
    for (const std::int32_t node : nodes) {
        CHECK(index_of_[static_cast<std::size_t>(node)] < 0, "node {} is expanded already", node);
        const TokenId token = known(tree.token(node));
        std::int32_t above = -1;
        if (node > 0) {
            above = index_of(tree.parent(node));
            append_node(token, row_of(above));
        }
        index_of_[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(expanded_.size());
        expanded_.push_back({above, token});
        logit_rows_.push_back(static_cast<std::int32_t>(pass_tokens_.size()) - 1);
    }
    keep_rows(forward_.run(window_.cache(), pass_tokens_, pass_nodes_, logit_rows_, needs_, {}), first);
    pass_curve_.move_to(window_.cache().n_committed());
    pass_curve_.add(std::ssize(pass_tokens_), seconds_since(start));
}

// What a pass said of the nodes from the first-th expanded on.
void DraftModel::keep_rows(const LogitRows& rows, std::int32_t first) {
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

std::span<TopToken> DraftModel::best_of(std::int32_t index) {
    const auto n = static_cast<std::size_t>(list_.n_listed());
    const auto at = static_cast<std::size_t>(index);
    return std::span(best_).subspan(at * n, expanded_[at].n_best);
}

// Brings the cache up to `text` but for a short suffix, which goes into the tree's first pass with node 0 its last.
void DraftModel::start_tree(std::span<const TokenId> text) {
    forget_tree();
    CHECK(std::ssize(text) > window_.n_tokens(), "a text of {} tokens, {} cached", text.size(), window_.n_tokens());
    make_room(text);
    catch_up(text);
    remember(text);
    NodeId above = kCommittedTip;
    for (std::int64_t at = window_.n_tokens(); at < std::ssize(text); ++at, above = pass_nodes_.back())
        append_node(text[static_cast<std::size_t>(at)], above);
    n_lead_ = std::ssize(pass_nodes_);
    n_history_ = 0;
    history_.clear();
    if (!sampler_.options().remembers()) return;
    n_history_ = std::min(text.size(), static_cast<std::size_t>(sampler_.options().repeat_window));
    for (const TokenId token : text.last(n_history_)) history_.push_back(known(token));
}

// Sees to it that what is missing of `text` fits behind what the window holds.
void DraftModel::make_room(std::span<const TokenId> text) {
    const WindowShape& shape = window_.shape();
    const std::int64_t n_wanted = std::ssize(text) - 1;  // to be cached in front of node 0
    const std::int64_t n_missing = n_wanted - window_.n_tokens();
    const bool fits = window_.cache().n_committed() + n_missing <= shape.slots;
    // After a cut there may be little left behind the sinks; a text that was never longer has more.
    const bool thin = window_.n_dropped() > 0 && window_.n_recent() + n_missing < shape.recent / 2;
    if (fits && !thin) return;
    if (window_.cache().n_committed() < shape.sinks) feed(text, shape.sinks);
    window_.jump(std::max(shape.sinks, n_wanted - shape.recent));
    text_.resize(static_cast<std::size_t>(std::min(window_.n_tokens(), std::ssize(text_))));  // some are fed again
}

void DraftModel::catch_up(std::span<const TokenId> text) {
    while (std::ssize(text) - window_.n_tokens() > kPieceTokens)
        feed(text, std::min(window_.n_tokens() + kPieceTokens, std::ssize(text) - 1));
}

// Commits text [n_tokens, end) to the window.
void DraftModel::feed(std::span<const TokenId> text, std::int64_t end) {
    NodeId above = kCommittedTip;
    for (std::int64_t at = window_.n_tokens(); at < end; ++at, above = pass_nodes_.back())
        append_node(text[static_cast<std::size_t>(at)], above);
    static_cast<void>(forward_.run(window_.cache(), pass_tokens_, pass_nodes_, {}));
    window_.cache().commit(exec(), pass_nodes_);
    pass_tokens_.clear();
    pass_nodes_.clear();
}

void DraftModel::append_node(TokenId token, NodeId parent) {
    pass_tokens_.push_back(known(token));
    pass_nodes_.push_back(window_.cache().add_node(parent));
}

std::int32_t DraftModel::index_of(std::int32_t node) const {
    const std::int32_t index =
        node >= 0 && node < std::ssize(index_of_) ? index_of_[static_cast<std::size_t>(node)] : -1;
    CHECK(index >= 0, "node {} is not expanded", node);
    return index;
}

}  // namespace slipstream::draft
