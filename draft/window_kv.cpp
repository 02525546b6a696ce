#include "draft/window_kv.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/check.h"
#include "kernels/elementwise.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kMostPiece = 64;

Buffer floats(Device& device, std::int64_t rows, std::int64_t cols, std::string_view what) {
    return device.allocate(static_cast<std::size_t>(rows) * row_bytes(DType::F32, cols), MemoryTag::Draft, what);
}

TensorView float_matrix(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
    return matrix_view(reinterpret_cast<float*>(buffer.data()), rows, cols);
}

}  // namespace

WindowKv::WindowKv(const Model& model, const WindowShape& shape, const WindowLimits& limits, ExecRef exec)
    : model_(&model),
      shape_(shape),
      cache_(model.device(), model.kv_shape(), model.config().n_layers, shape.slots + limits.max_depth,
             limits.max_rows),
      stream_(&exec.stream),
      kv_cols_(model.config().n_kv_heads * model.config().head_dim),
      n_positions_(shape.slots + limits.max_depth),
      n_raw_rows_(n_positions_ + limits.max_rows),
      piece_(std::min(kMostPiece, limits.max_rows)) {
    CHECK(shape.sinks >= 0 && shape.recent >= 1 && shape.sinks + shape.recent < shape.slots && limits.max_rows >= 1 &&
              limits.max_depth >= 1,
          "a window of {} sinks and {} recent in {} slots", shape.sinks, shape.recent, shape.slots);
    Device& device = model.device();
    raw_ = floats(device, 2 * model.config().n_layers * n_raw_rows_, kv_cols_, "the draft model's window");
    cos_sin_ = floats(device, n_positions_, model.config().n_rotated, "the draft model's rope angles");
    keys_ = floats(device, piece_, kv_cols_, "keys of a sliding window");
    values_ = floats(device, piece_, kv_cols_, "values of a sliding window");
    moved_.reserve(static_cast<std::size_t>(piece_));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n_positions_));
    std::iota(positions.begin(), positions.end(), 0);
    rope_table(exec, {.positions = positions.data(),
                      .inverse_frequency = model.rope().inverse_frequency.data(),
                      .magnitude = model.rope().magnitude,
                      .cos_sin = float_matrix(cos_sin_, n_positions_, model.config().n_rotated)});
    stream_->synchronize();  // `positions` ends here
    watch_.on_kv_rows = [this](std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v) {
        keep_rows(layer, k, v);
    };
}

std::int64_t WindowKv::n_recent() const {
    return std::max<std::int64_t>(0, cache_.n_committed() - shape_.sinks);
}

// Row `row` of a layer's K (part 0) or V (part 1) in raw_.
std::byte* WindowKv::raw_row(std::int64_t layer, std::int64_t part, std::int64_t row) const {
    return raw_.data() +
           static_cast<std::size_t>((2 * layer + part) * n_raw_rows_ + row) * row_bytes(DType::F32, kv_cols_);
}

std::int64_t WindowKv::row_of_slot(std::int64_t slot) const {
    if (slot < shape_.sinks) return slot;
    return shape_.sinks + (slot + n_dropped_ - shape_.sinks) % (n_positions_ - shape_.sinks);
}

const PassWatch& WindowKv::watch(std::span<const NodeId> nodes) {
    pass_nodes_ = nodes;
    return watch_;
}

void WindowKv::keep_rows(std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v) {
    CHECK(k.rows() == std::ssize(pass_nodes_) && k.packed() && v.packed(), "{} rows of {} nodes", k.rows(),
          pass_nodes_.size());
    // Rows of a pass were mostly added together: one copy a run of them.
    for (std::size_t begin = 0, end = 0; begin < pass_nodes_.size(); begin = end) {
        for (end = begin + 1; end < pass_nodes_.size() && pass_nodes_[end] == pass_nodes_[end - 1] + 1;) ++end;
        const std::size_t bytes = (end - begin) * row_bytes(DType::F32, kv_cols_);
        const std::int64_t to = n_positions_ + pass_nodes_[begin];
        stream_->copy(raw_row(layer, 0, to), k.row(static_cast<std::int64_t>(begin)), bytes);
        stream_->copy(raw_row(layer, 1, to), v.row(static_cast<std::int64_t>(begin)), bytes);
    }
}

