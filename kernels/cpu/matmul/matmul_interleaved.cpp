// The loops of matmul over packed weights. First activations are laid out in tiles of tokens, quantised if the weights
// are. Then threads take ranges of row groups. As many row groups as the registers of a kernel hold go over K together,
// so that each loaded activation serves all of them; with many tokens, when activations come from L2 or L3, at least
// kGroupsAtOnce; with few tokens, in variants that read faster so, one alone.
//
// K is processed in K slices. A K slice of quantised weights is unpacked once into L1, before the first tile of tokens
// or by it, and multiplied with every tile, so that unpacking costs little from a few tokens on. Or packed codes are
// multiplied directly, in longer K slices: if there are few tokens, or if unpacking costs next to nothing; the kernels
// for few tokens take whole rows. Meanwhile the following weights are prefetched: a share with each tile, or all by the
// tile that unpacks.

#include "kernels/cpu/matmul/matmul_interleaved.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/base/checked_math.h"
#include "kernels/base/kernel_reads.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/interleaved.h"
#include "kernels/cpu/matmul/matmul_grouped.h"
#include "kernels/cpu/matmul/matmul_tiling.h"
#include "kernels/cpu_device.h"
#include "kernels/experts.h"
#include "kernels/nonfinite_row.h"

namespace slipstream::cpu {

namespace {

// Bytes of weights that a thread takes per task, in calls of up to kStreamTokens tokens that do not use the kernels for
// few tokens.
constexpr std::int64_t kPieceBytes = 64 << 10;
// Bytes of weights that a thread takes per task, in calls that use the kernels for few tokens: these read a task as
// streams, and long streams read faster.
constexpr std::int64_t kStreamedPieceBytes = 512 << 10;
// Tasks per thread, at least: if a thread is late, at most a quarter of its share is then late.
constexpr std::int64_t kPiecesPerThread = 4;
// Tokens per task when threads lay out activations.
constexpr std::int64_t kTokensPerLayoutPiece = 8;
// Most tokens of a call whose outputs are prefetched: for 128 tokens the cache lines of four row groups fill the 32 KB
// of L1.
constexpr std::int64_t kFetchedTokens = 128;

/// Row groups that go over K together: `first` and count - 1 more, each `stride` row groups after the last.
struct Groups {
    std::int64_t first;
    std::int64_t count;
    std::int64_t stride;
};

/// Row groups that go over K together, and the range of tiles of tokens whose sums are kept at once.
struct Stripe {
    const std::byte* weights;   // weights of the first row group
    std::int64_t count;         // row groups
    std::int64_t stride_bytes;  // bytes from one row group of the stripe to the stripe's next one
    std::int64_t tile;          // index of the first tile of tokens whose sums are kept at once
    std::int64_t end;           // tile past the last one
    std::int64_t step_bytes;    // bytes that each step of a tile prefetches, if the tile does
};

/// One call of matmul: constants that every thread reads, and the functions that threads run.
class Call {
public:
    Call(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form)
        : device_(static_cast<CpuDevice&>(exec.device)),
          args_(args),
          form_(form),
          type_(args.weights.dtype),
          operand_(operand_of(form, type_)),
          where_they_lie_(multiplied_where_they_lie(form, type_, args.x.shape[0])),
          few_(few_tokens_kernel(form, type_, args.x.shape[0], args.x.shape[1])),
          first_keeps_(!where_they_lie_ && form.multiply_keeping[static_cast<std::size_t>(type_)][0] != nullptr),
          chunk_elements_(chunk_elements_of(form, type_, args.x.shape[0], args.x.shape[1])),
          m_(args.weights.shape[0]),
          k_(args.weights.shape[1]),
          n_(args.x.shape[0]),
          n_tiles_(ceil_div<std::int64_t>(n_, tile_tokens())),
          tile_width_(n_ / n_tiles_),
          n_wider_tiles_(n_ % n_tiles_),
          n_groups_(ceil_div(m_, kInterleavedRows)),
          group_bytes_(static_cast<std::int64_t>(kLanes * row_bytes(type_, k_))),
          chunk_bytes_(static_cast<std::int64_t>(kLanes * row_bytes(type_, chunk_elements_))),
          token_bytes_(laid_out_bytes_per_token(operand_, k_)),
          one_stream_(few_ == nullptr && in_one_stream(form, operand_, n_, n_groups_ * group_bytes_)),
          fetch_(one_stream_ ? streams_of(form, operand_).one : streams_of(form, operand_).several) {
        if (args.weights.layout != Layout::RowMajor)
            tell_kernel_reads(args.weights.data, static_cast<std::size_t>(n_groups_ * group_bytes_));
    }

