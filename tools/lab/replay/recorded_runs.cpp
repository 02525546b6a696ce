#include "tools/lab/replay/recorded_runs.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"

namespace slipstream::tools {

namespace {

using nlohmann::json;

// Calls use(line, where) for each line that is not blank; `where` is "NAME:LINE".
template <typename Use>
void for_each_line(std::string_view text, std::string_view name, const Use& use) {
    for (std::int64_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \t\r") != std::string_view::npos) use(line, fmt::format("{}:{}", name, number));
    }
}

std::vector<std::string> texts(const JsonFields& fields, const char* key) {
    const json* list = fields.find(key);
    if (list == nullptr || !list->is_array() || list->empty()) fields.fail(key, "is not a list of texts");
    std::vector<std::string> result;
    for (const json& text : *list) {
        if (!text.is_string()) fields.fail(key, "holds something that is not a text");
        result.push_back(text.get<std::string>());
    }
    return result;
}

// Returns a list of counts, each at least `lowest`; an empty list if the key is missing.
std::vector<std::int64_t> counts(const JsonFields& fields, const char* key, std::int64_t lowest) {
    std::vector<std::int64_t> result;
    const json* list = fields.find(key);
    if (list == nullptr) return result;
    if (!list->is_array()) fields.fail(key, "is not a list");
    for (const json& value : *list) {
        result.push_back(fields.to_integer(value, key));
        if (result.back() < lowest)
            fields.fail(key, fmt::format("holds {}, and counts start at {}", result.back(), lowest));
    }
    return result;
}

const json& first_choice(const JsonFields& fields) {
    const json* choices = fields.find("choices");
    if (choices == nullptr || !choices->is_array() || choices->empty() || !choices->front().is_object())
        fields.fail("choices", "is not a list of objects");
    return choices->front();
}

}  // namespace

std::vector<RecordedRun> parse_recorded_runs(std::string_view trace, std::string_view trace_name,
                                             std::string_view prompts, std::string_view prompts_name) {
    std::map<std::int64_t, std::vector<std::string>> questions;
    for_each_line(prompts, prompts_name, [&](std::string_view line, const std::string& where) {
        const json object = parse_json_object(line, where);
        const JsonFields fields(object, where);
        const std::int64_t id = fields.required("question_id");
        if (!questions.emplace(id, texts(fields, "turns")).second)
            fields.fail("question_id", fmt::format("is {}, as that of an earlier line", id));
    });
    std::vector<RecordedRun> runs;
    for_each_line(trace, trace_name, [&](std::string_view line, const std::string& where) {
        const json object = parse_json_object(line, where);
        const JsonFields fields(object, where);
        const JsonFields choice(first_choice(fields), where);
        RecordedRun& run = runs.emplace_back();
        run.question_id = fields.required("question_id");
        run.category = fields.string("category").value_or("");
        run.accept_lengths = counts(choice, "accept_lengths", 1);
        const std::vector<std::string> answers = texts(choice, "turns");
        const std::vector<std::int64_t> new_tokens = counts(choice, "new_tokens", 0);
        const auto question = questions.find(run.question_id);
        if (question == questions.end())
            fields.fail("question_id", fmt::format("is {}, which is not in {}", run.question_id, prompts_name));
        if (question->second.size() < answers.size())
            fields.fail("choices", fmt::format("holds {} answers, and {} has {} prompts for question {}",
                                               answers.size(), prompts_name, question->second.size(), run.question_id));
        if (!new_tokens.empty() && new_tokens.size() != answers.size())
            fields.fail("new_tokens", fmt::format("holds {} counts for {} answers", new_tokens.size(), answers.size()));
        for (std::size_t i = 0; i < answers.size(); ++i) {
            RecordedTexts& turn = run.turns.emplace_back();
            turn.prompt = question->second[i];
            turn.answer = answers[i];
            if (!new_tokens.empty()) turn.new_tokens = new_tokens[i];
        }
    });
    if (runs.empty())
        throw RequestError(fmt::format("{}: holds no answers; one JSON object a line is expected", trace_name));
    return runs;
}

}  // namespace slipstream::tools
