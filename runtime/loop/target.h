// Target: the model whose output is wanted, as the generation loop, the self-check and sessions see it. It runs passes
// over tokens that are nodes below a KV cache, and all changes of that cache go through it. Only the implementation,
// RankTarget (runtime/ranks/rank_target.h), knows the devices and how the model is split among them.
//
// A pass has begin() and finish(), so that the caller may do other work in between; it must not use the target in
// between. KV rows of nodes are kept across passes until commit() or forget().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "kernels/attention.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/pass/pass_control.h"
#include "runtime/pass/prompt_checkpoint.h"

namespace slipstream {

/// Constant properties of a target.
struct TargetShape {
    std::int64_t context_tokens = 0;
    std::int64_t max_tokens = 0;      // most tokens of a pass, its prompt not counted
    std::int64_t max_logit_rows = 0;  // most logits rows of a pass
    std::int64_t max_nodes = 0;       // most nodes that exist at the same time
    bool has_prompt_kernels = false;  // whether a row of Phase::Prefill has other bits than one of Phase::Decode
    std::int64_t n_layers = 0;        // layers of the whole model
    std::span<const KvLayout> kv{};   // [n_layers]: of the whole model; valid as long as the target
};

/// Arguments of one pass. The spans must stay valid until the pass is finished.
struct TargetPass {
    /// The positions after the committed ones that extend() announced, or empty. They run before `tokens`, layer by
    /// layer, and the pass commits them itself.
    std::span<const TokenId> prompt{};
    std::span<const TokenId> tokens{};  // each in [0, vocab)
    std::span<const NodeId> nodes{};    // [tokens]; a parent comes before its children, in this pass or an earlier one
    std::span<const std::int32_t> logit_tokens{};  // indices in `tokens` of those whose logits are computed
    /// Parts of the logits rows that the caller will read. Without a value, all rows are fetched whole at once.
    /// Required if there is a prompt.
    std::optional<LogitRequest> needs = std::nullopt;
    Phase phase = Phase::Decode;  // phase of `tokens`; must be Decode if there is a prompt
    const PassControl* control = nullptr;
    /// Functions with which to save the prompt, and the saved prompt to go on with; null: neither. A pass that goes on
    /// with a saved prompt has no draft tokens.
    const PromptCheckpoints* checkpoints = nullptr;
};

class Target {
public:
    virtual ~Target() = default;
    [[nodiscard]] virtual TargetShape shape() const = 0;

    // The committed positions, and the nodes below them.

    [[nodiscard]] virtual std::int64_t n_committed() const = 0;
    [[nodiscard]] virtual std::int64_t n_nodes() const = 0;
    /// Returns the absolute position of a node.
    [[nodiscard]] virtual std::int64_t position(NodeId node) const = 0;
    /// Adds a node below `parent` (kCommittedTip or an existing node; for a certain node, the committed tip or a
    /// certain node) and returns its number. commit() of a path must have all certain nodes of its pass. Nodes are
    /// numbered from 0 after a commit. Its position must be within the context, and fewer than max_nodes nodes may
    /// exist (both CHECKed).
    virtual NodeId add_node(NodeId parent, NodeKind kind = NodeKind::Draft) = 0;
    /// Commits the KV rows of `path` as the next positions and drops all other nodes. The first node of `path` must be
    /// a child of the committed tip, each further one a child of the node before it. If it throws, nothing of `path` is
    /// committed, and some of the last committed positions may be lost, see forget().
    virtual void commit(std::span<const NodeId> path) = 0;
    /// Drops all nodes, and the positions that extend() announced if no pass has computed them. Must not be called
    /// between begin() and finish(), like every call that changes the cache. After a pass that threw, it also drops
    /// committed positions from the first KV chunk on that was lost in the failed pass: n_committed() then returns what
    /// remains, and the next pass must compute the rest again. After a pass with a prompt that was cancelled or threw,
    /// layers with a sliding window may have overwritten what they need: then no position remains.
    virtual void forget() = 0;
    /// Returns how many positions remain if truncate(n_tokens) is called (n_tokens <= n_committed()): all of them; 0 if
    /// layers with a sliding window have given up KV that they would then need, which cuts of at most kCutSlackTokens
    /// never do; or those up to the last checkpoint of recurrent layers.
    [[nodiscard]] virtual std::int64_t positions_after_cut(std::int64_t n_tokens) const { return n_tokens; }
    /// Keeps the first positions_after_cut(n_tokens) committed positions and drops all nodes.
    virtual void truncate(std::int64_t n_tokens) = 0;
    /// Returns a number that changes whenever KV rows of the KV chunk may be written, in any layer. As long as it is
    /// the same, rows that truncate() has dropped are still there for recommit(). Returns 0 if truncate() loses them.
    [[nodiscard]] virtual std::uint64_t chunk_version(std::int64_t /*chunk*/) const { return 0; }
    /// Commits the positions [n_committed(), n_tokens) again, which truncate() has dropped: the chunk_version() of all
    /// their KV chunks must be as it was. Requires that there are no nodes (CHECKed). Never called if versions are 0.
    virtual void recommit(std::int64_t n_tokens) = 0;

