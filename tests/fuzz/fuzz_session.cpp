// Fuzz target: any bytes as a session file, as records behind a right beginning whose checksums are right, and as the
// fields of a beginning. Errors of ours are the expected outcome; what is accepted is read to its last byte. The seeds
// in corpus/session are a file with records of every kind, the same cut, and a beginning's fields.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/session/session_file.h"

namespace {

using namespace slipstream;

template <typename Call>
void expect_own_errors(const Call& call) {
    try {
        call();
    } catch (const Error&) {
        return;
    }
}

void read_all(std::span<const std::byte> bytes) {
    const SessionContents contents = read_session(bytes, "fuzz");
    std::size_t n_whole = 0;
    for (const SessionRecord& record : contents.kv_chunks) n_whole += is_whole(record, record.payload) ? 1 : 0;
    static_cast<void>(n_whole);
    // What was read is written the same.
    static_cast<void>(decode_session_begin(encode_session_begin(contents.begin), contents.begin.version, "fuzz"));
}

// The input as records: a byte of kind, one of index, one of length, and the payload.
std::vector<std::byte> with_right_checksums(std::span<const std::byte> data, std::uint32_t version) {
    SessionBegin begin;
    begin.version = version;
    begin.context_tokens = 700;
    begin.kv_bytes = {8, 8};
    begin.vocab = 64;
    begin.prompt.assign(300, 1);
    std::vector<std::byte> bytes;
    std::uint64_t chain = first_chain(version);
    const auto put = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
    const auto put_record = [&](RecordKind kind, std::uint64_t index, std::span<const std::byte> payload) {
        put(record_head(kind, index, payload, chain));
        put(payload);
    };
    put(session_head(version));
    put_record(RecordKind::Begin, 0, encode_session_begin(begin));
    while (data.size() >= 3) {
        const auto kind = static_cast<RecordKind>(std::to_integer<std::uint32_t>(data[0]) % 6);
        const auto index = std::to_integer<std::uint64_t>(data[1]);
        const std::size_t n = std::min(std::to_integer<std::size_t>(data[2]), data.size() - 3);
        put_record(kind, (index & 15) | (index >> 4) << 32, data.subspan(3, n));
        data = data.subspan(3 + n);
    }
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    expect_own_errors([&] { read_all(bytes); });
    for (std::uint32_t version = kOldestSessionVersion; version <= kSessionVersion; ++version) {
        expect_own_errors([&] { read_all(with_right_checksums(bytes, version)); });
        expect_own_errors(
            [&] { static_cast<void>(encode_session_begin(decode_session_begin(bytes, version, "fuzz"))); });
    }
    return 0;
}
