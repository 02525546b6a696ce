#include "runtime/session/session_records.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::string_view kMagic = "SLPSESSN";

struct RecordHead {
    std::uint32_t kind;
    std::uint32_t check;
    std::uint64_t index;
    std::uint64_t n_bytes;
    std::uint64_t checksum;
};
static_assert(sizeof(RecordHead) == kRecordHeadBytes);

std::uint64_t next_chain(const RecordHead& head, std::uint64_t chain) {
    const std::array<std::uint64_t, 4> fields{head.kind, head.index, head.n_bytes, head.checksum};
    return XXH3_64bits_withSeed(fields.data(), sizeof(fields), chain);
}

bool all_zero(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
}

void check_head(std::span<const std::byte> bytes, std::string_view name) {
    if (bytes.size() < kSessionHeadBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
        throw FormatError(fmt::format("{}: there is a file of this name that is no session; name another", name));
    std::uint32_t version = 0;
    std::memcpy(&version, bytes.data() + kMagic.size(), sizeof(version));
    if (version != kSessionVersion)
        throw FormatError(
            fmt::format("{}: a session of version {}, this program reads {}; take the program that began it", name,
                        version, kSessionVersion));
    if (!all_zero(bytes.subspan(kMagic.size() + sizeof(version), sizeof(std::uint32_t))))
        throw FormatError(fmt::format("{}: a damaged session (its first bytes); begin another", name));
}

}  // namespace

std::array<std::byte, kSessionHeadBytes> session_head() {
    std::array<std::byte, kSessionHeadBytes> head{};
    std::memcpy(head.data(), kMagic.data(), kMagic.size());
    std::memcpy(head.data() + kMagic.size(), &kSessionVersion, sizeof(kSessionVersion));
    return head;
}

std::uint64_t first_chain() {
    const auto head = session_head();
    return XXH3_64bits(head.data(), head.size());
}

std::array<std::byte, kRecordHeadBytes> record_head(RecordKind kind, std::uint64_t index,
                                                    std::span<const std::byte> payload, std::uint64_t& chain) {
    RecordHead head{.kind = static_cast<std::uint32_t>(kind),
                    .check = 0,
                    .index = index,
                    .n_bytes = payload.size(),
                    .checksum = XXH3_64bits(payload.data(), payload.size())};
    chain = next_chain(head, chain);
    head.check = static_cast<std::uint32_t>(chain);
    return std::bit_cast<std::array<std::byte, kRecordHeadBytes>>(head);
}

bool is_whole(const SessionRecord& record, std::span<const std::byte> payload) {
    return payload.size() == record.payload.size() && XXH3_64bits(payload.data(), payload.size()) == record.checksum;
}

SessionRecords read_session_records(std::span<const std::byte> bytes, std::string_view name) {
    check_head(bytes, name);
    SessionRecords found{.records = {}, .valid_bytes = kSessionHeadBytes, .chain = first_chain()};
    while (bytes.size() - found.valid_bytes >= kRecordHeadBytes) {
        const std::span<const std::byte> rest = bytes.subspan(found.valid_bytes);
        RecordHead head{};
        std::memcpy(&head, rest.data(), sizeof(head));
        const std::uint64_t chain = next_chain(head, found.chain);
        const bool is_head = head.check == static_cast<std::uint32_t>(chain);
        if (is_head && head.n_bytes > rest.size() - kRecordHeadBytes) break;
        SessionRecord record;
        if (is_head)
            record = {static_cast<RecordKind>(head.kind), head.index, head.checksum,
                      rest.subspan(kRecordHeadBytes, head.n_bytes)};
        const bool is_last = is_head && record.payload.size() == rest.size() - kRecordHeadBytes;
        const bool is_read_later = record.kind == RecordKind::KvChunk && !is_last;
        if (!is_head || !(is_read_later || is_whole(record, record.payload))) {
            if (is_last || all_zero(rest)) break;
            throw FormatError(fmt::format("{}: a damaged session (byte {} of {}); it is left as it is, begin another",
                                          name, found.valid_bytes, bytes.size()));
        }
        found.records.push_back(record);
        found.chain = chain;
        found.valid_bytes += kRecordHeadBytes + record.payload.size();
    }
    return found;
}

}  // namespace slipstream
