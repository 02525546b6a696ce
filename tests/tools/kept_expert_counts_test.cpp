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

std::vector<DistinctExperts> some_distinct(unsigned seed = 1) {
    std::vector<DistinctExperts> layers(kLayers);
    std::mt19937 random(seed);
    for (int i = 0; i < 300; ++i) layers[1].add(1 + static_cast<std::int64_t>(random() % 8), 2);
    for (int i = 0; i < 128; ++i) layers[2].add(2, 3);
    return layers;
}

std::vector<ExpertCountsOfLayer> some_counts(unsigned seed = 1) {
    std::vector<ExpertCountsOfLayer> layers;
    const std::vector<ExpertUse> use = some_use(seed);
    const std::vector<DistinctExperts> distinct = some_distinct(seed);
    for (std::size_t i = 0; i < use.size(); ++i) layers.push_back({use[i], distinct[i]});
    return layers;
}

bool are_same(const ExpertUse& a, const ExpertUse& b) {
    return a.n_tokens() == b.n_tokens() && std::ranges::equal(a.counts().counts(), b.counts().counts()) &&
           std::ranges::equal(a.ranks(), b.ranks());
}

bool are_same(const std::vector<ExpertCountsOfLayer>& a, const std::vector<ExpertCountsOfLayer>& b) {
    return std::ranges::equal(a, b, [](const ExpertCountsOfLayer& x, const ExpertCountsOfLayer& y) {
        return are_same(x.use, y.use) && x.distinct == y.distinct;
    });
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
        const std::vector<ExpertCountsOfLayer> read = kept.read();
        if (notes_.empty()) {
            ASSERT_THAT(read, SizeIs(kLayers));
            for (const auto& [layer, distinct] : read) {
                EXPECT_TRUE(layer.n_experts() == 0 || layer.n_experts() == kExperts);
                for (const double share : layer.hits()) EXPECT_TRUE(share >= 0.0 && share <= 1.0);
                for (const float count : layer.counts().counts()) EXPECT_TRUE(std::isfinite(count) && count >= 0.0F);
                const std::vector<DistinctPoint> points = distinct.points();
                for (const double n : {1.0, 2.0, 5.0, 700.0}) {
                    const double needed = expected_distinct({kExperts, 2}, n, points);
                    EXPECT_TRUE(needed >= 2.0 - 1e-9 && needed <= kExperts) << needed;
                }
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
    const std::vector<ExpertCountsOfLayer> counts = some_counts();
    kept.write(some_use(), some_distinct(), {});
    EXPECT_TRUE(are_same(kept.read(), counts));
    EXPECT_THAT(notes_, IsEmpty());
    const std::vector<CountedExperts> counted = counted_experts(counts);
    ASSERT_THAT(counted, SizeIs(kLayers));
    EXPECT_THAT(counted[0].hits, IsEmpty());
    EXPECT_THAT(counted[0].distinct, IsEmpty());
    EXPECT_THAT(counted[1].hits, SizeIs(kExperts + 1));
    EXPECT_THAT(counted[2].hits, IsEmpty()) << "of 37 tokens";
    EXPECT_THAT(counted[2].distinct, ElementsAre(DistinctPoint{2.0, 3.0}));
    EXPECT_THAT(counted_experts(std::span(counts).first(1)), IsEmpty());
    EXPECT_EQ(fs::status(path_of(*files_)).permissions() & fs::perms::others_all, fs::perms::none);
}

// A run over several devices may count in some layers alone, and in none after the last of them.
TEST_F(KeptCounts, LayersThatWereNotCountedStay) {
    const KeptExpertCounts kept = file_of(*files_);
    const std::vector<ExpertCountsOfLayer> before = some_counts();
    kept.write(some_use(), some_distinct(), {});
    const std::vector<ExpertUse> later{ExpertUse(), layer_use(9, 500)};
    kept.write(later, {}, before);
    EXPECT_TRUE(
        are_same(kept.read(),
                 {before[0], {.use = later[1], .distinct = before[1].distinct}, {before[2].use, before[2].distinct}}));
}

// Distinct experts of a run are added to what was there; a run without slots counts nothing else.
TEST_F(KeptCounts, DistinctExpertsAddUp) {
    const KeptExpertCounts kept = file_of(*files_);
    const std::vector<ExpertCountsOfLayer> before = some_counts();
    std::vector<DistinctExperts> run(kLayers);
    for (int i = 0; i < 10; ++i) run[2].add(2, 4);
    for (int times = 0; times < 2; ++times) kept.write({}, run, before);  // of one run, which saves twice
    const std::vector<ExpertCountsOfLayer> read = kept.read();
    ASSERT_THAT(read, SizeIs(kLayers));
    EXPECT_TRUE(are_same(read[1].use, before[1].use));
    EXPECT_EQ(read[1].distinct, before[1].distinct);
    EXPECT_EQ(read[2].distinct.sums()[1], (DistinctSum{138, 276, 424}));
    for (int i = 0; i < 1000; ++i) run[1].add(300, 9);
    kept.write({}, run, before);
    EXPECT_LE(kept.read()[1].distinct.sums()[8].tokens, DistinctExperts::kMostTokens);
}

// A file of the first version, which had no distinct experts.
TEST_F(KeptCounts, OfTheFirstVersionAreRead) {
    draft::TableSection section{.name = std::string(kExpertCountsKind), .fields = {}};
    section.fields.u32(1);
    section.fields.u64(model_fingerprint(*files_));
    section.fields.u32(kLayers);
    for (const ExpertUse& layer : some_use()) {
        section.fields.u64(layer.n_tokens());
        section.fields.f32s(layer.counts().counts());
        section.fields.f32s(layer.ranks());
    }
    draft::write_table_file(path_of(*files_), std::vector{section});
    std::vector<ExpertCountsOfLayer> expected = some_counts();
    for (ExpertCountsOfLayer& layer : expected) layer.distinct = {};
    EXPECT_TRUE(are_same(file_of(*files_).read(), expected));
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(KeptCounts, OfAnotherModelAreSetAside) {
    // Another model has another file.
    file_of(*mixture(48)).write(some_use(), some_distinct(), {});
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, IsEmpty());
    // A file that was renamed, and files of other shapes.
    const auto other = mixture(48);
    fs::rename(path_of(*other), path_of(*files_));
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("counts of another model"), HasSubstr("starting afresh"))));
    const std::vector<ExpertCountsOfLayer> counts = some_counts();
    const std::vector<ExpertCountsOfLayer> of_more{
        {}, {.use = layer_use(1, 400, kExperts + 1)}, {.use = layer_use(2, 400, kExperts + 1)}};
    std::vector<ExpertCountsOfLayer> too_many = counts;
    too_many[2].distinct.add(2, kExperts * 200);
    const auto put_section = [&](std::span<const ExpertCountsOfLayer> of) {
        draft::write_table_file(path_of(*files_), std::vector{expert_counts_section(model_fingerprint(*files_), of)});
        notes_.clear();
        return file_of(*files_).read();
    };
    EXPECT_THAT(put_section(std::span(counts).first(2)), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("counts of 2 layers, the model has 3")));
    EXPECT_THAT(put_section(of_more), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("counts of 10 experts in layer 1, the model has 9")));
    EXPECT_THAT(put_section(too_many), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("more distinct experts than layer 2 has")));
    EXPECT_THAT(put_section(counts), SizeIs(kLayers));
    EXPECT_THAT(notes_, IsEmpty());
    draft::write_table_file(path_of(*files_), std::vector{draft::TableSection{.name = "bigram", .fields = {}}});
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("no counts of experts in it")));
}

