// The ops of view pages on a CUDA device.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/op_table.h"
#include "kernels/cuda/view_pages_launch.h"
#include "kernels/view_pages.h"

namespace slipstream::cuda {

namespace {

// Most pages of one launch: their places are staged, 24 KiB.
constexpr std::int64_t kMostFills = 1 << 10;
// Most kv heads, and most batches of queries: CUDA's limit of a dimension of the grid.
constexpr std::int64_t kMostBlocks = 65535;
constexpr std::size_t kWordBytes = 4;
// The kernel reads ranges as pairs of numbers.
static_assert(sizeof(PageRange) == 2 * sizeof(std::int32_t) && offsetof(PageRange, n_slots) == sizeof(std::int32_t));

bool is_aligned(const std::byte* at) {
    return reinterpret_cast<std::uintptr_t>(at) % kWordBytes == 0;
}

}  // namespace

void view_pages_write(ExecRef exec, const PagesWriteArgs& args) {
    CHECK(is_aligned(args.pages), "view pages are not aligned to {} bytes", kWordBytes);
    std::array<PagePlace, kMostFills> places;
    for (std::int64_t first = 0; first < args.n_fills; first += kMostFills) {
        Op op(exec);
        const std::int64_t n = std::min(kMostFills, args.n_fills - first);
        for (std::int64_t i = 0; i < n; ++i) {
            const PageFill& fill = args.fills[first + i];
            constexpr std::int64_t kChunkSteps = kChunkTokens / kPageSlots;
            const std::byte* k = args.from[fill.from_step / kChunkSteps] +
                                 static_cast<std::size_t>(fill.head) * 2 * args.shape.part_bytes() +
                                 static_cast<std::size_t>(fill.from_step % kChunkSteps) * args.shape.step_bytes();
            places[i] = {k, k + args.shape.part_bytes(), fill.n_slots, fill.page};
        }
        const PagesWriteLaunch launch{.type = kv_type(args.shape.dtype),
                                      .head_dim = static_cast<std::int32_t>(args.shape.head_dim),
                                      .n_fills = static_cast<std::int32_t>(n),
                                      .fills = op.stage(places.data(), n),
                                      .pages = args.pages};
        op.launch(&Module::pages_write, launch, [&] {
            return fmt::format("view_pages_write of {} pages of {} {}", n, args.shape.head_dim,
                               kv_type_name(args.shape.dtype));
        });
    }
}

void view_pages_attention(ExecRef exec, const PagesAttentionArgs& args) {
    CHECK(is_aligned(args.pages), "view pages are not aligned to {} bytes", kWordBytes);
    CHECK(args.shape.n_kv_heads <= kMostBlocks && args.q.rows() * args.n_q_heads / args.shape.n_kv_heads <= kMostBlocks,
          "attention over pages of {} tokens, {} heads over {}", args.q.rows(), args.n_q_heads, args.shape.n_kv_heads);
    Op op(exec);
    const AttentionArgs fold{.shape = args.shape,
                             .q = args.q,
                             .out = {},
                             .n_q_heads = args.n_q_heads,
                             .scale = args.scale,
                             .softcap = args.softcap,
                             .sinks = args.sinks,
                             .part = AttentionPart::First,
                             .state = args.state};
    AttentionPlan plan{.launch_chunks = static_cast<std::int32_t>(ceil_div(args.most_slots, kChunkTokens)),
                       .way = AttentionWay::Parallel};
    cut_waves(fold, op.device().attention_card(), plan);
    PagesAttentionLaunch launch{.fold = attention_launch(fold, plan),
                                .pages = args.pages,
                                .ranges = reinterpret_cast<const std::int32_t*>(args.ranges)};
    place_scratch(plan, reinterpret_cast<float*>(op.scratch(attention_scratch_floats(plan, fold) * sizeof(float))),
                  launch.fold);
    op.launch(&Module::pages_attention, launch, [&] {
        return fmt::format("attention over pages of {} tokens, {} heads over {} of {}, up to {} slots", args.q.rows(),
                           args.n_q_heads, args.shape.n_kv_heads, args.shape.head_dim, args.most_slots);
    });
}

}  // namespace slipstream::cuda
