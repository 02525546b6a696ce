// Records of a session file. They are appended while a text grows, each with its checksum. So a file that ends
// anywhere, as a killed program leaves it, can be read up to its last whole record, and a damaged file as far as it is
// intact.
//
// Layout, little-endian: magic "SLPSESSN", u32 version, u32 zero; then the records, each u32 kind, u32 check, u64
// index, u64 payload bytes, u64 XXH3-64 of the payload, payload. `check` is the lower half of a hash chain: XXH3-64 of
// kind, index, payload bytes and payload checksum, seeded with the previous value of the chain. So a record confirms
// all records before it, and none can be left out or repeated.
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

inline constexpr std::size_t kSessionHeadBytes = 16;
inline constexpr std::size_t kRecordHeadBytes = 32;

enum class RecordKind : std::uint32_t {
    Begin = 1,      // what the text depends on (session_begin.h); the first record and no other
    MaxTokens = 2,  // index: most tokens to generate, from here on; no payload
    Tokens = 3,     // committed token ids, i32 each
    // Index: layer + KV chunk << 32. Payload: what KvCache::read_chunk() gives, in version 1 padded with zeros.
    KvChunk = 4,
};

/// Returns the first bytes of each session file of that version.
[[nodiscard]] std::array<std::byte, kSessionHeadBytes> session_head(std::uint32_t version);
/// Returns the value of the chain before the first record.
[[nodiscard]] std::uint64_t first_chain(std::uint32_t version);
/// Returns the index of the record of a KV chunk of a layer. Indices ascend by KV chunk, and for one KV chunk by layer.
[[nodiscard]] inline std::uint64_t kv_record_index(std::int64_t layer, std::int64_t chunk) {
    return static_cast<std::uint64_t>(chunk) << 32 | static_cast<std::uint64_t>(layer);
}
/// Returns the head of a record that follows `chain`, and advances `chain`.
[[nodiscard]] std::array<std::byte, kRecordHeadBytes> record_head(RecordKind kind, std::uint64_t index,
                                                                  std::span<const std::byte> payload,
                                                                  std::uint64_t& chain);

/// A record in the bytes of a file. The payload of a KvChunk is not checked yet and may be damaged, see is_whole(): it
/// may be gigabytes, and is read only once.
struct SessionRecord {
    RecordKind kind = RecordKind::Begin;
    std::uint64_t index = 0;
    std::uint64_t checksum = 0;
    std::span<const std::byte> payload;
};
/// Returns whether `payload`, that of the record or a copy of it, is what was written, by its length and checksum.
[[nodiscard]] bool is_whole(const SessionRecord& record, std::span<const std::byte> payload);

struct SessionRecords {
    std::uint32_t version = 0;
    std::vector<SessionRecord> records;
    std::size_t valid_bytes = kSessionHeadBytes;  // end of the last record; bytes before it may be damaged (is_intact)
    std::uint64_t chain = 0;                      // value of the chain after the last record
    bool is_intact = true;  // whether the file up to valid_bytes is these records and nothing else
    std::deque<std::vector<std::byte>> repaired;  // payloads in which a byte was corrected
};

/// Divides a file into records; their payloads point into `bytes` and into `repaired`. `name` appears in messages.
/// Throws FormatError if the bytes are not a session, or one of an unknown version; returns no records if the first one
/// is lost.
///
/// Damage loses the records that it hits and no others, as far as checksums can prove what follows:
/// - One wrong byte in the head of a record or in a payload of up to 4 KiB is corrected, and one wrong bit in a payload
///   of up to 32 KiB; up to 32 bytes that were inserted into a head are removed.
/// - The head of the file may be damaged: the first record follows the head that each session of this version has. It
///   is searched in the first 64 KiB; if its own head is damaged, too, it is found by the record after it (up to 4
///   MiB).
/// - Bytes that do not belong there (a part of the file that is there twice) are skipped: the chain identifies the next
///   record.
/// - Tokens, a limit or a KV block whose head is damaged are found by the chain of the record that follows them.
/// - The records end where the chain cannot be continued: after other damage, nothing proves that a later record is not
///   the second of two, or that none is missing before it. They also end at a record that the end of the file cuts (a
///   killed program), and at zeros in place of a record (a power failure).
[[nodiscard]] SessionRecords read_session_records(std::span<const std::byte> bytes, std::string_view name);

}  // namespace slipstream
