// Decoding over the prompts of a file, each with all its turns.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/indexed.h"
#include "tools/bench/bench_columns.h"
#include "tools/bench/bench_runs.h"
#include "tools/bench/bench_tokens.h"
#include "tools/options/command.h"
#include "tools/terminal/amounts.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

// A line's turns as tokens; later ones stand on lines of their own behind what was generated.
struct Conversation {
    std::int64_t line = 0;
    std::vector<std::vector<TokenId>> turns;
    std::int64_t n_tokens = 0;  // of all turns
};

std::vector<Conversation> encode_prompts(const BenchRequest& request, const Tokenizer& tokenizer,
                                         const ModelConfig& config) {
    Indexed<Conversation> conversations;
    for (const BenchPrompt& prompt : request.prompts) {
        Conversation& conversation = conversations.emplace_back();
        conversation.line = prompt.line;
        for (const std::string& turn : prompt.turns) {
            const bool first = conversation.turns.empty();
            std::vector<TokenId> tokens = first ? start_tokens(tokenizer) : std::vector<TokenId>{};
            const std::vector<TokenId> text = text_tokens(tokenizer, first ? turn : "\n" + turn, config);
            tokens.insert(tokens.end(), text.begin(), text.end());
            if (tokens.empty())
                throw RequestError(
                    fmt::format("{}:{}: a prompt without tokens; the model has no beginning-of-text "
                                "token, so give it some text",
                                request.prompts_file, prompt.line));
            conversation.n_tokens += static_cast<std::int64_t>(tokens.size());
            conversation.turns.push_back(std::move(tokens));
        }
    }
    return conversations;
}

// Tokens of the longest text. Throws RequestError where one does not fit.
std::int64_t longest_text(const BenchRequest& request, const std::vector<Conversation>& conversations,
                          std::int64_t max_tokens, std::int64_t context_tokens) {
    std::int64_t longest = 0;
    for (const Conversation& conversation : conversations) {
        const auto n_turns = static_cast<std::int64_t>(conversation.turns.size());
        const std::int64_t most = conversation.n_tokens + n_turns * max_tokens;
        if (most > context_tokens)
            throw RequestError(
                fmt::format("{}:{}: {} of prompt and {} to generate do not fit into a context of {}; "
                            "raise --ctx or lower --max-tokens",
                            request.prompts_file, conversation.line, counted(conversation.n_tokens, "token"),
                            n_turns * max_tokens, context_tokens));
        longest = std::max(longest, most);
    }
    return longest;
}

std::vector<TokenId> end_tokens_of(const EngineModel& engine, const Tokenizer& tokenizer) {
    std::vector<TokenId> tokens = engine.files->generation_defaults().end_tokens;
    for (const TokenId id : tokenizer.end_tokens()) tokens.push_back(id);
    return tokens;
}

}  // namespace

void run_prompts(BenchResult& result, const BenchRequest& request, EngineModel& engine, CommandContext& context) {
    const std::int64_t max_tokens = request.max_tokens.value_or(kDefaultDecodeTokens);
    const ModelConfig& config = engine.files->config();
    const auto tokenizer = make_tokenizer(engine.files->tokenizer_source());
    const Indexed<Conversation> conversations = encode_prompts(request, *tokenizer, config);
    static_cast<void>(longest_text(request, conversations, max_tokens,
                                   request.compute.context_tokens.value_or(config.context_tokens)));
    measure_and_choose(result, engine, request, context);
    BenchColumns columns(result, request, engine,
                         longest_text(request, conversations, max_tokens, engine.context_tokens),
                         end_tokens_of(engine, *tokenizer), context);

    if (engine.files->chat_template())
        context.console.note(
            "the model has a chat template, which bench does not apply: prompts are continued as raw text");
    result.token_source = "text";
    result.n_prompts = static_cast<std::int64_t>(conversations.size());
    for (const Conversation& conversation : conversations)
        result.n_turns += static_cast<std::int64_t>(conversation.turns.size());
    ProgressBar bar(context.console, "bench");
    columns.converse(conversations.front().turns, max_tokens - 1, BenchSample::WarmUp);
    const std::int64_t n_all = request.repeat * result.n_prompts;
    for (std::int64_t i = 0; i < n_all; ++i) {
        const Conversation& conversation = conversations[i % result.n_prompts];
        columns.converse(conversation.turns, max_tokens - 1, BenchSample::Measured);
        bar.update(static_cast<double>(i + 1), static_cast<double>(n_all),
                   fmt::format("{} of {} prompts", i + 1, n_all));
    }
    columns.put_figures(result);
}

}  // namespace slipstream::tools
