// A conversation as it is kept: messages and settings, in a JSON file that a person can read and edit.
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

/// What /set changes.
struct ChatSettings {
    SamplerOptions sampling;
    bool ignore_end = false;  // end tokens never come
    TextGenerationOptions text;
};

struct ChatSession {
    std::string model;                // path; a session may go on with another model
    std::optional<DType> kv_dtype{};  // that answers are computed with; none: begun by an older version
    std::optional<std::string> system;
    SystemSource system_source = SystemSource::User;
    ChatSettings settings;
    std::vector<Message> messages;  // user and assistant in turns, an answer last; empty: it has not come yet
};

/// {"format": "slipstream chat", "version": 1, "model", "kv_type", "system", "settings": {...}, "messages": [...]},
/// indented. Text that is not UTF-8 gets U+FFFD where it breaks.
[[nodiscard]] std::string to_json_text(const ChatSession& session);
/// Settings that the text does not name are those of `defaults`. `name` stands in messages. FormatError for anything
/// else than such a text, settings out of range included.
[[nodiscard]] ChatSession parse_chat_session(std::string_view text, const std::string& name,
                                             const ChatSettings& defaults);

/// "F: 3 exchanges", and whether the last message waits for its answer.
[[nodiscard]] std::string describe_messages(std::string_view name, const ChatSession& session);
/// Throws as read_text(), of more than 256 MiB, and as parse_chat_session().
[[nodiscard]] ChatSession load_chat_session(const std::filesystem::path& path, const ChatSettings& defaults);

}  // namespace slipstream::tools
