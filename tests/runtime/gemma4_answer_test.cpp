// Thoughts and tool calls in answers of Gemma 4, however the answer is divided.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {
namespace {

constexpr std::string_view kTemplate =
    "{{ '<|turn>model\\n' }}{{ '<|tool_call>call:' }}{{ '<tool_call|>' }}{{ '<|channel>thought\\n<channel|>' }}"
    "{{ '<|tool>declaration:' }}";

AnswerForm gemma4() {
    return choose_answer_form(kTemplate, [](std::string_view) { return false; });
}

// Returns the pieces of `answer`: "T:" thoughts, "C:" content, "name(arguments)" calls.
std::vector<std::string> read(std::string_view answer, std::size_t part_bytes) {
    AnswerReader reader(gemma4(), {{.name = "weather"}, {.name = "time"}});
    std::vector<std::string> all;
    const auto add = [&](const std::vector<AnswerPiece>& pieces) {
        for (const AnswerPiece& piece : pieces) {
            if (piece.kind == AnswerPiece::Kind::Call) {
                all.push_back(piece.name + "(" + piece.text + ")");
                continue;
            }
            const std::string kind = piece.kind == AnswerPiece::Kind::Thought ? "T:" : "C:";
            if (all.empty() || !all.back().starts_with(kind)) all.push_back(kind);
            all.back() += piece.text;
        }
    };
    for (std::size_t at = 0; at < answer.size(); at += part_bytes) add(reader.push(answer.substr(at, part_bytes)));
    add(reader.finish());
    return all;
}

TEST(Gemma4Answer, TheTemplateSaysTheForm) {
    EXPECT_EQ(gemma4().calls, CallForm::Gemma4);
    EXPECT_EQ(call_form_name(gemma4().calls), "gemma-4");
    EXPECT_EQ(gemma4().thoughts.open, "<|channel>thought");
    EXPECT_TRUE(ends_in_thought(gemma4(), "<|turn>model\n<|channel>thought\n"));
    EXPECT_FALSE(ends_in_thought(gemma4(), "<|turn>model\n<|channel>thought\n<channel|>"));
    // Marks of other families that are spelt alike.
    const auto none = [](std::string_view) { return false; };
    EXPECT_EQ(choose_answer_form("<|tool_call|>", none).calls, CallForm::Phi4);
    EXPECT_EQ(choose_answer_form("<tool_call>", none).calls, CallForm::Hermes);
    EXPECT_FALSE(choose_answer_form("<|channel|>analysis", none).thoughts.exist());
}

TEST(Gemma4Answer, ThoughtsAndCallsAreReadHoweverTheyArrive) {
    struct Case {
        std::string_view answer;
        std::vector<std::string> pieces;
    };
    const std::vector<Case> cases{
        {"<|channel>thought\nIt is cold.\n<channel|>\nYes.", {"T:It is cold.", "C:Yes."}},
        {"<|channel>thought\n<channel|>Yes.", {"C:Yes."}},
        {"<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:3}<tool_call|>",
         {R"(weather({"city":"Oslo","days":3}))"}},
        {"Wait. <|tool_call>call:time{}<tool_call|><|tool_call>call:weather{exact:true}<tool_call|>",
         {"C:Wait.", "time({})", R"(weather({"exact":true}))"}},
        // Strings have no escapes; nested containers; quoted keys; values that are no JSON.
        {"<|tool_call>call:weather{a:<|\"|>say "
         "\"<b>\"\n{x:1}<|\"|>,o:{<|\"|>k<|\"|>:[1,-2.5e3,null,[]],e:{}}}<tool_call|>",
         {R"(weather({"a":"say \"<b>\"\n{x:1}","o":{"k":[1,-2.5e3,null,[]],"e":{}}}))"}},
        {"<|tool_call>call:weather{ city : Oslo , n: 007 , t:true }",
         {R"(weather({"city":"Oslo","n":"007","t":true}))"}},
        // JSON's strings and keys, which a model may write instead.
        {R"(<|tool_call>call:weather{"city":"Paris, \"France\"",days:3}<tool_call|>)",
         {R"(weather({"city":"Paris, \"France\"","days":3}))"}},
        // What cannot be read is content.
        {"<|tool_call>call:weather{city:<|\"|>Oslo", {"C:<|tool_call>call:weather{city:<|\"|>Oslo"}},
        {"<|tool_call>weather{}<tool_call|>", {"C:<|tool_call>weather{}<tool_call|>"}},
        {"<|tool_call>call:{}", {"C:<|tool_call>call:{}"}},
        {R"(<|tool_call>call:time{a:"\q"})", {R"(C:<|tool_call>call:time{a:"\q"})"}},
        {"<|tool_call>call:time{]", {"C:<|tool_call>call:time{]"}},
        {"<|tool_call>call:time{a:1,}", {"C:<|tool_call>call:time{a:1,}"}},
        {"<|tool_call>call:time{a:[1}", {"C:<|tool_call>call:time{a:[1}"}},
        {"<|tool_call>call:time{a}", {"C:<|tool_call>call:time{a}"}},
        {"<|tool_call>call:time{a:<x>}", {"C:<|tool_call>call:time{a:<x>}"}},
    };
    for (const Case& known : cases)
        for (const std::size_t part : {std::size_t{1}, std::size_t{3}, std::size_t{1000}})
            EXPECT_EQ(read(known.answer, part), known.pieces) << known.answer << " in parts of " << part;
}

TEST(Gemma4Answer, DeepNestingIsNoCall) {
    const std::string deep = "<|tool_call>call:time{a:" + std::string(1000, '[');
    EXPECT_THAT(read(deep, 1000), testing::ElementsAre("C:" + deep));
}

TEST(Gemma4Answer, ACallCanBeForced) {
    MarkedText prompt;
    prompt.bytes = "<|turn>model\n";
    EXPECT_EQ(append_call_start(gemma4(), "weather", prompt), "<|tool_call>call:weather{");
    AnswerReader reader(gemma4(), {{.name = "weather"}});
    reader.skip("<|tool_call>call:weather{");
    const auto pieces = reader.push("city:<|\"|>Oslo<|\"|>}<tool_call|>");
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].name, "weather");
    EXPECT_EQ(pieces[0].text, R"({"city":"Oslo"})");
}

TEST(Gemma4Answer, ItsTokensAreMarksAndEnds) {
    for (const char* mark : {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"})
        EXPECT_TRUE(is_answer_mark(mark)) << mark;
    for (const char* mark : {"<|turn>", "<turn|>", "<|channel>", "<tool|>", "<|think|>"})
        EXPECT_TRUE(is_turn_mark(mark)) << mark;
    EXPECT_FALSE(is_turn_mark("<|>"));
    EXPECT_FALSE(is_turn_mark("<b>"));
    for (const char* end : {"<turn|>", "<|tool_response>"}) EXPECT_TRUE(ends_text_by_name(end)) << end;
    EXPECT_FALSE(ends_text_by_name("<tool_response|>"));
}

}  // namespace
}  // namespace slipstream
