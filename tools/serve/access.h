// Access rules. A page in a browser may use the server only if its origin is the server's own or one of
// AccessRules::origins; a program only if it sends the key, if one is set. The name in Host is checked too: with a
// foreign name that resolves to this machine (DNS rebinding), a foreign page would have the server's own origin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/http_message.h"

namespace slipstream::tools {

struct AccessRules {
    std::string key{};                 // API key that clients must send; empty: no key is needed
    std::vector<std::string> hosts{};  // names that Host may have, besides IP addresses and localhost
    std::vector<std::string>
        origins{};  // sites whose pages are allowed, as browsers spell them: "app://obsidian.md"; "*": all
};

/// Returns the refusal (status 403) of a request whose Host or Origin is not known, or which a page of another site
/// sent without an Origin; otherwise no value.
[[nodiscard]] std::optional<HttpAnswer> refuse_origin(const HttpRequest& request, const AccessRules& rules);
/// Returns the refusal of a request without the key (401; not if `is_open`: the path needs none) or of a POST that is
/// not JSON (415); no value if the request may be served. OPTIONS is never refused.
[[nodiscard]] std::optional<HttpAnswer> refuse_access(const HttpRequest& request, const AccessRules& rules,
                                                      bool is_open);
/// Returns the fields that allow the page that sent the request to read the answer; none if it sent no Origin. Call
/// only if refuse_origin() has accepted the request, since the fields allow any origin.
[[nodiscard]] std::vector<HttpField> origin_fields(const HttpRequest& request);
/// Returns the answer to a browser that asks whether it may send a request (OPTIONS). Call only if refuse_origin() has
/// accepted the request.
[[nodiscard]] HttpAnswer preflight_answer(const HttpRequest& request);

}  // namespace slipstream::tools
