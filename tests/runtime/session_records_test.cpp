// Session files as bytes: what is read of a file that ends anywhere, and what is refused.
#include "runtime/session/session_records.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using testing::HasSubstr;

class SessionRecordsTest : public testing::Test {
protected:
    SessionRecordsTest() {
        {
            SessionFile session = SessionFile::create(folder_.path() / "s", sample_begin());
            grow(session);
        }
        bytes_ = file_bytes(folder_.path() / "s");
        for (const SessionRecord& record : read_session_records(bytes_, "s").records)
            ends_.push_back(static_cast<std::size_t>(record.payload.data() + record.payload.size() - bytes_.data()));
    }

    void expect_all_tokens(const std::vector<std::byte>& changed, std::size_t at) const {
        const SessionContents whole = read_session(bytes_, "s");
        const SessionContents contents = read_session(changed, "s");
        ASSERT_EQ(contents.tokens, whole.tokens) << at;
        ASSERT_EQ(encode_session_begin(contents.begin), encode_session_begin(whole.begin)) << at;
        ASSERT_EQ(contents.max_tokens, 900) << at;
        if (changed != bytes_ && at < ends_.front()) {
            EXPECT_FALSE(contents.is_intact) << at;
            EXPECT_NE(contents.damage, "") << at;
        }
    }

    TempFolder folder_;
    std::vector<std::byte> bytes_;
    std::vector<std::size_t> ends_;  // of the records
};

TEST_F(SessionRecordsTest, ReadsWhatWasWritten) {
    const SessionContents contents = read_session(bytes_, "s");
    const SessionBegin expected = sample_begin();
    EXPECT_EQ(encode_session_begin(contents.begin), encode_session_begin(expected));
    EXPECT_EQ(contents.begin.prompt_text, expected.prompt_text);
    EXPECT_EQ(contents.begin.stops, expected.stops);
    EXPECT_EQ(contents.begin.sampling.seed, 42U);
    EXPECT_EQ(contents.begin.kv_dtype, DType::BF16);
    EXPECT_EQ(contents.tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(contents.max_tokens, 900);
    ASSERT_EQ(contents.kv_chunks.size(), 2U);
    EXPECT_TRUE(std::ranges::equal(contents.kv_chunks[1].payload, sample_block(2)));
    EXPECT_EQ(contents.valid_bytes, bytes_.size());
}

// The whole property: cut anywhere, a file gives the records that lie wholly in front of the cut.
TEST_F(SessionRecordsTest, CutAtAnyByteGivesTheLongestWholePart) {
    for (std::size_t n = kSessionHeadBytes; n < bytes_.size(); ++n) {
        const std::vector<std::byte> cut(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(n));
        const SessionRecords records = read_session_records(cut, "s");
        const auto n_whole =
            static_cast<std::size_t>(std::ranges::count_if(ends_, [&](std::size_t end) { return end <= n; }));
        ASSERT_EQ(records.records.size(), n_whole) << n;
        ASSERT_EQ(records.valid_bytes, n_whole == 0 ? kSessionHeadBytes : ends_[n_whole - 1]) << n;
        if (n_whole == 0) {
            EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(read_session(cut, "s")); }),
                        HasSubstr("its first record, from which its text is computed, is lost"));
        } else {
            EXPECT_NO_THROW(static_cast<void>(read_session(cut, "s"))) << n;
        }
    }
}

// What a power failure leaves: the file has its length, its end was not written.
TEST_F(SessionRecordsTest, ZerosInThePlaceOfTheEndAreCutOff) {
    for (std::size_t n = ends_[0]; n < bytes_.size(); ++n) {
        std::vector<std::byte> holed = bytes_;
        std::fill(holed.begin() + static_cast<std::ptrdiff_t>(n), holed.end(), std::byte{});
        const auto n_whole =
            static_cast<std::size_t>(std::ranges::count_if(ends_, [&](std::size_t end) { return end <= n; }));
        EXPECT_GE(read_session_records(holed, "s").records.size(), n_whole) << n;
        EXPECT_NO_THROW(static_cast<void>(read_session(holed, "s"))) << n;
    }
}

