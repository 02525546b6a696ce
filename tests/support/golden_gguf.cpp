// Writes the GGUF form of a golden model: keys, names and row order as in llama.cpp's convert_hf_to_gguf.py.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <utility>

#include "tests/support/gguf_writer.h"
#include "tests/support/golden_model.h"

namespace slipstream {

namespace {

using Json = nlohmann::json;

/// Returns the RoPE parameters with one set of names: rope_theta and the fields of rope_scaling, from either of the two
/// spellings that files use.
Json rope_parameters(const Json& config) {
    Json rope = Json::object();
    for (const char* key : {"rope_scaling", "rope_parameters"})
        if (config.contains(key) && config[key].is_object()) rope.update(config[key]);
    for (const char* key : {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"})
        if (config.contains(key)) rope[key] = config[key];
    if (!rope.contains("rope_type")) rope["rope_type"] = rope.value("type", "default");
    return rope;
}

// Whether the converter permutes the rows of Q and K, so that rotated pairs are adjacent.
bool is_permuted(const std::string& arch) {
    return arch == "llama" || arch == "mistral3" || arch == "smollm3" || arch == "granite" || arch == "muse-glimmer";
}

// Whether layers of the architecture are delta nets or attention with a gate.
bool is_hybrid(const std::string& arch) {
    return arch == "qwen35" || arch == "qwen35moe" || arch == "qwen3next";
}

// Returns the number of the layer of a tensor "model.layers.N. ...".
std::string layer_of(const std::string& tensor) {
    constexpr std::size_t kPrefix = 13;
    return tensor.substr(kPrefix, tensor.find('.', kPrefix) - kPrefix);
}

// Returns the fields of the text model, whose configuration may be inside a larger one.
Json text_config(const GoldenModel& model) {
    const Json config = Json::parse(model.config_json);
    return config.contains("text_config") ? config["text_config"] : config;
}

std::int64_t head_dim_of(const Json& config) {
    if (config.contains("head_dim")) return config["head_dim"];
    return config["hidden_size"].get<std::int64_t>() / config["num_attention_heads"].get<std::int64_t>();
}

// Sets `key` to a count, as u32; put_number() sets other numbers as f32. So does the converter.
void put_count(GgufWriter& file, const std::string& key, std::int64_t value) {
    file.set(key, static_cast<std::uint32_t>(value));
}
void put_number(GgufWriter& file, const std::string& key, double value) {
    file.set(key, static_cast<float>(value));
}
void put_text(GgufWriter& file, const std::string& key, const std::string& value) {
    file.set(key, gguf_string(value));
}

void put_floats(GgufWriter& file, const std::string& name, const std::vector<std::int64_t>& shape,
                const std::vector<float>& values) {
    constexpr std::uint32_t kF32 = 0;
    file.tensor(name, kF32, shape,
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

struct Renaming {
    std::string from, to;
};

std::string gguf_name(const std::string& name, bool has_post_norms) {
    static const std::array<Renaming, 3> kWhole = {{{"model.embed_tokens.weight", "token_embd.weight"},
                                                    {"model.norm.weight", "output_norm.weight"},
                                                    {"lm_head.weight", "output.weight"}}};
    // "model.layers.N.layer_scalar" has no other part.
    if (name.ends_with(".layer_scalar")) return fmt::format("blk.{}.layer_output_scale.weight", layer_of(name));
    if (name.ends_with(".mlp.gate.e_score_correction_bias"))
        return fmt::format("blk.{}.exp_probs_b.bias", layer_of(name));
    if (name.ends_with(".linear_attn.A_log")) return fmt::format("blk.{}.ssm_a", layer_of(name));
    if (name.ends_with(".linear_attn.dt_bias")) return fmt::format("blk.{}.ssm_dt.bias", layer_of(name));
    if (name.ends_with(".router.scale")) return fmt::format("blk.{}.ffn_gate_inp.scale", layer_of(name));
    if (name.ends_with(".router.per_expert_scale")) return fmt::format("blk.{}.ffn_down_exps.scale", layer_of(name));
    if (name.ends_with(".self_attn.sinks")) return fmt::format("blk.{}.attn_sinks.weight", layer_of(name));
    const std::array<Renaming, 38> kParts = {
        {{"self_attn.q_proj", "attn_q"},
         {"self_attn.gate_proj", "attn_gate"},
         {"self_attn.k_proj", "attn_k"},
         {"self_attn.v_proj", "attn_v"},
         {"self_attn.qkv_proj", "attn_qkv"},
         {"self_attn.o_proj", "attn_output"},
         {"self_attn.q_norm", "attn_q_norm"},
         {"self_attn.k_norm", "attn_k_norm"},
         {"linear_attn.in_proj_qkv", "attn_qkv"},
         {"linear_attn.in_proj_z", "attn_gate"},
         {"linear_attn.in_proj_a", "ssm_alpha"},
         {"linear_attn.in_proj_b", "ssm_beta"},
         {"linear_attn.conv1d", "ssm_conv1d"},
         {"linear_attn.norm", "ssm_norm"},
         {"linear_attn.out_proj", "ssm_out"},
         {"mlp.gate", "ffn_gate_inp"},
         {"mlp.router", "ffn_gate_inp"},
         {"router.proj", "ffn_gate_inp"},
         {"block_sparse_moe.gate", "ffn_gate_inp"},
         {"linear_attn.in_proj_ba", "ssm_ba"},
         {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
         {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
         {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
         {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
         {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
         {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
         {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
         {"mlp.gate_up_proj", "ffn_up"},
         {"mlp.gate_proj", "ffn_gate"},
         {"mlp.up_proj", "ffn_up"},
         {"mlp.down_proj", "ffn_down"},
         {"input_layernorm", "attn_norm"},
         {"pre_feedforward_layernorm", "ffn_norm"},
         {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
         {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
         {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
         {"post_feedforward_layernorm", "post_ffw_norm"},
         {"post_attention_layernorm", has_post_norms ? "post_attention_norm" : "ffn_norm"}}};
    for (const Renaming& whole : kWhole)
        if (name == whole.from) return whole.to;
    // model.layers.N.PART.weight -> blk.N.PART.weight
    const std::string prefix = "model.layers.";
    const std::size_t part_begin = name.find('.', prefix.size()) + 1;
    const std::size_t part_end = name.rfind('.');
    const std::string part = name.substr(part_begin, part_end - part_begin);
    for (const Renaming& known : kParts)
        if (part == known.from)
            return "blk." + name.substr(prefix.size(), part_begin - prefix.size()) + known.to + name.substr(part_end);
    throw std::runtime_error(fmt::format("golden tensor {} has no GGUF name", name));
}

/// A matrix of an expert: "model.layers.N.PART.experts.E.MATRIX.weight".
struct ExpertTensor {
    std::string layer;   // N
    std::string expert;  // E
    std::string matrix;  // "gate", "up" or "down"
};

std::optional<ExpertTensor> expert_tensor_of(const std::string& name) {
    const std::size_t at = name.find(".experts.");
    if (at == std::string::npos || !name.ends_with(".weight")) return std::nullopt;
    const std::string rest = name.substr(at + 9);
    const std::size_t dot = rest.find('.');
    static const std::map<std::string, std::string> kMatrices = {
        {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"}, {"w1", "gate"}, {"w3", "up"}, {"w2", "down"}};
    return ExpertTensor{layer_of(name), rest.substr(0, dot),
                        kMatrices.at(rest.substr(dot + 1, rest.rfind('.') - dot - 1))};
}

/// A matrix of all experts: [n_experts, rows, cols].
struct StackedExperts {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

// Writes a tensor of the matrices of all experts; `keeps_gate_up`: gate and up stay one tensor, else they get one each.
void put_fused_experts(GgufWriter& file, const GoldenTensor& tensor, const std::vector<float>& values,
                       bool keeps_gate_up) {
    const std::string layer = layer_of(tensor.name);
    if (keeps_gate_up && tensor.name.ends_with(".gate_up_proj"))
        return put_floats(file, fmt::format("blk.{}.ffn_gate_up_exps.weight", layer), tensor.shape, values);
    if (tensor.name.ends_with(".down_proj"))
        return put_floats(file, fmt::format("blk.{}.ffn_down_exps.weight", layer), tensor.shape, values);
    const std::vector<std::int64_t> shape{tensor.shape[0], tensor.shape[1] / 2, tensor.shape[2]};
    const std::int64_t half = shape[1] * shape[2];
    for (const bool is_up : {false, true}) {
        std::vector<float> of_half;
        for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
            const auto begin = values.begin() + half * (2 * expert + (is_up ? 1 : 0));
            of_half.insert(of_half.end(), begin, begin + half);
        }
        put_floats(file, fmt::format("blk.{}.ffn_{}_exps.weight", layer, is_up ? "up" : "gate"), shape, of_half);
    }
}

void write_experts(GgufWriter& file, const Json& config, const std::string& arch) {
    const bool is_mixtral = arch == "llama";
    const bool is_glm = arch == "glm4moe";
    const bool is_gpt_oss = arch == "gpt-oss";
    const auto count = [&](const char* key) { return config[key].get<std::int64_t>(); };
    put_count(file, arch + ".expert_count",
              count(is_mixtral || is_gpt_oss ? "num_local_experts"
                    : is_glm                 ? "n_routed_experts"
                                             : "num_experts"));
    put_count(file, arch + ".expert_used_count", count(arch == "gemma4" ? "top_k_experts" : "num_experts_per_tok"));
    if (!is_mixtral && arch != "olmoe")
        put_count(file, arch + ".expert_feed_forward_length",
                  count(is_gpt_oss ? "intermediate_size" : "moe_intermediate_size"));
    if (config.contains("shared_expert_intermediate_size"))
        put_count(file, arch + ".expert_shared_feed_forward_length", count("shared_expert_intermediate_size"));
    if (is_gpt_oss) put_count(file, arch + ".attention.sliding_window", count("sliding_window"));
    if (!is_glm) return;
    put_count(file, arch + ".expert_shared_count", count("n_shared_experts"));
    put_count(file, arch + ".leading_dense_block_count", count("first_k_dense_replace"));
    put_count(file, arch + ".expert_gating_func", 2);
    put_number(file, arch + ".expert_weights_scale", config["routed_scaling_factor"].get<double>());
    file.set(arch + ".expert_weights_norm", config["norm_topk_prob"].get<bool>());
    put_count(file, arch + ".nextn_predict_layers", 0);
}

// Writes every `step`-th row from `first` on of the experts' matrices [n_experts, n_rows, cols], which gpt-oss has
// transposed: [n_experts, cols, n_rows].
void put_fused_floats(GgufWriter& file, const std::string& name, const GoldenTensor& tensor, std::int64_t first,
                      std::int64_t step) {
    const std::vector<float> all = golden_values(tensor);
    const std::int64_t cols = tensor.shape[1];
    const std::int64_t n_rows = tensor.shape[2];
    std::vector<float> values;
    for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert)
        for (std::int64_t row = first; row < n_rows; row += step)
            for (std::int64_t col = 0; col < cols; ++col) values.push_back(all[(expert * cols + col) * n_rows + row]);
    put_floats(file, name, {tensor.shape[0], n_rows / step, cols}, values);
}

// The same of codes [n_experts, n_rows, blocks, 16] and scales [n_experts, n_rows, blocks] of MXFP4. A ggml block is
// the scale, then bytes with elements j (low) and j + 16.
void put_fused_blocks(GgufWriter& file, const std::string& name, const GoldenTensor& codes, std::int64_t first,
                      std::int64_t step) {
    constexpr std::uint32_t kMxfp4 = 39;
    const std::string bytes = golden_bytes(codes);
    const std::string stem = codes.name.substr(0, codes.name.size() - 7);
    const std::string scales = golden_bytes({stem + "_scales", {codes.shape[0], codes.shape[1], codes.shape[2]}});
    std::string blocks;
    for (std::int64_t expert = 0; expert < codes.shape[0]; ++expert)
        for (std::int64_t row = first; row < codes.shape[1]; row += step)
            for (std::int64_t block = 0; block < codes.shape[2]; ++block) {
                const auto at = static_cast<std::size_t>((expert * codes.shape[1] + row) * codes.shape[2] + block);
                std::array<int, 32> elements{};
                for (std::size_t j = 0; j < 16; ++j) {
                    const int pair = static_cast<unsigned char>(bytes[at * 16 + j]);
                    elements[2 * j] = pair % 16;
                    elements[2 * j + 1] = pair / 16;
                }
                blocks += scales[at];
                for (std::size_t j = 0; j < 16; ++j) blocks += static_cast<char>(elements[j] + 16 * elements[j + 16]);
            }
    file.tensor(name, kMxfp4, {codes.shape[0], codes.shape[1] / step, 32 * codes.shape[2]}, blocks);
}

// Writes a tensor of gpt-oss's experts, "model.layers.N.mlp.experts.PART". Returns false for other tensors.
bool put_fused_experts(GgufWriter& file, const GoldenTensor& tensor) {
    const std::size_t at = tensor.name.find(".experts.");
    if (at == std::string::npos) return false;
    const std::string part = tensor.name.substr(at + 9);
    const std::string stem = fmt::format("blk.{}.ffn_", tensor.name.substr(13, tensor.name.find('.', 13) - 13));
    if (part == "gate_up_proj" || part == "gate_up_proj_blocks") {
        const auto put = part == "gate_up_proj" ? put_fused_floats : put_fused_blocks;
        put(file, stem + "gate_exps.weight", tensor, 0, 2);
        put(file, stem + "up_exps.weight", tensor, 1, 2);
    } else if (part == "down_proj" || part == "down_proj_blocks") {
        (part == "down_proj" ? put_fused_floats : put_fused_blocks)(file, stem + "down_exps.weight", tensor, 0, 1);
    } else if (part == "gate_up_proj_bias") {
        const std::vector<float> all = golden_values(tensor);
        std::array<std::vector<float>, 2> halves;
        for (std::size_t i = 0; i < all.size(); ++i) halves[i % 2].push_back(all[i]);
        put_floats(file, stem + "gate_exps.bias", {tensor.shape[0], tensor.shape[1] / 2}, halves[0]);
        put_floats(file, stem + "up_exps.bias", {tensor.shape[0], tensor.shape[1] / 2}, halves[1]);
    } else if (part == "down_proj_bias") {
        put_floats(file, stem + "down_exps.bias", tensor.shape, golden_values(tensor));
    }
    return true;  // scales go with their codes
}

/// Returns `values` with the rows of each head reordered from halves (0, d/2, 1, d/2 + 1, ...) to neighbours: RoPE
/// pairs (i, i + d/2) become (2i, 2i + 1).
std::vector<float> interleave_heads(const GoldenTensor& tensor, const std::vector<float>& values,
                                    std::int64_t head_dim) {
    const std::int64_t cols = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    std::vector<float> result(values.size());
    for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
        const std::int64_t in_head = row % head_dim;
        const std::int64_t from = row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
        std::copy_n(values.begin() + from * cols, cols, result.begin() + row * cols);
    }
    return result;
}

// Writes the sizes of the delta nets, and which layers have one.
void write_delta_nets(GgufWriter& file, const Json& config, const std::string& arch) {
    const auto count = [&](const char* key) { return config[key].get<std::int64_t>(); };
    put_count(file, arch + ".ssm.conv_kernel", count("linear_conv_kernel_dim"));
    put_count(file, arch + ".ssm.state_size", count("linear_key_head_dim"));
    put_count(file, arch + ".ssm.group_count", count("linear_num_key_heads"));
    put_count(file, arch + ".ssm.time_step_rank", count("linear_num_value_heads"));
    put_count(file, arch + ".ssm.inner_size", count("linear_num_value_heads") * count("linear_value_head_dim"));
    put_count(file, arch + ".full_attention_interval", config.value("full_attention_interval", 4));
    if (!config.contains("layer_types")) return;
    std::vector<GgufBytes> flags;
    for (const Json& type : config["layer_types"]) flags.push_back(gguf_scalar(type == "linear_attention"));
    file.set(arch + ".attention.recurrent_layers", gguf_array(flags));
}

// Changes a tensor of a delta net as the converter does: rates of decay in place of their logarithms; if `tiled`, value
// heads from grouped order (key head 0's, key head 1's, ...) to tiled order (the first of each key head, the second of
// each, ...), wherever rows or columns are those of value heads.
void convert_delta_net(const GoldenTensor& tensor, const Json& config, bool tiled, std::vector<float>& values) {
    const auto n_key_heads = config["linear_num_key_heads"].get<std::size_t>();
    const std::size_t per_key = config["linear_num_value_heads"].get<std::size_t>() / n_key_heads;
    const auto value_dim = config["linear_value_head_dim"].get<std::size_t>();
    const auto is = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    const std::size_t row = values.size() / static_cast<std::size_t>(tensor.shape[0]);
    // Exchanges n_key_heads x per_key blocks of `size` floats from `begin` on.
    const auto tile = [&](std::size_t begin, std::size_t size) {
        const std::vector<float> grouped(values.begin() + static_cast<std::ptrdiff_t>(begin), values.end());
        for (std::size_t key = 0; key < n_key_heads; ++key)
            for (std::size_t i = 0; i < per_key; ++i)
                std::copy_n(grouped.begin() + static_cast<std::ptrdiff_t>((key * per_key + i) * size), size,
                            values.begin() + static_cast<std::ptrdiff_t>(begin + (i * n_key_heads + key) * size));
    };
    if (is("A_log"))
        for (float& value : values) value = -std::exp(value);
    if (!tiled) return;
    const std::size_t before_values = 2 * n_key_heads * config["linear_key_head_dim"].get<std::size_t>();
    if (is("in_proj_qkv") || is("conv1d")) tile(before_values * row, value_dim * row);
    if (is("in_proj_z")) tile(0, value_dim * row);
    if (is("in_proj_a") || is("in_proj_b") || is("A_log") || is("dt_bias")) tile(0, row);
    if (is("out_proj"))
        for (std::size_t begin = 0; begin < values.size(); begin += row) tile(begin, value_dim);
}

// Writes the fused rows of inputs and gates of Qwen3-Next as two tensors.
void put_inputs_and_gate(GgufWriter& file, const GoldenTensor& tensor, const Json& config,
                         const std::vector<float>& values) {
    const auto n_key_heads = config["linear_num_key_heads"].get<std::int64_t>();
    const auto key_dim = config["linear_key_head_dim"].get<std::int64_t>();
    const std::int64_t of_values = config["linear_num_value_heads"].get<std::int64_t>() / n_key_heads *
                                   config["linear_value_head_dim"].get<std::int64_t>();
    const std::int64_t cols = tensor.shape[1];
    // Appends rows [begin, begin + n) of those of each key head.
    const auto take = [&](std::int64_t begin, std::int64_t n, std::vector<float>& to) {
        for (std::int64_t head = 0; head < n_key_heads; ++head) {
            const auto from = values.begin() + (head * 2 * (key_dim + of_values) + begin) * cols;
            to.insert(to.end(), from, from + n * cols);
        }
    };
    std::vector<float> inputs;
    std::vector<float> gate;
    take(0, key_dim, inputs);
    take(key_dim, key_dim, inputs);
    take(2 * key_dim, of_values, inputs);
    take(2 * key_dim + of_values, of_values, gate);
    const std::string layer = layer_of(tensor.name);
    put_floats(file, fmt::format("blk.{}.attn_qkv.weight", layer), {std::ssize(inputs) / cols, cols}, inputs);
    put_floats(file, fmt::format("blk.{}.attn_gate.weight", layer), {std::ssize(gate) / cols, cols}, gate);
}

/// Returns llama3 scaling as the converter writes it: the divisor of each frequency.
std::vector<float> llama3_divisors(const Json& rope, std::int64_t n_rotated) {
    const double factor = rope["factor"];
    const double low = rope["low_freq_factor"];
    const double high = rope["high_freq_factor"];
    const double original = rope["original_max_position_embeddings"];
    std::vector<float> divisors;
    for (std::int64_t i = 0; i < n_rotated; i += 2) {
        const double wavelength =
            2 * std::numbers::pi *
            std::pow(rope["rope_theta"].get<double>(), static_cast<double>(i) / static_cast<double>(n_rotated));
        if (wavelength < original / high) {
            divisors.push_back(1.0F);
        } else if (wavelength > original / low) {
            divisors.push_back(static_cast<float>(factor));
        } else {
            const double smooth = (original / wavelength - low) / (high - low);
            divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
        }
    }
    return divisors;
}

void write_rope(GgufWriter& file, const Json& config, const std::string& arch, std::int64_t head_dim) {
    const Json rope = rope_parameters(config);
    const auto n_rotated = static_cast<std::int64_t>(static_cast<double>(head_dim) *
                                                     rope.value("partial_rotary_factor", is_hybrid(arch) ? 0.25 : 1.0));
    const std::string type = rope["rope_type"];
    put_number(file, arch + ".rope.freq_base", rope["rope_theta"].get<double>());
    if (is_permuted(arch) || arch == "phi3" || arch == "glm4moe" || is_hybrid(arch))
        put_count(file, arch + ".rope.dimension_count", n_rotated);
    if (type == "linear" || type == "yarn") {
        put_text(file, arch + ".rope.scaling.type", type);
        put_number(file, arch + ".rope.scaling.factor", rope["factor"].get<double>());
    }
    if (type == "yarn")
        put_count(file, arch + ".rope.scaling.original_context_length",
                  rope["original_max_position_embeddings"].get<std::int64_t>());
    for (const char* beta : {"beta_fast", "beta_slow"})
        if (rope.contains(beta))
            put_number(file, fmt::format("{}.rope.scaling.yarn_{}", arch, beta), rope[beta].get<double>());
    if (arch == "mistral3" && type == "yarn") {
        put_number(file, arch + ".rope.scaling.yarn_log_multiplier", rope["mscale_all_dim"].get<double>());
        put_number(file, arch + ".attention.temperature_scale", rope["llama_4_scaling_beta"].get<double>());
    }
    if (type == "llama3") {
        const std::vector<float> divisors = llama3_divisors(rope, n_rotated);
        put_floats(file, "rope_freqs.weight", {static_cast<std::int64_t>(divisors.size())}, divisors);
    }
    if (arch == "phi3")
        put_count(file, arch + ".rope.scaling.original_context_length",
                  rope["original_max_position_embeddings"].get<std::int64_t>());
    if (type == "longrope" || type == "su") {
        const double original = rope["original_max_position_embeddings"];
        const double stretch = config["max_position_embeddings"].get<double>() / original;
        put_number(file, arch + ".rope.scaling.attn_factor",
                   stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(original)) : 1.0);
        for (const char* which : {"long", "short"})
            put_floats(file, fmt::format("rope_factors_{}.weight", which), {n_rotated / 2},
                       rope[fmt::format("{}_factor", which)].get<std::vector<float>>());
    }
}

void write_pattern(GgufWriter& file, const Json& types, const std::string& arch) {
    std::vector<GgufBytes> flags;
    for (const Json& type : types)
        flags.push_back(gguf_scalar(std::uint8_t{type == "sliding_attention" ? std::uint8_t{1} : std::uint8_t{0}}));
    file.set(arch + ".attention.sliding_window_pattern", gguf_array(flags));
}

void write_granite(GgufWriter& file, const Json& config) {
    put_number(file, "granite.attention.scale", config["attention_multiplier"].get<double>());
    put_number(file, "granite.embedding_scale", config["embedding_multiplier"].get<double>());
    put_number(file, "granite.residual_scale", config["residual_multiplier"].get<double>());
    put_number(file, "granite.logit_scale", config["logits_scaling"].get<double>());
}

// Writes the keys of Muse Glimmer and, as the converter does, the factor of queries as weights of a norm, with weights
// of 1 for keys.
void write_muse(GgufWriter& file, const Json& config) {
    const std::string arch = "muse-glimmer";
    put_number(file, arch + ".final_logit_softcapping", config["final_logit_softcapping"].get<double>());
    put_number(file, arch + ".logit_scale", config["output_multiplier"].get<double>());
    put_count(file, arch + ".attention.sliding_window", config["sliding_window"].get<std::int64_t>());
    const auto n_layers = config["num_hidden_layers"].get<std::int64_t>();
    Json types = Json::array();
    for (std::int64_t i = 0; i < n_layers; ++i)
        types.push_back((n_layers - 1 - i) % 4 == 0 ? "full_attention" : "sliding_attention");
    write_pattern(file, types, arch);
    const std::int64_t head_dim = head_dim_of(config);
    for (std::int64_t i = 0; i < n_layers; ++i)
        for (const bool is_query : {true, false})
            put_floats(file, fmt::format("blk.{}.attn_{}_norm.weight", i, is_query ? "q" : "k"), {head_dim},
                       std::vector<float>(static_cast<std::size_t>(head_dim),
                                          is_query ? config["qk_scale_factor"].get<float>() : 1.0F));
}

void write_gemma(GgufWriter& file, const Json& config, const std::string& arch) {
    put_count(file, arch + ".attention.sliding_window", config["sliding_window"].get<std::int64_t>());
    if (config["layer_types"].is_array()) write_pattern(file, config["layer_types"], arch);
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
        if (config.contains(key)) put_number(file, arch + "." + key, config[key].get<double>());
    if (config.contains("rope_local_base_freq"))
        put_number(file, arch + ".rope.freq_base_swa", config["rope_local_base_freq"].get<double>());
}

// Returns whether each layer is windowed. transformers gives the last layer no window, whatever the fields say.
std::vector<bool> gemma4_windows(const Json& config) {
    std::vector<bool> windowed;
    for (std::size_t i = 0; i < config["num_hidden_layers"].get<std::size_t>(); ++i)
        windowed.push_back(config["layer_types"].is_array() ? config["layer_types"][i] == "sliding_attention"
                                                            : (i + 1) % 6 != 0);
    windowed.back() = false;
    return windowed;
}

// Returns the number of kv heads and the head dimension of Gemma 4's layers without a window, from either of the two
// spellings.
std::pair<std::int64_t, std::int64_t> gemma4_full_heads(const Json& config) {
    const std::string last = std::to_string(config["num_hidden_layers"].get<int>() - 1);
    const bool by_layer = config.contains("per_layer_config");
    const std::int64_t head_dim = by_layer ? config["per_layer_config"][last]["head_dim"] : config["global_head_dim"];
    if (!config["attention_k_eq_v"]) return {config["num_key_value_heads"], head_dim};
    return {by_layer ? config["per_layer_config"][last]["num_key_value_heads"] : config["num_global_key_value_heads"],
            head_dim};
}

void write_gemma4(GgufWriter& file, const Json& config) {
    const auto [n_kv_heads, head_dim] = gemma4_full_heads(config);
    const std::int64_t window_head_dim = config["head_dim"];
    std::vector<GgufBytes> windowed;
    std::vector<GgufBytes> heads;
    for (const bool is_windowed : gemma4_windows(config)) {
        windowed.push_back(gguf_scalar(is_windowed));
        heads.push_back(gguf_scalar(
            static_cast<std::int32_t>(is_windowed ? config["num_key_value_heads"].get<std::int64_t>() : n_kv_heads)));
    }
    file.set("gemma4.attention.sliding_window_pattern", gguf_array(windowed));
    if (config["attention_k_eq_v"]) file.set("gemma4.attention.head_count_kv", gguf_array(heads));
    put_count(file, "gemma4.attention.sliding_window", config["sliding_window"].get<std::int64_t>());
    for (const char* part : {"key", "value"}) {
        put_count(file, fmt::format("gemma4.attention.{}_length", part), head_dim);
        put_count(file, fmt::format("gemma4.attention.{}_length_swa", part), window_head_dim);
    }
    put_count(file, "gemma4.attention.shared_kv_layers", 0);
    put_count(file, "gemma4.embedding_length_per_layer_input", 0);
    put_count(file, "gemma4.rope.dimension_count", head_dim);
    put_count(file, "gemma4.rope.dimension_count_swa", window_head_dim);
    const Json none = {{"full_attention", {{"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}},
                       {"sliding_attention", {{"rope_theta", 1e4}}}};
    const Json& ropes = config["rope_parameters"].is_null() ? none : config["rope_parameters"];
    put_number(file, "gemma4.rope.freq_base", ropes["full_attention"]["rope_theta"].get<double>());
    put_number(file, "gemma4.rope.freq_base_swa", ropes["sliding_attention"]["rope_theta"].get<double>());
    const auto n_rotated = static_cast<std::size_t>(
        static_cast<double>(head_dim) * ropes["full_attention"]["partial_rotary_factor"].get<double>() / 2.0);
    std::vector<float> divisors(static_cast<std::size_t>(head_dim / 2), 1e30F);
    std::fill_n(divisors.begin(), n_rotated, 1.0F);
    put_floats(file, "rope_freqs.weight", {head_dim / 2}, divisors);
    if (!config["final_logit_softcapping"].is_null())
        put_number(file, "gemma4.final_logit_softcapping", config["final_logit_softcapping"].get<double>());
}

/// Writes the smallest vocabulary that a reader accepts: one piece per id, no byte fallback.
void write_vocabulary(GgufWriter& file, const GoldenModel& model) {
    std::vector<GgufBytes> tokens, scores, types;
    for (std::int64_t id = 0; id < model.vocab; ++id) {
        const bool control = id == 1 || id == 2;
        tokens.push_back(gguf_string(id == 0 ? "<unk>" : id == 1 ? "<s>" : id == 2 ? "</s>" : fmt::format("t{}", id)));
        scores.push_back(gguf_scalar(0.0F));
        types.push_back(gguf_scalar(std::int32_t{id == 0 ? 2 : control ? 3 : 1}));
    }
    put_text(file, "tokenizer.ggml.model", "llama");
    file.set("tokenizer.ggml.tokens", gguf_array(tokens));
    file.set("tokenizer.ggml.scores", gguf_array(scores));
    file.set("tokenizer.ggml.token_type", gguf_array(types));
    put_count(file, "tokenizer.ggml.bos_token_id", 1);
    put_count(file, "tokenizer.ggml.eos_token_id", 2);
}

}  // namespace

bool has_gguf_form(const GoldenModel& model) {
    const Json config = text_config(model);
    if (config["model_type"].get<std::string>().starts_with("gemma4")) {
        const Json& ropes = config["rope_parameters"];
        const bool is_scaled = ropes.is_object() && ropes["full_attention"].contains("factor");
        return !is_scaled && !config.value("attention_bias", false);
    }
    // GGUF files of gpt-oss have biases and a limit of 7.
    if (config["model_type"] == "gpt_oss" && (config["attention_bias"] != true || config["swiglu_limit"] != 7.0))
        return false;
    if (config["model_type"] == "olmoe" &&
        (config["norm_topk_prob"].get<bool>() || config["attention_bias"].get<bool>()))
        return false;
    if (config.contains("mlp_only_layers") &&
        (!config["norm_topk_prob"].get<bool>() || !config["mlp_only_layers"].empty()))
        return false;
    const Json rope = rope_parameters(config);
    if (rope["rope_type"] == "dynamic") return false;
    // GGUF stores mscale_all_dim, for Ministral 3 alone, and readers assume an mscale of 1.
    if (rope.contains("mscale") && (config["model_type"] != "ministral3" || rope["mscale"] != 1.0)) return false;
    // GGUF has no key for which layers of SmolLM3 have RoPE: readers assume three of four.
    if (config.contains("no_rope_layers") || config.contains("no_rope_layer_interval")) return false;
    // Files of Muse Glimmer have neither biases nor this epsilon.
    if (config["model_type"] == "muse_glimmer_text" &&
        (config["attention_bias"] == true || config["post_norm_eps"] != 1e-8))
        return false;
    // GGUF has no key for the scale of attention scores; readers assume 1 / sqrt(head_dim).
    if (config.contains("query_pre_attn_scalar") && config["query_pre_attn_scalar"] != config["head_dim"]) return false;
    if (config["model_type"] == "mistral") return config["sliding_window"].is_null();
    return !config.value("use_sliding_window", false);
}

GgufWriter golden_gguf(const GoldenModel& model, const std::string& mistral_arch, GgufExperts experts) {
    const Json config = text_config(model);
    std::string arch = config["model_type"];
    if (arch == "mistral") arch = mistral_arch;
    if (arch == "mixtral") arch = "llama";
    if (arch == "qwen3_moe") arch = "qwen3moe";
    if (arch == "glm4_moe") arch = "glm4moe";
    if (arch == "gpt_oss") arch = "gpt-oss";
    if (arch == "ministral3") arch = "mistral3";
    if (arch == "gemma3_text") arch = "gemma3";
    if (arch == "muse_glimmer_text") arch = "muse-glimmer";
    if (arch.starts_with("gemma4")) arch = "gemma4";
    if (arch == "qwen3_5_text") arch = "qwen35";
    if (arch == "qwen3_5_moe_text") arch = "qwen35moe";
    if (arch == "qwen3_next") arch = "qwen3next";
    const bool has_delta_nets = is_hybrid(arch);
    const bool is_gemma4 = arch == "gemma4";
    const bool is_gemma = arch.starts_with("gemma");
    const std::int64_t head_dim = head_dim_of(config);
    GgufWriter file;
    put_text(file, "general.architecture", arch);
    put_text(file, "general.name", model.name);
    put_count(file, "general.file_type", 0);
    const std::array<std::pair<const char*, const char*>, 6> sizes = {
        {{"context_length", "max_position_embeddings"},
         {"embedding_length", "hidden_size"},
         {"block_count", "num_hidden_layers"},
         {"feed_forward_length", "intermediate_size"},
         {"attention.head_count", "num_attention_heads"},
         {"attention.head_count_kv", "num_key_value_heads"}}};
    for (const auto& [gguf, json] : sizes)
        if (config.contains(json)) put_count(file, arch + "." + gguf, config[json].get<std::int64_t>());
    put_number(file, arch + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"].get<double>());
    if (config.contains("head_dim") && !is_gemma4) {
        put_count(file, arch + ".attention.key_length", head_dim);
        put_count(file, arch + ".attention.value_length", head_dim);
    }
    if (arch == "llama") put_count(file, arch + ".vocab_size", model.vocab);
    if (arch == "phi3" && config.contains("sliding_window"))
        put_count(file, arch + ".attention.sliding_window",
                  config["sliding_window"].is_null() ? 0 : config["sliding_window"].get<std::int64_t>());
    if (arch == "granite") write_granite(file, config);
    if (arch == "muse-glimmer") write_muse(file, config);
    if (has_delta_nets) write_delta_nets(file, config, arch);
    if (is_gemma4) {
        write_gemma4(file, config);
    } else {
        if (is_gemma) write_gemma(file, config, arch);
        write_rope(file, config, arch, head_dim);
    }
    if (config.contains("num_experts_per_tok") || config.contains("top_k_experts")) write_experts(file, config, arch);
    write_vocabulary(file, model);
    std::map<std::string, StackedExperts> stacked;
    for (const GoldenTensor& tensor : model.tensors) {
        if (arch == "gpt-oss" && put_fused_experts(file, tensor)) continue;
        std::vector<float> values = golden_values(tensor);
        if (const auto of_expert = expert_tensor_of(tensor.name)) {
            const std::string stem = fmt::format("blk.{}.ffn_{}", of_expert->layer, of_expert->matrix);
            if (experts == GgufExperts::Apart) {
                put_floats(file, fmt::format("{}.{}.weight", stem, of_expert->expert), tensor.shape, values);
                continue;
            }
            StackedExperts& all = stacked[stem + "_exps.weight"];
            if (all.shape.empty()) all.shape = {0, tensor.shape[0], tensor.shape[1]};
            ++all.shape[0];
            all.values.insert(all.values.end(), values.begin(), values.end());
            continue;
        }
        const bool rotates =
            tensor.name.find("q_proj") != std::string::npos || tensor.name.find("k_proj") != std::string::npos;
        if (is_permuted(arch) && rotates) values = interleave_heads(tensor, values, head_dim);
        const bool is_of_delta_net = tensor.name.find(".linear_attn.") != std::string::npos;
        if (tensor.name.ends_with(".in_proj_qkvz.weight")) {
            put_inputs_and_gate(file, tensor, config, values);
            continue;
        }
        if (tensor.name.find(".experts.") != std::string::npos) {
            put_fused_experts(file, tensor, values, is_gemma4 && experts == GgufExperts::Stacked);
            continue;
        }
        if (is_of_delta_net) convert_delta_net(tensor, config, arch != "qwen3next", values);
        // The converter adds 1 to weights of norms that multiply by 1 + weight: all of Gemma 2 and 3, those of Muse's
        // layers, all of Qwen3.5 but those of delta nets.
        const bool all_add_one = (is_gemma && !is_gemma4) || has_delta_nets;
        const bool adds_one = all_add_one ? tensor.name.ends_with("norm.weight") && !is_of_delta_net
                                          : arch == "muse-glimmer" && tensor.name.ends_with("layernorm.weight");
        if (adds_one)
            for (float& value : values) value += 1.0F;
        const bool is_conv = tensor.shape.size() == 3;  // [channels, 1, taps], in GGUF files [channels, taps]
        put_floats(file,
                   gguf_name(tensor.name, is_gemma || arch == "muse-glimmer" || arch == "glm4moe" ||
                                              arch == "gpt-oss" || has_delta_nets),
                   is_conv ? std::vector{tensor.shape[0], tensor.shape[2]} : tensor.shape, values);
    }
    for (const auto& [name, all] : stacked) put_floats(file, name, all.shape, all.values);
    return file;
}

void write_golden_gguf(const GoldenModel& model, const std::filesystem::path& path, const std::string& mistral_arch,
                       GgufExperts experts) {
    std::ofstream stream(path, std::ios::binary);
    const std::string bytes = golden_gguf(model, mistral_arch, experts).bytes();
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    stream.flush();
    if (!stream) throw std::runtime_error(fmt::format("cannot write {}", path.string()));
}

}  // namespace slipstream
