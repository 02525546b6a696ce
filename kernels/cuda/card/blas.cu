// cuBLASLt of a device: one handle, and for each shape that was used the algorithm that the heuristics name first.
// Their preferences never change: size of the workspace, and no reduction scheme, so that K is never split over kernels
// or atomics. Nothing is timed, so a shape has one algorithm on one GPU with one version of the library.
//
// A toolkit may come without the library's header: then the module is built without it (no_blas.cu).
#include "kernels/cuda/card/blas.h"

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <new>
#include <string>

#include "kernels/cuda/card/runtime.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/matmul/prompt_plan.h"

namespace slipstream::cuda::card {

namespace {

/// The functions of the cuBLASLt library, as its header declares them; all null if it did not load.
struct Library {
    void* file = nullptr;
    decltype(&cublasLtGetVersion) version = nullptr;
    decltype(&cublasLtGetStatusString) status_string = nullptr;
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
    decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
    decltype(&cublasLtMatmul) matmul = nullptr;
    std::string why_not;
};

template <typename Function>
bool find(Library& library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library.file, name));
    if (function == nullptr) library.why_not = std::string("it has no ") + name;
    return function != nullptr;
}

Library load() {
    Library out;
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    // The library is never unloaded: its state ends with the process.
    out.file = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (out.file == nullptr) {
        const char* error = ::dlerror();
        out.why_not = error == nullptr ? name + " does not load" : error;
        return out;
    }
    const bool complete =
        find(out, out.version, "cublasLtGetVersion") && find(out, out.status_string, "cublasLtGetStatusString") &&
        find(out, out.create, "cublasLtCreate") && find(out, out.destroy, "cublasLtDestroy") &&
        find(out, out.desc_create, "cublasLtMatmulDescCreate") &&
        find(out, out.desc_destroy, "cublasLtMatmulDescDestroy") &&
        find(out, out.desc_set, "cublasLtMatmulDescSetAttribute") &&
        find(out, out.layout_create, "cublasLtMatrixLayoutCreate") &&
        find(out, out.layout_destroy, "cublasLtMatrixLayoutDestroy") &&
        find(out, out.layout_set, "cublasLtMatrixLayoutSetAttribute") &&
        find(out, out.preference_create, "cublasLtMatmulPreferenceCreate") &&
        find(out, out.preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
        find(out, out.preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
        find(out, out.heuristic, "cublasLtMatmulAlgoGetHeuristic") && find(out, out.matmul, "cublasLtMatmul");
    if (!complete) out.file = nullptr;
    return out;
}

const Library& library() {
    static const Library loaded = load();  // loaded by the first caller
    return loaded;
}

Status fail(const char* call, cublasStatus_t status, ErrorText* error) {
    std::snprintf(error->text, sizeof(error->text), "%s: %s", call, library().status_string(status));
    return status == CUBLAS_STATUS_ALLOC_FAILED ? Status::OutOfMemory : Status::Failed;
}

/// A product of one shape: y[slab_rows, 512] = weights^T activations, in the column-major view of the library.
struct Shape {
    PromptOperands operands = PromptOperands::Bf16;
    std::int64_t slab_rows = 0;
    std::int64_t k = 0;
    cublasLtMatrixLayout_t weights = nullptr;
    cublasLtMatrixLayout_t activations = nullptr;
    cublasLtMatrixLayout_t product = nullptr;
    cublasLtMatmulAlgo_t algorithm{};

    [[nodiscard]] bool is_of(const PromptProductLaunch& launch) const {
        return operands == launch.operands && slab_rows == launch.slab_rows && k == launch.k;
    }
    void release() {
        for (cublasLtMatrixLayout_t* layout : {&weights, &activations, &product}) {
            if (*layout != nullptr) library().layout_destroy(*layout);
            *layout = nullptr;
        }
    }
};

/// cuBLASLt of one device. A model has few shapes, for which 64 are plenty: four or five matrices, in their types, and
/// those of a draft model.
struct Blas {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    std::array<Shape, 64> shapes{};
    std::size_t n_shapes = 0;

    Blas() = default;
    ~Blas() {
        for (std::size_t i = 0; i < n_shapes; ++i) shapes[i].release();
        if (preference != nullptr) library().preference_destroy(preference);
        if (product != nullptr) library().desc_destroy(product);
        if (handle != nullptr) library().destroy(handle);
    }
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;
};

Status open(Blas& blas, ErrorText* error) {
    const Library& lt = library();
    if (const auto status = lt.create(&blas.handle); status != CUBLAS_STATUS_SUCCESS)
        return fail("cublasLtCreate", status, error);
    if (const auto status = lt.desc_create(&blas.product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        status != CUBLAS_STATUS_SUCCESS)
        return fail("cublasLtMatmulDescCreate", status, error);
    const cublasOperation_t transposed = CUBLAS_OP_T;  // row-major weights are the transpose of a column-major matrix
    if (const auto status = lt.desc_set(blas.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
        status != CUBLAS_STATUS_SUCCESS)
        return fail("cublasLtMatmulDescSetAttribute", status, error);
    if (const auto status = lt.preference_create(&blas.preference); status != CUBLAS_STATUS_SUCCESS)
        return fail("cublasLtMatmulPreferenceCreate", status, error);
    const std::uint64_t workspace_bytes = kPromptBlasBytes;
    const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    const std::uint32_t alignment = 16;  // bytes, assumed for every operand: better alignment must not change the
                                         // algorithm
    struct Wish {
        cublasLtMatmulPreferenceAttributes_t name;
        const void* value;
        std::size_t bytes;
    };
    for (const Wish& wish : {Wish{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes)},
                             Wish{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)},
                             Wish{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment)},
                             Wish{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof(alignment)},
                             Wish{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof(alignment)},
                             Wish{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof(alignment)}})
        if (const auto status = lt.preference_set(blas.preference, wish.name, wish.value, wish.bytes);
            status != CUBLAS_STATUS_SUCCESS)
            return fail("cublasLtMatmulPreferenceSetAttribute", status, error);
    return Status::Ok;
}

// Creates the layouts of a new shape and chooses its algorithm.
Status plan(Blas& blas, Shape& shape, ErrorText* error) {
    const Library& lt = library();
    const cudaDataType_t type = shape.operands == PromptOperands::F16 ? CUDA_R_16F : CUDA_R_16BF;
    const auto m = static_cast<std::uint64_t>(shape.slab_rows);
    const auto k = static_cast<std::uint64_t>(shape.k);
    constexpr auto kTokens = static_cast<std::uint64_t>(kPromptTokens);
    for (const auto status : {lt.layout_create(&shape.weights, type, k, m, shape.k),
                              lt.layout_create(&shape.activations, type, k, kTokens, shape.k),
                              lt.layout_create(&shape.product, CUDA_R_32F, m, kTokens, shape.slab_rows)})
        if (status != CUBLAS_STATUS_SUCCESS) return fail("cublasLtMatrixLayoutCreate", status, error);
    cublasLtMatmulHeuristicResult_t found{};
    int n_found = 0;
    const auto status = lt.heuristic(blas.handle, blas.product, shape.weights, shape.activations, shape.product,
                                     shape.product, blas.preference, 1, &found, &n_found);
    if (status != CUBLAS_STATUS_SUCCESS || n_found == 0 || found.state != CUBLAS_STATUS_SUCCESS)
        return fail("cublasLtMatmulAlgoGetHeuristic",
                    status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status, error);
    shape.algorithm = found.algo;
    return Status::Ok;
}

Status shape_of(Blas& blas, const PromptProductLaunch& launch, Shape** out, ErrorText* error) {
    for (std::size_t i = 0; i < blas.n_shapes; ++i)
        if (blas.shapes[i].is_of(launch)) {
            *out = &blas.shapes[i];
            return Status::Ok;
        }
    if (blas.n_shapes == blas.shapes.size()) {
        std::snprintf(error->text, sizeof(error->text), "more than %zu shapes of matrices", blas.shapes.size());
        return Status::Failed;
    }
    Shape& shape = blas.shapes[blas.n_shapes];
    shape = Shape{.operands = launch.operands, .slab_rows = launch.slab_rows, .k = launch.k};
    if (const Status status = plan(blas, shape, error); status != Status::Ok) {
        shape.release();
        return status;
    }
    ++blas.n_shapes;
    *out = &shape;
    return Status::Ok;
}

}  // namespace

