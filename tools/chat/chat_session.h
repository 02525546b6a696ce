// A saved conversation: messages and settings, in a JSON file that the user can read and edit.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/text_generation.h"
#include "runtime/text/chat/prompt_template.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

/// The settings that /set changes.
struct ChatSettings {
    SamplerOptions sampling;
    bool ignore_end = false;  // end tokens are never sampled (--ignore-eos)
    TextGenerationOptions text;
    std::optional<bool> think{};  // PromptTemplate::thinking_variable(); none: as the template has it
};

struct ChatSession {
    std::string model;                // path; a session may be continued with another model
    std::optional<DType> kv_dtype{};  // KV type of the answers; none: the session was begun by an older version
    std::optional<std::string> system;
    SystemSource system_source = SystemSource::User;
    ChatSettings settings;
    std::vector<Message>
        messages;  // user and assistant alternate, the last is of the assistant; an empty one is not generated yet
};

/// Returns whether the last message has no answer. An answer that was stopped within its thought is one.
[[nodiscard]] bool ends_unanswered(const ChatSession& session);

/// Returns the session as indented JSON: {"format": "slipstream chat", "version": 1, "model", "kv_type", "system",
/// "settings": {...}, "messages": [{"role", "content", "thought" if there is one}, ...]}. Bytes that are not UTF-8
/// become U+FFFD.
[[nodiscard]] std::string to_json_text(const ChatSession& session);
/// Parses the text of to_json_text(). Settings that are not in the text are taken from `defaults`. `name` is used in
/// error messages. Throws FormatError for any other text, and for settings out of range.
[[nodiscard]] ChatSession parse_chat_session(std::string_view text, const std::string& name,
                                             const ChatSettings& defaults);

/// Returns a line such as "F: 3 exchanges", which also says if the last message has no answer.
[[nodiscard]] std::string describe_messages(std::string_view name, const ChatSession& session);
/// Reads and parses a file of at most 256 MiB. Throws what read_text() and parse_chat_session() throw.
[[nodiscard]] ChatSession load_chat_session(const std::filesystem::path& path, const ChatSettings& defaults);

}  // namespace slipstream::tools
