// replay through the program: on conversations made here, and on Spec-Bench's recorded runs where they are there.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kTale =
    "The wolf went to the house of the miller and knocked at the door, and the miller said, Who is there? The wolf "
    "went to the house of the smith and knocked at the door, and the smith said, Who is there?";

// Two conversations of one category and one of another; the second says what the first said.
class ReplayProgram : public testing::Test {
protected:
    ReplayProgram() {
        const auto answer = [](int id, const char* category) {
            return fmt::format(R"({{"question_id": {}, "category": "{}", "choices": [{{"turns": ["{}", "{}"]}}]}})"
                               "\n",
                               id, category, kTale, "The wolf went to the house of the miller.");
        };
        prompts_ = folder_.write("prompts.jsonl", R"({"question_id": 1, "turns": ["Tell me a tale.", "Again!"]})"
                                                  "\n"
                                                  R"({"question_id": 2, "turns": ["Tell me one.", "Again!"]})"
                                                  "\n"
                                                  R"({"question_id": 3, "turns": ["A tale!", "Again!"]})"
                                                  "\n");
        trace_ = folder_.write("trace.jsonl", answer(1, "tales") + answer(2, "tales") + answer(3, "other"));
    }

    [[nodiscard]] std::vector<std::string> replay(const std::vector<std::string>& more) const {
        std::vector<std::string> arguments{"replay",
                                           "--trace",
                                           trace_.string(),
                                           "--prompts",
                                           prompts_.string(),
                                           "--tokenizer",
                                           source_path("tools/demo_model/target/tokenizer.model")};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    [[nodiscard]] json figures(std::vector<std::string> more) const {
        more.emplace_back("--json");
        const ProgramResult result = run_program(replay(more));
        EXPECT_EQ(result.code, 0) << result.err;
        return json::parse(result.out, nullptr, false);
    }
    [[nodiscard]] std::string refused(int code, const std::vector<std::string>& more) const {
        const ProgramResult result = run_program(replay(more));
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        return result.err;
    }

    TemporaryFolder folder_;
    fs::path prompts_, trace_;
};

TEST_F(ReplayProgram, FiguresHangTogether) {
    const json plain = figures({"--draft", "none"});
    EXPECT_EQ(plain["mean_accepted_tokens"], 1.0);
    EXPECT_EQ(plain["conversations"], 3);
    EXPECT_EQ(plain["sources"].size(), 0U);
    for (const char* draft : {"lookup", "suffix", "cacheback", "context", "auto"}) {
        const json run = figures({"--draft", draft});
        EXPECT_EQ(run["generated_tokens"], plain["generated_tokens"]) << draft;
        EXPECT_GT(run["mean_accepted_tokens"], 1.2) << draft;
        EXPECT_DOUBLE_EQ(run["mean_accepted_tokens"],
                         run["generated_tokens"].get<double>() / run["passes"].get<double>());
        EXPECT_EQ(run["by_category"].size(), 2U);
        EXPECT_EQ(run["by_category"]["tales"]["conversations"], 2);
        EXPECT_EQ(run["by_category"]["tales"]["passes"].get<int>() + run["by_category"]["other"]["passes"].get<int>(),
                  run["passes"].get<int>());
        EXPECT_LE(run["budget_mean"], run["budget"]);
        EXPECT_FALSE(run["sources"].empty()) << draft;
        EXPECT_FALSE(run.contains("rows"));
    }
    EXPECT_EQ(figures({"--draft", "suffix", "--budget", "1"})["mean_accepted_tokens"], 1.0);
}

TEST_F(ReplayProgram, TablesAreResetUnlessTheyAreHot) {
    const json reset = figures({"--draft", "cacheback"});
    const json hot = figures({"--draft", "cacheback", "--hot"});
    EXPECT_EQ(figures({"--draft", "cacheback", "--reset"})["passes"], reset["passes"]);
    EXPECT_EQ(reset["tables"], "reset");
    EXPECT_EQ(hot["tables"], "hot");
    // The second and third tell the first's tale again.
    EXPECT_GT(hot["mean_accepted_tokens"].get<double>(), reset["mean_accepted_tokens"].get<double>() + 0.3);
    EXPECT_THAT(refused(2, {"--hot", "--reset"}), HasSubstr("exclude each other"));
}

TEST_F(ReplayProgram, RowsThatAreEqualAreCounted) {
    // All three say the same, token by token, as plain decoding would record it.
    const std::int64_t n_tokens = figures({"--draft", "none"})["by_category"]["other"]["generated_tokens"];
    std::string ones = "1";
    for (std::int64_t i = 1; i < n_tokens; ++i) ones += ", 1";
    const auto marked = [&](const std::string& lengths) {
        std::string text = file_text(trace_.string());
        const std::string fields = fmt::format("\"accept_lengths\": [{}], \"turns\"", lengths);
        std::size_t at = text.find("\"turns\"");
        for (; at != std::string::npos; at = text.find("\"turns\"", at + fields.size())) text.replace(at, 7, fields);
        return text;
    };
    const std::string right = marked(ones);
    const std::string wrong = marked(ones + ", 1");
    folder_.write("trace.jsonl", right);
    const json plain = figures({"--draft", "none"});
    EXPECT_EQ(plain["rows"], 3);
    EXPECT_EQ(plain["rows_equal"], 3);
    EXPECT_EQ(plain["recorded_mean_accepted_tokens"], 1.0);
    EXPECT_EQ(figures({"--draft", "lookup"})["rows_equal"], 0);
    folder_.write("trace.jsonl", right.substr(0, right.find('\n') + 1) + wrong.substr(wrong.find('\n') + 1));
    EXPECT_EQ(figures({"--draft", "none"})["rows_equal"], 1);
}

TEST_F(ReplayProgram, ATableForPeople) {
    const ProgramResult result = run_program(replay({"--draft", "lookup"}));
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, AllOf(HasSubstr("category"), HasSubstr("tales"), HasSubstr("all"), HasSubstr("lookup")));
    // Statistics go to a file beside it, or behind it.
    const fs::path stats = folder_.path() / "stats.json";
    EXPECT_EQ(run_program(replay({"--draft", "lookup", "--stats", stats.string()})).out.substr(0, 20),
              result.out.substr(0, 20));
    EXPECT_EQ(json::parse(file_text(stats.string()))["draft"], "lookup");
}

