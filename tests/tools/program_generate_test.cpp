// generate on the bundled model and on a real one: what stdout, --stats and the other files hold.
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> generate(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"generate"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

std::string text_of(const std::vector<std::string>& more) {
    const ProgramResult result = run_program(generate(more));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

TEST(Generate, SaysWhatTheRealModelSays) {
    if (!fs::exists(data_path("stories260K"))) GTEST_SKIP() << "stories260K is not there: " << data_path("stories260K");
    const std::string expected = file_text(data_path("stories260K/expected_greedy.txt"));
    ASSERT_FALSE(expected.empty());
    for (const char* model : {"stories260K/hf", "stories260K/stories260K-f32.gguf"})
        EXPECT_EQ(text_of({"-m", data_path(model), "--prompt", "", "--temperature", "0", "--max-tokens", "200", "-q"}),
                  expected)
            << model;
}

TEST(Generate, StdoutIsTheTextAlone) {
    const ProgramResult result =
        run_program(generate({"--prompt", "The wolf said", "--max-tokens", "8", "--temperature", "0", "--no-config"}));
    EXPECT_EQ(result.code, 0);
    EXPECT_FALSE(result.out.empty());
    EXPECT_THAT(result.out, testing::Not(StartsWith("The wolf")));
    EXPECT_THAT(result.out, testing::Not(HasSubstr("\x1b")));
    EXPECT_THAT(result.err, HasSubstr("8 tokens in"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.err, testing::Not(HasSubstr("\x1b")));
    // The same with -q, and stderr silent.
    const ProgramResult quiet =
        run_program(generate({"--prompt", "The wolf said", "--max-tokens", "8", "--temperature", "0", "-q"}));
    EXPECT_EQ(quiet.out, result.out);
    EXPECT_EQ(quiet.err, "");
}

TEST(Generate, AContinuationKeepsItsLeadingSpace) {
    // "Once upon a" goes on with " time": the space belongs to the text. From the empty prompt the first space does
    // not.
    EXPECT_THAT(text_of({"--prompt", "Once upon a", "--max-tokens", "1", "--temperature", "0"}), StartsWith(" "));
    EXPECT_THAT(text_of({"--prompt", "", "--max-tokens", "4", "--temperature", "0"}), testing::Not(StartsWith(" ")));
}

TEST(Generate, SpellingsOfControlTokensStandForThemWhereAsked) {
    const auto n_tokens = [](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"-n", "1", "-o", "/dev/null", "--stats", "-"});
        const auto stats = nlohmann::json::parse(run_program(arguments).out, nullptr, false);
        return stats.is_object() ? stats["prompt_tokens"].get<int>() : -1;
    };
    EXPECT_EQ(n_tokens({"generate", "</s></s>", "--special"}), 3) << "BOS and two";
    EXPECT_GT(n_tokens({"generate", "</s></s>"}), 4) << "text";
}

TEST(Generate, EchoPutsThePromptInFront) {
    const std::vector<std::string> options{"--prompt", "[The wolf] said", "--max-tokens", "8", "--temperature", "0"};
    std::vector<std::string> echoed = options;
    echoed.push_back("--echo");
    EXPECT_EQ(text_of(echoed), "[The wolf] said" + text_of(options));
}

TEST(Generate, TakesThePromptFromFileAndStdin) {
    const TemporaryFolder folder;
    const std::string file = folder.write("prompt.txt", "The wolf said").string();
    const std::vector<std::string> options{"--max-tokens", "8", "--temperature", "0"};
    const std::string expected = text_of({"--prompt", "The wolf said", "--max-tokens", "8", "--temperature", "0"});
    EXPECT_EQ(text_of({"--prompt-file", file, "--max-tokens", "8", "--temperature", "0"}), expected);
    ProgramRun run{.arguments = generate(options), .input = "The wolf said", .environment = {}, .stdout_path = ""};
    EXPECT_EQ(run_program(run).out, expected);
    run.input = "";  // an empty stdin is the empty prompt
    EXPECT_EQ(run_program(run).out, text_of({"--prompt", "", "--max-tokens", "8", "--temperature", "0"}));
}

TEST(Generate, AnyBytesAreAPrompt) {
    const TemporaryFolder folder;
    const std::string file = folder.write("prompt.bin", std::string("\xff\xc3 \x80\0x", 6)).string();
    EXPECT_EQ(run_program(generate({"--prompt-file", file, "--max-tokens", "3", "--seed", "1"})).code, 0);
}

TEST(Generate, TheSeedDecidesAndThreadsDoNot) {
    const auto with = [](const char* seed, const char* threads) {
        return text_of({"--prompt", "Once", "--max-tokens", "60", "--seed", seed, "--threads", threads});
    };
    const std::string text = with("5", "1");
    EXPECT_EQ(with("5", "1"), text);
    EXPECT_EQ(with("5", "2"), text);
    EXPECT_NE(with("6", "1"), text);
    // A seed of its own choice is printed, and gives the same text again.
    const ProgramResult random = run_program(generate({"--prompt", "Once", "--max-tokens", "60"}));
    const std::size_t at = random.err.find("seed ");
    ASSERT_NE(at, std::string::npos) << random.err;
    const std::string seed = random.err.substr(at + 5, random.err.find(';', at) - at - 5);
    EXPECT_EQ(with(seed.c_str(), "2"), random.out);
}

TEST(Generate, EndsBeforeAStopText) {
    const std::string text = text_of({"--prompt", "Once", "--max-tokens", "30", "--temperature", "0"});
    ASSERT_GT(text.size(), 40U);
    const std::string stop = text.substr(20, 7);
    const std::size_t first = text.find(stop);
    EXPECT_EQ(text_of({"--prompt", "Once", "--temperature", "0", "--stop", "never seen here", "--stop", stop}),
              text.substr(0, first));
}

TEST(Generate, WritesTheIdsOfItsTokens) {
    const TemporaryFolder folder;
    const std::string ids = (folder.path() / "ids.txt").string();
    const std::string text = text_of({"--prompt", "", "--max-tokens", "20", "--temperature", "0", "--token-ids", ids});
    const std::string listed = file_text(ids);
    EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'), 20);
    const ProgramResult back = run_program({"tokenize", "--detokenize", "--file", ids});
    EXPECT_EQ(back.out, text);
}

TEST(Generate, StatisticsHoldEveryKey) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "stats.json").string();
    const std::string text = text_of({"--prompt", "Once", "--max-tokens", "20", "--seed", "5", "--ctx", "256", "-t",
                                      "1", "--draft", "none", "--stats", file});
    const nlohmann::json stats = nlohmann::json::parse(file_text(file));
    for (const char* key : {"model",
                            "devices",
                            "regime",
                            "plan",
                            "seed",
                            "prompt_tokens",
                            "generated_tokens",
                            "text_bytes",
                            "stop_reason",
                            "prefill_seconds",
                            "decode_seconds",
                            "tokens_per_second",
                            "passes",
                            "mean_accepted_tokens",
                            "budget_mean",
                            "exact",
                            "sources",
                            "rungs",
                            "experts",
                            "view",
                            "streamed",
                            "split",
                            "drafting_hidden_fraction",
                            "peak"})
        EXPECT_TRUE(stats.contains(key)) << key;
    EXPECT_EQ(stats["devices"], nlohmann::json({"cpu"}));
    EXPECT_EQ(stats["regime"], "all fits");
    EXPECT_EQ(stats["plan"]["context_tokens"], 256);
    EXPECT_EQ(stats["plan"]["threads"], 1);
    EXPECT_EQ(stats["seed"], 5);
    EXPECT_EQ(stats["prompt_tokens"], 2);
    EXPECT_EQ(stats["generated_tokens"], 20);
    EXPECT_EQ(stats["text_bytes"], text.size());
    EXPECT_EQ(stats["stop_reason"], "length");
    EXPECT_EQ(stats["passes"], 19);  // the pass over the prompt carries no guesses
    EXPECT_EQ(stats["budget_mean"], 1.0);
    EXPECT_TRUE(stats["exact"].is_null());
    EXPECT_TRUE(stats["experts"].is_null());  // the model has none
    EXPECT_TRUE(stats["plan"]["experts"].is_null());
    EXPECT_GT(stats["prefill_seconds"], 0.0);
    EXPECT_GT(stats["decode_seconds"], 0.0);
    EXPECT_GT(stats["tokens_per_second"], 0.0);
    double sum = 0.0;
    for (const char* part : {"draft_seconds", "verify_seconds", "commit_seconds", "sample_seconds", "wait_seconds"})
        sum += stats["split"][part].get<double>();
    EXPECT_GT(stats["split"]["verify_seconds"], 0.0);
    EXPECT_LE(sum, stats["decode_seconds"].get<double>());
    EXPECT_EQ(stats["streamed"]["weights_bytes"], 0);
    EXPECT_GT(stats["peak"]["rss_bytes"], 0);
    EXPECT_GT(stats["peak"]["device_bytes"][0], stats["plan"]["kv_bytes"]);
}

