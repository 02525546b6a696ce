// The walk. Activations are laid out in tiles of tokens first, quantised where the weights are. Then pieces of row
// groups go to the threads. As many groups as a kernel's registers hold go over K together, so that each activation
// that is loaded serves all of them; with many tokens, when activations come from L2 or L3, at least kGroupsAtOnce. K
// goes by in chunks: a chunk of quantised weights is unpacked once into L1 and multiplied with every tile of tokens, so
// that unpacking costs little from a few tokens on. Meanwhile the chunk behind it is fetched, a share with each tile.

#include "kernels/cpu/matmul_interleaved.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/interleaved.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr int kLanes = static_cast<int>(kInterleavedRows);
constexpr std::int64_t kStreamTokens = 32;         // up to here memory is what a pass waits for
constexpr std::int64_t kGroupsAtOnce = 4;          // beyond; 4 unpacked chunks: 24 KB of L1
constexpr std::int64_t kPassTokens = 512;          // tokens whose sums are kept at once: 4 x 512 x 128 bytes of L2
constexpr std::int64_t kPieceBytes = 64 << 10;     // of weights, taken at once by a thread
constexpr std::int64_t kPiecesPerThread = 4;       // at least: a late thread delays a quarter of its share
constexpr std::int64_t kTokensPerLayoutPiece = 8;  // of laying out activations

/// finish_output (matmul.h) of `rows` outputs of a token; inlined, so that a whole group is vector code.
[[gnu::always_inline]] inline void finish_rows(const MatmulArgs& args, const float* sums, std::int64_t row, int rows,
                                               float* y) {
    float results[kLanes];
    for (int r = 0; r < rows; ++r) results[r] = sums[r];
    if (!args.bias.empty()) {
        const float* bias = float_row(args.bias, 0) + row;
        for (int r = 0; r < rows; ++r) results[r] += bias[r];
    }
    if (args.store == MatmulStore::Add)
        for (int r = 0; r < rows; ++r) results[r] = y[r] + results[r];
    std::memcpy(y, results, static_cast<std::size_t>(rows) * sizeof(float));
}

/// What a type's weights are multiplied with.
enum class Operand : std::uint8_t {
    Floats,
    Pairs,  // of bfloat16
    Codes,  // of 8 bits
};

Operand operand_of(const InterleavedForm& form, DType type) {
    if (is_quantized(type)) return Operand::Codes;
    return type == DType::BF16 && form.round_pairs != nullptr ? Operand::Pairs : Operand::Floats;
}

int tile_tokens_of(const InterleavedForm& form, Operand operand) {
    return operand == Operand::Codes   ? form.code_tile_tokens
           : operand == Operand::Pairs ? form.pair_tile_tokens
                                       : form.float_tile_tokens;
}

/// Groups that go over K together where there are enough rows.
std::int64_t most_groups(const InterleavedForm& form, Operand operand, std::int64_t n_tokens) {
    const std::int64_t n_tiles = ceil_div<std::int64_t>(n_tokens, tile_tokens_of(form, operand));
    const auto widest_tile = static_cast<std::size_t>(ceil_div(n_tokens, n_tiles));
    const std::int64_t in_registers = operand == Operand::Codes   ? form.code_groups
                                      : operand == Operand::Pairs ? form.pair_groups[widest_tile - 1]
                                                                  : form.float_groups[widest_tile - 1];
    return n_tokens <= kStreamTokens ? in_registers : std::max(in_registers, kGroupsAtOnce);
}

std::int64_t laid_out_bytes_per_token(Operand operand, std::int64_t k) {
    if (operand == Operand::Codes) return k / 32 * kBlockBytesPerToken;
    return operand == Operand::Pairs ? ceil_div<std::int64_t>(k, 2) * kPairBytes
                                     : k * static_cast<std::int64_t>(sizeof(float));
}

std::size_t laid_out_bytes(Operand operand, std::int64_t n_tokens, std::int64_t k) {
    const bool in_place = operand == Operand::Floats && n_tokens == 1;
    return in_place ? 0 : static_cast<std::size_t>(n_tokens * laid_out_bytes_per_token(operand, k));
}

/// A thread's scratch: unpacked chunks, then rows interleaved here, then sums.
struct ThreadScratch {
    std::size_t rows_offset;
    std::size_t sums_offset;
    std::size_t bytes;

