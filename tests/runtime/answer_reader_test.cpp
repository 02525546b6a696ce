#include "runtime/text/answer/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

void PrintTo(const AnswerPiece& piece, std::ostream* out) {
    switch (piece.kind) {
        case AnswerPiece::Kind::Content:
            *out << "content " << testing::PrintToString(piece.text);
            return;
        case AnswerPiece::Kind::Thought:
            *out << "thought " << testing::PrintToString(piece.text);
            return;
        case AnswerPiece::Kind::Call:
            *out << piece.name << "(" << piece.text << ")";
    }
}

namespace {

using Pieces = std::vector<AnswerPiece>;

AnswerPiece content(std::string text) {
    return {.kind = AnswerPiece::Kind::Content, .text = std::move(text), .name = {}};
}
AnswerPiece thought(std::string text) {
    return {.kind = AnswerPiece::Kind::Thought, .text = std::move(text), .name = {}};
}
AnswerPiece call(std::string name, std::string arguments) {
    return {.kind = AnswerPiece::Kind::Call, .text = std::move(arguments), .name = std::move(name)};
}

// A piece of text may arrive in parts; calls may not.
void add(Pieces& all, const Pieces& more) {
    for (const AnswerPiece& piece : more) {
        if (piece.kind != AnswerPiece::Kind::Call && !all.empty() && all.back().kind == piece.kind) {
            all.back().text += piece.text;
        } else {
            all.push_back(piece);
        }
    }
}

AnswerForm form_of(CallForm calls) {
    const auto has_no_token = [](std::string_view) { return false; };
    switch (calls) {
        case CallForm::None:
            return choose_answer_form("</think>", has_no_token);
        case CallForm::Hermes:
            return choose_answer_form("<tool_call></think>", has_no_token);
        case CallForm::QwenXml:
            return choose_answer_form("<tool_call><function=f><parameter=p>", has_no_token);
        case CallForm::Llama3:
            return choose_answer_form("<|python_tag|>", has_no_token);
        case CallForm::Mistral:
            return choose_answer_form("[TOOL_CALLS][ARGS][THINK]", has_no_token);
        case CallForm::Phi4:
            return choose_answer_form("<|tool_call|>", has_no_token);
        case CallForm::Gemma4:
            return choose_answer_form("<|channel>thought\n<channel|><|tool_call>call:", has_no_token);
        case CallForm::Harmony:
            return choose_answer_form("<|start|>assistant<|channel|>analysis<|message|>", has_no_token);
        case CallForm::Muse:
            return choose_answer_form("<|start|>assistant to=self<|message|><atem:invoke name=", has_no_token);
    }
    return {};
}

OfferedTools weather_tools() {
    return {{.name = "weather",
             .parameters = parse_template_json(
                 R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                     "exact": {"type": "boolean"}, "scale": {"type": ["number", "null"]},
                     "tags": {"type": "array"}, "near": {"anyOf": [{"type": "object"}, {"type": "string"}]},
                     "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "any": {}}})",
                 "schema")},
            {.name = "time"}};
}

struct AnswerCase {
    std::string_view name;
    CallForm form;
    std::string_view answer;
    Pieces pieces;
    AnswerReader::Start start = AnswerReader::Start::Text;
    bool offers_tools = true;
};

Pieces read(const AnswerCase& known, const std::vector<std::string_view>& parts) {
    AnswerReader reader(form_of(known.form), known.offers_tools ? weather_tools() : OfferedTools{}, known.start);
    Pieces all;
    for (const std::string_view part : parts) add(all, reader.push(part));
    add(all, reader.finish());
    return all;
}

std::vector<AnswerCase> cases() {
    using enum CallForm;
    constexpr auto kThought = AnswerReader::Start::Thought;
    return {
        // Plain text, and thoughts.
        {"Empty", Hermes, "", {}},
        {"Text",
         Hermes,
         "A <tool_cal and a <tool_call> walk\ninto a bar. ",
         {content("A <tool_cal and a <tool_call> walk\ninto a bar. ")}},
        {"SpaceStays", Hermes, " \n a \n", {content(" \n a \n")}},
        {"Thought",
         Hermes,
         "\n<think>\nIt \n is <b>.\n</think>\n\nYes.\n",
         {thought("It \n is <b>."), content("Yes.\n")}},
        {"EmptyThought", Hermes, "<think>\n\n</think>\n\nYes", {content("Yes")}},
        {"ThoughtOfThePrompt",
         Hermes,
         "So <think> it is</think>Yes",
         {thought("So <think> it is"), content("Yes")},
         kThought},
        {"ThoughtCutOff", Hermes, "<think>so </thi", {thought("so </thi")}},
        {"ThoughtInASentence", Hermes, "Write <think> first</think>.", {content("Write <think> first</think>.")}},
        {"SecondThoughtIsText",
         Hermes,
         "<think>a</think><think>b</think>",
         {thought("a"), content("<think>b</think>")}},
        {"ThoughtWithoutCalls", None, "<think>a</think> <tool_call>", {thought("a"), content("<tool_call>")}},
        {"ThoughtOfMistral",
         Mistral,
         "[THINK]a [TOOL_CALLS]time{}[/THINK]b",
         {thought("a [TOOL_CALLS]time{}"), content("b")}},
        {"CallInAThought",
         Hermes,
         R"(<think><tool_call>{"name": "time"}</tool_call></think>No)",
         {thought(R"(<tool_call>{"name": "time"}</tool_call>)"), content("No")}},
        {"NoToolsNoCalls",
         Hermes,
         R"(<tool_call>{"name": "time"}</tool_call>)",
         {content(R"(<tool_call>{"name": "time"}</tool_call>)")},
         AnswerReader::Start::Text,
         false},

        // Hermes, Qwen, SmolLM3.
        {"Hermes",
         Hermes,
         "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\", \"days\": 1.0}}\n</tool_call>",
         {call("weather", R"({"city": "Ulm", "days": 1.0})")}},
        {"HermesTwo",
         Hermes,
         "I look.\n\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"arguments\": "
         "{\"a\": [1, {\"b\": null}]}, "
         "\"name\": \"weather\"}\n</tool_call>\n",
         {content("I look."), call("time", "{}"), call("weather", R"({"a": [1, {"b": null}]})")}},
        {"HermesMarksInStrings",
         Hermes,
         R"(<tool_call>{"name": "weather", "arguments": {"city": "</tool_call> \" } <tool_call>", "n": "\\"}}</tool_call>)",
         {call("weather", R"({"city": "</tool_call> \" } <tool_call>", "n": "\\"})")}},
        {"HermesWithoutEnd", Hermes, R"(<tool_call>{"name": "time"})", {call("time", "{}")}},
        {"HermesThenText",
         Hermes,
         R"(<tool_call>{"name": "time"}</tool_call> Done </tool_call>.)",
         {call("time", "{}"), content("Done </tool_call>.")}},
        {"HermesCutOff",
         Hermes,
         "Look:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ul",
         {content("Look:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ul")}},
        {"HermesUnknownName",
         Hermes,
         R"(<tool_call>{"name": "nothing", "arguments": {"x": 1}}</tool_call>)",
         {call("nothing", R"({"x": 1})")}},
        {"HermesNoName",
         Hermes,
         R"(<tool_call>{"arguments": {}}</tool_call>)",
         {content(R"(<tool_call>{"arguments": {}}</tool_call>)")}},
        {"HermesArgumentsAreNoObject",
         Hermes,
         R"(<tool_call>{"name": "time", "arguments": [1]}</tool_call>)",
         {content(R"(<tool_call>{"name": "time", "arguments": [1]}</tool_call>)")}},
        {"HermesArgumentsAsText",
         Hermes,
         R"(<tool_call>{"name": "time", "arguments": "{\"a\": 1}"}</tool_call>)",
         {call("time", R"({"a": 1})")}},
        {"HermesBrokenThenGood",
         Hermes,
         R"(<tool_call>{name: <tool_call>{"name": "time"}</tool_call>)",
         {content("<tool_call>{name:"), call("time", "{}")}},
        {"HermesMarkTwice",
         Hermes,
         R"(<tool_call><tool_call>{"name": "time"}</tool_call>)",
         {content("<tool_call>"), call("time", "{}")}},
        {"HermesRawNewline",
         Hermes,
         "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": \"x\n\ty\"}}</tool_call>",
         {call("time", R"({"a": "x\n\ty"})")}},
        {"HermesNumbersAsSpelt",
         Hermes,
         R"(<tool_call>{"name": "time", "arguments": {"a": 1e3, "b": 12345678901234567890123}})",
         {call("time", R"({"a": 1e3, "b": 12345678901234567890123})")}},
        {"HermesBadNumber",
         Hermes,
         R"(<tool_call>{"name": "time", "arguments": {"a": 1.2.3}}!)",
         {content(R"(<tool_call>{"name": "time", "arguments": {"a": 1.2.3}}!)")}},
        {"HermesThoughtAndCall",
         Hermes,
         "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"time\"}\n</tool_call>",
         {thought("Hm."), call("time", "{}")}},

        {"HermesWithoutMarks",
         Hermes,
         "```json\n{\n  \"name\": \"weather\",\n  \"arguments\": {\"city\": \"```\"}\n}\n```",
         {call("weather", R"({"city": "```"})")}},
        {"HermesTwoWithoutMarks",
         Hermes,
         "```json\n{\"name\": \"time\", \"arguments\": {}}\n{\"name\": \"time\", \"arguments\": "
         "{}}\n```\n\n```json\n{\"name\": \"time\", "
         "\"arguments\": {}}\n```\nDone",
         {call("time", "{}"), call("time", "{}"), call("time", "{}"), content("Done")}},
        {"HermesFenceAfterACall",
         Hermes,
         R"({"name": "time", "arguments": {}} ```js)",
         {call("time", "{}"), content("js")}},
        {"HermesJsonIsText",
         Hermes,
         "```json\n{\"name\": \"time\"}\n```",
         {content("```json\n{\"name\": \"time\"}\n```")}},
        {"HermesUnknownNameWithoutMarksIsText",
         Hermes,
         R"({"name": "nothing", "arguments": {}})",
         {content(R"({"name": "nothing", "arguments": {}})")}},
        {"HermesFenceInASentence",
         Hermes,
         "So:\n```json\n{\"name\": \"time\", \"arguments\": {}}\n```",
         {content("So:\n```json\n{\"name\": \"time\", \"arguments\": {}}\n```")}},

        // Qwen3-Coder.
        {"Xml",
         QwenXml,
         "Now.\n<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n3\n</"
         "parameter>\n</function>\n</tool_call>",
         {content("Now."), call("weather", R"({"city": "Ulm", "days": 3})")}},
        {"XmlTwoWithoutOuterMark",
         QwenXml,
         "<function=time>\n</function>\n<function=time><parameter=x>1</parameter></function>\n</tool_call>\n",
         {call("time", "{}"), call("time", R"({"x": "1"})")}},
        {"XmlTypes",
         QwenXml,
         "<function=weather><parameter=city>3</parameter><parameter=days>three</parameter><parameter=exact>True</"
         "parameter>"
         "<parameter=scale>null</parameter><parameter=tags>[1, \"a\"]</parameter><parameter=near>{\"x\": 1}</parameter>"
         "<parameter=note>null</parameter><parameter=any>7</parameter></function>",
         {call(
             "weather",
             R"({"city": "3", "days": "three", "exact": true, "scale": null, "tags": [1, "a"], "near": "{\"x\": 1}", "note": null, "any": "7"})")}},
        {"XmlNumberWithNul",
         QwenXml,
         std::string_view("<function=weather><parameter=days>1\0\0</parameter></function>", 60),
         {call("weather", R"({"days": "1\u0000\u0000"})")}},
        {"XmlMarksInValues",
         QwenXml,
         "<function=weather><parameter=city>\n<function=time>\n</function>\"</parameter>, "
         "</tool_call>\n\n</parameter>\n</function>",
         {call("weather", "{\"city\": \"<function=time>\\n</function>\\\"</parameter>, </tool_call>\\n\"}")}},
        {"XmlCutOff",
         QwenXml,
         "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>",
         {content("<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>")}},
        {"XmlBroken",
         QwenXml,
         "<tool_call>\n<function=>x <function=time></function>",
         {content("<tool_call>\n<function=>x"), call("time", "{}")}},

        // Llama 3.
        {"Llama",
         Llama3,
         R"({"name": "weather", "parameters": {"city": "Ulm"}})",
         {call("weather", R"({"city": "Ulm"})")}},
        {"LlamaTagged",
         Llama3,
         R"(<|python_tag|>{"type": "function", "name": "nothing", "parameters": {}})",
         {call("nothing", "{}")}},
        {"LlamaTwo",
         Llama3,
         R"({"name": "time", "parameters": {}}; {"name": "weather", "parameters": {"city": "}"}})",
         {call("time", "{}"), call("weather", R"({"city": "}"})")}},
        {"LlamaUnknownNameIsText",
         Llama3,
         R"({"name": "nothing", "parameters": {}} )",
         {content(R"({"name": "nothing", "parameters": {}} )")}},
        {"LlamaJsonIsText", Llama3, R"( {"city": "Ulm", "n": [1, 2]})", {content(R"( {"city": "Ulm", "n": [1, 2]})")}},
        {"LlamaJsonInASentence", Llama3, R"(Use {"name": "time"}.)", {content(R"(Use {"name": "time"}.)")}},
        {"LlamaPython", Llama3, "<|python_tag|>print({1: 2})", {content("<|python_tag|>print({1: 2})")}},
        {"LlamaCutOff",
         Llama3,
         R"({"name": "time", "parameters": {)",
         {content(R"({"name": "time", "parameters": {)")}},

        // Mistral.
        {"MistralList",
         Mistral,
         R"([TOOL_CALLS] [{"name": "weather", "arguments": {"city": "]"}, "id": "123456789"}, {"name": "time"}])",
         {call("weather", R"({"city": "]"})"), call("time", "{}")}},
        {"MistralNamed",
         Mistral,
         R"(Sure.[TOOL_CALLS]weather[ARGS]{"city": "[TOOL_CALLS]"}[TOOL_CALLS]time[ARGS]{})",
         {content("Sure."), call("weather", R"({"city": "[TOOL_CALLS]"})"), call("time", "{}")}},
        {"MistralNamedWithId",
         Mistral,
         R"([TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Ulm"})",
         {call("weather", R"({"city": "Ulm"})")}},
        {"MistralNamedWithoutMark",
         Mistral,
         R"([TOOL_CALLS]weather{"city": "Ulm"})",
         {call("weather", R"({"city": "Ulm"})")}},
        {"MistralListCutOff",
         Mistral,
         R"([TOOL_CALLS][{"name": "time"}, {"name": "wea)",
         {call("time", "{}"), content(R"(, {"name": "wea)")}},
        {"MistralText", Mistral, "[TOOL_CALLS] is a mark", {content("[TOOL_CALLS] is a mark")}},
        {"MistralEmptyList", Mistral, "[TOOL_CALLS][]", {content("[TOOL_CALLS][]")}},

        // Harmony.
        {"HarmonyThoughtAndContent",
         Harmony,
         "<|channel|>analysis<|message|>They ask.\n<|start|>assistant<|channel|>final<|message|>It is <b>. ",
         {thought("They ask.\n"), content("It is <b>. ")}},
        {"HarmonyContentAlone", Harmony, "<|channel|>final<|message|>Yes", {content("Yes")}},
        {"HarmonyEnds",
         Harmony,
         "<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant<|channel|>final<|message|>b<|end|> ",
         {thought("a"), content("b")}},
        {"HarmonyWithoutHeader", Harmony, " Just text, 1 < 2.", {content(" Just text, 1 < 2.")}},
        {"HarmonyThoughtOfThePrompt",
         Harmony,
         "so<|start|>assistant<|channel|>final<|message|>yes",
         {thought("so"), content("yes")},
         kThought},
        {"HarmonyPreamble",
         Harmony,
         "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>analysis<|message|>b<|start|>assistant"
         "<|channel|>commentary<|message|>I look.<|start|>assistant<|channel|>final<|message|>Here.",
         {thought("a\n\nb"), content("I look.\n\nHere.")}},
        {"HarmonyCall",
         Harmony,
         "<|channel|>analysis<|message|>Ulm.<|start|>assistant<|channel|>commentary to=functions.weather "
         "<|constrain|>json<|message|>{\"city\": \"<|start|>\", \"days\": 1.0}",
         {thought("Ulm."), call("weather", R"({"city": "<|start|>", "days": 1.0})")}},
        {"HarmonyCallOfTheTemplate",
         Harmony,
         " to=functions.weather<|channel|>commentary json<|message|>\n{}\n<|call|>",
         {call("weather", "{}")}},
        {"HarmonyTwoCalls",
         Harmony,
         "<|channel|>commentary to=functions.time <|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>"
         "commentary to=functions.weather<|message|>{\"city\": \"Ulm\"}<|call|>",
         {call("time", "{}"), call("weather", R"({"city": "Ulm"})")}},
        {"HarmonyUnknownName",
         Harmony,
         "<|channel|>commentary to=python code<|message|>{\"a\": 1}",
         {call("python", R"({"a": 1})")}},
        {"HarmonyCallCutOff",
         Harmony,
         "<|channel|>commentary to=functions.time <|constrain|>json<|message|>{\"a\": [1",
         {content("<|channel|>commentary to=functions.time <|constrain|>json<|message|>{\"a\": [1")}},
        {"HarmonyCallIsNoJson",
         Harmony,
         "<|channel|>commentary to=python<|message|>print(1)<|start|>assistant<|channel|>final<|message|>1",
         {content("<|channel|>commentary to=python<|message|>print(1)\n\n1")}},
        {"HarmonyCallWithoutTools",
         Harmony,
         "<|channel|>commentary to=functions.time<|message|>{}",
         {content("<|channel|>commentary to=functions.time<|message|>{}")},
         AnswerReader::Start::Text,
         false},
        {"HarmonyHeaderCutOff", Harmony, "<|channel|>fin", {content("<|channel|>fin")}},
        {"HarmonyMarkCutOff", Harmony, "<|channel|>final<|message|>a <|sta", {content("a <|sta")}},
        {"HarmonyOtherChannel", Harmony, "<|channel|>odd<|message|>a", {content("<|channel|>odd<|message|>a")}},
        {"HarmonyNoChannel", Harmony, "<|message|>a", {content("a")}},
        {"HarmonyEndIsText", Harmony, "<|channel|>final<|message|>a `<|end|>` b", {content("a `<|end|>` b")}},
        {"HarmonyMarksAreText",
         Harmony,
         "<|channel|>final<|message|>is `<|end|>`, code: \"<|start|>{role}<|message|>{text}<|end|>\"<|end|> <|start|>x",
         {content("is `<|end|>`, code: \"<|start|>{role}<|message|>{text}<|end|>\"<|end|> <|start|>x")}},
        {"HarmonyMarksAreTextOfAThought",
         Harmony,
         "<|channel|>analysis<|message|>a<|start|><|message|><|start|>assistant<|message|><|channel|>b<|start|>"
         "<|start|>assistant<|channel|>final<|message|>c",
         {thought("a<|start|><|message|><|start|>assistant<|message|><|channel|>b<|start|>"), content("c")}},
        {"HarmonyOtherRole",
         Harmony,
         "<|channel|>final<|message|>a<|start|>user<|message|>q<|start|>functions.f to=assistant<|channel|>commentary"
         "<|message|>7<|end|><|start|>assistant<|channel|>final<|message|>b",
         {content(
             "a<|start|>user<|message|>q<|start|>functions.f to=assistant<|channel|>commentary<|message|>7\n\nb")}},
        {"HarmonyWithoutStart",
         Harmony,
         "<|channel|>analysis<|message|>think<|channel|>final<|message|>The <|channel|>finale<|message|> answer.",
         {thought("think"), content("The <|channel|>finale<|message|> answer.")}},
        {"HarmonyEndWithoutStart",
         Harmony,
         "<|channel|>analysis<|message|>think<|end|>\n<|channel|>commentary "
         "to=time<|message|>{}<|call|><|channel|>final"
         "<|message|>Late",
         {thought("think"), call("time", "{}"), content("Late")}},
        {"HarmonyNextHeaderCutOff",
         Harmony,
         "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>fin",
         {thought("a")}},
        {"HarmonyNextHeaderCutOffEarly", Harmony, "<|channel|>final<|message|>a<|start|>", {content("a")}},
        {"HarmonyNextHeaderCutOffAfterACall",
         Harmony,
         "<|channel|>commentary to=time<|message|>{}<|call|>\n<|start|>assistant to=fun",
         {call("time", "{}")}},
        {"HarmonyOtherHeaderCutOff",
         Harmony,
         "<|channel|>final<|message|>a<|start|>user<|channel|>fin",
         {content("a<|start|>user<|channel|>fin")}},
        {"HarmonyLongerRoleCutOff", Harmony, "<|message|>a<|start|>assistants", {content("a<|start|>assistants")}},
        {"HarmonyFailedCallAfterContent",
         Harmony,
         "<|channel|>final<|message|>a<|start|>assistant to=time<|message|>b",
         {content("a<|start|>assistant to=time<|message|>b")}},
        {"HarmonyEmptyThoughtOfThePrompt",
         Harmony,
         "<|start|>assistant<|channel|>analysis<|message|>a",
         {thought("a")},
         kThought},
        {"HarmonyMarksAfterACall",
         Harmony,
         "<|channel|>commentary to=time<|message|>{}<|call|> <|start|>user<|message|>b",
         {call("time", "{}"), content(" <|start|>user<|message|>b")}},

        // Muse Glimmer.
        {"MuseThoughtAndContent",
         Muse,
         " to=self<|message|>They ask.\n<|eom|><|start|>assistant to=user<|message|>It is <b>. ",
         {thought("They ask.\n"), content("It is <b>. ")}},
        {"MuseContentAlone", Muse, " to=user<|message|>Yes", {content("Yes")}},
        {"MuseNoRecipient", Muse, "<|message|>Yes <b>", {content("Yes <b>")}},
        {"MuseWithoutHeader", Muse, " Just text, 1 < 2, to=3.", {content(" Just text, 1 < 2, to=3.")}},
        {"MuseWithoutEnd",
         Muse,
         " to=self<|message|>so<|start|>assistant to=user<|message|>yes",
         {thought("so"), content("yes")}},
        {"MuseWithoutStart",
         Muse,
         "to=self<|message|>so to=user it <|eom|> to=user<|message|>yes to=user<|message|>",
         {thought("so to=user it "), content("yes to=user<|message|>")}},
        {"MuseThoughtOfThePrompt",
         Muse,
         "so<|eom|><|start|>assistant to=user<|message|>yes",
         {thought("so"), content("yes")},
         kThought},
        {"MuseTwoThoughts",
         Muse,
         " to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b<|eom|><|start|>assistant<|message|>c",
         {thought("a\n\nb"), content("c")}},
        {"MuseCall",
         Muse,
         " to=self<|message|>Ulm. <atem:invoke name=\"time\"></atem:invoke><|eom|><|start|>assistant to=weather"
         "<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\"> Ulm\n"
         "</atem:parameter>\n<atem:parameter name=\"days\">3</atem:parameter>\n<atem:parameter name=\"exact\">true"
         "</atem:parameter>\n<atem:parameter name=\"tags\">[1, \"a\"]</atem:parameter>\n</atem:invoke>\n"
         "</atem:function_calls>",
         {thought("Ulm. <atem:invoke name=\"time\"></atem:invoke>"),
          call("weather", R"({"city": " Ulm\n", "days": 3, "exact": true, "tags": [1, "a"]})")}},
        {"MuseTextAndTwoCalls",
         Muse,
         " to=user<|message|>I look.<|eom|><|start|>assistant to=time<|message|><atem:function_calls>\n<atem:invoke "
         "name=\"time\">\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=weather<|message|>"
         "<atem:function_calls><atem:invoke name=\"weather\"><atem:parameter name=\"city\">Ulm</atem:parameter>"
         "</atem:invoke></atem:function_calls><|eom|>",
         {content("I look."), call("time", "{}"), call("weather", R"({"city": "Ulm"})")}},
        {"MuseTwoCallsInABlock",
         Muse,
         " to=time<|message|><atem:function_calls>\n<atem:invoke name=\"time\">\n</atem:invoke>\n<atem:invoke "
         "name=\"a.b\"></atem:invoke>\n</atem:function_calls> \n",
         {call("time", "{}"), call("a.b", "{}")}},
        {"MuseCallsWithoutABlock",
         Muse,
         " to=time<|message|><atem:invoke name=\"time\"></atem:invoke><|eom|><|start|>assistant to=user<|message|>ok",
         {call("time", "{}"), content("ok")}},
        {"MuseCallWithoutARecipient",
         Muse,
         "<|message|><atem:function_calls>\n<atem:invoke name=\"time\">\n</atem:invoke>\n</atem:function_calls>",
         {call("time", "{}")}},
        {"MuseNoCallWithoutARecipient",
         Muse,
         "<|message|><atem:function_calls> is a mark<|eom|><|start|>assistant<|message|>b",
         {content("<atem:function_calls> is a mark\n\nb")}},
        {"MuseCallToTheUserIsText",
         Muse,
         " to=user<|message|><atem:invoke name=\"time\"></atem:invoke>",
         {content("<atem:invoke name=\"time\"></atem:invoke>")}},
        {"MuseMarksInValues",
         Muse,
         " to=weather<|message|><atem:invoke name=\"weather\"><atem:parameter name=\"city\"></atem:parameter>, "
         "</atem:invoke><|eom|><|start|></atem:parameter></atem:invoke>",
         {call("weather", R"({"city": "</atem:parameter>, </atem:invoke><|eom|><|start|>"})")}},
        {"MuseTextAfterACall",
         Muse,
         " to=time<|message|><atem:invoke name=\"time\"></atem:invoke>\nDone",
         {call("time", "{}"), content("\nDone")}},
        {"MuseCallCutOff",
         Muse,
         " to=time<|message|><atem:function_calls>\n<atem:invoke name=\"ti",
         {content(" to=time<|message|><atem:function_calls>\n<atem:invoke name=\"ti")}},
        {"MuseNextCallCutOff",
         Muse,
         " to=time<|message|><atem:function_calls>\n<atem:invoke name=\"time\">\n</atem:invoke>\n</atem:function_ca",
         {call("time", "{}")}},
        {"MuseSpaceAfterACall",
         Muse,
         " to=time<|message|><atem:invoke name=\"time\"></atem:invoke>\n",
         {call("time", "{}")}},
        {"MuseCallIsNoXml",
         Muse,
         " to=python<|message|>print(1)<|eom|><|start|>assistant to=user<|message|>1",
         {content(" to=python<|message|>print(1)\n\n1")}},
        {"MuseBadNames",
         Muse,
         " to=f<|message|><atem:invoke name=\"\"><|eom|><|start|>assistant to=f<|message|><atem:invoke name=\"a\"b\">",
         {content(" to=f<|message|><atem:invoke name=\"\"><|eom|><|start|>assistant to=f<|message|><atem:invoke "
                  "name=\"a\"b\">")}},
        {"MuseCallWithoutTools",
         Muse,
         " to=time<|message|><atem:invoke name=\"time\"></atem:invoke>",
         {content(" to=time<|message|><atem:invoke name=\"time\"></atem:invoke>")},
         AnswerReader::Start::Text,
         false},
        {"MuseHeaderCutOff", Muse, " to=use", {content(" to=use")}},
        {"MuseNextHeaderCutOff", Muse, " to=self<|message|>a<|eom|><|start|>assistant to=us", {thought("a")}},
        {"MuseEndAlone", Muse, " to=self<|message|>a<|eom|>", {thought("a")}},
        {"MuseMarkCutOff", Muse, " to=user<|message|>a <|eo", {content("a <|eo")}},
        {"MuseMarksAreText",
         Muse,
         " to=user<|message|>`<|eom|>` ends, <|start|>user<|message|>q<|eom|> to=<|message|> <|start|>",
         {content("`<|eom|>` ends, <|start|>user<|message|>q<|eom|> to=<|message|> ")}},
        {"MuseOtherRole",
         Muse,
         " to=user<|message|>a<|eom|><|start|>tool x<|message|>q<|start|>assistant to=user<|message|>b",
         {content("a<|eom|><|start|>tool x<|message|>q\n\nb")}},

        // Phi-4.
        {"Phi",
         Phi4,
         R"(<|tool_call|>[{"name": "weather", "arguments": {"city": "<|/tool_call|>"}}, {"name": "time"}]<|/tool_call|>)",
         {call("weather", R"({"city": "<|/tool_call|>"})"), call("time", "{}")}},
        {"PhiObject",
         Phi4,
         R"(<|tool_call|>{"name": "time", "arguments": {}}<|/tool_call|> ok)",
         {call("time", "{}"), content("ok")}},
        {"PhiFunctools", Phi4, R"(functools[{"name": "time", "arguments": {}}])", {call("time", "{}")}},
        {"PhiText", Phi4, "functools[0] and functools.reduce", {content("functools[0] and functools.reduce")}},
        {"PhiCutOff", Phi4, R"(<|tool_call|>[{"name": "ti)", {content(R"(<|tool_call|>[{"name": "ti)")}},
    };
}

