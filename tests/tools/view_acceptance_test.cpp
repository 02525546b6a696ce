// What a start knows of the acceptance over KV views: the prior, what texts taught, and the file that keeps it.
#include "tools/engine/view_acceptance.h"

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/formats/model_fingerprint.h"
#include "tests/support/temp_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Of equally many tokens, codes of 4 bits are never assumed to be better than the rows that they stand for.
TEST(ViewAcceptance, OfPagesIsNeverAboveThatOfRows) {
    double before = 0.0;
    for (std::int64_t tokens = 208; tokens <= 16384; tokens += 8) {
        const double rows = ViewAcceptance::prior(ViewType::Rows, tokens, 16384);
        const double pages = ViewAcceptance::prior(ViewType::Q4, tokens, 16384);
        EXPECT_LE(pages, rows) << tokens;
        EXPECT_GE(pages, before) << tokens;
        before = pages;
    }
    EXPECT_EQ(ViewAcceptance::prior(ViewType::Rows, 16384, 16384), 1.0);
    EXPECT_LT(before, 1.0);
}

TEST(ViewAcceptance, WithoutTextsIsThePrior) {
    const ViewAcceptance nothing;
    EXPECT_EQ(nothing.n_tokens(), 0.0);
    EXPECT_EQ(nothing.factor(), 1.0);
    for (const ViewType type : {ViewType::Rows, ViewType::Q4})
        EXPECT_DOUBLE_EQ(nothing.expected(type, 1024, 8192), ViewAcceptance::prior(type, 1024, 8192));
}

// Twice the rejections of the prior over one view: after many tokens, twice those of any other view are expected.
TEST(ViewAcceptance, RejectionsAreMultiplied) {
    const double rejected = 1.0 - ViewAcceptance::prior(ViewType::Q4, 2048, 8192);
    ViewAcceptance learnt;
    double before = 1.0;
    for (int text = 0; text < 40; ++text) {
        learnt.learn(ViewType::Q4, 2048, 8192, 1000, std::llround(2000 * rejected));
        EXPECT_GE(learnt.factor(), before * (1.0 - 1e-12));  // but for rounding
        before = learnt.factor();
    }
    EXPECT_NEAR(learnt.factor(), 2.0, 0.03);
    EXPECT_NEAR(1.0 - learnt.expected(ViewType::Rows, 512, 8192),
                2.0 * (1.0 - ViewAcceptance::prior(ViewType::Rows, 512, 8192)), 0.01);
    EXPECT_EQ(learnt.expected(ViewType::Rows, 8192, 8192), 1.0);
    // A few tokens say little.
    ViewAcceptance few;
    few.learn(ViewType::Q4, 2048, 8192, 10, 3);
    EXPECT_LT(few.factor(), 1.6);
    EXPECT_GT(few.factor(), 1.4);
}

// What was learnt of a text is weighed by the share that the view kept of that text.
TEST(ViewAcceptance, EachTextIsJudgedByItsOwnLength) {
    ViewAcceptance learnt;
    learnt.learn(ViewType::Rows, 512, 8192, 1000, 123);
    EXPECT_NEAR(learnt.n_expected(), 1000 * (1.0 - ViewAcceptance::prior(ViewType::Rows, 512, 8192)), 1e-9);
    const double before = learnt.n_expected();
    learnt.learn(ViewType::Rows, 512, 1024, 1000, 10);
    EXPECT_NEAR(learnt.n_expected() - before, 1000 * (1.0 - ViewAcceptance::prior(ViewType::Rows, 512, 1024)), 1e-9);
    EXPECT_EQ(learnt.n_rejected(), 133.0);
}

// Texts that fit into the view, and those of which it keeps very little, teach nothing.
TEST(ViewAcceptance, SharesOutsideThePriorTeachNothing) {
    ViewAcceptance learnt;
    for (const std::int64_t text : {10, 512, 560, 8600, 1000000}) learnt.learn(ViewType::Rows, 512, text, 1000, 400);
    EXPECT_EQ(learnt.n_tokens(), 0.0);
    for (const std::int64_t text : {570, 8500}) learnt.learn(ViewType::Rows, 512, text, 1000, 400);
    EXPECT_EQ(learnt.n_tokens(), 2000.0);
}

TEST(ViewAcceptance, LaterTextsCountMore) {
    const auto prior = std::llround(1000 * (1.0 - ViewAcceptance::prior(ViewType::Q4, 1024, 8192)));
    ViewAcceptance learnt;
    const auto texts = [&](int n, std::int64_t n_rejected) {
        for (int text = 0; text < n; ++text) learnt.learn(ViewType::Q4, 1024, 8192, 1000, n_rejected);
    };
    texts(100, 0);
    EXPECT_EQ(learnt.factor(), ViewAcceptance::kLeastFactor);
    texts(8, prior);
    EXPECT_GT(learnt.factor(), 0.6);
    texts(30, prior);
    EXPECT_NEAR(learnt.factor(), 1.0, 0.05);
    EXPECT_LE(learnt.n_tokens(), 8192.0 + 1e-6);
}

