#include "tools/serve/text_request.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/text/request/request_json.h"
#include "tools/serve/api_error.h"
#include "tools/serve/request_fields.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TextRequest parse(Dialect dialect, const std::string& body, RequestContext context = {}) {
    context.vocab = 1000;
    return parse_text_request(dialect, parse_request_body(body), context);
}

TextRequest chat_with(const std::string& fields) {
    return parse(Dialect::Chat, R"({"messages": [{"role": "user", "content": "a"}])" + fields + "}");
}

TextRequest completion_with(const std::string& fields) {
    return parse(Dialect::Completions, R"({"prompt": "a")" + fields + "}");
}

/// The field that a refusal names, "none" if nothing is refused.
template <typename Parse>
std::string refused(Parse parse_it) {
    try {
        static_cast<void>(parse_it());
    } catch (const ApiError& error) {
        EXPECT_EQ(error.status(), 400);
        return error.param();
    }
    return "none";
}

std::string refused_by_both(const std::string& fields) {
    const std::string by_chat = refused([&] { return chat_with(fields); });
    EXPECT_EQ(refused([&] { return completion_with(fields); }), by_chat) << fields;
    return by_chat;
}

TEST(TextRequest, TakesWhatARequestSays) {
    const TextRequest request = chat_with(
        R"(, "temperature": 0.5, "top_p": 1, "top_k": -1, "min_p": 0.1, "repeat_penalty": 1.1, "presence_penalty": -2,
           "frequency_penalty": 2, "seed": 7, "max_tokens": 9, "max_completion_tokens": 8, "stop": ["x", "yy"],
           "logit_bias": {"15": 1.5, "16": -100}, "ignore_eos": true, "stream": true, "return_progress": true,
           "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 3, "repeat_last_n": -1)");
    EXPECT_EQ(request.sampling.temperature, 0.5);
    EXPECT_EQ(request.sampling.top_p, 1.0);
    EXPECT_EQ(request.sampling.top_k, 0);
    EXPECT_EQ(request.sampling.min_p, 0.1);
    EXPECT_EQ(request.sampling.repeat_penalty, 1.1);
    EXPECT_EQ(request.sampling.presence_penalty, -2.0);
    EXPECT_EQ(request.sampling.frequency_penalty, 2.0);
    EXPECT_EQ(request.sampling.repeat_window, std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(request.sampling.seed, 7U);
    EXPECT_TRUE(request.sampling.ignore_end);
    EXPECT_THAT(*request.sampling.bias, ElementsAre(TokenBias{15, 1.5F}, TokenBias{16, -100.0F}));
    EXPECT_EQ(request.text.max_tokens, 8);
    EXPECT_THAT(request.text.stops, ElementsAre("x", "yy"));
    EXPECT_EQ(request.n_logprobs, 3);
    EXPECT_TRUE(request.stream && request.include_usage && request.return_progress);
}

TEST(TextRequest, TakesTheServersValuesForTheRest) {
    RequestContext context;
    context.sampling.temperature = 0.25;
    context.sampling.seed = 5;
    context.text.max_tokens = 50;
    context.text.stops = {"end"};
    const TextRequest request = parse(Dialect::Completions, R"({"prompt": "a", "temperature": null})", context);
    EXPECT_EQ(request.sampling.temperature, 0.25);
    EXPECT_EQ(request.sampling.seed, 5U);
    EXPECT_EQ(request.text.max_tokens, 50);
    EXPECT_THAT(request.text.stops, ElementsAre("end"));
    EXPECT_FALSE(request.n_logprobs);
    EXPECT_FALSE(parse(Dialect::Completions, R"({"prompt": "a", "seed": -1})", context).sampling.seed);
}

TEST(TextRequest, RangesEveryNumber) {
    for (const char* bad : {"-0.1", "1001", "\"1\"", "true", "[]"})
        EXPECT_EQ(refused_by_both(std::string(R"(, "temperature": )") + bad), "temperature") << bad;
    EXPECT_EQ(refused_by_both(R"(, "top_p": 1.01)"), "top_p");
    EXPECT_EQ(refused_by_both(R"(, "min_p": -1)"), "min_p");
    EXPECT_EQ(refused_by_both(R"(, "top_k": -2)"), "top_k");
    EXPECT_EQ(refused_by_both(R"(, "top_k": 1.5)"), "top_k");
    EXPECT_EQ(refused_by_both(R"(, "repeat_penalty": 0)"), "repeat_penalty");
    EXPECT_EQ(refused_by_both(R"(, "presence_penalty": 101)"), "presence_penalty");
    EXPECT_EQ(refused_by_both(R"(, "frequency_penalty": -101)"), "frequency_penalty");
    EXPECT_EQ(refused_by_both(R"(, "seed": -2)"), "seed");
    EXPECT_EQ(refused_by_both(R"(, "seed": 9007199254740992)"), "seed");
    EXPECT_EQ(refused_by_both(R"(, "seed": 18446744073709551616)"), "seed");
    EXPECT_EQ(refused_by_both(R"(, "max_tokens": -2)"), "max_tokens");
    EXPECT_EQ(refused_by_both(R"(, "max_tokens": 1e300)"), "max_tokens");
    EXPECT_EQ(refused_by_both(R"(, "max_completion_tokens": "9")"), "max_completion_tokens");
    EXPECT_EQ(refused_by_both(R"(, "stream": 1)"), "stream");
    EXPECT_EQ(refused_by_both(R"(, "logit_bias": {"1000": 1})"), "logit_bias");
    EXPECT_EQ(refused_by_both(R"(, "logit_bias": {"x": 1})"), "logit_bias");
    EXPECT_EQ(refused_by_both(R"(, "logit_bias": {"1": 1001})"), "logit_bias");
    EXPECT_EQ(refused_by_both(R"(, "logit_bias": [[1]])"), "logit_bias");
    EXPECT_EQ(refused_by_both(R"(, "stop": "")"), "stop");
    EXPECT_EQ(refused_by_both(R"(, "stop": [1])"), "stop");
    EXPECT_EQ(refused_by_both(R"(, "stop": ")" + std::string(257, 'x') + "\""), "stop");
    EXPECT_EQ(refused_by_both(R"(, "stop": ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])"),
              "stop");
    EXPECT_EQ(refused_by_both(R"(, "stream_options": {"include_usage": 1})"), "stream_options.include_usage");
    EXPECT_EQ(refused([] { return chat_with(R"(, "logprobs": true, "top_logprobs": 21)"); }), "top_logprobs");
    EXPECT_EQ(refused([] { return chat_with(R"(, "top_logprobs": 2)"); }), "top_logprobs");
    EXPECT_EQ(refused([] { return completion_with(R"(, "logprobs": 21)"); }), "logprobs");
}

