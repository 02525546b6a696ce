#include "tools/lab/replay/recorded_tokens.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kVicunaSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. ";

// A turn as the model saw it: the prompt, and the prompt followed by the answer.
struct TurnTexts {
    std::string prompt;
    std::string whole;
};
TurnTexts turn_texts(const RecordedTexts& turn, RecordedFormat format, std::size_t index) {
    switch (format) {
        case RecordedFormat::Vicuna: {
            std::string prompt =
                fmt::format("{}USER: {} ASSISTANT:", index == 0 ? kVicunaSystem : std::string_view(), turn.prompt);
            return {prompt, fmt::format("{} {}", prompt, turn.answer)};
        }
        case RecordedFormat::Raw:
            break;
    }
    return {turn.prompt, turn.prompt + turn.answer};
}

TokenId end_token_of(const Tokenizer& tokenizer) {
    const std::vector<TokenId> ends = tokenizer.end_tokens();
    if (ends.empty())
        throw RequestError(
            "--tokenizer: its vocabulary names no end token, which recorded turns end with; give the "
            "tokenizer of the recorded model");
    return ends.front();
}

std::optional<TokenId> start_token_of(const Tokenizer& tokenizer, RecordedFormat format) {
    if (format == RecordedFormat::Raw && !tokenizer.adds_bos()) return std::nullopt;
    if (!tokenizer.bos_id())
        throw RequestError(
            "--tokenizer: its vocabulary names no beginning-of-text token; give the tokenizer of the "
            "recorded model");
    return tokenizer.bos_id();
}

}  // namespace

std::optional<RecordedFormat> find_recorded_format(std::string_view name) {
    if (name == "vicuna") return RecordedFormat::Vicuna;
    if (name == "raw") return RecordedFormat::Raw;
    return std::nullopt;
}

std::vector<draft::RecordedTurn> recorded_tokens(const RecordedRun& run, const Tokenizer& tokenizer,
                                                 RecordedFormat format) {
    const TokenId end = end_token_of(tokenizer);
    std::vector<draft::RecordedTurn> turns;
    std::vector<TokenId> opening;  // tokens before the turn's own prompt: BOS, or the end token of the last answer
    if (const auto start = start_token_of(tokenizer, format)) opening.push_back(*start);
    for (std::size_t i = 0; i < run.turns.size(); ++i) {
        const TurnTexts texts = turn_texts(run.turns[i], format, i);
        const std::vector<TokenId> prompt = tokenizer.encode(texts.prompt, SpecialTokens::AsText, &cancel_flag());
        const std::vector<TokenId> whole = tokenizer.encode(texts.whole, SpecialTokens::AsText, &cancel_flag());
        const auto border = std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).second;

        draft::RecordedTurn& turn = turns.emplace_back();
        turn.prompt = opening;
        turn.prompt.insert(turn.prompt.end(), whole.begin(), border);
        turn.answer.assign(border, whole.end());
        const bool ended =
            !run.turns[i].new_tokens || *run.turns[i].new_tokens > static_cast<std::int64_t>(turn.answer.size());
        opening.clear();
        (ended ? turn.answer : opening).push_back(end);
    }
    if (turns.front().prompt.empty())
        throw RequestError(
            fmt::format("question {}: an empty prompt, and the tokenizer adds no beginning-of-text "
                        "token, so there is no position to draft from",
                        run.question_id));
    return turns;
}

}  // namespace slipstream::tools
