#include "tools/chat/chat_session.h"

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/base/kv_type_option.h"
#include "tools/base/usage_error.h"
#include "tools/chat/chat_settings.h"
#include "tools/options/sampling_options.h"
#include "tools/terminal/bounded_file.h"

namespace slipstream::tools {

namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "slipstream chat";
constexpr std::int64_t kVersion = 1;

[[noreturn]] void fail(const std::string& name, std::string_view what) {
    throw FormatError(fmt::format("{}: {}; name a file that chat has saved", name, what));
}

std::string text_at(const json& object, const char* key, const std::string& name) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) fail(name, fmt::format("\"{}\" is not a text", key));
    return found->get<std::string>();
}

std::vector<Message> messages_of(const json& list, const std::string& name) {
    if (!list.is_array()) fail(name, "\"messages\" is not a list");
    std::vector<Message> messages;
    for (const json& item : list) {
        if (!item.is_object()) fail(name, "a message is not an object");
        Message message{text_at(item, "role", name), text_at(item, "content", name)};
        const std::string_view wanted = messages.size() % 2 == 0 ? "user" : "assistant";
        if (message.role != wanted)
            fail(name, fmt::format("message {} has the role '{}', '{}' is expected", messages.size() + 1, message.role,
                                   wanted));
        if (item.contains("thought")) message.thought = text_at(item, "thought", name);
        messages.push_back(std::move(message));
    }
    if (messages.size() % 2 != 0) fail(name, "the last message has no answer");
    return messages;
}

// Sets the setting `key` to a value from the file `name` of a chat. A number must be one that /set accepts. Throws
// FormatError.
void read_setting(const std::string& key, const json& value, const std::string& name, ChatSettings& settings) {
    const std::string where = fmt::format("{}: {}", name, key);
    try {
        if (key == "stop") {
            settings.text.stops.clear();
            if (!value.is_array()) fail(name, "\"stop\" is not a list");
            for (const json& stop : value) {
                if (!stop.is_string() || stop.get<std::string>().empty()) fail(name, "a stop is not a text");
                settings.text.stops.push_back(stop.get<std::string>());
            }
        } else {
            const bool is_text = key == "logit-bias" && value.is_string();
            const bool is_flag = (key == "ignore-eos" || key == "think") && value.is_boolean();
            if (!value.is_number() && !is_text && !is_flag) fail(name, fmt::format("\"{}\" is not a number", key));
            change_setting(settings, key, is_text ? value.get<std::string>() : value.dump(), where);
        }
    } catch (const UsageError& error) {
        throw FormatError(error.what());
    }
}

}  // namespace

bool ends_unanswered(const ChatSession& session) {
    if (session.messages.empty()) return false;
    const Message& last = session.messages.back();
    return last.content.empty() && last.thought.empty();
}

std::string to_json_text(const ChatSession& session) {
    const SamplerOptions& sampling = session.settings.sampling;
    JsonObject settings;
    settings.real("temperature", sampling.temperature)
        .integer("top-k", sampling.top_k)
        .real("top-p", sampling.top_p)
        .real("min-p", sampling.min_p)
        .real("repeat-penalty", sampling.repeat_penalty)
        .integer("repeat-last-n", sampling.repeat_window)
        .real("presence-penalty", sampling.presence_penalty)
        .real("frequency-penalty", sampling.frequency_penalty)
        .text("logit-bias", logit_bias_text(sampling.bias))
        .boolean("ignore-eos", session.settings.ignore_end)
        .unsigned_integer("seed", sampling.seed)
        .integer("max-tokens", session.settings.text.max_tokens)
        .texts("stop", session.settings.text.stops);
    if (session.settings.think) settings.boolean("think", *session.settings.think);
    std::vector<JsonObject> messages;
    for (const Message& message : session.messages) {
        JsonObject item;
        item.text("role", message.role).text("content", message.content);
        if (!message.thought.empty()) item.text("thought", message.thought);
        messages.push_back(std::move(item));
    }
    JsonObject object;
    object.text("format", kFormat).integer("version", kVersion).text("model", session.model);
    if (session.kv_dtype) object.text("kv_type", kv_type_option(*session.kv_dtype));
    if (session.system) {
        object.text("system", *session.system);
    } else {
        object.null("system");
    }
    object.object("settings", settings).objects("messages", messages);
    return object.to_text(JsonLayout::Indented);
}

ChatSession parse_chat_session(std::string_view text, const std::string& name, const ChatSettings& defaults) {
    const json object = parse_json_object(text, name);
    if (const auto format = object.find("format"); format == object.end() || *format != kFormat)
        fail(name, "this is not a saved chat");
    if (const auto version = object.find("version"); version == object.end() || *version != kVersion)
        fail(name, fmt::format("a saved chat of version {}, where {} is read",
                               version == object.end() ? "unknown" : version->dump(), kVersion));
    ChatSession session;
    session.model = text_at(object, "model", name);
    if (object.contains("kv_type")) {
        session.kv_dtype = kv_type_of(text_at(object, "kv_type", name));
        if (!session.kv_dtype) fail(name, "\"kv_type\" is not a KV type");
    }
    if (const auto system = object.find("system"); system != object.end() && !system->is_null()) {
        session.system = text_at(object, "system", name);
        session.system_source = SystemSource::File;
    }
    session.settings = defaults;
    if (const auto settings = object.find("settings"); settings != object.end()) {
        if (!settings->is_object()) fail(name, "\"settings\" is not an object");
        for (const auto& [key, value] : settings->items()) read_setting(key, value, name, session.settings);
    }
    const auto messages = object.find("messages");
    if (messages == object.end()) fail(name, "there are no \"messages\"");
    session.messages = messages_of(*messages, name);
    return session;
}

std::string describe_messages(std::string_view name, const ChatSession& session) {
    return fmt::format("{}: {}{}", name, counted(std::ssize(session.messages) / 2, "exchange"),
                       ends_unanswered(session) ? "; the last message has no answer yet, /regen asks for one" : "");
}

ChatSession load_chat_session(const std::filesystem::path& path, const ChatSettings& defaults) {
    constexpr std::size_t kMaxBytes = std::size_t{256} << 20U;
    return parse_chat_session(read_text(path, "the chat", kMaxBytes), path.string(), defaults);
}

}  // namespace slipstream::tools
