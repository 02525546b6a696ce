#include "runtime/formats/weight_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/formats/gguf_types.h"

namespace slipstream {

namespace {

// Returns elements [begin, begin + count) of a vector.
ConstTensorView slice_vector(ConstTensorView vector, std::int64_t begin, std::int64_t count) {
    return vector_view(vector.data + row_bytes(vector.dtype, begin), vector.dtype, count);
}

// Returns whether layers with attention can have tensors of a role and those with a delta net cannot, or the reverse.
bool is_of_one_half(TensorRole role) {
    return can_have({.mixer = AttentionConfig{}}, role) != can_have({.mixer = DeltaNetConfig{}}, role);
}

class Binder {
public:
    Binder(const ModelConfig& config, const TensorIndex& tensors, const TensorNames& names, const BindingRules& rules)
        : config_(config), tensors_(tensors), names_(names), rules_(rules) {}

    ModelWeights run() const {
        ModelWeights weights;
        for (const TensorInfo& info : kModelTensors) {
            if (names_[info.role].empty()) continue;
            const bool tied = info.role == TensorRole::LmHead && config_.tied_embeddings;
            weights.tensor(0, info.role) = tied ? weights.token_embedding : find(name_of(info.role), info, 0);
        }
        for (const TensorInfo& info : kModelTensors) refuse_bias(names_[info.role], "");
        weights.layers.reserve(config_.layers.size());
        for (std::int64_t i = 0; i < config_.n_layers(); ++i) weights.layers.push_back(layer(i));
        bind_constants(weights);
        return weights;
    }

private:
    [[nodiscard]] std::string name_of(TensorRole role) const { return std::string(names_[role]); }
    [[nodiscard]] bool has(const std::string& name) const { return tensors_.find(name) != nullptr; }

    // Returns the view of a tensor of a supported type with this shape: [rows, cols], or [cols] if `rows` is 0.
    [[nodiscard]] ConstTensorView find(const std::string& name, std::int64_t rows, std::int64_t cols) const {
        std::vector<std::int64_t> shape{cols};
        if (rows > 0) shape.insert(shape.begin(), rows);
        const ConstTensorView view = find(name, shape);
        if (rows == 0) require_floats(name, view);
        return view;
    }
    [[nodiscard]] ConstTensorView find(const std::string& name, const std::vector<std::int64_t>& shape) const {
        const FileTensor* tensor = tensors_.find(name);
        if (tensor == nullptr) throw FormatError(fmt::format("tensor {} {} is missing", name, shape_text(shape)));
        if (tensor->shape != shape)
            throw FormatError(fmt::format("tensor {} has shape {}, the configuration asks for {}", name,
                                          shape_text(tensor->shape), shape_text(shape)));
        if (tensor->view.empty())
            throw Unsupported(fmt::format(
                "tensor {} has type {}, which is not served (served: {}); use a file of the same model of the kind {}",
                name, tensor->type_name, served_type_names(), served_file_kinds()));
        return tensor->view;
    }
    [[nodiscard]] ConstTensorView find(const std::string& name, const TensorInfo& info, std::int64_t layer) const {
        const std::int64_t rows = info.is_vector() ? 0 : dim_size(info.rows, config_, layer);
        const std::int64_t cols = dim_size(info.cols, config_, layer);
        // A convolution may be [rows, 1, cols], a matrix of one row [cols].
        std::vector<std::int64_t> other;
        if (info.kind == TensorKind::Taps) other = {rows, 1, cols};
        if (info.rows == TensorDim::Single) other = {cols};
        const FileTensor* tensor = tensors_.find(name);
        const bool has_other = tensor != nullptr && !other.empty() && tensor->shape == other;
        ConstTensorView view = has_other ? find(name, other) : find(name, rows, cols);
        if (has_other) view = matrix_view(view.data, view.dtype, rows, cols);
        if (!info.is_matrix()) require_floats(name, view);
        return view;
    }
    static void require_floats(const std::string& name, const ConstTensorView& view) {
        if (is_quantized(view.dtype))
            throw Unsupported(fmt::format(
                "tensor {} has type {}; norms, biases, scales, routers and convolutions are served in F32, F16 and "
                "BF16",
                name, dtype_name(view.dtype)));
    }

