// Session files on a disk: made whole or not at all, one program at a time, and still a session after whatever the
// system refused.
#include "runtime/session/session_file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <fcntl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/error_text.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SessionFileTest : public testing::Test {
protected:
    SessionFile make() { return SessionFile::create(path_, sample_begin()); }
    std::ptrdiff_t n_files() const {
        return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
    }

    TempFolder folder_;
    const fs::path path_ = folder_.path() / "s";
};

TEST_F(SessionFileTest, IsGoneOnWithWhereItEnded) {
    EXPECT_FALSE(SessionFile::open(path_).has_value());
    {
        SessionFile session = make();
        grow(session);
    }
    for (int round = 0; round < 3; ++round) {
        auto session = SessionFile::open(path_);
        ASSERT_TRUE(session.has_value());
        EXPECT_EQ(std::ssize(session->tokens()), 8 + round);
        EXPECT_EQ(session->n_kv_blocks(), 2);
        std::vector<std::byte> block(kSampleChunkBytes);
        EXPECT_TRUE(session->read_kv(1, 0, block.data()));
        EXPECT_EQ(block, sample_block(2));
        session->append_tokens(std::vector<TokenId>{9});
        session->sync();
    }
    EXPECT_EQ(n_files(), 1);
}

TEST_F(SessionFileTest, WhatWasCutIsWrittenAnew) {
    {
        SessionFile session = make();
        grow(session);
    }
    const std::vector<std::byte> whole = file_bytes(path_);
    const std::size_t begin_bytes = kSessionHeadBytes + kRecordHeadBytes + encode_session_begin(sample_begin()).size();
    for (std::size_t n = begin_bytes; n < whole.size(); ++n) {
        write_bytes(path_, std::span(whole).first(n));
        auto session = SessionFile::open(path_);
        ASSERT_TRUE(session.has_value()) << n;
        ASSERT_EQ(fs::file_size(path_), n);  // opening alone changes nothing
        const std::size_t n_tokens = session->tokens().size();
        session->append_tokens(std::vector<TokenId>{11});
        session.reset();
        const SessionContents contents = read_session(file_bytes(path_), "s");
        ASSERT_EQ(contents.tokens.size(), n_tokens + 1) << n;
        ASSERT_EQ(contents.valid_bytes, fs::file_size(path_)) << n;
    }
}

TEST_F(SessionFileTest, AnotherProgramsSessionIsRefused) {
    SessionFile session = make();
    EXPECT_THAT(error_text<RequestError>([&] { static_cast<void>(SessionFile::open(path_)); }),
                HasSubstr(path_.string() + ": another program has this session open"));
    const SessionFile moved = std::move(session);  // the lock goes with it
    EXPECT_THROW(static_cast<void>(SessionFile::open(path_)), RequestError);
}

// Root may write to it, and does not.
TEST_F(SessionFileTest, AWriteProtectedSessionIsReadAndNotGoneOnWith) {
    {
        SessionFile session = make();
        grow(session);
    }
    ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(SessionFile::open(path_)); }),
                HasSubstr("the session is write-protected; allow writing (chmod u+w)"));
    const auto read = SessionFile::open(path_, SessionUse::Read);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->tokens().size(), 8U);
}

TEST_F(SessionFileTest, NothingIsOverwritten) {
    folder_.write("s", "a letter");
    EXPECT_THROW(static_cast<void>(SessionFile::open(path_)), FormatError);
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(make()); }), HasSubstr("File exists"));
    EXPECT_EQ(fs::file_size(path_), 8U);
    EXPECT_EQ(n_files(), 1);
}

// Two wrong bits in what the text is made of: nothing can be computed without it.
TEST_F(SessionFileTest, ADamagedBeginningIsRefusedAndStaysAsItIs) {
    {
        SessionFile session = make();
        grow(session);
    }
    std::vector<std::byte> damaged = file_bytes(path_);
    damaged[60] ^= std::byte{1};
    damaged[70] ^= std::byte{1};
    write_bytes(path_, damaged);
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(SessionFile::open(path_)); }),
                HasSubstr("a damaged session"));
    EXPECT_EQ(file_bytes(path_), damaged);
}

