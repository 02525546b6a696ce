// Recorded answers out of their files, and as token ids.
#include "tools/lab/replay/recorded_runs.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tools/lab/replay/recorded_tokens.h"
#include "tools/machine/tokenizer_files.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kPrompts =
    "{\"question_id\": 7, \"turns\": [\"Who?\", \"And then?\"]}\n\n"
    "{\"question_id\": 3, \"category\": \"x\", \"turns\": [\"Why?\"]}\n";

std::string answer(const std::string& fields) {
    return "{\"question_id\": 7, \"category\": \"tales\", \"choices\": [{" + fields + "}]}\n";
}

std::vector<RecordedRun> parse(const std::string& trace, const std::string& prompts = kPrompts) {
    return parse_recorded_runs(trace, "trace", prompts, "prompts");
}

template <typename Expected>
std::string refused(const std::string& trace, const std::string& prompts = kPrompts) {
    try {
        static_cast<void>(parse(trace, prompts));
    } catch (const Expected& error) {
        return error.what();
    }
    ADD_FAILURE() << "not refused: " << trace;
    return "";
}

TEST(RecordedRuns, MatchesAnswersWithPrompts) {
    const auto runs =
        parse(answer(R"("turns": ["A wolf.", "He ran."], "new_tokens": [4, 3], "accept_lengths": [2, 5])") +
              "\n{\"question_id\": 3, \"choices\": [{\"turns\": [\"So.\"]}, {\"turns\": []}]}");
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0].question_id, 7);
    EXPECT_EQ(runs[0].category, "tales");
    ASSERT_EQ(runs[0].turns.size(), 2U);
    EXPECT_EQ(runs[0].turns[1].prompt, "And then?");
    EXPECT_EQ(runs[0].turns[1].answer, "He ran.");
    EXPECT_EQ(runs[0].turns[1].new_tokens, 3);
    EXPECT_THAT(runs[0].accept_lengths, ElementsAre(2, 5));
    EXPECT_EQ(runs[1].category, "");
    EXPECT_EQ(runs[1].turns[0].prompt, "Why?");
    EXPECT_EQ(runs[1].turns[0].new_tokens, std::nullopt);
    EXPECT_THAT(runs[1].accept_lengths, IsEmpty());
}

TEST(RecordedRuns, RefusesWhatDoesNotFit) {
    EXPECT_THAT(refused<FormatError>("nonsense"), HasSubstr("trace:1"));
    EXPECT_THAT(refused<FormatError>("\n{\"question_id\": 7}"), AllOf(HasSubstr("trace:2"), HasSubstr("choices")));
    EXPECT_THAT(refused<FormatError>("{\"question_id\": 7, \"choices\": [3]}"), HasSubstr("choices"));
    EXPECT_THAT(refused<FormatError>("{\"choices\": [{\"turns\": [\"a\"]}]}"), HasSubstr("question_id is missing"));
    EXPECT_THAT(refused<FormatError>("{\"question_id\": 9, \"choices\": [{\"turns\": [\"a\"]}]}"),
                AllOf(HasSubstr("9"), HasSubstr("prompts")));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": [])")), HasSubstr("turns"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": [1])")), HasSubstr("turns"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": ["a", "b", "c"])")), HasSubstr("3 answers"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": ["a"], "new_tokens": [1, 2])")), HasSubstr("new_tokens"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": ["a"], "new_tokens": "x")")), HasSubstr("new_tokens"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": ["a"], "accept_lengths": [0])")), HasSubstr("accept_lengths"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": ["a"])"), "{\"question_id\": 7}"), HasSubstr("prompts:1"));
    EXPECT_THAT(refused<FormatError>(answer(R"("turns": ["a"])"), std::string(kPrompts) + kPrompts),
                HasSubstr("earlier line"));
    EXPECT_THAT(refused<RequestError>(" \n\n"), HasSubstr("holds no answers"));
}

