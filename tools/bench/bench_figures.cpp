#include "tools/bench/bench_figures.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/tensor_view.h"
#include "runtime/plan/expert_bytes.h"

namespace slipstream::tools {

namespace {

double view_bytes(const ConstTensorView& view) {
    return view.empty() ? 0.0
                        : static_cast<double>(view.rows()) * static_cast<double>(row_bytes(view.dtype, view.cols()));
}

template <typename Value>
Summary summary_of(const std::vector<PhaseSample>& samples, const Value& value) {
    std::vector<double> values;
    for (const PhaseSample& sample : samples) values.push_back(value(sample));
    return summarize(std::move(values));
}

}  // namespace

Summary summarize(std::vector<double> samples) {
    CHECK(!samples.empty());
    std::sort(samples.begin(), samples.end());
    const std::size_t middle = samples.size() / 2;
    const double median = samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2.0;
    return {.median = median, .lowest = samples.front(), .highest = samples.back()};
}

WeightBytes weight_bytes(const ModelConfig& config, const ModelWeights& weights, std::int64_t n_tokens) {
    WeightBytes bytes;
    for_each_tensor(weights, [&](const TensorInfo& info, std::int64_t layer, const ConstTensorView& view) {
        if (info.role != TensorRole::TokenEmbedding && layer >= std::ssize(weights.layers))
            bytes.head += view_bytes(view);
    });
    const std::size_t all = expert_bytes(config, weights, static_cast<double>(n_tokens)).read;
    bytes.layers = static_cast<double>(all) - bytes.head;
    return bytes;
}

double kv_read_bytes(const ModelConfig& config, std::span<const KvLayout> kv, std::int64_t depth,
                     std::int64_t n_tokens) {
    double bytes = 0.0;
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const std::int64_t window = config.window(layer);
        // The first token of the pass sees the earliest position: its window holds `window` positions, itself included.
        const std::int64_t committed = window == 0 ? depth : std::min(depth, window - 1);
        bytes += static_cast<double>(committed + n_tokens) * 2.0 * static_cast<double>(kv[layer].scratch_row_bytes());
    }
    return bytes;
}

PhaseSample PhaseFigures::total() const {
    PhaseSample sum;
    for (const PhaseSample& sample : samples) {
        sum.tokens += sample.tokens;
        sum.seconds += sample.seconds;
        sum.weight_bytes += sample.weight_bytes;
        sum.kv_bytes += sample.kv_bytes;
    }
    return sum;
}

Summary PhaseFigures::seconds() const {
    return summary_of(samples, [](const PhaseSample& sample) { return sample.seconds; });
}

Summary PhaseFigures::tokens_per_second() const {
    return summary_of(samples,
                      [](const PhaseSample& sample) { return static_cast<double>(sample.tokens) / sample.seconds; });
}

std::int64_t DraftFigures::tokens() const {
    std::int64_t n = 0;
    for (const PhaseSample& sample : decode) n += sample.tokens;
    return n;
}

double DraftFigures::seconds() const {
    double sum = 0.0;
    for (const PhaseSample& sample : decode) sum += sample.seconds;
    return sum;
}

double DraftFigures::tokens_per_second() const {
    return seconds() > 0.0 ? static_cast<double>(tokens()) / seconds() : 0.0;
}

double DraftFigures::tokens_per_pass() const {
    return passes > 0 ? static_cast<double>(tokens()) / static_cast<double>(passes) : 0.0;
}

double DraftFigures::nodes_per_pass() const {
    return passes > 0 ? static_cast<double>(nodes) / static_cast<double>(passes) : 0.0;
}

std::optional<Summary> paired_ratio(const DraftFigures& column, const DraftFigures& other) {
    CHECK(column.decode.size() == other.decode.size(), "{} and {} samples", column.decode.size(), other.decode.size());
    std::vector<double> ratios;
    for (std::size_t i = 0; i < column.decode.size(); ++i) {
        const PhaseSample& own = column.decode[i];
        const PhaseSample& base = other.decode[i];
        if (own.tokens > 0 && base.tokens > 0)
            ratios.push_back(static_cast<double>(own.tokens) / own.seconds * base.seconds /
                             static_cast<double>(base.tokens));
    }
    if (ratios.empty()) return std::nullopt;
    return summarize(std::move(ratios));
}

std::string_view bench_mode_name(BenchMode mode) {
    switch (mode) {
        case BenchMode::Plain:
            return "plain";
        case BenchMode::Prompts:
            return "prompts";
        case BenchMode::Passes:
            return "passes";
    }
    return "?";
}

}  // namespace slipstream::tools