TEST_F(ReplayProgram, WhatCannotBeReplayedIsRefused) {
    EXPECT_THAT(refused(2, {"--draft", "model"}), HasSubstr("tokens only"));
    EXPECT_THAT(refused(2, {"--format", "chatml"}), HasSubstr("vicuna or raw"));
    EXPECT_THAT(refused(2, {"--json", "--stats", "-"}), HasSubstr("--json"));
    EXPECT_THAT(refused(2, {"--stats", trace_.string()}), HasSubstr("the same file"));
    EXPECT_THAT(refused(1, {"--tokenizer", "/nonexistent"}), HasSubstr("--tokenizer /nonexistent"));
    EXPECT_THAT(refused(1, {"--trace", "/nonexistent"}), HasSubstr("/nonexistent"));
    folder_.write("trace.jsonl", "[]\n");
    EXPECT_THAT(refused(1, {}), HasSubstr("trace.jsonl:1"));
    const ProgramResult missing = run_program({"replay"});
    EXPECT_EQ(missing.code, 2);
    EXPECT_THAT(missing.err, HasSubstr("--trace"));
}

// Spec-Bench, Vicuna 7B, prompt lookup: the recorded run pass for pass (475 of 480 rows, MAT 1.751,
// by its way of counting end tokens; answers that were cut at 1024 tokens have none, which settles four rows more).
TEST_F(ReplayProgram, PromptLookupIsThatOfSpecBench) {
    if (!fs::exists(data_path("specbench"))) GTEST_SKIP() << "Spec-Bench is not there: " << data_path("specbench");
    const ProgramResult result =
        run_program({"replay", "--trace", data_path("specbench/vicuna-7b-v1.3-pld.jsonl"), "--prompts",
                     data_path("specbench/question.jsonl"), "--tokenizer",
                     data_path("tokenizers/llama2/tokenizer.model"), "--draft", "lookup", "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const json run = json::parse(result.out);
    EXPECT_EQ(run["rows"], 480);
    EXPECT_GE(run["rows_equal"], 470);
    EXPECT_NEAR(run["mean_accepted_tokens"], 1.751, 0.0005);
    EXPECT_EQ(run["by_category"].size(), 13U);
}

}  // namespace
}  // namespace slipstream::tools