    void run() {
        divide(ceil_div<std::int64_t>(n_groups_, device_.pool().n_threads() * kPiecesPerThread));
        device_.reserve_scratch({.thread_bytes = thread_bytes_, .shared_bytes = laid_out()});
        use_activations(device_.shared_scratch());
        if (laid_out() > 0)
            device_.pool().run(n_tiles_, tiles_per_task(),
                               [&](std::int64_t begin, std::int64_t end, int) { lay_out_tiles(begin, end); });
        device_.pool().run(n_groups_, piece_, [&](std::int64_t begin, std::int64_t end, int thread) {
            multiply_piece(begin, end, thread);
        });
    }

    // The steps of run(), for calls that are computed together.

    /// Divides the row groups into tasks. `fair`: row groups of a task that keeps all threads evenly busy.
    void divide(std::int64_t fair) {
        groups_at_once_ = one_stream_
                              ? 1
                              : std::min({few_ != nullptr ? few_tokens_streams(n_) : most_groups(form_, operand_, n_),
                                          fair, n_groups_});
        l2_lead_ = std::min(round_up(ceil_div(fetch_.l2, groups_at_once_), chunk_bytes_), group_bytes_);
        const std::int64_t in_bytes =
            (few_ != nullptr ? kStreamedPieceBytes : kPieceBytes) / std::max<std::int64_t>(group_bytes_, 1) + 1;
        piece_ = round_up(n_ <= kStreamTokens ? std::min(in_bytes, fair) : 1, groups_at_once_);
        const ThreadScratch scratch(form_, type_, args_.weights.layout, n_, k_, groups_at_once_);
        rows_offset_ = scratch.rows_offset;
        sums_offset_ = scratch.sums_offset;
        thread_bytes_ = scratch.bytes;
    }
    [[nodiscard]] std::int64_t n_groups() const { return n_groups_; }
    [[nodiscard]] std::int64_t n_tasks() const { return ceil_div(n_groups_, piece_); }
    [[nodiscard]] std::size_t thread_bytes() const { return thread_bytes_; }
    /// Returns the bytes that use_activations() takes.
    [[nodiscard]] std::size_t laid_out() const { return laid_out_bytes(operand_, n_, k_); }
    /// Whether the laid out activations of `other` are those of this call.
    [[nodiscard]] bool lays_out_as(const Call& other) const {
        return type_ == other.type_ && args_.x.data == other.args_.x.data && n_ == other.n_ && k_ == other.k_ &&
               args_.x.row_stride_bytes == other.args_.x.row_stride_bytes;
    }
    /// Sets where the laid out activations are, or will be.
    void use_activations(const std::byte* tiles) { x_ = laid_out() == 0 ? args_.x.data : tiles; }
    /// Lays out the tiles of tokens of task `task`, of n_layout_tasks(), unless activations are read in place. Returns
    /// the first of these tokens that has an infinity or NaN; -1 if all are finite.
    [[nodiscard]] std::int64_t run_layout_task(std::int64_t task) {
        const std::int64_t begin = task * tiles_per_task();
        const std::int64_t end = std::min(n_tiles_, begin + tiles_per_task());
        if (laid_out() > 0) lay_out_tiles(begin, end);
        for (std::int64_t tile = begin; tile < end; ++tile)
            for (std::int64_t token = tile_begin(tile); token < tile_begin(tile + 1); ++token)
                if (!is_finite(tile, token)) return token;
        return -1;
    }
    [[nodiscard]] std::int64_t n_layout_tasks() const { return ceil_div(n_tiles_, tiles_per_task()); }
    /// Multiplies the row groups of task `task`, of n_tasks().
    void run_task(std::int64_t task, int thread) {
        multiply_piece(task * piece_, std::min(n_groups_, (task + 1) * piece_), thread);
    }

private:
    [[nodiscard]] int tile_tokens() const {
        if (few_ != nullptr) return kMostFewTokens;
        if (!where_they_lie_) return tile_tokens_of(form_, operand_);
        return n_ <= form_.packed_one_tile ? form_.packed_one_tile : form_.packed_tile_tokens;
    }
    // Returns the first token of tile `tile`. Tiles have nearly equal widths: the first n_wider_tiles_ are one token
    // wider.
    [[nodiscard]] std::int64_t tile_begin(std::int64_t tile) const {
        return tile * tile_width_ + std::min(tile, n_wider_tiles_);
    }
    [[nodiscard]] bool packed() const { return args_.weights.layout == Layout::Interleaved16; }