Status blas_version(std::int64_t* version, ErrorText* error) {
    *version = 0;
    if (library().file == nullptr) {
        std::snprintf(error->text, sizeof(error->text), "%s", library().why_not.c_str());
        return Status::Failed;
    }
    *version = static_cast<std::int64_t>(library().version());
    return Status::Ok;
}

Status make_blas(std::int32_t device, void** blas, ErrorText* error) {
    *blas = nullptr;
    std::int64_t version = 0;
    if (const Status status = blas_version(&version, error); status != Status::Ok) return status;
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    auto* made = new (std::nothrow) Blas();
    if (made == nullptr) {
        std::snprintf(error->text, sizeof(error->text), "no host memory");
        return Status::Failed;
    }
    if (const Status status = open(*made, error); status != Status::Ok) {
        delete made;
        return status;
    }
    *blas = made;
    return Status::Ok;
}

Status free_blas(std::int32_t device, void* blas, ErrorText* error) {
    const Status status = use_device(device, error);
    delete static_cast<Blas*>(blas);
    return status;
}

Status prompt_product(Place place, const PromptProductLaunch* launch, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    auto& blas = *static_cast<Blas*>(launch->blas);
    Shape* shape = nullptr;
    if (const Status status = shape_of(blas, *launch, &shape, error); status != Status::Ok) return status;
    const Library& lt = library();
    // If the product is written to y directly, its columns are further apart; the algorithm is the same.
    const std::int64_t stride = launch->product_stride;
    if (const auto status = lt.layout_set(shape->product, CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof(stride));
        status != CUBLAS_STATUS_SUCCESS)
        return fail("cublasLtMatrixLayoutSetAttribute", status, error);
    const float one = 1.0F;
    const float zero = 0.0F;
    const auto status =
        lt.matmul(blas.handle, blas.product, &one, launch->weights, shape->weights, launch->activations,
                  shape->activations, &zero, launch->product, shape->product, launch->product, shape->product,
                  &shape->algorithm, launch->workspace, kPromptBlasBytes, static_cast<cudaStream_t>(place.stream));
    if (status != CUBLAS_STATUS_SUCCESS) return fail("cublasLtMatmul", status, error);
    return Status::Ok;
}

}  // namespace slipstream::cuda::card

#endif
