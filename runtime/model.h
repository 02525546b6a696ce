// A model loaded for one device and one context length: weights ready for the kernels, rope frequencies fixed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "runtime/formats/model_files.h"
#include "runtime/rope.h"

namespace slipstream {

/// What becomes of matrices of a float type when they are packed.
enum class WeightRounding : std::uint8_t {
    None,
    Q8_0,  // half of bfloat16's bytes: for a model whose guesses are checked anyway, never for a target
};

struct LoadOptions {
    std::int64_t context_tokens = 0;  // > 0: the context to serve; rope is fixed for it
    std::optional<DType> kv_dtype;    // F16, BF16, F32; not given: the model's own
    WeightRounding rounding = WeightRounding::None;
    /// Called with bytes done and bytes in all while the weights are brought into memory; may throw to give up.
    std::function<void(std::size_t, std::size_t)> on_progress;
};

class Model {
public:
    /// Brings the weights of `files` into memory of the device: a pack to each layer and one for the LM head, matrices
    /// in the layout of its matmul (kernels/pack_weights.h), norms and biases widened to float. Pages of the files are
    /// given up behind it; only the embedding table is used where it lies in them. `files` and `device` must outlive
    /// the model. Throws FormatError, Unsupported, OutOfBudget, IoError.
    Model(const ModelFiles& files, Device& device, const LoadOptions& options);

    [[nodiscard]] const ModelConfig& config() const { return config_; }
    [[nodiscard]] const ModelWeights& weights() const { return weights_; }
    [[nodiscard]] const RopeFrequencies& rope() const { return rope_; }
    [[nodiscard]] Device& device() const { return *device_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] KvShape kv_shape() const { return {config_.n_kv_heads, config_.head_dim, kv_dtype_}; }

private:
    void widen_small_tensors();
    void make_packs(const ModelFiles& files, const LoadOptions& options);

    Device* device_;
    ModelConfig config_;
    ModelWeights weights_;
    RopeFrequencies rope_;
    std::int64_t context_tokens_;
    DType kv_dtype_;
    Buffer small_tensors_;       // norms and biases as float
    std::vector<Buffer> packs_;  // of the layers, then of the LM head
};

/// What kv_bytes() says at most, for what is larger: still far from overflow when file sizes are added to it.
inline constexpr std::size_t kMaxKvBytes = std::size_t{1} << 62;
/// Bytes of KV that `context_tokens` of this model take, whole chunks, all layers; kMaxKvBytes where that is less.
[[nodiscard]] std::size_t kv_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t context_tokens);

}  // namespace slipstream
