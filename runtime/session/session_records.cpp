#include "runtime/session/session_records.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "runtime/session/session_begin.h"

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

bool is_head_whole(std::span<const std::byte> bytes, std::uint32_t version) {
    const auto head = session_head(version);
    return bytes.size() >= head.size() && std::ranges::equal(bytes.first(head.size()), head);
}

// Returns the version that the head states; 0 if the file is shorter than a head.
std::uint32_t stated_version(std::span<const std::byte> bytes) {
    std::uint32_t version = 0;
    if (bytes.size() >= kSessionHeadBytes) std::memcpy(&version, bytes.data() + kMagic.size(), sizeof(version));
    return version;
}

// Throws the error of a file that has no intact head and no first record.
[[noreturn]] void refuse_head(std::span<const std::byte> bytes, std::string_view name) {
    if (bytes.size() < kSessionHeadBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
        throw FormatError(fmt::format("{}: there is a file of this name that is not a session; name another", name));
    const std::uint32_t version = stated_version(bytes);
    if (version < kOldestSessionVersion || version > kSessionVersion)
        throw FormatError(
            fmt::format("{}: a session of version {}, this program reads {} to {}; take the program that began it",
                        name, version, kOldestSessionVersion, kSessionVersion));
    throw FormatError(fmt::format("{}: a damaged session (its first bytes); it is left as it is, begin another", name));
}

std::uint64_t checksum_of(std::span<const std::byte> payload) {
    return XXH3_64bits(payload.data(), payload.size());
}

// Longest payload, in bytes, in which every bit is tried, one checksum each: at most half a second.
constexpr std::size_t kMostRepairedBytes = std::size_t{32} << 10;
// Longest payload, in bytes, in which every value of every byte is tried, one checksum each: at most half a second.
constexpr std::size_t kMostRetriedBytes = std::size_t{4} << 10;
// Longest payload of the first record, in bytes, that is found without its head: text and ids of half a million prompt
// tokens. Each length at which a whole record follows costs a checksum.
constexpr std::size_t kMostFoundBegin = std::size_t{4} << 20;
// Largest offset of the first record that is searched, in bytes.
constexpr std::size_t kMostBytesBeforeBegin = std::size_t{64} << 10;
// Most token ids in a record that is found without its head: more than a pass commits.
constexpr std::size_t kMostFoundTokens = 1024;
// Largest limit, in tokens, that is tried for a limit record without a head; each try costs a checksum.
constexpr std::int64_t kMostFoundLimit = std::int64_t{1} << 20;
// Bytes that searches may put into checksums, beside the size of the file: a few seconds, so that a crafted file cannot
// take hours. In addition, a file is searched once, and its KV is read once where the chain is unknown.
constexpr std::size_t kMostSearchedBytes = std::size_t{16} << 30;

// Reads records from the first to the last that can be found, see read_session_records().
class RecordReader {
public:
    RecordReader(std::span<const std::byte> bytes, std::uint32_t version, std::string_view name)
        : bytes_(bytes),
          name_(name),
          version_(version),
          chain_(first_chain(version)),
          search_bytes_(kMostSearchedBytes + bytes.size()) {
        found_.version = version;
    }

    SessionRecords read() {
        found_.is_intact = is_head_whole(bytes_, version_);
        if (!read_begin()) return std::move(found_);
        while (has_head(at_) && (read_next() || repair_head() ||
                                 find_without_head(RecordKind::Tokens, sizeof(std::int32_t), kMostFoundTokens) ||
                                 find_limit() || find_kv() || find_next() || take_unchecked()))
            continue;
        found_.chain = chain_;
        return std::move(found_);
    }

private:
    [[nodiscard]] bool has_head(std::size_t at) const {
        return at <= bytes_.size() && bytes_.size() - at >= kRecordHeadBytes;
    }
    [[nodiscard]] RecordHead head_at(std::size_t at) const {
        RecordHead head{};
        std::memcpy(&head, bytes_.data() + at, sizeof(head));
        return head;
    }
    [[nodiscard]] std::span<const std::byte> payload_at(std::size_t at, const RecordHead& head) const {
        return bytes_.subspan(at + kRecordHeadBytes, head.n_bytes);
    }
    // Returns whether the file is long enough for the record.
    [[nodiscard]] bool fits(std::size_t at, const RecordHead& head) const {
        return has_head(at) && head.n_bytes <= bytes_.size() - at - kRecordHeadBytes;
    }
    [[nodiscard]] static bool follows(const RecordHead& head, std::uint64_t chain) {
        return head.check == static_cast<std::uint32_t>(next_chain(head, chain));
    }
    // Returns whether a search may compute the checksum of `n_bytes` more bytes; counts them.
    bool may_search(std::size_t n_bytes) {
        if (n_bytes > search_bytes_) return false;
        search_bytes_ -= n_bytes;
        return true;
    }
    bool is_whole_at(std::size_t at, const RecordHead& head) {
        return may_search(head.n_bytes) && checksum_of(payload_at(at, head)) == head.checksum;
    }

    void take(const RecordHead& head, std::span<const std::byte> payload, std::size_t end) {
        found_.records.push_back({static_cast<RecordKind>(head.kind), head.index, head.checksum, payload});
        chain_ = next_chain(head, chain_);
        at_ = found_.valid_bytes = end;
    }

    // Reads the record at at_, which must follow the previous one.
    bool read_next() {
        const RecordHead head = head_at(at_);
        if (!follows(head, chain_)) return false;
        const bool is_kv = head.kind == static_cast<std::uint32_t>(RecordKind::KvChunk);
        if (!fits(at_, head)) return is_kv && take_short_kv(head);
        const std::span<const std::byte> payload = payload_at(at_, head);
        const std::size_t end = at_ + kRecordHeadBytes + payload.size();
        const bool is_read_later = is_kv && end < bytes_.size();
        const bool goes_on = has_head(end) && follows(head_at(end), next_chain(head, chain_));
        if ((is_read_later && goes_on) || checksum_of(payload) == head.checksum) {
            take(head, payload, end);
            return true;
        }
        if (is_kv && take_short_kv(head)) return true;
        // The head, or a part of the file that ends in it, is there twice: the record follows.
        if (find_next()) return true;
        if (is_read_later) {  // a damaged KV block, which is dropped when its KV is read
            found_.is_intact = false;
            take(head, payload, end);
            return true;
        }
        if (is_kv) return stop();
        const auto repaired = with_right_byte(
            payload, [&](std::span<const std::byte> changed) { return checksum_of(changed) == head.checksum; });
        if (!repaired) return stop();
        found_.is_intact = false;
        take(head, found_.repaired.emplace_back(*repaired), end);
        return true;
    }

    // Takes a KV record that lacks bytes, or has some twice, so that the next record is elsewhere. Its payload is not
    // what was written.
    bool take_short_kv(const RecordHead& head) {
        const std::uint64_t chain = next_chain(head, chain_);
        const auto next = find_following(at_ + kRecordHeadBytes, chain);
        if (!next) return false;
        found_.is_intact = false;
        take(head, bytes_.subspan(at_ + kRecordHeadBytes, *next - at_ - kRecordHeadBytes), *next);
        return true;
    }

    // Reads the first record. It follows the head that each session of this version has, so its chain proves it even if
    // the file's own head is damaged.
    bool read_begin() {
        const auto is_begin = [&](std::size_t at) {
            return head_at(at).kind == static_cast<std::uint32_t>(RecordKind::Begin);
        };
        if (!has_head(at_)) return false;
        if ((is_begin(at_) && read_next()) || repair_head() || find_without_head(RecordKind::Begin, 1, kMostFoundBegin))
            return true;
        for (std::size_t at = 0; at < kMostBytesBeforeBegin && has_head(at); ++at) {
            const RecordHead head = head_at(at);
            if (!is_begin(at) || !follows(head, chain_) || !fits(at, head) || !is_whole_at(at, head)) continue;
            found_.is_intact = false;
            stopped_ = false;
            at_ = at;
            return read_next();
        }
        return false;
    }

    // Finds the record of that kind at at_ whose head is damaged. Its payload has 1 to `most` units of `unit_bytes`
    // bytes: so many that a whole record follows it in the chain.
    bool find_without_head(RecordKind kind, std::size_t unit_bytes, std::size_t most) {
        if (stopped_) return false;
        for (std::size_t n = 1; n <= most; ++n) {
            RecordHead head{.kind = static_cast<std::uint32_t>(kind),
                            .check = 0,
                            .index = 0,
                            .n_bytes = n * unit_bytes,
                            .checksum = 0};
            const std::size_t end = at_ + kRecordHeadBytes + head.n_bytes;
            if (!has_head(end)) return false;
            const RecordHead next = head_at(end);
            // The next record is tested first: the checksum of this one takes long if its payload is long.
            if (!is_later_kind(next) || !fits(end, next) || !is_whole_at(end, next) || !may_search(head.n_bytes))
                continue;
            head.checksum = checksum_of(payload_at(at_, head));
            if (!follows(next, next_chain(head, chain_))) continue;
            found_.is_intact = false;
            take(head, payload_at(at_, head), end);
            return true;
        }
        return false;
    }

    // Repairs a head at at_ in which one byte is wrong or bytes were inserted.
    bool repair_head() {
        if (stopped_) return false;
        const auto take_right = [&](std::span<const std::byte> bits, std::size_t n_inserted) {
            RecordHead head{};
            std::memcpy(&head, bits.data(), sizeof(head));
            const std::size_t at = at_ + n_inserted;
            if (!follows(head, chain_) || !fits(at, head) || !is_whole_at(at, head)) return false;
            found_.is_intact = false;
            take(head, payload_at(at, head), at + kRecordHeadBytes + head.n_bytes);
            return true;
        };
        if (with_right_byte(bytes_.subspan(at_, kRecordHeadBytes),
                            [&](std::span<const std::byte> bits) { return take_right(bits, 0); }))
            return true;
        std::array<std::byte, kRecordHeadBytes> without{};
        for (std::size_t n_before = 1; n_before < kRecordHeadBytes; ++n_before) {
            for (std::size_t n = 1; n <= kRecordHeadBytes && has_head(at_ + n); ++n) {
                const auto rest = std::ranges::copy(bytes_.subspan(at_, n_before), without.begin()).out;
                std::ranges::copy(bytes_.subspan(at_ + n_before + n, kRecordHeadBytes - n_before), rest);
                if (take_right(without, n)) return true;
            }
        }
        return false;
    }

    // Takes a record of a token limit (RecordKind::MaxTokens) at at_ whose head is damaged: tries limits from -1 up to
    // kMostFoundLimit until one fits the chain value of the next record. Returns false, and takes nothing, if none
    // does.
    bool find_limit() {
        const std::size_t end = at_ + kRecordHeadBytes;
        if (stopped_ || !has_head(end)) return false;
        const RecordHead next = head_at(end);
        if (!is_later_kind(next) || !fits(end, next) || !is_whole_at(end, next)) return false;
        RecordHead head{.kind = static_cast<std::uint32_t>(RecordKind::MaxTokens),
                        .check = 0,
                        .index = 0,
                        .n_bytes = 0,
                        .checksum = checksum_of({})};
        for (std::int64_t limit = -1; limit < kMostFoundLimit && may_search(kRecordHeadBytes); ++limit) {
            head.index = static_cast<std::uint64_t>(limit);
            if (!follows(next, next_chain(head, chain_))) continue;
            found_.is_intact = false;
            take(head, {}, end);
            return true;
        }
        return false;
    }

    // Takes a KV block at at_ whose head is damaged: of all layers and KV chunks, the one that the next record follows
    // in the chain. Returns false, and takes nothing, if there is none.
    bool find_kv() {
        if (stopped_ || found_.records.empty() || found_.records.front().kind != RecordKind::Begin) return false;
        if (!begin_) begin_ = decode_session_begin(found_.records.front().payload, version_, name_);
        const SessionBegin& begin = *begin_;
        RecordHead head{.kind = static_cast<std::uint32_t>(RecordKind::KvChunk),
                        .check = 0,
                        .index = 0,
                        .n_bytes = 0,
                        .checksum = 0};
        for (std::int64_t layer = 0; layer < begin.n_layers(); ++layer) {
            if (!may_search(kRecordHeadBytes)) return false;
            // If the payload of the layer before had as many bytes, it is the same payload, and head.checksum is known.
            if (begin.kv_bytes[layer] != head.n_bytes) {
                head.n_bytes = begin.kv_bytes[layer];
                if (!fits(at_, head) || !may_search(head.n_bytes)) {
                    head.n_bytes = 0;
                    continue;
                }
                head.checksum = checksum_of(payload_at(at_, head));
            }
            const std::size_t end = at_ + kRecordHeadBytes + head.n_bytes;
            if (!has_head(end)) continue;
            const RecordHead next = head_at(end);
            for (std::int64_t chunk = 0; (chunk + 1) * kChunkTokens <= begin.context_tokens; ++chunk) {
                head.index = kv_record_index(layer, chunk);
                if (!may_search(kRecordHeadBytes)) return false;
                if (!follows(next, next_chain(head, chain_))) continue;
                found_.is_intact = false;
                take(head, payload_at(at_, head), end);
                return true;
            }
        }
        return false;
    }

    // Skips bytes up to the record that follows the last one.
    bool find_next() {
        if (stopped_) return false;
        const auto next = find_following(at_ + 1, chain_);
        if (!next) return false;
        found_.is_intact = false;
        at_ = *next;
        return true;
    }

    // Takes the record at at_ if it is intact except for `check` of its head, and the next record follows it in the
    // chain.
    bool take_unchecked() {
        const RecordHead head = head_at(at_);
        if (stopped_ || !is_later_kind(head) || !fits(at_, head) || !is_whole_at(at_, head)) return false;
        const std::size_t end = at_ + kRecordHeadBytes + head.n_bytes;
        if (!has_head(end) || !follows(head_at(end), next_chain(head, chain_))) return false;
        found_.is_intact = false;
        take(head, payload_at(at_, head), end);
        return true;
    }

    [[nodiscard]] std::optional<std::size_t> find_following(std::size_t begin, std::uint64_t chain) {
        for (std::size_t at = begin; has_head(at) && may_search(kRecordHeadBytes); ++at) {
            const RecordHead head = head_at(at);
            if (is_later_kind(head) && follows(head, chain) && fits(at, head) && is_whole_at(at, head)) return at;
        }
        return std::nullopt;
    }

    // Returns whether the head can be that of a record after the first one.
    [[nodiscard]] static bool is_later_kind(const RecordHead& head) {
        switch (static_cast<RecordKind>(head.kind)) {
            case RecordKind::MaxTokens:
                return head.n_bytes == 0;
            case RecordKind::Tokens:
                return head.index == 0 && head.n_bytes > 0 && head.n_bytes % sizeof(std::int32_t) == 0;
            case RecordKind::KvChunk:
                return head.n_bytes > 0;
            default:
                return false;
        }
    }

    // Returns `bytes` with one byte changed so that `is_right` accepts them; if there are many bytes, only single bits
    // are changed. Returns no value if no such change is found.
    template <typename IsRight>
    std::optional<std::vector<std::byte>> with_right_byte(std::span<const std::byte> bytes, const IsRight& is_right) {
        if (bytes.size() > kMostRepairedBytes) return std::nullopt;
        std::vector<std::byte> changed(bytes.begin(), bytes.end());
        for (const bool single_bits : {true, false}) {
            if (!single_bits && bytes.size() > kMostRetriedBytes) break;
            for (std::byte& byte : changed) {
                for (unsigned bits = 1; bits < 256; ++bits) {
                    if (std::has_single_bit(bits) != single_bits) continue;
                    byte ^= static_cast<std::byte>(bits);
                    if (!may_search(bytes.size())) return std::nullopt;
                    if (is_right(changed)) return changed;
                    byte ^= static_cast<std::byte>(bits);
                }
            }
        }
        return std::nullopt;
    }

    bool stop() {
        stopped_ = true;
        return false;
    }

    std::span<const std::byte> bytes_;
    std::string_view name_;  // for messages
    std::uint32_t version_;
    std::size_t at_ = kSessionHeadBytes;
    std::uint64_t chain_;       // value of the chain after the last record taken
    std::size_t search_bytes_;  // bytes that searches may still put into checksums
    bool stopped_ = false;
    std::optional<SessionBegin> begin_;  // the first record, decoded once by find_kv()
    SessionRecords found_;
};

}  // namespace