// 500 damaged files, and 500 whose checksums are right.
TEST_F(KeptCounts, DamageIsToldInOneLine) {
    const KeptExpertCounts kept = file_of(*files_);
    kept.write(some_use(), some_distinct(), {});
    const std::vector<std::byte> bytes = bytes_of(path_of(*files_));
    const draft::TableSection section = expert_counts_section(model_fingerprint(*files_), some_counts());
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
    kept.write(some_use(), some_distinct(), {});
    expect_it_is_read_or_set_aside(kept);
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(KeptCounts, WhatCannotBeReadOrWrittenIsSaid) {
    const TemporaryFolder folder;
    folder.write("file", "");
    std::vector<std::string> notes;
    const KeptExpertCounts kept(folder.path() / "file", *files_,
                                [&](std::string_view line) { notes.emplace_back(line); });
    kept.write(some_use(), some_distinct(), {});
    EXPECT_THAT(notes, ElementsAre(HasSubstr("the counts of experts cannot be saved")));
    notes.clear();
    fs::create_directory(path_of(*files_));
    EXPECT_THAT(file_of(*files_).read(), IsEmpty());
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("going on without the table")));
}

TEST_F(KeptCounts, TwoProgramsLeaveAWholeFile) {
    const std::vector<ExpertCountsOfLayer> one = some_counts(3);
    const std::vector<ExpertCountsOfLayer> other = some_counts(4);
    file_of(*files_).write(some_use(3), some_distinct(3), {});
    std::vector<std::string> notes;
    const auto run = [&](unsigned seed, std::vector<std::string>& lines) {
        const KeptExpertCounts kept(folder_.path(), *files_, [&](std::string_view line) { lines.emplace_back(line); });
        for (int i = 0; i < 60; ++i) {
            kept.write(some_use(seed), some_distinct(seed), {});
            const std::vector<ExpertCountsOfLayer> read = kept.read();
            EXPECT_TRUE(are_same(read, one) || are_same(read, other));
        }
    };
    std::thread second(run, 4, std::ref(notes));
    run(3, notes_);
    second.join();
    EXPECT_THAT(notes_, IsEmpty());
    EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace slipstream::tools
