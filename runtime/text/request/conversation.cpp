#include "runtime/text/request/conversation.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/text/chat/plain_turns.h"
#include "runtime/text/printable.h"
#include "runtime/text/request/call_arguments.h"
#include "runtime/text/request/call_ids.h"
#include "runtime/text/request/request_fields.h"
#include "runtime/text/request/request_tools.h"

namespace slipstream {

using jinja::Dict;
using jinja::Kind;

namespace {

constexpr std::array<std::string_view, 3> kReasoningKeys{"reasoning_content", "reasoning", "thinking"};

// A message while the conversation is put together: its texts may still grow.
struct Turn {
    std::string role;
    std::string content;
    Dict more;  // further keys, for the template
    // The content and the calls as the model wrote them, for a template that leaves calls out (write_calls()).
    std::optional<MarkedText> with_calls;
    std::optional<std::string> reasoning;
    bool has_calls = false;
    std::string field;  // of a result: how messages name it
};

// Returns how an error message names `type`, a type that is not supported; null: a missing type.
std::string shown_type(const TemplateValue* type) {
    if (type == nullptr) return "a missing type";
    return type->is_text() ? fmt::format("\"{}\"", printable(type->view())) : "a type that is not a text";
}

std::string part_text(const TemplateValue& part, const std::string& field) {
    if (part.is_text()) return std::string(part.view());
    if (!part.is(Kind::Dict)) throw FieldError(field, "must be a text or an object");
    const TemplateValue* type = find_field(part.dict(), "type");
    for (const std::string_view key : {"text", "refusal"}) {
        if (type == nullptr || !type->is_text() || type->view() != key) continue;
        const TemplateValue* text = find_field(part.dict(), key);
        if (text == nullptr || !text->is_text()) throw FieldError(fmt::format("{}.{}", field, key), "must be a text");
        return std::string(text->view());
    }
    throw FieldError(field + ".type",
                     fmt::format("{} is not served; only parts of the type \"text\" are", shown_type(type)));
}

// Returns the text of `message`, its parts joined by newlines. If it has no content, returns an empty text if
// `may_be_absent` is true. Otherwise, and for a content that is no text, throws FieldError, which names `field`.
std::string content_text(const Dict& message, const std::string& field, bool may_be_absent) {
    const TemplateValue* content = find_field(message, "content");
    if (content == nullptr) {
        if (may_be_absent) return {};
        throw FieldError(field + ".content", "is missing");
    }
    if (content->is_text()) return std::string(content->view());
    if (!content->is(Kind::List)) throw FieldError(field + ".content", "must be a text or a list of parts");
    std::string text;
    std::size_t n = 0;
    for (const TemplateValue& part : content->items()) {
        if (n > 0) text += '\n';
        text += part_text(part, fmt::format("{}.content[{}]", field, n++));
    }
    return text;
}

class ConversationMaker {
public:
    explicit ConversationMaker(const PromptTemplate* form)
        : has_tools_(form != nullptr),
          arguments_(form),
          ids_(form != nullptr && form->answer_form().calls == CallForm::Mistral ? CallIds::Rule::NineCharacters
                                                                                 : CallIds::Rule::AsGiven) {}

    void add(const TemplateValue& message) {
        const std::string field = fmt::format("messages[{}]", n_messages_++);
        if (!message.is(Kind::Dict)) throw FieldError(field, "must be an object");
        const Dict& fields = message.dict();
        const TemplateValue* role = find_field(fields, "role");
        if (role == nullptr) throw FieldError(field + ".role", "is missing");
        if (!role->is_text()) throw FieldError(field + ".role", "must be a text");
        const std::string_view name = role->view();
        if (name == "system" || name == "developer") {
            add_system(content_text(fields, field, false));
        } else if (name == "user") {
            add_user(fields, field);
        } else if (name == "assistant") {
            add_assistant(fields, field);
        } else if (name == "tool") {
            add_tool(fields, field);
        } else {
            throw FieldError(
                field + ".role",
                fmt::format("\"{}\" is unknown; known: system, developer, user, assistant, tool", printable(name)));
        }
    }