// Tokens that are read are always the first ones that were written, whatever byte is wrong.
TEST_F(SessionRecordsTest, AChangedByteNeverPassesForWhatWasWritten) {
    std::mt19937 random(5);
    const SessionContents whole = read_session(bytes_, "s");
    // The long first record, whose repair takes longest, at some of its bytes.
    for (std::size_t at = 0; at < bytes_.size(); at += at < ends_[0] ? 1 + random() % 32 : 1) {
        std::vector<std::byte> changed = bytes_;
        changed[at] ^= static_cast<std::byte>(1 + random() % 255);
        try {
            const SessionContents contents = read_session(changed, "s");
            ASSERT_LE(contents.tokens.size(), whole.tokens.size()) << at;
            EXPECT_TRUE(std::equal(contents.tokens.begin(), contents.tokens.end(), whole.tokens.begin())) << at;
            if (contents.tokens != whole.tokens) {
                EXPECT_NE(contents.damage, "") << at;
            }
        } catch (const FormatError&) {
            EXPECT_LT(at, ends_[0]) << at;  // what the text is made of
        }
    }
}

// One wrong byte loses no token and refuses no session, wherever it is.
TEST_F(SessionRecordsTest, AWrongByteLosesNoToken) {
    for (std::size_t at = 0; at < bytes_.size(); ++at) {
        for (const std::byte change : {std::byte{1} << at % 8, std::byte{0xFF}}) {
            if (change == std::byte{0xFF} && at > 64 && at < ends_[0] && at % 32 != 0) continue;  // milliseconds each
            std::vector<std::byte> changed = bytes_;
            changed[at] ^= change;
            ASSERT_NO_FATAL_FAILURE(expect_all_tokens(changed, at));
        }
    }
}

// The first record follows the head that every session of this version has, and so does a file without that head.
TEST_F(SessionRecordsTest, ADamagedHeadLosesNothing) {
    for (std::size_t at = 0; at < kSessionHeadBytes; ++at) {
        for (std::size_t n = 1; n <= kSessionHeadBytes - at; ++n) {
            const auto begin = static_cast<std::ptrdiff_t>(at);
            const auto end = static_cast<std::ptrdiff_t>(at + n);
            std::vector<std::byte> changed = bytes_;
            std::fill(changed.begin() + begin, changed.begin() + end, std::byte{0x5A});
            ASSERT_NO_FATAL_FAILURE(expect_all_tokens(changed, at));
            changed = bytes_;
            changed.erase(changed.begin() + begin, changed.begin() + end);
            ASSERT_NO_FATAL_FAILURE(expect_all_tokens(changed, at));
            changed = bytes_;
            changed.insert(changed.begin() + begin, bytes_.begin() + begin, bytes_.begin() + end);
            ASSERT_NO_FATAL_FAILURE(expect_all_tokens(changed, at));
        }
    }
    std::vector<std::byte> late(4096 + bytes_.size());
    std::ranges::copy(bytes_, late.begin() + 4096);
    expect_all_tokens(late, 0);
    // The head of the file and that of the first record, but for what the next record says of it.
    std::vector<std::byte> headless = bytes_;
    std::fill_n(headless.begin(), kSessionHeadBytes + kRecordHeadBytes, std::byte{});
    expect_all_tokens(headless, 0);
}

// As a long prompt makes it.
TEST_F(SessionRecordsTest, ALongFirstRecordIsFoundWithoutItsHead) {
    SessionBegin begin = sample_begin();
    begin.prompt_text.assign(std::size_t{1} << 20, 'a');
    {
        SessionFile session = SessionFile::create(folder_.path() / "long", begin);
        grow(session);
    }
    std::vector<std::byte> headless = file_bytes(folder_.path() / "long");
    std::fill_n(headless.begin(), kSessionHeadBytes + kRecordHeadBytes, std::byte{});
    const SessionContents contents = read_session(headless, "long");
    EXPECT_EQ(encode_session_begin(contents.begin), encode_session_begin(begin));
    EXPECT_EQ(contents.tokens, read_session(bytes_, "s").tokens);
    EXPECT_FALSE(contents.is_intact);
}

