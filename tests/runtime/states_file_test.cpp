// The side file with states of recurrent layers: what is read is what was saved last and is whole, whatever byte is
// damaged and wherever the program was killed.
#include "runtime/session/states_file.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/error_text.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_folder.h"

namespace {
int n_forced = 0;  // calls of fdatasync()
}
// In place of the C library's.
extern "C" int fdatasync(int file) {
    ++n_forced;
    return static_cast<int>(::syscall(SYS_fdatasync, file));
}

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::size_t kHeadBytes = 48;
constexpr std::size_t kSlotHeadBytes = 32;

class StatesFileTest : public testing::Test {
protected:
    StatesFileTest() {
        begin_.context_tokens = 4096;
        shape_ = StatesFileShape(begin_, {});
        shape_.layer_bytes = {64, 0, 128};
    }
    static std::byte byte_of(std::int64_t position, std::int64_t layer, std::size_t i) {
        return static_cast<std::byte>(position / 256 * 31 + layer * 7 + static_cast<std::int64_t>(i));
    }
    void save(StatesFile& file, std::int64_t position) const {
        std::vector<std::int64_t> layers;
        file.save(position, [&](std::int64_t layer, std::byte* out) {
            layers.push_back(layer);
            for (std::size_t i = 0; i < shape_.layer_bytes[layer]; ++i) out[i] = byte_of(position, layer, i);
        });
        EXPECT_EQ(layers, (std::vector<std::int64_t>{0, 2}));
    }
    // Returns the position of the last whole states, which must be those that were saved; -1: the file is refused.
    [[nodiscard]] std::int64_t position(std::int64_t max_tokens = 4096) const {
        auto file = StatesFile::open(session_, shape_, SessionUse::Read);
        if (!file) return -1;
        const std::int64_t found = file->choose(max_tokens);
        for (const std::int64_t layer : {0, 2}) {
            if (found == 0) break;
            std::vector<std::byte> bytes(shape_.layer_bytes[layer]);
            file->read_state(layer, bytes.data());
            for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], byte_of(found, layer, i));
        }
        return found;
    }

    [[nodiscard]] std::optional<StatesFileFindings> inspect(std::int64_t text_tokens = 4096) const {
        return StatesFile::inspect(session_, begin_, text_tokens);
    }

    TempFolder folder_;
    SessionBegin begin_ = sample_begin();
    const fs::path session_ = folder_.path() / "s";
    const fs::path side_ = folder_.path() / "s.states";
    StatesFileShape shape_;
};

TEST_F(StatesFileTest, SlotsReplaceEachOther) {
    EXPECT_EQ(position(), -1);
    EXPECT_FALSE(inspect());
    StatesFile file = StatesFile::create(session_, shape_);
    EXPECT_EQ(position(), 0);
    for (const std::int64_t at : {512, 1024, 2048, 4096}) {
        save(file, at);
        EXPECT_EQ(position(), at);
        EXPECT_EQ(position(at - 1), at == 512 ? 0 : at / 2);
        EXPECT_EQ(inspect()->condition, StatesCondition::Good);
        EXPECT_EQ(inspect()->position, at);
        EXPECT_EQ(inspect(at - 1)->condition, StatesCondition::Good);
        EXPECT_EQ(inspect(at - 1)->position, at == 512 ? 0 : at / 2);
    }
    struct stat status {};
    ASSERT_EQ(::stat(side_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    EXPECT_EQ(fs::file_size(side_), shape_.file_bytes());
    EXPECT_EQ(inspect()->file_bytes, shape_.file_bytes());
}

// At a power failure, what was written since the last fdatasync() may be lost, in any order.
TEST_F(StatesFileTest, ASlotIsOnTheDiskBeforeTheOtherIsReplaced) {
    const auto n_forced_before_writing = [&](StatesFile& file, std::int64_t position) {
        const int before = n_forced;
        int n = 0;
        file.save(position, [&](std::int64_t layer, std::byte* out) {
            n = n_forced - before;
            std::fill_n(out, shape_.layer_bytes[layer], std::byte{1});
        });
        return n;
    };
    {
        StatesFile file = StatesFile::create(session_, shape_);
        save(file, 512);
        EXPECT_EQ(n_forced_before_writing(file, 1024), 1);
        EXPECT_EQ(n_forced_before_writing(file, 1536), 1);
        file.sync();
        EXPECT_EQ(n_forced_before_writing(file, 2048), 0);
    }
    // Whether an earlier program's are on the disk is not known.
    auto file = StatesFile::open(session_, shape_, SessionUse::GoOn);
    EXPECT_EQ(file->choose(4096), 2048);
    EXPECT_EQ(n_forced_before_writing(*file, 2560), 1);
}

// After older states were chosen, the others are replaced.
TEST_F(StatesFileTest, ChosenStatesStayUntilOthersAreSaved) {
    StatesFile file = StatesFile::create(session_, shape_);
    save(file, 512);
    save(file, 1024);
    EXPECT_EQ(file.choose(1000), 512);
    save(file, 768);
    EXPECT_EQ(position(), 768);
    EXPECT_EQ(position(767), 512);
}

// States after the end of a text, of an older copy of it, are replaced before those within it.
TEST_F(StatesFileTest, StatesAfterTheTextAreReplacedFirst) {
    StatesFile file = StatesFile::create(session_, shape_);
    for (const std::int64_t at : {512, 3072, 2048}) save(file, at);  // leaves 3072 and 2048
    EXPECT_EQ(file.choose(1000), 0);
    save(file, 1024);
    EXPECT_EQ(position(), 2048);
    EXPECT_EQ(position(2000), 1024);
    EXPECT_EQ(file.choose(1500), 1024);
    save(file, 1536);
    EXPECT_EQ(position(), 1536);
    EXPECT_EQ(position(1500), 1024);
}

// Killed after some states are written, or all but the head that names them.
TEST_F(StatesFileTest, ASlotThatWasNotNamedIsNotRead) {
    struct Killed {};
    StatesFile file = StatesFile::create(session_, shape_);
    for (const std::int64_t at : {512, 1024, 1536}) {
        for (const std::int64_t layer_of_kill : {0, 2}) {
            EXPECT_THROW(file.save(at,
                                   [&](std::int64_t layer, std::byte* out) {
                                       if (layer == layer_of_kill) throw Killed();
                                       std::fill_n(out, shape_.layer_bytes[layer], std::byte{9});
                                   }),
                         Killed);
            EXPECT_EQ(position(), at - 512);
        }
        const std::size_t slot = at / 512 % 2 == 1 ? 1 : 0;
        const std::size_t head_at = kHeadBytes + slot * (kSlotHeadBytes + 192);
        const std::vector<std::byte> before = file_bytes(side_);
        save(file, at);
        std::vector<std::byte> bytes = file_bytes(side_);
        const std::vector<std::byte> whole = bytes;
        for (std::size_t n = 0; n < kSlotHeadBytes; ++n) {  // bytes of the head that were written
            std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(head_at), kSlotHeadBytes,
                        bytes.begin() + static_cast<std::ptrdiff_t>(head_at));
            std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(head_at), n,
                        bytes.begin() + static_cast<std::ptrdiff_t>(head_at));
            write_bytes(side_, bytes);
            EXPECT_EQ(position(), at - 512) << n;
        }
        write_bytes(side_, whole);
        EXPECT_EQ(position(), at);
    }
}

