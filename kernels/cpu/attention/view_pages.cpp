// The drivers of the ops of view pages, and their scalar variants. Threads take ranges of pages (view_pages_write), or
// units of attention (attention_fold.h), whose chunks are four pages.
#include "kernels/cpu/attention/view_pages.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/base/checked_math.h"
#include "kernels/base/page_code.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_fold.h"
#include "kernels/cpu/attention/attention_unit.h"
#include "kernels/cpu/attention/kv_layout.h"
#include "kernels/cpu/attention/page_layout.h"
#include "kernels/cpu/attention/page_step.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr std::int64_t kPagesPerPiece = 4;
constexpr std::int64_t kChunkPages = kChunkTokens / kPageSlots;
static_assert(kPageSlots == kStepTokens);

// A kv head and some tokens of a call.
class PagesUnit {
public:
    PagesUnit(const PagesAttentionArgs& args, ReducePage reduce, std::byte* tiles, std::int64_t head,
              std::int64_t first_token, std::int64_t n_tokens)
        : args_(args),
          reduce_(reduce),
          scaled_q_(reinterpret_cast<float*>(tiles)),
          head_(head),
          group_(args.n_q_heads / args.shape.n_kv_heads),
          first_token_(first_token),
          n_tokens_(n_tokens),
          n_slots_(args.ranges[head].n_slots),
          pages_(n_slots_ > 0 ? args.pages + args.ranges[head].first_page * page_bytes() : nullptr) {
        CHECK(n_slots_ >= 0 && n_slots_ <= args.most_slots && args.ranges[head].first_page >= 0,
              "{} slots from page {} of head {}, of at most {}", n_slots_, args.ranges[head].first_page, head,
              args.most_slots);
    }
    [[nodiscard]] std::int64_t n_queries() const { return n_tokens_ * group_; }
    [[nodiscard]] std::int64_t query(std::int64_t i) const {
        return (first_token_ + i / group_) * args_.n_q_heads + head_ * group_ + i % group_;
    }
    [[nodiscard]] std::int64_t first_chunk() const { return 0; }
    [[nodiscard]] std::int64_t last_chunk() const { return ceil_div(n_slots_, kChunkTokens) - 1; }

    void reduce_chunk(std::int64_t chunk, std::int64_t next_chunk, QueryState* chunk_states) {
        for (std::int64_t i = 0; i < n_queries(); ++i) {
            chunk_states[i].m = -std::numeric_limits<float>::infinity();
            chunk_states[i].l = 0.0F;
            std::fill_n(chunk_states[i].o, args_.shape.head_dim, 0.0F);
        }
        const std::int64_t n_pages = ceil_div(n_slots_, kPageSlots);
        const std::int64_t first = chunk * kChunkPages;
        const std::int64_t end = std::min(n_pages, first + kChunkPages);
        for (std::int64_t page = first; page < end; ++page) {
            const bool more = page + 1 < (next_chunk == kNoChunk ? end : n_pages);
            const PageStep step{
                .page = pages_ + page * page_bytes(),
                .next = pages_ + (more ? page + 1 : page) * page_bytes(),
                .head_dim = args_.shape.head_dim,
                .slots = {.dtype = DType::F32,
                          .end_slot = static_cast<int>(std::min(kPageSlots, n_slots_ - page * kPageSlots)),
                          .scale = args_.scale,
                          .softcap = args_.softcap},
                .scaled_q = scaled_q_};
            std::array<QueryState*, kMaxPageBatch> batch{};
            for (std::int64_t i = 0; i < n_queries(); i += kMaxPageBatch) {
                const std::int64_t n = std::min<std::int64_t>(kMaxPageBatch, n_queries() - i);
                for (std::int64_t b = 0; b < n; ++b) batch[b] = chunk_states + i + b;
                reduce_(step, batch.data(), static_cast<int>(n));
            }
        }
    }

private:
    [[nodiscard]] std::int64_t page_bytes() const {
        return static_cast<std::int64_t>(view_page_bytes(args_.shape.head_dim));
    }