TEST(AnswerReader, ReadsEachGoldenHoweverItIsDivided) {
    for (const AnswerCase& known : cases()) {
        const std::string_view text = known.answer;
        ASSERT_EQ(read(known, {text}), known.pieces) << known.name;
        std::vector<std::string_view> bytes;
        for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
        ASSERT_EQ(read(known, bytes), known.pieces) << known.name;
        for (std::size_t i = 0; i <= text.size(); ++i) {
            ASSERT_EQ(read(known, {text.substr(0, i), text.substr(i)}), known.pieces) << known.name << " at " << i;
            for (std::size_t j = i; j <= text.size(); j += 7)
                ASSERT_EQ(read(known, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}), known.pieces)
                    << known.name << " at " << i << ", " << j;
        }
    }
}

// Granite 3.3, whose template names the marks of its thoughts and of the content after them.
TEST(AnswerReader, DropsTheMarksAroundContent) {
    const AnswerForm form = choose_answer_form("<|tool_call|> <think></think> and <response></response>",
                                               [](std::string_view) { return false; });
    const std::vector<std::pair<std::string_view, Pieces>> answers{
        {"<think>a</think>\n<response>\nb </response> c</response>\n", {thought("a"), content("b </response> c")}},
        {"<response>b</response>", {content("b")}},
        {"<response>b\n", {content("b\n")}},
        {"<response></response>", {}},
        {"<response>b</respons", {content("b</respons")}},
        {"<response>b</response> <", {content("b</response> <")}},
        {"a <response>b</response>", {content("a <response>b</response>")}},
        {"<think>a</think>b</response>", {thought("a"), content("b</response>")}},
        {"<response>b</response></response>", {content("b</response>")}},
        {"<response>b</response>\n<|tool_call|>[{\"name\": \"time\"}]", {content("b"), call("time", "{}")}},
        {"<response>b\n<|tool_call|>[{\"name\": \"time\"}]</response>",
         {content("b"), call("time", "{}"), content("</response>")}},
        {"<response>b</response> <|tool_call|>x</response>", {content("b</response> <|tool_call|>x")}},
    };
    for (const auto& [answer, pieces] : answers)
        for (const std::size_t part : {std::size_t{1}, std::size_t{2}, std::size_t{7}, answer.size()}) {
            AnswerReader reader(form, weather_tools());
            Pieces all;
            for (std::size_t at = 0; at < answer.size(); at += part) add(all, reader.push(answer.substr(at, part)));
            add(all, reader.finish());
            EXPECT_EQ(all, pieces) << answer << " in parts of " << part;
        }
    AnswerReader plain(form, {});  // also without tools
    Pieces all = plain.push("<think>a</think><response>b</response>");
    add(all, plain.finish());
    EXPECT_EQ(all, (Pieces{thought("a"), content("b")}));
    EXPECT_FALSE(choose_answer_form("<response>", [](std::string_view) { return false; }).content.exist());
}

