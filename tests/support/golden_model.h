// The tiny models of tests/golden/models. Configuration, tokens and logits are committed; the weights are computed here
// from name and index by the rule of make.py. A case is written as a model in either file format, so that tests use the
// real readers. Test code only: an error in the golden files throws.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/model/model_config.h"
#include "tests/support/gguf_writer.h"

namespace slipstream {

/// A weight of a checkpoint, with its Hugging Face name.
struct GoldenTensor {
    std::string name;
    std::vector<std::int64_t> shape;  // row-major; experts as in published files

    /// Whether it holds codes or scales of MXFP4 (U8).
    [[nodiscard]] bool is_bytes() const { return name.ends_with("_blocks") || name.ends_with("_scales"); }
};

struct GoldenModel {
    std::string name;
    std::string config_json;
    std::int64_t context_tokens = 0;  // context length for which RoPE frequencies are computed
    std::int64_t vocab = 0;
    std::vector<TokenId> tokens;        // [n_tokens]
    std::vector<TokenId> greedy;        // tokens that follow by the largest logit; may be empty
    std::vector<GoldenTensor> tensors;  // tied heads are left out, as in published files
    std::vector<float> logits;          // [n_rows, vocab], of the last n_rows tokens
    std::vector<float> logits_q8;       // [n_rows, vocab]: the same tokens over a KV cache in q8; empty: not made

    /// Whether experts are in MXFP4.
    [[nodiscard]] bool is_quantised() const { return std::ranges::any_of(tensors, &GoldenTensor::is_bytes); }
    [[nodiscard]] std::int64_t n_rows() const { return static_cast<std::int64_t>(logits.size()) / vocab; }
};

/// Returns the names of all cases, sorted.
[[nodiscard]] std::vector<std::string> golden_model_names();

[[nodiscard]] GoldenModel load_golden_model(const std::string& name);

/// Returns the values of a tensor, row-major. With u = the top 16 bits of splitmix64 as multiples of 2^-15 in [-1, 1),
/// state = FNV-1a of the name plus (index + 1) times the golden gamma: norms and scales are 1 + u / 4, biases u / 2,
/// embeddings and A_log u, dt_bias u - 1, matrices u over a power of two near sqrt(fan-in), twice that for q_proj,
/// k_proj and qkv_proj, eight times for router.proj. All values are exact in float, so they have the same bits as in
/// make.py.
[[nodiscard]] std::vector<float> golden_values(const GoldenTensor& tensor);

/// Returns the bytes of a tensor of MXFP4: codes are the top 8 of the 16 bits above, scales 119 plus the top 2.
[[nodiscard]] std::string golden_bytes(const GoldenTensor& tensor);

/// Writes config.json and model.safetensors (F32, MXFP4 as U8) into an existing, empty folder. `name_in_file` maps
/// names of tensors to other names; null: names are unchanged.
void write_hugging_face(const GoldenModel& model, const std::filesystem::path& folder,
                        const std::function<std::string(const std::string&)>& name_in_file = nullptr);

/// Returns whether GGUF files of llama.cpp's converter can express the case. They cannot express dynamic RoPE scaling,
/// an mscale other than Ministral's, sliding windows of Mistral and Qwen2, a query_pre_attn_scalar other than head_dim,
/// another pattern of layers without RoPE than SmolLM3's, biases and other epsilons of Muse Glimmer, biases and a
/// RoPE factor of Gemma 4, or weights of experts that are not normalized and layers without experts of Qwen3.
[[nodiscard]] bool has_gguf_form(const GoldenModel& model);

/// Whether the experts of a GGUF file are one tensor of a matrix, or a tensor each, as in older files of Mixtral. Of
/// Gemma 4: whether gate and up of all experts are one tensor, as the converter writes them, or a tensor each.
enum class GgufExperts : std::uint8_t { Stacked, Apart };

/// Returns a writer of the case as an F32 GGUF file, which a test can change. `mistral_arch` as in write_golden_gguf().
[[nodiscard]] GgufWriter golden_gguf(const GoldenModel& model, const std::string& mistral_arch = "llama",
                                     GgufExperts experts = GgufExperts::Stacked);
/// Writes the case as one GGUF file, F32 and MXFP4, with the names, keys and row order (q and k of the llama family) of
/// llama.cpp's convert_hf_to_gguf.py. `mistral_arch` is the architecture that a Mistral gets: older converters write
/// "llama", newer ones "mistral3" for Mistral Small 3.x.
void write_golden_gguf(const GoldenModel& model, const std::filesystem::path& path,
                       const std::string& mistral_arch = "llama", GgufExperts experts = GgufExperts::Stacked);

}  // namespace slipstream
