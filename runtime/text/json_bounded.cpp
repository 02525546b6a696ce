#include "runtime/text/json_bounded.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

constexpr int kMaxDepth = 32;

}  // namespace

nlohmann::json parse_json_object(std::string_view text, std::string_view name) {
    using nlohmann::json;
    std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open, outermost first
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
        if (depth > kMaxDepth) throw FormatError(fmt::format("{}: JSON nested deeper than {}", name, kMaxDepth));
        if (event == json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == json::parse_event_t::key) {
            const auto& key = parsed.get_ref<const std::string&>();
            if (!keys.back().insert(key).second)
                throw FormatError(fmt::format("{}: JSON key \"{}\" stands twice in one object", name, printable(key)));
        }
        return true;
    };
    try {
        json result = json::parse(text, check);
        if (!result.is_object()) throw FormatError(fmt::format("{}: holds JSON, but no object", name));
        return result;
    } catch (const json::parse_error& error) {
        throw FormatError(fmt::format("{}: not JSON at byte {} of {}", name, error.byte, text.size()));
    } catch (const json::exception& error) {
        throw FormatError(fmt::format("{}: not JSON ({})", name, printable(error.what())));
    }
}

}  // namespace slipstream
