// The folder of tables: one file a model, bounded, and never in the way.
#include "draft/tables/table_store.h"

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

std::vector<TableSection> section_of(std::uint32_t value, std::size_t n = 1) {
    std::vector<TableSection> sections(1);
    sections[0].name = "s";
    sections[0].fields.u32s(std::vector<std::uint32_t>(n, value));
    return sections;
}

std::uint32_t value_of(const std::optional<TableFile>& file) {
    if (!file) return 0;
    return file->section("s").value().u32s()[0];
}

class TableStoreTest : public testing::Test {
protected:
    TableStore store(std::size_t max_bytes = 1 << 20) {
        return TableStore({.folder = folder_.path() / "tables",
                           .max_bytes = max_bytes,
                           .on_note = [this](std::string_view text) { notes_.emplace_back(text); }});
    }
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_.path() / "tables"))
            names.push_back(entry.path().filename().string());
        return names;
    }
    static void set_age(const fs::path& path, std::chrono::minutes age) {
        fs::last_write_time(path, fs::file_time_type::clock::now() - age);
    }

    TempFolder folder_;
    std::vector<std::string> notes_;
};

TEST_F(TableStoreTest, KeepsOneFileAModelAndKind) {
    const TableStore tables = store();
    EXPECT_FALSE(tables.load(1));
    tables.save(1, section_of(11));
    tables.save(2, section_of(22));
    tables.save(1, section_of(33), "bigram");
    EXPECT_EQ(value_of(tables.load(1)), 11U);
    EXPECT_EQ(value_of(tables.load(2)), 22U);
    EXPECT_EQ(value_of(tables.load(1, "bigram")), 33U);
    EXPECT_FALSE(tables.load(2, "bigram"));
    EXPECT_THAT(names(), UnorderedElementsAre("0000000000000001.table", "0000000000000002.table",
                                              "0000000000000001-bigram.table"));
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(TableStoreTest, TheFolderOfTheUsersCacheIsForTheUserAlone) {
    const fs::path own = folder_.path() / "slipstream" / "tables";
    const fs::path named = folder_.path() / "named";
    for (const fs::path& folder : {own, named}) {
        fs::create_directories(folder);
        fs::permissions(folder, fs::perms::owner_all | fs::perms::group_read | fs::perms::others_read);
        TableStore({.folder = folder}).save(1, section_of(3));
    }
    EXPECT_EQ(fs::status(own).permissions(), fs::perms::owner_all);
    EXPECT_NE(fs::status(named).permissions(), fs::perms::owner_all);
}

TEST_F(TableStoreTest, SetsADamagedFileAside) {
    const TableStore tables = store();
    for (int i = 1; i <= 2; ++i) {  // the second takes the first one's place
        tables.save(1, section_of(static_cast<std::uint32_t>(i)));
        const fs::path path = tables.path(1);
        fs::resize_file(path, fs::file_size(path) - 1);
        EXPECT_FALSE(tables.load(1));
        EXPECT_THAT(notes_, SizeIs(i));
        EXPECT_THAT(notes_.back(), AllOf(HasSubstr("bytes are expected"), HasSubstr("0000000000000001.table.damaged")));
        EXPECT_EQ(notes_.back().find('\n'), std::string::npos);
        EXPECT_THAT(names(), ElementsAre("0000000000000001.table.damaged"));
        EXPECT_FALSE(tables.load(1));
        EXPECT_THAT(notes_, SizeIs(i));
    }
    tables.save(1, section_of(5));
    tables.set_aside(1, "the section is for another vocabulary");
    EXPECT_THAT(notes_.back(), HasSubstr("another vocabulary"));
    EXPECT_FALSE(tables.load(1));
}

TEST_F(TableStoreTest, WhatCannotBeReadIsNotedAndLeftAlone) {
    const TableStore tables = store();
    fs::create_directories(tables.path(1));
    EXPECT_FALSE(tables.load(1));
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("going on without")));
    EXPECT_TRUE(fs::is_directory(tables.path(1)));
    EXPECT_NE(error_text<IoError>([&] { tables.save(1, section_of(1)); }), "nothing thrown");
}