TEST(AnswerReader, ShowsContentAndThoughtsAtOnce) {
    AnswerReader reader(form_of(CallForm::Hermes), weather_tools());
    EXPECT_EQ(reader.push("<think>It is"), Pieces{thought("It is")});
    EXPECT_TRUE(reader.in_thought());
    EXPECT_EQ(reader.push("</think>Yes"), Pieces{content("Yes")});
    EXPECT_FALSE(reader.in_thought());
    EXPECT_EQ(reader.push("<tool_call>{\"name\": \"time\""), Pieces{});
    EXPECT_EQ(reader.n_calls(), 0U);
    EXPECT_EQ(reader.push("}"), Pieces{call("time", "{}")});
    EXPECT_EQ(reader.n_calls(), 1U);
}

TEST(AnswerReader, SkipsWhatThePromptHas) {
    for (const CallForm calls : {CallForm::Hermes, CallForm::QwenXml, CallForm::Llama3, CallForm::Mistral,
                                 CallForm::Phi4, CallForm::Gemma4, CallForm::Harmony, CallForm::Muse}) {
        for (const bool is_named : {false, true}) {
            MarkedText prompt{.bytes = "<|im_start|>assistant\n", .said = {}};
            const AnswerForm form = form_of(calls);
            const std::string start =
                append_call_start(form, is_named ? std::optional<std::string>("time") : std::nullopt, prompt);
            EXPECT_TRUE(prompt.bytes.ends_with(start));
            EXPECT_EQ(prompt.said.size(), !is_named ? 0U : calls == CallForm::Muse ? 2U : 1U);
            AnswerReader reader(form, weather_tools());
            reader.skip(start);
            std::string answer = is_named ? "" : std::string("time").append(form.name_end);
            answer += calls == CallForm::QwenXml   ? "</function>"
                      : calls == CallForm::Mistral ? "{}"
                      : calls == CallForm::Harmony ? " {}"
                      : calls == CallForm::Gemma4  ? "}"
                      : calls == CallForm::Muse    ? "</atem:invoke>"
                                                   : " {}}";
            EXPECT_EQ(reader.push(answer), Pieces{call("time", "{}")}) << call_form_name(calls);
        }
    }
    AnswerReader reader(form_of(CallForm::Hermes), weather_tools());
    reader.skip("<think>so</think>Yes, ");
    Pieces all = reader.push("<think>");
    add(all, reader.finish());
    EXPECT_EQ(all, Pieces{content("<think>")});
}

