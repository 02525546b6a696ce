#include "kernels/cpu/attention/attention_unit.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/base/checked_math.h"
#include "kernels/base/kernel_reads.h"
#include "kernels/cpu/attention/kv_layout.h"

namespace slipstream::cpu {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::int32_t kNoRow = -1;

}  // namespace

std::size_t attention_tiles_bytes(const KvLayout& shape) {
    // The keys or values of a step are whole cache lines in any KV type.
    return 2 * shape.step_bytes() + 2 * row_bytes(DType::F32, kStepTokens * shape.head_dim);
}

AttentionUnit::AttentionUnit(const AttentionArgs& args, const AttentionForm& form, std::byte* tiles, std::int64_t head,
                             std::int64_t first_token, std::int64_t n_tokens)
    : args_(args),
      form_(form),
      k_tile_(tiles),
      v_tile_(k_tile_ + args.shape.step_bytes()),
      k_wide_(reinterpret_cast<float*>(v_tile_ + args.shape.step_bytes())),
      v_wide_(k_wide_ + kStepTokens * args.shape.head_dim),
      step_bytes_(args.shape.step_bytes()),
      head_offset_(k_step_offset(args.shape, head, 0)),
      value_offset_(v_row_offset(args.shape, head, 0) - head_offset_),
      head_(head),
      group_(args.n_q_heads / args.shape.n_kv_heads),
      first_token_(first_token),
      n_tokens_(n_tokens),
      first_chunk_(std::numeric_limits<std::int64_t>::max()),
      last_chunk_(0) {
    for (std::int64_t i = 0; i < n_tokens; ++i) {
        first_chunk_ = std::min(first_chunk_, lowest_visible(i) / kChunkTokens);
        last_chunk_ = std::max(last_chunk_, position(i) / kChunkTokens);
    }
    first_chunk_ = std::max(first_chunk_, args.first_chunk);
    last_chunk_ = std::min(last_chunk_, args.end_chunk - 1);
}

std::int64_t AttentionUnit::lowest_visible(std::int64_t i) const {
    return args_.window == 0 ? 0 : std::max<std::int64_t>(0, position(i) - args_.window + 1);
}

void AttentionUnit::reduce_chunk(std::int64_t chunk, std::int64_t next_chunk, QueryState* chunk_states) {
    for (std::int64_t i = 0; i < n_queries(); ++i) {
        chunk_states[i].m = kMinusInfinity;
        chunk_states[i].l = 0.0F;
        std::fill_n(chunk_states[i].o, args_.shape.head_dim, 0.0F);
    }
    for (std::int64_t step = 0; step < kStepsPerChunk; ++step) {
        const Place next = step + 1 < kStepsPerChunk ? Place{chunk, step + 1} : Place{next_chunk, 0};
        reduce_slots({chunk, step}, next, chunk_states);
    }
}

bool AttentionUnit::committed(Place place) const {
    return place.chunk != kNoChunk && place.chunk * kChunkTokens + (place.step + 1) * kStepTokens <= args_.n_committed;
}

void AttentionUnit::reduce_slots(Place place, Place next, QueryState* states) {
    const std::int64_t base = place.chunk * kChunkTokens + place.step * kStepTokens;
    const bool all_committed = committed(place);
    const std::byte* k = all_committed ? keys(place) : k_tile_;
    const std::byte* v = all_committed ? values(place) : v_tile_;
    tell_kernel_reads(k, step_bytes_);
    tell_kernel_reads(v, step_bytes_);
    AttentionStep view{.k = k,
                       .v = v,
                       .next_k = committed(next) ? keys(next) : k,
                       .next_v = committed(next) ? values(next) : v,
                       .dtype = args_.shape.dtype,
                       .head_dim = args_.shape.head_dim,
                       .first_slot = 0,
                       .end_slot = 0,
                       .scale = args_.scale,
                       .softcap = args_.softcap};
    const bool wide = args_.shape.dtype == DType::F32 || args_.shape.has_scales();
    if (form_.widen != nullptr && all_committed && n_queries() > 2 * kMaxBatch && !wide) widen(view);
    bool tile_started = false;
    std::array<QueryState*, kMaxQ8Batch> batch{};
    int n_batch = 0;
    const auto flush = [&] {
        if (n_batch > 0) form_.reduce(view, batch.data(), n_batch);
        n_batch = 0;
    };
    for (std::int64_t i = 0; i < n_tokens_; ++i) {
        const auto first = static_cast<int>(std::clamp<std::int64_t>(lowest_visible(i) - base, 0, kStepTokens));
        const auto end = static_cast<int>(std::clamp<std::int64_t>(position(i) + 1 - base, 0, kStepTokens));
        if (first >= end) continue;
        if (first != view.first_slot || end != view.end_slot) flush();
        if (!all_committed) {
            if (!tile_started) start_tile(place);
            tile_started = true;
            follow_path(first_token_ + i, base, end, flush);
        }
        view.first_slot = first;
        view.end_slot = end;
        for (std::int64_t g = 0; g < group_; ++g) {
            batch[n_batch++] = &states[i * group_ + g];
            if (n_batch == form_.max_batch) flush();
        }
    }
    flush();
}

