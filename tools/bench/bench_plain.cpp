// Decoding behind one prompt, again and again.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

// Repeated until it has as many tokens as are wanted. Longer than the built-in prefill for vocabularies of every size,
// so that nothing in it stands twice: a model that sees the beginning again recites what came behind it.
constexpr std::string_view kBuiltInText =
    "In a village at the edge of the forest there lived a miller who had three sons and one mill. When he felt that "
    "his end was near he called them to him and said that each should go out into the world for a year and bring back "
    "what he had learnt; whoever had learnt the most should have the mill. The eldest took the road to the city, the "
    "second went down to the sea, and the youngest, who could not decide, walked straight into the trees.\n"
    "The city was larger than the eldest had thought, and nobody there was waiting for him. He slept under a bridge "
    "for a week, carried sacks for a grain merchant, and noticed that the merchant's scales were wrong by a handful in "
    "every bushel, always in the same direction. He said nothing, but he learnt to read, so that he could follow what "
    "was written in the books at night. By spring he knew how a price is made, why it rises after rain, and what a "
    "promise is worth when it has been sold twice.\n"
    "At the coast the second son was taken on by a captain with one eye and no patience. He was sick for nine days, "
    "then he was hungry, and then he was useful. He learnt eleven knots, the names of forty stars, and how to sleep "
    "standing. Off an island without a harbour they lost the mainmast in a storm; what saved them was a cook who had "
    "once been a carpenter. From him he learnt that a thing which is broken still shows how it was made.\n"
    "And the youngest? For two days he met only birds. On the third he came upon an old woman who was trying to move "
    "a stone the size of a cow out of a spring. He asked why she did not dig around it instead. She laughed, gave him "
    "the spade, and sat down. While he dug she told him which mushrooms quarrel with which, how a fox counts, where "
    "the wind goes in winter, and that water is never in a hurry and always arrives. In the evening the stone rolled "
    "aside by itself, and under it lay a small wheel of iron with seventeen teeth.\n"
    "A year is soon over. They came home on the same morning, one with a ledger, one with a scar, one with a wheel in "
    "his pocket. Their father listened to each of them until the candle had burned down. Then he asked a single "
    "question, the same for all three: what would you do if the river ran dry tomorrow?\n"
    "The eldest answered that flour would cost twice as much by noon, so he would buy grain today, on credit, and "
    "lend the wheel of the mill to the smith as a grindstone until it rained. The second said he would build sails "
    "upon the roof, for wind had moved heavier things than a millstone. The youngest took his time. He would first "
    "walk up along the bed, he thought, past the bridge and the two meadows, and look at what lay on the spring; a "
    "river seldom goes anywhere without a reason, and somebody up there might be tired of pushing. The old man "
    "smiled, asked for his boots, and wanted to see the place himself before supper. So all four of them set out, "
    "with bread, a rope, one lantern, and the dog, which had not been asked. ";

// The model's tokenizer; none where there is none, or none that can be used.
std::unique_ptr<Tokenizer> find_tokenizer(const ModelFiles& files, Console& console) {
    try {
        return make_tokenizer(files.tokenizer_source());
    } catch (const Error& error) {
        console.note(fmt::format("{}; seeded ids stand in for a prompt", error.what()));
        return nullptr;
    }
}

struct PlainLengths {
    std::int64_t prompt;
    std::int64_t decode;
};

// What was asked for; the built-in lengths give way to a short context. `fixed`: of a prompt that is neither cut nor
// repeated.
PlainLengths plain_lengths(const BenchRequest& request, std::optional<std::int64_t> fixed,
                           std::int64_t context_tokens) {
    const std::int64_t room = context_tokens - 1;  // the token that ends prefill
    const std::optional<std::int64_t> given = fixed ? fixed : request.prompt_tokens;
    const std::int64_t decode =
        request.max_tokens.value_or(std::min(kDefaultDecodeTokens, given ? room - *given : room / 2));
    const std::int64_t prompt = given.value_or(std::min(kDefaultPromptTokens, room - decode));
    if (prompt < 1 || decode < 1 || prompt + decode > room)
        throw RequestError(fmt::format("{} of prompt, one more and {} to decode do not fit into a context of {}; {}",
                                       counted(std::max<std::int64_t>(prompt, 1), "token"),
                                       std::max<std::int64_t>(decode, 1), context_tokens,
                                       request.session ? "lower --max-tokens, or begin the session with a larger --ctx"
                                       : fixed         ? "raise --ctx, shorten the prompt or lower --max-tokens"
                                                       : "raise --ctx, or lower --prompt-tokens or --max-tokens"));
    return {prompt, decode};
}

