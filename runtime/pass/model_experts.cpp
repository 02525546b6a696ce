// ModelPass: the second half of a layer that has experts.
//
// Rows (token, expert) are computed in waves: as many consecutive experts as the memory for their rows holds, in
// ascending order. In a wave, the experts on the device (resident, or in slots from earlier passes) are computed
// together first, while others are copied; then those that stay in host memory, from there; then each copied one as it
// arrives. Only experts that a token chose are read. After each wave its results are added to the sums of their tokens,
// so a token's sum has one order whatever the waves are and whatever streams: from 0 in ascending experts, then the
// shared expert. A layer may norm the inputs of router, shared expert and experts apart, both results, and their sum
// (Gemma 4).
#include <chrono>

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
// `role`. Before Gate, only a norm that the experts have for themselves gives such a row: one that the router reads,
// too, has no finite logit, and choose() has refused it. `positions`: of each token of the pass.
[[noreturn]] void refuse_expert_row(const ExpertRows& rows, TensorRole role, std::int64_t row,
                                    const std::vector<std::int32_t>& positions) {
    const std::int32_t position = positions[rows.tokens()[row]];
    if (role != TensorRole::Down) refuse_numbers("the norm before the experts", "numbers", position);
    std::int32_t expert = 0;
    while (rows.first_row(expert + 1) <= row) ++expert;
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
    CHECK(collective_ == nullptr, "a part of a mixture");
    const bool has_router_norm = !weights[RouterNorm].empty();
    norm(layer, hidden, weights[has_router_norm ? RouterNorm : FfnNorm], normed);
    choose(layer, rows, normed);
    need_experts(layer, rows);  // before the shared expert, which is computed while they are copied
    if (has_router_norm) norm(layer, hidden, weights[FfnNorm], normed);
    const bool is_gated = !weights[SharedGate].empty();
    if (is_gated) weigh_shared(layer, rows, normed);
    const TensorView shared = activations_.rows(Activation::Shared, rows.n(), config.d_model);
    if (feed_forward.d_ff > 0) {
        gate_and_up(layer, rows, normed);
        const Product down{Down, shared};
        multiply(layer, rows, activations_.rows(Activation::Gate, rows.n(), feed_forward.d_ff), {&down, 1});
        post_norm(layer, shared, weights[SharedPostNorm]);
    }
    if (!weights[ExpertsNorm].empty()) norm(layer, hidden, weights[ExpertsNorm], normed);
    compute_experts(layer, rows, normed, sums);
    post_norm(layer, sums, weights[ExpertsPostNorm]);
    if (feed_forward.d_ff > 0)
        stage(
            PassStage::Sum, layer, rows.n(), [&] { return 2 * rows_bytes(sums); },
            [&] {
                if (is_gated)
                    combine_experts(exec(), {.rows = shared,
                                             .tokens = expert_rows_.places().data(),
                                             .weights = expert_rows_.chosen_weights(),
                                             .sums = sums});
                else
                    add(exec(), {.x = shared, .y = sums});
            });
    post_norm(layer, sums, weights[FfnPostNorm]);
    stage(
        PassStage::Sum, layer, rows.n(), [&] { return 2 * rows_bytes(hidden); },
        [&] { add(exec(), {.x = sums, .y = hidden, .scale = config.residual_scale, .factor = weights[OutputScale]}); });
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
                                    .scales = weights[TensorRole::ExpertScales],
                                    .n_chosen = experts.n_chosen,
                                    .weighting = experts.weighting,
                                    .ids = expert_rows_.chosen(),
                                    .weights = expert_rows_.chosen_weights()});
            damaged = expert_rows_.sort(experts, rows.n());
        });
    if (damaged >= 0) refuse_damaged("the router", damaged);
    if (choices_ != nullptr) choices_->note(layer, rows.nodes, expert_rows_.chosen());
}