    [[nodiscard]] std::int64_t tiles_per_task() const {
        return ceil_div<std::int64_t>(kTokensPerLayoutPiece, tile_tokens());
    }
    void lay_out_tiles(std::int64_t begin, std::int64_t end) const {
        // The memory is the device's shared scratch, which only this call's tasks write.
        auto* tiles = const_cast<std::byte*>(x_);
        for (std::int64_t tile = begin; tile < end; ++tile) lay_out(tile, tiles + tile_begin(tile) * token_bytes_);
    }

    /// Whether the activations of a token, of tile `tile`, are finite. Activations that have been rounded to codes are
    /// if the scales of their runs are (activations.h): only these are read.
    [[nodiscard]] bool is_finite(std::int64_t tile, std::int64_t token) const {
        if (operand_ != Operand::Codes) return all_finite(float_row(args_.x, token), k_);
        const std::int64_t begin = tile_begin(tile);
        const std::int64_t width = tile_begin(tile + 1) - begin;
        const std::int64_t run = code_traits(type_).activation_run;
        // d of the first run; that of the next one is as many floats further on as its activations take.
        const auto* const scale =
            reinterpret_cast<const float*>(x_ + begin * token_bytes_ + BlockOffsets<1>::kD * width) + (token - begin);
        const std::int64_t next = run / 32 * kBlockBytesPerToken * width / static_cast<std::int64_t>(sizeof(float));
        std::uint32_t damaged = 0;
        for (std::int64_t i = 0; i < k_ / run; ++i) damaged |= is_damaged(scale[i * next]);
        return damaged == 0;
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
        // Transposes [token][k] to [k][token] by whole cache lines of each row: rows are often a power of two apart, so
        // their lines evict one another from L1.
        auto* out = reinterpret_cast<float*>(dst);
        for (std::int64_t i = 0; i < k_; i += kLanes) {
            float lines[kMaxTileTokens][kLanes];
            const std::int64_t n = std::min<std::int64_t>(kLanes, k_ - i);
            for (int t = 0; t < width; ++t) std::memcpy(lines[t], float_row(args_.x, first + t) + i, n * sizeof(float));
            for (std::int64_t j = 0; j < n; ++j)
                for (int t = 0; t < width; ++t) *out++ = lines[t][j];
        }
    }

    /// Prefetches the cache lines of outputs, so that no store of a kernel waits for one: they are a power of two
    /// apart, and seldom in L1.
    void fetch_outputs(const Groups& groups) const {
        for (std::int64_t t = 0; t < n_; ++t)
            for (std::int64_t g = 0; g < groups.count; ++g)
                __builtin_prefetch(float_row(args_.y, t) + (groups.first + g * groups.stride) * kLanes, 1);
    }

