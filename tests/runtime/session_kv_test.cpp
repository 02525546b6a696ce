// Which chunks of a target go into a session, and which come back.
#include "runtime/session/session_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/session_samples.h"
#include "tests/support/error_text.h"
#include "tests/support/fake_target.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

const std::size_t kChunkBytes = [] {
    FakeKv kv;
    return FakeTarget(kv).shape().kv.front().chunk_bytes();
}();
constexpr std::size_t kNoLimit = std::size_t{1} << 40;

class SessionKvTest : public testing::Test {
protected:
    SessionKvTest() {
        full_kv_.committed = full_kv_.reference(std::vector<TokenId>(700, 3), 700);
        EXPECT_EQ(full_.shape().n_layers, kSampleLayers);
    }
    SessionFile make(std::int64_t n_text) {
        SessionBegin begin = sample_begin();
        begin.kv_bytes.assign(kSampleLayers, kChunkBytes);
        SessionFile session = SessionFile::create(path_, begin);
        session.append_tokens(std::vector<TokenId>(static_cast<std::size_t>(n_text) - begin.prompt.size(), 3));
        return session;
    }
    std::int64_t restored(Target& target) {
        auto session = SessionFile::open(path_);
        const std::int64_t n = SessionKv(*session, target, kNoLimit).restore();
        EXPECT_EQ(target.n_committed(), n);
        return n;
    }

    TempFolder folder_;
    const std::filesystem::path path_ = folder_.path() / "s";
    FakeKv full_kv_;
    FakeTarget full_{full_kv_};
    FakeKv empty_kv_;
    FakeTarget empty_{empty_kv_};
};

TEST_F(SessionKvTest, FullChunksComeBackAsTheyWere) {
    {
        SessionFile session = make(701);
        SessionKv kv(session, full_, kNoLimit);
        EXPECT_EQ(kv.save(), std::nullopt);
        EXPECT_EQ(kv.save(), std::nullopt);  // nothing is saved twice
        EXPECT_EQ(session.n_kv_blocks(), 2 * kSampleLayers);
    }
    EXPECT_EQ(restored(empty_), 512);
    std::vector<std::byte> one(kChunkBytes);
    std::vector<std::byte> other(kChunkBytes);
    for (std::int64_t layer = 0; layer < kSampleLayers; ++layer) {
        for (std::int64_t chunk = 0; chunk < 2; ++chunk) {
            full_.read_chunk(layer, chunk, one.data());
            empty_.read_chunk(layer, chunk, other.data());
            EXPECT_EQ(one, other) << layer << " " << chunk;
        }
    }
}

// A pass may have committed more than the text kept of it: rows behind its end are not the text's.
TEST_F(SessionKvTest, NothingBehindTheTextIsSaved) {
    SessionFile session = make(511);
    EXPECT_EQ(SessionKv(session, full_, kNoLimit).save(), std::nullopt);
    EXPECT_EQ(session.n_kv_blocks(), kSampleLayers);
}

// The last token is for the next pass to feed.
TEST_F(SessionKvTest, TheLastTokenIsNotRestored) {
    {
        SessionFile session = make(512);
        EXPECT_EQ(SessionKv(session, full_, kNoLimit).save(), std::nullopt);
        EXPECT_EQ(session.n_kv_blocks(), 2 * kSampleLayers);
    }
    EXPECT_EQ(restored(empty_), 256);
}

TEST_F(SessionKvTest, NothingIsSavedDuringAPass) {
    SessionFile session = make(701);
    SessionKv kv(session, full_, kNoLimit);
    static_cast<void>(full_.add_node(kCommittedTip));
    EXPECT_EQ(kv.save(), std::nullopt);
    EXPECT_EQ(session.n_kv_blocks(), 0);
}

TEST_F(SessionKvTest, ALimitHoldsToTheChunk) {
    const std::size_t chunk = kSampleLayers * kChunkBytes;
    for (const auto& [limit, n_chunks] : {std::pair(chunk - 1, 0), std::pair(chunk, 1), std::pair(2 * chunk - 1, 1)}) {
        std::filesystem::remove(path_);
        SessionFile session = make(701);
        SessionKv kv(session, full_, limit);
        EXPECT_EQ(kv.max_tokens(), 256 * n_chunks);
        EXPECT_EQ(kv.save(), std::nullopt);
        EXPECT_EQ(session.n_kv_blocks(), n_chunks * kSampleLayers);
    }
}

// A chunk that the device does not give is the device's failure: it is thrown, and saving goes on with the next call.
TEST_F(SessionKvTest, AChunkThatCannotBeReadIsThrownAndSavedLater) {
    for (std::int64_t nth = 1; nth <= 2 * kSampleLayers; ++nth) {
        std::filesystem::remove(path_);
        SessionFile session = make(701);
        SessionKv kv(session, full_, kNoLimit);
        full_kv_.chunks_until_failure = nth;
        EXPECT_EQ(error_text<IoError>([&] { static_cast<void>(kv.save()); }), "KV: a failed copy");
        EXPECT_EQ(session.n_kv_blocks(), nth - 1);
        EXPECT_EQ(kv.save(), std::nullopt);
        EXPECT_EQ(session.n_kv_blocks(), 2 * kSampleLayers);
    }
}

// A file that cannot grow is told once, with the system's reason; what the file holds stays.
TEST_F(SessionKvTest, AFullDiskIsToldOnceAndEndsTheSaving) {
    SessionFile session = make(701);
    SessionKv kv(session, full_, kNoLimit);
    {
        const FileLimit limit(std::filesystem::file_size(path_) + kSampleLayers * kChunkBytes + kChunkBytes);
        EXPECT_THAT(kv.save().value_or("nothing"), testing::HasSubstr("the session cannot be written: File too large"));
    }
    const std::int64_t n_saved = session.n_kv_blocks();
    EXPECT_GE(n_saved, kSampleLayers);
    EXPECT_LT(n_saved, 2 * kSampleLayers);
    EXPECT_EQ(kv.save(), std::nullopt);  // there is room again, and nothing is tried
    EXPECT_EQ(session.n_kv_blocks(), n_saved);
}

// A program that was killed between two layers of a chunk: the chunk is not restored, and saved to its end later.
TEST_F(SessionKvTest, AChunkThatLacksALayerIsCompletedLater) {
    {
        SessionFile session = make(701);
        std::vector<std::byte> block(kChunkBytes);
        full_.read_chunk(0, 0, block.data());
        session.append_kv(0, 0, block);
    }
    EXPECT_EQ(restored(empty_), 0);
    {
        auto session = SessionFile::open(path_);
        EXPECT_EQ(SessionKv(*session, full_, kNoLimit).save(), std::nullopt);
        EXPECT_EQ(session->n_kv_blocks(), 2 * kSampleLayers);
    }
    EXPECT_EQ(restored(empty_), 512);
}

}  // namespace
}  // namespace slipstream
