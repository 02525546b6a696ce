// Fuzz target: bytes of a connection, from the second on, to the reader of HTTP requests. The first byte says in parts
// of which size they arrive; the requests must be the same as if all arrived at once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/serve/http_reader.h"

namespace {

using slipstream::tools::HttpReader;

struct Seen {
    std::string requests;  // all that were read, in one text
    bool faulty = false;
};

Seen read_all(std::string_view bytes, std::size_t part) {
    HttpReader reader({.head_bytes = 1024, .n_fields = 8, .body_bytes = 256});
    Seen seen;
    for (std::size_t at = 0; at < bytes.size(); at += part) {
        reader.receive(bytes.substr(at, part));
        while (true) {
            const HttpReader::Step step = reader.read();
            if (step == HttpReader::Step::NeedsMore) break;
            if (step == HttpReader::Step::Fault) return {seen.requests, true};
            if (step == HttpReader::Step::Head) continue;
            const slipstream::tools::HttpRequest& request = reader.request();
            seen.requests += request.method + " " + request.path + "?" + request.query + "\n";
            for (const auto& field : request.fields) seen.requests += field.name + ": " + field.value + "\n";
            seen.requests += request.body + "\n";
            reader.begin();
        }
    }
    return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const Seen whole = read_all(bytes, bytes.size());
    const Seen in_parts = read_all(bytes, std::max<std::size_t>(data[0], 1));
    // A fault may be found at once or only when the head is complete; never is a request read differently.
    const bool may_end_sooner = whole.faulty || in_parts.faulty;
    const bool is_prefix =
        whole.requests.starts_with(in_parts.requests) || in_parts.requests.starts_with(whole.requests);
    if (may_end_sooner ? !is_prefix : whole.requests != in_parts.requests) std::abort();
    return 0;
}
