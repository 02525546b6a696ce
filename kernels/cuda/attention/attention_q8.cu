// Attention over Q8 keys and values: codes and scales that become half floats in shared memory (attention_q8_ring.cuh).
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_q8_ring.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace slipstream::cuda {

void parallel_q8(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
    AttentionOn<Q8>::parallel(a, first_chunk, n_chunks, stream);
}
void folded_q8(const AttentionLaunch& a, void* stream) {
    AttentionOn<Q8>::folded(a, stream);
}

}  // namespace slipstream::cuda
