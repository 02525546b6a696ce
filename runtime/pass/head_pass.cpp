#include "runtime/pass/head_pass.h"

#include <algorithm>
#include <string_view>

#include "kernels/base/check.h"
#include "kernels/delta_net.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/workspace.h"
#include "runtime/pass/index_runs.h"

namespace slipstream {

namespace {

// The layer runs as a model; the LM head is not its own, so it has no rows of logits.
ForwardLimits layer_limits(const ForwardLimits& limits) {
    return {.max_tokens = limits.max_tokens, .max_logit_rows = 1, .graphs = GraphUse::Never};
}

std::size_t float_bytes(std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows) * row_bytes(DType::F32, cols);
}

std::size_t selected_bytes(const ModelConfig& config, const ForwardLimits& limits) {
    return std::max(float_bytes(limits.max_logit_rows, config.d_model), DeviceLogits::top_bytes(limits.max_logit_rows));
}

}  // namespace

HeadPass::HeadPass(const ProposingHead& head, const ForwardLimits& limits)
    : head_(&head),
      d_model_(head.model().config().d_model),
      max_tokens_(limits.max_tokens),
      max_logit_rows_(limits.max_logit_rows),
      forward_(head.model(), layer_limits(limits)) {
    Device& device = head.model().device();
    const ModelConfig& config = head.model().config();
    constexpr std::string_view kWhat = "a pass of the MTP head";
    reserve_workspace(device, workspace_shapes(config, head.model().kv_dtype(), limits));
    const auto allocate = [&](std::size_t bytes) { return device.allocate(bytes, MemoryTag::Activations, kWhat); };
    if (!device.shares_host_memory()) {
        remote_ = std::make_unique<DeviceLogits>(device, limits.max_logit_rows, config.vocab);
        host_inputs_ = device.allocate_host(float_bytes(limits.max_tokens, d_model_), MemoryTag::Activations, kWhat);
    }
    inputs_ = allocate(float_bytes(limits.max_tokens, d_model_));
    joined_ = allocate(float_bytes(limits.max_tokens, 2 * d_model_));
    results_ = allocate(float_bytes(limits.max_tokens, d_model_));
    selected_ = allocate(selected_bytes(config, limits));
    logits_ = allocate(float_bytes(limits.max_logit_rows, config.vocab));
    row_positions_.resize(static_cast<std::size_t>(limits.max_logit_rows));
}

std::size_t HeadPass::device_bytes(const ModelConfig& config, const ForwardLimits& limits) {
    return Forward::device_bytes(config, layer_limits(limits), Forward::Streaming::No) +
           4 * float_bytes(limits.max_tokens, config.d_model) + selected_bytes(config, limits) +
           float_bytes(limits.max_logit_rows, config.vocab);
}

std::size_t HeadPass::pinned_bytes(const ModelConfig& config, const ForwardLimits& limits) {
    // The layer's Forward has logits of one row, too.
    return float_bytes(limits.max_tokens, config.d_model) + float_bytes(limits.max_logit_rows + 1, config.vocab) +
           DeviceLogits::top_bytes(limits.max_logit_rows) + DeviceLogits::top_bytes(1);
}

// The product of the projection has the longest rows of the head, and the logits are its own.
WorkspaceShapes HeadPass::workspace_shapes(const ModelConfig& config, DType kv_dtype, const ForwardLimits& limits) {
    WorkspaceShapes shapes = Forward::workspace_shapes(config, kv_dtype, layer_limits(limits));
    shapes.max_cols = std::max(shapes.max_cols, 2 * config.d_model);
    shapes.n_logit_rows = limits.max_logit_rows;
    return shapes;
}

std::span<float> HeadPass::input(std::int64_t i) {
    CHECK(i >= 0 && i < max_tokens_, "hidden state {} of {}", i, max_tokens_);
    const Buffer& to = host_inputs_.data() != nullptr ? host_inputs_ : inputs_;
    return {reinterpret_cast<float*>(to.data()) + i * d_model_, static_cast<std::size_t>(d_model_)};
}

// Brings the hidden states of a pass together in inputs_.
void HeadPass::gather_inputs(const PassKv& kv, std::span<const NodeId> nodes, std::int64_t n_of_target) {
    Stream& stream = exec().stream;
    if (host_inputs_.data() != nullptr && n_of_target > 0)
        stream.copy(inputs_.data(), host_inputs_.data(), float_bytes(n_of_target, d_model_));
    for (std::int64_t i = n_of_target; i < std::ssize(nodes); ++i) {
        const NodeId parent = kv.nodes().parent(nodes[i]);
        CHECK(parent.row >= 0 && parent.row < nodes.front().row, "node {} of a pass from {} on: its parent is {}",
              nodes[i].row, nodes.front().row, parent.row);
        stream.copy(rows(inputs_, 1, d_model_, i).data, rows(results_, 1, d_model_, parent.row).data,
                    row_bytes(DType::F32, d_model_));
    }
}