std::array<std::byte, kSessionHeadBytes> session_head(std::uint32_t version) {
    std::array<std::byte, kSessionHeadBytes> head{};
    std::memcpy(head.data(), kMagic.data(), kMagic.size());
    std::memcpy(head.data() + kMagic.size(), &version, sizeof(version));
    return head;
}

std::uint64_t first_chain(std::uint32_t version) {
    const auto head = session_head(version);
    return XXH3_64bits(head.data(), head.size());
}

std::array<std::byte, kRecordHeadBytes> record_head(RecordKind kind, std::uint64_t index,
                                                    std::span<const std::byte> payload, std::uint64_t& chain) {
    RecordHead head{.kind = static_cast<std::uint32_t>(kind),
                    .check = 0,
                    .index = index,
                    .n_bytes = payload.size(),
                    .checksum = checksum_of(payload)};
    chain = next_chain(head, chain);
    head.check = static_cast<std::uint32_t>(chain);
    return std::bit_cast<std::array<std::byte, kRecordHeadBytes>>(head);
}

bool is_whole(const SessionRecord& record, std::span<const std::byte> payload) {
    return payload.size() == record.payload.size() && checksum_of(payload) == record.checksum;
}

SessionRecords read_session_records(std::span<const std::byte> bytes, std::string_view name) {
    const std::uint32_t stated = stated_version(bytes);
    const bool is_known = kOldestSessionVersion <= stated && stated <= kSessionVersion;
    SessionRecords found;
    if (is_known) found = RecordReader(bytes, stated, name).read();
    // The first record proves the version, also if the head is damaged.
    for (std::uint32_t version = kSessionVersion; found.records.empty() && version >= kOldestSessionVersion; --version)
        if (version != stated) found = RecordReader(bytes, version, name).read();
    if (!found.records.empty()) return found;
    if (!is_known || !is_head_whole(bytes, stated)) refuse_head(bytes, name);
    found.version = stated;
    return found;
}

}  // namespace slipstream