TEST_F(TableStoreTest, TheLeastRecentlyUsedFilesGo) {
    const TableStore tables = store(10'000);
    for (const std::uint64_t model : {1, 2, 3}) tables.save(model, section_of(7, 500));  // about 2 KiB each
    for (const std::uint64_t model : {1, 2, 3}) set_age(tables.path(model), std::chrono::minutes(40 - 10 * model));
    EXPECT_TRUE(tables.load(1));  // renews it
    const fs::path foreign = folder_.write("tables/corpus.table", std::string(20'000, 'x'));
    const fs::path in_the_making = folder_.write("tables/0000000000000009.table.1-1.part", "x");
    const fs::path left_over = folder_.write("tables/0000000000000009.table.1-2.part", "x");
    set_age(left_over, std::chrono::hours(2));
    tables.save(4, section_of(7, 1500));  // 6 KiB: 12 in all
    EXPECT_THAT(names(), UnorderedElementsAre("0000000000000001.table", "0000000000000004.table", "corpus.table",
                                              in_the_making.filename().string()));
    EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(TableStoreTest, TablesLargerThanTheFolderMayBeAreNotKept) {
    const TableStore tables = store(10'000);
    tables.save(1, section_of(1));
    tables.save(1, section_of(2, 5000));
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("not kept")));
    EXPECT_EQ(value_of(tables.load(1)), 1U);
}

TEST_F(TableStoreTest, SavingAtOnceNeverTearsAFile) {
    constexpr std::size_t kElements = 20'000;
    const auto write = [&](std::uint32_t value) {
        const TableStore tables = store(64 << 20);
        for (int i = 0; i < 20; ++i) tables.save(1, section_of(value, kElements));
    };
    store(64 << 20).save(1, section_of(1, kElements));
    std::thread one(write, 1);
    std::thread other(write, 2);
    for (int i = 0; i < 50; ++i) {
        const TableFile file(store().path(1));  // throws where it is torn
        const auto values = file.section("s").value().u32s();
        EXPECT_EQ(values.front(), values.back());
    }
    one.join();
    other.join();
    EXPECT_THAT(names(), SizeIs(1));
}

TEST(ModelFingerprint, FollowsTheConfiguration) {
    const auto fingerprint = [](const TinyModelOptions& options) {
        return model_fingerprint(*make_tiny_model(options));
    };
    const std::uint64_t one = fingerprint({});
    EXPECT_EQ(fingerprint({}), one);
    EXPECT_NE(fingerprint({.n_layers = 3}), one);
    EXPECT_NE(fingerprint({.vocab = 98}), one);
    EXPECT_NE(fingerprint({.window = 32}), one);
}

class FingerprintOfFiles : public testing::Test {
protected:
    FingerprintOfFiles() { fs::copy(bundled_, copy_); }
    [[nodiscard]] std::uint64_t of_copy() const { return model_fingerprint(*ModelFiles::open(copy_)); }
    /// One byte of a file of the copy becomes another.
    void change_byte(const std::string& name, std::size_t at) const {
        std::fstream file(copy_ / name, std::ios::binary | std::ios::in | std::ios::out);
        file.seekg(static_cast<std::streamoff>(at));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte ^ 1));
        ASSERT_TRUE(file.good());
    }

    /// Where a spelling stands for the first time in a file of the copy.
    [[nodiscard]] std::size_t place_of(const std::string& name, const std::string& spelling) const {
        std::ifstream file(copy_ / name, std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        return bytes.find(spelling);
    }

    TempFolder folder_;
    fs::path bundled_ = fs::path(SLIPSTREAM_SOURCE_DIR) / "tools/demo_model/target";
    fs::path copy_ = folder_.path() / "copy";
};

TEST_F(FingerprintOfFiles, DoesNotDependOnTheirPlace) {
    EXPECT_EQ(of_copy(), model_fingerprint(*ModelFiles::open(bundled_)));
    EXPECT_NE(of_copy(), model_fingerprint(*ModelFiles::open(bundled_.parent_path() / "draft")));
}

TEST_F(FingerprintOfFiles, OfATokenizerFollowsItsPieces) {
    const auto fingerprint = [](const fs::path& path) {
        return tokenizer_fingerprint(*make_tokenizer(ModelFiles::open(path)->tokenizer_source()));
    };
    const std::uint64_t one = fingerprint(bundled_);
    EXPECT_EQ(fingerprint(bundled_.parent_path() / "draft"), one);  // another model of the same vocabulary
    change_byte("model.safetensors", fs::file_size(copy_ / "model.safetensors") - 1);
    EXPECT_EQ(fingerprint(copy_), one);
    change_byte("tokenizer.model", place_of("tokenizer.model", "king"));
    EXPECT_NE(fingerprint(copy_), one);
}

TEST_F(FingerprintOfFiles, ChangesWithTheWeights) {
    const std::uint64_t one = of_copy();
    change_byte("model.safetensors", fs::file_size(copy_ / "model.safetensors") - 1);
    EXPECT_NE(of_copy(), one);
}

// A tekken.json is part of the fingerprint only if the tokenizer is read from it.
TEST_F(FingerprintOfFiles, DependsOnATekkenJsonThatIsRead) {
    const auto write = [&](const char* name, const char* content) { std::ofstream(copy_ / name) << content; };
    const std::uint64_t without = of_copy();
    write("tekken.json", "a");
    const std::uint64_t one = of_copy();
    EXPECT_NE(one, without);
    write("tekken.json", "b");
    EXPECT_NE(of_copy(), one);
    write("tokenizer.json", "{}");
    const std::uint64_t with_both = of_copy();
    write("tekken.json", "a");
    EXPECT_EQ(of_copy(), with_both);
}

TEST_F(FingerprintOfFiles, ChangesWithTheVocabulary) {
    const std::uint64_t one = of_copy();
    change_byte("tokenizer.model", fs::file_size(copy_ / "tokenizer.model") / 2);
    EXPECT_NE(of_copy(), one);
}

}  // namespace
}  // namespace slipstream::draft