TEST_F(StatesFileTest, DamageOfAnyByteLosesItsSlotOrAll) {
    {
        StatesFile file = StatesFile::create(session_, shape_);
        save(file, 512);   // slot 1
        save(file, 1024);  // slot 0
    }
    const std::vector<std::byte> whole = file_bytes(side_);
    ASSERT_EQ(whole.size(), kHeadBytes + 2 * (kSlotHeadBytes + 192));
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::vector<std::byte> bytes = whole;
        bytes[at] ^= std::byte{0x10};
        write_bytes(side_, bytes);
        const std::int64_t expected = at < kHeadBytes ? -1 : at < kHeadBytes + kSlotHeadBytes + 192 ? 512 : 1024;
        EXPECT_EQ(position(), expected) << at;
        const auto found = inspect();
        EXPECT_EQ(found->condition, expected < 0 ? StatesCondition::Damaged : StatesCondition::Good) << at;
        EXPECT_EQ(found->position, std::max<std::int64_t>(expected, 0)) << at;
    }
    for (std::size_t n = 0; n < whole.size(); n += 7) {
        write_bytes(side_, std::span(whole).first(n));
        EXPECT_EQ(position(), -1) << n;
        EXPECT_EQ(inspect()->condition, StatesCondition::Damaged) << n;
    }
    std::vector<std::byte> longer = whole;
    longer.push_back({});
    write_bytes(side_, longer);
    EXPECT_EQ(position(), -1);
}

TEST_F(StatesFileTest, AFileOfAnotherSessionOrModelIsNotRead) {
    {
        StatesFile file = StatesFile::create(session_, shape_);
        save(file, 512);
    }
    SessionBegin another = begin_;
    ++another.prompt.emplace_back();
    EXPECT_EQ(StatesFile::inspect(session_, another, 4096)->condition, StatesCondition::OfAnotherSession);
    StatesFileShape other = shape_;
    ++other.session_hash;
    EXPECT_FALSE(StatesFile::open(session_, other, SessionUse::GoOn));
    other = shape_;
    other.layer_bytes = {128, 0, 64};
    EXPECT_FALSE(StatesFile::open(session_, other, SessionUse::GoOn));
    other.layer_bytes = {64, 0, 64};
    EXPECT_FALSE(StatesFile::open(session_, other, SessionUse::GoOn));
    EXPECT_TRUE(StatesFile::open(session_, shape_, SessionUse::GoOn));
}

TEST_F(StatesFileTest, AFileThatIsSomethingElseStays) {
    folder_.write("s.states", "a list of states");
    StatesFile::remove(session_);
    EXPECT_EQ(inspect()->condition, StatesCondition::Damaged);
    EXPECT_FALSE(StatesFile::open(session_, shape_, SessionUse::GoOn));
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(StatesFile::create(session_, shape_)); }),
                HasSubstr("cannot be kept: File exists"));
    EXPECT_TRUE(fs::exists(side_));
}

TEST_F(StatesFileTest, AFullDiskLeavesNoFile) {
    const FileLimit limit(100);
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(StatesFile::create(session_, shape_)); }),
                HasSubstr("cannot be kept: File too large"));
    EXPECT_FALSE(fs::exists(side_));
}

}  // namespace
}  // namespace slipstream
