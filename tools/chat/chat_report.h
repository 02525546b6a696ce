// Reports of a chat: the line after each answer, how full the context is, warnings, statistics of all answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/loop/sampling/sampler.h"
#include "tools/chat/chat_generator.h"
#include "tools/chat/chat_session.h"
#include "tools/engine/engine.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

/// Returns how much of the context is used: "context 392 of 8192, 5 %"; on a terminal "context ███░░░░░░░ 29 % of
/// 8192". `used` and `context` are in tokens.
[[nodiscard]] std::string context_gauge(std::int64_t used, std::int64_t context, const Console& console);

/// Returns the line that follows an answer: "42 tokens (135.2 tokens/s, 2.10 a pass); prompt 350, 312 kept, 0.02 s;
/// seed 7; context ..."; also why the answer ended, unless the model or a stop text ended it. Call this right after
/// `generator` made the answer.
[[nodiscard]] std::string answer_line(const ChatAnswer& answer, const SamplerOptions& sampling,
                                      const ChatGenerator& generator, const Console& console);

/// Returns a warning with the tokens left and the commands that free some, if nine tenths of the context are used; else
/// nullopt.
[[nodiscard]] std::optional<std::string> context_warning(const ChatAnswer& answer, const ChatGenerator& generator);

/// Returns a note if the system text of a chat that was read from the file `name` spells control tokens: that they are
/// read as plain text, and what to do if control tokens are wanted; else nullopt.
[[nodiscard]] std::optional<std::string> system_note(std::string_view name, const ChatSession& session,
                                                     const ChatForm& form);

/// Returns the text of /stats: statistics of all answers, several lines.
[[nodiscard]] std::string chat_figures(const ChatGenerator& generator);

}  // namespace slipstream::tools
