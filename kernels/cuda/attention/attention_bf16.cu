// Attention over BF16 keys and values.
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace slipstream::cuda {

void parallel_bf16(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
    AttentionOn<gpu::Bf16>::parallel(a, first_chunk, n_chunks, stream);
}
void folded_bf16(const AttentionLaunch& a, void* stream) {
    AttentionOn<gpu::Bf16>::folded(a, stream);
}

}  // namespace slipstream::cuda