    // Passes.

    /// Returns whether a pass may have the positions from n_committed() to `end` as its prompt.
    [[nodiscard]] virtual bool takes_prompt(std::int64_t end) const = 0;
    /// Returns whether a pass may have the positions from n_committed() to `end` as its prompt and go on with a saved
    /// prompt (TargetPass::checkpoints). True if takes_prompt(end) is true, and on one device that streams nothing,
    /// whose own prompts do not pass layer by layer.
    [[nodiscard]] virtual bool takes_saved_prompt(std::int64_t end) const { return takes_prompt(end); }
    /// Announces a prompt that ends before position `end`: new nodes start at `end`, and the next pass must fill
    /// [n_committed(), end) from TargetPass::prompt. Requires that there are no nodes and that takes_prompt(end), or
    /// takes_saved_prompt(end) for a saved prompt, is true (both CHECKed). Until that pass has finished, or forget()
    /// cancels the prompt, the caller must not change the sequence.
    virtual void extend(std::int64_t end) = 0;
    /// Starts a pass; only one may run at a time. The logits of a token depend on its path alone, bit for bit (batch
    /// invariance, E1). If it throws, no pass has started.
    virtual void begin(const TargetPass& pass) = 0;
    /// Waits for the pass and returns its logits, valid until the next pass. Returns no rows if the pass was cancelled
    /// because *control->cancel turned true: the KV rows of its nodes are then undefined, and the caller must call
    /// forget().
    [[nodiscard]] virtual LogitRows finish() = 0;
    [[nodiscard]] LogitRows run(const TargetPass& pass) {
        begin(pass);
        return finish();
    }

    // KV of the whole model, all layers and heads, on whichever devices it is.

    /// Copies the keys and values of a node to host memory before it returns: [n_layers][K|V] rows of
    /// kv[layer].scratch_row_bytes() bytes each.
    virtual void read_rows(NodeId node, std::byte* out) = 0;
    /// Returns the first KV chunk of a layer that read_chunk() can read: 0, unless the layer has a sliding window.
    [[nodiscard]] virtual std::int64_t first_kept_chunk(std::int64_t /*layer*/) const { return 0; }
    /// Returns the first KV chunk of a layer that restore() to `n_tokens` positions reads: 0, unless the layer has a
    /// sliding window.
    [[nodiscard]] virtual std::int64_t first_restored_chunk(std::int64_t /*layer*/, std::int64_t /*n_tokens*/) const {
        return 0;
    }
    /// Copies a KV chunk that has committed positions, not before first_kept_chunk(layer), to `out`,
    /// [kv[layer].chunk_bytes()] in host memory. Slots past the committed positions are undefined.
    virtual void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) = 0;
    // States of recurrent layers: after the last position that is in them, or one with a checkpoint. Those of a layer
    // have RecurrentStates::state_bytes() of kv[layer].

    /// Returns the last position, at most `n_tokens` and a multiple of `step`, whose states read_state() can read; 0:
    /// none.
    [[nodiscard]] virtual std::int64_t last_state(std::int64_t /*n_tokens*/, std::int64_t /*step*/) const { return 0; }
    /// Copies the states of a recurrent layer after `position`, which last_state() has returned since the last pass, to
    /// host memory.
    virtual void read_state(std::int64_t /*layer*/, std::int64_t /*position*/, std::byte* /*out*/) {}
    /// Fills the states of all recurrent layers; `read(layer, out)` must fill `out` with what read_state() gave for
    /// `position`. There must be no positions (CHECKed). Call restore(0, position, ...) next. If either throws,
    /// there are no states.
    virtual void restore_states(std::int64_t /*position*/,
                                const std::function<void(std::int64_t, std::byte*)>& /*read*/) {}
    /// Writes the positions [first, n_tokens); `first` is n_committed() and a multiple of 256, and there are no nodes
    /// (CHECKed). `read(layer, chunk, out)` must fill `out` with what read_chunk() gave. It is called once for each KV
    /// chunk and layer, all layers of a KV chunk before the next one, except for those before first_restored_chunk().
    /// If layers are recurrent, `first` is 0, and restore_states() was called for `n_tokens` (CHECKed).
    /// If it throws, positions_after_cut(first) positions remain.
    virtual void restore(std::int64_t first, std::int64_t n_tokens,
                         const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) = 0;
};

}  // namespace slipstream
