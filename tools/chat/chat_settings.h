// The settings that /set changes in the middle of a chat, checked by the rules of the options of the same names.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/chat/chat_session.h"

namespace slipstream::tools {

/// temperature, top-k, ..., logit-bias, ignore-eos, seed, max-tokens, stop.
[[nodiscard]] std::span<const std::string_view> setting_names();

/// Sets one of them. "stop" takes one text, in which \n stands for a newline, or "none". `where` names the place in
/// messages ("/set"). Throws UsageError for unknown names, with the closest one, and for values out of range; nothing
/// has changed then.
void change_setting(ChatSettings& settings, std::string_view name, const std::string& value, std::string_view where);

/// "temperature 0.8", as change_setting() takes it but for several stops. The name is a known one.
[[nodiscard]] std::string describe_setting(const ChatSettings& settings, std::string_view name);

}  // namespace slipstream::tools