TEST_F(SessionFileTest, DamagedKvIsFoundWhenItIsRead) {
    {
        SessionFile session = make();
        grow(session);
    }
    std::vector<std::byte> bytes = file_bytes(path_);
    const SessionContents contents = read_session(bytes, "s");
    bytes[static_cast<std::size_t>(contents.kv_chunks[1].payload.data() - bytes.data()) + 10] ^= std::byte{4};
    write_bytes(path_, bytes);
    {
        auto session = SessionFile::open(path_);
        ASSERT_TRUE(session.has_value());
        std::vector<std::byte> block(kSampleChunkBytes);
        EXPECT_TRUE(session->read_kv(0, 0, block.data()));
        EXPECT_FALSE(session->read_kv(1, 0, block.data()));
        session->drop_damaged_kv(1, 0);
        EXPECT_EQ(session->n_kv_blocks(), 1);
        EXPECT_THAT(session->damage(), HasSubstr("KV of chunk 0 is damaged"));
        EXPECT_EQ(file_bytes(path_), bytes);  // reading changes nothing
        fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
        session->append_kv(1, 0, sample_block(2));
        EXPECT_THROW(static_cast<void>(SessionFile::open(path_)), RequestError);  // the lock is the new file's
    }
    const auto session = SessionFile::open(path_);
    EXPECT_EQ(session->damage(), "");
    EXPECT_EQ(session->tokens(), (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(session->max_tokens(), 900);
    std::vector<std::byte> block(kSampleChunkBytes);
    for (const int i : {0, 1}) {
        EXPECT_TRUE(session->read_kv(i, 0, block.data()));
        EXPECT_EQ(block, sample_block(i + 1));
    }
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
    EXPECT_EQ(n_files(), 1);
}

// A disk that is full when a damaged file is to be replaced: the damaged one is still there.
TEST_F(SessionFileTest, ADamagedFileIsReplacedWholeOrNotAtAll) {
    {
        SessionFile session = make();
        grow(session);
    }
    std::vector<std::byte> bytes = file_bytes(path_);
    const SessionContents contents = read_session(bytes, "s");
    const auto at = contents.kv_chunks[0].payload.data() - bytes.data();
    bytes.insert(bytes.begin() + at, std::byte{7});
    write_bytes(path_, bytes);
    auto session = SessionFile::open(path_);
    ASSERT_TRUE(session.has_value());
    EXPECT_EQ(session->tokens().size(), 8U);
    {
        const FileLimit limit(bytes.size() / 2);
        EXPECT_THAT(error_text<IoError>([&] { session->append_tokens(std::vector<TokenId>{9}); }),
                    HasSubstr("it holds 8 generated tokens: make room and run the same command again; the damaged "
                              "session is left as it is: a whole one that replaces it takes "));
    }
    EXPECT_EQ(file_bytes(path_), bytes);
    EXPECT_EQ(n_files(), 1);
    session->append_tokens(std::vector<TokenId>{9});
    EXPECT_EQ(read_session(file_bytes(path_), "s").tokens.size(), 9U);
}

TEST_F(SessionFileTest, IsForItsOwnerAlone) {
    const SessionFile session = make();
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(SessionFileTest, PlacesThatCannotBeAreSaidAtOnce) {
    EXPECT_THAT(error_text<IoError>([&] { SessionFile::check_place(folder_.path() / "no" / "s"); }),
                HasSubstr("the session cannot be made: No such file or directory"));
    const fs::path below = folder_.write("file", "x") / "s";
    EXPECT_THROW(SessionFile::check_place(below), IoError);
    EXPECT_THROW(static_cast<void>(SessionFile::open(below)), IoError);
    EXPECT_THROW(static_cast<void>(SessionFile::open(folder_.path())), IoError);
    ASSERT_EQ(mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(SessionFile::open(folder_.path() / "pipe")); }),
                HasSubstr("a session must be a regular file"));
    fs::create_symlink(folder_.path() / "nowhere", folder_.path() / "link");
    EXPECT_THROW(static_cast<void>(SessionFile::open(folder_.path() / "link")), IoError);
    EXPECT_NO_THROW(SessionFile::check_place(path_));
    EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SessionFileTest, ADiskThatIsFullAtTheBeginningLeavesNothing) {
    const FileLimit limit(100);
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(make()); }), HasSubstr("File too large"));
    EXPECT_EQ(n_files(), 0);
}

