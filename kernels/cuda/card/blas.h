// cuBLASLt for the module's function table (module_api.h, prompt_launch.h). It is loaded at run time, by name: the
// module works without it, and reports that it is missing.
#pragma once

#include <cstdint>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda::card {

Status blas_version(std::int64_t* version, ErrorText* error);
Status make_blas(std::int32_t device, void** blas, ErrorText* error);
Status free_blas(std::int32_t device, void* blas, ErrorText* error);
Status prompt_product(Place place, const PromptProductLaunch* launch, ErrorText* error);

}  // namespace slipstream::cuda::card
