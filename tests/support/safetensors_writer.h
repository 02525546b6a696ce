// Writes safetensors files and tiny Hugging Face directories for tests. The header is text, so broken ones are easily
// forged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// Header length, header, data, as they stand in the file.
[[nodiscard]] std::string safetensors_bytes(std::string_view header, std::string_view data);

class SafetensorsWriter {
public:
    /// `type` as the format spells it. Replaces a tensor of that name.
    SafetensorsWriter& tensor(const std::string& name, const std::string& type, std::vector<std::int64_t> shape,
                              std::string data);
    /// F32 tensor with values 0.5, 1.5, 2.5, ... plus `first`.
    SafetensorsWriter& floats(const std::string& name, std::vector<std::int64_t> shape, float first = 0.0F);
    SafetensorsWriter& erase(const std::string& name);
    [[nodiscard]] std::vector<std::string> names() const;

    [[nodiscard]] std::string bytes() const;

private:
    struct Tensor {
        std::string name;
        std::string type;
        std::vector<std::int64_t> shape;
        std::string data;
    };
    std::vector<Tensor> tensors_;
};

/// The sizes of tiny_llama_gguf(): d_model 8, d_ff 12, 2 layers, 2 query and 1 kv heads, 10 tokens. Not tied.
inline constexpr std::string_view kTinyLlamaConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
  "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "bos_token_id": 1, "eos_token_id": 2
})";

/// Its tensors, with the same values as the GGUF's (rows of q and k in plain order).
[[nodiscard]] SafetensorsWriter tiny_llama_safetensors();

}  // namespace slipstream
