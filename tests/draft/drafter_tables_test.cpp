// What a drafter keeps from run to run: taken up again, of this model alone, set aside where it is damaged.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/tables/table_store.h"
#include "kernels/base/error.h"
#include "runtime/formats/model_fingerprint.h"
#include "tests/draft/recorded_phrases.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

namespace fs = std::filesystem;

using Sources = std::vector<SourceKind>;

const Sources kSources = {SourceKind::Context, SourceKind::Cacheback};

class DrafterTables : public testing::Test {
protected:
    std::unique_ptr<Drafter> make(const Sources& sources, const ModelFiles& files) {
        DraftOptions options;
        options.sources = sources;
        options.max_budget = 32;
        options.adapt_budget = false;
        options.tables = tables();
        options.noise_ranking = ranking_;
        DraftContext target;
        target.vocab = kPhraseVocab;
        target.sampling = {.temperature = temperature_, .seed = 5};
        target.files = &files;
        target.on_note = [this](std::string_view note) { notes_.emplace_back(note); };
        return make_drafter(options, target);
    }
    std::unique_ptr<Drafter> make(const Sources& sources = kSources) { return make(sources, *files_); }

    /// Learns from a few texts and keeps it.
    void learn_and_save(const Sources& sources = kSources) {
        const auto drafter = make(sources);
        for (std::uint32_t i = 0; i < 6; ++i) static_cast<void>(replay(*drafter, recorded_phrases(i), 32));
        drafter->save();
    }
    static double tokens_a_pass(Drafter& drafter) {
        return replay(drafter, recorded_phrases(77), 32).mean_accepted_tokens();
    }
    static std::vector<std::int64_t> accept_lengths(Drafter& drafter) {
        return replay(drafter, recorded_phrases(77), 32).accept_lengths;
    }
    std::vector<std::int64_t> fresh_accept_lengths() {
        std::swap(subfolder_, other_subfolder_);
        auto lengths = accept_lengths(*make());
        std::swap(subfolder_, other_subfolder_);
        return lengths;
    }

    [[nodiscard]] fs::path tables() const { return folder_.path() / subfolder_; }
    [[nodiscard]] fs::path file() const {
        return TableStore({.folder = tables(), .on_note = {}}).path(model_fingerprint(*files_));
    }
    [[nodiscard]] static std::string bytes_of(const fs::path& path) {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    static void write_bytes(const fs::path& path, const std::string& bytes) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    }
    [[nodiscard]] fs::path set_aside() const {
        fs::path aside = file();
        aside += ".damaged";
        return aside;
    }

    TempFolder folder_;
    double temperature_ = 0.0;
    NoiseRanking ranking_ = NoiseRanking::Aware;
    std::string subfolder_ = "tables";
    std::string other_subfolder_ = "other";
    std::unique_ptr<ModelFiles> files_ = make_tiny_model({});
    std::vector<std::string> notes_;
};

TEST_F(DrafterTables, WhatWasLearntServesTheNextRun) {
    const double fresh = tokens_a_pass(*make());
    learn_and_save();
    EXPECT_TRUE(fs::exists(file()));
    EXPECT_GT(tokens_a_pass(*make()), fresh + 0.1);
    EXPECT_TRUE(notes_.empty());
}

TEST_F(DrafterTables, SavingWhatWasTakenUpWritesTheSame) {
    learn_and_save();
    const std::string before = bytes_of(file());
    make()->save();
    EXPECT_EQ(bytes_of(file()), before);
}

TEST_F(DrafterTables, ResetForgetsWhatWasTakenUp) {
    learn_and_save();
    const auto drafter = make();
    drafter->reset();
    EXPECT_EQ(accept_lengths(*drafter), fresh_accept_lengths());
}

TEST_F(DrafterTables, WithoutAFolderNothingIsKept) {
    learn_and_save();
    DraftOptions options;
    options.sources = kSources;
    DraftContext target;
    target.vocab = kPhraseVocab;
    target.files = files_.get();
    const auto drafter = make_drafter(options, target);
    const std::string before = bytes_of(file());
    drafter->save();
    EXPECT_EQ(bytes_of(file()), before);
}

