// What a chat says of itself: the line behind each answer, the gauge of the context, warnings, figures of the whole.
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

/// "context 392 of 8192, 5 %"; on a terminal with a bar, "context ███░░░░░░░ 29 % of 8192".
[[nodiscard]] std::string context_gauge(std::int64_t used, std::int64_t context, const Console& console);

/// "42 tokens (135.2 tokens/s, 2.10 a pass); prompt 350, 312 kept, 0.02 s; seed 7; context ..."; why it ended, where
/// the model did not end it. `generator` has just given the answer.
[[nodiscard]] std::string answer_line(const ChatAnswer& answer, const SamplerOptions& sampling,
                                      const ChatGenerator& generator, const Console& console);

/// From nine tenths of the context on: how much is left, and what can be done.
[[nodiscard]] std::optional<std::string> context_warning(const ChatAnswer& answer, const ChatGenerator& generator);

/// If the system text of the chat that was read from the file `name` spells control tokens, which it may not: says so,
/// and what to do if they are meant.
[[nodiscard]] std::optional<std::string> system_note(std::string_view name, const ChatSession& session,
                                                     const ChatForm& form);

/// Figures of all answers, several lines.
[[nodiscard]] std::string chat_figures(const ChatGenerator& generator);

}  // namespace slipstream::tools