// Counts the experts in expert_rows_, notes which are on the device, and announces the others.
void ModelPass::need_experts(std::int64_t layer, const PassRows& rows) {
    counted_ = rows.phase == Phase::Decode ? &expert_figures_[layer] : nullptr;
    needed_items_.clear();
    const auto n_experts = static_cast<std::int32_t>(model_->config().experts(layer).n_experts);
    std::int64_t n_distinct = 0;
    for (std::int32_t expert = 0; expert < n_experts; ++expert) {
        if (expert_rows_.n_rows(expert) == 0) continue;
        ++n_distinct;
        const std::int32_t item = model_->expert_item(layer, expert);
        const bool is_there = !model_->streams(item) || weights_->holds_item(item);
        expert_places_[expert] = ExpertPlace::Device;
        if (!is_there) needed_items_.push_back({.item = item});
        if (counted_ != nullptr) counted_->hits += is_there ? 1 : 0;
    }
    if (counted_ != nullptr) {
        counted_->needed += static_cast<std::uint64_t>(n_distinct);
        counted_->distinct.add(rows.n(), n_distinct);
    }
    if (needed_items_.empty()) return;
    const PassChoices choices{choices_, choices_ != nullptr ? rows.nodes : std::span<const NodeId>{}};
    const std::int64_t n_evicted = weights_->need_items(needed_items_, choices, *stream_);
    if (counted_ != nullptr) counted_->evicted += static_cast<std::uint64_t>(n_evicted);
    for (const ItemNeed& need : needed_items_) {
        const auto expert = static_cast<std::size_t>(model_->items()[need.item].expert);
        expert_places_[expert] = need.is_copied ? ExpertPlace::Copied : ExpertPlace::Host;
        if (counted_ != nullptr && !need.is_copied) ++counted_->cpu;
    }
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
        while (end < n_experts && expert_rows_.first_row(end + 1) - expert_rows_.first_row(expert) <= most_rows) ++end;
        compute_wave(layer, rows, expert, end, normed, sums, from_zero);
        if (expert_rows_.first_row(end) > 0) from_zero = false;
        expert = end;
    }
}

// Computes experts [first_expert, end_expert).
void ModelPass::compute_wave(std::int64_t layer, const PassRows& rows, std::int32_t first_expert,
                             std::int32_t end_expert, const TensorView& normed, const TensorView& sums,
                             bool from_zero) {
    const ModelConfig& config = model_->config();
    const std::int64_t d_ff = config.layers[layer].feed_forward.experts.d_ff;
    const std::int64_t first = expert_rows_.first_row(first_expert);
    const std::int64_t n = expert_rows_.first_row(end_expert) - first;
    if (n == 0) return;
    const ExpertWave wave{first, activations_.rows(Activation::ExpertRows, n, config.d_model),
                          activations_.rows(Activation::ExpertGate, n, d_ff),
                          activations_.rows(Activation::ExpertUp, n, d_ff)};
    const auto from = static_cast<std::size_t>(first);
    const auto count = static_cast<std::size_t>(n);
    stage(
        PassStage::Sum, layer, n, [&] { return rows_bytes(wave.inputs); },
        [&] {
            move_rows(exec(), {.src = normed.data,
                               .dst = wave.inputs.data,
                               .n_planes = 1,
                               .row_bytes = normed.row_stride_bytes,
                               .src_rows = expert_rows_.tokens().subspan(from, count).data(),
                               .dst_rows = expert_rows_.places().data(),
                               .n_rows = n});
        });
    const auto is_at = [&](std::int32_t expert, ExpertPlace place) {
        return expert_rows_.n_rows(expert) > 0 && expert_places_[expert] == place;
    };
    for (const ExpertPlace place : {ExpertPlace::Device, ExpertPlace::Host}) {
        expert_group_.clear();
        for (std::int32_t expert = first_expert; expert < end_expert; ++expert)
            if (is_at(expert, place)) expert_group_.push_back(expert);
        if (!expert_group_.empty()) compute_group(layer, rows, wave, expert_group_);
    }
    for (std::int32_t expert = first_expert; expert < end_expert; ++expert)
        if (is_at(expert, ExpertPlace::Copied)) compute_group(layer, rows, wave, {&expert, 1});
    stage(
        PassStage::Sum, layer, n, [&] { return rows_bytes(wave.inputs) + rows_bytes(sums); },
        [&] {
            combine_experts(exec(), {.rows = wave.inputs,
                                     .tokens = expert_rows_.tokens().subspan(from, count).data(),
                                     .weights = expert_rows_.weights().subspan(from, count).data(),
                                     .sums = sums,
                                     .from_zero = from_zero});
        });
}

// Computes the rows of `experts`, all of the wave and ascending, together.
void ModelPass::compute_group(std::int64_t layer, const PassRows& rows, const ExpertWave& wave,
                              std::span<const std::int32_t> experts) {
    using enum TensorRole;
    const LayerWeights& weights = model_->weights().layers[layer];
    const Product products[] = {{Gate, wave.gate, weights[GateBias]}, {Up, wave.up, weights[UpBias]}};
    multiply_experts(layer, wave.first, experts, wave.inputs, products);
    stage(
        PassStage::Activation, layer, rows_of(experts),
        [&] { return 2 * rows_bytes(wave.gate.slice_rows(0, rows_of(experts))); },
        [&] { activate_group(layer, rows, wave, experts); });
    // Down reads `gate` and writes to `inputs`: Gate and Up have read the rows there, and no product needs them any
    // more.
    const Product down{Down, wave.inputs, weights[DownBias]};
    multiply_experts(layer, wave.first, experts, wave.gate, {&down, 1});
}