TEST_F(DrafterTables, ADamagedFileIsSetAsideAndWorkGoesOn) {
    learn_and_save();
    const std::string good = bytes_of(file());
    const std::vector<std::int64_t> fresh = fresh_accept_lengths();
    std::string flipped = good;
    flipped[good.size() * 2 / 3] = static_cast<char>(flipped[good.size() * 2 / 3] ^ 0x10);
    for (const std::string& bad : {flipped, good.substr(0, good.size() / 2), std::string("no table"), std::string()}) {
        notes_.clear();
        fs::remove(set_aside());
        write_bytes(file(), bad);
        const auto drafter = make();
        ASSERT_EQ(notes_.size(), 1U);
        EXPECT_TRUE(fs::exists(set_aside()));
        EXPECT_FALSE(fs::exists(file()));
        EXPECT_EQ(accept_lengths(*drafter), fresh);
        drafter->save();
        EXPECT_TRUE(fs::exists(file()));
        make();
        EXPECT_EQ(notes_.size(), 1U);
    }
}

TEST_F(DrafterTables, ADamagedSectionInAWholeFileIsSetAsideToo) {
    learn_and_save();
    const std::vector<std::int64_t> fresh = fresh_accept_lengths();
    for (const char* name : {"context", "cacheback", "calibration"}) {
        learn_and_save();
        notes_.clear();
        fs::remove(set_aside());
        {
            const TableFile good(file());
            std::vector<TableSection> sections;
            for (const std::string& section : good.section_names()) {
                sections.push_back({section, good.section(section)->copy()});
                if (section != name) continue;
                sections.back().fields = {};
                if (section == "cacheback")
                    for (const std::uint32_t shape : {1U, 3U}) sections.back().fields.u32(shape);
                if (section == "calibration") sections.back().fields.text("7:context,cacheback,");
                sections.back().fields.f32s(std::vector<float>{1.0F, 2.0F, 3.0F});
            }
            write_table_file(file(), sections);
        }
        const auto drafter = make();
        EXPECT_EQ(notes_.size(), 1U) << name;
        EXPECT_TRUE(fs::exists(set_aside())) << name;
        EXPECT_EQ(accept_lengths(*drafter), fresh) << name;
    }
}

// Nothing but calibration is kept of these.
const Sources kOfTheText = {SourceKind::Suffix, SourceKind::Lookup};

TEST_F(DrafterTables, WhatCameTrueUnderNoiseIsKeptApart) {
    const auto section = [this](const std::string& name) { return TableFile(file()).section(name)->copy(); };
    const auto equal = [](const TableWriter& a, const TableWriter& b) {
        return std::ranges::equal(a.bytes(), b.bytes());
    };
    temperature_ = 0.8;
    learn_and_save(kOfTheText);
    EXPECT_EQ(TableFile(file()).section_names(), std::vector<std::string>{"calibration under noise"});
    const TableWriter under_noise = section("calibration under noise");
    ranking_ = NoiseRanking::Blind;
    learn_and_save(kOfTheText);
    const TableWriter blind = section("calibration blind to noise");
    temperature_ = 0.0;
    learn_and_save(kOfTheText);
    EXPECT_TRUE(equal(section("calibration under noise"), under_noise));
    EXPECT_TRUE(equal(section("calibration blind to noise"), blind));

    // Greedy guesses take up what greedy ones taught, and no other.
    const auto accept_lengths_now = [&] { return accept_lengths(*make(kOfTheText)); };
    const std::vector<std::int64_t> taught = accept_lengths_now();
    const TableWriter greedy = section("calibration");
    write_table_file(file(), std::vector<TableSection>{{"calibration under noise", greedy}});
    EXPECT_NE(accept_lengths_now(), taught);
    write_table_file(file(), std::vector<TableSection>{{"calibration", greedy}});
    EXPECT_EQ(accept_lengths_now(), taught);
    EXPECT_TRUE(notes_.empty());
}

