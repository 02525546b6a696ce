// Who may use the server. A page in a browser may not, unless its origin is ours or named; a program may, if it has the
// key where there is one. The name in Host is checked too: a foreign name that was made to resolve to this machine
// (DNS rebinding) would make a foreign page an own one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/http_message.h"

namespace slipstream::tools {

struct AccessRules {
    std::string key{};                   // empty: none is needed
    std::vector<std::string> hosts{};    // names that Host may have, besides IP addresses and localhost
    std::vector<std::string> origins{};  // as a browser spells them: "app://obsidian.md"; "*": all
};

/// Returns the refusal of a request by its Host or Origin; no value if both are known.
[[nodiscard]] std::optional<HttpAnswer> refuse_origin(const HttpRequest& request, const AccessRules& rules);
/// Returns the refusal of a request by its key or Content-Type; no value if it may be served. Open paths need no key.
[[nodiscard]] std::optional<HttpAnswer> refuse_access(const HttpRequest& request, const AccessRules& rules,
                                                      bool is_open);
/// Returns the fields that allow the page that sent the request to read the answer; none if it sent no Origin.
[[nodiscard]] std::vector<HttpField> origin_fields(const HttpRequest& request);
/// Returns the answer to a browser that asks whether it may send a request (OPTIONS).
[[nodiscard]] HttpAnswer preflight_answer(const HttpRequest& request);

}  // namespace slipstream::tools
