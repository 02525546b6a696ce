#include "draft/models/draft_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

// Least tokens at the end of a text that are fed before a tree: after fewer, a draft model drafts worse.
constexpr std::int64_t kLeastFed = 256;

// Returns the most nodes of a tree: `wanted`, but at most half of the model's context, since all nodes may be in one
// chain.
std::int64_t fit_nodes(std::int64_t wanted, const Model& model) {
    CHECK(wanted >= 1, "{} nodes", wanted);
    return std::clamp<std::int64_t>(model.context_tokens() / 2, 1, wanted);
}

// Returns `wanted`, reduced so that a chain of max_nodes after it is inside the model's context, and so that at least a
// quarter of the slots is dropped at once. Throws RequestError if no recent token has room.
WindowShape fit_window(const WindowShape& wanted, const Model& model, std::int64_t max_nodes) {
    if (model.config().is_recurrent())
        throw Unsupported(
            "a draft model with recurrent layers is not served: they have no KV that a window could hold; use another "
            "draft "
            "model, or leave 'model' out");
    CHECK(wanted.sinks >= 0 && wanted.recent >= 1, "a window of {} sinks and {} recent", wanted.sinks, wanted.recent);
    WindowShape shape = wanted;
    shape.slots = std::min(shape.slots, model.context_tokens() - max_nodes);
    shape.recent = std::min(shape.recent, shape.slots - shape.slots / 4 - shape.sinks);
    if (shape.recent < 1)
        throw RequestError(fmt::format(
            "the draft model has a context of {} tokens, too few for a window of {} sink tokens, recent ones "
            "and draft tokens; use another draft model",
            model.context_tokens(), shape.sinks));
    return shape;
}

}  // namespace

DraftModel::DraftModel(const Model& model, std::int64_t target_vocab, const SamplerOptions& sampling,
                       const DraftModelOptions& options)
    : LogitSource({.n_ids = std::min(target_vocab, model.config().vocab),
                   .max_nodes = fit_nodes(options.max_nodes, model),
                   .max_lead = kFedTokens,
                   .rows = options.rows},
                  sampling, options.planned_seconds),
      forward_(model,
               {.max_tokens = kFedTokens + max_nodes(), .max_logit_rows = max_nodes(), .graphs = options.graphs}),
      window_(model, fit_window(options.window, model, max_nodes()),
              {.max_rows = kFedTokens + max_nodes(), .max_depth = max_nodes()}),
      most_fed_(model.context_tokens()),
      draws_(options.rows == DraftRows::Whole) {
    path_.reserve(kFedTokens + max_nodes());
}

void DraftModel::observe(const Observation& observation) {
    const std::span<const TokenId> text = observation.text;
    const bool continues = observation.n_new > 0 && observation.n_new < std::ssize(text);
    if (!continues) {
        // Draws must depend on the text alone, and which tokens a window dropped depends on the texts before. So a
        // window that has dropped tokens starts empty for another text.
        const bool begins = observation.n_new == std::ssize(text);
        // If the target has the KV of most of a text, it computes the rest in a moment. Then this model reads only the
        // end of what it lacks, so that the first token does not wait for the draft model.
        if (begins && !draws_) most_fed_ = std::max(kLeastFed, std::ssize(text) - observation.n_computed);
        take_back(begins && draws_ && window_.n_dropped() > 0 ? std::span<const TokenId>{} : text);
    } else if (!expanded().empty()) {
        commit_accepted(text);
    }
    window_.cache().forget();
    forget_tree();
}

LogitRows DraftModel::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                          std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) {
    return forward_.run(window_.cache(), tokens, nodes, logit_tokens, needs, {});
}

