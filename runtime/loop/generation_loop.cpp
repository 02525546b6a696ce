#include "runtime/loop/generation_loop.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/loop/self_check.h"

namespace slipstream {

namespace {

// Adds the time since the lap before to one sum or another, and returns it.
class Laps {
public:
    double end_lap(double& sum) {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - last_).count();
        sum += seconds;
        last_ = now;
        return seconds;
    }

private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

ForwardLimits forward_limits_for(std::int64_t budget) {
    return {.max_tokens = kPrefillPieceTokens + budget, .max_logit_rows = budget};
}

GenerationLoop::GenerationLoop(Forward& forward, KvCache& cache, Verifier& verifier, Guesser& guesser,
                               LoopLimits limits)
    : forward_(&forward), cache_(&cache), verifier_(&verifier), guesser_(&guesser), limits_(std::move(limits)) {
    const ForwardLimits needed = forward_limits_for(limits_.budget);
    CHECK(limits_.budget >= 1 && forward.limits().max_tokens >= needed.max_tokens &&
              forward.limits().max_logit_rows >= needed.max_logit_rows && cache.max_nodes() >= needed.max_tokens,
          "budget {}", limits_.budget);
    // Steady state allocates nothing: room for the largest pass.
    const auto max_tokens = static_cast<std::size_t>(needed.max_tokens);
    const auto max_nodes = static_cast<std::size_t>(limits_.budget);
    tree_.reserve(max_nodes);
    pass_tokens_.reserve(max_tokens);
    pass_nodes_.reserve(max_tokens);
    path_.reserve(max_tokens);
    logit_tokens_.reserve(max_nodes);
    accepted_.reserve(max_nodes);
}

void GenerationLoop::check_with(SelfCheck& self_check) {
    CHECK(cache_->max_nodes() >= SelfCheck::scratch_nodes_for(limits_.budget), "{} scratch rows, budget {}",
          cache_->max_nodes(), limits_.budget);
    self_check_ = &self_check;
}

void GenerationLoop::begin(std::vector<TokenId> prompt) {
    const std::int64_t n = std::ssize(prompt);
    check_prompt(n);
    resume(std::move(prompt), n);
}

void GenerationLoop::check_prompt(std::int64_t n_tokens) const {
    check_prompt(n_tokens, cache_->context_tokens());
}

void GenerationLoop::check_prompt(std::int64_t n_tokens, std::int64_t context_tokens) {
    if (n_tokens == 0)
        throw RequestError("an empty prompt, and the model has no beginning-of-text token; give it some text");
    if (n_tokens >= context_tokens)
        throw RequestError(
            fmt::format("the prompt is {} tokens long and needs a context of {} at least; it is {}: shorten "
                        "the prompt or raise --ctx",
                        n_tokens, n_tokens + 1, context_tokens));
}

void GenerationLoop::resume(std::vector<TokenId> text, std::int64_t n_prompt) {
    const auto n = static_cast<std::int64_t>(text.size());
    CHECK(n_prompt >= 1 && n_prompt <= n && n <= cache_->context_tokens(), "a prompt of {} of {} tokens", n_prompt, n);
    CHECK(cache_->n_committed() < n, "{} positions cached, a text of {}", cache_->n_committed(), n);
    cache_->forget();
    text_ = std::move(text);
    n_prompt_ = n_prompt;
    // What the cache holds is computed as this text has it, also where it was restored from a file.
    cache_->set_prompt_rows(std::min(cache_->n_committed(), prompt_border_of(n_prompt)));
    // Room for the longest text, for the same reason.
    text_.reserve(static_cast<std::size_t>(cache_->context_tokens() + 1));
    guesser_->observe({.text = text_, .n_new = n});
}

// Layers of a pass over text [begin, end) as tokens of it; a pass over one token says nothing.
PassWatch GenerationLoop::watch_of(std::int64_t begin, std::int64_t end, const PromptProgress& on_progress,
                                   const std::atomic<bool>* cancel) const {
    if (!on_progress || end - begin < 2) return {.cancel = cancel};
    return {.cancel = cancel, .on_progress = [this, begin, end, &on_progress](double done) {
                on_progress(begin + static_cast<std::int64_t>(static_cast<double>(end - begin) * done),
                            std::ssize(text_));
            }};
}

// Rows below are computed as prompt (Phase::Prefill), by whole pieces; those from here to the prompt's end as tokens
// that are generated, since the last of them are computed with those. A prompt's own length decides, and nothing else.
std::int64_t GenerationLoop::prompt_border_of(std::int64_t n_prompt) {
    return (n_prompt - 1) / kPrefillPieceTokens * kPrefillPieceTokens;
}

std::int64_t GenerationLoop::rows_to_keep(const Device& device, const KvCache& cache, std::int64_t n_same,
                                          std::int64_t n_prompt) {
    CHECK(n_same <= cache.n_committed() && n_same < n_prompt, "{} of {} positions for a prompt of {}", n_same,
          cache.n_committed(), n_prompt);
    const std::int64_t border = prompt_border_of(n_prompt);
    if (!device.has_prompt_kernels() || border == cache.prompt_rows()) return n_same;
    return std::min({n_same, border, cache.prompt_rows()});
}

// Where the pieces of prompt end that are fed before the pass of the last tokens.
std::int64_t GenerationLoop::prompt_border() const {
    return std::max(prompt_border_of(n_prompt_), cache_->n_committed());
}

bool GenerationLoop::feeds_by_layer() const {
    return forward_->runs_by_layer(*cache_, cache_->n_committed(), prompt_border(), kPrefillPieceTokens);
}

bool GenerationLoop::prefill(const PromptProgress& on_progress, const std::atomic<bool>* cancel) {
    const auto total = static_cast<std::int64_t>(text_.size());
    const bool is_resumed = n_prompt_ < total;
    if (feeds_by_layer()) {
        if (!is_resumed) return true;  // in one go with the pass that follows
        if (!feed_by_layer(on_progress, cancel)) return false;
        if (on_progress) on_progress(cache_->n_committed(), total);
    }
    for (;;) {
        const std::int64_t begin = cache_->n_committed();
        std::int64_t border = (begin / kPrefillPieceTokens + 1) * kPrefillPieceTokens;
        if (begin < n_prompt_) border = std::min(border, n_prompt_);
        if (border >= total) return true;
        if (!feed_piece(border, on_progress, cancel)) return false;
        if (on_progress) on_progress(cache_->n_committed(), total);
    }
}

// Commits text [n_committed, end) to the cache.
bool GenerationLoop::feed_piece(std::int64_t end, const PromptProgress& on_progress, const std::atomic<bool>* cancel) {
    const std::int64_t begin = cache_->n_committed();
    pass_nodes_.clear();
    NodeId above = kCommittedTip;
    for (std::int64_t i = begin; i < end; ++i) pass_nodes_.push_back(above = cache_->add_node(above));
    const std::span<const TokenId> tokens(text_.data() + begin, static_cast<std::size_t>(end - begin));
    const Phase kind = end <= prompt_border_of(n_prompt_) ? Phase::Prefill : Phase::Decode;
    static_cast<void>(forward_->run(*cache_, tokens, pass_nodes_, {}, watch_of(begin, end, on_progress, cancel), kind));
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
        cache_->forget();
        return false;
    }
    cache_->commit(forward_->exec(), pass_nodes_);
    if (kind == Phase::Prefill) cache_->set_prompt_rows(end);
    return true;
}

// The prompt of a text that is resumed, layer by layer, and committed: without the tokens that were generated behind
// it.
bool GenerationLoop::feed_by_layer(const PromptProgress& on_progress, const std::atomic<bool>* cancel) {
    const std::int64_t begin = cache_->n_committed();
    const std::int64_t border = prompt_border();
    const std::span<const TokenId> prompt = std::span<const TokenId>(text_).first(static_cast<std::size_t>(n_prompt_));
    cache_->reserve(border);
    try {
        pass_nodes_.clear();
        NodeId above = kCommittedTip;
        for (std::int64_t i = border; i < n_prompt_; ++i) pass_nodes_.push_back(above = cache_->add_node(above));
        const auto last =
            static_cast<std::int32_t>(n_prompt_ - border - 1);  // whose logits tell that it came to an end
        const LogitRows logits = forward_->run_by_layer(
            *cache_, begin, kPrefillPieceTokens,
            prompt.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(border - begin)),
            prompt.subspan(static_cast<std::size_t>(border)), pass_nodes_, {&last, 1}, {},
            watch_of(begin, n_prompt_, on_progress, cancel));
        if (logits.empty()) {
            cache_->rollback(begin);
            return false;
        }
    } catch (...) {
        cache_->rollback(begin);
        throw;
    }
    cache_->commit(forward_->exec(), pass_nodes_);
    cache_->set_prompt_rows(border);
    return true;
}

