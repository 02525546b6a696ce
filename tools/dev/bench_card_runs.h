// The measurements of bench_card, in the order of what is wanted most, so that a run that is short of time has it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"
#include "tools/dev/bench_card_clock.h"
#include "tools/dev/bench_card_figures.h"

namespace slipstream::tools {

/// How large everything is. The defaults are for cards; tests have their own.
struct CardSizes {
    std::vector<std::size_t> copy_bytes{std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{16} << 20,
                                        std::size_t{64} << 20};
    std::size_t copied_bytes = std::size_t{512} << 20;  // one way, for each figure
    std::size_t memory_bytes = std::size_t{512} << 20;  // of the copy within the card, and of the head start

    std::int64_t rows = 4096;  // of a matrix
    std::int64_t cols = 14336;
    std::int64_t n_matrices = 32;  // used in turn: more than any cache holds
    std::vector<DType> first_types{DType::BF16, DType::Q4_K, DType::Q8_0, DType::F16, DType::Q6_K};
    std::vector<DType> other_types{DType::Q5_K, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q3_K};
    std::vector<std::int64_t> first_tokens{1, 8, 16, 64, 512};
    std::vector<std::int64_t> other_tokens{2, 4, 32, 128, 256, 1024};

    std::int64_t n_q_heads = 32;
    std::int64_t n_kv_heads = 8;
    std::int64_t head_dim = 128;
    std::vector<std::int64_t> contexts{32768, 4096, 131072};
    std::int64_t tree_tokens = 64;
    std::int64_t prefill_tokens = 512;

    std::int64_t d_model = 4096;  // of the small ops
    std::int64_t d_ff = 14336;
    std::int64_t vocab = 128256;
    std::vector<std::int64_t> op_tokens{1, 64, 512};
    std::int64_t n_launches = 512;
};

struct CardBench {
    CudaDevice& device;
    Stream& stream;  // compute
    const CardSizes& sizes;
    CardReport& report;
    CardClock& clock;
    std::chrono::steady_clock::time_point deadline;
    std::int64_t left_out = 0;

    [[nodiscard]] ExecRef exec() { return {device, stream}; }
    /// Whether there is time for a measurement; one that is refused is counted. Throws Interrupted.
    [[nodiscard]] bool has_time();
};

/// Pinned host memory to the card, back, and both at once, by the size of a copy.
void bench_card_copies(CardBench& bench);
/// A small copy on a compute stream while large ones are under way; what timing each copy costs.
void bench_card_small_copies(CardBench& bench);
void bench_card_copy_events(CardBench& bench);
/// A large copy within the card; completes report.peaks. Comes first.
void bench_card_memory(CardBench& bench);
/// Every type of `types` by every n of `n_tokens`.
void bench_card_matmul(CardBench& bench, const std::vector<DType>& types, const std::vector<std::int64_t>& n_tokens);
/// One token, a tree and a piece of a prompt behind each context.
void bench_card_attention(CardBench& bench);
/// Everything between matmuls, and choosing tokens.
void bench_card_ops(CardBench& bench);
/// What a launch costs the host and the card where there is nothing to do.
void bench_card_launches(CardBench& bench);

/// All of them.
void run_card_bench(CardBench& bench);

}  // namespace slipstream::tools
