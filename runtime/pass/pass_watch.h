// How a pass is run and watched, beside its tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "kernels/base/tensor_view.h"

namespace slipstream {

/// What a caller hears of a running pass, between two layers.
struct PassWatch {
    const std::atomic<bool>* cancel = nullptr;  // turns true: the pass is given up
    std::function<void(double)> on_progress{};  // part of the pass done, after each layer (and piece)
    /// What each layer makes for the cache, [n_tokens, n_kv_heads * head_dim] both, F32: keys before rope, and values.
    /// The views hold for work that is enqueued on the stream of exec() during the call.
    std::function<void(std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v)> on_kv_rows{};
    /// Where on_kv_rows enqueues the same work for every pass of as many tokens, but for what arrays hold that a graph
    /// reads anew (kernels/graph.h): something that stands for it. Null: it does not, and its passes take no graph.
    const void* kv_rows_key = nullptr;
};

/// Which kernels compute the matrices of a pass, where a device has others for prompts (kernels/matmul.h). A row's bits
/// follow from its position and from this alone.
enum class Phase : std::uint8_t {
    Decode,   // any nodes
    Prefill,  // the next positions of the text, within one piece of kPromptPieceTokens; their logits are not wanted
};

}  // namespace slipstream