std::span<const TokenId> GenerationLoop::step(std::int64_t max_new_tokens, const std::atomic<bool>* cancel,
                                              const PromptProgress& on_progress) {
    const auto n_text = static_cast<std::int64_t>(text_.size());
    max_new_tokens = std::min(max_new_tokens, room());
    if (max_new_tokens < 1) return {};
    if (!prefill(on_progress, cancel)) return {};

    Laps laps;
    tree_.reset(text_.back());
    guesser_->propose(tree_, {.budget = limits_.budget, .max_depth = max_new_tokens - 1, .text = text_});
    CHECK(tree_.size() <= limits_.budget, "{} nodes proposed, budget {}", tree_.size(), limits_.budget);
    laps.end_lap(seconds_.draft);

    const std::int64_t begin = cache_->n_committed();
    const std::int64_t border = feeds_by_layer() ? prompt_border() : begin;
    const std::int64_t n_missing = n_text - border;
    const LogitRows logits = run_pass(begin, border, max_new_tokens, watch_of(begin, n_text, on_progress, cancel));
    if (logits.empty()) return {};
    const double pass_seconds = laps.end_lap(seconds_.verify);
    const VerifyLimits limits{.max_new_tokens = max_new_tokens, .end_tokens = limits_.end_tokens};
    if (!accept(logits, limits, cancel)) return {};
    laps = {};
    cache_->commit(forward_->exec(), path_);
    laps.end_lap(seconds_.commit);
    const auto n_new = static_cast<std::int64_t>(accepted_.size());
    guesser_->observe({.text = text_,
                       .n_new = n_new,
                       .tree = &tree_,
                       .logits = logits,
                       .accepted = accepted_,
                       .pass_seconds = n_missing > 1 ? 0.0 : pass_seconds});
    laps.end_lap(seconds_.draft);
    return {text_.data() + n_text, static_cast<std::size_t>(n_new)};
}

