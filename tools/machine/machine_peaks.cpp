// Measures the peaks by loops of loads and of multiply-adds, with AVX2 or AVX-512 if the CPU supports them.

#include "tools/machine/machine_peaks.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/target.h"
#include "kernels/cpu_device.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream {

namespace {

constexpr int kRuns = 7;
constexpr int kChains = 12;                    // independent sums: more than latency times ports of the FMA units
constexpr std::int64_t kFmaSteps = 2'000'000;  // steps of kChains multiply-adds
constexpr std::int64_t kReadPieceBytes = 1 << 20;

// Results of the loops go here, so that the compiler keeps the loops.
std::atomic<std::uint64_t> sink{0};

std::uint64_t read_plain(const std::byte* data, std::int64_t bytes) {
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i + 8 <= bytes; i += 8) {
        std::uint64_t word;
        std::memcpy(&word, data + i, sizeof(word));
        sum += word;
    }
    return sum;
}

float fma_plain() {
    float sums[kChains] = {};
    for (std::int64_t i = 0; i < kFmaSteps; ++i)
        for (float& sum : sums) sum = sum * 0.5F + 1.0F;
    return *std::max_element(sums, sums + kChains);
}

#if defined(__x86_64__)

/// Reads the four quarters of `data` at the same time: more cache lines are in flight than the hardware prefetcher has
/// for a single stream.
SLIPSTREAM_AVX2 std::uint64_t read_avx2(const std::byte* data, std::int64_t bytes) {
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    const std::int64_t quarter = bytes / 4 / 64 * 64;
    for (std::int64_t i = 0; i < quarter; i += 64) {
        for (int s = 0; s < 4; ++s) {
            const std::byte* at = data + s * quarter + i;
            _mm_prefetch(reinterpret_cast<const char*>(at + 2048), _MM_HINT_T0);
            sums[s] = _mm256_add_epi64(sums[s], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
            sums[s] = _mm256_add_epi64(sums[s], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32)));
        }
    }
    const __m256i sum = _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
    return static_cast<std::uint64_t>(_mm256_extract_epi64(sum, 0)) +
           static_cast<std::uint64_t>(_mm256_extract_epi64(sum, 3));
}

SLIPSTREAM_AVX2 float fma_avx2() {
    __m256 sums[kChains];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    const __m256 half = _mm256_set1_ps(0.5F);
    const __m256 one = _mm256_set1_ps(1.0F);
    for (std::int64_t i = 0; i < kFmaSteps; ++i) {
#pragma GCC unroll 12
        for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, half, one);
    }
    float result = 0;
    for (const __m256& sum : sums) result += _mm256_cvtss_f32(sum);
    return result;
}

SLIPSTREAM_AVX512 float fma_avx512() {
    __m512 sums[kChains];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const __m512 half = _mm512_set1_ps(0.5F);
    const __m512 one = _mm512_set1_ps(1.0F);
    for (std::int64_t i = 0; i < kFmaSteps; ++i) {
#pragma GCC unroll 12
        for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, half, one);
    }
    float result = 0;
    for (const __m512& sum : sums) result += _mm512_cvtss_f32(sum);
    return result;
}

#endif

struct Loops {
    std::uint64_t (*read)(const std::byte* data, std::int64_t bytes) = read_plain;
    float (*fma)() = fma_plain;
    int lanes = 1;
};

Loops widest_loops() {
#if defined(__x86_64__)
    if (best_cpu_form() >= CpuForm::Avx512) return {read_avx2, fma_avx512, 16};
    if (best_cpu_form() == CpuForm::Avx2) return {read_avx2, fma_avx2, 8};
#endif
    return {};
}

/// Returns the time of the fastest of kRuns runs, in seconds.
template <typename Run>
double best_seconds(int n_threads, const Run& run) {
    double best = 1e30;
    for (int i = 0; i < kRuns; ++i) {
        const double start = busy_seconds(n_threads);
        run();
        best = std::min(best, busy_seconds(n_threads) - start);
    }
    return best;
}

}  // namespace

double busy_seconds(int n_threads) {
    if (n_threads > 1)
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

MachinePeaks measure_peaks(ThreadPool& pool, const std::byte* data, std::size_t bytes) {
    const Loops loops = widest_loops();
    const std::int64_t pieces = static_cast<std::int64_t>(bytes) / kReadPieceBytes;
    const double read_s = best_seconds(pool.n_threads(), [&] {
        pool.run(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
            sink += loops.read(data + begin * kReadPieceBytes, (end - begin) * kReadPieceBytes);
        });
    });
    const double fma_s = best_seconds(pool.n_threads(), [&] {
        pool.run(pool.n_threads(), 1,
                 [&](std::int64_t, std::int64_t, int) { sink += static_cast<std::uint64_t>(loops.fma()); });
    });
    return {.read_gb_per_s = static_cast<double>(pieces * kReadPieceBytes) / read_s * 1e-9,
            .fma_gflop_per_s =
                2.0 * loops.lanes * kChains * static_cast<double>(kFmaSteps) * pool.n_threads() / fma_s * 1e-9};
}

}  // namespace slipstream
