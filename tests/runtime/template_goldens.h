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

/// A golden file as values: integers of any size stay as they are.
inline TemplateValue template_golden_value(const std::string& name) {
    return parse_template_json(file_text(template_golden_path(name)), name);
}

inline const TemplateValue& member(const TemplateValue& object, std::string_view name) {
    const TemplateValue* value = object.dict().find(name);
    if (value == nullptr) throw std::runtime_error("no " + std::string(name));
    return *value;
}

inline void add_arguments(const TemplateValue& variables, TemplateInputs& inputs) {
    for (const auto& [name, value] : variables.dict().items())
        inputs.arguments.emplace_back(std::string(name.view()), value);
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

/// No messages, and variables.
inline TemplateInputs inputs_with(const TemplateValue& variables) {
    TemplateInputs inputs;
    inputs.messages = TemplateValue::list({});
    add_arguments(variables, inputs);
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
        return {ChatTemplate::parse(source, "test").render(inputs, limits).bytes, {}, 0};
    } catch (const TemplateError& error) {
        return {{}, error.message().empty() ? "(no message)" : error.message(), error.line()};
    }
}

}  // namespace slipstream