TEST_F(DrafterTables, EachKindOfCalibrationIsKeptWhileAnotherIsInUse) {
    const SamplerOptions noisy{.temperature = 0.8, .seed = 5};
    const SamplerOptions greedy{.temperature = 0.0, .seed = 5};
    const auto bytes_of_section = [this](const std::string& name) {
        const TableWriter fields = TableFile(file()).section(name)->copy();
        return std::vector(fields.bytes().begin(), fields.bytes().end());
    };
    temperature_ = 0.8;
    const auto drafter = make(kOfTheText);
    static_cast<void>(replay(*drafter, recorded_phrases(1), 32));
    subfolder_ = "twin";
    const auto twin = make(kOfTheText);
    static_cast<void>(replay(*twin, recorded_phrases(1), 32));
    twin->save();
    const auto under_noise = bytes_of_section("calibration under noise");
    // Greedily it begins as a drafter that knows nothing.
    drafter->set_sampling(greedy);
    temperature_ = 0.0;
    subfolder_ = "fresh";
    const auto fresh = make(kOfTheText);
    EXPECT_EQ(accept_lengths(*drafter), accept_lengths(*fresh));
    fresh->save();
    const auto without_noise = bytes_of_section("calibration");
    subfolder_ = "tables";
    drafter->save();
    EXPECT_EQ(TableFile(file()).section_names(), (std::vector<std::string>{"calibration", "calibration under noise"}));
    EXPECT_EQ(bytes_of_section("calibration"), without_noise);
    EXPECT_EQ(bytes_of_section("calibration under noise"), under_noise);
    // A drafter that begins greedily has loaded the other kind as well.
    const auto next = make(kOfTheText);
    fs::remove(file());
    next->set_sampling(noisy);
    temperature_ = 0.8;
    drafter->set_sampling(noisy);
    const auto taught = accept_lengths(*drafter);
    EXPECT_EQ(accept_lengths(*next), taught);
    EXPECT_NE(accept_lengths(*make(kOfTheText)), taught);
    next->save();
    drafter->reset();
    drafter->save();
    EXPECT_EQ(bytes_of_section("calibration"), without_noise);
    drafter->set_sampling(greedy);
    drafter->save();
    EXPECT_NE(bytes_of_section("calibration"), without_noise) << "reset() keeps what was learnt";
    EXPECT_TRUE(notes_.empty());
}

TEST_F(DrafterTables, ASaveKeepsTheCalibrationThatAnotherRunSavedMeanwhile) {
    const auto without_noise = [this] {
        const TableWriter fields = TableFile(file()).section("calibration")->copy();
        return std::vector(fields.bytes().begin(), fields.bytes().end());
    };
    learn_and_save(kOfTheText);
    const auto earlier = without_noise();
    temperature_ = 0.8;
    const auto noisy = make(kOfTheText);  // has loaded both kinds
    temperature_ = 0.0;
    const auto greedy = make(kOfTheText);
    static_cast<void>(replay(*greedy, recorded_phrases(2), 32));
    greedy->save();
    const auto later = without_noise();
    EXPECT_NE(later, earlier);
    static_cast<void>(replay(*noisy, recorded_phrases(1), 32));
    noisy->save();
    EXPECT_EQ(without_noise(), later);
}

TEST_F(DrafterTables, AnotherModelsTableIsNotUsed) {
    learn_and_save();
    const std::string before = bytes_of(file());
    const auto other_model = make_tiny_model({.d_ff = 128});
    const auto drafter = make(kSources, *other_model);
    EXPECT_EQ(accept_lengths(*drafter), fresh_accept_lengths());
    drafter->save();
    EXPECT_EQ(bytes_of(file()), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(tables()), fs::directory_iterator()), 2);
}

// Estimates of another program may mean something else.
TEST_F(DrafterTables, ACalibrationOfAnotherVersionIsLeftOut) {
    learn_and_save();
    {
        const TableFile saved(file());
        std::vector<TableSection> sections;
        for (const std::string& section : saved.section_names()) {
            sections.push_back({section, saved.section(section)->copy()});
            if (section != "calibration") continue;
            sections.back().fields = {};
            sections.back().fields.text("5:context,cacheback,");
            sections.back().fields.f32s(std::vector<float>{1.0F, 2.0F, 3.0F});  // would be refused if they were read
        }
        write_table_file(file(), sections);
    }
    notes_.clear();
    const auto drafter = make();
    EXPECT_TRUE(notes_.empty());
    EXPECT_FALSE(fs::exists(set_aside()));
}

TEST_F(DrafterTables, AnotherSetOfSourcesTakesItsShareAndKeepsTheRest) {
    learn_and_save();
    const TableWriter cacheback = TableFile(file()).section("cacheback")->copy();
    // Calibration is of the set; what it lacks is left in the file.
    const auto alone = make({SourceKind::Context});
    EXPECT_TRUE(notes_.empty());
    alone->save();
    const TableFile saved(file());
    EXPECT_TRUE(std::ranges::equal(saved.section("cacheback")->copy().bytes(), cacheback.bytes()));
    EXPECT_EQ(saved.section("calibration")->text(), "7:context,");
    const auto both = make();
    EXPECT_TRUE(notes_.empty());
    EXPECT_NE(accept_lengths(*both), fresh_accept_lengths());
}

TEST_F(DrafterTables, AFolderThatCannotBeMadeIsAnErrorWhenItMatters) {
    folder_.write("in_the_way", "a file");
    subfolder_ = "in_the_way/tables";
    const auto drafter = make();  // there is nothing to take up
    static_cast<void>(replay(*drafter, recorded_phrases(1), 32));
    EXPECT_THROW(drafter->save(), IoError);
}

}  // namespace
}  // namespace slipstream::draft