    const PagesAttentionArgs& args_;
    ReducePage reduce_;
    float* scaled_q_;
    std::int64_t head_;
    std::int64_t group_;
    std::int64_t first_token_;
    std::int64_t n_tokens_;
    std::int64_t n_slots_;
    const std::byte* pages_;  // the first page of the head
};

void fold_pages(ExecRef exec, const PagesAttentionArgs& args, ReducePage reduce) {
    auto& device = static_cast<CpuDevice&>(exec.device);
    // attention() over rows of this shape reserves as much, so a pass that also reads pages allocates nothing more.
    device.reserve_scratch(attention_scratch(args.shape, args.n_q_heads, device.pool().n_threads()));
    const auto make_unit = [&](std::byte* tiles, std::int64_t head, std::int64_t first_token, std::int64_t n_tokens) {
        return PagesUnit(args, reduce, tiles, head, first_token, n_tokens);
    };
    const std::size_t tiles_bytes = attention_tiles_bytes(args.shape);
    DCHECK(tiles_bytes >= row_bytes(DType::F32, kMaxPageBatch * round_up<std::int64_t>(args.shape.head_dim, 16)));
    AttentionFold(exec,
                  {.shape = args.shape,
                   .q = args.q,
                   .out = {},
                   .n_q_heads = args.n_q_heads,
                   .sinks = args.sinks,
                   .part = AttentionPart::First,
                   .state = args.state},
                  tiles_bytes, make_unit)
        .run();
}

void write_pages(ExecRef exec, const PagesWriteArgs& args, WritePage write) {
    const KvLayout& shape = args.shape;
    static_cast<CpuDevice&>(exec.device)
        .pool()
        .run(args.n_fills, kPagesPerPiece, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t i = begin; i < end; ++i) {
                const PageFill& fill = args.fills[i];
                const std::byte* chunk = args.from[fill.from_step / kStepsPerChunk];
                const std::int64_t step = fill.from_step % kStepsPerChunk;
                write({.k = chunk + k_step_offset(shape, fill.head, step),
                       .v = chunk + v_row_offset(shape, fill.head, step * kStepTokens),
                       .dtype = shape.dtype,
                       .head_dim = shape.head_dim,
                       .n_slots = fill.n_slots},
                      args.pages + static_cast<std::size_t>(fill.page) * view_page_bytes(shape.head_dim));
            }
        });
}

std::uint32_t code_of(std::uint32_t word, std::int64_t i) {
    return (word >> (4 * i)) & 0xfU;
}

// Returns element `index` of the keys or values of a step, which is dimension d of slot `slot`.
float element(const PageRows& rows, const std::byte* base, std::int64_t index, std::int64_t slot, std::int64_t d) {
    switch (rows.dtype) {
        case DType::F32:
            return reinterpret_cast<const float*>(base)[index];
        case DType::F16:
            return to_float(reinterpret_cast<const Half*>(base)[index]);
        case DType::BF16:
            return to_float(reinterpret_cast<const BFloat16*>(base)[index]);
        default:
            return static_cast<float>(reinterpret_cast<const std::int8_t*>(base)[index]) *
                   to_float(BFloat16{step_scales(base, rows.head_dim)[d / kQ8Block * kStepTokens + slot]});
    }
}

// Rounds the numbers `value(i)`, i < n, to 4 bits. Calls put(i, code).
template <typename Value, typename Put>
void round_numbers(std::int64_t n, const Value& value, Half& scale, Half& minimum, const Put& put) {
    float least = page_within(value(0));
    float largest = least;
    for (std::int64_t i = 1; i < n; ++i) {
        least = std::min(least, page_within(value(i)));
        largest = std::max(largest, page_within(value(i)));
    }
    minimum = page_minimum(least);
    scale = page_scale(largest, minimum);
    for (std::int64_t i = 0; i < n; ++i) put(i, page_code(page_within(value(i)), minimum, page_factor(scale)));
}

}  // namespace

