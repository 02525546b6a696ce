// Counts of experts on disk: what is read is what was written, a file that is damaged or of another model is set aside
// with one line, and two programs leave a whole one.
#include "tools/engine/kept_expert_counts.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/formats/model_fingerprint.h"
#include "tests/support/damage.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t kLayers = 3;  // the first is dense
constexpr std::int64_t kExperts = 9;

std::unique_ptr<ModelFiles> mixture(std::int64_t expert_d_ff = 32) {
    return make_tiny_model({.n_layers = kLayers, .n_experts = kExperts, .n_chosen = 2, .expert_d_ff = expert_d_ff});
}

ExpertUse layer_use(unsigned seed, int n_tokens, std::int64_t n_experts = kExperts) {
    std::mt19937 random(seed);
    ExpertUse use(n_experts);
    for (int i = 0; i < n_tokens; ++i) {
        const auto first = static_cast<std::uint16_t>(random() % static_cast<unsigned>(n_experts - 1));
        use.add(std::vector<std::uint16_t>{first, static_cast<std::uint16_t>(n_experts - 1)});
    }
    return use;
}

std::vector<ExpertUse> some_use(unsigned seed = 1) {
    return {ExpertUse(), layer_use(seed, 400), layer_use(seed + 1, 37)};
}

bool are_same(const ExpertUse& a, const ExpertUse& b) {
    return a.n_tokens() == b.n_tokens() && std::ranges::equal(a.counts().counts(), b.counts().counts()) &&
           std::ranges::equal(a.ranks(), b.ranks());
}

bool are_same(const std::vector<ExpertUse>& a, const std::vector<ExpertUse>& b) {
    return std::ranges::equal(a, b, [](const ExpertUse& x, const ExpertUse& y) { return are_same(x, y); });
}

std::vector<std::byte> bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

class KeptCounts : public testing::Test {
protected:
    [[nodiscard]] KeptExpertCounts file_of(const ModelFiles& files) {
        return {folder_.path(), files, [this](std::string_view line) { notes_.emplace_back(line); }};
    }
    [[nodiscard]] fs::path path_of(const ModelFiles& files) const {
        return folder_.path() / fmt::format("{:016x}-experts.table", model_fingerprint(files));
    }
    void put(std::span<const std::byte> bytes) const {
        std::ofstream(path_of(*files_), std::ios::binary | std::ios::trunc)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    // Reads the file, which may be damaged: as it was written if it gives no line, else with one, and set aside.
    void expect_it_is_read_or_set_aside(const KeptExpertCounts& kept) {
        notes_.clear();
        const std::vector<ExpertUse> read = kept.read();
        if (notes_.empty()) {
            ASSERT_THAT(read, SizeIs(kLayers));
            for (const ExpertUse& layer : read) {
                EXPECT_TRUE(layer.n_experts() == 0 || layer.n_experts() == kExperts);
                for (const double share : layer.hits()) EXPECT_TRUE(share >= 0.0 && share <= 1.0);
                for (const float count : layer.counts().counts()) EXPECT_TRUE(std::isfinite(count) && count >= 0.0F);
            }
            return;
        }
        ++n_set_aside_;
        EXPECT_THAT(notes_, ElementsAre(HasSubstr("starting afresh")));
        EXPECT_THAT(notes_.front(), testing::Not(HasSubstr("\n")));
        EXPECT_THAT(read, IsEmpty());
        EXPECT_FALSE(fs::exists(path_of(*files_)));
    }

    TemporaryFolder folder_;
    std::unique_ptr<ModelFiles> files_ = mixture();
    std::vector<std::string> notes_;
    int n_set_aside_ = 0;
};

TEST_F(KeptCounts, AreReadAsTheyWereWritten) {
    const KeptExpertCounts kept = file_of(*files_);
    EXPECT_THAT(kept.read(), IsEmpty());
    const std::vector<ExpertUse> use = some_use();
    kept.write(use, {});
    EXPECT_TRUE(are_same(kept.read(), use));
    EXPECT_THAT(notes_, IsEmpty());
    const std::vector<std::vector<double>> hits = counted_hits(use);
    ASSERT_THAT(hits, SizeIs(kLayers));
    EXPECT_THAT(hits[0], IsEmpty());
    EXPECT_THAT(hits[1], SizeIs(kExperts + 1));
    EXPECT_THAT(hits[2], IsEmpty()) << "of 37 tokens";
    EXPECT_THAT(counted_hits(std::span(use).subspan(2)), IsEmpty());
    EXPECT_EQ(fs::status(path_of(*files_)).permissions() & fs::perms::others_all, fs::perms::none);
}

// A run over several devices may count in some layers alone, and in none after the last of them.
TEST_F(KeptCounts, LayersThatWereNotCountedStay) {
    const KeptExpertCounts kept = file_of(*files_);
    const std::vector<ExpertUse> before = some_use();
    kept.write(before, {});
    const std::vector<ExpertUse> later{ExpertUse(), layer_use(9, 500)};
    kept.write(later, before);
    EXPECT_TRUE(are_same(kept.read(), {ExpertUse(), later[1], before[2]}));
}

TEST_F(KeptCounts, OfAnotherModelAreSetAside) {
    const std::vector<ExpertUse> use = some_use();
    // Another model has another file.
    file_of(*mixture(48)).write(use, {});
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, IsEmpty());
    // A file that was renamed, and files of other shapes.
    const auto other = mixture(48);
    fs::rename(path_of(*other), path_of(*files_));
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("counts of another model"), HasSubstr("starting afresh"))));
    const std::vector<ExpertUse> of_more{ExpertUse(), layer_use(1, 400, kExperts + 1), layer_use(2, 400, kExperts + 1)};
    const auto put_section = [&](std::span<const ExpertUse> of) {
        draft::write_table_file(path_of(*files_), std::vector{expert_counts_section(model_fingerprint(*files_), of)});
        notes_.clear();
        return file_of(*files_).read();
    };
    EXPECT_THAT(put_section(std::span(use).first(2)), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("counts of 2 layers, the model has 3")));
    EXPECT_THAT(put_section(of_more), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("counts of 10 experts in layer 1, the model has 9")));
    EXPECT_THAT(put_section(use), SizeIs(kLayers));
    EXPECT_THAT(notes_, IsEmpty());
    draft::write_table_file(path_of(*files_), std::vector{draft::TableSection{.name = "bigram", .fields = {}}});
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("no counts of experts in it")));
}

