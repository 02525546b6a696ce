#include "draft/models/window_kv.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

WindowKv::WindowKv(const Model& model, const WindowShape& shape, const WindowLimits& limits)
    : shape_(shape), cache_(model.device(), model.kv_layouts(), shape.slots + limits.max_depth, limits.max_rows) {
    CHECK(shape.sinks >= 0 && shape.recent >= 1 && shape.sinks + shape.recent < shape.slots && limits.max_rows >= 1 &&
              limits.max_depth >= 1,
          "a window of {} sinks and {} recent in {} slots", shape.sinks, shape.recent, shape.slots);
}

std::int64_t WindowKv::n_recent() const {
    return std::max<std::int64_t>(0, cache_.n_committed() - shape_.sinks);
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