// The beginning of the answer is in the prompt, its thought or its content.
TEST(AnswerReader, SkipsAHarmonyMessageThatIsContinued) {
    const AnswerForm form = form_of(CallForm::Harmony);
    MarkedText prompt{.bytes = "<|start|>assistant", .said = {}};
    open_thought(form, prompt);
    EXPECT_TRUE(ends_in_thought(form, prompt.bytes));
    close_thought(form, prompt);
    open_content(form, prompt);
    EXPECT_EQ(prompt.bytes,
              "<|start|>assistant<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>");
    AnswerReader reader(form, weather_tools());
    reader.skip(prompt.bytes.substr(18));
    reader.skip("It i");
    EXPECT_EQ(reader.push("s so."), Pieces{content("s so.")});
    EXPECT_EQ(reader.finish(), Pieces{});
    AnswerReader thinking(form, {});
    EXPECT_EQ(thinking.push("<|channel|>analysis<|message|>a"), Pieces{thought("a")});
    EXPECT_TRUE(thinking.in_thought());
    EXPECT_EQ(thinking.push("<|start|>assistant<|channel|>final<|message|>"), Pieces{});
    EXPECT_FALSE(thinking.in_thought());
    MarkedText forced{.bytes = "<|channel|>analysis<|message|>", .said = {}};
    EXPECT_EQ(append_call_start(form, "time", forced),
              "<|end|><|start|>assistant<|channel|>commentary to=functions.time <|constrain|>json<|message|>");
}

