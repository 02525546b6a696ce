#include "tools/serve/http_framing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace slipstream::tools {

namespace {

// Returns the value of the field `name`, the last one if it is repeated; no value if it is absent. `n` becomes the
// number of times that the field occurs.
std::optional<std::string_view> only_value(const std::vector<HttpField>& fields, std::string_view name,
                                           std::ptrdiff_t& n) {
    std::optional<std::string_view> value;
    n = 0;
    for (const HttpField& field : fields) {
        if (!same_field_name(field.name, name)) continue;
        ++n;
        value = field.value;
    }
    return value;
}

bool is_number(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<HttpFault> find_fault(const HttpHead& head, const std::vector<HttpField>& fields) {
    constexpr std::array<std::string_view, 4> kMethods{"GET", "HEAD", "POST", "OPTIONS"};
    if (std::ranges::find(kMethods, head.method) == kMethods.end())
        return HttpFault{405, "unknown method; use GET, HEAD, POST or OPTIONS"};
    std::ptrdiff_t n = 0;
    const auto length = only_value(fields, "Content-Length", n);
    if (n > 1) return HttpFault{400, "several Content-Length fields"};
    if (length && !is_number(*length)) return HttpFault{400, "Content-Length is not a number"};
    const auto coding = only_value(fields, "Transfer-Encoding", n);
    if (n > 1 || (coding && !same_field_name(*coding, "chunked")))
        return HttpFault{400, "the only Transfer-Encoding that is taken is chunked, once"};
    if (coding && length) return HttpFault{400, "Content-Length and Transfer-Encoding together"};
    if (coding && head.is_http_1_0) return HttpFault{400, "HTTP/1.0 has no Transfer-Encoding"};
    const auto content = only_value(fields, "Content-Encoding", n);
    if (n > 1 || (content && !same_field_name(*content, "identity")))
        return HttpFault{400, "compressed bodies are not taken; leave Content-Encoding out"};
    static_cast<void>(only_value(fields, "Host", n));
    if (n > 1 || (n == 0 && !head.is_http_1_0)) return HttpFault{400, "one Host field is needed"};
    const auto expected = only_value(fields, "Expect", n);
    if (n > 1 || (expected && !same_field_name(*expected, "100-continue")))
        return HttpFault{417, "the only expectation that is met is 100-continue"};
    return std::nullopt;
}

bool split_target(std::string_view target, HttpRequest& request) {
    if (!target.starts_with('/')) return false;
    const std::size_t question = target.find('?');
    request.query = question == std::string_view::npos ? "" : std::string(target.substr(question + 1));
    const std::string_view path = target.substr(0, question);
    request.path.clear();
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (path[i] != '%') {
            request.path += path[i];
            continue;
        }
        unsigned byte = 0;
        const char* const digits = path.data() + i + 1;
        if (path.size() - i < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return false;
        request.path += static_cast<char>(byte);
        i += 2;
    }
    return true;
}

std::string_view status_words(int status) {
    constexpr std::array<std::pair<int, std::string_view>, 15> kWords{{{200, "OK"},
                                                                       {204, "No Content"},
                                                                       {400, "Bad Request"},
                                                                       {401, "Unauthorized"},
                                                                       {403, "Forbidden"},
                                                                       {404, "Not Found"},
                                                                       {405, "Method Not Allowed"},
                                                                       {408, "Request Timeout"},
                                                                       {413, "Content Too Large"},
                                                                       {415, "Unsupported Media Type"},
                                                                       {417, "Expectation Failed"},
                                                                       {421, "Misdirected Request"},
                                                                       {431, "Request Header Fields Too Large"},
                                                                       {500, "Internal Server Error"},
                                                                       {503, "Service Unavailable"}}};
    const auto* const found = std::ranges::find(kWords, status, &std::pair<int, std::string_view>::first);
    return found == kWords.end() ? "Error" : found->second;
}

}  // namespace slipstream::tools
