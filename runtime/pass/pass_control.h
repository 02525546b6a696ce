// How a pass is run and watched, beside its tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace slipstream {

/// What a caller hears of a running pass, between two layers.
struct PassControl {
    const std::atomic<bool>* cancel = nullptr;  // turns true: the pass is given up
    std::function<void(double)> on_progress{};  // part of the pass done, after each layer (and prefill chunk)

    [[nodiscard]] bool cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
    /// Called before each of `n_steps` equal steps of the pass, `step` of them done: reports the progress. False: the
    /// pass is cancelled.
    [[nodiscard]] bool report_progress(std::int64_t step, std::int64_t n_steps) const {
        if (step > 0 && on_progress) on_progress(static_cast<double>(step) / static_cast<double>(n_steps));
        return !cancelled();
    }
};

/// Which kernels compute the matrices of a pass, where a device has others for prompts (kernels/matmul.h). A row's bits
/// follow from its position and from this alone.
enum class Phase : std::uint8_t {
    Decode,   // any nodes
    Prefill,  // the next positions of the text, within one prefill chunk of kPrefillChunkTokens; their logits are not
              // wanted
};

}  // namespace slipstream
