// The scalar variant of an attention step, with which the other variants are compared.
#include "kernels/base/float16.h"
#include "kernels/cpu/attention/attention_step.h"

namespace slipstream::cpu {

namespace {

float widen(float value) {
    return value;
}
float widen(Half value) {
    return to_float(value);
}
float widen(BFloat16 value) {
    return to_float(value);
}

// Returns element `index` of the keys or values of a step at `base`, in double; of Q8_0, the code times the scale of
// dimension d of slot `slot`.
template <typename Element>
double element(const std::byte* base, std::int64_t index, std::int64_t, std::int64_t, std::int64_t) {
    return static_cast<double>(widen(reinterpret_cast<const Element*>(base)[index]));
}
template <>
double element<std::int8_t>(const std::byte* base, std::int64_t index, std::int64_t head_dim, std::int64_t slot,
                            std::int64_t d) {
    const BFloat16 scale{step_scales(base, head_dim)[d / kQ8Block * kStepTokens + slot]};
    return static_cast<double>(reinterpret_cast<const std::int8_t*>(base)[index]) *
           static_cast<double>(to_float(scale));
}

template <typename Element>
void reduce(const AttentionStep& step, QueryState& state) {
    float weights[kStepTokens] = {};
    for (int j = step.first_slot; j < step.end_slot; ++j) {
        double score = 0.0;
        for (std::int64_t d = 0; d < step.head_dim; ++d)
            score +=
                static_cast<double>(state.q[d]) * element<Element>(step.k, d * kStepTokens + j, step.head_dim, j, d);
        weights[j] = static_cast<float>(score);
    }
    const float keep =
        step.softcap == 0.0F ? softmax_step<false>(weights, step, state) : softmax_step<true>(weights, step, state);
    for (std::int64_t d = 0; d < step.head_dim; ++d) {
        double sum = static_cast<double>(state.o[d]) * static_cast<double>(keep);
        for (int j = step.first_slot; j < step.end_slot; ++j)
            sum +=
                static_cast<double>(weights[j]) * element<Element>(step.v, j * step.head_dim + d, step.head_dim, j, d);
        state.o[d] = static_cast<float>(sum);
    }
}

}  // namespace

void widen_step_scalar(DType type, const std::byte* src, const std::byte*, float* dst, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
        dst[i] = type == DType::F16 ? to_float(reinterpret_cast<const Half*>(src)[i])
                                    : to_float(reinterpret_cast<const BFloat16*>(src)[i]);
}

void reduce_step_scalar(const AttentionStep& step, QueryState* const* batch, int n_batch) {
    for (int i = 0; i < n_batch; ++i) {
        switch (step.dtype) {
            case DType::F32:
                reduce<float>(step, *batch[i]);
                break;
            case DType::F16:
                reduce<Half>(step, *batch[i]);
                break;
            case DType::BF16:
                reduce<BFloat16>(step, *batch[i]);
                break;
            default:
                reduce<std::int8_t>(step, *batch[i]);
                break;
        }
    }
}

}  // namespace slipstream::cpu