// Writes the operand of the projection: the embedded tokens, which are normed already, and the normed hidden states.
void HeadPass::join(const TensorView& embedded, std::int64_t n_of_target) {
    const std::int64_t n = embedded.rows();
    const float eps = head_->model().config().rms_eps;
    const HeadTensors& tensors = head_->tensors();
    const TensorView of_target = rows(inputs_, n_of_target, d_model_);
    if (n_of_target > 0) rms_norm(exec(), {.x = of_target, .weight = tensors.target_norm, .y = of_target, .eps = eps});
    const TensorView joined = rows(joined_, n, 2 * d_model_);
    gather_columns(
        exec(),
        {.x = embedded, .y = matrix_columns(joined, 0, d_model_), .run = d_model_, .first = 0, .stride = d_model_});
    rms_norm(exec(), {.x = rows(inputs_, n, d_model_),
                      .weight = tensors.hidden_norm,
                      .y = matrix_columns(joined, d_model_, d_model_),
                      .eps = eps});
}

LogitRows HeadPass::run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                        std::int64_t n_of_target, std::span<const std::int32_t> logit_tokens,
                        const LogitRequest& needs) {
    const std::int64_t n = std::ssize(tokens);
    const ModelConfig& config = head_->model().config();
    CHECK(n >= 1 && n_of_target >= 0 && n_of_target <= n && std::ssize(logit_tokens) <= max_logit_rows_ &&
              kv.nodes().max_nodes() <= max_tokens_ && needs.draw_temperature == 0.0,
          "{} tokens, {} of the target, {} rows of logits, a draw at {}", n, n_of_target, logit_tokens.size(),
          needs.draw_temperature);
    for (std::int64_t i = 0; i < n; ++i)
        CHECK(nodes[i].row == nodes.front().row + i, "node {} after {}", nodes[i].row, nodes.front().row);
    Forward::Steps steps(forward_, kv, tokens, nodes, {}, Phase::Decode);
    steps.embed();
    const TensorView hidden = steps.hidden();
    gather_inputs(kv, nodes, n_of_target);
    join(hidden, n_of_target);
    matmul(exec(), {.weights = head_->tensors().projection, .x = rows(joined_, n, 2 * d_model_), .y = hidden});
    steps.run_layer(0);
    const TensorView results = rows(results_, n, d_model_, nodes.front().row);
    rms_norm(exec(),
             {.x = hidden, .weight = head_->model().weights().output_norm, .y = results, .eps = config.rms_eps});
    const LogitRows logits = logit_tokens.empty() ? LogitRows() : compute_logits(results, logit_tokens, needs);
    steps.complete();
    exec().stream.synchronize();
    return logits;
}

LogitRows HeadPass::compute_logits(const TensorView& results, std::span<const std::int32_t> logit_tokens,
                                   const LogitRequest& needs) {
    const std::int64_t n = std::ssize(logit_tokens);
    const ModelConfig& config = head_->model().config();
    // The rows of a tree are one run, which the product reads where it is.
    TensorView selected = rows(selected_, n, d_model_);
    for_each_run(
        logit_tokens, [](std::int32_t token) { return std::int64_t{token}; },
        [&](std::int64_t begin, std::int64_t n_rows) {
            const std::int64_t token = logit_tokens[begin];
            CHECK(token >= 0 && token + n_rows <= results.rows(), "logits of token {} of {}", token, results.rows());
            if (n_rows == n)
                selected = matrix_view(reinterpret_cast<float*>(results.row(token)), n, d_model_);
            else
                exec().stream.copy(selected.row(begin), results.row(token),
                                   static_cast<std::size_t>(n_rows) * selected.row_stride_bytes);
        });
    const TensorView logits = rows(logits_, n, config.vocab);
    products_.clear();
    for (const MatrixPart& part : head_->lm_head())
        products_.push_back(
            {.weights = part.packed, .x = selected, .y = matrix_columns(logits, part.first_row, part.packed.shape[0])});
    matmuls(exec(), products_);
    if (config.logit_softcap > 0.0F) softcap(exec(), {.y = logits, .cap = config.logit_softcap});
    if (remote_ == nullptr) return LogitRows(ConstTensorView(logits));
    remote_->enqueue_top(exec(), logits, needs, std::span(row_positions_).first(static_cast<std::size_t>(n)),
                         selected_.data());
    return {*remote_, n, config.vocab};
}

}  // namespace slipstream
