// What the vector variants of matmul share: the loops over rows, tokens and K (matmul_interleaved.cpp), and the table
// of inner kernels that each variant fills in. The loops decide only when an output is computed. Its bits are defined
// in matmul.h and depend on the inner kernels alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::cpu {

/// Most tokens in a tile: the widest float tiles (AVX-512) have 16. Arrays of kernels by tile width have this size.
inline constexpr int kMaxTileTokens = 16;
/// Most tokens of a call that a kernel for few tokens supports. Tables of these kernels have this length and are
/// indexed by T - 1, where T is the number of tokens of the call. With VNNI there is a kernel for every T; with AVX2
/// only for T up to 4, and the other entries are null.
inline constexpr int kMostFewTokens = 8;

/// How far ahead of a kernel's position weights are prefetched, in bytes.
struct FetchDistance {
    std::int64_t l1;  // bytes ahead in each row group, for prefetches into L1
    std::int64_t l2;  // bytes ahead, of all row groups that go over K together, rounded up to whole K slices; 0: no
                      // prefetch into L2, only for kernels that read WeightsAhead::by_l2
};

/// Settings for kernels whose row groups (16 rows each) go over K together, each a stream of weights. Usually weights
/// are prefetched into L2 and from there into L1: a prefetch from memory directly into L1 holds one of its few fill
/// buffers during the whole transfer. With few tokens some machines read faster if one row group goes alone, prefetched
/// directly into L1 (numbers: kernels/NOTES.md).
struct Streams {
    int most_tokens_of_one = 0;  // calls of up to this many tokens process one row group at a time
    FetchDistance one{.l1 = 8 << 10, .l2 = 0};
    FetchDistance several{.l1 = 1 << 10, .l2 = 16 << 10};
};

/// How far ahead, in bytes, the kernels for few tokens prefetch in each row group. Measured: distances that are
/// multiples of a large power of two read slower (numbers: kernels/NOTES.md).
inline constexpr FetchDistance kFewTokensFetch{.l1 = 1760, .l2 = 3520};
/// Returns the number of row groups (16 rows each) that go over K together in kernels for n_tokens (1 to 8) tokens,
/// each a stream of weights: as many as fit their sums in registers.
constexpr int few_tokens_streams(std::int64_t n_tokens) {
    return n_tokens <= 2 ? 4 : 2;
}

/// Bytes of a pair of activations, two bfloat16 numbers.
inline constexpr std::int64_t kPairBytes = 4;
/// Number of float types: F32, F16 and BF16, which must be the first types of DType.
inline constexpr int kFloatTypes = 3;

/// Weights that a kernel prefetches while it computes: a share of the weights of its row groups, spread evenly over its
/// steps, so that memory stays busy while later tiles are computed. The addresses are those of the first row group; the
/// other groups' weights are group_bytes further on each.
struct WeightsAhead {
    const std::byte* into_l1;
    const std::byte* into_l2;
    std::int64_t step_bytes;  // bytes prefetched per step; a step is two k of float weights or a sub-block of codes
    bool by_l2;               // whether to prefetch into L2 as well; false if one row group goes alone
};

/// Arguments of a kernel for float weights: row groups (16 rows each) x one K slice (a range of K) x one tile of T
/// tokens. The kernel adds to `sums`, or overwrites them.
struct FloatTile {
    const std::byte* weights;  // packed weights of the first row group, `k` elements
    std::int64_t group_bytes;  // bytes from one row group to the next
    int n_groups;
    const std::byte* x;  // [k, T] floats, or [ceil(k / 2), T] pairs of bfloat16, with 0 past the last of an odd k
    std::int64_t k;
    float* sums;               // [T, 16]: sums of the first row group, read and written
    std::int64_t sums_stride;  // floats from one row group to the next
    bool from_zero;            // the first K slice: `sums` are overwritten, not read
    WeightsAhead ahead;
};
/// Arguments of a kernel for codes: row groups (16 rows each) x one K slice (a range of K) x `n_tiles` tiles of T
/// tokens, contiguous in `sums` and x_stride apart in x. The kernel adds to `sums`, or overwrites them.
struct CodeTile {
    int n_tiles;
    UnpackedChunk* unpacked;  // [n_groups]; if packed codes are multiplied directly, it is scratch for scales
    const std::byte* packed;  // packed K slice of the first row group
    std::int64_t group_bytes;
    int n_groups;
    const std::byte* x;     // [n_sub] blocks of T tokens of the first tile (activations.h)
    std::int64_t x_stride;  // bytes from one tile to the next
    int n_sub;              // sub-blocks of 32 elements in the K slice
    float* sums;  // [T, 16]: sums of the first row group and tile, read and written; those of further tiles follow
    std::int64_t sums_stride;
    bool from_zero;
    WeightsAhead ahead;
};

