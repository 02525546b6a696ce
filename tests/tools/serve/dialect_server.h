// A whole server with a template that has marks of all that the dialects bring: what the engine is asked is compared as
// text, since its tokens are bytes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/serve/scripted_server.h"

namespace slipstream::tools {

/// [role]content, with thoughts in (), calls as Hermes writes them, and the tools first.
inline constexpr const char* kDialectTemplate =
    R"({% if tools %}{{ tools|tojson }}{% endif %}{% if enable_thinking is defined %}{thinks:{{ enable_thinking }}}{% endif %})"
    R"({% if reasoning_effort is defined %}{effort:{{ reasoning_effort }}}{% endif %})"
    R"({% for m in messages %}[{{ m.role }}{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}])"
    R"({% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }})"
    R"({% for c in m.tool_calls or [] %}<tool_call>{{ c.id }} {{ c.function.name }} {{ c.function.arguments|tojson }}</tool_call>{% endfor %})"
    R"({% endfor %}{% if false %}<think></think>{% endif %}{% if add_generation_prompt %}[assistant]{% endif %})";
inline constexpr const char* kHermesCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";

/// An event of a stream: its name and its JSON.
struct NamedEvent {
    std::string name;
    nlohmann::json data;
};

inline std::vector<NamedEvent> named_events(const std::string& body) {
    std::vector<NamedEvent> events;
    for (std::size_t at = 0; at < body.size();) {
        const std::size_t line = body.find('\n', at);
        const std::size_t end = body.find("\n\n", at);
        if (line == std::string::npos || end == std::string::npos || body.compare(at, 7, "event: ") != 0 ||
            body.compare(line + 1, 6, "data: ") != 0) {
            ADD_FAILURE() << "no event: " << body.substr(at);
            return events;
        }
        events.push_back(
            {body.substr(at + 7, line - at - 7), nlohmann::json::parse(body.substr(line + 7, end - line - 7))});
        EXPECT_EQ(events.back().data.at("type"), events.back().name);
        at = end + 2;
    }
    return events;
}

inline std::vector<std::string> names_of(const std::vector<NamedEvent>& events) {
    std::vector<std::string> names;
    for (const NamedEvent& event : events) names.push_back(event.name);
    return names;
}

class DialectServer : public testing::Test {
protected:
    explicit DialectServer(std::string path) : path_(std::move(path)) {}

    [[nodiscard]] nlohmann::json post(const std::string& body) const {
        const RawAnswer answer = server_.post(path_, body);
        EXPECT_EQ(answer.status, 200) << answer.body;
        return nlohmann::json::parse(answer.body);
    }
    [[nodiscard]] nlohmann::json refused(const std::string& body, int status = 400) const {
        const RawAnswer answer = server_.post(path_, body);
        EXPECT_EQ(answer.status, status) << body << answer.body;
        return nlohmann::json::parse(answer.body);
    }
    [[nodiscard]] std::vector<NamedEvent> stream(const std::string& body) const {
        return named_events(server_.post(path_, body).body);
    }
    /// The prompt that the last request became.
    [[nodiscard]] std::string prompt() const {
        const std::vector<TextTask> tasks = server_.engine.tasks();
        std::string text;
        for (const TokenId id : tasks.back().prompt.tokens) text += static_cast<char>(id);
        return text;
    }
    [[nodiscard]] std::string prompt_of(const std::string& body) const {
        static_cast<void>(post(body));
        return prompt();
    }

    std::string path_;
    ScriptedServer server_{{}, kDialectTemplate};
};

}  // namespace slipstream::tools
