// A text that is gone on with from a session is the text of a run without end: stopped behind any number of tokens,
// with KV saved or computed again, guesses or none, everything resident or streamed, stop texts and halves of
// characters across the border.
#include "tests/runtime/session_program.h"

#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using namespace session_program;

// Stops at each of `cuts` in turn, always in a new program, and goes on to the end.
void expect_the_same(const Case& made, const std::vector<std::int64_t>& cuts, const Expected& expected) {
    const TempFolder folder;
    const std::filesystem::path path = folder.path() / "s";
    for (const std::int64_t cut : cuts) {
        try {
            static_cast<void>(Program(made).tell(path, cut, expected.future));
        } catch (const Program::Cut&) {
            continue;
        }
    }
    for (int again = 0; again < 2; ++again) {  // the second time the session has ended
        const Told told = Program(made).tell(path, std::int64_t{1} << 40, expected.future);
        ASSERT_EQ(told.tokens, expected.told.tokens);
        ASSERT_EQ(told.text, expected.told.text);
        ASSERT_EQ(told.reason, expected.told.reason);
    }
}

TEST(SessionResume, BehindEveryToken) {
    for (const std::int64_t budget : {1, 8}) {
        const Case made{.budget = budget};
        const Expected expected = expected_of(made);
        ASSERT_EQ(std::ssize(expected.told.tokens), made.n_tokens);
        for (std::int64_t cut = 1; cut <= made.n_tokens; ++cut) expect_the_same(made, {cut}, expected);
        expect_the_same(made, {1, 2, 9, 10, 33}, expected);
    }
}

TEST(SessionResume, AtStopTextsAndHalfCharacters) {
    const Expected whole = expected_of({});
    // Stops out of the middle of the text, of one byte and more, across tokens.
    for (const std::size_t at : {9U, 31U, 58U}) {
        for (const std::size_t length : {1U, 5U}) {
            for (const std::int64_t budget : {1, 8}) {
                const Case made{.budget = budget, .stops = {whole.told.text.substr(at, length), "never there"}};
                const Expected expected = expected_of(made);
                EXPECT_EQ(expected.told.reason, StopReason::StopString);
                const std::int64_t n = std::ssize(expected.told.tokens);
                for (std::int64_t cut = std::max<std::int64_t>(1, n - 3); cut <= n; ++cut)
                    expect_the_same(made, {cut}, expected);
            }
        }
    }
}

TEST(SessionResume, WithKvReadOrComputedAgain) {
    // Around the borders of chunks and of pieces of prompt.
    for (const std::int64_t n_prompt : {200, 256, 500, 513, 1100}) {
        for (const std::size_t limit : {std::size_t{0}, kNoLimit}) {
            for (const std::int64_t budget : {1, 8}) {
                const Case made{.n_prompt = n_prompt, .n_tokens = 90, .budget = budget, .kv_limit = limit};
                expect_the_same(made, {20, 57, 70}, expected_of(made));
            }
        }
    }
}

TEST(SessionResume, WhereWeightsAndKvStream) {
    for (const std::int64_t n_prompt : {250, 600, 1100}) {
        for (const std::size_t limit : {std::size_t{0}, kNoLimit}) {
            for (const bool weights_stream : {false, true}) {
                const Case made{.n_prompt = n_prompt,
                                .n_tokens = 60,
                                .budget = 8,
                                .kv_limit = limit,
                                .resident_chunks = {0, 1},
                                .weights_stream = weights_stream};
                expect_the_same(made, {10, 31, 45}, expected_of(made));
            }
        }
    }
}

// One run may stream what the other has resident.
TEST(SessionResume, OnAnotherPlacement) {
    const Case resident{.n_prompt = 600, .n_tokens = 60, .budget = 8};
    Case streamed = resident;
    streamed.resident_chunks = {1, 0};
    streamed.weights_stream = true;
    const Expected expected = expected_of(resident);
    for (const auto& [first, second] : {std::pair(resident, streamed), std::pair(streamed, resident)}) {
        const TempFolder folder;
        EXPECT_THROW(static_cast<void>(Program(first).tell(folder.path() / "s", 25, expected.future)), Program::Cut);
        const Told told = Program(second).tell(folder.path() / "s", 1000, expected.future);
        EXPECT_EQ(told.tokens, expected.told.tokens);
        EXPECT_EQ(told.text, expected.told.text);
    }
}

TEST(SessionResume, ALimitKeepsTheFirstChunks) {
    const std::size_t chunk = 2 * KvLayout{2, 16, DType::F16}.chunk_bytes();  // of both layers
    const Case made{.n_prompt = 900, .n_tokens = 40, .kv_limit = 2 * chunk + chunk / 2};
    const Expected expected = expected_of(made);
    const TempFolder folder;
    EXPECT_THROW(static_cast<void>(Program(made).tell(folder.path() / "s", 10, {})), Program::Cut);
    const Told told = Program(made).tell(folder.path() / "s", 1000, {});
    EXPECT_EQ(told.tokens, expected.told.tokens);
    EXPECT_EQ(told.fed_again, 910 - 512);
}

// Sessions of a length that was reached go on where more is asked for, as if it had been asked at once.
TEST(SessionResume, MoreMayBeAskedForLater) {
    Case made{.n_tokens = 30, .budget = 8};
    const Expected longer = expected_of({.n_tokens = 60});
    const TempFolder folder;
    const Told first = Program(made).tell(folder.path() / "s", 1000, longer.future);
    EXPECT_EQ(first.reason, StopReason::Length);
    made.n_tokens = 60;
    const Told second = Program(made).tell(folder.path() / "s", 1000, longer.future);
    EXPECT_EQ(second.tokens, longer.told.tokens);
    EXPECT_EQ(second.text, longer.told.text);
}

// A damaged block of KV is dropped with what follows it, and computed again, wherever KV is.
TEST(SessionResume, DamagedKvIsComputedAgain) {
    Case made{.n_prompt = 600, .n_tokens = 40};
    const Expected expected = expected_of(made);
    for (const bool streams : {false, true}) {
        if (streams) made.resident_chunks = {0, 1};
        for (const std::int64_t block : {0, 1, 2, 3}) {
            const TempFolder folder;
            const std::filesystem::path path = folder.path() / "s";
            EXPECT_THROW(static_cast<void>(Program(made).tell(path, 10, {})), Program::Cut);
            std::vector<std::byte> bytes = file_bytes(path);
            const SessionContents contents = read_session(bytes, "s");
            ASSERT_EQ(contents.kv_chunks.size(), 4U);
            bytes[static_cast<std::size_t>(contents.kv_chunks[block].payload.data() - bytes.data()) + 100] ^=
                std::byte{1};
            write_bytes(path, bytes);
            const Told told = Program(made).tell(path, 1000, {});
            EXPECT_EQ(told.tokens, expected.told.tokens);
            EXPECT_EQ(told.text, expected.told.text);
            EXPECT_EQ(told.fed_again, 610 - block / 2 * 256) << block;
            EXPECT_NE(told.damage.find("KV of chunk " + std::to_string(block / 2) + " is damaged"), std::string::npos);
            // The file is whole again, with all of its KV.
            const std::vector<std::byte> mended = file_bytes(path);
            const SessionContents again = read_session(mended, "s");
            EXPECT_EQ(again.tokens, expected.told.tokens);
            ASSERT_EQ(again.kv_chunks.size(), 4U);
            for (const SessionRecord& record : again.kv_chunks) EXPECT_TRUE(is_whole(record, record.payload));
        }
    }
}

}  // namespace
}  // namespace slipstream
