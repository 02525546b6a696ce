// Attention over F16 keys and values.
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace slipstream::cuda {

void parallel_f16(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
    AttentionOn<gpu::Half>::parallel(a, first_chunk, n_chunks, stream);
}
void folded_f16(const AttentionLaunch& a, void* stream) {
    AttentionOn<gpu::Half>::folded(a, stream);
}

}  // namespace slipstream::cuda
