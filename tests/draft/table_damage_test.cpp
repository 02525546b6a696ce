// Damaged tables: each class of bytes flipped, cut, zeroed and doubled. What is read is what was written, or the file
// is set aside with one line, and the next save makes a new one. A part of the matrix runs with the other tests, all of
// it as the test damage_matrix.
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "draft/tables/table_store.h"
#include "tests/support/damage.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kModel = 0x1234;

std::vector<TableSection> sections() {
    std::vector<TableSection> made(3);
    std::mt19937 random(4);
    for (std::size_t i = 0; i < made.size(); ++i) {
        made[i].name = "section " + std::to_string(i);
        std::vector<std::uint32_t> values(100 + 900 * i);
        for (std::uint32_t& value : values) value = static_cast<std::uint32_t>(random());
        made[i].fields.u32(static_cast<std::uint32_t>(i));
        made[i].fields.text("a text");
        made[i].fields.u32s(values);
    }
    return made;
}

std::vector<std::byte> bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

class TableDamage : public testing::Test {
protected:
    TableDamage() {
        store_.save(kModel, made_);
        bytes_ = bytes_of(path_);
    }

    [[nodiscard]] std::vector<ByteClass> classes() const {
        std::vector<ByteClass> all{{"magic", {{0, 8}}}, {"version", {{8, 4}}}, {"number of sections", {{12, 4}}}};
        ByteClass lengths{.name = "lengths", .places = {}};
        ByteClass names{.name = "names", .places = {}};
        ByteClass checksums{.name = "checksums", .places = {}};
        ByteClass padding{.name = "padding", .places = {}};
        ByteClass payloads{.name = "payloads", .places = {}};
        std::size_t at = 16;
        for (const TableSection& section : made_) {
            const std::size_t n_name = section.name.size();
            lengths.places.push_back({at, 4});
            names.places.push_back({at + 4, n_name});
            lengths.places.push_back({at + 4 + n_name, 8});
            checksums.places.push_back({at + 12 + n_name, 8});
            const std::size_t head_end = at + 20 + n_name;
            const std::size_t begin = (head_end + 63) / 64 * 64;
            padding.places.push_back({head_end, begin - head_end});
            payloads.places.push_back({begin, section.fields.bytes().size()});
            at = begin + section.fields.bytes().size();
        }
        EXPECT_EQ(at, bytes_.size());
        for (ByteClass* one : {&lengths, &names, &checksums, &padding, &payloads}) all.push_back(std::move(*one));
        all.push_back({"tail", {{bytes_.size() - 20, 20}}});
        return all;
    }

    void expect_it_is_read_or_set_aside(const DamagedFile& file) {
        SCOPED_TRACE(file.name);
        std::ofstream(path_, std::ios::binary | std::ios::trunc)
            .write(reinterpret_cast<const char*>(file.bytes.data()), static_cast<std::streamsize>(file.bytes.size()));
        notes_.clear();
        if (const std::optional<TableFile> table = store_.load(kModel)) {
            ASSERT_EQ(notes_.size(), 0U);
            ASSERT_EQ(table->section_names().size(), made_.size());
            for (const TableSection& section : made_)
                EXPECT_TRUE(std::ranges::equal(table->section(section.name)->copy().bytes(), section.fields.bytes()));
            ++n_read_;
            return;
        }
        ASSERT_EQ(notes_.size(), 1U);
        EXPECT_EQ(notes_[0].find('\n'), std::string::npos);
        EXPECT_NE(notes_[0].find(path_.string()), std::string::npos);
        fs::path aside = path_;
        aside += ".damaged";
        EXPECT_EQ(bytes_of(aside), file.bytes);
        store_.save(kModel, made_);
        EXPECT_EQ(bytes_of(path_), bytes_);
        fs::remove(aside);
        ++n_set_aside_;
    }

    void run(std::size_t n_each, std::size_t stride) {
        const std::size_t n = for_each_damage(bytes_, classes(), n_each, stride,
                                              [&](const DamagedFile& file) { expect_it_is_read_or_set_aside(file); });
        std::printf("%zu damaged tables: %zu are read as they were written, %zu are set aside\n", n, n_read_,
                    n_set_aside_);
    }

    TempFolder folder_;
    std::vector<std::string> notes_;
    const TableStore store_{
        {.folder = folder_.path(), .on_note = [this](std::string_view text) { notes_.emplace_back(text); }}};
    const fs::path path_ = store_.path(kModel);
    const std::vector<TableSection> made_ = sections();
    std::vector<std::byte> bytes_;
    std::size_t n_read_ = 0;
    std::size_t n_set_aside_ = 0;
};

TEST_F(TableDamage, APartOfTheMatrix) {
    run(14, 5);
}
TEST_F(TableDamage, DISABLED_TheWholeMatrix) {
    run(14, 1);
}

}  // namespace
}  // namespace slipstream::draft
