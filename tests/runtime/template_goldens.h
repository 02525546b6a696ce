// Golden files of chat templates (tests/golden/templates), and how their cases become inputs. The time is the one at
// which the goldens' clock was stopped: Friday, 14 March 2025, 09:05:07.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/text/chat/chat_template.h"

namespace slipstream {

using OrderedJson = nlohmann::ordered_json;

inline std::string template_golden_path(const std::string& name) {
    return std::string(SLIPSTREAM_GOLDEN_DIR) + "/templates/" + name;
}

inline std::string file_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

inline OrderedJson template_golden(const std::string& name) {
    return OrderedJson::parse(file_text(template_golden_path(name)));
}

inline TemplateValue template_value(const OrderedJson& json) {
    return parse_template_json(json.dump(), "golden");
}

inline std::tm stopped_clock() {
    std::tm now{};
    now.tm_year = 125;
    now.tm_mon = 2;
    now.tm_mday = 14;
    now.tm_hour = 9;
    now.tm_min = 5;
    now.tm_sec = 7;
    now.tm_wday = 5;
    now.tm_yday = 72;
    return now;
}

/// A case of conversations.py as golden files hold it.
inline TemplateInputs inputs_of(const OrderedJson& golden_case) {
    TemplateInputs inputs;
    inputs.messages = template_value(golden_case.at("messages"));
    if (golden_case.contains("tools")) inputs.tools = template_value(golden_case.at("tools"));
    if (golden_case.contains("documents")) inputs.documents = template_value(golden_case.at("documents"));
    inputs.add_generation_prompt = golden_case.at("add_generation_prompt").get<bool>();
    for (const auto& [name, value] : golden_case.at("variables").items())
        inputs.arguments.emplace_back(name, template_value(value));
    inputs.now = stopped_clock();
    return inputs;
}

/// No messages, and variables.
inline TemplateInputs inputs_with(const OrderedJson& variables) {
    TemplateInputs inputs;
    inputs.messages = TemplateValue::list({});
    for (const auto& [name, value] : variables.items()) inputs.arguments.emplace_back(name, template_value(value));
    inputs.now = stopped_clock();
    return inputs;
}

/// What came out: a text, or an error.
struct Rendering {
    std::string text;
    std::string error;
    int line = 0;
};

inline Rendering rendering_of(const std::string& source, const TemplateInputs& inputs,
                              const TemplateLimits& limits = {}) {
    try {
        return {ChatTemplate::parse(source, "test").render(inputs, limits), {}, 0};
    } catch (const TemplateError& error) {
        return {{}, error.message().empty() ? "(no message)" : error.message(), error.line()};
    }
}

/// The golden text of a case: its lines by number.
inline std::string golden_text(const OrderedJson& renderings, const OrderedJson& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (i > 0) text += '\n';
        text += renderings.at("lines").at(numbers[i].get<std::size_t>()).get<std::string>();
    }
    return text;
}

}  // namespace slipstream