TEST(AnswerReader, SkipsAMuseMessageThatIsContinued) {
    const AnswerForm form = form_of(CallForm::Muse);
    MarkedText prompt{.bytes = "<|start|>assistant", .said = {}};
    open_thought(form, prompt);
    EXPECT_TRUE(ends_in_thought(form, prompt.bytes));
    close_thought(form, prompt);
    open_content(form, prompt);
    EXPECT_EQ(prompt.bytes, "<|start|>assistant to=self<|message|><|eom|><|start|>assistant to=user<|message|>");
    AnswerReader reader(form, weather_tools());
    reader.skip(prompt.bytes.substr(18));
    reader.skip("It i");
    EXPECT_EQ(reader.push("s so."), Pieces{content("s so.")});
    EXPECT_EQ(reader.finish(), Pieces{});
    MarkedText forced{.bytes = "<|start|>assistant", .said = {}};
    EXPECT_EQ(append_call_start(form, "time", forced),
              " to=time<|message|><atem:function_calls>\n<atem:invoke name=\"time\">\n");
}

// As the published template writes them.
TEST(AnswerForm, HarmonyCallsAreSpeltAsTheTemplateSpellsThem) {
    const AnswerForm form =
        choose_answer_form("<|start|>assistant to=' + name + '<|channel|>commentary json<|message|>",
                           [](std::string_view) { return false; });
    MarkedText prompt;
    EXPECT_EQ(append_call_start(form, "time", prompt), " to=functions.time<|channel|>commentary json<|message|>");
}

