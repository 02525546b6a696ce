// A conversation as requests have it (the `messages`, `tools` and `chat_template_kwargs` of OpenAI's chat completions)
// as values for a chat template. The same rules hold for the server and for `generate --messages`:
//
// - All texts are said text, those of the system, of tools and of tool schemas included: no request can forge a control
//   token. Roles are written anew.
// - "developer" is "system". System messages at the beginning become one. A later one is appended to the message of the
//   user or the tool directly before it; after an answer, it begins the next message of the user, and after calls it is
//   appended to the first result. It is never moved to the front, and the text before it stays as it was, so that a
//   kept prompt stays valid.
// - `content` is a text, or a list of text parts, which are joined by a newline. It may be absent in messages of the
//   assistant. Images, audio and files are refused by name.
// - The `arguments` of calls are parsed, since templates write them as JSON; a template that fails on an object gets
//   JSON text. Those that are no JSON object, or would exceed the bounds of request_json.h for all calls together, stay
//   text; a template that fails on a text gets it as the member "arguments" of an object.
// - For templates of Mistral, ids of calls have nine characters: others are replaced by a hash. Templates that do not
//   write the calls of earlier answers (SmolLM3, Phi-4-mini) get them in the content, as the model wrote them.
// - For templates of the harmony format, the content of a message with calls is appended to its thought, if it has one,
//   and a message with several calls becomes one for each call, with its result after it.
// - The text of an assistant's message at the end is continued, unless it has calls or is the only message: templates
//   need another one.
// - For the template of Muse Glimmer, a message with a text and calls becomes two messages.
// - `reasoning_effort` goes to a template that reads it, and `thinking` to the variable with which the template turns
//   thoughts on and off (PromptTemplate::thinking_variable()). So does a template argument with another such name. A
//   `response_format` other than text is refused.
// - Tools are refused if the template has no place for them. `tool_choice` "none" leaves them in the prompt, so that a
//   kept prompt stays valid, but calls are then not read.
//
// Without a template (`form` is null) the conversation is a plain text in turns, as in the chat (plain_turns.h); tools
// and their results are refused.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/answer/offered_tool.h"
#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/request/request_error.h"

namespace slipstream {

/// The fields of a request, as parse_request_json() returns them. A field that is absent or null is none.
struct RequestedConversation {
    TemplateValue messages = TemplateValue::none();
    TemplateValue tools = TemplateValue::none();
    TemplateValue tool_choice = TemplateValue::none();
    TemplateValue template_arguments = TemplateValue::none();  // chat_template_kwargs
    TemplateValue reasoning_effort = TemplateValue::none();
    TemplateValue thinking = TemplateValue::none();  // true or false: whether the model should think first
    TemplateValue response_format = TemplateValue::none();
};

/// Whether the answer must begin with a call: of any tool, or of the tool `name`.
struct ForcedCall {
    bool is_forced = false;
    std::optional<std::string> name;
};

struct Conversation {
    TemplateValue messages;       // a list of dicts, without the message that is continued
    TemplateArguments arguments;  // for the template: chat_template_kwargs, reasoning_effort, tools
    OfferedTools tools;           // the tools whose calls are read in the answer
    ForcedCall forced;
    std::optional<std::string> continued;            // the text of the answer that is continued
    std::optional<std::string> continued_reasoning;  // its thought
};

/// Returns `request` as values for the template `form`, which may be null. Throws FieldError for a field that the rules
/// at the head of this file refuse, and for a forced call (tool_choice) if the form of calls is unknown, no such tool
/// is offered, or an answer is continued.
[[nodiscard]] Conversation make_conversation(const RequestedConversation& request, const PromptTemplate* form);

/// The prompt of a conversation, and what a reader of the answer needs to know about its end.
struct ConversationPrompt {
    MarkedText text;
    /// The part of the prompt that belongs to the answer: the answer that is continued, or the beginning of a forced
    /// call. AnswerReader::skip() reads it first.
    std::string begun;
    AnswerReader::Start start = AnswerReader::Start::Text;  // whether the prompt before `begun` leaves a thought open
};

/// Renders the prompt for the answer. `form` must be that of make_conversation(). Throws TemplateError, also soon after
/// *cancel turned true.
[[nodiscard]] ConversationPrompt render_conversation(const PromptTemplate* form, const Conversation& conversation,
                                                     const std::atomic<bool>* cancel = nullptr);

}  // namespace slipstream
