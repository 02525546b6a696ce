// Rules about the head of a request, beyond the grammar that the HTTP library checks. Two programs on one way (a proxy
// and this server) must never disagree about where a request ends: a request that leaves room for that is refused.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/http_message.h"

namespace slipstream::tools {

struct HttpFault {
    int status = 400;
    std::string reason;
};

struct HttpHead {
    std::string_view method;
    bool is_http_1_0 = false;
};

/// Returns what is wrong with the head of a request with these fields; no value if nothing is.
[[nodiscard]] std::optional<HttpFault> find_fault(const HttpHead& head, const std::vector<HttpField>& fields);

/// Sets path, decoded, and query of `request`. Returns false if the target does not begin with a slash or has a broken
/// percent sign.
[[nodiscard]] bool split_target(std::string_view target, HttpRequest& request);

/// Returns the usual words for a status, such as "Not Found" for 404; "Error" for one that the server does not use.
[[nodiscard]] std::string_view status_words(int status);

}  // namespace slipstream::tools
