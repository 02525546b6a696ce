// Loading into items: the bytes of pack_weights done directly, whatever the number of readers; bounded reading ahead;
// and every way to fail leaves no thread behind and no process killed.
#include "runtime/model/weight_loader.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/cpu/matmul/quantize.h"
#include "kernels/cpu_device.h"
#include "kernels/pack_weights.h"
#include "offload/mapped_file.h"
#include "tests/support/error_text.h"
#include "tests/support/layers.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

constexpr std::int64_t kCols = 256;
constexpr std::size_t kFirstByte = 3;  // of the first matrix: files align as they like
constexpr std::size_t kPage = 4096;

/// Matrices behind one another in a mapped file, and nothing else of a model. Hooks see what the loader asks for.
class MatricesOnDisk final : public WeightSource {
public:
    std::function<void(std::span<const std::byte>)> on_prefetch, on_release;

    /// A model of `n_layers` with random bytes in matrices of all types and odd numbers of rows.
    explicit MatricesOnDisk(std::int64_t n_layers, std::int64_t lm_head_rows = 333, DType lm_head_type = DType::F32) {
        std::size_t at = kFirstByte;
        weights_.layers.resize(static_cast<std::size_t>(n_layers));
        int n = 0;
        for (std::int64_t layer = 0; layer < n_layers; ++layer)
            for (const TensorRole role : layer_matrices()) {
                place(weights_.tensor(layer, role), static_cast<DType>(n % kDTypeCount), 37 + 13 * n, kCols, at);
                ++n;
            }
        place(weights_.lm_head, lm_head_type, lm_head_rows, kCols, at);
        std::mt19937_64 random(7);
        std::string content(round_up_8(at), '\0');
        for (std::size_t i = 0; i < content.size(); i += 8) {
            const std::uint64_t word = random();
            std::memcpy(content.data() + i, &word, 8);
        }
        map(folder_.write("weights", content));
    }
    /// One matrix of zeros, in a file without blocks on the disk.
    explicit MatricesOnDisk(const ConstTensorView& lm_head) : weights_{} {
        std::size_t at = kFirstByte;
        place(weights_.lm_head, lm_head.dtype, lm_head.shape[0], lm_head.cols(), at);
        std::filesystem::resize_file(folder_.write("weights", ""), at);
        map(folder_.path() / "weights");
    }

    void cut_file_to(std::size_t bytes) const { std::filesystem::resize_file(folder_.path() / "weights", bytes); }
    [[nodiscard]] const std::filesystem::path& path() const { return file_->path(); }
    [[nodiscard]] std::size_t file_bytes() const { return file_->bytes().size(); }

    ModelWeights weights() const override { return weights_; }
    void prefetch(std::span<const std::byte> part) const override {
        const std::span<const std::byte> all = file_->bytes();
        ASSERT_TRUE(part.data() >= all.data() + kFirstByte && part.data() + part.size() <= all.data() + all.size());
        if (on_prefetch) on_prefetch(part);
        file_->populate(static_cast<std::size_t>(part.data() - all.data()), part.size());
    }
    void release(std::span<const std::byte> part) const override {
        file_->release(static_cast<std::size_t>(part.data() - file_->bytes().data()), part.size());
        if (on_release) on_release(part);
    }

    const ModelConfig& config() const override { return config_; }

private:
    static std::size_t round_up_8(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

    // The offset stands in for the address until the file is mapped.
    static void place(ConstTensorView& matrix, DType type, std::int64_t rows, std::int64_t cols, std::size_t& at) {
        matrix = matrix_view(reinterpret_cast<const std::byte*>(at), type, rows, cols);
        at += static_cast<std::size_t>(rows) * row_bytes(type, cols);
    }

    void map(const std::filesystem::path& path) {
        file_ = std::make_unique<MappedFile>(path);
        const auto n_layers = static_cast<std::int64_t>(weights_.layers.size());
        for (std::int64_t layer = 0; layer < n_layers; ++layer)
            for (const TensorRole role : layer_matrices()) move_to_file(weights_.tensor(layer, role));
        move_to_file(weights_.lm_head);
    }
    void move_to_file(ConstTensorView& matrix) const {
        matrix.data = file_->bytes().data() + reinterpret_cast<std::size_t>(matrix.data);
    }

    TempFolder folder_;
    std::unique_ptr<MappedFile> file_;
    ModelWeights weights_;
    ModelConfig config_;
};

/// Items of a model, in memory that begins as 0xab.
struct Destinations {
    std::vector<WeightItem> items;
    std::vector<Buffer> buffers;
    std::vector<std::byte*> pointers;

