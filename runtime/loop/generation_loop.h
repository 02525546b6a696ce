// The generation loop, in tokens: propose a token tree, run one pass over it, verify, commit. Plain decoding is this
// loop with NoProposer. All generation of the program runs through it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/matmul.h"
#include "offload/trace_file.h"
#include "runtime/loop/proposer.h"
#include "runtime/loop/sequence.h"
#include "runtime/loop/verify.h"

namespace slipstream {

struct LoopLimits {
    std::int64_t budget = 1;  // most nodes of a tree, node 0 included
    std::vector<TokenId> end_tokens;
};

/// Time spent in step(), in seconds, summed over all calls since the loop was made. The prefill chunks before the first
/// pass are not counted.
struct LoopSeconds {
    double draft = 0.0;   // propose() and observe()
    double verify = 0.0;  // the target's passes
    double sample = 0.0;  // Verifier::verify()
    double check = 0.0;   // the self-check; 0 without one
    double commit = 0.0;
};

/// Progress callback: tokens done, tokens in total. Called after each layer and prefill chunk; a prefill chunk counts
/// in proportion to its finished layers.
using PromptProgress = std::function<void(std::int64_t, std::int64_t)>;

class SelfCheck;

class GenerationLoop {
public:
    /// All references must outlive the loop; loops that run one after the other may share them. The target of the
    /// sequence must allow passes of scratch_nodes_for(budget) tokens, as many nodes, and `budget` rows of logits
    /// (CHECKed).
    GenerationLoop(Sequence& sequence, Verifier& verifier, Proposer& proposer, LoopLimits limits);

    /// From now on the accepted path of each pass is computed again, as plain decoding would, before it is committed;
    /// step() throws SelfCheckFailure if a bit differs. The target must have room for
    /// SelfCheck::scratch_nodes_for(budget) nodes (CHECKed). `self_check` must outlive the loop.
    void check_with(SelfCheck& self_check);

    /// Adds the parts of each step (draft, pass, verify, commit) to a track of `trace` from now on. `trace` must
    /// outlive the loop.
    void trace_with(TraceFile& trace, std::uint32_t track);

    /// From now on, `on_pass` is called after each commit of step(), with what the proposer then gets, before the
    /// proposer learns from it. Empty: nothing is called. It must not throw.
    void report_passes(std::function<void(const Observation&)> on_pass) { on_pass_ = std::move(on_pass); }

    /// From now on, prompts that go layer by layer are saved by the functions of `checkpoints`, and the next one goes
    /// on with checkpoints->saved if that is of this prompt; checkpoints->saved is reset when the prompt is computed,
    /// or does not match. Null: no prompts are saved. `checkpoints` must outlive the loop, or be replaced.
    void save_prompts(PromptCheckpoints* checkpoints) { checkpoints_ = checkpoints; }

    /// Replaces the sequence by `prompt`. Throws what check_prompt() throws.
    void begin(std::vector<TokenId> prompt);
    /// Throws RequestError if a prompt of `n_tokens` tokens is empty or leaves no room in the context.
    void check_prompt(std::int64_t n_tokens) const;
    /// Throws RequestError if a prompt of `n_tokens` tokens is empty or leaves no room in a context of `context_tokens`
    /// tokens. For use before there is a target.
    static void check_prompt(std::int64_t n_tokens, std::int64_t context_tokens);
    /// Replaces the sequence by `tokens`, of which those after the first `n_prompt` were generated before. They are
    /// computed in passes without prompt positions, as when they were generated, so that their KV has the same bits
    /// also on devices with prompt kernels (batch invariance, E1).
    void resume(std::vector<TokenId> tokens, std::int64_t n_prompt);

    /// Computes the prompt except its last prefill chunk. If the target can take the prompt layer by layer along with a
    /// pass (weights or KV stream), this does nothing: the first step() then feeds the whole prompt, so that each
    /// weight crosses the link once. For a resumed sequence it computes the prompt and all generated tokens except the
    /// last prefill chunk. Returns false if *cancel turned true; call again to continue.
    bool prefill(const PromptProgress& on_progress = {}, const std::atomic<bool>* cancel = nullptr);

