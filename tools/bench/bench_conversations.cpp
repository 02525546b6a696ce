// Prompts mode: decodes the conversations of a file, each with all its turns.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/amounts.h"
#include "tools/bench/bench_columns.h"
#include "tools/bench/bench_runs.h"
#include "tools/bench/bench_talk.h"
#include "tools/bench/bench_tokens.h"
#include "tools/cli/console_callbacks.h"
#include "tools/options/command.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

// One line of the file, as the model reads it.
struct Conversation {
    std::int64_t line = 0;
    std::int64_t n_tokens = 0;  // tokens of all prompts together
    BenchTalk talk;
};

// Turns after the first begin on a new line after the generated text.
Conversation raw_conversation(const BenchPrompt& prompt, const std::string& file, const Tokenizer& tokenizer,
                              const ModelConfig& config) {
    Conversation conversation{.line = prompt.line, .talk = {.n_turns = std::ssize(prompt.turns)}};
    std::vector<std::vector<TokenId>> turns;
    for (const std::string& turn : prompt.turns) {
        std::vector<TokenId> tokens = turns.empty() ? start_tokens(tokenizer) : std::vector<TokenId>{};
        const std::vector<TokenId> text = text_tokens(tokenizer, turns.empty() ? turn : "\n" + turn, config);
        tokens.insert(tokens.end(), text.begin(), text.end());
        if (tokens.empty())
            throw RequestError(
                fmt::format("{}:{}: a prompt without tokens; the model has no beginning-of-text token, so give it some "
                            "text",
                            file, prompt.line));
        conversation.n_tokens += std::ssize(tokens);
        turns.push_back(std::move(tokens));
    }
    conversation.talk.prompt = [turns](std::int64_t turn, std::span<const TokenId> text,
                                       std::span<const std::vector<TokenId>>) {
        std::vector<TokenId> tokens(text.begin(), text.end());
        tokens.insert(tokens.end(), turns[turn].begin(), turns[turn].end());
        return tokens;
    };
    return conversation;
}

Conversation templated_conversation(const BenchPrompt& prompt, const std::string& file, const BenchForm& form,
                                    std::int64_t max_tokens) {
    Conversation conversation{.line = prompt.line, .talk = {.n_turns = std::ssize(prompt.turns)}};
    conversation.n_tokens =
        std::ssize(form.prompt(prompt.turns, std::vector<std::vector<TokenId>>(prompt.turns.size() - 1)));
    const std::int64_t most = conversation.n_tokens + (conversation.talk.n_turns - 1) * max_tokens;
    conversation.talk.prompt = [&prompt, &file, &form, most](std::int64_t turn, std::span<const TokenId>,
                                                             std::span<const std::vector<TokenId>> answers) {
        const auto turns = std::span(prompt.turns).first(static_cast<std::size_t>(turn) + 1);
        std::vector<TokenId> tokens = form.prompt(turns, answers);
        if (std::ssize(tokens) > most)
            throw RequestError(
                fmt::format("{}:{}: an answer has more tokens when the chat template renders it again than when it was "
                            "generated, and the conversation does not fit any more; raise --max-tokens",
                            file, prompt.line));
        return tokens;
    };
    return conversation;
}

// Returns the length of the longest text in tokens. Throws RequestError if a conversation does not fit into the
// context.
std::int64_t longest_text(const BenchRequest& request, const std::vector<Conversation>& conversations,
                          std::int64_t max_tokens, std::int64_t context_tokens) {
    std::int64_t longest = 0;
    for (const Conversation& conversation : conversations) {
        const std::int64_t n_turns = conversation.talk.n_turns;
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

}  // namespace

void run_prompts(BenchResult& result, const BenchRequest& request, OpenedModel opened, CommandContext& context) {
    const std::int64_t max_tokens = request.max_tokens.value_or(kDefaultDecodeTokens);
    const ModelConfig& config = opened.config();
    const auto tokenizer = make_tokenizer(opened.files().tokenizer_source());
    const BenchForm form(request, opened, *tokenizer, console_callbacks(context));
    std::vector<Conversation> conversations;
    for (const BenchPrompt& prompt : request.prompts)
        conversations.push_back(form.is_raw() ? raw_conversation(prompt, request.prompts_file, *tokenizer, config)
                                              : templated_conversation(prompt, request.prompts_file, form, max_tokens));
    static_cast<void>(longest_text(request, conversations, max_tokens,
                                   request.compute.context_tokens.value_or(config.context_tokens)));
    PlacedModel placed = place_and_measure(result, std::move(opened), request.compute, context);
    const std::int64_t longest = longest_text(request, conversations, max_tokens, placed.context_tokens());
    BenchColumns columns(result, request, std::move(placed), longest, form.end_tokens(), context);

    result.token_source = "text";
    result.template_name = form.template_name();
    result.n_prompts = static_cast<std::int64_t>(conversations.size());
    for (const Conversation& conversation : conversations) result.n_turns += conversation.talk.n_turns;
    ProgressBar bar(context.console, "bench");
    const std::int64_t n_all = request.repeat * result.n_prompts;
    // The first conversation is not measured, then each is.
    for (std::int64_t i = -1; i < n_all; ++i) {
        const Conversation& conversation = conversations[std::max<std::int64_t>(i, 0) % result.n_prompts];
        const std::string figures =
            i < 0 ? "a first prompt, not measured" : fmt::format("prompt {} of {}", i + 1, n_all);
        columns.converse(conversation.talk, max_tokens - 1, i < 0 ? BenchSample::WarmUp : BenchSample::Measured,
                         [&](double share) {
                             bar.update(static_cast<double>(i + 1) + share, static_cast<double>(n_all + 1), figures);
                         });
    }
    columns.put_figures(result);
    columns.report_repeats(context.console);
}

}  // namespace slipstream::tools