class RecordedTokens : public testing::Test {
protected:
    RecordedTokens()
        : tokenizer_(
              make_tokenizer(find_tokenizer_source(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target/tokenizer.model"))) {
    }

    [[nodiscard]] std::vector<TokenId> encode(const std::string& text) const {
        return tokenizer_->encode(text, SpecialTokens::AsText);
    }
    [[nodiscard]] static RecordedRun run(std::optional<std::int64_t> new_tokens) {
        return {.question_id = 1,
                .category = "",
                .turns = {{"Who came?", "The wolf came.", new_tokens}, {"And then?", "He ran.", std::nullopt}},
                .accept_lengths = {}};
    }
    static std::vector<TokenId> joined(std::initializer_list<std::vector<TokenId>> parts) {
        std::vector<TokenId> all;
        for (const std::vector<TokenId>& part : parts) all.insert(all.end(), part.begin(), part.end());
        return all;
    }

    std::unique_ptr<Tokenizer> tokenizer_;
};

constexpr const char* kSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. ";

TEST_F(RecordedTokens, VicunaPartsAreEncodedByThemselves) {
    const auto turns = recorded_tokens(run(std::nullopt), *tokenizer_, RecordedFormat::Vicuna);
    const TokenId bos = *tokenizer_->bos_id();
    const TokenId end = tokenizer_->end_tokens().front();
    ASSERT_EQ(turns.size(), 2U);
    EXPECT_EQ(joined({turns[0].prompt, turns[0].answer}),
              joined({{bos}, encode(std::string(kSystem) + "USER: Who came? ASSISTANT: The wolf came."), {end}}));
    EXPECT_EQ(turns[0].prompt, joined({{bos}, encode(std::string(kSystem) + "USER: Who came? ASSISTANT:")}));
    EXPECT_EQ(joined({turns[1].prompt, turns[1].answer}),
              joined({encode("USER: And then? ASSISTANT: He ran."), {end}}));
    EXPECT_EQ(turns[1].prompt, encode("USER: And then? ASSISTANT:"));
}

TEST_F(RecordedTokens, AnAnswerThatWasCutHasNoEndTokenOfItsOwn) {
    const auto whole = recorded_tokens(run(std::nullopt), *tokenizer_, RecordedFormat::Vicuna);
    const auto n = static_cast<std::int64_t>(whole[0].answer.size());
    // Room for the end token, and none.
    EXPECT_EQ(recorded_tokens(run(n), *tokenizer_, RecordedFormat::Vicuna)[0].answer, whole[0].answer);
    const auto cut = recorded_tokens(run(n - 1), *tokenizer_, RecordedFormat::Vicuna);
    EXPECT_EQ(static_cast<std::int64_t>(cut[0].answer.size()), n - 1);
    EXPECT_EQ(cut[1].prompt.front(), tokenizer_->end_tokens().front());
    EXPECT_EQ(joined({cut[0].answer, cut[1].prompt}), joined({whole[0].answer, whole[1].prompt}));
}

TEST_F(RecordedTokens, RawTextsJoinAsTheyStand) {
    const RecordedRun run{.question_id = 1,
                          .category = "",
                          .turns = {{"Once upon a ti", "me there was", std::nullopt}},
                          .accept_lengths = {}};
    const auto turns = recorded_tokens(run, *tokenizer_, RecordedFormat::Raw);
    // The border lies where the encoding of the prompt alone and of the whole part: inside a word, before it.
    const std::vector<TokenId> all = joined({turns[0].prompt, turns[0].answer});
    std::vector<TokenId> expected = encode("Once upon a time there was");
    if (tokenizer_->adds_bos()) expected.insert(expected.begin(), *tokenizer_->bos_id());
    expected.push_back(tokenizer_->end_tokens().front());
    EXPECT_EQ(all, expected);
    EXPECT_GT(turns[0].prompt.size(), 1U);
}

TEST_F(RecordedTokens, FormatsByName) {
    EXPECT_EQ(find_recorded_format("vicuna"), RecordedFormat::Vicuna);
    EXPECT_EQ(find_recorded_format("raw"), RecordedFormat::Raw);
    EXPECT_EQ(find_recorded_format("chatml"), std::nullopt);
}

}  // namespace
}  // namespace slipstream::tools
