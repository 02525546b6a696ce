#include "runtime/pass/hidden_tail.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "runtime/pass/index_runs.h"

namespace slipstream {

HiddenTail::HiddenTail(Device& device, std::int64_t d_model, std::int64_t n_kept, std::int64_t max_nodes)
    : d_model_(d_model),
      n_kept_(n_kept),
      kept_(static_cast<std::size_t>(n_kept * d_model)),
      has_row_(static_cast<std::size_t>(max_nodes), false) {
    CHECK(d_model > 0 && n_kept > 0 && max_nodes > 0, "{} rows of {}, {} nodes", n_kept, d_model, max_nodes);
    const auto n_floats = static_cast<std::size_t>(max_nodes * d_model);
    if (device.shares_host_memory()) {
        pageable_.resize(n_floats);
        of_nodes_ = pageable_;
    } else {
        locked_ = device.allocate_host(n_floats * sizeof(float), MemoryTag::Draft, "hidden states for the MTP head");
        of_nodes_ = {reinterpret_cast<float*>(locked_.data()), n_floats};
    }
}

HiddenTail::HostBytes HiddenTail::host_bytes(std::int64_t d_model, std::int64_t n_kept, std::int64_t max_nodes) {
    const std::size_t row = row_bytes(DType::F32, d_model);
    const std::size_t of_nodes = static_cast<std::size_t>(max_nodes) * row;
    return {.all = static_cast<std::size_t>(n_kept) * row + of_nodes, .of_nodes = of_nodes};
}

void HiddenTail::enqueue_copy(ExecRef exec, std::span<const NodeId> nodes, const ConstTensorView& rows) {
    CHECK(rows.rows() == std::ssize(nodes) && rows.cols() == d_model_, "{} rows of {} nodes", rows.rows(),
          nodes.size());
    // The nodes of a pass are mostly one run.
    for_each_run(
        nodes, [](NodeId node) { return node.row; },
        [&](std::int64_t begin, std::int64_t n) {
            exec.stream.copy(row_at(of_nodes_, nodes[begin].row).data(), rows.row(begin),
                             static_cast<std::size_t>(n) * rows.row_stride_bytes);
        });
}

void HiddenTail::mark_copied(std::span<const NodeId> nodes) {
    for (const NodeId node : nodes) has_row_[node.row] = true;
}

void HiddenTail::commit(std::int64_t first, std::span<const NodeId> path) {
    if (first != end_) begin_ = end_ = first;
    for (const NodeId node : path) {
        const std::int64_t position = end_++;
        if (has_row_[node.row])
            std::ranges::copy(row_at(of_nodes_, node.row), row_at(kept_, position % n_kept_).begin());
        else
            begin_ = end_;
    }
    begin_ = std::max(begin_, end_ - n_kept_);
    forget();
}

void HiddenTail::forget() {
    has_row_.assign(has_row_.size(), false);
}

void HiddenTail::truncate(std::int64_t n_tokens) {
    end_ = std::min(end_, n_tokens);
    begin_ = std::min(begin_, end_);
    forget();
}

std::span<const float> HiddenTail::row(std::int64_t position) const {
    CHECK(position >= begin_ && position < end_, "position {} of {} to {}", position, begin_, end_ - 1);
    return std::span(kept_).subspan(static_cast<std::size_t>(position % n_kept_ * d_model_),
                                    static_cast<std::size_t>(d_model_));
}

}  // namespace slipstream
