// Guessing through the program: the same bytes whatever guesses, figures that hang together, tables that stay, and what
// is refused.
#include <signal.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
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

using Arguments = std::vector<std::string>;

Arguments joined(Arguments first, const Arguments& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

// One cache folder for all runs of a test, so that the model's own tables are built once.
class DraftProgram : public testing::Test {
protected:
    [[nodiscard]] ProgramResult generate(const Arguments& more) const {
        ProgramRun run;
        run.arguments = joined({"generate", "--prompt", kPrompt, "--max-tokens", "48"}, more);
        run.environment = {{"XDG_CACHE_HOME", cache()}};
        return run_program(run);
    }
    [[nodiscard]] std::string text(const Arguments& more) const {
        const ProgramResult result = generate(more);
        EXPECT_EQ(result.code, 0) << result.err;
        return result.out;
    }
    [[nodiscard]] json stats(const Arguments& more) const {
        const std::string file = (folder_.path() / "stats.json").string();
        const ProgramResult result = generate(joined(more, {"--stats", file}));
        EXPECT_EQ(result.code, 0) << result.err;
        return json::parse(file_text(file), nullptr, false);
    }
    [[nodiscard]] std::string refused(int code, const Arguments& more) const {
        const ProgramResult result = generate(more);
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        return result.err;
    }
    [[nodiscard]] std::string cache() const { return (folder_.path() / "cache").string(); }
    [[nodiscard]] std::vector<std::string> tables() const {
        std::vector<std::string> names;
        std::error_code error;
        for (fs::directory_iterator at(folder_.path() / "cache/slipstream/tables", error), end; !error && at != end;
             at.increment(error))
            if (at->path().extension() == ".table") names.push_back(at->path().filename().string());
        return names;
    }

    static constexpr const char* kPrompt = "The wolf knocked at the door, and the wolf";
    TemporaryFolder folder_;
};

TEST_F(DraftProgram, TheTextIsThatOfPlainDecoding) {
    const std::vector<Arguments> guessing{{},
                                          {"--draft", "context"},
                                          {"--draft", "suffix"},
                                          {"--draft", "lookup", "--lookup-ngram", "2"},
                                          {"--draft", "cacheback", "--cacheback", "fl=2,fc=8"},
                                          {"--draft", "recycling"},
                                          {"--draft", "bigram"},
                                          {"--draft", "unigram"},
                                          {"--draft", "lookahead"},
                                          {"--draft", "model"},
                                          {"--draft", "model", "--gamma", "3"},
                                          {"--draft", "auto", "--budget", "1"},
                                          {"--draft", "auto", "--budget", "2"},
                                          {"--draft", "auto", "--budget", "130"},
                                          {"--draft", "context,lookup,cacheback,lookahead,model", "--budget", "33"},
                                          {"--tree", "cacheback"},
                                          {"--tree", "recycling"},
                                          {"--tree", "ngrammys", "--budget", "40"},
                                          {"--tree", "chain", "--gamma", "5"},
                                          {"--draft", "retrieval", "--kv-budget", "32", "--budget", "20"},
                                          {"--draft", "retrieval", "--kv-view", "window", "--view-rebuild", "0"},
                                          {"--draft", "retrieval", "--view-type", "q4", "--kv-budget", "208"},
                                          {"--draft", "retrieval", "--view-type", "f16", "--kv-budget", "10%"},
                                          {"--draft", "context,model,retrieval", "--kv-budget", "40", "--view-score",
                                           "mean", "--view-rebuild", "8", "--device-memory", "40M", "--self-check"},
                                          {"--noise-ranking", "blind"}};
    for (const Arguments& sampling :
         {Arguments{"--temperature", "0"}, Arguments{"--seed", "5"},
          Arguments{"--temperature", "1.2", "--top-p", "0.9", "--repeat-penalty", "1.1", "--seed", "6"}}) {
        const std::string plain = text(joined(sampling, {"--draft", "none"}));
        ASSERT_FALSE(plain.empty());
        for (const Arguments& more : guessing)
            EXPECT_EQ(text(joined(sampling, more)), plain)
                << fmt::format("{} {}", fmt::join(sampling, " "), fmt::join(more, " "));
    }
}

// Samplers that remember, and those that forbid: what guesses look at is each node's own path.
TEST_F(DraftProgram, SamplersWithMemoryDrawAlikeWhateverGuesses) {
    for (const Arguments& sampling :
         {Arguments{"--temperature", "0", "--presence-penalty", "1.5"},
          Arguments{"--seed", "5", "--frequency-penalty", "0.8", "--repeat-last-n", "-1", "--top-k", "-1"},
          Arguments{"--seed", "5", "--logit-bias", "13=-inf,300+2", "--repeat-penalty", "1.2", "--repeat-last-n", "8"},
          Arguments{"--seed", "5", "--ignore-eos"}}) {
        const std::string plain = text(joined(sampling, {"--draft", "none"}));
        ASSERT_FALSE(plain.empty());
        for (const Arguments& more : {Arguments{}, Arguments{"--draft", "context,recycling,model", "--budget", "33"}})
            EXPECT_EQ(text(joined(sampling, more)), plain)
                << fmt::format("{} {}", fmt::join(sampling, " "), fmt::join(more, " "));
    }
}

TEST_F(DraftProgram, FiguresHangTogether) {
    const json run = stats({"--temperature", "0", "--draft", "context,suffix,model", "--budget", "16"});
    EXPECT_EQ(run["generated_tokens"], 48);
    const auto passes = run["passes"].get<std::int64_t>();
    EXPECT_LT(passes, 48);
    EXPECT_DOUBLE_EQ(run["mean_accepted_tokens"], 48.0 / static_cast<double>(passes));
    EXPECT_GT(run["budget_mean"], 1.0);
    EXPECT_LE(run["budget_mean"], 16.0);
    EXPECT_TRUE(run["exact"].is_null());
    std::int64_t accepted = 0;
    for (const char* name : {"context", "suffix", "model"}) {
        ASSERT_TRUE(run["sources"].contains(name)) << name;
        const json& source = run["sources"][name];
        EXPECT_GE(source["offered"], source["accepted"]) << name;
        EXPECT_GE(source["seconds"], 0.0) << name;
        accepted += source["accepted"].get<std::int64_t>();
    }
    EXPECT_EQ(run["sources"].size(), 3U);
    // Each pass but for its own token takes what somebody offered; several may have offered the same.
    EXPECT_GE(accepted, 48 - passes);
    EXPECT_GT(run["split"]["draft_seconds"], 0.0);
    EXPECT_GT(run["split"]["verify_seconds"], 0.0);
    // Plain decoding: nothing of all that.
    const json plain = stats({"--temperature", "0", "--draft", "none"});
    EXPECT_EQ(plain["sources"].size(), 0U);
    EXPECT_EQ(plain["budget_mean"], 1.0);
    EXPECT_EQ(plain["passes"], 47);  // the prompt's carried no guesses
}

TEST_F(DraftProgram, TheClosingLineSaysTokensAPass) {
    EXPECT_THAT(generate({"--temperature", "0", "--draft", "model", "--budget", "8"}).err,
                testing::ContainsRegex("tokens/s, [1-9][.][0-9][0-9] a pass\\)"));
    EXPECT_THAT(generate({"--temperature", "0", "--draft", "none"}).err, testing::Not(HasSubstr("a pass")));
}

TEST_F(DraftProgram, TheSelfCheckFindsTheSameBits) {
    for (const Arguments& more : {Arguments{"--draft", "none"}, Arguments{"--draft", "model,context", "--budget", "24"},
                                  Arguments{"--tree", "recycling"}}) {
        const json run = stats(joined({"--seed", "4", "--self-check"}, more));
        EXPECT_EQ(run["exact"], true);
        EXPECT_EQ(run["checked_tokens"], 48);
    }
    EXPECT_THAT(generate({"--seed", "4", "--self-check"}).err,
                HasSubstr("self-check: 48 tokens computed again without draft tokens, all bits equal"));
    EXPECT_THAT(generate({"--seed", "4"}).err, testing::Not(HasSubstr("self-check")));
}

TEST_F(DraftProgram, RejectionGivesATextOfItsOwnAgainAndAgain) {
    for (const char* draft : {"model", "context,model"}) {
        const Arguments more{"--draft", draft, "--verify", "rejection", "--seed", "9", "--tables", "off"};
        const std::string first = text(more);
        EXPECT_FALSE(first.empty());
        EXPECT_EQ(text(more), first) << draft;
    }
}

TEST_F(DraftProgram, LearntTablesStay) {
    EXPECT_EQ(text({"--draft", "none", "--seed", "2"}), text({"--draft", "none", "--seed", "2"}));
    EXPECT_THAT(tables(), testing::IsEmpty());
    const std::string learnt = text({"--draft", "cacheback,recycling,model", "--seed", "2"});
    EXPECT_EQ(tables().size(), 1U);
    EXPECT_EQ(text({"--draft", "cacheback,recycling,model", "--seed", "2"}), learnt);
    EXPECT_EQ(text({"--draft", "none", "--seed", "2"}), learnt);
    // Elsewhere, or nowhere.
    const std::string place = (folder_.path() / "elsewhere").string();
    EXPECT_EQ(text({"--draft", "recycling", "--seed", "2", "--tables", place}), learnt);
    EXPECT_FALSE(fs::is_empty(place));
    EXPECT_EQ(text({"--draft", "recycling", "--seed", "2", "--tables", "off"}), learnt);
    EXPECT_EQ(tables().size(), 1U);
}

TEST_F(DraftProgram, ATableThatCannotBeKeptOrReadIsANote) {
    const std::string learnt = text({"--draft", "recycling", "--seed", "2"});
    ASSERT_EQ(tables().size(), 1U);
    const fs::path table = folder_.path() / "cache/slipstream/tables" / tables().front();
    const std::string bytes = file_text(table.string());
    folder_.write(fs::relative(table, folder_.path()), bytes.substr(0, bytes.size() / 2));
    const ProgramResult damaged = generate({"--draft", "recycling", "--seed", "2"});
    EXPECT_EQ(damaged.code, 0);
    EXPECT_EQ(damaged.out, learnt);
    EXPECT_THAT(damaged.err, HasSubstr("damaged"));
    // A folder below a file can never be made.
    const std::string nowhere = folder_.write("file", "").string() + "/tables";
    for (const char* draft : {"recycling", "bigram", "auto"}) {
        const ProgramResult unkept = generate({"--draft", draft, "--seed", "2", "--tables", nowhere});
        EXPECT_EQ(unkept.code, 0) << draft;
        EXPECT_EQ(unkept.out, learnt) << draft;
        EXPECT_THAT(unkept.err, HasSubstr("not kept")) << draft;
    }
}

// Under a budget tables are not built out of the model: `auto` does without those that cannot be read.
TEST_F(DraftProgram, ATableThatCannotBeReadNeverStopsAText) {
    const std::string plain = text({"--draft", "bigram", "--seed", "2"});
    const std::vector<std::string> names = tables();
    const auto bigrams =
        std::ranges::find_if(names, [](const std::string& name) { return name.find("bigram") != std::string::npos; });
    ASSERT_NE(bigrams, names.end());
    const fs::path table = folder_.path() / "cache/slipstream/tables" / *bigrams;
    const std::string bytes = file_text(table.string());
    folder_.write(fs::relative(table, folder_.path()), bytes.substr(0, bytes.size() / 2));
    const ProgramResult damaged =
        generate({"--draft", "auto", "--seed", "2", "--ctx", "256", "--device-memory", "14M"});
    EXPECT_EQ(damaged.code, 0) << damaged.err;
    EXPECT_EQ(damaged.out, plain);
    EXPECT_THAT(damaged.err, HasSubstr("set aside"));
}

TEST_F(DraftProgram, AnInterruptedRunKeepsWhatItLearnt) {
    ProgramRun run;
    run.arguments = {"generate", "--prompt", kPrompt, "--seed", "3", "--draft", "recycling"};
    run.environment = {{"XDG_CACHE_HOME", cache()}};
    RunningProgram program(run);
    program.wait_for_output(20);
    program.send(SIGINT);
    EXPECT_EQ(program.finish().code, 130);
    EXPECT_EQ(tables().size(), 1U);
}

TEST_F(DraftProgram, MistakesAreUsageErrors) {
    EXPECT_THAT(refused(2, {"--draft", "lowbit"}), AllOf(HasSubstr("lowbit"), HasSubstr("this version")));
    EXPECT_THAT(refused(2, {"--draft", "magic"}), HasSubstr("unknown source"));
    EXPECT_THAT(refused(2, {"--draft", "lookup", "--draft-model", "x"}), HasSubstr("--draft-model has an effect only"));
    EXPECT_THAT(refused(2, {"--frozen-table", "x", "--draft", "context"}),
                HasSubstr("--frozen-table has an effect only"));
    EXPECT_THAT(refused(2, {"--gamma", "3"}), HasSubstr("--gamma has an effect only"));
    EXPECT_THAT(refused(2, {"--draft", "corpus"}), HasSubstr("--corpus"));
    EXPECT_THAT(refused(2, {"--draft", "retrieval", "--kv-view", "window", "--view-score", "mean"}),
                HasSubstr("--view-score has an effect only on --kv-view retrieval"));
}

TEST_F(DraftProgram, WhatCannotBeServedIsSaidInOneLine) {
    EXPECT_THAT(refused(1, {"--draft", "model", "--draft-model", "/nonexistent/model"}),
                HasSubstr("--draft-model /nonexistent/model: cannot be opened"));
    EXPECT_THAT(refused(1, {"--draft", "cacheback", "--frozen-table", "/nonexistent/table"}),
                HasSubstr("/nonexistent/table"));
    EXPECT_THAT(refused(1, {"--draft", "context,mtp"}),
                AllOf(HasSubstr("--draft mtp: "), HasSubstr("has no MTP head")));
    const std::string no_table = folder_.write("text", "no table").string();
    EXPECT_THAT(refused(1, {"--draft", "corpus", "--corpus", no_table}), HasSubstr(no_table));
    if (!fs::exists(data_path("stories260K"))) GTEST_SKIP() << "stories260K is not there: " << data_path("stories260K");
    const std::string stories = data_path("stories260K/hf");
    EXPECT_THAT(refused(1, {"--draft", "model", "-m", stories}), HasSubstr("no draft model of its own"));
    EXPECT_THAT(refused(1, {"--draft", "model", "--draft-model", stories}), HasSubstr("vocabular"));
    // `auto` makes do without.
    EXPECT_EQ(text({"-m", stories, "--seed", "1"}), text({"-m", stories, "--seed", "1", "--draft", "none"}));
}

TEST_F(DraftProgram, ADraftModelOfItsOwnChoice) {
    const std::string small = source_path("tools/demo_model/draft");
    const json run = stats({"--temperature", "0", "--draft", "model", "-md", small, "--budget", "8"});
    EXPECT_GT(run["sources"]["model"]["accepted"], 0);
}

TEST_F(DraftProgram, BenchComparesEachDraftWithPlainDecoding) {
    const ProgramResult result = run_program({"bench",
                                              "--repeat",
                                              "2",
                                              "--threads",
                                              "1",
                                              "--prompt-tokens",
                                              "32",
                                              "--max-tokens",
                                              "24",
                                              "--draft",
                                              "model",
                                              "--draft",
                                              "none",
                                              "--draft",
                                              "context,recycling",
                                              "--sweep",
                                              "budget=4;16",
                                              "--temperature",
                                              "0.8",
                                              "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const json runs = json::parse(result.out)["runs"];
    ASSERT_EQ(runs.size(), 2U);
    for (const json& run : runs) {
        ASSERT_EQ(run["drafts"].size(), 3U);
        EXPECT_EQ(run["drafts"][0]["draft"], "none");
        EXPECT_DOUBLE_EQ(run["drafts"][0]["ratio"], 1.0);
        EXPECT_EQ(run["drafts"][0]["tokens_per_pass"], 1.0);
        EXPECT_THAT(run["sampling"].get<std::string>(), HasSubstr("temperature 0.8"));
        for (const std::size_t i : {1U, 2U}) {
            const json& column = run["drafts"][i];
            EXPECT_EQ(column["tokens"], 48);
            EXPECT_EQ(column["texts"], 2);
            EXPECT_EQ(column["texts_equal"], 2);
            EXPECT_GE(column["tokens_per_pass"], 1.0);
            EXPECT_GT(column["ratio"], 0.0);
            EXPECT_GE(column["ratio"], column["ratio_lowest"]);
        }
        EXPECT_TRUE(run["drafts"][1]["sources"].contains("model"));
        EXPECT_TRUE(run["drafts"][2]["sources"].contains("recycling"));
    }
    EXPECT_EQ(runs[0]["drafts"][1]["budget"], 4);
    EXPECT_EQ(runs[1]["drafts"][1]["budget"], 16);
}

}  // namespace
}  // namespace slipstream::tools
