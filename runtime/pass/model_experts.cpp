// ModelPass: the second half of a layer that has experts.
//
// Rows (token, expert) are computed in waves: as many consecutive experts as the memory for their rows holds, in
// ascending order. After each wave its results are added to the sums of their tokens, so a token's sum has one order
// whatever the waves are: from 0 in ascending experts, then the shared expert. An expert that streams is a wave of its
// own, and its items are acquired and released in reading order even if no token chose it.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/experts.h"
#include "kernels/move_rows.h"
#include "kernels/nonfinite_row.h"
#include "runtime/pass/model_pass.h"

namespace slipstream {

namespace {

[[noreturn]] void refuse_numbers(std::string_view what, std::string_view numbers, std::int64_t position) {
    throw FormatError(
        fmt::format("{} gives the token at position {} {} that are not finite; the model's weights are damaged, or "
                    "their numbers overflow",
                    what, position, numbers));
}

// Throws the error of row `row` of a layer's experts, whose numbers are not finite before its product with the matrix
// `role`. `positions`: of each token of the pass.
[[noreturn]] void refuse_expert_row(const ExpertRows& rows, TensorRole role, std::int64_t row,
                                    const std::vector<std::int32_t>& positions) {
    std::int32_t expert = 0;
    while (rows.first_row(expert + 1) <= row) ++expert;
    const std::int32_t position = positions[rows.tokens()[static_cast<std::size_t>(row)]];
    if (role != TensorRole::Down) refuse_numbers("the norm before the experts", "numbers", position);
    refuse_numbers(fmt::format("the activation of expert {}", expert), "numbers", position);
}

}  // namespace

void ModelPass::mixture(std::int64_t layer, const PassRows& rows) {
    using enum TensorRole;
    const ModelConfig& config = model_->config();
    const FeedForwardConfig& feed_forward = config.layers[layer].feed_forward;
    const LayerWeights& weights = model_->weights().layers[layer];
    const TensorView hidden = activations_.hidden(rows.n());
    const TensorView normed = activations_.rows(Activation::Normed, rows.n(), config.d_model);
    const TensorView sums = activations_.rows(Activation::Experts, rows.n(), config.d_model);
    CHECK(collective_ == nullptr && weights[FfnPostNorm].empty(), "a part or a norm that mixtures do not have");
    norm(layer, hidden, weights[FfnNorm], normed);
    choose(layer, rows, normed);
    const bool is_gated = !weights[SharedGate].empty();
    if (is_gated) weigh_shared(layer, rows, normed);
    const TensorView shared = activations_.rows(Activation::Shared, rows.n(), config.d_model);
    if (feed_forward.d_ff > 0) {
        gate_and_up(layer, rows, normed);
        const Product down{Down, shared};
        multiply(layer, rows, activations_.rows(Activation::Gate, rows.n(), feed_forward.d_ff), {&down, 1});
    }
    compute_experts(layer, rows, normed, sums);
    stage(
        PassStage::Sum, layer, rows.n(), [&] { return 2 * rows_bytes(hidden); },
        [&] {
            if (is_gated)
                combine_experts(exec(), {.rows = shared,
                                         .tokens = expert_rows_.places().data(),
                                         .weights = expert_rows_.chosen_weights(),
                                         .sums = sums});
            else if (feed_forward.d_ff > 0)
                add(exec(), {.x = shared, .y = sums});
            add(exec(), {.x = sums, .y = hidden, .scale = config.residual_scale, .factor = weights[OutputScale]});
        });
}

// Computes the sigmoid of each token's product with the gate of the shared expert, to expert_rows_.chosen_weights(), by
// the op that gives this weight to an expert that every token chooses.
void ModelPass::weigh_shared(std::int64_t layer, const PassRows& rows, const ConstTensorView& normed) {
    const ConstTensorView& gate = model_->weights().layers[layer][TensorRole::SharedGate];
    const TensorView logits = activations_.rows(Activation::Router, rows.n(), 1);
    stage(
        PassStage::Router, layer, rows.n(), [&] { return rows_bytes(gate); },
        [&] {
            matmul(exec(), {.weights = gate, .x = normed, .y = logits});
            choose_experts(exec(), {.logits = logits,
                                    .n_chosen = 1,
                                    .weighting = {.score = ExpertScore::Sigmoid, .normalized = false},
                                    .ids = expert_rows_.chosen(),
                                    .weights = expert_rows_.chosen_weights()});
        });
    for (std::int64_t i = 0; i < rows.n(); ++i)
        if (expert_rows_.chosen()[i] < 0) refuse_damaged("the gate of the shared expert", i);
}

// Fills expert_rows_. Throws FormatError if the choice of a token has no finite numbers.
void ModelPass::choose(std::int64_t layer, const PassRows& rows, const ConstTensorView& normed) {
    const ExpertsConfig& experts = model_->config().experts(layer);
    const LayerWeights& weights = model_->weights().layers[layer];
    const TensorView logits = activations_.rows(Activation::Router, rows.n(), experts.n_experts);
    std::int64_t damaged = -1;
    stage(
        PassStage::Router, layer, rows.n(), [&] { return rows_bytes(weights[TensorRole::Router]); },
        [&] {
            matmul(exec(), {.weights = weights[TensorRole::Router],
                            .x = normed,
                            .y = logits,
                            .bias = weights[TensorRole::RouterBias]});
            choose_experts(exec(), {.logits = logits,
                                    .bias = weights[TensorRole::ChoiceBias],
                                    .n_chosen = experts.n_chosen,
                                    .weighting = experts.weighting,
                                    .ids = expert_rows_.chosen(),
                                    .weights = expert_rows_.chosen_weights()});
            damaged = expert_rows_.sort(experts, rows.n());
        });
    if (damaged >= 0) refuse_damaged("the router", damaged);
}

void ModelPass::refuse_damaged(std::string_view what, std::int64_t row) const {
    refuse_numbers(what, "logits", paths_.positions()[row]);
}

void ModelPass::compute_experts(std::int64_t layer, const PassRows& rows, const TensorView& normed,
                                const TensorView& sums) {
    const auto n_experts = static_cast<std::int32_t>(model_->config().experts(layer).n_experts);
    const std::int64_t most_rows = expert_rows(model_->config(), activations_.max_tokens());
    bool from_zero = true;
    for (std::int32_t expert = 0; expert < n_experts;) {
        std::int32_t end = expert + 1;
        if (!model_->expert_streams(layer, expert))
            while (end < n_experts && expert_rows_.first_row(end + 1) - expert_rows_.first_row(expert) <= most_rows &&
                   !model_->expert_streams(layer, end))
                ++end;
        compute_wave(layer, rows, {expert, end}, normed, sums, from_zero);
        if (expert_rows_.first_row(end) > 0) from_zero = false;
        expert = end;
    }
}

void ModelPass::compute_wave(std::int64_t layer, const PassRows& rows, const ExpertRange& experts,
                             const TensorView& normed, const TensorView& sums, bool from_zero) {
    using enum TensorRole;
    const ModelConfig& config = model_->config();
    const FeedForwardConfig& feed_forward = config.layers[layer].feed_forward;
    const std::int64_t first = expert_rows_.first_row(experts.first);
    const std::int64_t n = expert_rows_.first_row(experts.end) - first;
    if (n == 0) return skip_experts(layer, experts);
    const TensorView inputs = activations_.rows(Activation::ExpertRows, n, config.d_model);
    const TensorView gate = activations_.rows(Activation::ExpertGate, n, feed_forward.experts.d_ff);
    const TensorView up = activations_.rows(Activation::ExpertUp, n, feed_forward.experts.d_ff);
    const auto from = static_cast<std::size_t>(first);
    const auto count = static_cast<std::size_t>(n);
    stage(
        PassStage::Sum, layer, n, [&] { return rows_bytes(inputs); },
        [&] {
            move_rows(exec(), {.src = normed.data,
                               .dst = inputs.data,
                               .n_planes = 1,
                               .row_bytes = normed.row_stride_bytes,
                               .src_rows = expert_rows_.tokens().subspan(from, count).data(),
                               .dst_rows = expert_rows_.places().data(),
                               .n_rows = n});
        });
    const LayerWeights& weights = model_->weights().layers[layer];
    const Product products[] = {{Gate, gate, weights[GateBias]}, {Up, up, weights[UpBias]}};
    multiply_experts(layer, experts, inputs, products);
    stage(
        PassStage::Activation, layer, n, [&] { return rows_bytes(gate) + rows_bytes(up); },
        [&] {
            gated_activation(exec(), {.gate = gate,
                                      .up = up,
                                      .y = gate,
                                      .kind = feed_forward.activation,
                                      .limit = feed_forward.activation_limit,
                                      .next = next_weights(layer, rows, {Down}, experts)});
        });
    // Down reads `gate` and writes to `inputs`: Gate and Up have read the rows there, and no product needs them any
    // more.
    const Product down{Down, inputs, weights[DownBias]};
    multiply_experts(layer, experts, gate, {&down, 1});
    stage(
        PassStage::Sum, layer, n, [&] { return rows_bytes(inputs) + rows_bytes(sums); },
        [&] {
            combine_experts(exec(), {.rows = inputs,
                                     .tokens = expert_rows_.tokens().subspan(from, count).data(),
                                     .weights = expert_rows_.weights().subspan(from, count).data(),
                                     .sums = sums,
                                     .from_zero = from_zero});
        });
}

void ModelPass::multiply_experts(std::int64_t layer, const ExpertRange& experts, const ConstTensorView& x,
                                 std::span<const Product> products) {
    stage(
        product_stage(products.front().role), layer, x.rows(),
        [&] {
            std::size_t bytes = 0;
            for (std::int32_t expert = experts.first; expert < experts.end; ++expert)
                if (expert_rows_.n_rows(expert) > 0) bytes += weight_bytes(layer, products, expert);
            return bytes;
        },
        [&] { multiply_expert_parts(layer, experts, x, products); });
}

// Multiplies the rows of each expert by its matrices. Parts that are on the device at the same time go to the kernel
// together; a streamed item is computed with, and released, where its last part ends.
void ModelPass::multiply_expert_parts(std::int64_t layer, const ExpertRange& experts, const ConstTensorView& x,
                                      std::span<const Product> products) {
    const std::int64_t first = expert_rows_.first_row(experts.first);
    expert_products_.clear();  // of a pass that has failed here
    const auto compute = [&] {
        try {
            grouped_matmul(exec(), expert_products_);
        } catch (const NonFiniteRow& damaged) {
            const auto bytes = expert_products_[damaged.product()].x.data - x.data;
            refuse_expert_row(expert_rows_, products.front().role,
                              first + bytes / static_cast<std::int64_t>(x.row_stride_bytes) + damaged.row(),
                              paths_.positions());
        }
        expert_products_.clear();
    };
    for (std::int32_t expert = experts.first; expert < experts.end; ++expert) {
        const std::int64_t begin = expert_rows_.first_row(expert) - first;
        const std::int64_t n = expert_rows_.n_rows(expert);
        if (n == 0) continue;
        for (const Product& product : products) {
            const TensorView y = product.y.slice_rows(begin, n);
            for (const MatrixPart& part : model_->parts(layer, product.role, expert)) {
                MatmulArgs& args = expert_products_.emplace_back();
                args = {.weights = part.packed,
                        .x = x.slice_rows(begin, n),
                        .y = matrix_columns(y, part.first_row, part.packed.shape[0])};
                if (!product.bias.empty())
                    args.bias = vector_view(product.bias.row(expert) + row_bytes(DType::F32, part.first_row),
                                            DType::F32, part.packed.shape[0]);
                const bool streams = model_->streams(part.item);
                if (streams) args.weights.data = acquire_part(layer, part);
                const bool ends = streams && part.ends_item;
                if (ends || expert_products_.size() == expert_products_.capacity()) compute();
                if (ends) weights_->release_item(part.item, *stream_);
            }
        }
    }
    if (!expert_products_.empty()) compute();
}

// Lets the streamed items of experts that no token chose pass.
void ModelPass::skip_experts(std::int64_t layer, const ExpertRange& experts) {
    for (std::int32_t expert = experts.first; expert < experts.end; ++expert)
        for (const TensorInfo& info : kExpertTensors)
            for (const MatrixPart& part : model_->parts(layer, info.role, expert))
                if (model_->streams(part.item) && part.ends_item) {
                    static_cast<void>(acquire_part(layer, part));
                    weights_->release_item(part.item, *stream_);
                }
}

}  // namespace slipstream