    // Returns a matrix of each expert of a layer, [n_experts].
    [[nodiscard]] std::vector<ConstTensorView> find_experts(const std::string& prefix, const ExpertNames& names,
                                                            const TensorInfo& info, std::int64_t layer) const {
        const std::int64_t n_experts = config_.experts(layer).n_experts;
        const std::int64_t rows = dim_size(info.rows, config_, layer);
        const std::int64_t cols = dim_size(info.cols, config_, layer);
        std::vector<ConstTensorView> views;
        const std::string stacked = fmt::format("{}{}", prefix, names.stacked);
        const auto own = [&](std::int64_t expert) {
            return fmt::format("{}{}{}{}", prefix, names.before, expert, names.after);
        };
        if (!names.stacked.empty() && (has(stacked) || !has(own(0)))) {
            const ConstTensorView all = find(stacked, {n_experts, rows, cols});
            for (std::int64_t expert = 0; expert < n_experts; ++expert)
                views.push_back(matrix_view(all.data + expert * rows * all.row_stride_bytes, all.dtype, rows, cols));
            return views;
        }
        for (std::int64_t expert = 0; expert < n_experts; ++expert) views.push_back(find(own(expert), rows, cols));
        if (has(own(n_experts)))
            throw FormatError(fmt::format("tensor {} is there, but the configuration says that a layer has {} experts",
                                          own(n_experts), n_experts));
        return views;
    }

    // Cuts the tensor of all experts' gate and up matrices if the file has it, or must have it because the format has
    // no other one. Returns whether it does.
    bool bind_stacked_gate_up(LayerWeights& layer, const std::string& prefix, std::int64_t index) const {
        const std::string name = fmt::format("{}{}", prefix, names_.experts_gate_up);
        const ExpertNames& gate = names_.experts[expert_tensor(TensorRole::Gate)];
        const bool has_other_names = !gate.before.empty() || !gate.stacked.empty();
        if (names_.experts_gate_up.empty() || (has_other_names && !has(name))) return false;
        const ExpertsConfig& experts = config_.experts(index);
        const ConstTensorView all = find(name, {experts.n_experts, 2 * experts.d_ff, config_.d_model});
        const std::byte* at = all.data;
        for (ExpertWeights& expert : layer.experts)
            for (const TensorRole role : {TensorRole::Gate, TensorRole::Up}) {
                expert[role] = matrix_view(at, all.dtype, experts.d_ff, config_.d_model);
                at += experts.d_ff * all.row_stride_bytes;
            }
        return true;
    }

    // Returns the bytes of a tensor of U8 with this shape.
    [[nodiscard]] const std::byte* find_bytes(const std::string& name, const std::vector<std::int64_t>& shape) const {
        const FileTensor* tensor = tensors_.find(name);
        if (tensor == nullptr) throw FormatError(fmt::format("tensor {} {} is missing", name, shape_text(shape)));
        if (tensor->shape != shape || tensor->type_name != "U8")
            throw FormatError(fmt::format("tensor {} has shape {} of {}, the configuration asks for {} of U8", name,
                                          shape_text(tensor->shape), tensor->type_name, shape_text(shape)));
        return tensor->data;
    }

    // The matrices [rows, cols] of all experts in a fused tensor.
    struct FusedMatrix {
        StoredMatrix first;  // of expert 0
        DType type = DType::F32;
        std::size_t expert_step = 0;        // bytes
        std::size_t expert_scale_step = 0;  // bytes
    };
    [[nodiscard]] FusedMatrix find_fused(const std::string& name, std::int64_t n_experts, std::int64_t rows,
                                         std::int64_t cols) const {
        const std::string blocks = name + "_blocks";
        const std::string scales = name + "_scales";
        if (!has(blocks) && !has(scales)) {
            const ConstTensorView view = find(name, {n_experts, cols, rows});
            require_floats(name, view);
            const std::size_t element = row_bytes(view.dtype, 1);
            return {.first = {.data = view.data, .row_step = element, .col_step = view.row_stride_bytes},
                    .type = view.dtype,
                    .expert_step = static_cast<std::size_t>(cols) * view.row_stride_bytes};
        }
        constexpr std::int64_t kBlock = 32;
        constexpr std::int64_t kCodeBytes = 16;
        if (cols % kBlock != 0)
            throw FormatError(
                fmt::format("tensor {} is in blocks of {} elements, and its rows have {}", blocks, kBlock, cols));
        const std::int64_t n_blocks = cols / kBlock;
        return {.first = {.data = find_bytes(blocks, {n_experts, rows, n_blocks, kCodeBytes}),
                          .row_step = static_cast<std::size_t>(n_blocks * kCodeBytes),
                          .scales = find_bytes(scales, {n_experts, rows, n_blocks}),
                          .scale_row_step = static_cast<std::size_t>(n_blocks)},
                .type = DType::MXFP4,
                .expert_step = static_cast<std::size_t>(rows * n_blocks * kCodeBytes),
                .expert_scale_step = static_cast<std::size_t>(rows * n_blocks)};
    }

