// The tiny models of tests/golden/models: their configuration, tokens and logits are committed, their weights are made
// here from name and index by the rule of make.py. Writes a case as a model of either format, so that what is tested
// goes through the real readers. Test code only: whatever is wrong with the golden files throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

/// A weight of a checkpoint under its Hugging Face name.
struct GoldenTensor {
    std::string name;
    std::vector<std::int64_t> shape;  // row-major, rank 1 or 2
};

struct GoldenModel {
    std::string name;
    std::string config_json;
    std::int64_t context_tokens = 0;  // what rope frequencies are to be fixed for
    std::int64_t vocab = 0;
    std::vector<TokenId> tokens;        // [n_tokens]
    std::vector<GoldenTensor> tensors;  // tied heads are left out, as in published files
    std::vector<float> logits;          // [n_rows, vocab]: of the last n_rows tokens
    std::vector<float> logits_q8;       // [n_rows, vocab]: the same tokens over a KV cache in q8; empty: not made

    [[nodiscard]] std::int64_t n_rows() const { return static_cast<std::int64_t>(logits.size()) / vocab; }
};

/// Names of all cases, sorted.
[[nodiscard]] std::vector<std::string> golden_model_names();

[[nodiscard]] GoldenModel load_golden_model(const std::string& name);

/// Values of a tensor, row-major. u = 16 bits of splitmix64 as multiples of 2^-15 in [-1, 1), state = FNV-1a of the
/// name plus index times the golden gamma; norms are 1 + u / 4, biases u / 2, embeddings u, matrices u over a power of
/// two near sqrt(fan-in). Exact in float, hence the same bits as in make.py.
[[nodiscard]] std::vector<float> golden_values(const GoldenTensor& tensor);

/// Writes config.json and model.safetensors (F32) into an existing, empty folder. `name_in_file` gives tensors other
/// names; null: their own.
void write_hugging_face(const GoldenModel& model, const std::filesystem::path& folder,
                        const std::function<std::string(const std::string&)>& name_in_file = nullptr);

/// Whether llama.cpp's converter has a form for the case: it has none for dynamic scaling, mscale, and the windows of
/// Mistral and Qwen2.
[[nodiscard]] bool has_gguf_form(const GoldenModel& model);

/// Writes the case as one F32 GGUF with names, keys and row order (q and k of the llama family) of llama.cpp's
/// convert_hf_to_gguf.py.
void write_golden_gguf(const GoldenModel& model, const std::filesystem::path& path);

}  // namespace slipstream
