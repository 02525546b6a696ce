// The walk of the vector forms. Few tokens (decoding): tiles of kTileRows rows, weights decoded in registers, each row
// read once. Many tokens: a panel of rows is decoded once into a buffer of the thread that stays in its L2 cache; token
// blocks go over it in chunks of K, so that a tile's weights and activations stay in L1, with the partial sums kept in
// memory between chunks. Rows are dealt out in pieces; who computes what changes no bit.

#include "kernels/cpu/matmul_tiled.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/checked_math.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr std::int64_t kPanelBytes = 512 << 10;  // decoded panel: a part of L2 (1-2 MB on what we serve)
constexpr std::int64_t kMaxPanelRows = 32;       // activations are read from L3 once per panel
constexpr std::int64_t kBlockTokens = 48;        // their partial sums: 32 rows x 48 x 128 bytes = 192 KB
constexpr std::int64_t kChunk = 1024;            // of K: 4 + 6 rows x 4 KB = 40 KB of L1 (AVX2: 4 + 3 rows, 28 KB)
constexpr std::int64_t kPieceBytes = 64 << 10;   // encoded weights taken at once by a thread, few tokens
constexpr std::int64_t kPiecesPerThread = 4;     // at least, many tokens: a late thread delays a quarter
static_assert(kChunk % kLanes == 0);

/// Floats between the rows of a panel: a cache line more than a round number, so that rows spread over the cache's
/// sets.
std::int64_t panel_stride(std::int64_t k) {
    return round_up<std::int64_t>(k, kLanes) + 16;
}

/// A thread's scratch for a panel of `n_rows` (a multiple of kTileRows): decoded weights, then partial sums.
std::int64_t weight_floats(std::int64_t n_rows, std::int64_t k) {
    return n_rows * panel_stride(k);
}
std::int64_t lane_floats(std::int64_t n_rows, std::int64_t n_tokens) {
    return n_rows * std::min(kBlockTokens, n_tokens) * kLanes;
}

void fused_rows(const MatmulArgs& args, const TiledForm& form, std::int64_t begin, std::int64_t end) {
    const std::int64_t n_tokens = args.x.shape[0];
    const auto fused = form.fused[static_cast<std::size_t>(args.weights.dtype)][static_cast<std::size_t>(n_tokens - 1)];
    float sums[kTileRows * kMaxFusedTokens];
    FusedTile tile{.rows = {},
                   .x = float_row(args.x, 0),
                   .x_stride = static_cast<std::int64_t>(args.x.row_stride_bytes / sizeof(float)),
                   .k = args.x.cols(),
                   // One tile ahead: the next kTileRows rows arrive while these are computed.
                   .prefetch_bytes = kTileRows * args.weights.row_stride_bytes,
                   .sums = sums};
    for (std::int64_t row = begin; row < end; row += kTileRows) {
        for (int r = 0; r < kTileRows; ++r)
            tile.rows[static_cast<std::size_t>(r)] = args.weights.row(std::min(row + r, end - 1));
        fused(tile);
        for (std::int64_t r = 0; r < std::min<std::int64_t>(kTileRows, end - row); ++r) {
            for (std::int64_t t = 0; t < n_tokens; ++t) {
                float& y = float_row(args.y, t)[row + r];
                y = finish_output(args, sums[r * n_tokens + t], row + r, y);
            }
        }
    }
}

/// One panel: rows [begin, end), at most kMaxPanelRows, against all tokens. `scratch` as weight_floats and lane_floats
/// say.
class Panel {
public:
    Panel(const MatmulArgs& args, const TiledForm& form, std::int64_t begin, std::int64_t end, float* scratch)
        : args_(args),
          form_(form),
          begin_(begin),
          n_rows_(end - begin),
          n_tiles_(ceil_div<std::int64_t>(n_rows_, kTileRows)),
          k_(args.x.cols()),
          stride_(panel_stride(k_)),
          weights_(scratch),
          lanes_(scratch + weight_floats(n_tiles_ * kTileRows, k_)) {}

    void run() {
        const auto decode = form_.decode_row[static_cast<std::size_t>(args_.weights.dtype)];
        for (std::int64_t r = 0; r < n_tiles_ * kTileRows; ++r)
            decode(args_.weights.row(begin_ + std::min(r, n_rows_ - 1)), weights_ + r * stride_, k_);
        const std::int64_t n_tokens = args_.x.shape[0];
        for (std::int64_t token = 0; token < n_tokens; token += kBlockTokens)
            token_block(token, std::min(kBlockTokens, n_tokens - token));
    }

private:
    /// lanes_ is [n_tiles, n, kTileRows, kLanes].
    float* lanes_at(std::int64_t tile, std::int64_t n, std::int64_t t) {
        return lanes_ + (tile * n + t) * kTileRows * kLanes;
    }