    void complete() { close_system(); }
    [[nodiscard]] std::vector<Turn>& turns() { return turns_; }

private:
    void add_system(std::string text) {
        if (text.empty() && !turns_.empty()) return;
        if (turns_.empty() || (turns_.size() == 1 && turns_.front().role == "system")) {
            if (turns_.empty()) {
                turns_.push_back({.role = "system", .content = std::move(text)});
            } else {
                turns_.front().content.append(kParagraph).append(text);
            }
        } else if (turns_.back().role == "assistant") {
            if (!late_system_.empty()) late_system_ += kParagraph;
            late_system_ += text;
        } else {
            turns_.back().content.append(kParagraph).append(text);
        }
    }
    // A system text that followed an answer is a message of the user if neither a message of the user nor a result
    // came after it.
    void close_system() {
        if (late_system_.empty()) return;
        turns_.push_back({.role = "user", .content = std::exchange(late_system_, {})});
    }

    void add_user(const Dict& fields, const std::string& field) {
        std::string text = content_text(fields, field, false);
        if (!late_system_.empty()) text = std::exchange(late_system_, {}).append(kParagraph).append(text);
        turns_.push_back({.role = "user", .content = std::move(text)});
        keep_text(fields, "name");
    }

    void add_assistant(const Dict& fields, const std::string& field) {
        close_system();
        if (find_field(fields, "function_call") != nullptr)
            throw FieldError(field + ".function_call", "is not served; use tool_calls");
        Turn turn{.role = "assistant", .content = content_text(fields, field, true)};
        for (const std::string_view key : kReasoningKeys)
            if (const TemplateValue* text = find_field(fields, key); text != nullptr && text->is_text()) {
                if (!turn.reasoning) turn.reasoning = std::string(text->view());
                turn.more.set(key, TemplateValue::said(std::string(text->view())));
            }
        if (const TemplateValue* calls = find_field(fields, "tool_calls")) {
            if (!calls->is(Kind::List)) throw FieldError(field + ".tool_calls", "must be a list");
            if (!calls->items().empty()) refuse_without_template(field + ".tool_calls");
            ids_.begin_calls();
            std::vector<TemplateValue> values;
            for (const TemplateValue& call : calls->items())
                values.push_back(call_value(call, fmt::format("{}.tool_calls[{}]", field, values.size())));
            turn.has_calls = !values.empty();
            // Set only if there are calls, since some templates only ask whether the key is there.
            if (turn.has_calls) turn.more.set("tool_calls", TemplateValue::list(std::move(values)));
        }
        turns_.push_back(std::move(turn));
        keep_text(fields, "name");
    }

    TemplateValue call_value(const TemplateValue& call, const std::string& field) {
        if (!call.is(Kind::Dict)) throw FieldError(field, "must be an object");
        const TemplateValue* type = find_field(call.dict(), "type");
        if (type != nullptr && !(type->is_text() && type->view() == "function"))
            throw FieldError(field + ".type", fmt::format("{} is not served; only \"function\" is", shown_type(type)));
        const TemplateValue* function = find_field(call.dict(), "function");
        if (function == nullptr || !function->is(Kind::Dict))
            throw FieldError(field + ".function", "must be an object");
        const TemplateValue* name = find_field(function->dict(), "name");
        if (name == nullptr || !name->is_text()) throw FieldError(field + ".function.name", "must be a text");
        const TemplateValue* id = find_field(call.dict(), "id");
        if (id != nullptr && !id->is_text()) throw FieldError(field + ".id", "must be a text");
        Dict made;
        if (const auto text = ids_.of_call(id != nullptr ? std::optional(id->view()) : std::nullopt))
            made.set("id", TemplateValue::said(*text));
        made.set("type", TemplateValue("function"));
        made.set("function", TemplateValue::dict(
                                 {{"name", TemplateValue::said(std::string(name->view()))},
                                  {"arguments", arguments_.for_template(find_field(function->dict(), "arguments"))}}));
        return TemplateValue::dict(std::move(made));
    }

    // A system text between calls and their results is appended to the first result: templates refuse a message of the
    // user there.
    void add_tool(const Dict& fields, const std::string& field) {
        refuse_without_template(field + ".role");
        Turn turn{.role = "tool", .content = content_text(fields, field, false), .field = field};
        if (!late_system_.empty()) turn.content.append(kParagraph).append(std::exchange(late_system_, {}));
        const TemplateValue* id = find_field(fields, "tool_call_id");
        if (id != nullptr && !id->is_text()) throw FieldError(field + ".tool_call_id", "must be a text");
        if (const auto text = ids_.of_result(id != nullptr ? std::optional(id->view()) : std::nullopt))
            turn.more.set("tool_call_id", TemplateValue::said(*text));
        turns_.push_back(std::move(turn));
        keep_text(fields, "name");
    }

