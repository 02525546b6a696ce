// The header of a GGUF file with random weights: keys, a tokenizer of the right size, the table of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "tools/lab/random_model/random_model_file.h"

namespace slipstream {
struct Family;
}

namespace slipstream::tools {

/// Returns the family whose names GGUF files of this model have: its own, or Llama's if it has none (Mistral).
[[nodiscard]] const Family& gguf_family(const ModelConfig& config);

/// Distribution of a tensor's values.
enum class Draw : std::uint8_t {
    Normal,
    Uniform,
    PairDivisors,  // 1 for RoPE pairs that rotate, then 1e30
    Zipf,          // -kZipfGain log(i + 1)
};

struct RandomTensor {
    std::string name;
    DType type = DType::F32;
    std::vector<std::int64_t> shape;  // row-major
    Draw draw = Draw::Normal;
    double deviation = 1.0;            // of Normal
    float low = 0.8F, width = 0.4F;    // of Uniform: from low to low + width
    std::int64_t n_rotated_pairs = 0;  // of PairDivisors

    [[nodiscard]] std::int64_t n_elements() const {
        std::int64_t n = 1;
        for (const std::int64_t length : shape) n *= length;
        return n;
    }
    [[nodiscard]] std::size_t bytes() const { return row_bytes(type, n_elements()); }
};

/// Tensor data begins at multiples of this many bytes.
inline constexpr std::size_t kGgufAlignment = 32;
[[nodiscard]] constexpr std::size_t gguf_padded(std::size_t bytes) {
    return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

/// Returns the header, padded to the beginning of the tensor data.
[[nodiscard]] std::string gguf_header(const RandomModelOptions& options, const std::vector<RandomTensor>& tensors);

}  // namespace slipstream::tools