    /// Multiplies row groups [begin, end) with all tokens, groups_at_once_ row groups together. The kernels for few
    /// tokens get streams of contiguous row groups: a stream that continues reads faster than one that restarts with
    /// each row group.
    void multiply_piece(std::int64_t begin, std::int64_t end, int thread) {
        const std::int64_t count = std::min(groups_at_once_, end - begin);
        const std::int64_t times = (end - begin) / count;
        for (std::int64_t i = 0; i < times; ++i)
            multiply(few_ != nullptr ? Groups{begin + i, count, times} : Groups{begin + i * count, count, 1}, thread);
        if (begin + times * count < end) multiply({begin + times * count, end - begin - times * count, 1}, thread);
    }

    void multiply(const Groups& groups, int thread) {
        const auto [first, count, stride] = groups;
        std::byte* scratch = device_.thread_scratch(thread);
        const std::byte* weights = args_.weights.data + first * group_bytes_;
        if (!packed()) {
            weights = scratch + rows_offset_;
            for (std::int64_t g = 0; g < count; ++g) {
                const std::int64_t row = (first + g * stride) * kLanes;
                interleave_rows(type_, args_.weights.row(row), args_.weights.row_stride_bytes,
                                static_cast<int>(std::min<std::int64_t>(kLanes, m_ - row)), k_,
                                scratch + rows_offset_ + g * group_bytes_);
            }
        }
        if (!one_stream_ && n_ <= kFetchedTokens) fetch_outputs(groups);
        auto* sums = reinterpret_cast<float*>(scratch + sums_offset_);
        const std::int64_t pass_tiles = kPassTokens / tile_tokens();
        for (std::int64_t tile = 0; tile < n_tiles_; tile += pass_tiles) {
            const std::int64_t end = std::min(n_tiles_, tile + pass_tiles);
            const std::int64_t floats =
                (tile_begin(end) - tile_begin(tile)) * kLanes;  // sums of a row group, in floats
            if (k_ == 0) std::memset(sums, 0, count * floats * sizeof(float));
            const std::int64_t n_fetching = first_keeps_ ? 1 : end - tile;
            const Stripe stripe{.weights = weights,
                                .count = count,
                                .stride_bytes = (packed() ? stride : 1) * group_bytes_,
                                .tile = tile,
                                .end = end,
                                .step_bytes = ceil_div(chunk_bytes_, chunk_elements_ / step_elements() * n_fetching)};
            std::int64_t at = 0;  // byte offset in each row group
            for (std::int64_t k = 0; k < k_; k += chunk_elements_, at += chunk_bytes_) {
                if (operand_ == Operand::Codes) {
                    chunk_of_codes(stripe, k, at, reinterpret_cast<UnpackedChunk*>(scratch), sums);
                } else {
                    chunk_of_floats(stripe, k, at, sums);
                }
            }
            const std::int64_t together = stride == 1 ? count : 1;
            for (std::int64_t g = 0; g < count; g += together)
                finish(first + g * stride, together, tile_begin(tile), tile_begin(end), sums + g * floats);
        }
    }

    [[nodiscard]] std::int64_t step_elements() const { return operand_ == Operand::Codes ? 32 : 2; }

    /// Returns what tile `index` of a stripe prefetches while it makes `n_steps` steps. The tiles of a stripe divide
    /// the next weights among themselves: those of the next K slice, or after the last K slice those of the next row
    /// groups. `at`: byte offset of the current K slice in a row group. If the first tile unpacks the codes for all
    /// others, only it waits for weights, and it prefetches everything.
    [[nodiscard]] WeightsAhead ahead(const Stripe& stripe, std::int64_t at, std::int64_t index,
                                     std::int64_t n_steps) const {
        const std::int64_t share = index * n_steps * stripe.step_bytes;
        std::int64_t next = at + l2_lead_;
        if (next >= group_bytes_) next += (stripe.count - 1) * group_bytes_;
        return {.into_l1 = stripe.weights + at + share + fetch_.l1,
                .into_l2 = stripe.weights + next + share,
                .step_bytes = first_keeps_ && index > 0 ? 0 : stripe.step_bytes,
                .by_l2 = fetch_.l2 != 0};
    }