// Computes the activation of each run of neighbouring rows of the group. The layout for the next product is asked for
// only if there is one run, since a device keeps that of the last output alone.
void ModelPass::activate_group(std::int64_t layer, const PassRows& rows, const ExpertWave& wave,
                               std::span<const std::int32_t> experts) {
    const FeedForwardConfig& feed_forward = model_->config().layers[layer].feed_forward;
    const std::int64_t begin_of_all = expert_rows_.first_row(experts.front());
    const bool is_one_run = expert_rows_.first_row(experts.back() + 1) - begin_of_all == rows_of(experts);
    const NextWeights next = is_one_run ? next_weights(layer, rows, {TensorRole::Down}, experts) : NextWeights{};
    for (std::size_t i = 0; i < experts.size();) {
        const std::int64_t begin = expert_rows_.first_row(experts[i]);
        std::int64_t end = begin;
        for (; i < experts.size() && expert_rows_.first_row(experts[i]) == end; ++i)
            end += expert_rows_.n_rows(experts[i]);
        const TensorView gate = wave.gate.slice_rows(begin - wave.first, end - begin);
        gated_activation(exec(), {.gate = gate,
                                  .up = wave.up.slice_rows(begin - wave.first, end - begin),
                                  .y = gate,
                                  .kind = feed_forward.activation,
                                  .limit = feed_forward.activation_limit,
                                  .next = next});
    }
}

std::int64_t ModelPass::rows_of(std::span<const std::int32_t> experts) const {
    std::int64_t n = 0;
    for (const std::int32_t expert : experts) n += expert_rows_.n_rows(expert);
    return n;
}

// Multiplies the rows of `experts`. Row 0 of x and of the results is row `first_row` of expert_rows_.
void ModelPass::multiply_experts(std::int64_t layer, std::int64_t first_row, std::span<const std::int32_t> experts,
                                 const ConstTensorView& x, std::span<const Product> products) {
    stage(
        product_stage(products.front().role), layer, rows_of(experts),
        [&] {
            std::size_t bytes = 0;
            for (const std::int32_t expert : experts) bytes += weight_bytes(layer, products, expert);
            return bytes;
        },
        [&] { multiply_expert_parts(layer, first_row, experts, x, products); });
}

// Multiplies the rows of each expert by its matrices. Parts that are on the device at the same time go to the kernel
// together; an item that is copied is computed with, and released, where its last part ends.
void ModelPass::multiply_expert_parts(std::int64_t layer, std::int64_t first_row, std::span<const std::int32_t> experts,
                                      const ConstTensorView& x, std::span<const Product> products) {
    expert_products_.clear();  // of a pass that has failed here
    const auto compute = [&] {
        try {
            grouped_matmul(exec(), expert_products_);
        } catch (const NonFiniteRow& damaged) {
            const auto bytes = expert_products_[damaged.product()].x.data - x.data;
            refuse_expert_row(expert_rows_, products.front().role,
                              first_row + bytes / static_cast<std::int64_t>(x.row_stride_bytes) + damaged.row(),
                              paths_.positions());
        }
        expert_products_.clear();
    };
    for (const std::int32_t expert : experts) {
        const std::int64_t begin = expert_rows_.first_row(expert) - first_row;
        const std::int64_t n = expert_rows_.n_rows(expert);
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
                const ExpertPlace place = expert_places_[expert];
                if (place == ExpertPlace::Copied)
                    args.weights.data = acquire_expert(layer, part);
                else if (place == ExpertPlace::Device && model_->streams(part.item))
                    args.weights.data = weights_->acquire_item(part.item, *stream_) + part.offset;
                const bool ends = place == ExpertPlace::Copied && part.ends_item;
                if (ends || expert_products_.size() == expert_products_.capacity()) compute();
                if (ends) release_expert(part.item);
            }
        }
    }
    if (!expert_products_.empty()) compute();
}

const std::byte* ModelPass::acquire_expert(std::int64_t layer, const MatrixPart& part) {
    const auto began = std::chrono::steady_clock::now();
    const std::byte* data = acquire_part(layer, part);
    if (counted_ != nullptr)
        counted_->wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return data;
}

void ModelPass::release_expert(std::int32_t item) {
    weights_->release_item(item, *stream_);
    if (counted_ != nullptr) counted_->copied_bytes += model_->items()[item].bytes;
}

}  // namespace slipstream
