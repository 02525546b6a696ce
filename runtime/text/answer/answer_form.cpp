#include "runtime/text/answer/answer_form.h"

#include <array>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

constexpr std::array<ThoughtMarks, 3> kThoughts{
    {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<|channel>thought", "<channel|>"}}};

constexpr ThoughtMarks kHarmonyThoughts{"<|channel|>analysis<|message|>", "<|end|>"};
constexpr ThoughtMarks kMuseThoughts{" to=self<|message|>", "<|eom|>"};

ThoughtMarks choose_thoughts(std::string_view source, const std::function<bool(std::string_view)>& has_token) {
    for (const ThoughtMarks& marks : kThoughts)
        if (source.find(marks.open) != source.npos || source.find(marks.close) != source.npos) return marks;
    for (const ThoughtMarks& marks : kThoughts)
        if (has_token(marks.open) && has_token(marks.close)) return marks;
    return {};
}

ContentMarks choose_content(std::string_view source) {
    constexpr ContentMarks kResponse{"<response>", "</response>"};
    const auto writes = [&](std::string_view mark) { return source.find(mark) != source.npos; };
    return writes(kResponse.open) && writes(kResponse.close) ? kResponse : ContentMarks{};
}

CallForm choose_calls(std::string_view source) {
    const auto writes = [&](std::string_view mark) { return source.find(mark) != source.npos; };
    if (writes("[TOOL_CALLS]")) return CallForm::Mistral;
    if (writes("<function=") && writes("<parameter=")) return CallForm::QwenXml;
    // SmolLM3's "python_tools" are functions for Python code, which the model writes between <code> and </code>: a
    // program is no call, and stays content, for the client to run.
    if (writes("<tool_call>") && !writes("<arg_key>")) return CallForm::Hermes;
    if (writes("<|tool_call>")) return CallForm::Gemma4;
    if (writes("<|tool_call|>") || writes("<|tool|>")) return CallForm::Phi4;
    if (writes("<|start|>") && writes("<|channel|>") && writes("<|message|>")) return CallForm::Harmony;
    if (writes("<atem:invoke") || writes("to=self<|message|>")) return CallForm::Muse;
    if (writes("<|python_tag|>") || (writes("<|start_header_id|>") && writes("ipython"))) return CallForm::Llama3;
    return CallForm::None;
}

std::string_view call_start(CallForm form, std::string_view source) {
    const auto writes = [&](std::string_view mark) { return source.find(mark) != source.npos; };
    switch (form) {
        case CallForm::None:
            return {};
        case CallForm::Hermes:
            return "<tool_call>\n{\"name\": \"";
        case CallForm::QwenXml:
            return "<tool_call>\n<function=";
        case CallForm::Llama3:
            return "{\"name\": \"";
        case CallForm::Mistral:
            if (writes("[ARGS]")) return "[TOOL_CALLS]";
            return writes("[TOOL_CALLS] [") ? "[TOOL_CALLS] [{\"name\": \"" : "[TOOL_CALLS][{\"name\": \"";
        case CallForm::Gemma4:
            return "<|tool_call>call:";
        case CallForm::Harmony:
            return writes("assistant to=") ? " to=functions." : "<|channel|>commentary to=functions.";
        case CallForm::Muse:
            return "<|message|><atem:function_calls>\n<atem:invoke name=\"";
        case CallForm::Phi4:
            return writes("<|tool_call|>{") ? "<|tool_call|>{\"name\": \"" : "<|tool_call|>[{\"name\": \"";
    }
    return {};
}

// Returns the text between the name of a tool and its arguments, as the template `source` writes it. The space before
// the arguments is left to the model, since it is the first byte of the first token of the arguments.
std::string_view name_end(CallForm form, std::string_view source) {
    const auto writes = [&](std::string_view mark) { return source.find(mark) != source.npos; };
    switch (form) {
        case CallForm::None:
            return {};
        case CallForm::QwenXml:
            return ">\n";
        case CallForm::Gemma4:
            return "{";
        case CallForm::Harmony:
            return writes("assistant to=") ? "<|channel|>commentary json<|message|>" : " <|constrain|>json<|message|>";
        case CallForm::Muse:
            return "\">\n";
        case CallForm::Llama3:
            return "\", \"parameters\":";
        case CallForm::Mistral:
            if (writes("[CALL_ID]")) return "[CALL_ID]";
            if (writes("[ARGS]")) return "[ARGS]";
            [[fallthrough]];
        case CallForm::Hermes:
        case CallForm::Phi4:
            return "\", \"arguments\":";
    }
    return {};
}

}  // namespace

std::string_view call_form_name(CallForm form) {
    switch (form) {
        case CallForm::None:
            return "none";
        case CallForm::Hermes:
            return "hermes";
        case CallForm::QwenXml:
            return "qwen-xml";
        case CallForm::Llama3:
            return "llama-3";
        case CallForm::Mistral:
            return "mistral";
        case CallForm::Phi4:
            return "phi-4";
        case CallForm::Gemma4:
            return "gemma-4";
        case CallForm::Harmony:
            return "harmony";
        case CallForm::Muse:
            return "muse";
    }
    return "?";
}

AnswerForm choose_answer_form(std::string_view template_source,
                              const std::function<bool(std::string_view)>& has_token) {
    const CallForm calls = choose_calls(template_source);
    return {.calls = calls,
            .thoughts = calls == CallForm::Harmony ? kHarmonyThoughts
                        : calls == CallForm::Muse  ? kMuseThoughts
                                                   : choose_thoughts(template_source, has_token),
            .content = choose_content(template_source),
            .call_start = call_start(calls, template_source),
            .name_end = name_end(calls, template_source)};
}

bool ends_in_thought(const AnswerForm& form, std::string_view prompt) {
    if (!form.thoughts.exist()) return false;
    const std::size_t last = prompt.find_last_not_of(" \t\r\n");
    return last != prompt.npos && prompt.substr(0, last + 1).ends_with(form.thoughts.open);
}

void open_thought(const AnswerForm& form, MarkedText& prompt) {
    prompt.bytes += form.thoughts.open;
    if (!consists_of_messages(form.calls)) prompt.bytes += '\n';
}

void close_thought(const AnswerForm& form, MarkedText& prompt) {
    if (consists_of_messages(form.calls))
        prompt.bytes.append(form.thoughts.close).append("<|start|>assistant");
    else
        prompt.bytes.append("\n").append(form.thoughts.close).append("\n\n");
}

void open_content(const AnswerForm& form, MarkedText& prompt) {
    if (form.calls == CallForm::Harmony) prompt.bytes += "<|channel|>final<|message|>";
    if (form.calls == CallForm::Muse) prompt.bytes += " to=user<|message|>";
}

std::string append_call_start(const AnswerForm& form, const std::optional<std::string>& name, MarkedText& prompt) {
    CHECK(form.calls != CallForm::None, "a form without calls");
    const std::size_t begin = prompt.bytes.size();
    if (ends_in_thought(form, prompt.bytes)) close_thought(form, prompt);
    const auto say_name = [&] {
        append_span(prompt.said, {prompt.bytes.size(), prompt.bytes.size() + name->size()});
        prompt.bytes += *name;
    };
    if (name && form.calls == CallForm::Muse) {  // the header has the name, too
        prompt.bytes += " to=";
        say_name();
    }
    prompt.bytes += form.call_start;
    if (name) {
        say_name();
        prompt.bytes += form.name_end;
    }
    return prompt.bytes.substr(begin);
}

}  // namespace slipstream
