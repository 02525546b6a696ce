#include "draft/rungs/window_kv.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/check.h"
#include "kernels/elementwise.h"
#include "kernels/move_rows.h"

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
      kv_cols_(model.config().n_kv_heads * model.config().head_dim),
      n_positions_(shape.slots + limits.max_depth),
      n_raw_rows_(n_positions_ + limits.max_rows),
      piece_(std::min(kMostPiece, limits.max_rows)) {
    CHECK(shape.sinks >= 0 && shape.recent >= 1 && shape.sinks + shape.recent < shape.slots && limits.max_rows >= 1 &&
              limits.max_depth >= 1,
          "a window of {} sinks and {} recent in {} slots", shape.sinks, shape.recent, shape.slots);
    if (!shape.slides) return;
    Device& device = model.device();
    raw_ = floats(device, 2 * model.config().n_layers * n_raw_rows_, kv_cols_, "the draft model's window");
    cos_sin_ = floats(device, n_positions_, model.config().n_rotated, "the draft model's rope angles");
    moving_ = floats(device, 2 * piece_, kv_cols_, "keys and values of a sliding window");
    moved_.reserve(static_cast<std::size_t>(piece_));
    pass_nodes_.reserve(static_cast<std::size_t>(limits.max_rows));
    from_rows_.reserve(static_cast<std::size_t>(limits.max_rows));
    to_rows_.reserve(static_cast<std::size_t>(limits.max_rows));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n_positions_));
    std::iota(positions.begin(), positions.end(), 0);
    rope_table(exec, {.positions = positions.data(),
                      .inverse_frequency = model.rope().inverse_frequency.data(),
                      .magnitude = model.rope().magnitude,
                      .cos_sin = float_matrix(cos_sin_, n_positions_, model.config().n_rotated)});
    exec.stream.synchronize();  // `positions` ends here
}

std::int64_t WindowKv::n_recent() const {
    return std::max<std::int64_t>(0, cache_.n_committed() - shape_.sinks);
}

std::size_t WindowKv::raw_plane_bytes() const {
    return static_cast<std::size_t>(n_raw_rows_) * row_bytes(DType::F32, kv_cols_);
}

// Row `row` of a layer's K (part 0) or V (part 1) in raw_.
std::byte* WindowKv::raw_row(std::int64_t layer, std::int64_t part, std::int64_t row) const {
    return raw_.data() + static_cast<std::size_t>(2 * layer + part) * raw_plane_bytes() +
           static_cast<std::size_t>(row) * row_bytes(DType::F32, kv_cols_);
}

std::int64_t WindowKv::row_of_slot(std::int64_t slot) const {
    if (slot < shape_.sinks) return slot;
    return shape_.sinks + (slot + n_dropped_ - shape_.sinks) % (n_positions_ - shape_.sinks);
}

PassHooks* WindowKv::hooks(std::span<const NodeId> nodes) {
    if (!shape_.slides) return nullptr;
    pass_nodes_.assign(nodes.begin(), nodes.end());
    return this;
}

// As they are: a row of floats, "rounded" to float.
void WindowKv::on_rows(ExecRef exec, std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v) {
    CHECK(k.rows() == std::ssize(pass_nodes_), "{} rows of {} nodes", k.rows(), pass_nodes_.size());
    KvShape floats_of = cache_.shape();
    floats_of.dtype = DType::F32;
    kv_write(exec, {.shape = floats_of,
                    .k = k,
                    .v = v,
                    .scratch_k = raw_row(layer, 0, n_positions_),
                    .scratch_v = raw_row(layer, 1, n_positions_),
                    .scratch_rows = pass_nodes_.data()});
}

void WindowKv::commit(ExecRef exec, std::span<const NodeId> path) {
    if (!shape_.slides) return cache_.commit(exec, path);
    from_rows_.clear();
    to_rows_.clear();
    for (const NodeId node : path) {
        to_rows_.push_back(static_cast<std::int32_t>(row_of_slot(cache_.n_committed() + std::ssize(to_rows_))));
        from_rows_.push_back(static_cast<std::int32_t>(n_positions_ + node));
    }
    move_rows(exec, {.src = raw_.data(),
                     .src_plane_bytes = raw_plane_bytes(),
                     .dst = raw_.data(),
                     .dst_plane_bytes = raw_plane_bytes(),
                     .n_planes = 2 * cache_.n_layers(),
                     .row_bytes = row_bytes(DType::F32, kv_cols_),
                     .src_rows = from_rows_.data(),
                     .dst_rows = to_rows_.data(),
                     .n_rows = std::ssize(path)});
    cache_.commit(exec, path);
}

void WindowKv::slide(ExecRef exec, std::int64_t n_keep) {
    CHECK(n_keep >= 0 && n_keep <= n_recent(), "{} of {} recent tokens", n_keep, n_recent());
    if (n_keep == n_recent()) return cache_.forget();
    CHECK(shape_.slides, "a window that holds every text slides");
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
    const std::size_t plane_bytes = static_cast<std::size_t>(piece_) * row_bytes(DType::F32, kv_cols_);
    const TensorView keys = float_matrix(moving_, count, kv_cols_);
    TensorView values = keys;
    values.data += plane_bytes;
    const TensorView cos_sin = float_matrix(cos_sin_, n_positions_, config.n_rotated).slice_rows(first, count);
    moved_.clear();
    from_rows_.clear();
    to_rows_.clear();
    for (std::int64_t i = 0; i < count; ++i) {
        moved_.push_back(cache_.add_node(moved_.empty() ? kCommittedTip : moved_.back()));
        from_rows_.push_back(static_cast<std::int32_t>(row_of_slot(first + i)));
        to_rows_.push_back(static_cast<std::int32_t>(i));
    }
    for (std::int64_t layer = 0; layer < cache_.n_layers(); ++layer) {
        move_rows(exec, {.src = raw_row(layer, 0, 0),
                         .src_plane_bytes = raw_plane_bytes(),
                         .dst = keys.data,
                         .dst_plane_bytes = plane_bytes,
                         .n_planes = 2,
                         .row_bytes = keys.row_stride_bytes,
                         .src_rows = from_rows_.data(),
                         .dst_rows = to_rows_.data(),
                         .n_rows = count});
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
    CHECK(shape_.slides && cache_.n_committed() >= shape_.sinks && next >= shape_.sinks, "to {} with {} of {} sinks",
          next, cache_.n_committed(), shape_.sinks);
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
