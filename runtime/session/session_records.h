// Records of a session file: what is appended while a text grows, each with its checksum, so that a file that ends
// anywhere, as a killed program leaves it, is read up to its last whole record, and a damaged one as far as it is
// whole.
//
// Layout, little-endian: magic "SLPSESSN", u32 version, u32 zero; then records one behind another: u32 kind, u32 check,
// u64 index, u64 payload bytes, u64 XXH3-64 of the payload, and the payload. `check` is the lower half of a chain:
// XXH3-64 of kind, index, payload bytes and payload checksum, seeded with the chain's value before, so that a record
// stands for all in front of it, and none can be left out or come twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

inline constexpr std::uint32_t kSessionVersion = 1;
inline constexpr std::size_t kSessionHeadBytes = 16;
inline constexpr std::size_t kRecordHeadBytes = 32;

enum class RecordKind : std::uint32_t {
    Begin = 1,      // what the text is made of (session_begin.h); the first record, and only that
    MaxTokens = 2,  // index: most tokens to generate, from here on; no payload
    Tokens = 3,     // ids as they were committed, i32 each
    KvChunk = 4,    // index: layer + chunk << 32; what KvCache::read_chunk() gave
};

/// What a session file begins with.
[[nodiscard]] std::array<std::byte, kSessionHeadBytes> session_head();
/// The chain before the first record.
[[nodiscard]] std::uint64_t first_chain();
/// The head of a record that follows `chain`, which it advances.
[[nodiscard]] std::array<std::byte, kRecordHeadBytes> record_head(RecordKind kind, std::uint64_t index,
                                                                  std::span<const std::byte> payload,
                                                                  std::uint64_t& chain);

/// A record in a file's bytes. The payload of a KvChunk may be damaged until is_whole() says otherwise: it may be
/// gigabytes, and is read once.
struct SessionRecord {
    RecordKind kind = RecordKind::Begin;
    std::uint64_t index = 0;
    std::uint64_t checksum = 0;
    std::span<const std::byte> payload;
};
/// Whether `payload`, the record's or a copy of it, is what was written.
[[nodiscard]] bool is_whole(const SessionRecord& record, std::span<const std::byte> payload);

struct SessionRecords {
    std::vector<SessionRecord> records;
    std::size_t valid_bytes = kSessionHeadBytes;  // of the file, up to the end of the last record
    std::uint64_t chain = 0;                      // after the last record
    bool is_intact = true;                        // up to valid_bytes the file is these records and nothing else
    std::deque<std::vector<std::byte>> repaired;  // payloads in which a byte was put right
};

/// Takes a file apart; views point into `bytes` and `repaired`. `name` stands in messages. Throws FormatError if the
/// bytes are no session, or one of a newer version; returns no records if the first one is lost.
///
/// Damage loses the records that it hits and no others, as far as checksums can prove what follows:
/// - One wrong byte in a record's head, or in a payload of up to 4 KiB, is put right, one wrong bit in a payload of up
///   to 32 KiB, and up to 32 bytes that were put into a head.
/// - The file's head may be damaged: the first record follows the head that each session of this version has. It is
///   found within the first 64 KiB, and by the record after it where its own head is damaged (up to 4 MiB of it).
/// - Bytes that do not belong there (a part of the file that came twice) are passed over: the chain tells the record
///   that follows.
/// - Tokens, a limit or a KV block whose head is damaged are found by the chain of the record that follows them.
/// - The records end where the chain cannot be continued: after other damage nothing proves that a later record is not
///   the second of two, or that none is missing before it. So does a record that the end of the file cuts (a killed
///   program), and so do zeros in the place of a record (a power failure).
[[nodiscard]] SessionRecords read_session_records(std::span<const std::byte> bytes, std::string_view name);

}  // namespace slipstream
