// The ops of KV views on a CUDA device.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numbers>

#include <fmt/format.h>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/kv_view_launch.h"
#include "kernels/cuda/op_table.h"
#include "kernels/kv_view.h"

namespace slipstream::cuda {

namespace {

// Most KV chunks of one launch: their addresses are staged, 32 KiB.
constexpr std::int64_t kMostChunks = 1 << 12;
// Most slot groups of one launch: their moves are staged, 16 KiB.
constexpr std::int64_t kMostMoves = 1 << 10;
// Most kv heads: CUDA's limit of a dimension of the grid.
constexpr std::int64_t kMostKvHeads = 65535;
constexpr std::size_t kAlignBytes = 16;

bool is_aligned(const std::byte* at) {
    return reinterpret_cast<std::uintptr_t>(at) % kAlignBytes == 0;
}

constexpr std::int64_t kStepGroups = kStepTokens / kGroupTokens;

// What a slot group has in its step, for keys and for values: rows of elements or codes, and rows of scales.
enum class GroupRows : std::uint8_t { Codes, Scales };

std::size_t group_bytes(const KvLayout& shape, GroupRows rows) {
    return static_cast<std::size_t>(kGroupTokens) *
           (rows == GroupRows::Codes ? shape.head_code_bytes() : shape.head_row_bytes() - shape.head_code_bytes());
}

// Returns the byte offset, in a KV chunk, of the keys of slot group `group` (counted from slot 0) of kv head `head`.
std::size_t group_offset(const KvLayout& shape, std::int64_t head, std::int64_t group, GroupRows rows) {
    const std::int64_t in_chunk = group % kChunkGroups;
    return static_cast<std::size_t>(head) * 2 * shape.part_bytes() +
           static_cast<std::size_t>(in_chunk / kStepGroups) * shape.step_bytes() +
           (rows == GroupRows::Scales ? static_cast<std::size_t>(kStepTokens) * shape.head_code_bytes() : 0) +
           static_cast<std::size_t>(in_chunk % kStepGroups) * group_bytes(shape, rows);
}

void gather_rows(ExecRef exec, const KvGatherArgs& args, GroupRows rows) {
    std::array<KvGroupMove, kMostMoves> moves;
    for (std::int64_t first = 0; first < args.n_moves; first += kMostMoves) {
        Op op(exec);
        const std::int64_t n = std::min(kMostMoves, args.n_moves - first);
        for (std::int64_t i = 0; i < n; ++i) {
            const GroupMove& move = args.moves[first + i];
            const std::byte* from = args.from[move.from / kChunkGroups];
            std::byte* to = args.to[move.to / kChunkGroups];
            CHECK(is_aligned(from) && is_aligned(to), "chunks of groups {} and {} are not aligned to {} bytes",
                  move.from, move.to, kAlignBytes);
            moves[i] = {from + group_offset(args.shape, move.head, move.from, rows),
                        to + group_offset(args.shape, move.head, move.to, rows)};
        }
        const KvGatherLaunch launch{
            .n_moves = static_cast<std::int32_t>(n),
            .group_pieces = static_cast<std::int32_t>(group_bytes(args.shape, rows) / kAlignBytes),
            .part_bytes = static_cast<std::int64_t>(args.shape.part_bytes()),
            .moves = op.stage(moves.data(), n)};
        op.launch(&Module::kv_gather, launch, [&] {
            return fmt::format("kv_gather of {} groups of {} {}", n, args.shape.head_dim,
                               kv_type_name(args.shape.dtype));
        });
    }
}

}  // namespace

void kv_score(ExecRef exec, const KvScoreArgs& args) {
    CHECK(args.shape.n_kv_heads <= kMostKvHeads, "kv_score of {} kv heads", args.shape.n_kv_heads);
    const float scale = args.softcap == 0.0F
                            ? args.scale
                            : static_cast<float>(2 * std::numbers::log2e * double{args.scale} / double{args.softcap});
    for (std::int64_t first = args.first_chunk; first < args.end_chunk; first += kMostChunks) {
        Op op(exec);
        const std::int64_t n = std::min(kMostChunks, args.end_chunk - first);
        const KvScoreLaunch launch{.type = kv_type(args.shape.dtype),
                                   .mass = args.score == GroupScore::Mass,
                                   .on_16_bytes = args.shape.head_code_bytes() % kAlignBytes == 0 &&
                                                  std::all_of(args.chunks + first, args.chunks + first + n, is_aligned),
                                   .n_q_heads = static_cast<std::int32_t>(args.n_q_heads),
                                   .n_kv_heads = static_cast<std::int32_t>(args.shape.n_kv_heads),
                                   .head_dim = static_cast<std::int32_t>(args.shape.head_dim),
                                   .q = float_row(args.q, 0),
                                   .chunks = op.stage(args.chunks + first, n),
                                   .n_chunks = static_cast<std::int32_t>(n),
                                   .first_chunk = static_cast<std::int32_t>(first),
                                   .n_committed = args.n_committed,
                                   .scale = scale,
                                   .softcap = args.softcap,
                                   .out = args.out,
                                   .n_groups = args.n_groups};
        op.launch(&Module::kv_score, launch, [&] {
            return fmt::format("kv_score of {} chunks from {}, {} heads over {} of {} {}", n, first, args.n_q_heads,
                               args.shape.n_kv_heads, args.shape.head_dim, kv_type_name(args.shape.dtype));
        });
    }
}

void kv_gather(ExecRef exec, const KvGatherArgs& args) {
    gather_rows(exec, args, GroupRows::Codes);
    if (args.shape.has_scales()) gather_rows(exec, args, GroupRows::Scales);
}

}  // namespace slipstream::cuda