    void chunk_of_codes(const Stripe& stripe, std::int64_t k, std::int64_t at, UnpackedChunk* chunks,
                        float* sums) const {
        const std::int64_t n_sub = std::min<std::int64_t>(chunk_elements_, k_ - k) / step_elements();
        const std::byte* src = stripe.weights + at;
        const std::size_t block_bytes = kLanes * dtype_info(type_).block_bytes;
        const auto type = static_cast<std::size_t>(type_);
        if (few_ != nullptr && k == 0) return chunk_of_few_tokens(stripe, n_sub, sums);
        for (std::int64_t g = 0; !where_they_lie_ && !first_keeps_ && g < stripe.count; ++g)
            form_.unpack[type](src + g * stripe.stride_bytes, block_bytes, static_cast<int>(n_sub), chunks[g]);
        const auto& others = where_they_lie_ ? form_.multiply_packed[type] : form_.multiply_codes[type];
        const std::int64_t origin = tile_begin(stripe.tile);
        // Index of the tile after the last one of a kernel call. A call takes tiles of one width; a tile that keeps its
        // codes has a call of its own.
        std::int64_t end = 0;
        for (std::int64_t i = stripe.tile; i < stripe.end; i = end) {
            const bool keeps = first_keeps_ && i == stripe.tile;
            end = keeps ? i + 1 : i < n_wider_tiles_ ? std::min(n_wider_tiles_, stripe.end) : stripe.end;
            const std::int64_t begin = tile_begin(i);
            const std::int64_t width = tile_begin(i + 1) - begin;
            const auto& of_width = keeps ? form_.multiply_keeping[type] : others;
            of_width[width - 1]({.n_tiles = static_cast<int>(end - i),
                                 .unpacked = chunks,
                                 .packed = src,
                                 .group_bytes = stripe.stride_bytes,
                                 .n_groups = static_cast<int>(stripe.count),
                                 .x = x_ + begin * token_bytes_ + k / 32 * kBlockBytesPerToken * width,
                                 .x_stride = width * token_bytes_,
                                 .n_sub = static_cast<int>(n_sub),
                                 .sums = sums + (begin - origin) * kLanes,
                                 .sums_stride = (tile_begin(stripe.end) - origin) * kLanes,
                                 .from_zero = k == 0,
                                 .ahead = ahead(stripe, at, i - stripe.tile, n_sub)});
        }
    }

    /// Multiplies whole rows of the row groups of a stripe, `n_sub` sub-blocks each, with the call's only tile.
    void chunk_of_few_tokens(const Stripe& stripe, std::int64_t n_sub, float* sums) const {
        few_({.n_tiles = 1,
              .unpacked = nullptr,
              .packed = stripe.weights,
              .group_bytes = stripe.stride_bytes,
              .n_groups = static_cast<int>(stripe.count),
              .x = x_,
              .x_stride = 0,
              .n_sub = static_cast<int>(n_sub),
              .sums = sums,
              .sums_stride = n_ * kLanes,
              .from_zero = true,
              .ahead = {.into_l1 = stripe.weights + kFewTokensFetch.l1,
                        .into_l2 = stripe.weights + kFewTokensFetch.l2,
                        .step_bytes = 0,
                        .by_l2 = true}});
    }

