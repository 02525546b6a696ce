// Records of a session file: what is appended while a text grows, each with its checksum, so that a file that ends
// anywhere, as a killed program leaves it, is read up to its last whole record.
//
// Layout, little-endian: magic "SLPSESSN", u32 version, u32 zero; then records one behind another: u32 kind, u32 check,
// u64 index, u64 payload bytes, u64 XXH3-64 of the payload, and the payload. `check` is the lower half of a chain:
// XXH3-64 of kind, index, payload bytes and payload checksum, seeded with the chain's value before, so that a record
// stands for all in front of it, and none can be left out or come twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// A record in a file's bytes. The payload of a KvChunk is unchecked until is_whole(), unless it is the last record:
/// it may be gigabytes, and is read once.
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
    std::size_t valid_bytes = 0;  // of the file; behind them stands what was cut off, if anything
    std::uint64_t chain = 0;      // behind the last record
};

/// Takes a file apart; views point into `bytes`. A record that the end of the file cuts, or a last one whose payload is
/// not what was written (after a power failure), is left out, as are zeros in the place of a record. `name` stands in
/// messages. Throws FormatError where the bytes are no session, of a newer version, or damaged before their end.
[[nodiscard]] SessionRecords read_session_records(std::span<const std::byte> bytes, std::string_view name);

}  // namespace slipstream
