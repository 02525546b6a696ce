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

// Everything that was read, in one text.
std::string read_all(std::string_view bytes, std::size_t part) {
    HttpReader reader({.head_bytes = 1024, .n_fields = 8, .body_bytes = 256});
    std::string seen;
    for (std::size_t at = 0; at < bytes.size(); at += part) {
        reader.receive(bytes.substr(at, part));
        while (true) {
            const HttpReader::Step step = reader.read();
            if (step == HttpReader::Step::NeedsMore) break;
            if (step == HttpReader::Step::Fault) return seen + "fault";
            if (step == HttpReader::Step::Head) continue;
            const slipstream::tools::HttpRequest& request = reader.request();
            seen += request.method + " " + request.path + "?" + request.query + "\n";
            for (const auto& field : request.fields) seen += field.name + ": " + field.value + "\n";
            seen += request.body + "\n";
            reader.begin();
        }
    }
    return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::string whole = read_all(bytes, bytes.size());
    const std::string in_parts = read_all(bytes, std::max<std::size_t>(data[0], 1));
    // Which of two faults is found first may depend on the parts, and so how many requests precede it.
    const bool is_same = whole == in_parts;
    if (!is_same && (!whole.ends_with("fault") || !in_parts.ends_with("fault"))) std::abort();
    return 0;
}