    void chunk_of_floats(const Stripe& stripe, std::int64_t k, std::int64_t at, float* sums) const {
        const auto& kernels =
            operand_ == Operand::Pairs ? form_.multiply_pairs : form_.multiply_floats[static_cast<std::size_t>(type_)];
        const std::int64_t elements = std::min<std::int64_t>(chunk_elements_, k_ - k);
        const std::int64_t origin = tile_begin(stripe.tile);
        for (std::int64_t i = stripe.tile; i < stripe.end; ++i) {
            const std::int64_t begin = tile_begin(i);
            const std::int64_t width = tile_begin(i + 1) - begin;
            kernels[width - 1](
                {.weights = stripe.weights + at,
                 .group_bytes = group_bytes_,
                 .n_groups = static_cast<int>(stripe.count),
                 .x = x_ + begin * token_bytes_ + k / 2 * width * (operand_ == Operand::Pairs ? kPairBytes : 8),
                 .k = elements,
                 .sums = sums + (begin - origin) * kLanes,
                 .sums_stride = (tile_begin(stripe.end) - origin) * kLanes,
                 .from_zero = k == 0,
                 .ahead = ahead(stripe, at, i - stripe.tile, elements / step_elements())});
        }
    }

    /// Stores the outputs of row groups [first, first + count) and tokens [begin, end).
    void finish(std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end, const float* sums) const {
        const std::int64_t row = first * kLanes;
        form_.finish({.sums = sums,
                      .sums_stride = (end - begin) * kLanes,
                      .bias = args_.bias.empty() ? nullptr : float_row(args_.bias, 0) + row,
                      .y = reinterpret_cast<std::byte*>(float_row(args_.y, begin) + row),
                      .y_stride_bytes = args_.y.row_stride_bytes,
                      .n_tokens = end - begin,
                      .n_rows = std::min(count * kLanes, m_ - row),
                      .store = args_.store});
    }

    CpuDevice& device_;
    const MatmulArgs& args_;
    const InterleavedForm& form_;
    DType type_;
    Operand operand_;
    bool where_they_lie_;          // multiply packed codes directly, not unpacked in memory
    InterleavedForm::CodeFn few_;  // kernel that takes whole rows of codes in calls of few tokens; null: K goes by in K
                                   // slices
    bool first_keeps_;             // the first tile of tokens unpacks codes for all tiles
    std::int64_t chunk_elements_;
    std::int64_t m_;
    std::int64_t k_;
    std::int64_t n_;
    std::int64_t n_tiles_;
    std::int64_t tile_width_;  // tokens of all tiles except the first n_wider_tiles_, which have one more
    std::int64_t n_wider_tiles_;
    std::int64_t n_groups_;
    std::int64_t group_bytes_;
    std::int64_t chunk_bytes_;  // bytes of a row group in a K slice; the last K slice may be shorter
    std::int64_t token_bytes_;  // bytes of one token's laid out activations
    bool one_stream_;
    FetchDistance fetch_;
    std::int64_t groups_at_once_ = 1;
    std::int64_t piece_ = 1;       // row groups of a task
    std::int64_t l2_lead_ = 0;     // bytes ahead, in each row group, of the prefetch into L2; 0: none
    std::size_t rows_offset_ = 0;  // byte offset of interleaved rows in a thread's scratch
    std::size_t sums_offset_ = 0;
    std::size_t thread_bytes_ = 0;
    const std::byte* x_ = nullptr;  // laid out activations: the tile that begins with token t is at t * token_bytes_
};

// Most products that are computed together; larger groups are computed in parts.
constexpr std::size_t kMostTogether = 64;

/// Products that are computed together: their tasks are one job of the pool, in the order of the products.
class Group {
public:
    /// Adds a product. Returns false if it must wait for the next group: the activations of all products of a group are
    /// laid out at once, and workspace is reserved for so many rows.
    [[nodiscard]] bool add(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form) {
        if (n_ == kMostTogether) return false;
        std::optional<Call>& call = calls_[n_];
        call.emplace(exec, args, form);
        shares_[n_] = n_ > 0 && call->lays_out_as(*calls_[n_ - 1]);
        const std::int64_t rows = shares_[n_] ? 0 : args.x.shape[0];
        if (n_ > 0 && rows_ + rows > kGroupedRows) return false;
        rows_ += rows;
        ++n_;
        return true;
    }