// A disk that is full after any number of bytes: the session holds every record that was appended, and goes on.
TEST_F(SessionFileTest, ADiskThatIsFullLaterLeavesASession) {
    std::size_t full = 0;
    std::size_t begun = 0;
    {
        SessionFile session = make();
        begun = fs::file_size(path_);
        grow(session);
        full = fs::file_size(path_);
    }
    for (std::size_t room = begun; room < full; ++room) {
        fs::remove(path_);
        SessionFile session = make();
        {
            const FileLimit limit(room);
            EXPECT_THAT(error_text<IoError>([&] { grow(session); }), HasSubstr("the session cannot be written"));
        }
        const std::vector<std::byte> bytes = file_bytes(path_);
        const SessionContents contents = read_session(bytes, "s");
        ASSERT_EQ(contents.valid_bytes, bytes.size()) << room;  // nothing half-written is left
        ASSERT_EQ(contents.tokens, session.tokens()) << room;
        ASSERT_EQ(std::ssize(contents.kv_chunks), session.n_kv_blocks()) << room;
        session.append_tokens(std::vector<TokenId>{3});  // there is room again
        ASSERT_EQ(read_session(file_bytes(path_), "s").tokens, session.tokens()) << room;
    }
}

// Files that version 1 wrote: sample_begin() and grow(), and two whose split was text after the kernel variants.
TEST_F(SessionFileTest, VersionOneIsGoneOnWith) {
    const fs::path golden = fs::path(SLIPSTREAM_GOLDEN_DIR) / "sessions";
    SessionBegin expected = sample_begin();
    expected.version = 1;
    fs::copy_file(golden / "session_v1", path_);
    for (int round = 0; round < 2; ++round) {
        auto session = SessionFile::open(path_);
        ASSERT_TRUE(session.has_value());
        EXPECT_EQ(session->begin().version, 1U);
        EXPECT_EQ(encode_session_begin(session->begin()), encode_session_begin(expected));
        EXPECT_EQ(session->begin().kv_bytes, expected.kv_bytes);
        EXPECT_EQ(std::ssize(session->tokens()), 8 + 254 * round);
        EXPECT_EQ(session->max_tokens(), 900);
        EXPECT_EQ(session->n_kv_chunks(), 1 + round);
        std::vector<std::byte> block(kSampleChunkBytes);
        for (int i = 0; i < 2 + 2 * round; ++i) {
            EXPECT_TRUE(session->read_kv(i % 2, i / 2, block.data()));
            EXPECT_EQ(block, sample_block(i + 1));
        }
        if (round > 0) continue;
        session->append_tokens(std::vector<TokenId>(254, 9));
        session->append_kv(0, 1, sample_block(3));
        session->append_kv(1, 1, sample_block(4));
    }
    // A damaged one is replaced by one of the same version.
    std::vector<std::byte> bytes = file_bytes(path_);
    bytes[9] = std::byte{1};
    write_bytes(path_, bytes);
    SessionFile::open(path_)->append_tokens(std::vector<TokenId>{10});
    const std::vector<std::byte> replaced = file_bytes(path_);
    const SessionContents contents = read_session(replaced, "s");
    EXPECT_TRUE(contents.is_intact);
    EXPECT_EQ(contents.begin.version, 1U);
    EXPECT_EQ(contents.tokens.size(), 263U);
    EXPECT_EQ(contents.kv_chunks.size(), 4U);

    const SessionBegin tensor = SessionFile::open(golden / "session_v1_tensor", SessionUse::Read)->begin();
    EXPECT_EQ(tensor.instruction_form, "avx2");
    EXPECT_EQ(tensor.split, (SessionSplit{SplitKind::Tensor, {2, 1}}));
    const SessionBegin layers = SessionFile::open(golden / "session_v1_layers", SessionUse::Read)->begin();
    EXPECT_EQ(layers.instruction_form, "sm_89,avx512");
    EXPECT_EQ(layers.split, (SessionSplit{SplitKind::Layers, {1, 1}}));
}