void write_page_scalar(const PageRows& rows, std::byte* page) {
    const std::int64_t head_dim = rows.head_dim;
    std::memset(page, 0, view_page_bytes(head_dim));
    const PageParts<std::byte> parts(page, head_dim);
    for (std::int64_t d = 0; d < head_dim; ++d)
        round_numbers(
            rows.n_slots, [&](std::int64_t slot) { return element(rows, rows.k, d * kPageSlots + slot, slot, d); },
            parts.k_scales[d], parts.k_minimums[d],
            [&](std::int64_t slot, std::uint32_t code) {
                parts.k_codes[d * kSlotWords + slot % kSlotWords] |= code << (4 * (slot / kSlotWords));
            });
    for (std::int64_t slot = 0; slot < rows.n_slots; ++slot)
        round_numbers(
            head_dim, [&](std::int64_t d) { return element(rows, rows.v, slot * head_dim + d, slot, d); },
            parts.v_scales[slot], parts.v_minimums[slot],
            [&](std::int64_t d, std::uint32_t code) {
                parts.v_codes[slot / kWordCodes * head_dim + d] |= code << (4 * (slot % kWordCodes));
            });
}

void reduce_page_scalar(const PageStep& step, QueryState* const* batch, int n_batch) {
    const PageParts<const std::byte> page(step.page, step.head_dim);
    const auto number = [](Half scale, std::uint32_t code, Half minimum) {
        return static_cast<double>(to_float(scale)) * code + static_cast<double>(to_float(minimum));
    };
    for (int b = 0; b < n_batch; ++b) {
        QueryState& state = *batch[b];
        float weights[kPageSlots] = {};
        for (std::int64_t j = 0; j < step.slots.end_slot; ++j) {
            double score = 0.0;
            for (std::int64_t d = 0; d < step.head_dim; ++d)
                score +=
                    static_cast<double>(state.q[d]) *
                    number(page.k_scales[d], code_of(page.k_codes[d * kSlotWords + j % kSlotWords], j / kSlotWords),
                           page.k_minimums[d]);
            weights[j] = static_cast<float>(score);
        }
        const float keep = step.slots.softcap == 0.0F ? softmax_step<false>(weights, step.slots, state)
                                                      : softmax_step<true>(weights, step.slots, state);
        for (std::int64_t d = 0; d < step.head_dim; ++d) {
            double sum = static_cast<double>(state.o[d]) * static_cast<double>(keep);
            for (std::int64_t j = 0; j < step.slots.end_slot; ++j)
                sum +=
                    static_cast<double>(weights[j]) *
                    number(page.v_scales[j], code_of(page.v_codes[j / kWordCodes * step.head_dim + d], j % kWordCodes),
                           page.v_minimums[j]);
            state.o[d] = static_cast<float>(sum);
        }
    }
}

void view_pages_write_scalar(ExecRef exec, const PagesWriteArgs& args) {
    write_pages(exec, args, write_page_scalar);
}

void view_pages_attention_scalar(ExecRef exec, const PagesAttentionArgs& args) {
    fold_pages(exec, args, reduce_page_scalar);
}
#if defined(__x86_64__)
void view_pages_write_avx2(ExecRef exec, const PagesWriteArgs& args) {
    write_pages(exec, args, write_page_avx2);
}
void view_pages_attention_avx2(ExecRef exec, const PagesAttentionArgs& args) {
    fold_pages(exec, args, reduce_page_avx2);
}
void view_pages_attention_avx512(ExecRef exec, const PagesAttentionArgs& args) {
    fold_pages(exec, args, reduce_page_avx512);
}
void view_pages_attention_avx512_vnni(ExecRef exec, const PagesAttentionArgs& args) {
    fold_pages(exec, args, reduce_page_vnni);
}
#endif

}  // namespace slipstream::cpu