TEST(TextRequest, RefusesByNameWhatIsNotServed) {
    for (const char* name : {"grammar", "json_schema", "guided_json", "structured_outputs"})
        EXPECT_EQ(refused_by_both(std::string(R"(, ")") + name + R"(": "x")"), name);
    EXPECT_EQ(refused_by_both(R"(, "response_format": {"type": "json_object"})"), "response_format");
    EXPECT_EQ(refused_by_both(R"(, "response_format": {"type": "text"})"), "none");
    EXPECT_EQ(refused_by_both(R"(, "modalities": ["text"])"), "none");
    EXPECT_EQ(refused_by_both(R"(, "modalities": ["text", "audio"])"), "modalities");
    EXPECT_EQ(refused_by_both(R"(, "n": 2)"), "n");
    EXPECT_EQ(refused_by_both(R"(, "n": 1)"), "none");
    EXPECT_EQ(refused_by_both(R"(, "min_tokens": 3)"), "min_tokens");
    EXPECT_EQ(refused_by_both(R"(, "mirostat": 2)"), "mirostat");
    EXPECT_EQ(refused_by_both(R"(, "mirostat": 0, "typical_p": 1.0, "top_a": 0)"), "none");
    EXPECT_EQ(refused_by_both(R"(, "n_probs": 2)"), "n_probs");
    EXPECT_EQ(refused_by_both(R"(, "top_n_sigma": 0.5)"), "top_n_sigma");
    EXPECT_EQ(refused_by_both(R"(, "top_n_sigma": -1, "image_data": [], "grammar": "", "json_schema": {})"), "none");
    EXPECT_EQ(refused([] { return completion_with(R"(, "best_of": 2)"); }), "best_of");
    EXPECT_EQ(refused([] { return completion_with(R"(, "echo": true)"); }), "echo");
    EXPECT_EQ(refused([] { return completion_with(R"(, "suffix": "x")"); }), "suffix");
    EXPECT_EQ(refused([] { return completion_with(R"(, "best_of": 1, "echo": false, "suffix": null)"); }), "none");
}

TEST(TextRequest, NamesIgnoredFields) {
    std::vector<std::string> ignored;
    RequestContext context;
    context.on_ignored = [&](std::string_view field) { ignored.emplace_back(field); };
    static_cast<void>(
        parse(Dialect::Completions, R"({"prompt": "a", "user": "me", "model": "x", "store": true})", context));
    EXPECT_THAT(ignored, ElementsAre("user", "store"));
}

// The fields that all dialects share are ranged in each of them.
TEST(TextRequest, RangesTheSharedFieldsInEveryDialect) {
    const auto refused_in = [](Dialect dialect, const std::string& fields) {
        return refused([&] {
            return parse(dialect, R"({"messages": [{"role": "user", "content": "a"}], "input": "a", "prompt": )" +
                                      std::string(dialect == Dialect::Responses ? "null" : R"("a")") + fields + "}");
        });
    };
    for (const Dialect dialect : {Dialect::Messages, Dialect::Responses, Dialect::Llama}) {
        EXPECT_EQ(refused_in(dialect, R"(, "temperature": -0.1)"), "temperature");
        EXPECT_EQ(refused_in(dialect, R"(, "top_p": 1.5)"), "top_p");
        EXPECT_EQ(refused_in(dialect, R"(, "top_k": 1e30)"), "top_k");
        EXPECT_EQ(refused_in(dialect, R"(, "seed": 9007199254740992)"), "seed");
        EXPECT_EQ(refused_in(dialect, R"(, "logit_bias": [[1000, 1]])"), "logit_bias");
        EXPECT_EQ(refused_in(dialect, R"(, "grammar": "root")"), "grammar");
        EXPECT_EQ(refused_in(dialect, R"(, "n": 2)"), "n");
        EXPECT_EQ(refused_in(dialect, R"(, "seed": 5, "temperature": 0)"), "none");
    }
}

TEST(TextRequest, TakesAPromptAsTextOrIds) {
    const auto prompt_of = [](const std::string& prompt) {
        return parse(Dialect::Completions, R"({"prompt": )" + prompt + "}").prompt;
    };
    EXPECT_EQ(std::get<std::string>(prompt_of(R"("text")")), "text");
    EXPECT_EQ(std::get<std::string>(prompt_of(R"(["text"])")), "text");
    EXPECT_THAT(std::get<std::vector<TokenId>>(prompt_of("[1, 2]")), ElementsAre(1, 2));
    EXPECT_THAT(std::get<std::vector<TokenId>>(prompt_of("[[7]]")), ElementsAre(7));
    for (const char* bad : {"null", "1", "{}", "[]", "[1, 1000]", "[-1]", "[1, \"a\"]", R"(["a", "b"])", "[[1], [2]]"})
        EXPECT_EQ(refused([&] { return prompt_of(bad); }), "prompt") << bad;
}

TEST(TextRequest, DemandsMessages) {
    for (const char* bad : {"{}", R"({"messages": []})", R"({"messages": null})", R"({"messages": {}})"})
        EXPECT_EQ(refused([&] { return parse(Dialect::Chat, bad); }), "messages") << bad;
}

TEST(RequestFields, BoundsDepthAndValues) {
    const auto is_taken = [](const std::string& text) {
        try {
            static_cast<void>(parse_request_body(text));
            return true;
        } catch (const ApiError& error) {
            EXPECT_EQ(error.status(), 400);
            return false;
        }
    };
    const auto nested = [](std::size_t n) { return R"({"a":)" + std::string(n, '[') + std::string(n, ']') + "}"; };
    EXPECT_TRUE(is_taken(nested(kMaxRequestDepth - 1)));
    EXPECT_FALSE(is_taken(nested(kMaxRequestDepth)));
    EXPECT_FALSE(is_taken(nested(1 << 20)));
    std::string many = R"({"a":[)";
    for (std::size_t i = 0; i < kMaxRequestValues; ++i) many += "[],";
    EXPECT_FALSE(is_taken(many + "[]]}"));
    for (const char* bad : {"", "[]", "1", "{", "{}{}", "{\"a\":1e999}", "{\"a\":\"\xff\"}", "{a:1}", "\xef\xbb\xbf"})
        EXPECT_FALSE(is_taken(bad)) << bad;
    EXPECT_TRUE(is_taken("{}"));
}

TEST(RequestFields, TheLastOfTwoEqualKeysCounts) {
    const TemplateValue body = parse_request_body(R"({"a": 1, "a": 2})");
    EXPECT_EQ(RequestFields(body).integer("a", {}), 2);
}

TEST(ApiError, SaysWhatAgentsLookFor) {
    const std::string body = ApiError::too_long(5000, 4096).body();
    EXPECT_THAT(body, HasSubstr(R"("code":"context_length_exceeded")"));
    EXPECT_THAT(body, HasSubstr(R"("type":"exceed_context_size_error")"));
    EXPECT_THAT(body, HasSubstr("exceeds the available context size"));
    EXPECT_THAT(body, HasSubstr("maximum context length is 4096 tokens"));
    EXPECT_THAT(body, HasSubstr(R"("n_prompt_tokens":5000,"n_ctx":4096)"));
}

TEST(ApiError, SaysWhetherToTryAgain) {
    const auto fields = [](const ApiError& error) { return error.answer().fields; };
    EXPECT_THAT(fields(ApiError::queue_full(16)), ElementsAre(HttpField{"Retry-After", "10"}));
    EXPECT_THAT(fields(ApiError::of(OutOfBudget("x"))), ElementsAre(HttpField{"x-should-retry", "false"}));
    EXPECT_EQ(ApiError::of(OutOfBudget("x")).status(), 503);
    EXPECT_EQ(ApiError::of(RequestError("x")).status(), 400);
    EXPECT_EQ(ApiError::of(std::runtime_error("x")).status(), 500);
    EXPECT_TRUE(fields(ApiError::invalid("n", "x")).empty());
}

}  // namespace
}  // namespace slipstream::tools
