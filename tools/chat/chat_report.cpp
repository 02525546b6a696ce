#include "tools/chat/chat_report.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "tools/base/amounts.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

namespace {

constexpr double kNearlyFull = 0.9;
constexpr int kGaugeWidth = 10;
constexpr std::string_view kWaysOut =
    "/undo takes back an exchange, /clear forgets all messages, /save F keeps them for a start with a larger --ctx and "
    "--session "
    "F";

// Returns why an answer ended, for answer_line(); empty if the model or a stop text ended it.
std::string_view end_of(StopReason reason) {
    switch (reason) {
        case StopReason::EndToken:
        case StopReason::StopString:
            return "";
        case StopReason::Length:
            return "; cut by max-tokens";
        case StopReason::Context:
            return "; cut by the context's end";
        case StopReason::Interrupt:
            return "; stopped";
    }
    return "";
}

}  // namespace

std::string context_gauge(std::int64_t used, std::int64_t context, const Console& console) {
    const double share = std::clamp(static_cast<double>(used) / static_cast<double>(context), 0.0, 1.0);
    if (!console.shows_progress()) return fmt::format("context {} of {}, {:.0f} %", used, context, 100.0 * share);
    std::string bar;
    const int full = static_cast<int>(share * kGaugeWidth + 0.5);
    for (int i = 0; i < kGaugeWidth; ++i) bar += i < full ? "█" : "░";
    return fmt::format("context {} {:.0f} % of {}", bar, 100.0 * share, context);
}

std::string answer_line(const ChatAnswer& answer, const SamplerOptions& sampling, const ChatGenerator& generator,
                        const Console& console) {
    const TextGenerationResult& result = answer.result;
    const auto n_tokens = std::ssize(result.tokens);
    return fmt::format("{} ({}); prompt {}, {} kept, {:.2f} s{}; {}{}", counted(n_tokens, "token"), speed_text(result),
                       result.prompt_tokens, answer.kept_tokens, result.prefill_seconds,
                       sampling.temperature > 0.0 ? fmt::format("; seed {}", sampling.seed) : "",
                       context_gauge(generator.used_tokens(), generator.context_tokens(), console),
                       end_of(result.stop_reason));
}

std::optional<std::string> context_warning(const ChatAnswer& answer, const ChatGenerator& generator) {
    const std::int64_t used = generator.used_tokens();
    const std::int64_t context = generator.context_tokens();
    if (answer.result.stop_reason == StopReason::Context || used >= context)
        return fmt::format("the context of {} tokens is full: {}", context, kWaysOut);
    if (static_cast<double>(used) >= kNearlyFull * static_cast<double>(context))
        return fmt::format("the context is nearly full, {} left: {}", counted(context - used, "token"), kWaysOut);
    return std::nullopt;
}

std::optional<std::string> system_note(std::string_view name, const ChatSession& session, const ChatForm& form) {
    if (!session.system || session.system_source != SystemSource::File || !form.spells_control_tokens(*session.system))
        return std::nullopt;
    return fmt::format(
        "{}: the control tokens that its system text spells are read as plain text; if they are meant, give the text "
        "by --system or /system",
        name);
}

std::string chat_figures(const ChatGenerator& generator) {
    const TextGenerationResult& totals = generator.totals();
    const auto n_tokens = std::ssize(totals.tokens);
    std::string text = fmt::format(
        "  {}, {} ({:.1f} tokens/s in {:.2f} s)\n  prompts {}, {} of them kept; {:.2f} s until first tokens\n",
        counted(generator.n_answers(), "answer"), counted(n_tokens, "token"), totals.tokens_per_second,
        totals.decode_seconds, counted(totals.prompt_tokens, "token"), generator.kept_tokens(), totals.prefill_seconds);
    if (totals.passes > 0)
        text += fmt::format("  {} passes, {:.2f} tokens each\n", totals.passes,
                            static_cast<double>(n_tokens) / static_cast<double>(totals.passes));
    const SourceTotals sources = generator.generator().sources();
    for (const SourceTotal& source : sources.totals())
        if (source.offered > 0)
            text += fmt::format("  {:<10} offered {}, accepted {} ({:.0f} %)\n", source.name, source.offered,
                                source.accepted, 100.0 * source.acceptance());
    return text;
}

}  // namespace slipstream::tools
