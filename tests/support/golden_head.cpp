#include "tests/support/golden_head.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace slipstream {

namespace {

const std::map<std::string, std::string> kGgufNames = {
    {"mtp.fc", "nextn.eh_proj"},
    {"mtp.pre_fc_norm_embedding", "nextn.enorm"},
    {"mtp.pre_fc_norm_hidden", "nextn.hnorm"},
    {"mtp.norm", "nextn.shared_head_norm"},
    {"eh_proj", "nextn.eh_proj"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"embed_tokens", "nextn.embed_tokens"},
    {"shared_head.norm", "nextn.shared_head_norm"},
    {"shared_head.head", "nextn.shared_head_head"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

std::string bytes_of(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

GoldenHead load_golden_head(const std::string& name) {
    GoldenHead head{.model = load_golden_model(name), .tensors = {}, .drafted = {}, .logits = {}};
    const std::filesystem::path folder = std::filesystem::path(SLIPSTREAM_GOLDEN_DIR) / "mtp" / name;
    std::ifstream lines(folder / "head.txt");
    for (std::string text; std::getline(lines, text);) {
        std::istringstream line(text);
        std::string key;
        line >> key;
        if (key == "drafted") {
            for (TokenId token = 0; line >> token;) head.drafted.push_back(token);
            continue;
        }
        GoldenTensor& tensor = head.tensors.emplace_back();
        line >> tensor.name;
        for (std::int64_t size = 0; line >> size;) tensor.shape.push_back(size);
    }
    std::ifstream file(folder / "logits.f32", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    head.logits.resize(bytes.size() / sizeof(float));
    std::memcpy(head.logits.data(), bytes.data(), bytes.size());
    if (head.drafted.empty() || head.logits.size() != (head.model.tokens.size() + head.drafted.size() - 2) *
                                                          static_cast<std::size_t>(head.model.vocab))
        throw std::runtime_error(fmt::format("golden head {} is absent or contradicts itself", name));
    head.model.tensors.insert(head.model.tensors.end(), head.tensors.begin(), head.tensors.end());
    return head;
}

GgufWriter golden_head_gguf(const GoldenHead& head) {
    constexpr std::uint32_t kF32 = 0;
    GoldenModel alone = head.model;
    alone.tensors.resize(alone.tensors.size() - head.tensors.size());
    GgufWriter file = golden_gguf(alone);
    const nlohmann::json config = nlohmann::json::parse(alone.config_json);
    const auto n_layers = config["num_hidden_layers"].get<std::uint32_t>();
    const bool is_glm = config["model_type"] == "glm4_moe";
    const std::string layer = is_glm ? fmt::format("model.layers.{}.", n_layers) : "mtp.layers.0.";
    const std::string arch = is_glm ? "glm4moe" : config.contains("num_experts") ? "qwen35moe" : "qwen35";
    file.set(arch + ".block_count", n_layers + 1).set(arch + ".nextn_predict_layers", std::uint32_t{1});
    // The experts' matrices, each kind stacked.
    struct Stack {
        std::vector<std::int64_t> shape;
        std::vector<float> values;
    };
    std::map<std::string, Stack> stacks;
    for (const GoldenTensor& tensor : head.tensors) {
        std::vector<float> values = golden_values(tensor);
        const std::size_t end = tensor.name.rfind('.');
        std::string name = tensor.name.substr(0, end);
        std::string kind = tensor.name.substr(end);
        if (name.starts_with(layer)) name = name.substr(layer.size());
        if (name.starts_with("mlp.experts.")) {
            const std::string part = name.substr(name.rfind('.') + 1);
            Stack& stack = stacks[fmt::format("ffn_{}_exps", part.substr(0, part.find('_')))];
            if (stack.shape.empty()) stack.shape = {0, tensor.shape[0], tensor.shape[1]};
            ++stack.shape[0];
            stack.values.insert(stack.values.end(), values.begin(), values.end());
            continue;
        }
        // The converter adds the 1 of a norm of Qwen to its weights.
        if (!is_glm && name.find("norm") != std::string::npos)
            for (float& value : values) value += 1.0F;
        const bool is_choice_bias = kind == ".e_score_correction_bias";
        file.tensor(fmt::format("blk.{}.{}{}", n_layers, is_choice_bias ? "exp_probs_b" : kGgufNames.at(name),
                                is_choice_bias ? ".bias" : kind),
                    kF32, tensor.shape, bytes_of(values));
    }
    for (const auto& [name, stack] : stacks)
        file.tensor(fmt::format("blk.{}.{}.weight", n_layers, name), kF32, stack.shape, bytes_of(stack.values));
    return file;
}

}  // namespace slipstream
