// cuBLASLt as the module's table has it (module_api.h, prompt_launch.h). Loaded at run time, by name: the module starts
// without it, and says so.
#pragma once

#include <cstdint>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda::card {

Status blas_version(std::int64_t* version, ErrorText* error);
Status make_blas(std::int32_t device, void** blas, ErrorText* error);
Status free_blas(std::int32_t device, void* blas, ErrorText* error);
Status prompt_product(Place place, const PromptProductLaunch* launch, ErrorText* error);

}  // namespace slipstream::cuda::card