    ThreadScratch(const InterleavedForm& form, DType type, Layout layout, std::int64_t n_tokens, std::int64_t k,
                  std::int64_t n_groups) {
        const Operand operand = operand_of(form, type);
        const auto groups = static_cast<std::size_t>(n_groups);
        const auto sums = static_cast<std::size_t>(std::min(n_tokens, kPassTokens + tile_tokens_of(form, operand)) *
                                                   kLanes);  // of a group
        rows_offset = operand == Operand::Codes ? groups * sizeof(UnpackedChunk) : 0;
        sums_offset = rows_offset;
        if (layout == Layout::RowMajor)
            sums_offset += round_up<std::size_t>(groups * static_cast<std::size_t>(kLanes) * row_bytes(type, k), 64);
        bytes = sums_offset + groups * sums * sizeof(float);
    }
};

/// What every thread needs to know of one call.
class Call {
public:
    Call(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form)
        : device_(static_cast<CpuDevice&>(exec.device)),
          args_(args),
          form_(form),
          type_(args.weights.dtype),
          operand_(operand_of(form, type_)),
          m_(args.weights.shape[0]),
          k_(args.weights.shape[1]),
          n_(args.x.shape[0]),
          n_tiles_(ceil_div<std::int64_t>(n_, tile_tokens())),
          n_groups_(ceil_div(m_, kInterleavedRows)),
          group_bytes_(static_cast<std::int64_t>(kLanes * row_bytes(type_, k_))),
          chunk_bytes_(static_cast<std::int64_t>(kLanes * row_bytes(type_, kChunkElements))),
          token_bytes_(laid_out_bytes_per_token(operand_, k_)) {}

    void run() {
        const std::int64_t fair = ceil_div<std::int64_t>(n_groups_, device_.pool().n_threads() * kPiecesPerThread);
        groups_at_once_ = std::min(most_groups(form_, operand_, n_), fair);
        const std::int64_t in_bytes = kPieceBytes / std::max<std::int64_t>(group_bytes_, 1) + 1;
        const std::int64_t piece = round_up(n_ <= kStreamTokens ? std::min(in_bytes, fair) : 1, groups_at_once_);
        const ThreadScratch scratch(form_, type_, args_.weights.layout, n_, k_, groups_at_once_);
        rows_offset_ = scratch.rows_offset;
        sums_offset_ = scratch.sums_offset;
        device_.reserve_scratch({.thread_bytes = scratch.bytes, .shared_bytes = laid_out_bytes(operand_, n_, k_)});
        lay_out_activations();
        device_.pool().run(n_groups_, piece, [&](std::int64_t begin, std::int64_t end, int thread) {
            for (std::int64_t group = begin; group < end; group += groups_at_once_)
                multiply(group, std::min(groups_at_once_, end - group), thread);
        });
    }

private:
    [[nodiscard]] int tile_tokens() const { return tile_tokens_of(form_, operand_); }
    // Tiles are of nearly equal width.
    [[nodiscard]] std::int64_t tile_begin(std::int64_t tile) const { return tile * n_ / n_tiles_; }
    [[nodiscard]] bool packed() const { return args_.weights.layout == Layout::Interleaved16; }

