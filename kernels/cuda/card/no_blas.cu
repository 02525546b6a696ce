// Used if the toolkit has no header of cuBLASLt: prompts then use our own kernels, as when the library is missing.
#include "kernels/cuda/card/blas.h"

#if !__has_include(<cublasLt.h>)

#include <cstdio>

namespace slipstream::cuda::card {

namespace {

Status none(ErrorText* error) {
    std::snprintf(error->text, sizeof(error->text), "the module was built without its header, cublasLt.h");
    return Status::Failed;
}

}  // namespace

Status blas_version(std::int64_t* version, ErrorText* error) {
    *version = 0;
    return none(error);
}

Status make_blas(std::int32_t, void** blas, ErrorText* error) {
    *blas = nullptr;
    return none(error);
}

Status free_blas(std::int32_t, void*, ErrorText* error) {
    return none(error);
}

Status prompt_product(Place, const PromptProductLaunch*, ErrorText* error) {
    return none(error);
}

}  // namespace slipstream::cuda::card

#endif