// The chain proves that no token is missing where a part of the file came twice, and that some are where it is gone.
TEST_F(SessionRecordsTest, PartsThatComeTwiceArePassedOverAndMissingOnesEndTheTokens) {
    const SessionContents whole = read_session(bytes_, "s");
    for (std::size_t i = 0; i + 1 < ends_.size(); ++i) {
        for (std::size_t j = i + 1; j < ends_.size(); ++j) {
            const std::vector<std::byte> part(bytes_.begin() + static_cast<std::ptrdiff_t>(ends_[i]),
                                              bytes_.begin() + static_cast<std::ptrdiff_t>(ends_[j]));
            std::vector<std::byte> twice = bytes_;
            twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(ends_[j]), part.begin(), part.end());
            const SessionContents contents = read_session(twice, "s");
            EXPECT_EQ(contents.tokens, whole.tokens) << i << " " << j;
            EXPECT_EQ(contents.kv_chunks.size(), 2U);
            if (j + 1 < ends_.size()) {
                EXPECT_FALSE(contents.is_intact);
            }
            std::vector<std::byte> without = bytes_;
            without.erase(without.begin() + static_cast<std::ptrdiff_t>(ends_[i]),
                          without.begin() + static_cast<std::ptrdiff_t>(ends_[j]));
            EXPECT_EQ(read_session_records(without, "s").valid_bytes, ends_[i]) << i << " " << j;
        }
    }
}

// Heads that are zero: the record is found by the chain of the next one, whatever its kind.
TEST_F(SessionRecordsTest, AHeadThatIsZeroLosesNothing) {
    const SessionContents whole = read_session(bytes_, "s");
    for (std::size_t i = 0; i + 2 < ends_.size(); ++i) {
        std::vector<std::byte> holed = bytes_;
        std::fill_n(holed.begin() + static_cast<std::ptrdiff_t>(ends_[i]), kRecordHeadBytes, std::byte{});
        const SessionContents contents = read_session(holed, "s");
        EXPECT_EQ(contents.tokens, whole.tokens) << i;
        EXPECT_EQ(contents.kv_chunks.size(), whole.kv_chunks.size()) << i;
        EXPECT_NE(contents.damage, "") << i;
    }
}

// Bytes are missing from the middle of a record: the records before it count, and no token after it.
TEST_F(SessionRecordsTest, BytesThatAreMissingAddNoToken) {
    const SessionContents whole = read_session(bytes_, "s");
    for (std::size_t at = ends_[0]; at + 1 < bytes_.size(); at += 3) {
        for (const std::size_t n : {1, 4, 20, 36, 64}) {
            std::vector<std::byte> without = bytes_;
            const auto begin = without.begin() + static_cast<std::ptrdiff_t>(at);
            without.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(n, bytes_.size() - at)));
            const SessionContents contents = read_session(without, "s");
            ASSERT_LE(contents.tokens.size(), whole.tokens.size()) << at << " " << n;
            EXPECT_TRUE(std::equal(contents.tokens.begin(), contents.tokens.end(), whole.tokens.begin())) << at;
        }
    }
}

TEST_F(SessionRecordsTest, OtherFilesAndNewerVersionsAreRefusedByName) {
    const auto refusal = [](std::vector<std::byte> bytes) {
        return error_text<FormatError>([&] { static_cast<void>(read_session_records(bytes, "my.session")); });
    };
    EXPECT_THAT(refusal({}), HasSubstr("my.session: there is a file of this name that is not a session"));
    EXPECT_THAT(refusal(std::vector<std::byte>(500, std::byte{'x'})), HasSubstr("is not a session"));
    // A newer version's records follow its own head.
    std::vector<std::byte> newer = bytes_;
    newer[8] = std::byte{3};
    newer.resize(500);
    newer[kSessionHeadBytes + 4] ^= std::byte{0xFF};
    newer[kSessionHeadBytes + 6] ^= std::byte{0xFF};
    EXPECT_THAT(refusal(newer), HasSubstr("a session of version 3, this program reads 1 to 2"));
}