// Widens the 16-bit rows of a committed step to floats once, since several batches read them, and makes `view` refer to
// the floats. A tile is not widened, since paths still change it.
void AttentionUnit::widen(AttentionStep& view) {
    const std::int64_t n = kStepTokens * args_.shape.head_dim;
    form_.widen(args_.shape.dtype, view.k, view.next_k, k_wide_, n);
    form_.widen(args_.shape.dtype, view.v, view.next_v, v_wide_, n);
    view.k = view.next_k = reinterpret_cast<const std::byte*>(k_wide_);
    view.v = view.next_v = reinterpret_cast<const std::byte*>(v_wide_);
    view.dtype = DType::F32;
}

// Copies the committed slots of a step that is not wholly committed to the tile. The other slots are empty until
// follow_path() fills them.
void AttentionUnit::start_tile(Place place) {
    const KvLayout& shape = args_.shape;
    const std::int64_t base = place.chunk * kChunkTokens + place.step * kStepTokens;
    const std::int64_t n_present = std::max<std::int64_t>(0, args_.n_committed - base);
    if (n_present > 0) {
        std::memcpy(k_tile_, keys(place), step_bytes_);
        std::memcpy(v_tile_, values(place), element_bytes(shape, n_present * shape.head_dim));
        for (std::int64_t block = 0; block < shape.head_scales(); ++block)
            std::memcpy(v_tile_ + scale_offset(shape, block, 0), values(place) + scale_offset(shape, block, 0),
                        static_cast<std::size_t>(n_present) * sizeof(BFloat16));
    } else {
        std::memset(k_tile_, 0, step_bytes_);
    }
    tile_rows_.fill(kNoRow);
}

// Copies the scratch rows of the token's path to their slots of the tile, up to slot `end`, if the tile has other rows
// there. Calls `flush` before the first change.
template <typename Flush>
void AttentionUnit::follow_path(std::int64_t token, std::int64_t base, int end, const Flush& flush) {
    const auto first_slot = static_cast<int>(std::max<std::int64_t>(0, args_.n_committed - base));
    const std::int32_t* path = args_.path_rows + args_.path_begin[token] + (base - args_.n_committed);
    for (int slot = first_slot; slot < end; ++slot) {
        const std::int32_t row = path[slot];
        if (tile_rows_[slot] == row) continue;
        flush();
        tile_rows_[slot] = row;
        switch (args_.shape.dtype) {
            case DType::F32:
                gather_row<std::uint32_t>(row, slot);
                break;
            case DType::Q8_0:
                gather_row<std::uint8_t>(row, slot);
                put_scales(args_.shape, k_tile_, args_.scratch_k + scales_offset(row), slot);
                put_scales(args_.shape, v_tile_, args_.scratch_v + scales_offset(row), slot);
                break;
            default:
                gather_row<std::uint16_t>(row, slot);
        }
    }
}

template <typename Element>
void AttentionUnit::gather_row(std::int32_t row, int slot) {
    const std::int64_t d = args_.shape.head_dim;
    const std::size_t from = scratch_offset(row);
    put_key_column(reinterpret_cast<Element*>(k_tile_), reinterpret_cast<const Element*>(args_.scratch_k + from), d,
                   slot);
    std::memcpy(reinterpret_cast<Element*>(v_tile_) + slot * d, args_.scratch_v + from,
                static_cast<std::size_t>(d) * sizeof(Element));
}

}  // namespace slipstream::cpu
