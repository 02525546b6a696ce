// MappedFile: content, emptiness, and what cannot be mapped.
#include "offload/mapped_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace slipstream {
namespace {

class MappedFileTest : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "slipstream-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::filesystem::path write(const std::string& content) {
        std::ofstream(folder_ / "file", std::ios::binary) << content;
        return folder_ / "file";
    }
    std::filesystem::path folder_;
};

TEST_F(MappedFileTest, HoldsTheBytesAndSurvivesAMove) {
    const std::string content(10000, 'x');
    MappedFile first(write(content + "end"));
    const MappedFile file = std::move(first);
    ASSERT_EQ(file.bytes().size(), content.size() + 3);
    EXPECT_EQ(file.bytes().back(), std::byte{'d'});
    EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move): that is the question
    EXPECT_NO_THROW(file.populate(5000, 1));
    EXPECT_NO_THROW(file.populate(0, 1 << 30));
    EXPECT_NO_THROW(file.populate(1 << 30, 5));
}

// Pages of this process that hold part of the file now.
std::size_t resident_pages(const MappedFile& file) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool here = false;
    while (std::getline(maps, line)) {
        if (line.find(" /") != std::string::npos) here = line.ends_with(file.path().string());
        if (here && line.starts_with("Rss:")) return std::stoul(line.substr(4)) / 4;
    }
    return 0;
}

TEST_F(MappedFileTest, ReleasedPagesAreNoLongerHeldAndComeBackUnchanged) {
    std::string content(64 * 4096 + 100, 'x');
    content[40 * 4096] = 'y';
    const MappedFile file(write(content));
    file.populate(0, content.size());
    EXPECT_EQ(resident_pages(file), 65U);
    file.release(100, 10 * 4096);  // nine whole pages lie in it
    EXPECT_LE(resident_pages(file), 56U);
    file.release(8192, 1U << 30);
    EXPECT_LE(resident_pages(file), 2U);
    EXPECT_NO_THROW(file.release(1U << 30, 5));
    EXPECT_EQ(file.bytes()[40 * 4096], std::byte{'y'});
    EXPECT_EQ(file.bytes().back(), std::byte{'x'});
}

TEST_F(MappedFileTest, EmptyFileIsAnEmptySpan) {
    EXPECT_TRUE(MappedFile(write("")).bytes().empty());
}

TEST_F(MappedFileTest, RefusesWhatIsNoReadableFile) {
    EXPECT_THROW(MappedFile(folder_ / "absent"), IoError);
    EXPECT_THROW(MappedFile{folder_}, IoError);
    ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    EXPECT_THROW(MappedFile(folder_ / "pipe"), IoError);
}

}  // namespace
}  // namespace slipstream
