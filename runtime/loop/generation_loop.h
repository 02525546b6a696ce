// The one generation loop, in tokens: propose a tree, run one pass, walk it, commit. Plain decoding is this loop with
// NoProposer; nothing else in the program generates.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "runtime/loop/proposer.h"
#include "runtime/loop/sequence.h"
#include "runtime/loop/verify.h"

namespace slipstream {

struct LoopLimits {
    std::int64_t budget = 1;  // most nodes of a tree, node 0 included
    std::vector<TokenId> end_tokens;
};

/// Where the time of passes went, in seconds, summed over step().
struct LoopSeconds {
    double draft = 0.0;   // propose() and observe()
    double verify = 0.0;  // the pass
    double sample = 0.0;  // the walk over the tree
    double check = 0.0;   // the self-check, where there is one
    double commit = 0.0;
};

/// Hears of prompt tokens done and in all, after each layer and prefill chunk; tokens inside a prefill chunk count by
/// its layers done.
using PromptProgress = std::function<void(std::int64_t, std::int64_t)>;

class SelfCheck;

class GenerationLoop {
public:
    /// All references must outlive the loop; they may be shared by loops that run one after the other. The sequence's
    /// target allows passes of scratch_nodes_for(budget) tokens and as many nodes, and `budget` rows of logits
    /// (CHECKed).
    GenerationLoop(Sequence& sequence, Verifier& verifier, Proposer& proposer, LoopLimits limits);

    /// From now on the accepted path of each pass is computed again, as plain decoding would, before it is committed;
    /// step() throws SelfCheckFailure where a bit differs. The target must have room for
    /// SelfCheck::scratch_nodes_for(budget) nodes (CHECKed). `self_check` outlives the loop.
    void check_with(SelfCheck& self_check);

    /// Begins the sequence with `prompt`. Throws as check_prompt().
    void begin(std::vector<TokenId> prompt);
    /// Throws RequestError if a prompt of so many tokens is empty or leaves no room in the context.
    void check_prompt(std::int64_t n_tokens) const;
    /// The same for a context that no target serves yet.
    static void check_prompt(std::int64_t n_tokens, std::int64_t context_tokens);
    /// Begins the sequence with a text whose tokens after the first `n_prompt` were generated before: these are
    /// computed as generated tokens are, in passes that hold no prompt (E1 on devices whose prefill has kernels of its
    /// own).
    void resume(std::vector<TokenId> tokens, std::int64_t n_prompt);

    /// Feeds the prompt but for its last prefill chunk; nothing where the model streams, since step() then feeds it
    /// whole, layer by layer, so that each weight crosses the link once. False where *cancel turned true; calling again
    /// continues.
    bool prefill(const PromptProgress& on_progress = {}, const std::atomic<bool>* cancel = nullptr);

    /// One pass: feeds what the target lacks with a tree of guesses below it, commits the accepted path, and returns
    /// the new tokens, 1 to max_new_tokens of them; an end token can only be the last. Nothing where *cancel turned
    /// true (no state has changed then) or the context is full. Valid until the next call. The first step feeds the
    /// rest of the prompt: `on_progress` hears of that. Where the walk or the self-check throws, the text is as it was
    /// before.
    [[nodiscard]] std::span<const TokenId> step(std::int64_t max_new_tokens, const std::atomic<bool>* cancel = nullptr,
                                                const PromptProgress& on_progress = {});

    /// Sequence::truncate(), for what a pass committed after a stop rule. Generation may go on from there, with the
    /// tokens of a loop that never went further. The proposer gets an observation of no new tokens.
    void truncate(std::int64_t n_tokens);

    [[nodiscard]] Sequence& sequence() const { return *sequence_; }
    [[nodiscard]] const std::vector<TokenId>& text() const { return sequence_->tokens(); }
    /// Tokens that the context still has room for.
    [[nodiscard]] std::int64_t room() const { return sequence_->room(); }
    /// Nodes of the last pass's tree, node 0 included.
    [[nodiscard]] std::int64_t last_tree_size() const { return tree_.size(); }
    [[nodiscard]] const LoopSeconds& seconds() const { return seconds_; }

private:
    [[nodiscard]] bool feed_prefill_chunk(std::int64_t end, const PromptProgress& on_progress,
                                          const std::atomic<bool>* cancel);
    [[nodiscard]] bool feed_with_prompt(const PromptProgress& on_progress, const std::atomic<bool>* cancel);
    [[nodiscard]] std::int64_t prompt_border() const;
    [[nodiscard]] bool takes_prompt() const;
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
    Target* target_;  // of the sequence
    Verifier* verifier_;
    Proposer* proposer_;
    SelfCheck* self_check_ = nullptr;
    LoopLimits limits_;
    TokenTree tree_;
    LoopSeconds seconds_;
    std::vector<TokenId> pass_tokens_;        // [n_tokens] of the running pass: what was missing, then the guesses
    std::vector<NodeId> pass_nodes_;          // [n_tokens]
    std::vector<std::int32_t> logit_tokens_;  // [tree size]
    std::vector<std::int32_t> accepted_;      // tree nodes
    std::vector<NodeId> path_;                // nodes to commit
};

}  // namespace slipstream
