// A target without a model. The state of a position is a number mixed from its token, its position, the state before it
// and, if FakeOptions::has_prompt_kernels is true, the phase in which it was computed. Logits and KV rows are functions
// of the state. So a few lines predict the tokens and every bit of their logits and KV (FakeKv::reference), and
// thousands of runs take little time.
//
// It checks the rules of the interface: one pass at a time, nodes are added before the pass, a prompt only after it was
// announced, prefill chunks within their borders, no read of rows that a cancelled pass did not compute.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "runtime/loop/target.h"

namespace slipstream {

struct FakeOptions {
    std::int64_t context_tokens = 4096;
    std::int64_t max_nodes = 2048;
    std::int64_t vocab = 97;
    bool has_prompt_kernels = false;
    bool takes_prompts = false;  // whether a pass may compute a prompt besides its nodes
    /// Most positions that a cut removes; a deeper cut keeps no position.
    std::int64_t max_cut = std::numeric_limits<std::int64_t>::max();
    /// Sliding window of the last layer, in positions; the layer then keeps a ring of KV chunks (kv_ring.h). 0: none.
    std::int64_t window = 0;
    /// Most checkpoints of a third layer, which is recurrent; the lowest goes first. -1: there is no such layer.
    std::int64_t checkpoints = -1;
};

/// Committed positions and nodes. Several targets may use the same FakeKv, in turn.
struct FakeKv {
    struct Node {
        NodeId parent;
        std::int64_t position;
        std::uint32_t state;  // 0: not computed
    };
    FakeOptions options{};
    std::vector<std::uint32_t> committed{};  // state of each position
    std::vector<std::uint32_t> rows{};       // states of positions as they were written last, also of those cut off
    std::vector<std::uint64_t> versions{};   // [KV chunks]: version of each, see Target::chunk_version()
    std::vector<Node> nodes{};
    std::int64_t n_extended = -1;           // committed positions before extend(); -1: no prompt is announced
    std::int64_t first_kept = 0;            // first KV chunk that the last layer keeps, see Target::first_kept_chunk()
    std::int64_t chunks_until_failure = 0;  // this many calls from now, read_chunk() throws IoError; 0: never
    std::vector<std::int64_t> checkpoints{};  // positions, ascending, whose states can be read
    std::uint32_t restored_state = 0;         // by restore_states(), until restore(); 0: none
    std::int64_t restored_to = 0;             // position of restored_state

    /// Copies the states of the committed positions from `first` on to `rows`, and raises the versions of their KV
    /// chunks.
    void write_rows(std::int64_t first);
    [[nodiscard]] std::uint32_t next(std::uint32_t above, std::int64_t position, TokenId token, Phase phase) const;
    /// Returns the state of each position of `text`, if its first `n_prompt` tokens are a prompt and the others were
    /// generated.
    [[nodiscard]] std::vector<std::uint32_t> reference(std::span<const TokenId> text, std::int64_t n_prompt) const;
};

class FakeTarget final : public Target {
public:
    /// `kv` must outlive the target.
    explicit FakeTarget(FakeKv& kv) : kv_(&kv) {}

    [[nodiscard]] TargetShape shape() const override;
    [[nodiscard]] std::int64_t n_committed() const override { return std::ssize(kv_->committed); }
    [[nodiscard]] std::int64_t n_nodes() const override { return std::ssize(kv_->nodes); }
    [[nodiscard]] std::int64_t position(NodeId node) const override { return at(node).position; }
    NodeId add_node(NodeId parent, NodeKind kind = NodeKind::Draft) override;
    void commit(std::span<const NodeId> path) override;
    void forget() override;
    [[nodiscard]] std::int64_t positions_after_cut(std::int64_t n_tokens) const override;
    void truncate(std::int64_t n_tokens) override;
    [[nodiscard]] std::uint64_t chunk_version(std::int64_t chunk) const override;
    void recommit(std::int64_t n_tokens) override;

    [[nodiscard]] bool takes_prompt(std::int64_t end) const override;
    void extend(std::int64_t end) override;
    void begin(const TargetPass& pass) override;
    [[nodiscard]] LogitRows finish() override;

    void read_rows(NodeId node, std::byte* out) override;
    [[nodiscard]] std::int64_t first_kept_chunk(std::int64_t layer) const override;
    [[nodiscard]] std::int64_t first_restored_chunk(std::int64_t layer, std::int64_t n_tokens) const override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    [[nodiscard]] std::int64_t last_state(std::int64_t n_tokens, std::int64_t step) const override;
    void read_state(std::int64_t layer, std::int64_t position, std::byte* out) override;
    void restore_states(std::int64_t position, const std::function<void(std::int64_t, std::byte*)>& read) override;
    void restore(std::int64_t first, std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override;

    /// on_begin is called in begin(), on_finish in finish(). Either may be empty, and may throw.
    std::function<void(const TargetPass&)> on_begin;
    std::function<void()> on_finish;
    /// Index of a token whose logits are made wrong in passes of more than one token; -1: none.
    std::int64_t wrong_token = -1;
    std::int64_t n_passes = 0;

private:
    [[nodiscard]] const FakeKv::Node& at(NodeId node) const { return kv_->nodes[node.row]; }
    void check_between_passes() const;
    [[nodiscard]] bool is_ring() const;
    [[nodiscard]] std::int64_t first_read_chunk(std::int64_t position) const;
    void cut(std::int64_t n_tokens);
    void overwrite_to(std::int64_t n_tokens);
    [[nodiscard]] bool is_recurrent() const { return kv_->options.checkpoints >= 0; }
    void make_checkpoints(std::int64_t begin, std::int64_t n_certain);
    [[nodiscard]] std::uint32_t state_above(NodeId node) const;
    void compute_prompt(std::span<const TokenId> prompt);
    void make_logits(const TargetPass& pass);

    FakeKv* kv_;
    bool in_pass_ = false;
    bool given_up_ = false;
    std::vector<float> logits_;  // [logit tokens, vocab]
};

}  // namespace slipstream
