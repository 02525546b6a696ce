// Writes safetensors files and tiny Hugging Face directories for tests. The header is text, so broken headers are
// easily forged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// Returns the bytes of a file: header length, header, data.
[[nodiscard]] std::string safetensors_bytes(std::string_view header, std::string_view data);

class SafetensorsWriter {
public:
    /// Adds a tensor, or replaces the one with that name. `type` as the format spells it.
    SafetensorsWriter& tensor(const std::string& name, const std::string& type, std::vector<std::int64_t> shape,
                              std::string data);
    /// Adds an F32 tensor with the values first + 0.5, first + 1.5, first + 2.5, ...
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

/// The configuration of tiny_llama_gguf(): d_model 8, d_ff 12, 2 layers, 2 query heads and 1 kv head, vocab 10,
/// embeddings not tied.
inline constexpr std::string_view kTinyLlamaConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
  "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "bos_token_id": 1, "eos_token_id": 2
})";

/// Returns the tensors of kTinyLlamaConfig, with the values of tiny_llama_gguf() (rows of q and k in Hugging Face
/// order).
[[nodiscard]] SafetensorsWriter tiny_llama_safetensors();

}  // namespace slipstream
