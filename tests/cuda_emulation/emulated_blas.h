// What stands for cuBLASLt on the emulated machine: the same product, in an order of its own.
#pragma once

#include "kernels/cuda/module_api.h"

namespace slipstream::emulation {

/// Module::prompt_product. Checks what the library demands: alignment, strides. Sums 4 interleaved chains over k from
/// the last to the first, then adds them: bits that no kernel of ours makes, so that tests can tell who computed what.
[[nodiscard]] cuda::Status prompt_product(cuda::Place place, const cuda::PromptProductLaunch* launch,
                                          cuda::ErrorText* error);

}  // namespace slipstream::emulation
