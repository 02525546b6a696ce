// The fields of /v1/completions, and of llama-server's own /completion: a raw text is continued.
#include <array>

#include <fmt/format.h>

#include "tools/serve/api_error.h"
#include "tools/serve/dialect_requests.h"

namespace slipstream::tools {

namespace {

using jinja::Kind;

constexpr std::array<std::string_view, 5> kCompletionFields{"prompt", "logprobs", "best_of", "echo", "suffix"};
constexpr std::array<std::string_view, 4> kLlamaFields{"prompt", "n_predict", "post_sampling_probs", "parse_special"};

void parse_prompt(const RequestFields& fields, std::int64_t vocab, TextRequest& request) {
    const TemplateValue* prompt = fields.find("prompt");
    if (prompt == nullptr) fields.refuse("prompt", "a text, or a list of token ids, is expected");
    // A list with one prompt stands for that prompt; a list of integers is itself one prompt, of token ids.
    if (prompt->is(Kind::List) && prompt->items().size() == 1 && !prompt->items().front().is(Kind::Int))
        prompt = &prompt->items().front();
    if (prompt->is_text()) {
        request.prompt = std::string(prompt->view());
        return;
    }
    if (!prompt->is(Kind::List)) fields.refuse("prompt", "a text, or a list of token ids, is expected");
    if (prompt->items().empty()) fields.refuse("prompt", "the list is empty; \"\" is the empty prompt");
    if (prompt->items().size() > 1 && !prompt->items().front().is(Kind::Int))
        throw ApiError::unsupported("prompt", "prompt: one prompt a request is served");
    request.prompt = token_ids(prompt->items(), vocab, "prompt");
}

void parse_completion(const RequestFields& fields, const RequestContext& context, TextRequest& request) {
    demand(fields, "best_of", 1);
    if (fields.boolean("echo").value_or(false)) throw ApiError::unsupported("echo", "echo: only false is served");
    if (!fields.text("suffix").value_or("").empty()) throw ApiError::unsupported("suffix", "suffix is not served");
    parse_prompt(fields, context.vocab, request);
    if (const auto n = fields.integer("logprobs", {0, kMostLogprobs})) request.n_logprobs = static_cast<int>(*n);
}

// Reads the fields of /completion. As in llama-server, the client applies the chat template itself, so the prompt may
// spell control tokens.
void parse_llama(const RequestFields& fields, const RequestContext& context, TextRequest& request) {
    parse_prompt(fields, context.vocab, request);
    if (fields.boolean("parse_special").value_or(true)) request.special = SpecialTokens::Parse;
    if (const auto most = fields.integer("n_predict", kTokenCount)) request.text.max_tokens = *most;
    const auto n = fields.integer("n_probs", {0, kMostLogprobs});
    if (n.value_or(0) == 0) return;
    request.n_logprobs = static_cast<int>(*n);
    if (fields.boolean("post_sampling_probs").value_or(false))
        throw ApiError::unsupported("post_sampling_probs",
                                    "post_sampling_probs: only probabilities before the filters are served");
}

}  // namespace

const DialectParser& completion_parser() {
    static constexpr DialectParser kParser{kCompletionFields, parse_completion};
    return kParser;
}

const DialectParser& llama_parser() {
    static constexpr DialectParser kParser{kLlamaFields, parse_llama};
    return kParser;
}

}  // namespace slipstream::tools
