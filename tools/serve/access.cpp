#include "tools/serve/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tools/serve/api_error.h"

namespace slipstream::tools {

namespace {

// Returns the host of `authority`, which is "name", "name:port", "[address]" or "[address]:port", without brackets and
// port; an empty text if the brackets are malformed.
std::string host_name(std::string_view authority) {
    if (authority.starts_with('[')) {
        const std::size_t end = authority.find(']');
        if (end == std::string_view::npos) return {};
        const std::string_view rest = authority.substr(end + 1);
        return rest.empty() || rest.starts_with(':') ? std::string(authority.substr(1, end - 1)) : std::string();
    }
    return std::string(authority.substr(0, authority.rfind(':')));
}

bool is_address(const std::string& name) {
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    return inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

bool is_known_host(std::string_view authority, const AccessRules& rules) {
    const std::string name = host_name(authority);
    const auto is_same = [&](std::string_view known) { return same_field_name(known, name); };
    return is_same("localhost") || is_address(name) || std::ranges::any_of(rules.hosts, is_same);
}

bool is_known_origin(std::string_view origin, std::string_view host, const AccessRules& rules) {
    if (origin == fmt::format("http://{}", host) || origin == fmt::format("https://{}", host)) return true;
    return std::ranges::any_of(rules.origins, [&](std::string_view known) { return known == "*" || known == origin; });
}

std::string_view given_key(const HttpRequest& request) {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string_view authorization = request.field("Authorization").value_or("");
    if (authorization.size() > kBearer.size() && same_field_name(authorization.substr(0, kBearer.size()), kBearer))
        return authorization.substr(kBearer.size());
    return request.field("x-api-key").value_or("");
}

// Returns whether `given` is the key, which must not be empty. The time depends on the length of `given` alone, so it
// reveals nothing about the key.
bool is_key(std::string_view given, std::string_view key) {
    unsigned difference = given.size() == key.size() ? 0U : 1U;
    for (std::size_t i = 0; i < given.size(); ++i)
        difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
    return difference == 0;
}

ApiError forbidden(const std::string& message) {
    return {403, "permission_error", message};
}

bool is_json(std::string_view content_type) {
    std::string_view type = content_type.substr(0, content_type.find(';'));
    while (type.ends_with(' ')) type.remove_suffix(1);
    return same_field_name(type, "application/json");
}

}  // namespace

std::optional<HttpAnswer> refuse_origin(const HttpRequest& request, const AccessRules& rules) {
    const std::string_view host = request.field("Host").value_or("localhost");
    if (!is_known_host(host, rules))
        return forbidden(
                   "the Host of the request is neither an IP address nor localhost; serve with --allow-host NAME "
                   "to take it")
            .answer(error_shape_of(request.path));
    if (const auto origin = request.field("Origin"); origin && !is_known_origin(*origin, host, rules))
        return forbidden(
                   fmt::format("pages of the origin {0} may not use the server; serve with --allow-origin {0} to let "
                               "them (editors and apps have origins too)",
                               *origin))
            .answer(error_shape_of(request.path));
    // A page of another site can request images and scripts from here without an Origin field, and such requests would
    // take the places of live listeners. A link to the page is a navigation, which is allowed.
    if (!request.field("Origin") && same_field_name(request.field("Sec-Fetch-Site").value_or(""), "cross-site") &&
        !same_field_name(request.field("Sec-Fetch-Mode").value_or(""), "navigate"))
        return forbidden("pages of other sites may not use the server without an Origin")
            .answer(error_shape_of(request.path));
    return std::nullopt;
}

std::optional<HttpAnswer> refuse_access(const HttpRequest& request, const AccessRules& rules, bool is_open) {
    if (request.method == "OPTIONS") return std::nullopt;  // a browser's preflight request has no key
    if (!is_open && !rules.key.empty() && !is_key(given_key(request), rules.key)) {
        HttpAnswer answer =
            ApiError(401, "authentication_error",
                     "this server needs its API key, as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"")
                .answer(error_shape_of(request.path));
        answer.fields.push_back({"WWW-Authenticate", "Bearer"});
        return answer;
    }
    // A page of any site can send a form or plain text to any server; for JSON the browser sends a preflight request
    // (OPTIONS) first.
    if (request.method == "POST" && !is_json(request.field("Content-Type").value_or("")))
        return ApiError(415, "invalid_request_error", "send the body with \"Content-Type: application/json\"")
            .answer(error_shape_of(request.path));
    return std::nullopt;
}

std::vector<HttpField> origin_fields(const HttpRequest& request) {
    const auto origin = request.field("Origin");
    if (!origin) return {};
    return {{"Access-Control-Allow-Origin", std::string(*origin)}, {"Vary", "Origin"}};
}

HttpAnswer preflight_answer(const HttpRequest& request) {
    HttpAnswer answer{.status = 204, .fields = {{"Allow", "GET, HEAD, POST, OPTIONS"}}};
    if (!request.field("Access-Control-Request-Method")) return answer;
    answer.fields.push_back({"Access-Control-Allow-Methods", "GET, POST"});
    if (const auto names = request.field("Access-Control-Request-Headers"))
        answer.fields.push_back({"Access-Control-Allow-Headers", std::string(*names)});
    if (request.field("Access-Control-Request-Private-Network"))
        answer.fields.push_back({"Access-Control-Allow-Private-Network", "true"});
    answer.fields.push_back({"Access-Control-Max-Age", "600"});
    return answer;
}

}  // namespace slipstream::tools