// <|eom|> ends a message of Muse Glimmer's answers, but no answer; the vocabulary of Llama 4 has it, too, but not the
// other marks.
TEST(AnswerForm, TheEndOfAMuseMessageIsAMarkAndEndsNoText) {
    const auto is_muse = [](std::string_view text) { return text == "<|start|>" || text == "<|message|>"; };
    EXPECT_TRUE(is_answer_mark("<|eom|>"));
    EXPECT_FALSE(ends_text_by_name("<|eom|>"));
    EXPECT_TRUE(ends_message_alone("<|eom|>", is_muse));
    EXPECT_FALSE(ends_message_alone("<|eom|>", [](std::string_view text) { return text == "<|eot|>"; }));
    EXPECT_FALSE(ends_message_alone("<|eot|>", is_muse));
}

TEST(AnswerForm, ClosesAThoughtBeforeAForcedCall) {
    const AnswerForm form = form_of(CallForm::Hermes);
    MarkedText prompt{.bytes = "<|im_start|>assistant\n<think>\n", .said = {}};
    EXPECT_TRUE(ends_in_thought(form, prompt.bytes));
    EXPECT_EQ(append_call_start(form, "time", prompt),
              "\n</think>\n\n<tool_call>\n{\"name\": \"time\", \"arguments\":");
    EXPECT_FALSE(ends_in_thought(form, "<think>\n\n</think>\n\n"));
    EXPECT_FALSE(ends_in_thought(form_of(CallForm::Phi4), "<think>"));
}