void WindowKv::commit(ExecRef exec, std::span<const NodeId> path) {
    const std::size_t bytes = row_bytes(DType::F32, kv_cols_);
    for (std::int64_t layer = 0; layer < cache_.n_layers(); ++layer)
        for (std::int64_t part = 0; part < 2; ++part)
            for (std::size_t i = 0; i < path.size(); ++i)
                exec.stream.copy(raw_row(layer, part, row_of_slot(cache_.n_committed() + static_cast<std::int64_t>(i))),
                                 raw_row(layer, part, n_positions_ + path[i]), bytes);
    cache_.commit(exec, path);
}

void WindowKv::slide(ExecRef exec, std::int64_t n_keep) {
    CHECK(n_keep >= 0 && n_keep <= n_recent(), "{} of {} recent tokens", n_keep, n_recent());
    if (n_keep == n_recent()) return cache_.forget();
    n_dropped_ += n_recent() - n_keep;
    cache_.truncate(shape_.sinks);
    for (std::int64_t left = n_keep; left > 0;) {
        const std::int64_t count = std::min(left, piece_);
        place_rows(exec, count);
        left -= count;
    }
}

// Commits the rows of raw_ that belong into the next `count` slots.
void WindowKv::place_rows(ExecRef exec, std::int64_t count) {
    const ModelConfig& config = model_->config();
    const std::int64_t first = cache_.n_committed();
    const TensorView keys = float_matrix(keys_, count, kv_cols_);
    const TensorView values = float_matrix(values_, count, kv_cols_);
    const TensorView cos_sin = float_matrix(cos_sin_, n_positions_, config.n_rotated).slice_rows(first, count);
    moved_.clear();
    for (std::int64_t i = 0; i < count; ++i)
        moved_.push_back(cache_.add_node(moved_.empty() ? kCommittedTip : moved_.back()));
    for (std::int64_t layer = 0; layer < cache_.n_layers(); ++layer) {
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t row = row_of_slot(first + i);
            exec.stream.copy(keys.row(i), raw_row(layer, 0, row), keys.row_stride_bytes);
            exec.stream.copy(values.row(i), raw_row(layer, 1, row), values.row_stride_bytes);
        }
        rope(exec, {.x = keys, .cos_sin = cos_sin, .head_dim = config.head_dim, .layout = config.rope_layout});
        kv_write(exec, {.shape = cache_.shape(),
                        .k = keys,
                        .v = values,
                        .scratch_k = cache_.scratch_k(layer),
                        .scratch_v = cache_.scratch_v(layer),
                        .scratch_rows = moved_.data()});
    }
    cache_.commit(exec, moved_);
}

void WindowKv::jump(std::int64_t next) {
    CHECK(cache_.n_committed() >= shape_.sinks && next >= shape_.sinks, "to {} with {} of {} sinks", next,
          cache_.n_committed(), shape_.sinks);
    cache_.truncate(shape_.sinks);
    n_dropped_ = next - shape_.sinks;
}

void WindowKv::truncate(std::int64_t n_tokens) {
    CHECK(n_tokens >= 0 && n_tokens <= this->n_tokens(), "{} of {} tokens", n_tokens, this->n_tokens());
    const bool ends_among_dropped = n_dropped_ > 0 && n_tokens <= shape_.sinks + n_dropped_;
    if (ends_among_dropped) n_dropped_ = 0;
    cache_.truncate(ends_among_dropped ? std::min(n_tokens, shape_.sinks) : n_tokens - n_dropped_);
}

}  // namespace slipstream::draft