    // Binds every `step`-th row from `first_row` on of the experts of a fused tensor as the matrices of a role.
    void bind_fused(LayerWeights& layer, TensorRole role, const FusedMatrix& fused, std::int64_t first_row,
                    std::int64_t step, std::int64_t rows, std::int64_t cols) const {
        for (std::size_t i = 0; i < layer.experts.size(); ++i) {
            StoredMatrix stored = fused.first;
            stored.data += i * fused.expert_step + static_cast<std::size_t>(first_row) * stored.row_step;
            stored.row_step *= static_cast<std::size_t>(step);
            if (stored.scales != nullptr) {
                stored.scales +=
                    i * fused.expert_scale_step + static_cast<std::size_t>(first_row) * stored.scale_row_step;
                stored.scale_row_step *= static_cast<std::size_t>(step);
            }
            layer.experts[i].stored[expert_tensor(role)] = stored;
            layer.experts[i][role] = matrix_view<const std::byte>(nullptr, fused.type, rows, cols);
        }
    }

    void bind_fused_experts(LayerWeights& layer, const std::string& prefix, std::int64_t index) const {
        using enum TensorRole;
        const FusedExpertNames& names = names_.fused_experts;
        const ExpertsConfig& experts = config_.experts(index);
        const std::int64_t d = config_.d_model;
        layer.experts.resize(static_cast<std::size_t>(experts.n_experts));
        const FusedMatrix gate_up =
            find_fused(fmt::format("{}{}", prefix, names.gate_up), experts.n_experts, 2 * experts.d_ff, d);
        bind_fused(layer, Gate, gate_up, 0, 2, experts.d_ff, d);
        bind_fused(layer, Up, gate_up, 1, 2, experts.d_ff, d);
        const FusedMatrix down =
            find_fused(fmt::format("{}{}", prefix, names.down), experts.n_experts, d, experts.d_ff);
        bind_fused(layer, Down, down, 0, 1, d, experts.d_ff);
        const std::string bias_name = fmt::format("{}{}", prefix, names.gate_up_bias);
        const ConstTensorView bias = find(bias_name, experts.n_experts, 2 * experts.d_ff);
        require_floats(bias_name, bias);
        const std::size_t element = row_bytes(bias.dtype, 1);
        layer.stored_gate_bias = {.data = bias.data, .row_step = bias.row_stride_bytes, .col_step = 2 * element};
        layer.stored_up_bias = layer.stored_gate_bias;
        layer.stored_up_bias.data += element;
        layer[GateBias] = layer[UpBias] =
            matrix_view<const std::byte>(nullptr, bias.dtype, experts.n_experts, experts.d_ff);
    }

    void bind_experts(LayerWeights& layer, const std::string& prefix, std::int64_t index) const {
        if (!names_.fused_experts.gate_up.empty()) return bind_fused_experts(layer, prefix, index);
        layer.experts.resize(config_.experts(index).n_experts);
        refuse_bias(names_.experts_gate_up, prefix);
        const bool gate_up_fused = bind_stacked_gate_up(layer, prefix, index);
        for (const TensorInfo& info : kExpertTensors) {
            const ExpertNames& names = names_.experts[expert_tensor(info.role)];
            refuse_bias(names.stacked, prefix);
            for (std::size_t expert = 0; expert < layer.experts.size(); ++expert)
                refuse_bias(fmt::format("{}{}{}", names.before, expert, names.after), prefix);
            if (gate_up_fused && info.role != TensorRole::Down) continue;
            const std::vector<ConstTensorView> views = find_experts(prefix, names, info, index);
            for (std::size_t expert = 0; expert < views.size(); ++expert)
                layer.experts[expert][info.role] = views[expert];
        }
    }