TEST(Generate, StatisticsMayFollowTheText) {
    const std::vector<std::string> options{"--prompt", "Once", "--max-tokens", "20", "--temperature", "0", "-q"};
    std::vector<std::string> with_stats = options;
    with_stats.insert(with_stats.end(), {"--stats", "-"});
    const std::string text = text_of(options);
    const std::string both = text_of(with_stats);
    ASSERT_THAT(both, StartsWith(text));
    EXPECT_EQ(nlohmann::json::parse(both.substr(text.size()))["text_bytes"], text.size());
}

TEST(Generate, WritesTheTextToAFileInstead) {
    const TemporaryFolder folder;
    const fs::path file = folder.write("text", "an old and much longer text than the one that is to come, by far");
    const std::vector<std::string> options{"--prompt", "Once", "--max-tokens", "5", "--temperature", "0"};
    std::vector<std::string> to_file = options;
    to_file.insert(to_file.end(), {"--output", file.string()});
    EXPECT_EQ(text_of(to_file), "");
    EXPECT_EQ(file_text(file.string()), text_of(options));
}

TEST(Generate, ADashIsStdout) {
    const std::vector<std::string> options{"--prompt", "Once", "--max-tokens", "5", "--temperature", "0"};
    std::vector<std::string> dashed = options;
    dashed.insert(dashed.end(), {"--output", "-"});
    EXPECT_EQ(text_of(dashed), text_of(options));
}

TEST(Generate, StopsWhereTheContextIsFull) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "stats.json").string();
    static_cast<void>(text_of({"--prompt", "Once", "--ctx", "16", "--temperature", "0", "--stats", file}));
    const nlohmann::json stats = nlohmann::json::parse(file_text(file));
    EXPECT_EQ(stats["stop_reason"], "context");
    EXPECT_EQ(stats["prompt_tokens"].get<int>() + stats["generated_tokens"].get<int>(), 16);
}

TEST(Generate, OnePassHasNoRate) {
    const ProgramResult result = run_program({"generate", "--no-config", "--draft", "none", "-n", "1", "Once upon a"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, testing::HasSubstr("1 token in 0.00 s (one pass); "));
    EXPECT_THAT(result.err, testing::Not(testing::HasSubstr("tokens/s")));
}

}  // namespace
}  // namespace slipstream::tools
