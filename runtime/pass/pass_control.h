// How a pass is run and watched, beside its tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace slipstream {

/// Cancel flag and progress callback of a pass; both are used between two layers.
struct PassControl {
    const std::atomic<bool>* cancel = nullptr;  // if it turns true, the pass is cancelled; null: never
    std::function<void(double)> on_progress{};  // gets the fraction done, after each layer (and prefill chunk)

    [[nodiscard]] bool cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
    /// Reports that `step` of the `n_steps` equal steps of a pass are done. Call before each step. Returns false if the
    /// pass is cancelled.
    [[nodiscard]] bool report_progress(std::int64_t step, std::int64_t n_steps) const {
        if (step > 0 && on_progress) on_progress(static_cast<double>(step) / static_cast<double>(n_steps));
        return !cancelled();
    }
};

/// Selects the kernels that compute the matrices of a pass, if a device has others for prompts (kernels/matmul.h). The
/// bits of a row follow from its position and from the phase alone.
enum class Phase : std::uint8_t {
    Decode,   // any nodes
    Prefill,  // the next positions of the text, within one prefill chunk of kPrefillChunkTokens; their logits are not
              // wanted
};

}  // namespace slipstream
