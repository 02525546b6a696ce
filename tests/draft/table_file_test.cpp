// Table files: what was written comes back, and nothing else is taken for it.
#include "draft/tables/table_file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<TableSection> sample_sections() {
    std::vector<TableSection> sections(3);
    sections[0].name = "first";
    sections[0].fields.u32(7);
    sections[0].fields.text("Cacheback");
    sections[0].fields.u64(1ULL << 40);
    sections[0].fields.i32s(std::vector<std::int32_t>{-1, 2, -3});
    sections[0].fields.f32(0.5F);
    sections[1].name = "empty";
    sections[2].name = "arrays";
    sections[2].fields.u32s(std::vector<std::uint32_t>(100, 9));
    sections[2].fields.f32s({});
    sections[2].fields.f32s(std::vector<float>{1.0F, 2.5F});
    return sections;
}

// Aligned as a mapping is.
class Bytes {
public:
    explicit Bytes(std::span<const std::byte> bytes) : words_((bytes.size() + 7) / 8), n_(bytes.size()) {
        if (!bytes.empty()) std::memcpy(words_.data(), bytes.data(), n_);
    }
    [[nodiscard]] std::span<std::byte> span() { return {reinterpret_cast<std::byte*>(words_.data()), n_}; }

private:
    std::vector<std::uint64_t> words_;
    std::size_t n_;
};

std::vector<std::byte> file_bytes(std::span<const TableSection> sections) {
    std::vector<std::byte> bytes;
    write_table_bytes(sections,
                      [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
    return bytes;
}

std::string parse_error(std::span<const std::byte> bytes) {
    // An exact-size copy: a read past the end is then a sanitizer's to see.
    Bytes copy(bytes);
    return error_text<FormatError>([&] { static_cast<void>(TableFile::parse(copy.span(), "t")); });
}

void expect_sample(const TableFile& file) {
    EXPECT_THAT(file.section_names(), ElementsAre("first", "empty", "arrays"));
    auto first = file.section("first");
    ASSERT_TRUE(first);
    EXPECT_EQ(first->u32(), 7U);
    EXPECT_EQ(first->text(), "Cacheback");
    EXPECT_EQ(first->u64(), 1ULL << 40);
    EXPECT_THAT(first->i32s(), ElementsAre(-1, 2, -3));
    EXPECT_EQ(first->f32(), 0.5F);
    first->finish();
    auto empty = file.section("empty");
    ASSERT_TRUE(empty);
    empty->finish();
    auto arrays = file.section("arrays");
    ASSERT_TRUE(arrays);
    const auto words = arrays->u32s();
    EXPECT_THAT(words, ElementsAreArray(std::vector<std::uint32_t>(100, 9)));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words.data()) % kTableAlignmentBytes, 0U);
    EXPECT_THAT(arrays->f32s(), IsEmpty());
    EXPECT_THAT(arrays->f32s(), ElementsAre(1.0F, 2.5F));
    arrays->finish();
    EXPECT_FALSE(file.section("other"));
}

TEST(TableFile, GivesBackWhatWasWritten) {
    const TempFolder folder;
    const fs::path path = folder.path() / "new" / "folder" / "a.table";
    write_table_file(path, sample_sections());
    TableFile file(path);
    expect_sample(file);
    EXPECT_EQ(file.path(), path);
    EXPECT_EQ(file.total_bytes(), fs::file_size(path));
    const TableFile moved = std::move(file);
    expect_sample(moved);
}

TEST(TableFile, IsForItsOwnerAlone) {
    const TempFolder folder;
    const fs::path path = folder.path() / "tables" / "a.table";
    write_table_file(path, sample_sections());
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(fs::status(path.parent_path()).permissions(), fs::perms::owner_all);
}

TEST(TableFile, AFileWithoutSectionsIsOne) {
    const TempFolder folder;
    write_table_file(folder.path() / "a.table", {});
    EXPECT_THAT(TableFile(folder.path() / "a.table").section_names(), IsEmpty());
}

TEST(TableFile, ReplacesAndFollowsLinks) {
    const TempFolder folder;
    const fs::path target = folder.write("target", "old");
    fs::create_symlink(target, folder.path() / "link");
    write_table_file(folder.path() / "link", sample_sections());
    EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
    expect_sample(TableFile(target));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
}

TEST(TableFile, RefusesEveryTruncation) {
    const std::vector<std::byte> bytes = file_bytes(sample_sections());
    for (std::size_t n = 0; n < bytes.size(); ++n)
        EXPECT_NE(parse_error(std::span(bytes).first(n)), "nothing thrown") << n;
    EXPECT_EQ(parse_error(bytes), "nothing thrown");
    std::vector<std::byte> longer = bytes;
    longer.push_back({});
    EXPECT_THAT(parse_error(longer), HasSubstr("1 bytes are left over"));
}