    /// Runs one pass over the tokens that the target lacks and a tree of draft tokens, and commits the accepted path.
    /// The first call also feeds the rest of the prompt and reports to `on_progress`. Returns the new tokens, 1 to
    /// max_new_tokens, valid until the next call; only the last can be an end token. Returns an empty span if *cancel
    /// turned true (the tokens are then unchanged) or if the context is full. A pass that throws FormatError is run
    /// again without draft tokens. If that, verification or the self-check throws, the sequence is unchanged.
    [[nodiscard]] std::span<const TokenId> step(std::int64_t max_new_tokens, const std::atomic<bool>* cancel = nullptr,
                                                const PromptProgress& on_progress = {});

    /// Keeps the first `n_tokens` tokens of the sequence (Sequence::truncate()), to remove tokens that a pass committed
    /// after a stop rule. Later steps give the tokens of a loop that never went further. The proposer gets an
    /// observation without new tokens.
    void truncate(std::int64_t n_tokens);

    [[nodiscard]] Sequence& sequence() const { return *sequence_; }
    [[nodiscard]] const std::vector<TokenId>& text() const { return sequence_->tokens(); }
    /// Returns how many tokens can still be added before the context is full.
    [[nodiscard]] std::int64_t room() const { return sequence_->room(); }
    /// Returns the number of nodes of the tree of the last pass, node 0 included.
    [[nodiscard]] std::int64_t last_tree_size() const { return tree_.size(); }
    [[nodiscard]] const LoopSeconds& seconds() const { return seconds_; }

private:
    class Laps;
    [[nodiscard]] bool feed_prefill_chunk(std::int64_t end, const PromptProgress& on_progress,
                                          const std::atomic<bool>* cancel);
    [[nodiscard]] bool feed_with_prompt(const PromptProgress& on_progress, const std::atomic<bool>* cancel);
    [[nodiscard]] std::int64_t prompt_border() const;
    [[nodiscard]] bool takes_prompt() const;
    [[nodiscard]] bool is_saved() const;
    void drop_unusable_saved();
    [[nodiscard]] LogitRows run(const TargetPass& pass);
    void add_chain(std::int64_t n);
    [[nodiscard]] std::span<const TokenId> part_of_text(std::int64_t begin, std::int64_t end) const;
    [[nodiscard]] LogitRows run_pass(std::int64_t begin, std::int64_t border, std::int64_t max_new_tokens,
                                     const PassControl& control);
    void assemble_pass(std::int64_t n_missing, std::int64_t max_new_tokens);
    [[nodiscard]] bool accept(const LogitRows& logits, const VerifyLimits& limits, const std::atomic<bool>* cancel);
    void drop_pass(std::size_t n_text);
    [[nodiscard]] PassControl control_of(std::int64_t begin, std::int64_t end, const PromptProgress& on_progress,
                                         const std::atomic<bool>* cancel) const;

    Sequence* sequence_;
    Target* target_;  // that of sequence_
    Verifier* verifier_;
    Proposer* proposer_;
    SelfCheck* self_check_ = nullptr;
    TraceFile* trace_ = nullptr;                       // null: no trace
    std::uint32_t track_ = 0;                          // of trace_
    PromptCheckpoints* checkpoints_ = nullptr;         // null: prompts are not saved
    std::function<void(const Observation&)> on_pass_;  // empty: passes are not reported
    LoopLimits limits_;
    TokenTree tree_;
    LoopSeconds seconds_;
    std::vector<TokenId> pass_tokens_;        // [n_tokens]: those that the target lacks, then the draft tokens
    std::vector<NodeId> pass_nodes_;          // [n_tokens], of pass_tokens_
    std::vector<std::int32_t> logit_tokens_;  // [tree size], indices in pass_tokens_
    std::vector<TreeNode> accepted_;          // accepted nodes of tree_
    std::vector<NodeId> path_;                // nodes of the target to commit
};

}  // namespace slipstream