std::string_view prompt_text(const BenchRequest& request) {
    return request.prompt ? std::string_view(*request.prompt) : kBuiltInText;
}

// Through a chat template; nothing where the text is raw. The name of the template goes into the result.
std::optional<std::vector<TokenId>> templated_prompt(BenchResult& result, const BenchRequest& request,
                                                     const OpenedModel& opened, const Tokenizer* tokenizer,
                                                     CommandContext& context) {
    if (tokenizer == nullptr) return std::nullopt;
    const BenchForm form(request, opened, *tokenizer, console_callbacks(context));
    if (form.is_raw()) return std::nullopt;
    result.template_name = form.template_name();
    const std::string text(prompt_text(request));
    return form.prompt({&text, 1}, {});
}

std::vector<TokenId> raw_prompt(const BenchRequest& request, const Tokenizer* tokenizer, const ModelConfig& config,
                                std::int64_t n) {
    if (tokenizer == nullptr) return seeded_tokens(n, config.vocab);
    std::vector<TokenId> tokens = start_tokens(*tokenizer);
    const std::vector<TokenId> text = text_tokens(*tokenizer, prompt_text(request), config);
    if (text.empty()) throw RequestError("--prompt: the text has no tokens; give another");
    while (static_cast<std::int64_t>(tokens.size()) < n) tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.resize(n);
    return tokens;
}

}  // namespace

void run_plain(BenchResult& result, const BenchRequest& request, OpenedModel opened, TextSession* session,
               CommandContext& context) {
    std::unique_ptr<Tokenizer> tokenizer;
    if (request.prompt || request.chat_template.choice != TemplateChoice::None) {
        tokenizer = make_tokenizer(opened.files().tokenizer_source());
    } else if (session == nullptr) {
        tokenizer = find_tokenizer(opened.files(), context.console);
    }
    result.token_source = tokenizer || session != nullptr ? "text" : "seeded ids";
    const ModelConfig& config = opened.config();
    std::optional<std::vector<TokenId>> whole = templated_prompt(result, request, opened, tokenizer.get(), context);
    if (session != nullptr) whole = session->begin().prompt;
    const auto fixed = whole ? std::optional(std::ssize(*whole)) : std::nullopt;
    static_cast<void>(plain_lengths(request, fixed, request.compute.context_tokens.value_or(config.context_tokens)));
    PlacedModel placed = place_and_measure(result, std::move(opened), request, context);
    const PlainLengths lengths = plain_lengths(request, fixed, placed.context_tokens());
    const std::vector<TokenId> prompt =
        whole ? std::move(*whole) : raw_prompt(request, tokenizer.get(), config, lengths.prompt);
    const BenchTalk talk{.prompt = [&](auto&&...) { return prompt; }};
    result.prompt_tokens = lengths.prompt;
    std::int64_t longest = lengths.prompt + 1 + lengths.decode;
    if (session != nullptr) longest = std::max(longest, std::ssize(session_text(*session)));

    BenchColumns columns(result, request, std::move(placed), longest, {}, context);
    if (session != nullptr) columns.restore(*session, console_callbacks(context));
    ProgressBar bar(context.console, "bench");
    for (std::int64_t i = 0; i <= request.repeat; ++i) {
        columns.converse(talk, lengths.decode, i == 0 ? BenchSample::WarmUp : BenchSample::Measured);
        bar.update(static_cast<double>(i + 1), static_cast<double>(request.repeat + 1),
                   fmt::format("{} of {} runs", i + 1, request.repeat + 1));
    }
    columns.put_figures(result);
    columns.report_repeats(context.console);
}

}  // namespace slipstream::tools
