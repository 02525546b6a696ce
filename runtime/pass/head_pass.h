// HeadPass: passes over an MTP head (runtime/model/proposing_head.h): from tokens and hidden states to
// logits and further hidden states. For devices whose memory the host shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/proposing_head.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

class HeadPass {
public:
    /// Allocates the memory of passes within `limits` on the head's device. `head` must outlive this object. Throws
    /// OutOfBudget.
    HeadPass(const ProposingHead& head, const ForwardLimits& limits);
    /// Returns what the constructor takes from the device's memory budget. `config`: that of the head's model.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, const ForwardLimits& limits);

    /// Returns the hidden state that token `i` of the next pass comes with, [d_model], for the caller to fill.
    [[nodiscard]] std::span<float> input(std::int64_t i) { return row(inputs_, i); }
    /// Runs tokens[i] at scratch node nodes[i] of `kv`, as Forward::run() does, with the hidden states of input(). The
    /// first `n_of_target` of these are the target's before its output norm, which the pass applies (Qwen's heads take
    /// the hidden state after it, DeepSeek's and GLM's before it: llama.cpp, pull request 24025); the others are
    /// results of output(). Returns the logits [logit_tokens.size(), vocab] of the tokens with the indices
    /// `logit_tokens`, valid until the next pass; none may be wanted. A row depends on its path and hidden states
    /// alone, bit for bit.
    LogitRows run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes, std::int64_t n_of_target,
                  std::span<const std::int32_t> logit_tokens);
    /// Returns the hidden state of token `i` of the last pass after the head's output norm, [d_model].
    [[nodiscard]] std::span<const float> output(std::int64_t i) { return row(outputs_, i); }

    [[nodiscard]] ExecRef exec() { return forward_.exec(); }

private:
    [[nodiscard]] std::span<float> row(const Buffer& rows, std::int64_t i) const {
        return {reinterpret_cast<float*>(rows.data()) + i * d_model_, static_cast<std::size_t>(d_model_)};
    }
    [[nodiscard]] TensorView rows(const Buffer& rows, std::int64_t n, std::int64_t cols) const {
        return matrix_view(reinterpret_cast<float*>(rows.data()), n, cols);
    }
    void join(const TensorView& embedded, std::int64_t n_of_target);

    const ProposingHead* head_;
    std::int64_t d_model_;
    Forward forward_;
    Buffer inputs_;    // [max_tokens, d_model]
    Buffer joined_;    // [max_tokens, 2 * d_model]
    Buffer outputs_;   // [max_tokens, d_model]
    Buffer selected_;  // [max_logit_rows, d_model]
    Buffer logits_;    // [max_logit_rows, vocab]
    std::vector<MatmulArgs> products_;
};

}  // namespace slipstream