    /// `before`: products of the call that are not in this group and come before it.
    void run(CpuDevice& device, std::size_t before) {
        std::int64_t n_groups = 0;
        for (std::size_t i = 0; i < n_; ++i) n_groups += calls_[i]->n_groups();
        const std::int64_t fair = ceil_div<std::int64_t>(n_groups, device.pool().n_threads() * kPiecesPerThread);
        CpuScratch scratch;
        for (std::size_t i = 0; i < n_; ++i) {
            calls_[i]->divide(fair);
            scratch.thread_bytes = std::max(scratch.thread_bytes, calls_[i]->thread_bytes());
            if (!shares_[i]) scratch.shared_bytes += calls_[i]->laid_out();
        }
        device.reserve_scratch(scratch);
        std::size_t end = 0;    // of the laid out activations
        std::size_t begin = 0;  // of those of the product
        for (std::size_t i = 0; i < n_; ++i) {
            if (!shares_[i]) {
                begin = end;
                end += calls_[i]->laid_out();
            }
            calls_[i]->use_activations(device.shared_scratch() + begin);
        }
        // Product and row, product * 2^32 + row, of the first row that is not finite.
        constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
        std::atomic<std::uint64_t> first_damaged{kNone};
        run_tasks(
            device, [&](std::size_t i) { return shares_[i] ? 0 : calls_[i]->n_layout_tasks(); },
            [&](std::size_t i, std::int64_t task, int) {
                const std::int64_t row = calls_[i]->run_layout_task(task);
                if (row < 0) return;
                const std::uint64_t found = std::uint64_t{i} << 32 | static_cast<std::uint64_t>(row);
                std::uint64_t first = first_damaged.load();
                while (found < first && !first_damaged.compare_exchange_weak(first, found)) {
                }
            });
        if (const std::uint64_t first = first_damaged.load(); first != kNone)
            throw NonFiniteRow(before + static_cast<std::size_t>(first >> 32),
                               static_cast<std::int64_t>(first & 0xffffffffU));
        run_tasks(
            device, [&](std::size_t i) { return calls_[i]->n_tasks(); },
            [&](std::size_t i, std::int64_t task, int thread) { calls_[i]->run_task(task, thread); });
    }

private:
    /// Runs work(product, task, thread) for each of the n_tasks(product) tasks of each product.
    template <typename Count, typename Work>
    void run_tasks(CpuDevice& device, const Count& n_tasks, const Work& work) {
        std::array<std::int64_t, kMostTogether + 1> first{};  // [products + 1]: first task of each
        for (std::size_t i = 0; i < n_; ++i) first[i + 1] = first[i] + n_tasks(i);
        if (first[n_] == 0) return;
        device.pool().run(first[n_], 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            for (std::int64_t task = begin; task < end; ++task) {
                const auto after =
                    std::upper_bound(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(n_), task);
                const auto i = static_cast<std::size_t>(after - first.begin()) - 1;
                work(i, task - first[i], thread);
            }
        });
    }

    std::array<std::optional<Call>, kMostTogether> calls_;
    std::array<bool, kMostTogether> shares_{};  // the laid out activations of the product before
    std::size_t n_ = 0;
    std::int64_t rows_ = 0;  // of all laid out activations
};

}  // namespace

void matmul_interleaved(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form) {
    Call(exec, args, form).run();
}

void grouped_matmul_interleaved(ExecRef exec, std::span<const MatmulArgs> products, const InterleavedForm& form) {
    for (std::size_t i = 0; i < products.size();) {
        const std::size_t before = i;
        Group group;
        while (i < products.size() && group.add(exec, products[i], form)) ++i;
        group.run(static_cast<CpuDevice&>(exec.device), before);
    }
}

}  // namespace slipstream::cpu
