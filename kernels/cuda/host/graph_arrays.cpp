#include "kernels/cuda/host/graph_arrays.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/graph_paths.h"

namespace slipstream::cuda {

namespace {

constexpr std::size_t kAlignBytes = 64;

template <typename T>
std::size_t bytes_of(std::int64_t n) {
    return n * sizeof(T);
}

std::int64_t highest_position(const AttentionArgs& args) {
    return *std::max_element(args.positions, args.positions + args.q.rows());
}

std::int64_t path_rows_each(const AttentionArgs& args) {
    return graph_path_rows(highest_position(args) - args.n_committed + 1);
}

// Returns the room that plans of later launches need for scratch rows and gathers. A token at the border of two tiles
// is in both, so each tile may add a token.
GatherBounds bounds_of(const AttentionPlan& plan, std::int64_t n_tokens, std::int64_t path_rows_each) {
    const std::int64_t n = n_tokens + std::ssize(plan.tiles);
    return {.rows = n * path_rows_each, .gathers = n * (path_rows_each / kStepTokens + 2)};
}

bool on_tensor_cores(const AttentionArgs& args) {
    return attention_on_tensor_cores(kv_type(args.shape.dtype), static_cast<std::int32_t>(args.shape.head_dim),
                                     args.softcap);
}

// Returns the KV chunks that launches have room for: the same for all passes that end within the same graph_chunks().
std::int64_t launch_chunks(const AttentionArgs& args) {
    const std::int64_t n = graph_chunks(highest_position(args) / kChunkTokens + 1);
    if (args.window == 0) return n;
    // With a sliding window, there must be room for the windows of all tokens together; the ends of two windows are no
    // further apart than there are tokens.
    return std::min(n, (args.window + args.q.rows()) / kChunkTokens + 2);
}

}  // namespace

std::size_t GraphArrays::take_front(std::size_t bytes) {
    const std::size_t offset = front_;
    const std::size_t end = offset + round_up(bytes, kAlignBytes);
    if (end > back_)
        throw OutOfBudget(fmt::format("a graph has {} bytes for the arrays of its ops and needs more", block_bytes_));
    front_ = end;
    return offset;
}

std::size_t GraphArrays::add_rows(const std::int32_t* host, std::int64_t n) {
    for (const Rows& rows : rows_)
        if (rows.host == host && rows.n == n) return rows.offset;
    const std::size_t offset = take_front(bytes_of<std::int32_t>(n));
    rows_.push_back({host, n, offset});
    return offset;
}

const GraphAttention& GraphArrays::add_attention(const AttentionArgs& args) {
    CHECK(args.part == AttentionPart::Whole && args.first_chunk == 0 && args.end_chunk == kAllChunks,
          "a part of a fold in a graph");
    const std::int64_t n = args.q.rows();
    for (const GraphAttention& there : attentions_)
        if (there.args.positions == args.positions && there.args.path_begin == args.path_begin &&
            there.args.path_rows == args.path_rows && there.args.q.rows() == n &&
            there.args.n_q_heads == args.n_q_heads && there.args.shape.n_kv_heads == args.shape.n_kv_heads &&
            there.args.shape.head_dim == args.shape.head_dim && there.args.shape.dtype == args.shape.dtype &&
            there.args.window == args.window && there.args.softcap == args.softcap &&
            there.args.n_committed == args.n_committed)
            return there;
    GraphAttention made{.args = args,
                        .n_chunks = launch_chunks(args),
                        .path_rows_each = path_rows_each(args),
                        .bounds = {},
                        .at_capture = {},
                        .plan = {}};
    plan_attention(args, card_, made.n_chunks, made.at_capture);
    made.place = take_front(sizeof(AttentionPlace));
    made.positions = take_front(bytes_of<std::int32_t>(n));
    if (on_tensor_cores(args)) {
        const GatherBounds& bounds = made.bounds = bounds_of(made.at_capture, n, made.path_rows_each);
        made.tiles = take_front(bytes_of<AttentionTile>(std::ssize(made.at_capture.tiles)));
        made.gathers = take_front(bytes_of<AttentionGather>(bounds.gathers));
        // Scratch rows are at the end, since usually only few of them are used and copied.
        made.rows = take_front(bytes_of<std::int32_t>(bounds.rows));
        made.plan.tiles.reserve(made.at_capture.tiles.size());
        made.plan.gathers.reserve(bounds.gathers);
        made.plan.rows.reserve(bounds.rows);
    } else {
        made.path_begin = take_front(bytes_of<std::int32_t>(n));
        made.path_rows = take_front(bytes_of<std::int32_t>(n * made.path_rows_each));
    }
    return attentions_.emplace_back(std::move(made));
}

std::size_t GraphArrays::add_table(const std::byte* const* chunks, const GraphAttention& attention) {
    const auto index = static_cast<std::size_t>(&attention - attentions_.data());
    CHECK(index < attentions_.size());
    for (const Table& table : tables_)
        if (table.host == chunks && table.attention == index) return table.offset;
    const std::size_t bytes = round_up(bytes_of<const std::byte*>(attention.n_chunks), kAlignBytes);
    if (bytes > back_ - front_)
        throw OutOfBudget(
            fmt::format("a graph has {} bytes for the arrays of its ops and needs more: tables of {} "
                        "chunks a layer",
                        block_bytes_, attention.n_chunks));
    back_ -= bytes;
    tables_.push_back({chunks, index, back_});
    return back_;
}

template <typename T>
void GraphArrays::put(std::byte* block, std::size_t offset, const T* from, std::size_t n) {
    if (n == 0) return;
    std::memcpy(block + offset, from, n * sizeof(T));
    used_end_ = std::max(used_end_, offset + n * sizeof(T));
}

bool GraphArrays::refresh_attention(std::byte* block, GraphAttention& attention, const GraphNumbers& numbers) {
    AttentionArgs args = attention.args;
    args.n_committed = numbers.n_committed;
    if (launch_chunks(args) != attention.n_chunks || path_rows_each(args) != attention.path_rows_each) return false;
    AttentionPlan& plan = attention.plan;
    plan_attention(args, card_, attention.n_chunks, plan);
    if (!plan.launches_like(attention.at_capture)) return false;
    const auto n = static_cast<std::size_t>(args.q.rows());
    const AttentionPlace place{.n_committed = static_cast<std::int32_t>(args.n_committed),
                               .first_chunk = plan.first_chunk,
                               .table_first = plan.first_chunk};
    put(block, attention.place, &place, 1);
    put(block, attention.positions, args.positions, n);
    if (on_tensor_cores(args)) {
        if (std::ssize(plan.gathers) > attention.bounds.gathers || std::ssize(plan.rows) > attention.bounds.rows)
            return false;
        put(block, attention.tiles, plan.tiles.data(), plan.tiles.size());
        put(block, attention.gathers, plan.gathers.data(), plan.gathers.size());
        put(block, attention.rows, plan.rows.data(), plan.rows.size());
        return true;
    }
    const std::int64_t n_rows = n_path_rows(args);
    if (n_rows > args.q.rows() * attention.path_rows_each) return false;
    put(block, attention.path_begin, args.path_begin, n);
    put(block, attention.path_rows, args.path_rows, static_cast<std::size_t>(n_rows));
    return true;
}

void GraphArrays::refresh_table(std::byte* block, const Table& table, GraphChanges& changes) const {
    const AttentionPlan& plan = attentions_[table.attention].plan;
    if (plan.n_table() == 0) return;
    const std::size_t bytes = bytes_of<const std::byte*>(plan.n_table());
    const auto* from = table.host + plan.first_chunk;
    if (std::memcmp(block + table.offset, from, bytes) == 0) return;
    std::memcpy(block + table.offset, from, bytes);
    if (changes.tables_end == 0) changes.tables_begin = table.offset;
    changes.tables_begin = std::min(changes.tables_begin, table.offset);
    changes.tables_end = std::max(changes.tables_end, table.offset + bytes);
}

std::optional<GraphChanges> GraphArrays::refresh(std::byte* block, const GraphNumbers& numbers) {
    used_end_ = 0;
    for (const Rows& rows : rows_) put(block, rows.offset, rows.host, static_cast<std::size_t>(rows.n));
    for (GraphAttention& attention : attentions_)
        if (!refresh_attention(block, attention, numbers)) return std::nullopt;
    GraphChanges changes;
    for (const Table& table : tables_) refresh_table(block, table, changes);
    changes.front_end = used_end_;
    return changes;
}

void GraphArrays::forget(std::byte* block, std::size_t bytes) {
    // 0xff bytes are not the address of any KV chunk, so the next refresh() finds each table changed.
    std::memset(block, 0xff, bytes);
}

}  // namespace slipstream::cuda