// One pass over what the cache lacks from `border` on and the tree below it; the prompt from `begin` to `border` before
// it, layer by layer, where there is one. Where it comes to nothing, the cache is as before.
LogitRows GenerationLoop::run_pass(std::int64_t begin, std::int64_t border, std::int64_t max_new_tokens,
                                   const PassWatch& watch) {
    cache_->reserve(border);
    try {
        assemble_pass(std::ssize(text_) - border, max_new_tokens);
        const LogitRequest needs = both(verifier_->logit_request(), guesser_->logit_request());
        const LogitRows logits =
            border == begin
                ? forward_->run(*cache_, pass_tokens_, pass_nodes_, logit_tokens_, needs, watch)
                : forward_->run_by_layer(*cache_, begin, kPrefillPieceTokens,
                                         std::span<const TokenId>(text_).subspan(
                                             static_cast<std::size_t>(begin), static_cast<std::size_t>(border - begin)),
                                         pass_tokens_, pass_nodes_, logit_tokens_, needs, watch);
        if (logits.empty()) {
            cache_->rollback(begin);
        } else if (border != begin) {
            cache_->set_prompt_rows(border);
        }
        return logits;
    } catch (...) {
        cache_->rollback(begin);
        throw;
    }
}

// Tokens and scratch rows of the pass: what the cache lacks of the text, its last token being the tree's root; then the
// guesses. Logits are wanted of all nodes.
void GenerationLoop::assemble_pass(std::int64_t n_missing, std::int64_t max_new_tokens) {
    pass_tokens_.assign(text_.end() - n_missing, text_.end());
    pass_nodes_.clear();
    NodeId above = kCommittedTip;
    for (std::int64_t i = 0; i < n_missing; ++i) pass_nodes_.push_back(above = cache_->add_node(above));
    for (std::int32_t i = 1; i < tree_.size(); ++i) {
        CHECK(tree_.depth(i) < max_new_tokens, "a guess at depth {}, {} tokens wanted", tree_.depth(i), max_new_tokens);
        pass_tokens_.push_back(tree_.token(i));
        pass_nodes_.push_back(cache_->add_node(pass_nodes_[n_missing - 1 + tree_.parent(i)]));
    }
    logit_tokens_.resize(static_cast<std::size_t>(tree_.size()));
    std::iota(logit_tokens_.begin(), logit_tokens_.end(), static_cast<std::int32_t>(n_missing - 1));
}