    // Returns the name of a tensor inside a layer; empty if the layer does not have it.
    [[nodiscard]] std::string_view name_in(std::int64_t layer, TensorRole role) const {
        const FeedForwardConfig& feed_forward = config_.layers[layer].feed_forward;
        const bool mixes = !feed_forward.experts.empty();
        if (!can_have(config_.layers[layer], role)) return "";
        if (role == TensorRole::DeltaIn && config_.layers[layer].delta_net().gate_in_inputs)
            return names_.delta_in_with_gate;
        if (role != TensorRole::Gate && role != TensorRole::Up && role != TensorRole::Down) return names_[role];
        if (feed_forward.d_ff == 0) return "";
        return mixes ? names_.shared_expert[expert_tensor(role)] : names_[role];
    }

    // Gives each norm of `rules_.constants` a vector of its value, in memory that the weights own.
    void bind_constants(ModelWeights& weights) const {
        auto memory = std::make_shared<std::vector<std::vector<float>>>();
        const auto bind = [&](const TensorInfo& info, std::int64_t layer) {
            const std::optional<float>& value = rules_.constants[info.role];
            if (!value) return;
            const std::int64_t n = dim_size(info.cols, config_, layer);
            const std::vector<float>& values = memory->emplace_back(static_cast<std::size_t>(n), *value);
            weights.tensor(layer, info.role) =
                vector_view(reinterpret_cast<const std::byte*>(values.data()), DType::F32, n);
        };
        for (const TensorInfo& info : kModelTensors) bind(info, 0);
        for (std::int64_t layer = 0; layer < config_.n_layers(); ++layer)
            for (const TensorInfo& info : kLayerTensors) bind(info, layer);
        if (!memory->empty()) weights.constants = std::move(memory);
    }

    // Throws if the file has the tensor `full_name`, but `name`, its name inside a layer, has no role in the family.
    void refuse(std::string_view name, const std::string& full_name) const {
        const auto is_read = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
        if (has(full_name) && !is_read(names_.names) && !is_read(names_.shared_expert))
            throw Unsupported(fmt::format("tensor {}: a model with this part is not served", full_name));
    }

    // Throws if the tensor "X.weight" of the family has a bias "X.bias" in the file that has no role in the family.
    void refuse_bias(std::string_view weight, const std::string& prefix) const {
        constexpr std::string_view kWeight = ".weight";
        if (!weight.ends_with(kWeight)) return;
        const std::string bias = fmt::format("{}.bias", weight.substr(0, weight.size() - kWeight.size()));
        refuse(bias, prefix + bias);
    }

    // Throws if the file has a tensor for the layer that only another kind of first half has.
    void refuse_other_half(const std::string& prefix, std::int64_t index) const {
        const LayerConfig& layer = config_.layers[index];
        for (const TensorInfo& info : kLayerTensors) {
            const std::string_view name = names_[info.role];
            const bool has_other_use = name == fmt::format("{}.weight", names_.qkv) && layer.has_attention();
            if (!is_of_one_half(info.role) || name.empty() || can_have(layer, info.role) || has_other_use ||
                !has(fmt::format("{}{}", prefix, name)))
                continue;
            throw FormatError(fmt::format("tensor {}{} is there, but the configuration says that the layer has {}",
                                          prefix, name, layer.has_attention() ? "attention" : "a delta net"));
        }
    }

    // Returns whether the bias `name` must be bound: if the file has it, or `rule` requires it. Throws if it is there
    // but forbidden.
    [[nodiscard]] bool is_wanted(const std::string& name, BiasRule rule) const {
        const bool present = has(name);
        if (present && rule == BiasRule::Forbidden)
            throw FormatError(
                fmt::format("tensor {} is there, but the configuration says that there is no such bias", name));
        return present || rule == BiasRule::Required;
    }