// 500 damaged files, and 500 whose checksums are right.
TEST_F(KeptCounts, DamageIsToldInOneLine) {
    const KeptExpertCounts kept = file_of(*files_);
    kept.write(some_use(), {});
    const std::vector<std::byte> bytes = bytes_of(path_of(*files_));
    const draft::TableSection section = expert_counts_section(model_fingerprint(*files_), some_use());
    const std::span<const std::byte> payload = section.fields.bytes();
    std::mt19937 random(11);
    for (int i = 0; i < 1000; ++i) {
        const auto kind = static_cast<DamageKind>(i % 5);
        const bool has_checksum = i >= 500;
        const DamagedFile damaged =
            damage(has_checksum ? payload : bytes, {0, (has_checksum ? payload : bytes).size()}, kind, random, 64);
        SCOPED_TRACE(testing::Message() << i << ", " << kDamageNames[static_cast<std::size_t>(kind)] << " at "
                                        << damaged.where.begin << " + " << damaged.where.n_bytes);
        std::vector<std::byte> file = damaged.bytes;
        if (has_checksum) {
            file.clear();
            draft::write_table_bytes(
                std::vector{draft::TableSection{section.name, draft::TableWriter(damaged.bytes)}},
                [&](std::span<const std::byte> part) { file.insert(file.end(), part.begin(), part.end()); });
        }
        put(file);
        expect_it_is_read_or_set_aside(kept);
    }
    EXPECT_GT(n_set_aside_, 600);
    for (const std::string_view text : {"", "SLPTABLE", "no table"}) {
        put(std::as_bytes(std::span(text)));
        const int before = n_set_aside_;
        expect_it_is_read_or_set_aside(kept);
        EXPECT_EQ(n_set_aside_, before + 1);
    }
    kept.write(some_use(), {});
    expect_it_is_read_or_set_aside(kept);
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(KeptCounts, WhatCannotBeReadOrWrittenIsSaid) {
    const TemporaryFolder folder;
    folder.write("file", "");
    std::vector<std::string> notes;
    const KeptExpertCounts kept(folder.path() / "file", *files_,
                                [&](std::string_view line) { notes.emplace_back(line); });
    kept.write(some_use(), {});
    EXPECT_THAT(notes, ElementsAre(HasSubstr("the counts of experts cannot be saved")));
    notes.clear();
    fs::create_directory(path_of(*files_));
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("going on without the table")));
}

TEST_F(KeptCounts, TwoProgramsLeaveAWholeFile) {
    const std::vector<ExpertUse> one = some_use(3);
    const std::vector<ExpertUse> other = some_use(4);
    file_of(*files_).write(one, {});
    std::vector<std::string> notes;
    const auto run = [&](const std::vector<ExpertUse>& use, std::vector<std::string>& lines) {
        const KeptExpertCounts kept(folder_.path(), *files_, [&](std::string_view line) { lines.emplace_back(line); });
        for (int i = 0; i < 60; ++i) {
            kept.write(use, {});
            const std::vector<ExpertUse> read = kept.read();
            EXPECT_TRUE(are_same(read, one) || are_same(read, other));
        }
    };
    std::thread second(run, std::cref(other), std::ref(notes));
    run(one, notes_);
    second.join();
    EXPECT_THAT(notes_, IsEmpty());
    EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace slipstream::tools