/// Arguments of the function that makes outputs of the sums of several row groups and tokens, with finish_output()
/// (matmul.h), and stores the outputs.
struct FinishTile {
    const float* sums;         // [n_tokens, 16]: sums of the first row group
    std::int64_t sums_stride;  // floats from one row group to the next
    const float* bias;         // [n_rows]; null if there is no bias
    std::byte* y;              // output of the first token and row, a float in the rows y_stride_bytes apart
    std::size_t y_stride_bytes;
    std::int64_t n_tokens;
    std::int64_t n_rows;  // matrix rows to store, of all row groups
    MatmulStore store;
};

/// The inner kernels of a kernel variant, and the sizes that they are made for. T is the number of tokens in a tile; [T
/// - 1] indexes kernels by it.
struct InterleavedForm {
    using FloatFn = void (*)(const FloatTile& tile);
    using CodeFn = void (*)(const CodeTile& tile);
    using UnpackFn = void (*)(const std::byte* src, std::size_t block_bytes, int n_sub, UnpackedChunk& out);
    using FinishFn = void (*)(const FinishTile& tile);
    using QuantizeFn = void (*)(const float* x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                                std::byte* tile);
    using RoundFn = void (*)(const float* x, std::size_t row_stride_bytes, std::int64_t k, int n_tile, std::byte* tile);

    int float_tile_tokens;  // most tokens of a tile of floats, which the registers limit
    int code_tile_tokens;
    std::array<int, kMaxTileTokens> float_groups;  // [T - 1]: row groups that go over K together, with up to
                                                   // kStreamTokens tokens
    int code_groups;
    Streams code_streams{};
    std::array<std::array<FloatFn, kMaxTileTokens>, kFloatTypes> multiply_floats;  // [dtype][T - 1]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_codes;    // [dtype][T - 1]
    std::array<UnpackFn, kDTypeCount> unpack;                                      // [dtype]

    // Kernels for the first tile of tokens: multiply as those of multiply_codes, but read packed codes, and store the
    // codes, unpacked, for the later tiles. Null: codes are unpacked before the first tile.
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_keeping{};  // [dtype][T - 1]

    // Kernels for calls of up to kMostFewTokens tokens, which are one tile. They multiply whole rows of codes of up to
    // few_tokens_streams() row groups, except the elements past the last whole step of K (few_tokens_step()). Null:
    // such calls are multiplied like any other.
    std::array<std::array<CodeFn, kMostFewTokens>, kDTypeCount> multiply_few{};  // [dtype][T - 1]

    // This field and the next four: kernels that multiply packed codes directly, for calls of at most
    // most_packed_tokens tokens.
    int packed_one_tile = 0;                              // calls of up to this many tokens are one tile
    int packed_tile_tokens = 0;                           // most tokens of a tile of larger calls
    std::int64_t packed_chunk_elements = kChunkElements;  // most elements of K per kernel call
    std::array<int, kDTypeCount> most_packed_tokens{};    // [dtype]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_packed{};  // [dtype][T - 1]

    QuantizeFn quantize;
    FinishFn finish;

    // This field and the next four: BF16 weights times activations rounded to bfloat16, in variants that have such dot
    // products.
    RoundFn round_pairs = nullptr;  // rounds a tile of tokens to pairs; null: BF16 weights are multiplied as floats
    int pair_tile_tokens = 0;
    std::array<int, kMaxTileTokens> pair_groups{};
    Streams pair_streams{};
    std::array<FloatFn, kMaxTileTokens> multiply_pairs{};  // [T - 1]
};

/// These return the inner kernels of a variant. Call the kernels only if the machine has the instructions
/// (cpu_has_form()).
[[nodiscard]] const InterleavedForm& interleaved_form_avx2();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512_vnni();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512_bf16();

/// Returns the scratch memory of a CPU device that any matmul within `shapes` needs.
[[nodiscard]] CpuScratch matmul_scratch_interleaved(const WorkspaceShapes& shapes, const InterleavedForm& form);

/// Computes matmul() with the kernels of `form`, for weights of either layout. Row-major rows are interleaved, row
/// group by row group, in a thread's scratch.
void matmul_interleaved(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form);

}  // namespace slipstream::cpu
