#include "tools/bench/bench_prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"

namespace slipstream::tools {

namespace {

std::vector<std::string> turns_of(const JsonFields& fields) {
    if (const auto prompt = fields.string("prompt")) return {*prompt};
    if (const nlohmann::json* list = fields.find("turns")) {
        std::vector<std::string> turns;
        if (!list->is_array()) fields.fail("turns", "is not a list");
        for (const nlohmann::json& turn : *list) {
            if (!turn.is_string()) fields.fail("turns", "holds something that is not a text");
            turns.push_back(turn.get<std::string>());
        }
        if (turns.empty()) fields.fail("turns", "is an empty list");
        return turns;
    }
    if (const auto question = fields.string("question")) return {*question};
    throw FormatError(fmt::format("{}: no field prompt, turns or question; each line requires one", fields.name()));
}

}  // namespace

std::vector<BenchPrompt> parse_bench_prompts(std::string_view text, std::string_view name, std::int64_t max_prompts) {
    std::vector<BenchPrompt> prompts;
    std::int64_t line_number = 0;
    while (!text.empty() && static_cast<std::int64_t>(prompts.size()) < max_prompts) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++line_number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string where = fmt::format("{}:{}", name, line_number);
        const nlohmann::json object = parse_json_object(line, where);
        prompts.push_back({line_number, turns_of(JsonFields(object, where))});
    }
    if (prompts.empty())
        throw RequestError(fmt::format("{}: holds no prompts; one JSON object a line is expected", name));
    return prompts;
}

}  // namespace slipstream::tools
