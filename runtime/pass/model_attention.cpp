// What attention needs beside the wiring of a layer: the angles of the tokens, and the fold over the layer's KV: view
// pages, KV chunks on the device, and segments that are copied during the pass, in the order of positions.
#include <algorithm>
#include <optional>

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/elementwise.h"
#include "kernels/view_pages.h"
#include "runtime/pass/model_pass.h"

namespace slipstream {

namespace {

// Returns the bytes of the committed rows of the KV chunks of `args` that a token sees, and of the scratch rows if
// these are folded as well.
std::size_t kv_bytes(const AttentionArgs& args) {
    const std::int64_t first =
        std::max(args.first_chunk * kChunkTokens, args.window == 0 ? 0 : args.n_committed + 1 - args.window);
    const std::int64_t end =
        args.end_chunk == kAllChunks ? args.n_committed : std::min(args.end_chunk * kChunkTokens, args.n_committed);
    const std::int64_t n_scratch = args.end_chunk == kAllChunks ? args.q.rows() : 0;
    return static_cast<std::size_t>(std::max<std::int64_t>(end - first, 0) + n_scratch) * 2 *
           args.shape.scratch_row_bytes();
}

}  // namespace

void ModelPass::rope_angles(std::int64_t n) {
    stage(PassStage::Rotate, -1, n, no_bytes, [&] {
        for (std::size_t rope = 0; rope < model_->ropes().size(); ++rope) {
            RopeTableArgs args{.positions = paths_.positions().data(),
                               .inverse_frequency = model_->ropes()[rope].inverse_frequency.data(),
                               .magnitude = model_->ropes()[rope].magnitude,
                               .cos_sin = activations_.angles(rope, n)};
            rope_table(exec(), args);
            const RopeConfig& config = model_->config().ropes[rope];
            if (config.query_growth == 0.0) continue;
            query_factors_.clear();
            for (std::int64_t t = 0; t < n; ++t)
                query_factors_.push_back(static_cast<float>(config.query_factor(paths_.positions()[t])));
            args.factors = query_factors_.data();
            args.cos_sin = activations_.query_angles(rope, n);
            rope_table(exec(), args);
        }
    });
}

void ModelPass::fold(const AttentionArgs& args, std::int64_t layer, const PassRows& rows) {
    const ChunkRange streamed = kv_ != nullptr ? kv_->streamed(layer) : ChunkRange{};
    const LayerPages pages = rows.kv->pages(layer);
    if (pages.most_slots > 0) {
        fold_pages(args, pages, layer, rows);
    } else if (streamed.empty()) {
        fold_chunks(args, layer, rows);
    } else {
        fold_segments(args, streamed, layer, rows);
    }
}

// Folds the KV chunks of `args`, and shows committed ones to the observer.
void ModelPass::fold_chunks(const AttentionArgs& args, std::int64_t layer, const PassRows& rows) {
    stage(
        PassStage::Attention, layer, rows.n(), [&] { return kv_bytes(args); }, [&] { attention(exec(), args); });
    if (rows.hooks == nullptr) return;
    const ChunkRange range{args.first_chunk, std::min(args.end_chunk, ceil_div(rows.n_committed, kChunkTokens))};
    if (!range.empty()) rows.hooks->on_kv(exec(), layer, {range, args.chunks}, args.q, rows.n_committed);
}

// Folds view pages, then KV chunks and scratch, all of which are resident.
void ModelPass::fold_pages(AttentionArgs args, const LayerPages& pages, std::int64_t layer, const PassRows& rows) {
    CHECK(kv_ == nullptr && activations_.memory(Activation::Fold).size() > 0,
          "view pages in a pass without room for them");
    args.state = reinterpret_cast<float*>(activations_.memory(Activation::Fold).data());
    args.part = AttentionPart::Last;
    const auto page_bytes = [&] { return pages.n_bytes; };
    stage(PassStage::Attention, layer, rows.n(), page_bytes, [&] {
        view_pages_attention(exec(), {.shape = args.shape,
                                      .q = args.q,
                                      .n_q_heads = args.n_q_heads,
                                      .pages = pages.pages,
                                      .ranges = pages.ranges,
                                      .most_slots = pages.most_slots,
                                      .scale = args.scale,
                                      .softcap = args.softcap,
                                      .sinks = args.sinks,
                                      .state = args.state});
    });
    fold_chunks(args, layer, rows);
}

// Folds resident KV chunks, then the streamed segments as they arrive, then the tail and scratch.
void ModelPass::fold_segments(AttentionArgs args, const ChunkRange& streamed, std::int64_t layer,
                              const PassRows& rows) {
    const std::byte* const* here = args.chunks;
    const auto fold_part = [&](const ChunkRange& range, const std::byte* const* chunks) {
        args.first_chunk = range.first;
        args.end_chunk = range.end;
        args.chunks = chunks;
        fold_chunks(args, layer, rows);
        args.part = AttentionPart::Middle;
    };
    args.state = reinterpret_cast<float*>(activations_.memory(Activation::Fold).data());
    args.part = AttentionPart::First;
    if (streamed.first > 0) fold_part({0, streamed.first}, here);
    const auto next_segment = [&] {
        std::optional<KvSegment> segment;
        stage(PassStage::Wait, layer, -1, no_bytes, [&] { segment = kv_->acquire_kv(layer, *stream_); });
        return segment;
    };
    while (const std::optional<KvSegment> segment = next_segment()) {
        fold_part(segment->range, segment->chunks);
        kv_->release_kv(*stream_);
    }
    args.part = args.part == AttentionPart::First ? AttentionPart::Whole : AttentionPart::Last;
    fold_part({streamed.end, kAllChunks}, here);
}

}  // namespace slipstream
