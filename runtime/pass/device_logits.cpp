#include "runtime/pass/device_logits.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/sampling.h"

namespace slipstream {

LogitRequest both(const LogitRequest& first, const LogitRequest& second) {
    CHECK(first.n_ids == 0 && second.n_ids == 0, "{} and {} ids", first.n_ids, second.n_ids);
    LogitRequest needs = first;
    needs.n_best = std::max(first.n_best, second.n_best);
    if (first.sum_temperature == 0.0) needs.sum_temperature = second.sum_temperature;
    if (first.draw_temperature == 0.0) {
        needs.draw_temperature = second.draw_temperature;
        needs.seed = second.seed;
    }
    return needs;
}

DeviceLogits::DeviceLogits(Device& device, std::int64_t max_rows, std::int64_t vocab)
    : max_rows_(max_rows), vocab_(vocab) {
    const std::size_t row_size = row_bytes(DType::F32, vocab);
    host_top_ = device.allocate_host(top_bytes(max_rows), MemoryTag::Activations, "the best logits");
    host_rows_ = device.allocate_host(static_cast<std::size_t>(max_rows) * row_size, MemoryTag::Activations, "logits");
    here_.reserve(max_rows);
    positions_.reserve(max_rows);
}

DeviceLogits::HeadPlaces DeviceLogits::places(std::int64_t n_rows, std::int64_t n_best) {
    const auto n = static_cast<std::size_t>(n_rows);
    const std::size_t best = n * static_cast<std::size_t>(n_best);
    HeadPlaces places{};
    places.values = best * sizeof(TokenId);
    places.sums = places.values + best * sizeof(float);
    places.drawn = places.sums + n * sizeof(float);
    places.scores = places.drawn + n * sizeof(TokenId);
    places.end = places.scores + n * sizeof(float);
    return places;
}

std::size_t DeviceLogits::top_bytes(std::int64_t max_rows) {
    return places(max_rows, kMostTopLogits).end;
}

void DeviceLogits::begin(const ConstTensorView& logits) {
    CHECK(logits.rows() <= max_rows_ && logits.cols() == vocab_, "logits [{}, {}], made for [{}, {}]", logits.rows(),
          logits.cols(), max_rows_, vocab_);
    logits_ = logits;
    here_.assign(logits.rows(), false);
    ++figures_.passes;
    figures_.rows += logits.rows();
}

void DeviceLogits::enqueue_top(ExecRef exec, const ConstTensorView& logits, const LogitRequest& needs,
                               std::span<const std::int64_t> positions, std::byte* top) {
    begin(logits);
    const std::int64_t n = logits.rows();
    CHECK(needs.n_best >= 0 && needs.n_best <= kMostTopLogits && std::ssize(positions) == n && needs.n_ids >= 0 &&
              needs.n_ids <= vocab_,
          "the {} best of {} rows, {} positions, {} ids of {}", needs.n_best, n, positions.size(), needs.n_ids, vocab_);
    ConstTensorView counted = logits;
    if (needs.n_ids > 0) counted.shape[1] = needs.n_ids;
    stream_ = &exec.stream;
    needs_ = needs;
    // A sum needs the greatest logit of the row.
    if (needs.sum_temperature > 0.0) needs_.n_best = std::max<std::int64_t>(needs.n_best, 1);
    places_ = places(n, needs_.n_best);
    positions_.assign(positions.begin(), positions.end());
    const auto part = [top](std::size_t place) { return top + place; };
    auto* ids = reinterpret_cast<TokenId*>(part(places_.ids));
    auto* values = reinterpret_cast<float*>(part(places_.values));
    if (needs_.n_best == 1) logit_argmax(exec, {.logits = counted, .ids = ids, .values = values});
    if (needs_.n_best > 1) logit_top_k(exec, {.logits = counted, .k = needs_.n_best, .ids = ids, .values = values});
    if (needs_.sum_temperature > 0.0)
        logit_sum(exec, {.logits = counted,
                         .greatest = values,
                         .greatest_stride = needs_.n_best,
                         .temperature = needs_.sum_temperature,
                         .sums = reinterpret_cast<float*>(part(places_.sums))});
    if (needs_.draw_temperature > 0.0)
        logit_gumbel(exec, {.logits = counted,
                            .positions = positions_.data(),
                            .seed = needs_.seed,
                            .temperature = needs_.draw_temperature,
                            .ids = reinterpret_cast<TokenId*>(part(places_.drawn)),
                            .scores = reinterpret_cast<float*>(part(places_.scores))});
    // The copy ends after the last part that was requested. Scores are not copied, since the host does not read them.
    std::size_t bytes = places_.sums;
    if (needs_.sum_temperature > 0.0) bytes = places_.drawn;
    if (needs_.draw_temperature > 0.0) bytes = places_.scores;
    if (n == 0 || bytes == 0) return;
    exec.stream.copy(host_top_.data(), top, bytes);
    figures_.bytes += bytes;
}

ConstTensorView DeviceLogits::enqueue_rows(ExecRef exec, const ConstTensorView& logits) {
    begin(logits);
    stream_ = &exec.stream;
    needs_ = {};
    here_.assign(logits.rows(), true);
    const std::size_t bytes = logits.rows() * logits.row_stride_bytes;
    exec.stream.copy(host_rows_.data(), logits.data, bytes);
    figures_.fetched += logits.rows();
    figures_.bytes += bytes;
    return matrix_view(reinterpret_cast<const float*>(host_rows_.data()), logits.rows(), vocab_);
}

TopLogits DeviceLogits::top(std::int64_t row) const {
    CHECK(row >= 0 && row < logits_.rows(), "top logits of row {} of {}", row, logits_.rows());
    TopLogits top;
    if (needs_.n_best > 0) {
        const TokenId* ids = host_part<TokenId>(places_.ids) + row * needs_.n_best;
        const float* values = host_part<float>(places_.values) + row * needs_.n_best;
        const auto n = static_cast<std::size_t>(std::find(ids, ids + needs_.n_best, -1) - ids);
        top.ids = {ids, n};
        top.logits = {values, n};
        top.complete =
            std::ssize(top.ids) < needs_.n_best || needs_.n_best >= (needs_.n_ids > 0 ? needs_.n_ids : vocab_);
    }
    if (needs_.sum_temperature > 0.0) {
        top.sum_temperature = needs_.sum_temperature;
        top.sum = host_part<float>(places_.sums)[row];
    }
    if (needs_.draw_temperature > 0.0) {
        top.draw_temperature = needs_.draw_temperature;
        top.seed = needs_.seed;
        top.position = positions_[row];
        top.drawn = host_part<TokenId>(places_.drawn)[row];
    }
    return top;
}

std::span<const float> DeviceLogits::row(std::int64_t row) {
    CHECK(row >= 0 && row < logits_.rows(), "row {} of {}", row, logits_.rows());
    const std::size_t bytes = row_bytes(DType::F32, vocab_);
    std::byte* host = host_rows_.data() + row * bytes;
    if (!here_[row]) {
        stream_->copy(host, logits_.row(row), bytes);
        stream_->synchronize();
        here_[row] = true;
        ++figures_.fetched;
        figures_.bytes += bytes;
    }
    return {reinterpret_cast<const float*>(host), static_cast<std::size_t>(vocab_)};
}

}  // namespace slipstream