    Destinations(Device& device, const WeightSource& files, WeightRounding rounding, std::size_t max_item_bytes)
        : items(cut_weight_items(files.weights(), rounding, max_item_bytes)) {
        for (const WeightItem& item : items) {
            buffers.push_back(device.allocate(item.bytes, MemoryTag::Weights, "a test"));
            pointers.push_back(buffers.back().data());
            std::memset(pointers.back(), 0xab, item.bytes);
        }
    }
};

void load(Device& device, const WeightSource& files, const Destinations& to, int n_readers,
          std::function<void(std::size_t, std::size_t)> on_progress = {}) {
    const ModelWeights weights = files.weights();
    load_weight_items(device, {.source = &files,
                               .weights = &weights,
                               .items = to.items,
                               .destinations = to.pointers,
                               .n_readers = n_readers,
                               .on_progress = std::move(on_progress)});
}

/// The whole of a matrix in `type`, row-major.
std::vector<std::byte> rounded_rows(const ConstTensorView& matrix) {
    const std::size_t bytes_a_row = row_bytes(DType::Q8_0, matrix.cols());
    std::vector<std::byte> out(static_cast<std::size_t>(matrix.shape[0]) * bytes_a_row);
    std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
    for (std::int64_t row = 0; row < matrix.shape[0]; ++row) {
        cpu::dequantize_row(matrix.dtype, matrix.row(row), values.data(), matrix.cols());
        cpu::quantize_row_q8_0(values, out.data() + static_cast<std::size_t>(row) * bytes_a_row);
    }
    return out;
}

/// A matrix packed in one piece.
std::vector<std::byte> packed_directly(Device& device, ConstTensorView matrix, WeightRounding rounding) {
    const DType type = packed_type(matrix, rounding);
    std::vector<std::byte> rounded;
    if (type != matrix.dtype) {
        rounded = rounded_rows(matrix);
        matrix = matrix_view(static_cast<const std::byte*>(rounded.data()), type, matrix.shape[0], kCols);
    }
    const Buffer packed = device.allocate(packed_bytes(type, matrix.shape[0], kCols), MemoryTag::Weights, "a test");
    const auto stream = device.make_stream(StreamKind::Compute);
    pack_weights({device, *stream},
                 {.weights = matrix, .packed = packed_view(packed.data(), type, matrix.shape[0], kCols)});
    stream->synchronize();
    return {packed.data(), packed.data() + packed.size_bytes()};
}

/// Each part holds its rows of the packed matrix; what lies between parts is zero.
void expect_packed(Device& device, const ModelWeights& weights, const Destinations& loaded, WeightRounding rounding) {
    std::vector<std::byte> matrix;  // the one that parts are of now, packed
    for (std::size_t i = 0; i < loaded.items.size(); ++i) {
        const WeightItem& item = loaded.items[i];
        for (std::size_t p = 0; p < item.parts.size(); ++p) {
            const WeightPart& part = item.parts[p];
            SCOPED_TRACE(fmt::format("item {}, layer {}, role {}, rows [{}, +{})", i, part.layer,
                                     static_cast<int>(part.role), part.first_row, part.n_rows));
            const ConstTensorView& source = weights.tensor(part.layer, part.role);
            if (part.first_row == 0) matrix = packed_directly(device, source, rounding);
            const DType type = packed_type(source, rounding);
            const std::size_t bytes = packed_bytes(type, part.n_rows, kCols);
            const std::byte* found = loaded.pointers[i] + part.offset;
            const std::byte* expected =
                matrix.data() + static_cast<std::size_t>(part.first_row) * row_bytes(type, kCols);
            ASSERT_EQ(std::memcmp(found, expected, bytes), 0);
            const std::size_t end = p + 1 < item.parts.size() ? item.parts[p + 1].offset : item.bytes;
            for (std::size_t at = part.offset + bytes; at < end; ++at)
                ASSERT_EQ(loaded.pointers[i][at], std::byte{0}) << "byte " << at;
        }
    }
}

/// Pages of this process that hold part of the file now.
std::size_t resident_bytes(const std::filesystem::path& path) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool here = false;
    while (std::getline(maps, line)) {
        if (line.find(" /") != std::string::npos) here = line.ends_with(path.string());
        if (here && line.starts_with("Rss:")) return std::stoul(line.substr(4)) * 1024;
    }
    return 0;
}

