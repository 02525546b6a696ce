#include "runtime/loop/generation_loop.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"

namespace slipstream {

namespace {

// Returns the index in a pass of the token of a tree node. The pass begins with the `n_missing` tokens of the sequence
// that the target lacks, of which the last is the root; the draft nodes of the tree follow in their order.
std::int32_t pass_index_of(TreeNode node, std::int64_t n_missing) {
    return static_cast<std::int32_t>(n_missing - 1) + node.index;
}

}  // namespace

// Stopwatch for the parts of a step, one after the other. A part is also a span of the loop's trace, if there is one.
class GenerationLoop::Laps {
public:
    explicit Laps(const GenerationLoop& loop) : loop_(&loop) {}

    /// Returns the time since the end of the previous lap, in seconds.
    double end_lap(const char* name, std::int64_t n_tokens) {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - last_).count();
        if (loop_->trace_ != nullptr) add_span(now, name, n_tokens);
        last_ = now;
        return seconds;
    }
    /// Leaves out the time since the end of the previous lap.
    void skip() { last_ = std::chrono::steady_clock::now(); }

private:
    void add_span(std::chrono::steady_clock::time_point end, const char* name, std::int64_t n_tokens) const {
        loop_->trace_->add(
            {.name = name, .category = "step", .track = loop_->track_, .begin = last_, .end = end, .tokens = n_tokens});
    }

