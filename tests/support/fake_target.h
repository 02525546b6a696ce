// A target without a model: what stands for a position is a number mixed from its token, its position, the number of
// the position before and, where the fake says that prompts have kernels of their own, the phase that it was computed
// in. Logits and rows of KV follow from it. So a text, and every bit behind it, can be told in advance by a few lines
// (FakeKv::reference), and thousands of runs take no time.
//
// It is as strict as the interface: passes one at a time, nodes made before, a prompt only where it was announced,
// prefill chunks inside their borders, nothing read of rows that were given up.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/loop/target.h"

namespace slipstream {

struct FakeOptions {
    std::int64_t context_tokens = 4096;
    std::int64_t max_nodes = 2048;
    std::int64_t vocab = 97;
    bool has_prompt_kernels = false;
    bool takes_prompts = false;  // along with a pass
};

/// The text so far and its nodes; several targets may stand on one, in turn.
struct FakeKv {
    struct Node {
        NodeId parent;
        std::int64_t position;
        std::uint32_t state;  // 0: not computed
    };
    FakeOptions options{};
    std::vector<std::uint32_t> committed{};  // states
    std::vector<Node> nodes{};
    std::int64_t n_extended = -1;           // committed before extend(); -1: nothing is announced
    std::int64_t chunks_until_failure = 0;  // that read_chunk() gives; the one that fails throws IoError; 0: none does

    [[nodiscard]] std::uint32_t next(std::uint32_t above, std::int64_t position, TokenId token, Phase phase) const;
    /// The states of `text` when its first n_prompt tokens are a prompt and those behind it were generated.
    [[nodiscard]] std::vector<std::uint32_t> reference(std::span<const TokenId> text, std::int64_t n_prompt) const;
};

class FakeTarget final : public Target {
public:
    /// `kv` outlives this.
    explicit FakeTarget(FakeKv& kv) : kv_(&kv) {}

    [[nodiscard]] TargetShape shape() const override;
    [[nodiscard]] std::int64_t n_committed() const override { return std::ssize(kv_->committed); }
    [[nodiscard]] std::int64_t n_nodes() const override { return std::ssize(kv_->nodes); }
    [[nodiscard]] std::int64_t position(NodeId node) const override { return at(node).position; }
    NodeId add_node(NodeId parent) override;
    void commit(std::span<const NodeId> path) override;
    void forget() override;
    void truncate(std::int64_t n_tokens) override;

    [[nodiscard]] bool takes_prompt(std::int64_t end) const override;
    void extend(std::int64_t end) override;
    void begin(const TargetPass& pass) override;
    [[nodiscard]] LogitRows finish() override;

    void read_rows(NodeId node, std::byte* out) override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    void restore(std::int64_t first, std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override;

    /// Called when a pass is begun, and when it is finished; may throw.
    std::function<void(const TargetPass&)> on_begin;
    std::function<void()> on_finish;
    /// Makes logits wrong: of the token with this index in passes of more than one.
    std::int64_t wrong_token = -1;
    std::int64_t n_passes = 0;

private:
    [[nodiscard]] const FakeKv::Node& at(NodeId node) const { return kv_->nodes[static_cast<std::size_t>(node.row)]; }
    void check_between_passes() const;
    [[nodiscard]] std::uint32_t state_above(NodeId node) const;
    void compute_prompt(std::span<const TokenId> prompt);
    void make_logits(const TargetPass& pass);

    FakeKv* kv_;
    bool in_pass_ = false;
    bool given_up_ = false;
    std::vector<float> logits_;  // [logit tokens, vocab]
};

}  // namespace slipstream
