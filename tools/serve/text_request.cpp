#include "tools/serve/text_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/printable.h"
#include "tools/serve/api_error.h"
#include "tools/serve/dialect_requests.h"
#include "tools/serve/request_fields.h"

namespace slipstream::tools {

namespace {

using jinja::Kind;

constexpr std::int64_t kMostSeed = (std::int64_t{1} << 53) - 1;  // JavaScript's numbers hold no larger one exactly
constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 256;

// Fields that every dialect reads; each DialectParser has those of its dialect.
constexpr std::array<std::string_view, 21> kRead{"model",
                                                 "stream",
                                                 "stream_options",
                                                 "temperature",
                                                 "top_p",
                                                 "top_k",
                                                 "min_p",
                                                 "presence_penalty",
                                                 "frequency_penalty",
                                                 "repeat_penalty",
                                                 "seed",
                                                 "stop",
                                                 "max_tokens",
                                                 "logit_bias",
                                                 "return_progress",
                                                 "repeat_last_n",
                                                 "ignore_eos",
                                                 "response_format",
                                                 "n",
                                                 "max_completion_tokens",
                                                 "repetition_penalty"};
constexpr std::array<std::string_view, 8> kReadByChat{
    "messages",         "logprobs", "top_logprobs", "chat_template_kwargs",
    "reasoning_effort", "tools",    "tool_choice",  "parallel_tool_calls"};

// Fields of other servers that would change the text and are not served, with the value that means "off".
struct Unserved {
    std::string_view name;
    std::optional<double> off{};  // no value: false, "", [] and {} mean "off"
    bool is_off_below = false;    // numbers below `off` mean "off" too
};
constexpr std::array<Unserved, 36> kUnserved{{{"functions"},
                                              {"function_call"},
                                              {"grammar"},
                                              {"json_schema"},
                                              {"guided_json"},
                                              {"guided_regex"},
                                              {"guided_choice"},
                                              {"guided_grammar"},
                                              {"structured_outputs"},
                                              {"modalities"},
                                              {"audio"},
                                              {"web_search_options"},
                                              {"image_data"},
                                              {"lora"},
                                              {"min_tokens", 0.0},
                                              {"min_length", 0.0},
                                              {"min_keep", 0.0},
                                              {"mirostat", 0.0},
                                              {"mirostat_mode", 0.0},
                                              {"typical_p", 1.0},
                                              {"tfs_z", 1.0},
                                              {"top_n_sigma", 0.0, true},
                                              {"xtc_probability", 0.0},
                                              {"dry_multiplier", 0.0},
                                              {"dynatemp_range", 0.0},
                                              {"smoothing_factor", 0.0},
                                              {"top_a", 0.0},
                                              {"epsilon_cutoff", 0.0},
                                              {"eta_cutoff", 0.0},
                                              {"no_repeat_ngram_size", 0.0},
                                              {"guidance_scale", 1.0},
                                              {"penalty_alpha", 0.0},
                                              {"n_indent", 0.0},
                                              {"n_cmpl", 1.0},
                                              {"t_max_predict_ms", 0.0, true},
                                              {"n_probs", 0.0}}};

bool is_off(const TemplateValue& value, const Unserved& field) {
    if (field.name == "modalities" && value.is(Kind::List) && value.items().size() == 1)
        return value.items().front().is_text() && value.items().front().view() == "text";
    if (field.off)
        return value.is_number() && (value.real() == *field.off || (field.is_off_below && value.real() < *field.off));
    return !jinja::is_true(value);
}

// Returns whether the dialect serves the field, which the other dialects refuse.
bool serves(Dialect dialect, const Unserved& field) {
    return dialect == Dialect::Llama && field.name == "n_probs";
}

void check_unserved(Dialect dialect, const RequestFields& fields) {
    for (const Unserved& field : kUnserved) {
        if (serves(dialect, field)) continue;
        const TemplateValue* value = fields.find(field.name);
        if (value != nullptr && !is_off(*value, field))
            throw ApiError::unsupported(std::string(field.name), fmt::format("{} is not served here", field.name));
    }
    const TemplateValue* format = fields.object("response_format");
    if (format != nullptr && RequestFields(*format, "response_format.").text("type") != "text")
        throw ApiError::unsupported("response_format",
                                    "response_format: structured output is not served; only type \"text\" is");
}

void report_ignored(std::span<const std::string_view> read, const TemplateValue& body, const RequestContext& context) {
    if (!context.on_ignored) return;
    const auto contains = [](std::span<const std::string_view> names, std::string_view name) {
        return std::ranges::find(names, name) != names.end();
    };
    for (const auto& [key, value] : body.dict().items())
        if (!contains(kRead, key.view()) && !contains(read, key.view()) &&
            std::ranges::find(kUnserved, key.view(), &Unserved::name) == kUnserved.end())
            context.on_ignored(key.view());
}

TokenBias parse_bias(const RequestFields& fields, std::int64_t id, const TemplateValue& value, std::int64_t vocab) {
    if (id < 0 || id >= vocab)
        fields.refuse("logit_bias", fmt::format("token ids from 0 to {} are expected", vocab - 1));
    if (value.is(Kind::Bool) && !value.truth())
        return {static_cast<TokenId>(id), -std::numeric_limits<float>::infinity()};
    const bool is_number = value.is(Kind::Int) || value.is(Kind::Float);
    if (!is_number || !(std::abs(value.real()) <= kMostBias))
        fields.refuse("logit_bias", fmt::format("numbers from -{0} to {0}, or false, are expected", kMostBias));
    return {static_cast<TokenId>(id), static_cast<float>(value.real())};
}

// Returns the field logit_bias: {"15043": 1, "2": -100}, from token id to bias, or llama-server's [[15043, 1],
// [2, false]], where false forbids the token. No value if it is absent.
std::optional<std::vector<TokenBias>> parse_logit_bias_field(const RequestFields& fields, std::int64_t vocab) {
    const TemplateValue* value = fields.find("logit_bias");
    if (value == nullptr) return std::nullopt;
    std::vector<TokenBias> all;
    if (value->is(Kind::List)) {
        for (const TemplateValue& pair : value->items()) {
            if (!pair.is(Kind::List) || pair.items().size() != 2 || !pair.items()[0].is(Kind::Int))
                fields.refuse("logit_bias", "pairs of a token id and a number are expected");
            all.push_back(parse_bias(fields, pair.items()[0].integer(), pair.items()[1], vocab));
        }
        return all;
    }
    const TemplateValue* object = fields.object("logit_bias");
    for (const auto& [key, bias] : object->dict().items()) {
        std::int64_t id = -1;
        const std::string_view digits = key.view();
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
        if (error != std::errc() || end != digits.data() + digits.size()) id = -1;
        all.push_back(parse_bias(fields, id, bias, vocab));
    }
    return all;
}

SamplingSettings parse_sampling(const RequestFields& fields, const RequestContext& context) {
    SamplingSettings sampling = context.sampling;
    const auto take = [](auto& setting, auto given) {
        if (given) setting = std::move(given);
    };
    take(sampling.temperature, fields.real("temperature", kTemperatureRange));
    take(sampling.top_p, fields.real("top_p", kShareRange));
    take(sampling.min_p, fields.real("min_p", kShareRange));
    take(sampling.repeat_penalty, fields.real("repetition_penalty", kRepeatPenaltyRange));
    take(sampling.repeat_penalty, fields.real("repeat_penalty", kRepeatPenaltyRange));
    take(sampling.presence_penalty, fields.real("presence_penalty", kAddedPenaltyRange));
    take(sampling.frequency_penalty, fields.real("frequency_penalty", kAddedPenaltyRange));
    take(sampling.bias, parse_logit_bias_field(fields, context.vocab));
    if (const auto top_k = fields.integer("top_k", {-1, kTopKRange.highest}))
        sampling.top_k = std::max<std::int64_t>(*top_k, 0);
    if (const auto window = fields.integer("repeat_last_n", kTokenCount))
        sampling.repeat_window = *window == -1 ? kTokenCount.highest : *window;
    if (const auto ignores = fields.boolean("ignore_eos")) sampling.ignore_end = *ignores;
    if (const auto seed = fields.integer("seed", {-1, kMostSeed}))
        sampling.seed = *seed == -1 ? std::nullopt : std::optional(static_cast<std::uint64_t>(*seed));
    return sampling;
}

TextGenerationOptions parse_text(const RequestFields& fields, const RequestContext& context) {
    TextGenerationOptions text = context.text;
    const auto older = fields.integer("max_tokens", kTokenCount);
    if (const auto most = fields.integer("max_completion_tokens", kTokenCount); most || older)
        text.max_tokens = most ? *most : *older;
    if (fields.has("stop")) text.stops = parse_stops(fields, "stop");
    return text;
}

std::optional<int> parse_chat_logprobs(const RequestFields& fields) {
    const auto n = fields.integer("top_logprobs", {0, kMostLogprobs});
    if (!fields.boolean("logprobs").value_or(false)) {
        if (n.value_or(0) > 0) fields.refuse("top_logprobs", "\"logprobs\": true is needed beside it");
        return std::nullopt;
    }
    return static_cast<int>(n.value_or(0));
}

RequestedConversation conversation_of(const RequestFields& fields) {
    const auto value_of = [&](std::string_view name) {
        const TemplateValue* value = fields.find(name);
        return value == nullptr ? TemplateValue::none() : *value;
    };
    const std::vector<TemplateValue>* messages = fields.list("messages");
    if (messages == nullptr || messages->empty())
        fields.refuse("messages", "a list of at least one message is expected");
    return {.messages = value_of("messages"),
            .tools = value_of("tools"),
            .tool_choice = value_of("tool_choice"),
            .template_arguments = value_of("chat_template_kwargs"),
            .reasoning_effort = value_of("reasoning_effort")};
}

void parse_chat(const RequestFields& fields, const RequestContext& /*context*/, TextRequest& request) {
    request.prompt = conversation_of(fields);
    request.n_logprobs = parse_chat_logprobs(fields);
    request.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
}

const DialectParser& parser_of(Dialect dialect) {
    static constexpr DialectParser kChat{kReadByChat, parse_chat};
    switch (dialect) {
        case Dialect::Chat:
            return kChat;
        case Dialect::Completions:
            return completion_parser();
        case Dialect::Messages:
            return messages_parser();
        case Dialect::Responses:
            return responses_parser();
        case Dialect::Llama:
            return llama_parser();
    }
    return kChat;
}

}  // namespace

void demand(const RequestFields& fields, std::string_view name, std::int64_t only) {
    if (fields.integer(name, {1, std::numeric_limits<std::int64_t>::max()}).value_or(only) != only)
        throw ApiError::unsupported(std::string(name), fmt::format("{}: only {} is served", name, only));
}

std::vector<std::string> parse_stops(const RequestFields& fields, std::string_view name) {
    const TemplateValue* value = fields.find(name);
    if (value == nullptr) return {};
    std::vector<std::string> stops;
    const auto add = [&](const TemplateValue& stop) {
        if (!stop.is_text() || stop.view().empty() || stop.view().size() > kMostStopBytes)
            fields.refuse(name, fmt::format("texts of 1 to {} bytes are expected", kMostStopBytes));
        stops.emplace_back(stop.view());
    };
    if (!value->is(Kind::List)) {
        add(*value);
        return stops;
    }
    if (value->items().size() > kMostStops) fields.refuse(name, fmt::format("at most {} texts are taken", kMostStops));
    for (const TemplateValue& stop : value->items()) add(stop);
    return stops;
}

RequestFields fields_of(const TemplateValue& value, const std::string& name) {
    if (!value.is(Kind::Dict)) throw ApiError::invalid(name, fmt::format("{}: an object is expected", name));
    return RequestFields(value, name + ".");
}

void refuse_type(const RequestFields& fields, std::string_view type, std::string_view served) {
    const std::string name = fields.full_name("type");
    throw ApiError::unsupported(name, fmt::format("{}: \"{}\" is not served, only {}", name, printable(type), served));
}

TemplateValue text_part(const std::string& text) {
    return TemplateValue::dict({{"type", TemplateValue("text")}, {"text", TemplateValue(text)}});
}

jinja::Dict function_object(jinja::Dict function) {
    jinja::Dict object;
    object.set("type", TemplateValue("function"));
    object.set("function", TemplateValue::dict(std::move(function)));
    return object;
}

TemplateValue choice_of_tool(const std::string& name) {
    jinja::Dict function;
    function.set("name", TemplateValue(name));
    return TemplateValue::dict(function_object(std::move(function)));
}

RequestedConversation parse_conversation(const TemplateValue& body) {
    return conversation_of(RequestFields(body));
}

TextRequest parse_text_request(Dialect dialect, const TemplateValue& body, const RequestContext& context) {
    const RequestFields fields(body);
    const DialectParser& parser = parser_of(dialect);
    check_unserved(dialect, fields);
    TextRequest request{.dialect = dialect,
                        .prompt = std::string(),
                        .sampling = parse_sampling(fields, context),
                        .text = parse_text(fields, context),
                        .stream = fields.boolean("stream").value_or(false),
                        .return_progress = fields.boolean("return_progress").value_or(false)};
    demand(fields, "n", 1);
    if (const TemplateValue* options = fields.object("stream_options"))
        request.include_usage = RequestFields(*options, "stream_options.").boolean("include_usage").value_or(false);
    parser.parse(fields, context, request);
    report_ignored(parser.fields, body, context);
    return request;
}

}  // namespace slipstream::tools
