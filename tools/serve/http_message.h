// Requests and answers of HTTP as the server's parts see them: without sockets and without the HTTP library, which only
// http_server.cpp includes.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct HttpField {
    std::string name;
    std::string value;
    bool operator==(const HttpField&) const = default;
};

/// Returns whether two names of fields are equal; case does not count.
[[nodiscard]] inline bool same_field_name(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b,
                              [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

struct HttpRequest {
    std::string method;
    std::string path;   // path of the request's target, percent-encoding decoded, without the query
    std::string query;  // what follows "?", as it was sent; empty: none
    std::vector<HttpField> fields;
    std::string body;

    /// Returns the value of the first field of this name; no value if there is none.
    [[nodiscard]] std::optional<std::string_view> field(std::string_view name) const {
        for (const HttpField& each : fields)
            if (same_field_name(each.name, name)) return each.value;
        return std::nullopt;
    }
};

struct HttpAnswer {
    int status = 200;
    std::string content_type = "application/json";
    std::vector<HttpField> fields{};  // header fields besides Content-Type, Content-Length and Connection
    std::string body{};
};

}  // namespace slipstream::tools