TEST(AnswerForm, IsChosenByTheMarksOfTheTemplate) {
    const auto calls_of = [](std::string_view source) {
        return choose_answer_form(source, [](std::string_view) { return false; }).calls;
    };
    EXPECT_EQ(calls_of(""), CallForm::None);
    EXPECT_EQ(calls_of("{{ message.content }}"), CallForm::None);
    EXPECT_EQ(calls_of("'<tool_call>' + name + '<arg_key>'"), CallForm::None);
    EXPECT_EQ(calls_of("'<tool_call>'"), CallForm::Hermes);
    EXPECT_EQ(calls_of("'<tool_call><function=' '<parameter='"), CallForm::QwenXml);
    EXPECT_EQ(calls_of("'<|start_header_id|>ipython<|end_header_id|>'"), CallForm::Llama3);
    EXPECT_EQ(calls_of("'<|tool|>' + message['tools']"), CallForm::Phi4);
    EXPECT_EQ(calls_of("[TOOL_CALLS] ["), CallForm::Mistral);
    EXPECT_EQ(calls_of("<|start|>assistant<|channel|>final<|message|>"), CallForm::Harmony);
    EXPECT_EQ(calls_of("'<|start|>assistant to=self<|message|>' + text + '<|eom|>'"), CallForm::Muse);
    EXPECT_EQ(calls_of("<atem:function_calls>\n<atem:invoke name="), CallForm::Muse);
    const auto thoughts_of = [](std::string_view source, std::string_view token) {
        return std::string(choose_answer_form(source, [&](std::string_view text) {
                               return text.find(token) != text.npos;
                           }).thoughts.open);
    };
    EXPECT_EQ(thoughts_of("split('</think>')", "none"), "<think>");
    EXPECT_EQ(thoughts_of("[THINK]", "think"), "[THINK]");
    EXPECT_EQ(thoughts_of("", "THINK"), "[THINK]");
    EXPECT_EQ(thoughts_of("", "think"), "<think>");
    EXPECT_EQ(thoughts_of("", "none"), "");
}

}  // namespace
}  // namespace slipstream
