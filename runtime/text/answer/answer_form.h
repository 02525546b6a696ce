// How a model writes thoughts and tool calls in its answers. The form is chosen by the marks that the model's chat
// template writes (a template must repeat old calls and thoughts exactly as the model wrote them), in this order:
//
// | in the template              | form    | a call in an answer                                                   |
// |------------------------------|---------|-----------------------------------------------------------------------|
// | [TOOL_CALLS]                 | Mistral | [TOOL_CALLS][{"name": N, "arguments": A}, ...], or, in newer models,   |
// |                              |         | [TOOL_CALLS]N[ARGS]A, with [CALL_ID]I before [ARGS] in some            |
// | <function= and <parameter=   | QwenXml | <tool_call> <function=N> <parameter=K> V </parameter> </function>      |
// |                              |         | </tool_call>; models often leave <tool_call> out                      |
// | <tool_call>, but no <arg_key>| Hermes  | <tool_call> {"name": N, "arguments": A} </tool_call> (Qwen, SmolLM3)   |
// | <|tool_call>                 | Gemma4  | <|tool_call>call:N{K:V,...}<tool_call|>, strings between two <|"|>     |
// | <|tool_call|> or <|tool|>    | Phi4    | <|tool_call|> a call or a list of calls as JSON <|/tool_call|>, or     |
// |                              |         | functools[...] (Granite 3 writes the list, too)                       |
// | <|start|>, <|channel|> and   | Harmony | <|channel|>commentary to=functions.N <|constrain|>json<|message|>A    |
// | <|message|>                  |         | (gpt-oss; thoughts are messages, too: harmony_reader.h)               |
// | <atem:invoke or              | Muse    | to=N<|message|><atem:function_calls> <atem:invoke name="N">            |
// | to=self<|message|>           |         | <atem:parameter name="K">V</atem:parameter> </atem:invoke>             |
// |                              |         | </atem:function_calls> (thoughts are messages, too)                    |
// | <|python_tag|>, or ipython   | Llama3  | {"name": N, "parameters": A} at the beginning of the answer, or after  |
// | and <|start_header_id|>      |         | <|python_tag|>; several are separated by ";"                          |
// | anything else                | None    | calls are not read; they are text                                     |
//
// Thoughts are between <think> and </think>, between [THINK] and [/THINK], or between <|channel>thought and <channel|>,
// if the template writes one of the two marks, or else if the vocabulary has both as tokens.
//
// Content after a thought is between <response> and </response> if the template names both marks (Granite 3.3).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/marked_text.h"

namespace slipstream {

enum class CallForm : std::uint8_t { None, Hermes, QwenXml, Llama3, Mistral, Phi4, Gemma4, Harmony, Muse };
/// Returns the name for messages: "none", "hermes", "qwen-xml", "llama-3", "mistral", "phi-4",
/// "gemma-4", "harmony", "muse".
[[nodiscard]] std::string_view call_form_name(CallForm form);
/// Returns whether an answer in this form is a series of messages, each with a header (harmony_reader.h).
[[nodiscard]] constexpr bool consists_of_messages(CallForm form) {
    return form == CallForm::Harmony || form == CallForm::Muse;
}

/// The marks around a thought, as views of string constants. Both are empty if the model has no thoughts.
struct ThoughtMarks {
    std::string_view open, close;
    [[nodiscard]] bool exist() const { return !open.empty(); }
};

/// The marks around the content of an answer, as views of string constants. Both are empty if content has no marks, as
/// in most models.
struct ContentMarks {
    std::string_view open, close;
    [[nodiscard]] bool exist() const { return !open.empty(); }
};

struct AnswerForm {
    CallForm calls = CallForm::None;
    ThoughtMarks thoughts;
    ContentMarks content;
    // Views of string constants, spelt as the template writes them: `call_start` is the text with which a call begins,
    // up to the name of the tool; `name_end` is the text between that name and the arguments. Both are empty if `calls`
    // is None.
    std::string_view call_start, name_end;
};

/// Chooses how the answers of a model write thoughts and calls. `template_source` is the Jinja text of the chat
/// template, or empty. `has_token`(text) must return whether the vocabulary has the text as one token.
[[nodiscard]] AnswerForm choose_answer_form(std::string_view template_source,
                                            const std::function<bool(std::string_view)>& has_token);

/// Returns whether a prompt leaves a thought open, so that the answer begins inside it: some templates end with the
/// opening mark.
[[nodiscard]] bool ends_in_thought(const AnswerForm& form, std::string_view prompt);

/// Append to a prompt, as template text, what a model writes before a thought, after it, and before the content of an
/// answer (only forms that consist of messages have such a mark). The form must have thoughts.
void open_thought(const AnswerForm& form, MarkedText& prompt);
void close_thought(const AnswerForm& form, MarkedText& prompt);
void open_content(const AnswerForm& form, MarkedText& prompt);

/// Appends the beginning of a call to a prompt, so that the model must call a tool: the one called `name`, or any. If
/// the prompt leaves a thought open, the thought is closed first. Marks are template text and may become control
/// tokens; the name is said text. Returns the text that was appended; AnswerReader::skip() must read it before the
/// answer. The form must have calls.
std::string append_call_start(const AnswerForm& form, const std::optional<std::string>& name, MarkedText& prompt);

}  // namespace slipstream