    const GenerationLoop* loop_;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

GenerationLoop::GenerationLoop(Sequence& sequence, Verifier& verifier, Proposer& proposer, LoopLimits limits)
    : sequence_(&sequence),
      target_(&sequence.target()),
      verifier_(&verifier),
      proposer_(&proposer),
      limits_(std::move(limits)) {
    const TargetShape shape = target_->shape();
    const std::int64_t most = scratch_nodes_for(limits_.budget);
    CHECK(limits_.budget >= 1 && shape.max_tokens >= most && shape.max_logit_rows >= limits_.budget &&
              shape.max_nodes >= most,
          "budget {}", limits_.budget);
    // Allocate for the largest pass now, so that later passes allocate nothing.
    const auto max_tokens = static_cast<std::size_t>(most);
    const auto max_nodes = static_cast<std::size_t>(limits_.budget);
    tree_.reserve(max_nodes);
    pass_tokens_.reserve(max_tokens);
    pass_nodes_.reserve(max_tokens);
    path_.reserve(max_tokens);
    logit_tokens_.reserve(max_nodes);
    accepted_.reserve(max_nodes);
}

void GenerationLoop::check_with(SelfCheck& self_check) {
    const std::int64_t max_nodes = target_->shape().max_nodes;
    CHECK(max_nodes >= SelfCheck::scratch_nodes_for(limits_.budget), "{} scratch rows, budget {}", max_nodes,
          limits_.budget);
    self_check_ = &self_check;
}

void GenerationLoop::trace_with(TraceFile& trace, std::uint32_t track) {
    trace_ = &trace;
    track_ = track;
}

void GenerationLoop::begin(std::vector<TokenId> prompt) {
    const std::int64_t n = std::ssize(prompt);
    check_prompt(n);
    resume(std::move(prompt), n);
}

void GenerationLoop::check_prompt(std::int64_t n_tokens) const {
    check_prompt(n_tokens, sequence_->context_tokens());
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

void GenerationLoop::resume(std::vector<TokenId> tokens, std::int64_t n_prompt) {
    sequence_->begin(std::move(tokens), n_prompt);
    proposer_->observe({.text = text(), .n_new = std::ssize(text()), .n_computed = target_->n_committed()});
}

// Control of a pass over the tokens [begin, end) of the sequence; reports finished layers as finished tokens. A pass
// over one token reports nothing.
PassControl GenerationLoop::control_of(std::int64_t begin, std::int64_t end, const PromptProgress& on_progress,
                                       const std::atomic<bool>* cancel) const {
    if (!on_progress || end - begin < 2) return {.cancel = cancel};
    return {.cancel = cancel, .on_progress = [this, begin, end, &on_progress](double done) {
                on_progress(begin + static_cast<std::int64_t>(static_cast<double>(end - begin) * done),
                            std::ssize(text()));
            }};
}

// Returns the position at which the whole prefill chunks of the prompt end, or the number of committed positions if
// that is greater. The pass that has the prompt computes the positions from there on as its tokens.
std::int64_t GenerationLoop::prompt_border() const {
    return std::max(Sequence::prefill_border(sequence_->n_prompt()), target_->n_committed());
}

bool GenerationLoop::takes_prompt() const {
    return target_->takes_prompt(prompt_border()) || is_saved();
}

// Returns whether the next pass has the prompt and can go on with what is saved of it.
bool GenerationLoop::is_saved() const {
    if (checkpoints_ == nullptr || !checkpoints_->saved) return false;
    const PromptState& state = checkpoints_->saved->state;
    return state.begin == target_->n_committed() && state.end == prompt_border() &&
           state.n_after == sequence_->n_prompt() - state.end && target_->takes_saved_prompt(state.end);
}

// Drops a saved prompt that the next pass cannot go on with.
void GenerationLoop::drop_unusable_saved() {
    if (checkpoints_ != nullptr && !is_saved()) checkpoints_->saved.reset();
}

bool GenerationLoop::prefill(const PromptProgress& on_progress, const std::atomic<bool>* cancel) {
    const auto total = static_cast<std::int64_t>(text().size());
    const bool is_resumed = sequence_->n_prompt() < total;
    if (takes_prompt()) {
        if (!is_resumed) return true;  // step() feeds the prompt of a new sequence
        if (!feed_with_prompt(on_progress, cancel)) return false;
        if (on_progress) on_progress(target_->n_committed(), total);
    }
    for (;;) {
        const std::int64_t begin = target_->n_committed();
        std::int64_t border = (begin / kPrefillChunkTokens + 1) * kPrefillChunkTokens;
        if (begin < sequence_->n_prompt()) border = std::min(border, sequence_->n_prompt());
        if (border >= total) return true;
        if (!feed_prefill_chunk(border, on_progress, cancel)) return false;
        if (on_progress) on_progress(target_->n_committed(), total);
    }
}

// Computes and commits positions [n_committed(), end). Returns false if cancelled; then nothing of them is committed.
bool GenerationLoop::feed_prefill_chunk(std::int64_t end, const PromptProgress& on_progress,
                                        const std::atomic<bool>* cancel) {
    Laps laps(*this);
    const std::int64_t begin = target_->n_committed();
    add_chain(end - begin);
    const PassControl control = control_of(begin, end, on_progress, cancel);
    const Phase phase = end <= Sequence::prefill_border(sequence_->n_prompt()) ? Phase::Prefill : Phase::Decode;
    static_cast<void>(
        run({.tokens = part_of_text(begin, end), .nodes = pass_nodes_, .phase = phase, .control = &control}));
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
        sequence_->forget();
        return false;
    }
    laps.end_lap("prefill", end - begin);
    sequence_->commit(pass_nodes_, phase);
    return true;
}

// For a resumed sequence: computes and commits the whole prompt in one pass, its prefill chunks layer by layer, without
// the generated tokens after it. Returns false if cancelled.
bool GenerationLoop::feed_with_prompt(const PromptProgress& on_progress, const std::atomic<bool>* cancel) {
    Laps laps(*this);
    const std::int64_t begin = target_->n_committed();
    const std::int64_t border = prompt_border();
    const PassControl control = control_of(begin, sequence_->n_prompt(), on_progress, cancel);
    drop_unusable_saved();
    sequence_->extend(border);
    add_chain(sequence_->n_prompt() - border);
    // Index in the pass of the prompt's last token. Its logits are requested only since a pass that was cancelled
    // returns none.
    const auto last = static_cast<std::int32_t>(sequence_->n_prompt() - border - 1);
    const LogitRows logits = run({.prompt = part_of_text(begin, border),
                                  .tokens = part_of_text(border, sequence_->n_prompt()),
                                  .nodes = pass_nodes_,
                                  .logit_tokens = {&last, 1},
                                  .needs = LogitRequest{},
                                  .control = &control,
                                  .checkpoints = checkpoints_});
    if (logits.empty()) {
        sequence_->forget();
        return false;
    }
    laps.end_lap("prefill", sequence_->n_prompt() - begin);
    if (checkpoints_ != nullptr) checkpoints_->saved.reset();
    sequence_->commit(pass_nodes_, Phase::Decode);
    return true;
}

std::span<const TokenId> GenerationLoop::step(std::int64_t max_new_tokens, const std::atomic<bool>* cancel,
                                              const PromptProgress& on_progress) {
    const auto n_text = static_cast<std::int64_t>(text().size());
    max_new_tokens = std::min(max_new_tokens, room());
    if (max_new_tokens < 1) return {};
    if (!prefill(on_progress, cancel)) return {};

    Laps laps(*this);
    tree_.reset(text().back());
    drop_unusable_saved();
    // Draft tokens have not passed the layers that a saved prompt has passed.
    const std::int64_t budget = is_saved() ? 1 : limits_.budget;
    proposer_->propose(tree_, {.budget = budget, .max_depth = max_new_tokens - 1, .text = text()});
    CHECK(tree_.size() <= limits_.budget, "{} nodes proposed, budget {}", tree_.size(), limits_.budget);
    seconds_.draft += laps.end_lap("draft", tree_.size());

    const std::int64_t begin = target_->n_committed();
    const std::int64_t border = takes_prompt() ? prompt_border() : begin;
    const std::int64_t n_missing = n_text - border;
    const PassControl control = control_of(begin, n_text, on_progress, cancel);
    bool has_failed = false;
    LogitRows logits;
    try {
        logits = run_pass(begin, border, max_new_tokens, control);
    } catch (const FormatError&) {
        if (tree_.size() == 1) throw;
        has_failed = true;
    }
    if (has_failed) {
        // The weights give a token of the pass no finite numbers. If it is a draft token, the text must not fail (E1).
        tree_.reset(text().back());
        logits = run_pass(begin, border, max_new_tokens, control);
    }
    if (logits.empty()) return {};
    const double pass_seconds = laps.end_lap("pass", n_text - begin - 1 + tree_.size());
    seconds_.verify += pass_seconds;
    const VerifyLimits limits{.max_new_tokens = max_new_tokens, .end_tokens = limits_.end_tokens};
    if (!accept(logits, limits, cancel)) return {};
    laps.skip();
    try {
        sequence_->commit(path_, Phase::Decode);
    } catch (...) {
        drop_pass(n_text);
        throw;
    }
    seconds_.commit += laps.end_lap("commit", std::ssize(path_));
    const auto n_new = static_cast<std::int64_t>(accepted_.size());
    const Observation observation{.text = text(),
                                  .n_new = n_new,
                                  .tree = &tree_,
                                  .logits = logits,
                                  .accepted = accepted_,
                                  .pass_seconds = n_missing > 1 || has_failed ? 0.0 : pass_seconds};
    if (on_pass_) {
        on_pass_(observation);
        laps.skip();
    }
    proposer_->observe(observation);
    seconds_.draft += laps.end_lap("learn", n_new);
    return {text().data() + n_text, static_cast<std::size_t>(n_new)};
}

// Runs one pass over the tokens from `border` on that the target lacks and the tree below them, with the prompt
// positions [begin, border) if there are any. If it throws or is cancelled (no logits), nothing is committed and there
// are no nodes.
LogitRows GenerationLoop::run_pass(std::int64_t begin, std::int64_t border, std::int64_t max_new_tokens,
                                   const PassControl& control) {
    if (border != begin) sequence_->extend(border);
    assemble_pass(std::ssize(text()) - border, max_new_tokens);
    const LogitRows logits = run({.prompt = part_of_text(begin, border),
                                  .tokens = pass_tokens_,
                                  .nodes = pass_nodes_,
                                  .logit_tokens = logit_tokens_,
                                  .needs = both(verifier_->logit_request(), proposer_->logit_request()),
                                  .control = &control,
                                  .checkpoints = border != begin ? checkpoints_ : nullptr});
    if (logits.empty()) {
        sequence_->forget();
    } else if (checkpoints_ != nullptr) {
        checkpoints_->saved.reset();
    }
    return logits;
}

// Runs a pass on the target and returns its logits. If it throws, the nodes of the pass are dropped.
LogitRows GenerationLoop::run(const TargetPass& pass) {
    try {
        return target_->run(pass);
    } catch (...) {
        sequence_->forget();
        throw;
    }
}

std::span<const TokenId> GenerationLoop::part_of_text(std::int64_t begin, std::int64_t end) const {
    return std::span<const TokenId>(text()).subspan(begin, end - begin);
}

// Fills pass_nodes_ with a chain of `n` new certain nodes below the committed tip.
void GenerationLoop::add_chain(std::int64_t n) {
    pass_nodes_.clear();
    NodeId above = kCommittedTip;
    for (std::int64_t i = 0; i < n; ++i) pass_nodes_.push_back(above = target_->add_node(above, NodeKind::Certain));
}

// Fills the tokens and nodes of the pass: the last `n_missing` tokens of the sequence, of which the last is the root of
// the tree, then the draft tokens. Requests logits of all nodes of the tree.
void GenerationLoop::assemble_pass(std::int64_t n_missing, std::int64_t max_new_tokens) {
    pass_tokens_.assign(text().end() - n_missing, text().end());
    add_chain(n_missing);
    for (const TreeNode node : tree_.draft_nodes()) {
        CHECK(tree_.depth(node) < max_new_tokens, "a draft token at depth {}, {} tokens wanted", tree_.depth(node),
              max_new_tokens);
        pass_tokens_.push_back(tree_.token(node));
        pass_nodes_.push_back(target_->add_node(pass_nodes_[pass_index_of(tree_.parent(node), n_missing)]));
    }
    // Rows of logits are in the order of the nodes, see logits_row_of().
    logit_tokens_.resize(tree_.size());
    std::iota(logit_tokens_.begin(), logit_tokens_.end(), pass_index_of(kTreeRoot, n_missing));
}

// Verifies the tree: appends the new tokens to the sequence and sets accepted_ and path_ to what the caller must
// commit. Then runs the self-check, if there is one. Returns false if the self-check was cancelled. In that case, and
// if it throws, the tokens and the target are as before the pass.
bool GenerationLoop::accept(const LogitRows& logits, const VerifyLimits& limits, const std::atomic<bool>* cancel) {
    const std::size_t n_text = text().size();
    Laps laps(*this);
    try {
        verifier_->verify(tree_, logits, limits, sequence_->tokens_, accepted_);
        const auto n_missing = static_cast<std::int64_t>(n_text) - target_->n_committed();
        path_.assign(pass_nodes_.begin(), pass_nodes_.begin() + n_missing);
        for (std::size_t i = 1; i < accepted_.size(); ++i)
            path_.push_back(pass_nodes_[pass_index_of(accepted_[i], n_missing)]);
        seconds_.sample += laps.end_lap("verify", std::ssize(accepted_));
        if (self_check_ == nullptr) return true;
        const CheckedPass pass{.text = std::span<const TokenId>(text()).first(n_text),
                               .tree = &tree_,
                               .logits = logits,
                               .accepted = accepted_,
                               .path = path_};
        const bool checked = self_check_->check(pass, cancel);
        seconds_.check += laps.end_lap("self-check", std::ssize(accepted_));
        if (!checked) drop_pass(n_text);
        return checked;
    } catch (...) {
        drop_pass(n_text);
        throw;
    }
}

void GenerationLoop::drop_pass(std::size_t n_text) {
    sequence_->tokens_.resize(n_text);
    sequence_->forget();
}

void GenerationLoop::truncate(std::int64_t n_tokens) {
    if (n_tokens == std::ssize(text())) return;
    sequence_->truncate(n_tokens);
    proposer_->observe({.text = text(), .n_new = 0});
}

}  // namespace slipstream
