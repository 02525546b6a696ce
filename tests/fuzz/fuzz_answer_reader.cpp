// Fuzz target: any bytes as a generated answer. The first byte chooses the form, whether a thought is open and how the
// rest is divided. Whatever the answer is: how it is divided changes nothing, only white space and marks that were
// understood are missing from what is read, and the arguments of each call are a JSON object.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/answer/json_object_scanner.h"
#include "runtime/text/chat/chat_template.h"

namespace {

using slipstream::AnswerForm;
using slipstream::AnswerPiece;
using slipstream::AnswerReader;
using slipstream::OfferedTools;
using Kind = AnswerPiece::Kind;

constexpr std::array<std::string_view, 8> kTemplates = {"</think>",
                                                        "<tool_call></think>",
                                                        "<tool_call><function=f><parameter=p></think>",
                                                        "<|python_tag|>",
                                                        "[TOOL_CALLS][ARGS][THINK]",
                                                        "<|tool_call|>",
                                                        "<|channel>thought<|tool_call>call:",
                                                        "<|start|><|channel|><|message|>"};

void require(bool holds) {
    if (!holds) std::abort();
}

OfferedTools tools() {
    static const OfferedTools kTools = {
        {.name = "f",
         .parameters = slipstream::parse_template_json(
             R"({"properties": {"n": {"type": "integer"}, "o": {"anyOf": [{"type": "object"}, {"type": "null"}]},
                 "l": {"type": ["array", "boolean", "number"]}, "s": {"type": "string"}}})",
             "schema")},
        {.name = "g"}};
    return kTools;
}

void add(std::vector<AnswerPiece>& all, const std::vector<AnswerPiece>& more) {
    for (const AnswerPiece& piece : more) {
        require(piece.kind == Kind::Call || !piece.text.empty());
        if (piece.kind != Kind::Call && !all.empty() && all.back().kind == piece.kind) {
            all.back().text += piece.text;
        } else {
            all.push_back(piece);
        }
    }
}

std::vector<AnswerPiece> read(const AnswerForm& form, const OfferedTools& offered, AnswerReader::Start start,
                              std::string_view answer, std::size_t part) {
    AnswerReader reader(form, offered, start);
    std::vector<AnswerPiece> all;
    for (std::size_t at = 0; at < answer.size(); at += part) add(all, reader.push(answer.substr(at, part)));
    add(all, reader.finish());
    return all;
}

// Removes white space.
std::string dense(std::string_view text) {
    std::string rest;
    for (const char c : text)
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') rest += c;
    return rest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const unsigned choice = data[0];
    const std::string_view answer(reinterpret_cast<const char*>(data) + 1, size - 1);
    const AnswerForm form =
        slipstream::choose_answer_form(kTemplates[choice % kTemplates.size()], [](std::string_view) { return false; });
    const auto start = (choice & 64) != 0 ? AnswerReader::Start::Thought : AnswerReader::Start::Text;
    const std::vector<AnswerPiece> whole = read(form, tools(), start, answer, size);
    require(read(form, tools(), start, answer, 1) == whole);
    require(read(form, tools(), start, answer, 2 + choice % 13) == whole);

    bool has_calls = false;
    for (const AnswerPiece& piece : whole) {
        if (piece.kind != Kind::Call) continue;
        has_calls = true;
        require(!piece.name.empty() && slipstream::is_json_object(piece.text));
    }
    if (has_calls) return 0;
    std::string text;
    for (const AnswerPiece& piece : whole) text += piece.text;
    if (form.calls == slipstream::CallForm::Harmony) {
        // Headers are missing; nothing is added but empty lines.
        const std::string all = dense(answer);
        std::size_t at = 0;
        for (const char c : dense(text)) {
            at = all.find(c, at);
            require(at++ != std::string::npos);
        }
        return 0;
    }
    // Without a call only the two marks of one thought are missing.
    const std::size_t n_missing = dense(answer).size() - dense(text).size();
    const std::size_t n_open = form.thoughts.open.size(), n_close = form.thoughts.close.size();
    require(n_missing == 0 || n_missing == n_open || n_missing == n_close || n_missing == n_open + n_close);
    // Without tools and thoughts an answer is its content, byte by byte.
    const std::vector<AnswerPiece> plain = read({}, {}, AnswerReader::Start::Text, answer, size);
    require(answer.empty() ? plain.empty() : plain.size() == 1 && plain[0].text == answer);
    return 0;
}
