#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/noise.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Calls row(i, logits of row i) for all rows, on the threads of the pool. A thread takes one row at a time: a
// vocabulary is enough work.
template <typename Row>
void for_rows(ExecRef exec, const ConstTensorView& logits, const Row& row) {
    static_cast<CpuDevice&>(exec.device).pool().run(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) row(i, float_row(logits, i));
    });
}

// Returns the id of the greatest logit, the lowest of equal ones; -1 if none is above -infinity. NaN is never chosen,
// since comparisons with it are false.
std::int32_t best_of(const float* logits, std::int64_t vocab) {
    std::int32_t best = -1;
    float greatest = kImpossible;
    for (std::int64_t id = 0; id < vocab; ++id)
        if (logits[id] > greatest) {
            greatest = logits[id];
            best = static_cast<std::int32_t>(id);
        }
    return best;
}

// Writes the k best logits of a row, best first, to `ids` and `values`. By insertion, since few values of a row are
// ever among its best.
void best_k_of(const float* logits, std::int64_t vocab, std::int64_t k, std::int32_t* ids, float* values) {
    std::int64_t n = 0;
    for (std::int64_t id = 0; id < vocab; ++id) {
        const float value = logits[id] + 0.0F;
        if (!(value > (n == k ? values[k - 1] : kImpossible))) continue;
        std::int64_t at = n == k ? k - 1 : n++;
        for (; at > 0 && values[at - 1] < value; --at) {  // of equal values the lower id stays first
            values[at] = values[at - 1];
            ids[at] = ids[at - 1];
        }
        values[at] = value;
        ids[at] = static_cast<std::int32_t>(id);
    }
    std::fill(ids + n, ids + k, -1);
    std::fill(values + n, values + k, kImpossible);
}

struct Drawn {
    std::int32_t id = -1;
    float score = kImpossible;
};

// Returns the token that logit_gumbel() draws from a row, and its score. A logarithm is computed only if an upper bound
// of the noise lets the token win; this is exact, since rounding of float sums is monotone.
Drawn draw_of(const float* logits, std::int64_t vocab, std::int64_t position, const LogitGumbelArgs& args) {
    Drawn best;
    const std::int32_t greatest_id = best_of(logits, vocab);
    if (greatest_id < 0) return best;
    const float greatest = logits[greatest_id];
    PhiloxBlock block{};
    for (std::int64_t id = 0; id < vocab; ++id) {
        if (id % 4 == 0)
            block = noise_block(args.seed, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(id / 4),
                                NoiseStream::Sampling);
        if (!(logits[id] > kImpossible)) continue;
        const double below =
            logits[id] == greatest ? 0.0 : static_cast<double>(logits[id]) - static_cast<double>(greatest);
        const auto scaled = static_cast<float>(below / args.temperature);
        if (!(scaled > kImpossible)) continue;
        const std::uint32_t word = block.word[id % 4];
        if (scaled + gumbel_upper_bound(word) < best.score) continue;
        const float score = scaled + gumbel_of(word);
        if (score > best.score) best = {static_cast<std::int32_t>(id), score};
    }
    return best;
}

}  // namespace

void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args) {
    for_rows(exec, args.logits, [&](std::int64_t i, const float* logits) {
        args.ids[i] = best_of(logits, args.logits.cols());
        args.values[i] = args.ids[i] < 0 ? kImpossible : logits[args.ids[i]];
    });
}

void logit_top_k(ExecRef exec, const LogitTopKArgs& args) {
    for_rows(exec, args.logits, [&](std::int64_t i, const float* logits) {
        best_k_of(logits, args.logits.cols(), args.k, args.ids + i * args.k, args.values + i * args.k);
    });
}

void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args) {
    for_rows(exec, args.logits, [&](std::int64_t i, const float* logits) {
        const Drawn drawn = draw_of(logits, args.logits.cols(), args.positions[i], args);
        args.ids[i] = drawn.id;
        args.scores[i] = drawn.score;
    });
}

// Computes the sums in double, as a reference for other devices.
void logit_sum(ExecRef exec, const LogitSumArgs& args) {
    for_rows(exec, args.logits, [&](std::int64_t i, const float* logits) {
        const float greatest = args.greatest[i * args.greatest_stride];
        double sum = 0.0;
        for (std::int64_t id = 0; id < args.logits.cols(); ++id) {
            if (!(logits[id] > kImpossible)) continue;
            sum += logits[id] == greatest
                       ? 1.0
                       : std::exp((static_cast<double>(logits[id]) - static_cast<double>(greatest)) / args.temperature);
        }
        args.sums[i] = static_cast<float>(sum);
    });
}

}  // namespace slipstream::cpu