// Recurrent layers have no KV; a model has some layer that has.
TEST_F(SessionFileTest, LayersMayHaveNoKv) {
    SessionBegin begin = sample_begin();
    begin.kv_bytes = {0, 40};
    begin.split.reset();
    SessionFile::create(path_, begin).append_tokens(std::vector<TokenId>(30, 5));
    EXPECT_EQ(SessionFile::open(path_)->begin().kv_bytes, begin.kv_bytes);
    std::filesystem::remove(path_);
    begin.kv_bytes = {0, 0};
    static_cast<void>(SessionFile::create(path_, begin));
    EXPECT_THAT(error_text([&] { static_cast<void>(SessionFile::open(path_)); }),
                testing::HasSubstr("a number that no model has"));
}

// Blocks come in any order, each of its layer's size, and once.
TEST_F(SessionFileTest, KvBlocksComeInAnyOrder) {
    SessionBegin begin = sample_begin();
    begin.kv_bytes = {96, 40};
    begin.split = SessionSplit{SplitKind::Tensor, {2, 1}};
    const std::vector<std::byte> small(40, std::byte{3});
    {
        SessionFile session = SessionFile::create(path_, begin);
        session.append_tokens(std::vector<TokenId>(600, 5));
        session.append_kv(0, 2, sample_block(1));
        session.append_kv(0, 0, sample_block(2));
        session.append_kv(1, 2, small);
        session.append_kv(1, 1, small);
        EXPECT_EQ(session.n_kv_chunks(), 0);
        session.append_kv(1, 0, small);
        EXPECT_EQ(session.n_kv_chunks(), 1);
    }
    auto session = SessionFile::open(path_);
    EXPECT_EQ(session->begin().split, begin.split);
    EXPECT_EQ(session->begin().kv_bytes, begin.kv_bytes);
    EXPECT_EQ(session->n_kv_blocks(), 5);
    EXPECT_FALSE(session->has_kv(0, 1));
    std::vector<std::byte> block(kSampleChunkBytes);
    EXPECT_TRUE(session->read_kv(0, 2, block.data()));
    EXPECT_EQ(block, sample_block(1));
    session->drop_damaged_kv(0, 0);
    EXPECT_EQ(session->n_kv_blocks(), 4);
    session->append_kv(0, 1, sample_block(6));
    session.reset();
    EXPECT_EQ(SessionFile::open(path_)->n_kv_blocks(), 5);
    const auto refusal = [&](std::uint64_t index, std::size_t n_bytes) {
        std::vector<std::byte> bytes = file_bytes(path_);
        std::uint64_t chain = read_session(bytes, "s").chain;
        const std::vector<std::byte> payload(n_bytes);
        const auto head = record_head(RecordKind::KvChunk, index, payload, chain);
        bytes.insert(bytes.end(), head.begin(), head.end());
        bytes.insert(bytes.end(), payload.begin(), payload.end());
        return error_text<FormatError>([&] { static_cast<void>(read_session(bytes, "s")); });
    };
    EXPECT_THAT(refusal(kv_record_index(0, 2), 96), HasSubstr("there twice"));
    EXPECT_THAT(refusal(kv_record_index(1, 0), 96), HasSubstr("another size"));
    EXPECT_THAT(refusal(kv_record_index(2, 0), 96), HasSubstr("out of order"));
    EXPECT_THAT(refusal(kv_record_index(0, 3), 96), HasSubstr("out of order"));
    EXPECT_THAT(refusal(kv_record_index(0, 0xFFFFFFFF), 96), HasSubstr("out of order"));
}

}  // namespace
}  // namespace slipstream