// Commits the KV rows of node 0 and of those accepted nodes below it that were expanded (only they have KV). The last
// token of the sequence is never committed, even if it has KV because the sequence ends at an inner node: the next tree
// begins with its logits, so it is computed again.
void DraftModel::commit_accepted(std::span<const TokenId> text) {
    const std::int64_t root = window_.n_tokens() + n_lead() - 1;
    CHECK(root + 1 < std::ssize(text) && known(text[root]) == expanded().front().token,
          "a tree at position {} of a sequence of {}", root, text.size());
    path_.clear();
    for (std::int32_t row = 0; row < n_lead(); ++row) path_.emplace_back(row);
    std::int32_t above = 0;
    for (std::int64_t at = root + 1; at + 1 < std::ssize(text); ++at) {
        const TokenId token = text[at];
        const auto next = std::ranges::find_if(
            expanded(), [&](const Expanded& node) { return node.parent == above && node.token == token; });
        if (next == expanded().end()) break;
        above = static_cast<std::int32_t>(next - expanded().begin());
        path_.push_back(row_of(above));
    }
    window_.cache().commit(exec(), path_);
    remember(text);
}

// Extends text_, the copy of the sequence, to the tokens that the window covers; tokens that it already has stay.
void DraftModel::remember(std::span<const TokenId> text) {
    text_.insert(text_.end(), text.begin() + std::ssize(text_), text.begin() + window_.n_tokens());
}

// Called after the sequence was cut or replaced by `text`: truncates the window and text_ to the common prefix of text_
// and `text`, without the last token of `text`.
void DraftModel::take_back(std::span<const TokenId> text) {
    const auto differs = std::ranges::mismatch(text_, text.first(text.empty() ? 0 : text.size() - 1)).in1;
    window_.truncate(differs - text_.begin());
    text_.resize(window_.n_tokens());
}

// Brings the cache up to `text`, except for a short suffix, which goes into the first pass of the tree; the last token
// of `text` is node 0.
void DraftModel::start_tree(std::span<const TokenId> text) {
    window_.cache().forget();
    CHECK(std::ssize(text) > window_.n_tokens(), "a sequence of {} tokens, {} cached", text.size(), window_.n_tokens());
    make_room(text);
    catch_up(text);
    remember(text);
    lead(text.subspan(window_.n_tokens()));
}

// Makes room in the window for the tokens of `text` that it lacks: drops all tokens after the sinks if the missing ones
// do not fit, if they are too many to be fed, or if few recent tokens are left.
void DraftModel::make_room(std::span<const TokenId> text) {
    const WindowShape& shape = window_.shape();
    const std::int64_t n_wanted = std::ssize(text) - 1;  // tokens to be cached before the tree's node 0
    const std::int64_t n_missing = n_wanted - window_.n_tokens();
    const std::int64_t recent = std::min(shape.recent, most_fed_);
    const bool fits = window_.cache().n_committed() + n_missing <= shape.slots;
    // `thin`: few recent tokens are left after a cut. A window that never dropped tokens would have more.
    const bool thin = window_.n_dropped() > 0 && window_.n_recent() + n_missing < recent / 2;
    if (fits && !thin && n_missing <= most_fed_) return;
    if (window_.cache().n_committed() < shape.sinks) feed(text, shape.sinks);
    window_.jump(std::max(shape.sinks, n_wanted - (n_missing > most_fed_ ? recent : shape.recent)));
    text_.resize(std::min(window_.n_tokens(), std::ssize(text_)));  // tokens past the window are fed again
}

void DraftModel::catch_up(std::span<const TokenId> text) {
    while (std::ssize(text) - window_.n_tokens() > kFedTokens)
        feed(text, std::min(window_.n_tokens() + kFedTokens, std::ssize(text) - 1));
}

// Commits tokens [window_.n_tokens(), end) of `text` to the window.
void DraftModel::feed(std::span<const TokenId> text, std::int64_t end) {
    const std::int64_t begin = window_.n_tokens();
    lead(text.subspan(begin, end - begin));
    static_cast<void>(forward_.run(window_.cache(), pass_tokens_, pass_nodes_, {}));
    window_.cache().commit(exec(), pass_nodes_);
    pass_tokens_.clear();
    pass_nodes_.clear();
}

}  // namespace slipstream::draft