TEST(ViewAcceptance, StaysWithinItsBounds) {
    ViewAcceptance worst;
    for (int text = 0; text < 100; ++text) worst.learn(ViewType::Q4, 4096, 8192, 1000, 1000);
    EXPECT_EQ(worst.factor(), ViewAcceptance::kMostFactor);
    EXPECT_NEAR(worst.expected(ViewType::Rows, 8, 1 << 20),
                1.0 - ViewAcceptance::kMostFactor * (1.0 - ViewAcceptance::prior(ViewType::Rows, 8, 1 << 20)), 1e-12);
    ViewAcceptance best;
    for (int text = 0; text < 1000; ++text) best.learn(ViewType::Rows, 512, 8192, 1000, 0);
    EXPECT_EQ(best.factor(), ViewAcceptance::kLeastFactor);
}

class KeptAcceptance : public testing::Test {
protected:
    [[nodiscard]] KeptViewAcceptance file() {
        return {folder_.path(), *files_, [this](std::string_view line) { notes_.emplace_back(line); }};
    }
    [[nodiscard]] fs::path path() const {
        return folder_.path() / fmt::format("{:016x}-view.table", model_fingerprint(*files_));
    }
    static ViewAcceptance some() {
        ViewAcceptance learnt;
        learnt.learn(ViewType::Q4, 2048, 8192, 700, 99);
        return learnt;
    }
    [[nodiscard]] std::string bytes() const {
        std::ifstream file(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    // Writes a file with sound checksums.
    void put(const draft::TableWriter& fields) const {
        draft::write_table_file(
            path(), std::vector{draft::TableSection{.name = std::string(kViewAcceptanceKind), .fields = fields}});
    }
    [[nodiscard]] draft::TableWriter fields_of(float tokens, float rejected, float expected) const {
        draft::TableWriter fields;
        fields.u32(1);
        fields.u64(model_fingerprint(*files_));
        for (const float count : {tokens, rejected, expected}) fields.f32(count);
        return fields;
    }
    void expect_it_is_refused(const draft::TableWriter& fields, std::string_view why) {
        put(fields);
        notes_.clear();
        EXPECT_EQ(file().read().n_tokens(), 0.0);
        EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr(std::string(why)), HasSubstr("starting afresh"))));
        EXPECT_FALSE(fs::exists(path()));
    }

    TempFolder folder_;
    std::unique_ptr<ModelFiles> files_ = ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target");
    std::vector<std::string> notes_;
};

TEST_F(KeptAcceptance, IsReadAsItWasWritten) {
    EXPECT_EQ(file().read().n_tokens(), 0.0);
    file().write(some());
    EXPECT_NEAR(file().read().factor(), some().factor(), 1e-6);
    EXPECT_EQ(file().read().n_tokens(), 700.0);
    EXPECT_THAT(notes_, IsEmpty());
    EXPECT_EQ(fs::status(path()).permissions() & fs::perms::others_all, fs::perms::none);
    // A full memory of tokens is within the bounds of a reader.
    ViewAcceptance full;
    for (int text = 0; text < 100; ++text) full.learn(ViewType::Rows, 512, 8192, 999, 999);
    file().write(full);
    EXPECT_EQ(file().read().factor(), full.factor());
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(KeptAcceptance, OfAnotherModelOrWithImpossibleCountsIsSetAside) {
    draft::TableWriter other;
    other.u32(1);
    other.u64(model_fingerprint(*files_) + 1);
    for (int i = 0; i < 3; ++i) other.f32(1.0F);
    expect_it_is_refused(other, "acceptance of another model");
    draft::TableWriter later;
    later.u32(2);
    expect_it_is_refused(later, "acceptance of version 2, this program reads 1");
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const draft::TableWriter& fields :
         {fields_of(100, 101, 1), fields_of(100, -1, 1), fields_of(100, 1, 101), fields_of(100, 1, -1),
          fields_of(9000, 1, 1), fields_of(-1, 0, 0), fields_of(kNan, 0, 0), fields_of(100, kNan, 1),
          fields_of(100, 1, kNan), fields_of(kInf, 1, 1)})
        expect_it_is_refused(fields, "the acceptance is damaged");
    draft::write_table_file(path(), std::vector{draft::TableSection{.name = "bigram", .fields = {}}});
    notes_.clear();
    EXPECT_EQ(file().read().n_tokens(), 0.0);
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("no acceptance over a view in it")));
}

TEST_F(KeptAcceptance, DamageIsToldInOneLine) {
    file().write(some());
    const std::string sound = bytes();
    for (std::size_t at = 0; at < sound.size(); ++at) {
        std::string damaged = sound;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
        std::ofstream(path(), std::ios::binary | std::ios::trunc) << damaged;
        notes_.clear();
        EXPECT_EQ(file().read().n_tokens(), 0.0) << at;
        EXPECT_THAT(notes_, ElementsAre(HasSubstr("starting afresh"))) << at;
        std::ofstream(path(), std::ios::binary | std::ios::trunc) << sound.substr(0, at);
        EXPECT_EQ(file().read().n_tokens(), 0.0) << at;
    }
    file().write(some());
    EXPECT_EQ(file().read().n_tokens(), 700.0);
}

TEST_F(KeptAcceptance, WhatCannotBeWrittenIsSaidOnce) {
    folder_.write("file", "");
    KeptViewAcceptance kept(folder_.path() / "file", *files_,
                            [this](std::string_view line) { notes_.emplace_back(line); });
    kept.write(some());
    kept.write(some());  // as a long session does, which saves again and again
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("the acceptance over a view cannot be saved")));
}

}  // namespace
}  // namespace slipstream::tools