    void lay_out_activations() {
        if (laid_out_bytes(operand_, n_, k_) == 0) {
            x_ = args_.x.data;
            return;
        }
        std::byte* tiles = device_.shared_scratch();
        x_ = tiles;
        const std::int64_t tiles_a_piece = ceil_div<std::int64_t>(kTokensPerLayoutPiece, tile_tokens());
        device_.pool().run(n_tiles_, tiles_a_piece, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t tile = begin; tile < end; ++tile) lay_out(tile, tiles + tile_begin(tile) * token_bytes_);
        });
    }

    void lay_out(std::int64_t tile, std::byte* dst) const {
        const std::int64_t first = tile_begin(tile);
        const auto width = static_cast<int>(tile_begin(tile + 1) - first);
        if (operand_ == Operand::Codes) {
            for (int t = 0; t < width; ++t)
                form_.quantize(float_row(args_.x, first + t), k_, t, width, code_traits(type_), dst);
            return;
        }
        if (operand_ == Operand::Pairs) {
            form_.round_pairs(float_row(args_.x, first), args_.x.row_stride_bytes, k_, width, dst);
            return;
        }
        // By whole cache lines of each row: rows lie a power of two apart, and would evict each other line by line.
        auto* out = reinterpret_cast<float*>(dst);
        for (std::int64_t i = 0; i < k_; i += kLanes) {
            float lines[kMaxTileTokens][kLanes];
            const std::int64_t n = std::min<std::int64_t>(kLanes, k_ - i);
            for (int t = 0; t < width; ++t)
                std::memcpy(lines[t], float_row(args_.x, first + t) + i, static_cast<std::size_t>(n) * sizeof(float));
            for (std::int64_t j = 0; j < n; ++j)
                for (int t = 0; t < width; ++t) *out++ = lines[t][j];
        }
    }

    /// Groups [first, first + count) against all tokens.
    void multiply(std::int64_t first, std::int64_t count, int thread) {
        std::byte* scratch = device_.thread_scratch(thread);
        const std::byte* weights = args_.weights.data + first * group_bytes_;
        if (!packed()) {
            weights = scratch + rows_offset_;
            for (std::int64_t g = 0; g < count; ++g) {
                const std::int64_t row = (first + g) * kLanes;
                interleave_rows(type_, args_.weights.row(row), args_.weights.row_stride_bytes,
                                static_cast<int>(std::min<std::int64_t>(kLanes, m_ - row)), k_,
                                scratch + rows_offset_ + g * group_bytes_);
            }
        }
        auto* sums = reinterpret_cast<float*>(scratch + sums_offset_);
        const std::int64_t pass_tiles = kPassTokens / tile_tokens();
        for (std::int64_t tile = 0; tile < n_tiles_; tile += pass_tiles) {
            const std::int64_t end = std::min(n_tiles_, tile + pass_tiles);
            const std::int64_t floats = (tile_begin(end) - tile_begin(tile)) * kLanes;  // of a group
            std::memset(sums, 0, static_cast<std::size_t>(count * floats) * sizeof(float));
            for (std::int64_t k = 0; k < k_; k += kChunkElements) {
                if (operand_ == Operand::Codes) {
                    chunk_of_codes(weights, count, k, tile, end, reinterpret_cast<UnpackedChunk*>(scratch), sums);
                } else {
                    chunk_of_floats(weights, count, k, tile, end, sums);
                }
            }
            for (std::int64_t g = 0; g < count; ++g)
                for (std::int64_t i = tile; i < end; ++i)
                    finish(first + g, i, sums + g * floats + (tile_begin(i) - tile_begin(tile)) * kLanes);
        }
    }

    /// Tile `index` of `n_tiles` fetches its share of what follows the chunk at `k`: the next one of the same groups,
    /// or the first one of the groups behind them.
    [[nodiscard]] WeightsAhead ahead(const std::byte* weights, std::int64_t count, std::int64_t k, std::int64_t n_steps,
                                     std::int64_t index, std::int64_t n_tiles) const {
        const std::int64_t at = k / kChunkElements * chunk_bytes_;
        const std::int64_t bytes = std::min(chunk_bytes_, group_bytes_ - at);
        const std::int64_t lead = round_up(ceil_div(kL2PrefetchBytes, count), chunk_bytes_);
        const std::int64_t beyond = at + lead - group_bytes_;
        const std::int64_t next = beyond < 0 ? at + lead : count * group_bytes_ + beyond % group_bytes_;
        const std::int64_t share = bytes * index / n_tiles;
        return {.into_l1 = weights + at + share + kL1PrefetchBytes,
                .into_l2 = weights + next + share,
                .step_bytes = ceil_div(bytes, n_steps * n_tiles)};
    }

    void chunk_of_codes(const std::byte* weights, std::int64_t count, std::int64_t k, std::int64_t tile,
                        std::int64_t end, UnpackedChunk* chunks, float* sums) const {
        const auto n_sub = static_cast<int>(std::min<std::int64_t>(kChunkElements, k_ - k) / 32);
        const std::byte* src = weights + k / kChunkElements * chunk_bytes_;
        const std::size_t block_bytes = kLanes * dtype_info(type_).block_bytes;
        const auto type = static_cast<std::size_t>(type_);
        const bool where_they_lie = n_tiles_ <= form_.most_packed_tiles[type];
        for (std::int64_t g = 0; g < count; ++g) {
            if (!where_they_lie) {
                form_.unpack[type](src + g * group_bytes_, block_bytes, n_sub, chunks[g]);
            } else if (form_.unpack_scales[type] != nullptr) {
                form_.unpack_scales[type](src + g * group_bytes_, chunks[g]);
            }
        }
        const auto& kernels = where_they_lie ? form_.multiply_packed[type] : form_.multiply_codes[type];
        const std::int64_t origin = tile_begin(tile);
        for (std::int64_t i = tile; i < end; ++i) {
            const std::int64_t begin = tile_begin(i);
            const std::int64_t width = tile_begin(i + 1) - begin;
            kernels[static_cast<std::size_t>(width - 1)](
                {.unpacked = chunks,
                 .packed = src,
                 .group_bytes = group_bytes_,
                 .n_groups = static_cast<int>(count),
                 .x = x_ + begin * token_bytes_ + k / 32 * kBlockBytesPerToken * width,
                 .n_sub = n_sub,
                 .sums = sums + (begin - origin) * kLanes,
                 .sums_stride = (tile_begin(end) - origin) * kLanes,
                 .ahead = ahead(weights, count, k, n_sub, i - tile, end - tile)});
        }
    }

    void chunk_of_floats(const std::byte* weights, std::int64_t count, std::int64_t k, std::int64_t tile,
                         std::int64_t end, float* sums) const {
        const auto& kernels =
            operand_ == Operand::Pairs ? form_.multiply_pairs : form_.multiply_floats[static_cast<std::size_t>(type_)];
        const std::int64_t elements = std::min<std::int64_t>(kChunkElements, k_ - k);
        const std::int64_t origin = tile_begin(tile);
        for (std::int64_t i = tile; i < end; ++i) {
            const std::int64_t begin = tile_begin(i);
            const std::int64_t width = tile_begin(i + 1) - begin;
            kernels[static_cast<std::size_t>(width - 1)](
                {.weights = weights + k / kChunkElements * chunk_bytes_,
                 .group_bytes = group_bytes_,
                 .n_groups = static_cast<int>(count),
                 .x = x_ + begin * token_bytes_ + k / 2 * width * (operand_ == Operand::Pairs ? kPairBytes : 8),
                 .k = elements,
                 .sums = sums + (begin - origin) * kLanes,
                 .sums_stride = (tile_begin(end) - origin) * kLanes,
                 .ahead = ahead(weights, count, k, ceil_div<std::int64_t>(elements, 2), i - tile, end - tile)});
        }
    }

    /// sums: [width, kLanes] of one tile.
    void finish(std::int64_t group, std::int64_t tile, const float* sums) const {
        const std::int64_t row = group * kLanes;
        const auto rows = static_cast<int>(std::min<std::int64_t>(kLanes, m_ - row));
        for (std::int64_t token = tile_begin(tile); token < tile_begin(tile + 1); ++token, sums += kLanes) {
            float* y = float_row(args_.y, token) + row;
            if (rows == kLanes) {
                finish_rows(args_, sums, row, kLanes, y);
            } else {
                finish_rows(args_, sums, row, rows, y);
            }
        }
    }

    CpuDevice& device_;
    const MatmulArgs& args_;
    const InterleavedForm& form_;
    DType type_;
    Operand operand_;
    std::int64_t m_;
    std::int64_t k_;
    std::int64_t n_;
    std::int64_t n_tiles_;
    std::int64_t n_groups_;
    std::int64_t group_bytes_;
    std::int64_t chunk_bytes_;  // of a group, but for its last chunk
    std::int64_t token_bytes_;  // of a token's activations, laid out
    std::int64_t groups_at_once_ = 1;
    std::size_t rows_offset_ = 0;  // in a thread's scratch
    std::size_t sums_offset_ = 0;
    const std::byte* x_ = nullptr;  // tiles behind one another: that of token t begins at t * token_bytes_
};

}  // namespace

CpuScratch matmul_scratch_interleaved(const WorkspaceShapes& shapes, const InterleavedForm& form) {
    CpuScratch most;
    for (int i = 0; i < kDTypeCount; ++i) {
        const auto type = static_cast<DType>(i);
        const Operand operand = operand_of(form, type);
        const std::int64_t block = dtype_info(type).block_elements;
        const std::int64_t k = shapes.max_cols / block * block;
        // Fewer tokens may take more groups, and so more in all.
        for (std::int64_t n = 1; n <= shapes.n_tokens; ++n) {
            const std::int64_t groups = most_groups(form, operand, n);
            most = larger_of(most, {.thread_bytes = ThreadScratch(form, type, shapes.weights, n, k, groups).bytes,
                                    .shared_bytes = laid_out_bytes(operand, n, k)});
        }
    }
    return most;
}

void matmul_interleaved(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form) {
    Call(exec, args, form).run();
}

}  // namespace slipstream::cpu