    // Cuts the fused projection into q, k and v if the file has it. Returns whether it does.
    bool bind_fused_qkv(LayerWeights& layer, const std::string& prefix, std::int64_t index) const {
        const std::string stem = fmt::format("{}{}", prefix, names_.qkv);
        if (!config_.layers[index].has_attention() || !has(stem + ".weight") || has(prefix + name_of(TensorRole::Q)))
            return false;
        const std::int64_t q = dim_size(TensorDim::QRows, config_, index);
        const std::int64_t kv = config_.attention(index).kv_cols();
        const bool has_values = !config_.attention(index).values_from_keys;
        const std::int64_t rows = q + (has_values ? 2 : 1) * kv;
        const ConstTensorView matrix = find(stem + ".weight", rows, config_.d_model);
        layer[TensorRole::Q] = matrix.slice_rows(0, q);
        layer[TensorRole::K] = matrix.slice_rows(q, kv);
        if (has_values) layer[TensorRole::V] = matrix.slice_rows(q + kv, kv);
        if (!is_wanted(stem + ".bias", rules_.qkv_bias)) return true;
        const ConstTensorView bias = find(stem + ".bias", 0, rows);
        layer[TensorRole::QBias] = slice_vector(bias, 0, q);
        layer[TensorRole::KBias] = slice_vector(bias, q, kv);
        if (has_values) layer[TensorRole::VBias] = slice_vector(bias, q + kv, kv);
        return true;
    }

    bool bind_fused_gate_up(LayerWeights& layer, const std::string& prefix, std::int64_t index) const {
        const std::string name = fmt::format("{}{}.weight", prefix, names_.gate_up);
        if (!config_.experts(index).empty() || !has(name) || has(prefix + name_of(TensorRole::Gate))) return false;
        const std::int64_t d_ff = config_.layers[index].feed_forward.d_ff;
        const ConstTensorView matrix = find(name, 2 * d_ff, config_.d_model);
        layer[TensorRole::Gate] = matrix.slice_rows(0, d_ff);
        layer[TensorRole::Up] = matrix.slice_rows(d_ff, d_ff);
        return true;
    }

    [[nodiscard]] LayerWeights layer(std::int64_t index) const {
        using enum TensorRole;
        const std::string prefix = fmt::format("{}{}.", names_.layer_prefix, names_.first_layer + index);
        for (const std::string_view foreign : names_.foreign_in_layer)
            refuse(foreign, fmt::format("{}{}", prefix, foreign));
        for (const TensorInfo& info : kLayerTensors) refuse_bias(names_[info.role], prefix);
        refuse(fmt::format("{}.bias", names_.gate_up), fmt::format("{}{}.bias", prefix, names_.gate_up));
        refuse_other_half(prefix, index);
        LayerWeights layer;
        const bool qkv_fused = bind_fused_qkv(layer, prefix, index);
        const bool gate_up_fused = bind_fused_gate_up(layer, prefix, index);
        if (!qkv_fused) refuse(fmt::format("{}.bias", names_.qkv), fmt::format("{}{}.bias", prefix, names_.qkv));
        for (const TensorInfo& info : kLayerTensors) {
            const TensorRole role = info.role;
            const bool is_qkv_bias = role == QBias || role == KBias || role == VBias;
            const bool is_cut = (qkv_fused && (role == Q || role == K || role == V || is_qkv_bias)) ||
                                (gate_up_fused && (role == Gate || role == Up));
            if (name_in(index, role).empty() || is_cut) continue;
            const std::string name = fmt::format("{}{}", prefix, name_in(index, role));
            if ((role == V || role == VBias) && config_.attention(index).values_from_keys) {
                if (has(name))
                    throw FormatError(fmt::format(
                        "tensor {} is there, but the configuration says that the layer has no values of its own",
                        name));
                continue;
            }
            // A layer without the tensor has the scale 1.
            if (info.kind == TensorKind::Scale && !has(name)) continue;
            if (is_qkv_bias && !is_wanted(name, rules_.qkv_bias)) continue;
            if (role == AttnOutBias && !is_wanted(name, rules_.out_bias)) continue;
            layer[role] = find(name, info, index);
        }
        const std::string router = fmt::format("{}{}", prefix, names_[Router]);
        if (!config_.experts(index).empty()) {
            bind_experts(layer, prefix, index);
        } else if (!names_[Router].empty() && has(router)) {
            throw FormatError(
                fmt::format("tensor {} is there, but the configuration says that the layer has no experts", router));
        }
        return layer;
    }

    const ModelConfig& config_;
    const TensorIndex& tensors_;
    const TensorNames& names_;
    const BindingRules& rules_;
};

}  // namespace

ModelWeights bind_weights(const ModelConfig& config, const TensorIndex& tensors, const TensorNames& names,
                          const BindingRules& rules) {
    return Binder(config, tensors, names, rules).run();
}

}  // namespace slipstream
