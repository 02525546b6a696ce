#include "tools/serve/answer_json.h"

#include <fmt/format.h>

#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::tools {

std::string json_text(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view token_text(const Tokenizer& tokenizer, TokenId id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    return bytes.empty() ? tokenizer.piece(id) : bytes;
}

std::string data_event(const Json& json) {
    return fmt::format("data: {}\n\n", json_text(json));
}

std::string named_event(const Json& json) {
    return fmt::format("event: {}\n{}", json.at("type").get_ref<const std::string&>(), data_event(json));
}

Json byte_list(std::string_view bytes) {
    Json list = Json::array();
    for (const unsigned char byte : bytes) list.push_back(byte);
    return list;
}

Json usage_json(const TextOutcome& outcome) {
    const std::int64_t n_prompt = outcome.result.prompt_tokens;
    const auto n_generated = static_cast<std::int64_t>(outcome.result.tokens.size());
    return {{"prompt_tokens", n_prompt},
            {"completion_tokens", n_generated},
            {"total_tokens", n_prompt + n_generated},
            {"prompt_tokens_details", {{"cached_tokens", outcome.reused_tokens}}}};
}

void add_figures(Json& answer, const AnswerHead& head, const TextOutcome& outcome) {
    const TextGenerationResult& result = outcome.result;
    answer["timings"] = {{"cache_n", outcome.reused_tokens},
                         {"prompt_n", result.prompt_tokens - outcome.reused_tokens},
                         {"prompt_ms", 1e3 * result.prefill_seconds},
                         {"predicted_n", result.tokens.size()},
                         {"predicted_ms", 1e3 * result.decode_seconds},
                         {"predicted_per_second", result.tokens_per_second},
                         {"draft_n", outcome.draft_tokens},
                         {"draft_n_accepted", outcome.draft_accepted}};
    answer["slipstream"] = {
        {"seed", head.seed}, {"stop_reason", stop_reason_name(result.stop_reason)}, {"passes", result.passes}};
}

Json progress_json(const PromptProgressReport& progress) {
    return {{"total", progress.total},
            {"cache", progress.cached},
            {"processed", progress.processed},
            {"time_ms", progress.milliseconds}};
}

}  // namespace slipstream::tools
