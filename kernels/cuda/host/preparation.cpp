#include "kernels/cuda/host/preparation.h"

#include <optional>

#include "kernels/base/checked_math.h"
#include "kernels/cuda/matmul/matmul_plan.h"

namespace slipstream::cuda {

namespace {

constexpr std::size_t kScratchAlign = 256;

// Returns the format that serves all of these types, or none. F16 weights have none: their activations are scaled by
// the largest number of the row, which an op does not know before it has written the row.
std::optional<ScratchKind> kind_for(const NextWeights& next) {
    std::optional<ScratchKind> kind;
    for (int type = 0; type < kDTypeCount; ++type) {
        if (!next.test(static_cast<std::size_t>(type))) continue;
        const ScratchKind wanted = matmul_scratch_kind(static_cast<DType>(type));
        if (!serves(ScratchKind::Bf16WithSums, wanted)) return std::nullopt;
        if (!kind || !serves(*kind, wanted)) kind = wanted;
    }
    return kind;
}

}  // namespace

std::size_t preparation_bytes(std::int64_t k, std::int64_t n_tokens) {
    return round_up(matmul_scratch(ScratchKind::Bf16WithSums, k, n_tokens).bytes, kScratchAlign);
}

Preparation::Preparation(Op& op, const NextWeights& next, const TensorView& y, std::size_t more_bytes)
    : device_(op.device()) {
    const std::int64_t n_tokens = y.rows();
    const std::int64_t k = y.cols();
    const std::optional<ScratchKind> kind = kind_for(next);
    const std::size_t own = kind && n_tokens > 0 && k > 0 ? preparation_bytes(k, n_tokens) : 0;
    if (own + more_bytes == 0) return;
    std::byte* scratch = op.scratch(own + more_bytes);
    more_ = scratch + own;
    if (own == 0) return;
    target_ = activation_destination(*kind, k, n_tokens, scratch);
    prepared_ = {.x = float_row(y, 0),
                 .x_stride = static_cast<std::int64_t>(y.row_stride_bytes / sizeof(float)),
                 .k = k,
                 .n_tokens = n_tokens,
                 .kind = static_cast<std::int32_t>(*kind),
                 .scratch = scratch,
                 .change = device_.n_changes()};
}

void Preparation::keep() {
    if (target_.fragments != nullptr) device_.keep_prepared(prepared_);
}

ScratchActivations::ScratchActivations(Op& op, const PreparedActivations& wanted)
    : device_(op.device()), activations_(wanted) {
    activations_.change = device_.n_changes();
    if (const PreparedActivations* found = device_.find_prepared(activations_)) {
        found_ = true;
        activations_.kind = found->kind;
    }
    device_.keep_prepared({});
}

}  // namespace slipstream::cuda
