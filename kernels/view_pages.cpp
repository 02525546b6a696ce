// Argument checks of the ops of view pages, and dispatch to the device's backend.
#include "kernels/view_pages.h"

#include <cmath>

#include "kernels/op_table.h"

namespace slipstream {

namespace {

void check_shape(const KvLayout& shape) {
    CHECK(shape.n_kv_heads > 0 && shape.head_dim > 0, "view pages of {} heads of {}", shape.n_kv_heads, shape.head_dim);
}

}  // namespace

void view_pages_write(ExecRef exec, const PagesWriteArgs& args) {
    check_shape(args.shape);
    CHECK(is_kv_type(args.shape.dtype), "view pages of rows of {}", kv_type_name(args.shape.dtype));
    CHECK(args.n_fills >= 0 &&
              (args.n_fills == 0 || (args.fills != nullptr && args.from != nullptr && args.pages != nullptr)),
          "view_pages_write of {} pages", args.n_fills);
    if (args.n_fills == 0) return;
    constexpr std::int64_t kChunkSteps = kChunkTokens / kPageSlots;
    for (std::int64_t i = 0; i < args.n_fills; ++i) {
        const PageFill& fill = args.fills[i];
        CHECK(fill.head >= 0 && fill.head < args.shape.n_kv_heads && fill.from_step >= 0 && fill.n_slots >= 1 &&
                  fill.n_slots <= kPageSlots && fill.page >= 0 && args.from[fill.from_step / kChunkSteps] != nullptr,
              "page {} of {} slots of step {}, head {} of {}", fill.page, fill.n_slots, fill.from_step, fill.head,
              args.shape.n_kv_heads);
    }
    exec.device.ops().view_pages_write(exec, args);
}

void view_pages_attention(ExecRef exec, const PagesAttentionArgs& args) {
    check_shape(args.shape);
    const std::int64_t n = args.q.rows();
    CHECK(args.n_q_heads > 0 && args.n_q_heads % args.shape.n_kv_heads == 0 && args.q.dtype == DType::F32 &&
              args.q.cols() == args.n_q_heads * args.shape.head_dim,
          "attention over pages of [{}, {}], {} heads over {} of {}", n, args.q.cols(), args.n_q_heads,
          args.shape.n_kv_heads, args.shape.head_dim);
    CHECK(args.softcap >= 0.0F && std::isfinite(args.softcap), "attention over pages with a softcap of {}",
          args.softcap);
    CHECK(args.sinks.empty() ||
              (args.sinks.dtype == DType::F32 && args.sinks.rows() == 1 && args.sinks.cols() == args.n_q_heads),
          "attention of {} heads with {} sinks", args.n_q_heads, args.sinks.cols());
    if (n == 0) return;
    CHECK(args.ranges != nullptr && args.most_slots >= 0 && (args.most_slots == 0 || args.pages != nullptr) &&
              args.state != nullptr && reinterpret_cast<std::uintptr_t>(args.state) % alignof(float) == 0,
          "attention over pages of up to {} slots", args.most_slots);
    exec.device.ops().view_pages_attention(exec, args);
}

}  // namespace slipstream