// Checksums are right, contents are not: every field is looked at.
TEST(SessionContents, WhatNoSessionHoldsIsRefused) {
    const auto bytes_with = [](const SessionBegin& begin, RecordKind kind, std::uint64_t index,
                               std::span<const std::byte> payload) {
        std::vector<std::byte> bytes;
        const auto put = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
        put(session_head(begin.version));
        std::uint64_t chain = first_chain(begin.version);
        const std::vector<std::byte> first = encode_session_begin(begin);
        put(record_head(RecordKind::Begin, 0, first, chain));
        put(first);
        put(record_head(kind, index, payload, chain));
        put(payload);
        return bytes;
    };
    const auto refusal = [](const std::vector<std::byte>& bytes) {
        return error_text<FormatError>([&] { static_cast<void>(read_session(bytes, "s")); });
    };
    const SessionBegin good = sample_begin();
    const std::vector<TokenId> strange{5, 97};
    EXPECT_THAT(refusal(bytes_with(good, RecordKind::Tokens, 0, std::as_bytes(std::span(strange)))),
                HasSubstr("outside of the vocabulary"));
    const std::vector<TokenId> many(1800, 1);
    EXPECT_THAT(refusal(bytes_with(good, RecordKind::Tokens, 0, std::as_bytes(std::span(many)))),
                HasSubstr("more tokens than its context holds"));
    EXPECT_THAT(refusal(bytes_with(good, RecordKind::Tokens, 0, std::vector<std::byte>(7))), HasSubstr("damaged"));
    EXPECT_THAT(refusal(bytes_with(good, RecordKind::KvChunk, 0, sample_block(1))), HasSubstr("out of order"));
    EXPECT_THAT(refusal(bytes_with(good, RecordKind::MaxTokens, static_cast<std::uint64_t>(-2), {})),
                HasSubstr("a length that cannot be"));
    EXPECT_THAT(refusal(bytes_with(good, static_cast<RecordKind>(9), 0, {})), HasSubstr("a record of an unknown kind"));
    EXPECT_THAT(refusal(bytes_with(good, RecordKind::Begin, 0, encode_session_begin(good))), HasSubstr("damaged"));
    const auto wrong = [&](const std::function<void(SessionBegin&)>& change) {
        SessionBegin begin = good;
        change(begin);
        return refusal(bytes_with(begin, RecordKind::MaxTokens, 5, {}));
    };
    EXPECT_THAT(wrong([](SessionBegin& begin) { begin.prompt.clear(); }), HasSubstr("does not fit its context"));
    EXPECT_THAT(wrong([](SessionBegin& begin) { begin.prompt.back() = -1; }), HasSubstr("outside of the vocabulary"));
    EXPECT_THAT(wrong([](SessionBegin& begin) { begin.context_tokens = 250; }), HasSubstr("does not fit its context"));
    EXPECT_THAT(wrong([](SessionBegin& begin) { begin.kv_bytes.clear(); }), HasSubstr("a number that no model has"));
    EXPECT_THAT(wrong([](SessionBegin& begin) { begin.kv_dtype = DType::Q4_0; }), HasSubstr("no option has"));
    std::vector<std::byte> fields = encode_session_begin(good);
    for (std::size_t n = 0; n < fields.size(); ++n)
        EXPECT_THROW(static_cast<void>(decode_session_begin(std::span(fields).first(n), good.version, "s")),
                     FormatError)
            << n;
    fields.push_back({});
    EXPECT_THROW(static_cast<void>(decode_session_begin(fields, good.version, "s")), FormatError);
}

}  // namespace
}  // namespace slipstream
