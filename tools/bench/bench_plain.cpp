// Decoding behind one prompt, again and again.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/bench/bench_columns.h"
#include "tools/bench/bench_runs.h"
#include "tools/bench/bench_tokens.h"
#include "tools/options/command.h"
#include "tools/terminal/amounts.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

// Repeated until it has as many tokens as are wanted.
constexpr std::string_view kBuiltInText =
    "In a village at the edge of the forest there lived a miller who had three sons and one mill. When he felt that "
    "his end was near he called them to him and said that each should go out into the world for a year and bring back "
    "what he had learnt; whoever had learnt the most should have the mill. The eldest took the road to the city, the "
    "second went down to the sea, and the youngest, who could not decide, walked straight into the trees. ";

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

// What was asked for; the built-in lengths give way to a short context.
PlainLengths plain_lengths(const BenchRequest& request, std::int64_t context_tokens) {
    const std::int64_t room = context_tokens - 1;  // the token that ends prefill
    const std::int64_t decode = request.max_tokens.value_or(
        std::min(kDefaultDecodeTokens, request.prompt_tokens ? room - *request.prompt_tokens : room / 2));
    const std::int64_t prompt = request.prompt_tokens.value_or(std::min(kDefaultPromptTokens, room - decode));
    if (prompt < 1 || decode < 1 || prompt + decode > room)
        throw RequestError(fmt::format(
            "{} of prompt, one more and {} to decode do not fit into a context of {}; raise "
            "--ctx, or lower --prompt-tokens or --max-tokens",
            counted(std::max<std::int64_t>(prompt, 1), "token"), std::max<std::int64_t>(decode, 1), context_tokens));
    return {prompt, decode};
}

std::vector<TokenId> plain_prompt(const BenchRequest& request, const Tokenizer* tokenizer, const ModelConfig& config,
                                  std::int64_t n) {
    if (tokenizer == nullptr) return seeded_tokens(n, config.vocab);
    std::vector<TokenId> tokens = start_tokens(*tokenizer);
    const std::vector<TokenId> text =
        text_tokens(*tokenizer, request.prompt ? std::string_view(*request.prompt) : kBuiltInText, config);
    if (text.empty()) throw RequestError("--prompt: the text has no tokens; give another");
    while (static_cast<std::int64_t>(tokens.size()) < n) tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.resize(static_cast<std::size_t>(n));
    return tokens;
}

}  // namespace

void run_plain(BenchResult& result, const BenchRequest& request, EngineModel& engine, CommandContext& context) {
    std::unique_ptr<Tokenizer> tokenizer;
    if (request.prompt) {
        tokenizer = make_tokenizer(engine.files->tokenizer_source());
    } else {
        tokenizer = find_tokenizer(*engine.files, context.console);
    }
    result.token_source = tokenizer ? "text" : "seeded ids";
    const ModelConfig& config = engine.files->config();
    static_cast<void>(plain_lengths(request, request.compute.context_tokens.value_or(config.context_tokens)));
    measure_and_choose(result, engine, request, context);
    const PlainLengths lengths = plain_lengths(request, engine.context_tokens);
    const std::vector<TokenId> prompt = plain_prompt(request, tokenizer.get(), config, lengths.prompt);

    BenchColumns columns(result, request, engine, lengths.prompt + 1 + lengths.decode, {}, context);
    ProgressBar bar(context.console, "bench");
    for (std::int64_t i = 0; i <= request.repeat; ++i) {
        columns.converse({&prompt, 1}, lengths.decode, i == 0 ? BenchSample::WarmUp : BenchSample::Measured);
        bar.update(static_cast<double>(i + 1), static_cast<double>(request.repeat + 1),
                   fmt::format("{} of {} runs", i + 1, request.repeat + 1));
    }
    columns.put_figures(result);
}

}  // namespace slipstream::tools