TEST(WeightLoader, LoadsWhatPackingGives) {
    const MatricesOnDisk files(2);
    for (const WeightRounding rounding : {WeightRounding::None, WeightRounding::Q8_0}) {
        for (int n_readers = 1; n_readers <= 4; ++n_readers) {
            CpuDevice device({.n_threads = 1 + n_readers % 2});
            for (const std::size_t limit : {std::size_t{20000}, std::size_t{3} << 20, SIZE_MAX}) {
                SCOPED_TRACE(fmt::format("{} readers, items of {}", n_readers, limit));
                const Destinations to(device, files, rounding, limit);
                load(device, files, to, n_readers);
                expect_packed(device, files.weights(), to, rounding);
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST(WeightLoader, ReportsBytesOfTheFilesAndKeepsNoPages) {
    const MatricesOnDisk files(1, 40000);  // two steps of 32 MiB for the LM head
    CpuDevice device({.n_threads = 2});
    for (const WeightRounding rounding : {WeightRounding::None, WeightRounding::Q8_0}) {
        const Destinations to(device, files, rounding, SIZE_MAX);
        std::vector<std::size_t> done;
        const auto caller = std::this_thread::get_id();
        load(device, files, to, 2, [&](std::size_t bytes, std::size_t total) {
            EXPECT_EQ(std::this_thread::get_id(), caller);
            EXPECT_LE(files.file_bytes() - total, kFirstByte + 7);
            done.push_back(bytes);
        });
        ASSERT_EQ(done.size(), 1U + 7 + 2);
        EXPECT_EQ(done.front(), 0U);
        EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
        EXPECT_LE(files.file_bytes() - done.back(), kFirstByte + 7);
        EXPECT_LE(resident_bytes(files.path()), 40 * kPage);
        expect_packed(device, files.weights(), to, rounding);
    }
}

// In 32 MiB of this matrix there is an odd number of groups of 16 rows, each of 27.5 times 64 bytes.
TEST(WeightLoader, EachStepBeginsWhereAPackMay) {
    const MatricesOnDisk files(1, 305100, DType::Q3_K);
    CpuDevice device({.n_threads = 2});
    const Destinations to(device, files, WeightRounding::None, SIZE_MAX);
    load(device, files, to, 2);
    expect_packed(device, files.weights(), to, WeightRounding::None);
}

TEST(WeightLoader, HasNothingToDoWithoutItems) {
    const MatricesOnDisk files(1);
    CpuDevice device({.n_threads = 1});
    Destinations to(device, files, WeightRounding::None, SIZE_MAX);
    to.items.clear();
    to.pointers.clear();
    int n_calls = 0;
    load(device, files, to, 3,
         [&](std::size_t done, std::size_t total) { n_calls += done == 0 && total == 0 ? 1 : 99; });
    EXPECT_EQ(n_calls, 1);
}

TEST(WeightLoader, ReadsAheadAsFarAsTheWindowAndGivesPagesUp) {
    // A window and a half, in rows of 64 KiB.
    const auto rows = static_cast<std::int64_t>(kLoadWindowBytes / 65536 * 3 / 2);
    MatricesOnDisk files(matrix_view(static_cast<const std::byte*>(nullptr), DType::BF16, rows, 32768));
    std::mutex mutex;
    std::size_t in_memory = 0, most_in_memory = 0;  // by what was asked for
    files.on_prefetch = [&](std::span<const std::byte> part) {
        const std::lock_guard lock(mutex);
        if (part.size() > 1) in_memory += part.size();  // not where the caller looks at a step's last byte again
        most_in_memory = std::max(most_in_memory, in_memory);
    };
    files.on_release = [&](std::span<const std::byte> part) {
        const std::lock_guard lock(mutex);
        in_memory -= part.size();
    };
    CpuDevice device({.n_threads = 1});
    const Destinations to(device, files, WeightRounding::None, SIZE_MAX);
    std::size_t most_resident = 0;
    load(device, files, to, 3, [&](std::size_t done, std::size_t total) {
        if (done == 0 || done > total / 4) return;
        // Readers go on until the window is full while nothing is packed.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        for (;;) {
            {
                const std::lock_guard lock(mutex);
                if (in_memory + (std::size_t{32} << 20) > kLoadWindowBytes) break;
            }
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no reading ahead";
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // for a reader that went on to show
        most_resident = std::max(most_resident, resident_bytes(files.path()));
    });
    EXPECT_LE(most_in_memory, kLoadWindowBytes);
    EXPECT_GT(most_resident, kLoadWindowBytes / 8);  // more than a step; how much more depends on who else computes
    EXPECT_LE(most_resident, kLoadWindowBytes + 100 * kPage);  // steps share a page with their neighbours
    EXPECT_EQ(in_memory, 0U);
    EXPECT_LE(resident_bytes(files.path()), 100 * kPage);
}

TEST(WeightLoader, AFileThatWasCutShortIsAnError) {
    for (int n_readers = 1; n_readers <= 4; ++n_readers) {
        for (const WeightRounding rounding : {WeightRounding::None, WeightRounding::Q8_0}) {
            const MatricesOnDisk files(2);
            CpuDevice device({.n_threads = 2});
            const Destinations to(device, files, rounding, 100000);
            files.cut_file_to(files.file_bytes() / 2);
            EXPECT_EQ(
                error_text<IoError>([&] { load(device, files, to, n_readers); }),
                fmt::format("cannot read {}: the file was truncated while in use, or its disk fails; check the file",
                            files.path().string()));
        }
    }
}

TEST(WeightLoader, AFileCutShortBehindWhatIsPackedIsAnError) {
    constexpr int kSteps = 15;  // a matrix each
    for (int at = 1; at < kSteps; ++at) {
        const MatricesOnDisk files(2);
        CpuDevice device({.n_threads = 2});
        const Destinations to(device, files, WeightRounding::None, SIZE_MAX);
        int n_calls = 0;
        EXPECT_THROW(load(device, files, to, 1 + at % 4,
                          [&](std::size_t done, std::size_t total) {
                              ASSERT_LT(done, total);
                              if (n_calls++ != at) return;
                              // All is read ahead by now, as little as it is; pages that were there are gone.
                              std::this_thread::sleep_for(std::chrono::milliseconds(5));
                              files.cut_file_to(0);
                          }),
                     IoError);
        EXPECT_EQ(n_calls, at + 1);
    }
}

TEST(WeightLoader, WhatFailsInAReaderReachesTheCaller) {
    for (int n_readers = 1; n_readers <= 4; ++n_readers) {
        for (int at = 0; at < 15; ++at) {
            MatricesOnDisk files(2);
            CpuDevice device({.n_threads = 1});
            const Destinations to(device, files, WeightRounding::None, SIZE_MAX);
            std::atomic<int> n_steps{0}, n_inside{0};
            files.on_prefetch = [&](std::span<const std::byte> part) {
                const int inside = ++n_inside;
                EXPECT_LE(inside, n_readers + 1);
                const bool fails = part.size() > 1 && n_steps++ == at;
                --n_inside;
                if (!fails) return;
                if (at % 2 == 0) throw IoError("the disk is gone");
                throw std::bad_alloc();
            };
            if (at % 2 == 0) {
                EXPECT_EQ(error_text<IoError>([&] { load(device, files, to, n_readers); }), "the disk is gone");
            } else {
                EXPECT_THROW(load(device, files, to, n_readers), std::bad_alloc);
            }
            EXPECT_EQ(n_inside, 0);
            if (n_readers == 1) {
                EXPECT_EQ(n_steps, at + 1);
            }
        }
    }
}

TEST(WeightLoader, ProgressMayGiveUpAtAnyStep) {
    struct GaveUp {};
    for (int n_readers = 1; n_readers <= 4; ++n_readers) {
        for (int at = 0; at <= 15; ++at) {
            std::atomic<int> n_inside{0};
            MatricesOnDisk files(2);
            files.on_prefetch = [&](std::span<const std::byte>) {
                ++n_inside;
                std::this_thread::sleep_for(std::chrono::microseconds(200));
                --n_inside;
            };
            CpuDevice device({.n_threads = 1});
            const Destinations to(device, files, WeightRounding::None, SIZE_MAX);
            int n_calls = 0;
            const auto give_up = [&](std::size_t, std::size_t) {
                if (n_calls++ == at) throw GaveUp();
            };
            EXPECT_THROW(load(device, files, to, n_readers, give_up), GaveUp);
            EXPECT_EQ(n_calls, at + 1);
            EXPECT_EQ(n_inside, 0);
            load(device, files, to, n_readers);  // and again from the start
        }
    }
}

}  // namespace
}  // namespace slipstream
