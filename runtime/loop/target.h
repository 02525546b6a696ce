// What the generation loop, the self-check and sessions know of the model whose text is made: passes over tokens that
// hang as nodes on a KV cache, and that cache. On which devices they are, and how the model is split among these, only
// the implementation knows: RankTarget (runtime/ranks/rank_target.h).
//
// A pass is begun and finished, so that a caller may do something else meanwhile: nothing of the target between the
// two. Rows of nodes are kept until commit() or forget(), also across passes.
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

namespace slipstream {

/// What does not change of a target.
struct TargetShape {
    std::int64_t context_tokens = 0;
    std::int64_t max_tokens = 0;      // of one pass, the prompt that goes along not counted
    std::int64_t max_logit_rows = 0;  // of one pass
    std::int64_t max_nodes = 0;       // at once
    bool has_prompt_kernels = false;  // a row of Phase::Prefill has other bits than a decoded one
    std::int64_t n_layers = 0;        // of the whole model
    KvShape kv{};                     // of a layer of the whole model
};

/// One pass. Views hold until it is finished.
struct TargetPass {
    /// Goes before the others, layer by layer, and is committed on the way: the positions behind those committed, which
    /// were announced by extend(). Empty: none.
    std::span<const TokenId> prompt{};
    std::span<const TokenId> tokens{};             // each in [0, vocab)
    std::span<const NodeId> nodes{};               // [tokens], parents before children in this or an earlier pass
    std::span<const std::int32_t> logit_tokens{};  // indices of tokens whose logits are wanted
    /// Of those logits; nothing: whole rows, at once. A pass with a prompt says some.
    std::optional<LogitRequest> needs = std::nullopt;
    Phase phase = Phase::Decode;  // of tokens; with a prompt this one
    const PassControl* control = nullptr;
};

class Target {
public:
    virtual ~Target() = default;
    [[nodiscard]] virtual TargetShape shape() const = 0;

    // The text so far, and nodes that hang on it.

    [[nodiscard]] virtual std::int64_t n_committed() const = 0;
    [[nodiscard]] virtual std::int64_t n_nodes() const = 0;
    /// Absolute position of a node.
    [[nodiscard]] virtual std::int64_t position(NodeId node) const = 0;
    /// A new node below `parent` (kCommittedTip or an existing node). Its position must lie inside the context and
    /// there must be room for it: both CHECKed. Nodes are numbered from 0 after a commit.
    virtual NodeId add_node(NodeId parent) = 0;
    /// The rows of `path` (its first node hangs under the committed tip, each next one under the one before) become the
    /// next committed ones; all other nodes are forgotten. Where it throws none is committed, and of what was there
    /// before some of the last positions may be gone: see forget().
    virtual void commit(std::span<const NodeId> path) = 0;
    /// Drops all nodes, and positions that extend() announced and no pass has brought. As all that changes the text not
    /// between begin() and finish(). Behind a pass that threw also committed positions, from the first chunk on whose
    /// KV was lost with it: n_committed() tells, and the next pass brings them again.
    virtual void forget() = 0;
    /// Keeps the first `n_tokens` committed positions and drops all nodes.
    virtual void truncate(std::int64_t n_tokens) = 0;

    // Passes.

    /// Whether the positions from n_committed() to `end` may go along with a pass as its prompt.
    [[nodiscard]] virtual bool takes_prompt(std::int64_t end) const = 0;
    /// Nodes hang at position `end` from now on: the next pass brings the positions before it. There are no nodes, and
    /// takes_prompt(end): CHECKed. What changes the text must wait until that pass has come, or was forgotten.
    virtual void extend(std::int64_t end) = 0;
    /// E1: a token's logits depend on its path alone, bit for bit. One pass at a time; where this throws none is begun.
    virtual void begin(const TargetPass& pass) = 0;
    /// The logits of the pass that was begun, valid until the next one; none where it was given up, because
    /// *watch->cancel turned true: its rows are then undefined, and the caller forgets its nodes.
    [[nodiscard]] virtual LogitRows finish() = 0;
    [[nodiscard]] LogitRows run(const TargetPass& pass) {
        begin(pass);
        return finish();
    }

    // KV as the whole model has it, of all layers and heads, wherever they lie.

    /// A node's rows of keys and values, [n_layers][K|V] of kv.scratch_row_bytes(), in host memory when it returns.
    virtual void read_rows(NodeId node, std::byte* out) = 0;
    /// A chunk that holds committed positions, [kv.chunk_bytes()]. What lies behind the committed ones is undefined.
    virtual void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) = 0;
    /// Writes the positions [first, n_tokens) after the `first` committed ones, a multiple of 256; there are no nodes
    /// (CHECKed). `read(layer, chunk, out)` fills `out` with what read_chunk() gave: chunks ascending, each of all
    /// layers, each once. If it throws, the first positions remain.
    virtual void restore(std::int64_t first, std::int64_t n_tokens,
                         const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) = 0;
};

}  // namespace slipstream
