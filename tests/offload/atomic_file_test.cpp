// Files of the user: whole or not at all, with their mode, and never into what somebody planted beside them.
#include "offload/atomic_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// With a name from the start, and without one as far as the file system can do that.
class AtomicFileTest : public testing::TestWithParam<bool> {
protected:
    void write(const fs::path& path, const std::string& text, AtomicFileOptions options = {}) const {
        options.named_part = GetParam();
        AtomicFile file(path, options);
        file.write(std::as_bytes(std::span(text)));
        file.commit();
    }
    static std::string text_of(const fs::path& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    static mode_t mode_of(const fs::path& path) {
        return static_cast<mode_t>(fs::status(path).permissions() & fs::perms::mask);
    }
    [[nodiscard]] std::ptrdiff_t n_files() const {
        return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
    }

    TempFolder folder_;
    const fs::path path_ = folder_.path() / "f";
};

INSTANTIATE_TEST_SUITE_P(Parts, AtomicFileTest, testing::Bool());

TEST_P(AtomicFileTest, AppearsWholeOrNotAtAll) {
    folder_.write("f", "old");
    {
        AtomicFile file(path_, {.named_part = GetParam()});
        file.write(std::as_bytes(std::span(std::string_view("half"))));
        EXPECT_EQ(text_of(path_), "old");
    }
    EXPECT_EQ(text_of(path_), "old");
    EXPECT_EQ(n_files(), 1);
    write(path_, "new");
    EXPECT_EQ(text_of(path_), "new");
    EXPECT_EQ(n_files(), 1);
}

TEST_P(AtomicFileTest, KeepsTheModeOfWhatItReplaces) {
    const mode_t umask_before = umask(022);
    write(path_, "a");
    EXPECT_EQ(mode_of(path_), 0644U);
    write(folder_.path() / "own", "a", {.new_mode = kOwnerOnlyMode});
    EXPECT_EQ(mode_of(folder_.path() / "own"), 0600U);
    for (const mode_t mode : {0600U, 0640U, 0660U, 0666U, 0755U}) {
        ASSERT_EQ(chmod(path_.c_str(), mode), 0);
        write(path_, "b");
        EXPECT_EQ(mode_of(path_), mode);
        write(path_, "c", {.new_mode = kOwnerOnlyMode});
        EXPECT_EQ(mode_of(path_), mode);
    }
    umask(umask_before);
}

// Whatever somebody with a right to the folder expects the part's name to be.
TEST_P(AtomicFileTest, WritesToNothingThatIsPlantedBesideIt) {
    const fs::path victim = folder_.write("victim", "precious");
    const auto plant = [&](const std::string& end) {
        fs::path name = path_;
        name += end;
        fs::create_symlink(victim, name);
    };
    plant(fmt::format(".{}.part", getpid()));
    for (int i = 0; i < 100; ++i) plant(fmt::format(".{}-{}.part", getpid(), i));
    write(path_, "text");
    EXPECT_EQ(text_of(path_), "text");
    EXPECT_EQ(text_of(victim), "precious");
    write(folder_.path() / "g", "text", {.existing = ExistingFile::Refuse});
    EXPECT_EQ(text_of(victim), "precious");
    EXPECT_EQ(n_files(), 104);
}

TEST_P(AtomicFileTest, FollowsItsOwnLink) {
    const fs::path target = folder_.write("target", "old");
    fs::create_symlink(target, path_);
    write(path_, "new");
    EXPECT_TRUE(fs::is_symlink(path_));
    EXPECT_EQ(text_of(target), "new");
}

TEST_P(AtomicFileTest, RefusesWhatIsThereWhereItMayNotReplace) {
    const AtomicFileOptions options{.existing = ExistingFile::Refuse, .refusal = "the tale cannot be made"};
    write(path_, "first", options);
    EXPECT_THAT(error_text<IoError>([&] { write(path_, "second", options); }),
                HasSubstr(path_.string() + ": the tale cannot be made: File exists"));
    EXPECT_EQ(text_of(path_), "first");
    fs::create_symlink(folder_.path() / "nowhere", folder_.path() / "link");
    EXPECT_THROW(write(folder_.path() / "link", "second", options), IoError);
    EXPECT_FALSE(fs::exists(folder_.path() / "nowhere"));
    EXPECT_EQ(n_files(), 2);
}

TEST_P(AtomicFileTest, PlacesThatCannotBeWrittenAreSaid) {
    EXPECT_THAT(error_text<IoError>([&] { write(folder_.path(), "x"); }), HasSubstr("not a regular file"));
    EXPECT_THAT(error_text<IoError>([&] { write(folder_.path() / "no" / "f", "x"); }),
                HasSubstr("cannot be written: No such file"));
}

TEST(PrivateFile, LinesAreAppended) {
    const TempFolder folder;
    const fs::path path = folder.path() / "a" / "lines";
    EXPECT_EQ(append_to_private_file(path, "x"), ENOENT);
    std::error_code error;
    make_private_folder(path.parent_path(), error);
    EXPECT_FALSE(error);
    EXPECT_EQ(append_to_private_file(path, "one\n"), 0);
    EXPECT_EQ(append_to_private_file(path, "two\n"), 0);
    EXPECT_EQ(fs::file_size(path), 8U);
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(fs::status(path.parent_path()).permissions(), fs::perms::owner_all);
}

}  // namespace
}  // namespace slipstream