TEST(TableFile, RefusesEveryFlippedByte) {
    std::vector<std::byte> bytes = file_bytes(sample_sections());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        for (const std::byte flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
            bytes[i] ^= flip;
            EXPECT_NE(parse_error(bytes), "nothing thrown") << i;
            bytes[i] ^= flip;
        }
    }
    EXPECT_EQ(parse_error(bytes), "nothing thrown");
}

TEST(TableFile, NamesWhatIsWrong) {
    const std::vector<std::byte> good = file_bytes(sample_sections());
    const auto with = [&](std::size_t offset, auto value) {
        std::vector<std::byte> bytes = good;
        std::memcpy(bytes.data() + offset, &value, sizeof(value));
        return parse_error(bytes);
    };
    EXPECT_THAT(with(0, 'X'), HasSubstr("not a table file"));
    EXPECT_THAT(with(8, std::uint32_t{2}), HasSubstr("of version 2, this program reads 1"));
    EXPECT_THAT(with(12, std::uint32_t{0xffffffff}), HasSubstr("are expected"));
    EXPECT_THAT(with(12, std::uint32_t{4}), HasSubstr("are expected"));
    EXPECT_THAT(with(12, std::uint32_t{2}), HasSubstr("are left over"));
    EXPECT_THAT(with(16, std::uint32_t{0xfffffff0}), HasSubstr("4294967280 bytes are expected"));
    EXPECT_THAT(with(25, ~std::uint64_t{0}), HasSubstr("are expected"));  // 16 + 4 + "first"
    EXPECT_THAT(with(33, std::uint64_t{0}), HasSubstr("checksum of section first"));
    EXPECT_THAT(with(63, std::uint8_t{1}), HasSubstr("padding"));
    std::vector<TableSection> twice(2);
    twice[0].name = twice[1].name = "same";
    EXPECT_THAT(parse_error(file_bytes(twice)), HasSubstr("section same twice"));
}

// Whole files, whose checksums are right, with fields that are not what the reader takes them for.
TEST(TableReader, ChecksEveryCount) {
    TableWriter writer;
    writer.u64(~std::uint64_t{0});
    const Bytes forged(writer.bytes());
    const auto reader = [&] { return TableReader(const_cast<Bytes&>(forged).span(), "t, section s"); };
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(reader().u32s()); }), HasSubstr("t, section s"));
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(reader().text()); }), HasSubstr("are expected"));
    EXPECT_THAT(error_text<FormatError>([&] {
                    TableReader fields = reader();
                    static_cast<void>(fields.u64());
                    static_cast<void>(fields.u32());
                }),
                HasSubstr("4 bytes are expected at 8, there are 0; the file is damaged"));
    EXPECT_THAT(error_text<FormatError>([&] { reader().finish(); }), HasSubstr("left over"));
    for (const std::uint64_t n : {std::uint64_t{2}, std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1}) {
        TableWriter array;
        array.u32s(std::vector<std::uint32_t>{1});
        Bytes bytes(array.bytes());
        std::memcpy(bytes.span().data(), &n, sizeof(n));
        TableReader fields(bytes.span(), "t");
        EXPECT_NE(error_text<FormatError>([&] { static_cast<void>(fields.i32s()); }), "nothing thrown") << n;
    }
}

TEST(TableFile, PlacesThatCannotBeWrittenAreSaid) {
    const TempFolder folder;
    const fs::path plain = folder.write("plain", "x");
    EXPECT_THAT(error_text<IoError>([&] { write_table_file(plain / "a.table", {}); }), HasSubstr("plain"));
    EXPECT_THAT(error_text<IoError>([&] { write_table_file(folder.path(), {}); }), HasSubstr("not a regular file"));
    EXPECT_THAT(error_text<IoError>([&] { TableFile file(folder.path() / "none"); }), HasSubstr("none"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(TableFile, AFullDiskLeavesTheOldFileAndNothingElse) {
    const TempFolder folder;
    const fs::path path = folder.path() / "a.table";
    write_table_file(path, sample_sections());
    std::vector<TableSection> large(1);
    large[0].name = "large";
    large[0].fields.u32s(std::vector<std::uint32_t>(100'000));
    // A limit on the size of files stands in for the disk.
    rlimit old{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    auto* const old_handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{64 * 1024, old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string error = error_text<IoError>([&] { write_table_file(path, large); });
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, old_handler);
    EXPECT_THAT(error, HasSubstr("a.table: the table cannot be written: File too large"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
    expect_sample(TableFile(path));
}

}  // namespace
}  // namespace slipstream::draft
