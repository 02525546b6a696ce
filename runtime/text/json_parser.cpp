#include "runtime/text/json_parser.h"

namespace slipstream {

bool parse_json_events(std::string_view text, JsonHandler& handler) {
    return nlohmann::json::sax_parse(text, &handler);
}

nlohmann::json parse_json_value(std::string_view text) {
    return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace slipstream
