// Files of the user: whole or not at all, with their mode, and never into what somebody planted beside them.
#include "offload/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace {
// Calls of fsync() that a signal interrupts from now on, as on NFS and FUSE.
int n_interrupted_calls = 0;
}  // namespace

// Instead of the C library's.
extern "C" int fsync(int descriptor) {
    if (n_interrupted_calls > 0) {
        --n_interrupted_calls;
        errno = EINTR;
        return -1;
    }
    return static_cast<int>(syscall(SYS_fsync, descriptor));
}

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

// A name of 255 bytes leaves no room for the end of a part's name.
TEST_P(AtomicFileTest, ReplacesAFileOfTheLongestName) {
    std::string name = "xx";
    while (name.size() + 2 <= 255) name += "\u00e9";  // two bytes each: the stem is cut inside of one
    name.resize(255, 'x');
    const fs::path path = folder_.write(name, "old");
    write(path, "new");
    EXPECT_EQ(text_of(path), "new");
    EXPECT_EQ(n_files(), 1);
    const fs::path left = folder_.write(name.substr(0, 230) + ".4194304-17.part", "left");
    write(path, "newer");
    EXPECT_EQ(text_of(path), "newer");
    EXPECT_FALSE(fs::exists(left));
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

TEST_P(AtomicFileTest, ReplacesNothingThatMayNotBeWritten) {
    folder_.write("f", "kept");
    for (const mode_t mode : {0444U, 0400U}) {
        ASSERT_EQ(chmod(path_.c_str(), mode), 0);
        EXPECT_THAT(error_text<IoError>([&] { write(path_, "new"); }), HasSubstr("write-protected"));
        EXPECT_EQ(text_of(path_), "kept");
        EXPECT_EQ(mode_of(path_), mode);
    }
    EXPECT_EQ(n_files(), 1);
    ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
    write(path_, "new");
    EXPECT_EQ(text_of(path_), "new");
}

// st_mode shows the mask of an access control list where it shows the bits of the group otherwise: as bits of the group
// it would let the group in.
TEST_P(AtomicFileTest, KeepsTheAccessControlListOfWhatItReplaces) {
    constexpr const char* kList = "system.posix_acl_access";
    struct Entry {
        std::uint16_t tag, permissions;
        std::uint32_t id;
    };
    struct List {
        std::uint32_t version = 2;
        // Owner rw, user 1234 rw, group none, mask rw, others none (linux/posix_acl_xattr.h).
        Entry entries[5] = {{0x01, 6, ~0U}, {0x02, 6, 1234}, {0x04, 0, ~0U}, {0x10, 6, ~0U}, {0x20, 0, ~0U}};
    };
    const List list;
    folder_.write("f", "old");
    if (setxattr(path_.c_str(), kList, &list, sizeof(list), 0) != 0)
        GTEST_SKIP() << "this file system has no access control lists";
    write(path_, "new");
    EXPECT_EQ(text_of(path_), "new");
    List kept{};
    ASSERT_EQ(getxattr(path_.c_str(), kList, &kept, sizeof(kept)), static_cast<ssize_t>(sizeof(kept)));
    EXPECT_EQ(std::memcmp(&kept, &list, sizeof(list)), 0);

    // A list that new files of the folder get by default is not given to a file that had none.
    const fs::path own = folder_.write("own", "old");
    ASSERT_EQ(chmod(own.c_str(), 0640), 0);
    ASSERT_EQ(setxattr(folder_.path().c_str(), "system.posix_acl_default", &list, sizeof(list), 0), 0);
    write(own, "new");
    EXPECT_LT(getxattr(own.c_str(), kList, &kept, sizeof(kept)), 0);
    EXPECT_EQ(mode_of(own), 0640U);
}

// What a killed program left goes with the next file of that name, and nothing else does.
TEST_P(AtomicFileTest, RemovesThePartsOfProgramsThatAreGone) {
    folder_.write("f", "old");
    for (const char* name : {"f.1-0.part", "f.4194304-17.part"}) folder_.write(name, "left");
    for (const char* name :
         {"f.part", "f.1.part", "f.1-.part", "f.-1.part", "f.a-0.part", "f.1-0.part.bak", "g.1-0.part", "ff.1-0.part"})
        folder_.write(name, "of the user");
    const fs::path busy = folder_.write("f.5-0.part", "of a program that writes");
    const FileHandle writer(open(busy.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(writer.get(), LOCK_EX), 0);
    const fs::path victim = folder_.write("victim", "precious");
    fs::create_symlink(victim, folder_.path() / "f.6-0.part");
    fs::create_directory(folder_.path() / "f.7-0.part");
    ASSERT_EQ(n_files(), 1 + 2 + 8 + 1 + 1 + 2);
    write(path_, "new");
    EXPECT_EQ(n_files(), 1 + 8 + 1 + 1 + 2);
    EXPECT_EQ(text_of(busy), "of a program that writes");
    EXPECT_EQ(text_of(victim), "precious");
    EXPECT_FALSE(fs::exists(folder_.path() / "f.1-0.part"));
}

TEST_P(AtomicFileTest, TwoThatWriteTheSameFileDoNotTakeEachOthersPart) {
    AtomicFile first(path_, {.named_part = GetParam()});
    first.write(std::as_bytes(std::span(std::string_view("first"))));
    write(path_, "second");
    EXPECT_EQ(text_of(path_), "second");
    first.commit();
    EXPECT_EQ(text_of(path_), "first");
    EXPECT_EQ(n_files(), 1);
}

TEST_P(AtomicFileTest, ASignalDuringItDoesNotFailIt) {
    n_interrupted_calls = 2;
    write(path_, "text");
    EXPECT_EQ(n_interrupted_calls, 0);
    EXPECT_EQ(text_of(path_), "text");
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