    void keep_text(const Dict& fields, std::string_view key) {
        if (const TemplateValue* value = find_field(fields, key); value != nullptr && value->is_text())
            turns_.back().more.set(key, said_value(*value));
    }

    void refuse_without_template(const std::string& field) const {
        if (!has_tools_) throw FieldError(field, "the model has no chat template to put it into");
    }

    bool has_tools_;  // whether there is a template, which may express calls and results
    CallArguments arguments_;
    CallIds ids_;
    std::vector<Turn> turns_;
    std::string late_system_;  // texts of system messages after an answer
    std::size_t n_messages_ = 0;
};

TemplateArguments read_arguments(const TemplateValue& arguments) {
    constexpr std::string_view kField = "chat_template_kwargs";
    TemplateArguments read;
    if (arguments.is_none()) return read;
    if (!arguments.is(Kind::Dict)) throw FieldError(std::string(kField), "must be an object");
    for (const auto& [key, value] : arguments.dict().items()) {
        for (const std::string_view ours : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
            if (key.view() == ours)
                throw FieldError(fmt::format("{}.{}", kField, ours), "is set by the conversation; leave it out");
        read.emplace_back(std::string(key.view()), said_value(value));
    }
    return read;
}

// Returns whether the template expects the tools as a text in the system message: Phi-4-mini's template does not read
// `tools`.
bool takes_tools_as_text(const PromptTemplate& form) {
    return !form.reads("tools") && form.answer_form().calls == CallForm::Phi4;
}

// The variable of templates that take tools as functions, without the objects around them (SmolLM3, whose model card
// shows it so).
constexpr const char* kFunctions = "xml_tools";

TemplateValue functions_of(const TemplateValue& tools) {
    std::vector<TemplateValue> functions;
    for (const TemplateValue& tool : tools.items()) functions.push_back(*tool.dict().find("function"));
    return TemplateValue::list(std::move(functions));
}

// Returns the functions of `tools` as the JSON that templates write.
std::string functions_json(const TemplateValue& tools) {
    static const ChatTemplate kForm =
        ChatTemplate::parse("{{ tools | map(attribute='function') | list | tojson }}", "the tools");
    return kForm.render({.messages = TemplateValue::list({}), .tools = tools}).bytes;
}

void put_tools_into_system(const TemplateValue& tools, std::vector<Turn>& turns) {
    // The system text of Phi-4-mini's model card, for conversations with tools that have no system text.
    constexpr std::string_view kSystem = "You are a helpful assistant with some tools.";
    if (turns.empty() || turns.front().role != "system")
        turns.insert(turns.begin(), {.role = "system", .content = std::string(kSystem)});
    turns.front().more.set("tools", TemplateValue::said(functions_json(tools)));
}

bool is_harmony(const PromptTemplate* form) {
    return form != nullptr && form->answer_form().calls == CallForm::Harmony;
}

bool is_muse(const PromptTemplate* form) {
    return form != nullptr && form->answer_form().calls == CallForm::Muse;
}

// Returns `tools` with an empty description where a function has none: templates of the harmony format and of Muse
// Glimmer need one. `with_parameters`: also with an empty schema where a function has none, which Muse Glimmer's needs.
TemplateValue with_descriptions(const TemplateValue& tools, bool with_parameters) {
    std::vector<TemplateValue> described;
    for (const TemplateValue& tool : tools.items()) {
        Dict fields = tool.dict(), function = tool.dict().find("function")->dict();
        if (find_field(function, "description") == nullptr) function.set("description", TemplateValue(""));
        if (with_parameters && find_field(function, "parameters") == nullptr)
            function.set("parameters", parse_template_json(R"({"type": "object", "properties": {}})", "a schema"));
        fields.set("function", TemplateValue::dict(std::move(function)));
        described.push_back(TemplateValue::dict(std::move(fields)));
    }
    return TemplateValue::list(std::move(described));
}

// Puts the tools where the template reads them, and sets made.tools. Throws FieldError if the template has no place for
// tools.
void add_tools(const TemplateValue& requested, const PromptTemplate* form, std::vector<Turn>& turns,
               Conversation& made) {
    RequestedTools tools = read_tools(requested);
    if (tools.offered.empty()) return;
    if (form != nullptr && takes_tools_as_text(*form)) {
        put_tools_into_system(tools.values, turns);
    } else if (form != nullptr && form->reads("tools")) {
        const bool needs_all = is_harmony(form) || is_muse(form);
        made.arguments.emplace_back("tools", needs_all ? with_descriptions(tools.values, is_muse(form)) : tools.values);
    } else if (form != nullptr && form->reads(kFunctions)) {
        made.arguments.emplace_back(kFunctions, functions_of(tools.values));
    } else {
        throw FieldError("tools", form == nullptr
                                      ? std::string("the model has no chat template to put them into")
                                      : fmt::format("{} has no place for tools; leave them out, or take another "
                                                    "template",
                                                    form->name()));
    }
    made.tools = std::move(tools.offered);
}

// Returns the name of the tool that `choice` demands, or nullopt if it demands none in particular.
std::optional<std::string> chosen_name(const TemplateValue& choice) {
    if (!choice.is(Kind::Dict)) return std::nullopt;
    const TemplateValue* function = find_field(choice.dict(), "function");
    const TemplateValue* name =
        function != nullptr && function->is(Kind::Dict) ? find_field(function->dict(), "name") : nullptr;
    if (name == nullptr || !name->is_text()) return std::nullopt;
    return std::string(name->view());
}

// Adds the variable `name` to `arguments` if the template `form` (null: none) reads it and `arguments` does not have it
// already, from chat_template_kwargs. Other templates have no use for it, and clients send it to every model.
void add_if_read(std::string_view name, const TemplateValue& value, const PromptTemplate* form,
                 TemplateArguments& arguments) {
    const auto is_it = [&](const auto& argument) { return argument.first == name; };
    if (form == nullptr || !form->reads(name) || std::ranges::any_of(arguments, is_it)) return;
    arguments.emplace_back(std::string(name), said_value(value));
}

void add_thinking(const RequestedConversation& request, const PromptTemplate* form, TemplateArguments& arguments) {
    constexpr const char* kEffort = "reasoning_effort";
    if (!request.reasoning_effort.is_none()) {
        if (!request.reasoning_effort.is_text()) throw FieldError(kEffort, "must be a text");
        add_if_read(kEffort, request.reasoning_effort, form, arguments);
    }
    if (form == nullptr) return;
    // Clients write chat_template_kwargs for enable_thinking, the usual name, whatever the template calls it.
    TemplateValue thinking = request.thinking;
    for (const std::string_view name : kThinkingVariables)
        if (const auto given = std::ranges::find(arguments, name, &TemplateArguments::value_type::first);
            thinking.is_none() && given != arguments.end() && !form->reads(name))
            thinking = given->second;
    if (!thinking.is_none()) add_if_read(form->thinking_variable(), thinking, form, arguments);
}

// Throws FieldError for a format other than text: an answer cannot be held to a format yet, and without an error the
// client would take any text for the format it asked for.
void check_response_format(const TemplateValue& format) {
    constexpr std::string_view kField = "response_format";
    if (format.is_none()) return;
    if (!format.is(Kind::Dict)) throw FieldError(std::string(kField), "must be an object");
    const TemplateValue* type = find_field(format.dict(), "type");
    if (type == nullptr || !type->is_text() || type->view() != "text")
        throw FieldError(fmt::format("{}.type", kField),
                         fmt::format("{} is not served; only \"text\" is", shown_type(type)));
}

void apply_tool_choice(const TemplateValue& choice, const PromptTemplate* form, Conversation& made) {
    constexpr const char* kField = "tool_choice";
    if (choice.is_none() || (choice.is_text() && choice.view() == "auto")) return;
    if (choice.is_text() && choice.view() == "none") {
        made.tools.clear();
        return;
    }
    made.forced = {.is_forced = true, .name = chosen_name(choice)};
    if (!made.forced.name && !(choice.is_text() && choice.view() == "required"))
        throw FieldError(kField, "must be \"none\", \"auto\", \"required\", or an object that names a function");
    if (made.forced.name && find_tool(made.tools, *made.forced.name) == nullptr)
        throw FieldError(kField, fmt::format("\"{}\" is not among the tools", printable(*made.forced.name)));
    if (made.tools.empty()) throw FieldError(kField, "a call cannot be forced without tools");
    if (form->answer_form().calls == CallForm::None)
        throw FieldError(kField,
                         fmt::format("a call cannot be forced: {} writes calls in no known form", form->name()));
    if (made.continued) throw FieldError(kField, "a call cannot be forced in an answer that is continued");
    if (made.tools.size() == 1) made.forced.name = made.tools.front().name;
}

// Returns the template that writes an earlier answer as models write it in the form of `form`: its `content`, then its
// calls (`messages`). Returns null if `form` (null: none) writes calls itself, or in no known form.
const ChatTemplate* answer_with_calls(const PromptTemplate* form) {
    static const ChatTemplate kHermes = ChatTemplate::parse(
        "{% if content %}{{ content + '\n' }}{% endif %}{% for call in messages %}{{ '' if loop.first else '\n' }}"
        "{{ '<tool_call>\n{\"name\": ' }}{{ call.function.name | tojson }}, \"arguments\": "
        "{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}",
        "the calls");
    static const ChatTemplate kPhi4 = ChatTemplate::parse(
        "{{ content }}<|tool_call|>[{% for call in messages %}{{ '' if loop.first else ', ' }}{\"name\": "
        "{{ call.function.name | tojson }}, \"arguments\": {{ call.function.arguments | tojson }}{{ '}' }}"
        "{% endfor %}]<|/tool_call|>",
        "the calls");
    if (form == nullptr || form->source().find("tool_calls") != std::string::npos) return nullptr;
    const CallForm calls = form->answer_form().calls;
    return calls == CallForm::Hermes ? &kHermes : calls == CallForm::Phi4 ? &kPhi4 : nullptr;
}

// Writes the calls of earlier answers into their content if the template `form` leaves calls out (SmolLM3, Phi-4-mini):
// otherwise the model would read results of calls that it does not know of.
void write_calls(const PromptTemplate* form, std::vector<Turn>& turns) {
    const ChatTemplate* answer = answer_with_calls(form);
    for (Turn& turn : turns)
        if (answer != nullptr && turn.has_calls)
            turn.with_calls = answer->render({.messages = *turn.more.find("tool_calls"),
                                              .arguments = {{"content", TemplateValue::said(turn.content)}}});
}

// In the harmony format a message with calls has one text, which templates write as a thought: appends the content of
// `turn` to its thought.
void join_texts(Turn& turn) {
    if (!turn.has_calls || !turn.reasoning || turn.reasoning->empty() || turn.content.empty()) return;
    turn.reasoning->append(kParagraph).append(std::exchange(turn.content, {}));
    for (const std::string_view key : kReasoningKeys)
        if (turn.more.find(key) != nullptr) turn.more.set(key, TemplateValue::said(*turn.reasoning));
}

// Muse Glimmer writes a text to the user and then calls as messages of one answer, but its template leaves out the text
// of a message with calls: divides such messages into the text, which does not end the turn, and the calls.
std::vector<Turn> with_texts_apart(std::vector<Turn> turns) {
    std::vector<Turn> divided;
    for (Turn& turn : turns) {
        if (!turn.has_calls || turn.content.empty()) {
            divided.push_back(std::move(turn));
            continue;
        }
        Turn calls{.role = "assistant", .has_calls = true};
        calls.more.set("tool_calls", *turn.more.find("tool_calls"));
        Dict more;
        for (const auto& [key, value] : turn.more.items())
            if (key.view() != "tool_calls") more.set(key, value);
        more.set("end_turn", TemplateValue(false));
        turn.more = std::move(more);
        turn.has_calls = false;
        divided.push_back(std::move(turn));
        divided.push_back(std::move(calls));
    }
    return divided;
}

// Removes from `results` that of the call with the id `id` (null: none), or else the first that names no call, and
// returns it.
std::optional<Turn> take_result(std::vector<Turn>& results, const TemplateValue* id) {
    const auto id_of = [](const Turn& result) { return result.more.find("tool_call_id"); };
    const auto is_of_call = [&](const Turn& result) {
        return id != nullptr && id_of(result) != nullptr && id_of(result)->view() == id->view();
    };
    auto found = std::ranges::find_if(results, is_of_call);
    if (found == results.end())
        found = std::ranges::find_if(results, [&](const Turn& result) { return id_of(result) == nullptr; });
    if (found == results.end()) return std::nullopt;
    Turn result = std::move(*found);
    results.erase(found);
    return result;
}

// In the harmony format a message has one call, and a result follows its call: divides messages with several calls.
std::vector<Turn> with_single_calls(std::vector<Turn> turns) {
    std::vector<Turn> divided;
    for (std::size_t at = 0; at < turns.size();) {
        Turn turn = std::move(turns[at++]);
        const std::vector<TemplateValue> calls =
            turn.has_calls ? turn.more.find("tool_calls")->items() : std::vector<TemplateValue>();
        if (calls.size() < 2) {
            divided.push_back(std::move(turn));
            continue;
        }
        std::vector<Turn> results;
        for (; at < turns.size() && turns[at].role == "tool"; ++at) results.push_back(std::move(turns[at]));
        for (const TemplateValue& call : calls) {
            turn.more.set("tool_calls", TemplateValue::list({call}));
            divided.push_back(std::exchange(turn, {.role = "assistant", .has_calls = true}));
            if (auto result = take_result(results, call.dict().find("id"))) divided.push_back(std::move(*result));
        }
        if (!results.empty())
            throw FieldError(results.front().field + ".tool_call_id", "names no call of the message before it");
    }
    return divided;
}

TemplateValue value_of(Turn& turn) {
    Dict dict;
    dict.set("role", TemplateValue(turn.role));
    dict.set("content", turn.with_calls ? TemplateValue(std::move(*turn.with_calls))
                                        : TemplateValue::said(std::move(turn.content)));
    for (const auto& [key, value] : turn.more.items()) dict.set(key, value);
    return TemplateValue::dict(std::move(dict));
}

MarkedText plain_prompt(const Conversation& conversation) {
    MarkedText prompt;
    for (const TemplateValue& message : conversation.messages.items())
        append_turn(prompt, message.dict().find("role")->view(), message.dict().find("content")->view());
    return prompt;
}

// Appends the answer that is continued, with its thought.
void append_continued(const AnswerForm& form, const Conversation& conversation, bool opens_thought,
                      MarkedText& prompt) {
    const std::string& text = *conversation.continued;
    const bool has_thought = conversation.continued_reasoning && form.thoughts.exist();
    if (has_thought && !opens_thought) open_thought(form, prompt);
    if (has_thought) say(prompt, *conversation.continued_reasoning);
    // An answer that has begun is no longer in its thought.
    const bool has_content = has_thought || !opens_thought || !text.empty();
    if (has_thought || (opens_thought && !text.empty())) close_thought(form, prompt);
    if (has_content) open_content(form, prompt);
    say(prompt, text);
}

}  // namespace

Conversation make_conversation(const RequestedConversation& request, const PromptTemplate* form) {
    if (request.messages.is_none()) throw FieldError("messages", "is missing");
    if (!request.messages.is(Kind::List)) throw FieldError("messages", "must be a list");
    if (request.messages.items().empty()) throw FieldError("messages", "is empty");
    ConversationMaker maker(form);
    for (const TemplateValue& message : request.messages.items()) maker.add(message);
    maker.complete();
    std::vector<Turn>& turns = maker.turns();
    if (is_harmony(form)) {
        std::ranges::for_each(turns, join_texts);
        turns = with_single_calls(std::move(turns));
    }
    if (is_muse(form)) turns = with_texts_apart(std::move(turns));

    write_calls(form, turns);

    Conversation made;
    made.arguments = read_arguments(request.template_arguments);
    if (form == nullptr && !made.arguments.empty())
        throw FieldError("chat_template_kwargs", "the model has no chat template to take them");
    add_thinking(request, form, made.arguments);
    check_response_format(request.response_format);
    if (!request.tools.is_none()) add_tools(request.tools, form, turns, made);
    if (turns.size() > 1 && turns.back().role == "assistant" && !turns.back().has_calls) {
        made.continued = std::move(turns.back().content);
        made.continued_reasoning = std::move(turns.back().reasoning);
        turns.pop_back();
    }
    apply_tool_choice(request.tool_choice, form, made);
    std::vector<TemplateValue> messages;
    for (Turn& turn : turns) messages.push_back(value_of(turn));
    made.messages = TemplateValue::list(std::move(messages));
    return made;
}

ConversationPrompt render_conversation(const PromptTemplate* form, const Conversation& conversation,
                                       const std::atomic<bool>* cancel) {
    if (form == nullptr) {
        ConversationPrompt prompt{.text = plain_prompt(conversation), .begun = conversation.continued.value_or("")};
        say(prompt.text, prompt.begun);
        return prompt;
    }
    const AnswerForm& answer = form->answer_form();
    ConversationPrompt prompt{.text = form->render(conversation.messages, conversation.arguments, cancel)};
    const std::size_t begin = prompt.text.bytes.size();
    const bool opens_thought = ends_in_thought(answer, prompt.text.bytes);
    if (opens_thought) prompt.start = AnswerReader::Start::Thought;
    if (conversation.forced.is_forced) append_call_start(answer, conversation.forced.name, prompt.text);
    if (conversation.continued) append_continued(answer, conversation, opens_thought, prompt.text);
    prompt.begun = prompt.text.bytes.substr(begin);
    return prompt;
}

}  // namespace slipstream
