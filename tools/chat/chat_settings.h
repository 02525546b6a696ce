// The settings that /set changes during a chat. For a value, the rules are those of the command-line option with that
// name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/chat/chat_session.h"

namespace slipstream::tools {

/// Returns the names that /set accepts: options of sampling (temperature, top-k, ..., logit-bias, ignore-eos, seed) and
/// of where an answer ends (max-tokens, stop), and think (on, off, auto: PromptTemplate::thinking_variable()). The
/// strings are constants of the program.
[[nodiscard]] std::span<const std::string_view> setting_names();

/// Sets the setting `name` to `value`. For "stop", `value` is one stop text, in which \n stands for a newline, or
/// "none", which removes all stop texts. `where` is the source of the value in error messages ("/set"). Throws
/// UsageError for an unknown name (the error names the closest one) and for a value out of range; `settings` is then
/// unchanged.
void change_setting(ChatSettings& settings, std::string_view name, const std::string& value, std::string_view where);

/// Returns name and value, "temperature 0.8", in the form that change_setting() accepts; several stop texts are listed
/// together, which it does not accept. `name` must be one of setting_names().
[[nodiscard]] std::string describe_setting(const ChatSettings& settings, std::string_view name);

}  // namespace slipstream::tools
