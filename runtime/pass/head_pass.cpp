#include "runtime/pass/head_pass.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace slipstream {

namespace {

// The layer runs as a model; the LM head is not its own, so it has no rows of logits.
ForwardLimits layer_limits(const ForwardLimits& limits) {
    return {.max_tokens = limits.max_tokens, .max_logit_rows = 1, .graphs = GraphUse::Never};
}

std::size_t float_bytes(std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows) * row_bytes(DType::F32, cols);
}

}  // namespace

HeadPass::HeadPass(const ProposingHead& head, const ForwardLimits& limits)
    : head_(&head), d_model_(head.model().config().d_model), forward_(head.model(), layer_limits(limits)) {
    Device& device = head.model().device();
    const auto allocate = [&](std::int64_t n, std::int64_t cols) {
        return device.allocate(float_bytes(n, cols), MemoryTag::Activations, "a pass of the MTP head");
    };
    inputs_ = allocate(limits.max_tokens, d_model_);
    joined_ = allocate(limits.max_tokens, 2 * d_model_);
    outputs_ = allocate(limits.max_tokens, d_model_);
    selected_ = allocate(limits.max_logit_rows, d_model_);
    logits_ = allocate(limits.max_logit_rows, head.model().config().vocab);
    products_.reserve(head.lm_head().size());
}

std::size_t HeadPass::device_bytes(const ModelConfig& config, const ForwardLimits& limits) {
    return Forward::device_bytes(config, layer_limits(limits), Forward::Streaming::No) +
           4 * float_bytes(limits.max_tokens, config.d_model) + float_bytes(limits.max_logit_rows, config.d_model) +
           float_bytes(limits.max_logit_rows, config.vocab);
}

// Writes the operand of the projection: the embedded tokens, which are normed already, and the normed hidden states.
void HeadPass::join(const TensorView& embedded, std::int64_t n_of_target) {
    const std::int64_t n = embedded.rows();
    const float eps = head_->model().config().rms_eps;
    const HeadTensors& tensors = head_->tensors();
    const TensorView of_target = rows(inputs_, n_of_target, d_model_);
    if (n_of_target > 0) rms_norm(exec(), {.x = of_target, .weight = tensors.target_norm, .y = of_target, .eps = eps});
    const TensorView inputs = rows(inputs_, n, d_model_);
    rms_norm(exec(), {.x = inputs, .weight = tensors.hidden_norm, .y = inputs, .eps = eps});
    const TensorView joined = rows(joined_, n, 2 * d_model_);
    const std::size_t half = row_bytes(DType::F32, d_model_);
    for (std::int64_t i = 0; i < n; ++i) {
        exec().stream.copy(joined.row(i), embedded.row(i), half);
        exec().stream.copy(joined.row(i) + half, inputs.row(i), half);
    }
}

LogitRows HeadPass::run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                        std::int64_t n_of_target, std::span<const std::int32_t> logit_tokens) {
    const std::int64_t n = std::ssize(tokens);
    const std::int64_t n_logits = std::ssize(logit_tokens);
    const ModelConfig& config = head_->model().config();
    CHECK(n_of_target >= 0 && n_of_target <= n && float_bytes(n_logits, config.vocab) <= logits_.size_bytes(),
          "{} tokens, {} of the target, {} rows of logits", n, n_of_target, n_logits);
    Forward::Steps steps(forward_, kv, tokens, nodes, {}, Phase::Decode);
    steps.embed();
    const TensorView hidden = steps.hidden();
    join(hidden, n_of_target);
    matmul(exec(), {.weights = head_->tensors().projection, .x = rows(joined_, n, 2 * d_model_), .y = hidden});
    steps.run_layer(0);
    const TensorView outputs = rows(outputs_, n, d_model_);
    rms_norm(exec(),
             {.x = hidden, .weight = head_->model().weights().output_norm, .y = outputs, .eps = config.rms_eps});
    const TensorView selected = rows(selected_, n_logits, d_model_);
    for (std::int64_t i = 0; i < n_logits; ++i) {
        CHECK(logit_tokens[i] >= 0 && logit_tokens[i] < n, "logits of token {} of {}", logit_tokens[i], n);
        exec().stream.copy(selected.row(i), outputs.row(logit_tokens[i]), selected.row_stride_bytes);
    }
    const TensorView logits = rows(logits_, n_logits, config.vocab);
    products_.clear();
    for (const MatrixPart& part : head_->lm_head())
        products_.push_back(
            {.weights = part.packed, .x = selected, .y = matrix_columns(logits, part.first_row, part.packed.shape[0])});
    if (n_logits > 0) matmuls(exec(), products_);
    if (n_logits > 0 && config.logit_softcap > 0.0F) softcap(exec(), {.y = logits, .cap = config.logit_softcap});
    steps.complete();
    exec().stream.synchronize();
    return n_logits > 0 ? LogitRows(ConstTensorView(logits)) : LogitRows();
}

}  // namespace slipstream