// Walks the tree: the text gains the new tokens, accepted_ and path_ say what to commit. Checks that where it was asked
// for. False where *cancel turned true meanwhile; then, and where something is thrown, text and cache are as before the
// pass.
bool GenerationLoop::accept(const LogitRows& logits, const VerifyLimits& limits, const std::atomic<bool>* cancel) {
    const std::size_t n_text = text_.size();
    Laps laps;
    try {
        verifier_->verify(tree_, logits, limits, text_, accepted_);
        const std::size_t n_missing = n_text - static_cast<std::size_t>(cache_->n_committed());
        path_.assign(pass_nodes_.begin(), pass_nodes_.begin() + static_cast<std::ptrdiff_t>(n_missing));
        for (std::size_t i = 1; i < accepted_.size(); ++i)
            path_.push_back(pass_nodes_[n_missing - 1 + static_cast<std::size_t>(accepted_[i])]);
        laps.end_lap(seconds_.sample);
        if (self_check_ == nullptr) return true;
        const CheckedPass pass{.text = std::span<const TokenId>(text_).first(n_text),
                               .tree = &tree_,
                               .logits = logits,
                               .accepted = accepted_,
                               .path = path_};
        const bool checked = self_check_->check(*cache_, pass, cancel);
        laps.end_lap(seconds_.check);
        if (!checked) drop_pass(n_text);
        return checked;
    } catch (...) {
        drop_pass(n_text);
        throw;
    }
}

void GenerationLoop::drop_pass(std::size_t n_text) {
    text_.resize(n_text);
    cache_->forget();
}

void GenerationLoop::truncate(std::int64_t n_tokens) {
    const auto n_text = static_cast<std::int64_t>(text_.size());
    CHECK(n_tokens >= 1 && n_tokens <= n_text, "{} of {} tokens", n_tokens, n_text);
    if (n_tokens == n_text) return;
    text_.resize(static_cast<std::size_t>(n_tokens));
    std::int64_t n_kept = std::min(cache_->n_committed(), n_tokens - 1);
    // Of a prompt that is cut, rows of the last piece may have been computed as part of a whole one.
    if (n_tokens < n_prompt_) n_kept = rows_to_keep(forward_->exec().device, *cache_, n_kept, n_tokens);
    n_prompt_ = std::min(n_prompt_, n_tokens);
    cache_->truncate(forward_->exec(), n_kept);
    guesser_->observe({.text = text_, .n_new = 0});
}

}  // namespace slipstream
