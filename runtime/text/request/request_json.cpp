#include "runtime/text/request/request_json.h"

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

// Counts values and depth by the punctuation outside strings, before anything is built. JSON that is valid has at most
// one value more than commas and opening brackets; JSON that is not is refused later.
std::size_t check_json_amount(std::string_view text, std::string_view what, std::size_t most) {
    std::size_t n_values = 1, depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
            continue;
        }
        in_string = c == '"';
        if (c == ',' || c == '[' || c == '{') ++n_values;
        if (c == '[' || c == '{') ++depth;
        if ((c == ']' || c == '}') && depth > 0) --depth;
        if (depth > kMaxRequestDepth)
            throw RequestError(fmt::format("{}: JSON nested deeper than {} at byte {}", what, kMaxRequestDepth, i));
        if (n_values > most) break;
    }
    if (n_values > most) throw RequestError(fmt::format("{}: JSON of more than {} values", what, most));
    return n_values;
}

TemplateValue parse_request_json(std::string_view text, std::string_view what) {
    if (text.size() > kMaxRequestBytes)
        throw RequestError(
            fmt::format("{}: {} bytes, more than the {} that a request may have", what, text.size(), kMaxRequestBytes));
    static_cast<void>(check_json_amount(text, what));
    try {
        return parse_template_json(text, what);
    } catch (const TemplateError& error) {
        throw RequestError(error.message());
    }
}

}  // namespace slipstream