    void token_block(std::int64_t token, std::int64_t n) {
        std::memset(lanes_, 0, static_cast<std::size_t>(n_tiles_ * n * kTileRows * kLanes) * sizeof(float));
        const std::int64_t whole = k_ / kLanes * kLanes;
        const auto x_stride = static_cast<std::int64_t>(args_.x.row_stride_bytes / sizeof(float));
        for (std::int64_t k = 0; k < whole; k += kChunk)
            chunk(n, k, std::min(kChunk, whole - k) / kLanes, float_row(args_.x, token) + k, x_stride);
        if (whole < k_) {
            alignas(64) float tail[kBlockTokens * kLanes] = {};
            for (std::int64_t t = 0; t < n; ++t)
                std::memcpy(tail + t * kLanes, float_row(args_.x, token + t) + whole,
                            static_cast<std::size_t>(k_ - whole) * sizeof(float));
            chunk(n, whole, 1, tail, kLanes);
        }
        finish(token, n);
    }

    /// All of the block's outputs over one chunk. A tile of tokens stays in L1 while the panel's weights stream by.
    void chunk(std::int64_t n, std::int64_t k, std::int64_t n_steps, const float* x, std::int64_t x_stride) {
        const std::int64_t token_tiles = ceil_div<std::int64_t>(n, form_.max_panel_tokens);
        for (std::int64_t i = 0; i < token_tiles; ++i) {
            for (std::int64_t tile = 0; tile < n_tiles_; ++tile) {
                const std::int64_t t = i * n / token_tiles;  // tiles of nearly equal width
                const std::int64_t width = (i + 1) * n / token_tiles - t;
                form_.panel[static_cast<std::size_t>(width - 1)]({.weights = weights_ + tile * kTileRows * stride_ + k,
                                                                  .weights_stride = stride_,
                                                                  .x = x + t * x_stride,
                                                                  .x_stride = x_stride,
                                                                  .n_steps = n_steps,
                                                                  .lanes = lanes_at(tile, n, t)});
            }
        }
    }

    void finish(std::int64_t token, std::int64_t n) {
        float sums[kBlockTokens * kTileRows];
        for (std::int64_t tile = 0; tile < n_tiles_; ++tile) {
            form_.reduce(lanes_at(tile, n, 0), sums, n * kTileRows);
            const std::int64_t first = tile * kTileRows;
            for (std::int64_t t = 0; t < n; ++t) {
                float* y = float_row(args_.y, token + t) + begin_;
                for (std::int64_t r = first; r < std::min(first + kTileRows, n_rows_); ++r)
                    y[r] = finish_output(args_, sums[t * kTileRows + r - first], begin_ + r, y[r]);
            }
        }
    }

    const MatmulArgs& args_;
    const TiledForm& form_;
    std::int64_t begin_;
    std::int64_t n_rows_;
    std::int64_t n_tiles_;
    std::int64_t k_;
    std::int64_t stride_;
    float* weights_;
    float* lanes_;
};

}  // namespace

void matmul_tiled(ExecRef exec, const MatmulArgs& args, const TiledForm& form) {
    auto& device = static_cast<CpuDevice&>(exec.device);
    ThreadPool& pool = device.pool();
    const std::int64_t m = args.weights.shape[0];
    const std::int64_t k = args.x.cols();
    const std::int64_t fair_rows =
        round_up<std::int64_t>(ceil_div<std::int64_t>(m, pool.n_threads() * kPiecesPerThread), kTileRows);
    if (args.x.shape[0] <= form.max_fused_tokens) {
        const auto bytes = static_cast<std::int64_t>(row_bytes(args.weights.dtype, k));
        const std::int64_t rows = round_up<std::int64_t>(kPieceBytes / std::max<std::int64_t>(bytes, 1) + 1, kTileRows);
        pool.run(m, std::min(rows, fair_rows),
                 [&](std::int64_t begin, std::int64_t end, int) { fused_rows(args, form, begin, end); });
        return;
    }
    const std::int64_t fitting = kPanelBytes / static_cast<std::int64_t>(sizeof(float)) / std::max<std::int64_t>(k, 1);
    const std::int64_t rows =
        std::min(std::clamp<std::int64_t>(fitting / kTileRows * kTileRows, kTileRows, kMaxPanelRows), fair_rows);
    const std::int64_t scratch_floats = weight_floats(rows, k) + lane_floats(rows, args.x.shape[0]);
    device.reserve_thread_scratch(static_cast<std::size_t>(scratch_floats) * sizeof(float));
    pool.run(m, rows, [&](std::int64_t begin, std::int64_t end, int thread) {
        Panel(args, form, begin, end, reinterpret_cast<float*>(device.thread_scratch(thread))).run();
    });
}

}  // namespace slipstream::cpu
