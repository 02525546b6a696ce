#include "tools/cli/context_notes.h"

#include <fmt/format.h>

#include "tools/base/amounts.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kNearlyFullParts = 20;

bool overflows(std::int64_t prompt_tokens, std::int64_t max_tokens, std::int64_t context_tokens) {
    return max_tokens < 0 || max_tokens > context_tokens - prompt_tokens;
}

}  // namespace

std::optional<std::string> overflow_note(std::int64_t prompt_tokens, std::int64_t max_tokens,
                                         std::int64_t context_tokens) {
    if (max_tokens < 0 || !overflows(prompt_tokens, max_tokens, context_tokens)) return std::nullopt;
    const std::string wanted = max_tokens > (std::int64_t{1} << 40)
                                   ? std::string()
                                   : fmt::format("; --ctx {} would hold all", prompt_tokens + max_tokens);
    return fmt::format("{} and --max-tokens {} are more than the context of {}: {} will fit{}",
                       counted(prompt_tokens, "prompt token"), max_tokens, context_tokens,
                       counted(context_tokens - prompt_tokens, "token"), wanted);
}

ContextWatch::ContextWatch(std::int64_t prompt_tokens, std::int64_t max_tokens, std::int64_t context_tokens)
    : prompt_tokens_(prompt_tokens),
      context_tokens_(context_tokens),
      armed_(overflows(prompt_tokens, max_tokens, context_tokens)) {}

std::optional<std::string> ContextWatch::at(std::int64_t n_generated) {
    const std::int64_t left = context_tokens_ - prompt_tokens_ - n_generated;
    if (!armed_ || left > context_tokens_ / kNearlyFullParts || left <= 0) return std::nullopt;
    armed_ = false;
    return fmt::format("the context is nearly full: {} of {} tokens are left, and the text ends with them", left,
                       context_tokens_);
}

}  // namespace slipstream::tools
