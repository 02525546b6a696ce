// bench through the program: what it prints for each mode, that the figures hang together, and what it refuses.
#include <unistd.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

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
using testing::HasSubstr;
using testing::StartsWith;

// BF16, and thirteen norms widened to float.
constexpr double kBundledBytes = 2.0 * 5770496 + 2.0 * 13 * 256;
constexpr double kHeadBytes = 2.0 * 4096 * 256 + 4.0 * 256;
constexpr double kKvRow = 6 * 1024 / 2;  // BF16, all layers

std::vector<std::string> bench(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"bench", "--repeat", "2", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

json runs_of(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = bench(more);
    arguments.emplace_back("--json");
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const json document = json::parse(result.out, nullptr, false);
    if (document.is_discarded() || !document.contains("runs")) {
        ADD_FAILURE() << result.out;
        return json::array();
    }
    return document["runs"];
}

std::string refused(int code, const std::vector<std::string>& more) {
    const ProgramResult result = run_program(bench(more));
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
}

TEST(Bench, StreamsAPromptThatEndsWithAChunk) {
    // Each run cuts the text back to a border of chunks that passes have read from the host.
    const ProgramResult result =
        run_program({"bench", "--no-config", "--prompt-tokens", "512", "--max-tokens", "3", "--repeat", "2",
                     "--device-memory", "18M", "--ctx", "4096", "--draft", "none"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, testing::HasSubstr("weights and KV stream"));
}

// Bytes of the bundled model: 6 layers of 256, 4 and 2 heads of 64, d_ff 704, BF16.
TEST(Bench, StagesOfAPassAddUpToIt) {
    const json runs = runs_of({"--stages", "--passes", "1,4", "--depth", "300"});
    ASSERT_EQ(runs.size(), 1U);
    ASSERT_EQ(runs[0]["passes"].size(), 2U);
    for (const json& pass : runs[0]["passes"]) {
        double seconds = 0.0;
        double share = 0.0;
        std::map<std::string, double> bytes;
        for (const json& stage : pass["stages"]) {
            seconds += stage["seconds"].get<double>();
            share += stage["share"].get<double>();
            bytes[stage["stage"]] = stage["bytes"];
        }
        EXPECT_NEAR(seconds, pass["staged_seconds"].get<double>(), 1e-9);
        EXPECT_NEAR(share, 1.0, 1e-6);
        for (const char* stage : {"embed", "norm", "qkv", "rope/kv write", "attention", "output", "gate/up",
                                  "activation", "down", "head", "other"})
            EXPECT_TRUE(bytes.contains(stage)) << stage;
        EXPECT_EQ(bytes["head"], 2.0 * 4096 * 256);
        // All matrices of the layers; what is left of the model's bytes are thirteen norms.
        const double matrices = bytes["qkv"] + bytes["output"] + bytes["gate/up"] + bytes["down"];
        EXPECT_EQ(matrices + bytes["head"], kBundledBytes - 4.0 * 13 * 256);
        EXPECT_EQ(bytes["attention"], kKvRow * (300 + pass["tokens"].get<double>()));
    }
    const ProgramResult table = run_program(bench({"--stages"}));  // of one token
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_THAT(table.out, HasSubstr("% of pass"));
    EXPECT_THAT(table.out, HasSubstr("rope/kv write"));
    EXPECT_THAT(refused(2, {"--stages", "--prompts", source_path("README.md")}),
                HasSubstr("--stages has an effect only without"));
}

TEST(Bench, StagesOfSeveralDevicesAndOfWhatStreams) {
    const ProgramResult streamed =
        run_program(bench({"--stages", "--json", "--device-memory", "16M", "--ctx", "2048", "--draft", "none"}));
    ASSERT_EQ(streamed.code, 0) << streamed.err;
    bool waited = false;
    const json with_waits = json::parse(streamed.out);
    for (const json& stage : with_waits["runs"][0]["passes"][0]["stages"]) waited |= stage["stage"] == "wait";
    EXPECT_TRUE(waited);
    for (const char* split : {"layers", "tensor"}) {
        const json runs = runs_of({"--stages", "--devices", "cpu,cpu", "--split", split, "--threads", "2"});
        std::map<std::string, double> share;
        for (const json& stage : runs[0]["passes"][0]["stages"])
            share[stage["device"].is_null() ? "" : stage["device"].get<std::string>()] += stage["share"].get<double>();
        double sum = 0.0;
        for (const auto& [device, part] : share) sum += part;
        EXPECT_NEAR(sum, std::string(split) == "tensor" ? 2.0 : 1.0, 1e-6) << split;
    }
}

TEST(Bench, PlainDecodingWithFiguresThatHangTogether) {
    const json runs = runs_of({"--prompt-tokens", "600", "--max-tokens", "4"});
    ASSERT_EQ(runs.size(), 1U);
    const json& run = runs[0];
    EXPECT_EQ(run["mode"], "plain");
    EXPECT_EQ(run["threads"], 1);
    EXPECT_EQ(run["repeat"], 2);
    EXPECT_EQ(run["tokens_from"], "text");
    EXPECT_EQ(run["prompt_tokens"], 600);
    EXPECT_EQ(run["kv_type"], "BF16");
    EXPECT_EQ(run["ctx"], 8192);
    EXPECT_EQ(run["draft"], "none");
    EXPECT_TRUE(run["swept"].is_null());
    EXPECT_THAT(run["commit"].get<std::string>(), testing::MatchesRegex("unknown|[0-9a-f]+(-dirty)?"));
    EXPECT_FALSE(run["cpu"].get<std::string>().empty());
    EXPECT_THAT(run["form"].get<std::string>(), testing::MatchesRegex("scalar|avx2|avx512|avx512_vnni|avx512_bf16"));
    EXPECT_GT(run["read_gb_per_s"], 0.0);
    EXPECT_GT(run["fma_gflop_per_s"], 0.0);
    EXPECT_EQ(run["weight_bytes"], kBundledBytes);
    ASSERT_EQ(run["phases"].size(), 2U);
    const json& prefill = run["phases"][0];
    EXPECT_EQ(prefill["phase"], "prefill");
    EXPECT_EQ(prefill["tokens"], 600);
    EXPECT_EQ(prefill["runs"], 2);
    // Pieces of 512 and 88 tokens, logits after the second; the second reads the KV of the first again.
    EXPECT_DOUBLE_EQ(prefill["weight_bytes_per_token"], (2 * kBundledBytes - kHeadBytes) / 600);
    EXPECT_DOUBLE_EQ(prefill["kv_bytes_per_token"], kKvRow * (512 + 600) / 600);
    const json& decode = run["phases"][1];
    EXPECT_EQ(decode["phase"], "decode");
    EXPECT_EQ(decode["tokens"], 4);
    EXPECT_EQ(decode["weight_bytes_per_token"], kBundledBytes);
    EXPECT_DOUBLE_EQ(decode["kv_bytes_per_token"], kKvRow * (601 + 602 + 603 + 604) / 4);
    for (const json& phase : run["phases"]) {
        const double seconds = phase["seconds"];
        EXPECT_GE(seconds, phase["seconds_lowest"]);
        EXPECT_LE(seconds, phase["seconds_highest"]);
        EXPECT_GT(phase["seconds_lowest"], 0.0);
        const double tokens = phase["tokens"];
        EXPECT_NEAR(phase["tokens_per_second"].get<double>() * seconds, tokens, 1e-6 * tokens);
        const double bytes = phase["weight_bytes_per_token"].get<double>() + phase["kv_bytes_per_token"].get<double>();
        EXPECT_NEAR(phase["gb_per_s"].get<double>() * 1e9 * seconds, bytes * tokens, 1e-6 * bytes * tokens);
        EXPECT_NEAR(phase["read_share"].get<double>() * run["read_gb_per_s"].get<double>(), phase["gb_per_s"], 1e-6);
    }
}

TEST(Bench, AShortContextShortensTheBuiltInLengths) {
    const json run = runs_of({"--ctx", "64"})[0];
    EXPECT_EQ(run["phases"][0]["tokens"], 32);
    EXPECT_EQ(run["phases"][1]["tokens"], 31);
    EXPECT_THAT(refused(1, {"--ctx", "64", "--prompt-tokens", "64"}), HasSubstr("--ctx"));
    EXPECT_THAT(refused(1, {"--ctx", "64", "--max-tokens", "64"}), HasSubstr("--max-tokens"));
}

TEST(Bench, SeededIdsStandInForATokenizer) {
    const TemporaryFolder folder;
    for (const char* name : {"config.json", "model.safetensors"})
        fs::create_symlink(source_path(fmt::format("tools/demo_model/target/{}", name)), folder.path() / name);
    const std::vector<std::string> more{"-m", folder.path().string(), "--prompt-tokens", "8", "--max-tokens", "2"};
    const ProgramResult result = run_program(bench(more));
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, HasSubstr("(seeded ids)"));
    EXPECT_THAT(result.err, HasSubstr("seeded ids stand in"));
    // A text that was given cannot be replaced.
    EXPECT_THAT(refused(1, {"-m", folder.path().string(), "--prompt", "x"}), HasSubstr("tokenizer"));
}

TEST(Bench, PassesAtADepth) {
    const json runs = runs_of({"--passes", "1,3,8", "--depth", "300"});
    ASSERT_EQ(runs.size(), 1U);
    EXPECT_EQ(runs[0]["mode"], "passes");
    EXPECT_EQ(runs[0]["depth"], 300);
    const json& passes = runs[0]["passes"];
    ASSERT_EQ(passes.size(), 3U);
    EXPECT_EQ(passes[0]["ratio"], 1.0);
    const int tokens[] = {1, 3, 8};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(passes[i]["tokens"], tokens[i]);
        EXPECT_EQ(passes[i]["runs"], 2);
        EXPECT_EQ(passes[i]["weight_bytes"], kBundledBytes);
        EXPECT_EQ(passes[i]["kv_bytes"], kKvRow * (300 + tokens[i]));
        EXPECT_NEAR(passes[i]["ratio"].get<double>() * passes[0]["seconds"].get<double>(), passes[i]["seconds"], 1e-9);
    }
    EXPECT_THAT(refused(1, {"--passes", "8", "--depth", "57", "--ctx", "64"}),
                HasSubstr("--depth 57 and a pass of 8 tokens need a context of 65"));
    EXPECT_EQ(runs_of({"--passes", "8", "--depth", "56", "--ctx", "64"}).size(), 1U);
}

TEST(Bench, TheTableHasARowForEachPassOfEachValue) {
    const ProgramResult result = run_program(bench({"--passes", "1,2", "--sweep", "kv-type=f16;f32"}));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("slipstream "));
    EXPECT_THAT(result.out, HasSubstr("KV f16"));
    EXPECT_THAT(result.out, HasSubstr("KV f32"));
    for (const char* row : {"\n    f16       1", "\n    f16       2", "\n    f32       1", "\n    f32       2"})
        EXPECT_THAT(result.out, HasSubstr(row));
    EXPECT_THAT(result.out, HasSubstr("\nkv-type  tokens  depth"));
}

TEST(Bench, PromptsOfAFile) {
    const TemporaryFolder folder;
    const std::string file =
        folder
            .write("p.jsonl",
                   "{\"turns\": [\"The wolf\", \"And then\"]}\n{\"question\": \"Who?\"}\n{\"prompt\": \"x\"}\n")
            .string();
    const json run = runs_of({"--prompts", file, "--max-prompts", "2", "--max-tokens", "5"})[0];
    EXPECT_EQ(run["mode"], "prompts");
    EXPECT_EQ(run["prompts"], 2);
    EXPECT_EQ(run["turns"], 3);
    const json& prefill = run["phases"][0];
    EXPECT_EQ(prefill["runs"], 6);  // three turns, twice
    EXPECT_GT(prefill["run_tokens_per_second"], 0.0);
    const json& decode = run["phases"][1];
    EXPECT_GT(decode["tokens"], 0);
    EXPECT_LE(decode["tokens"], 6 * 4);
    EXPECT_EQ(decode["weight_bytes_per_token"], kBundledBytes);
    const ProgramResult table = run_program(bench({"--prompts", file, "--max-tokens", "1"}));
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_THAT(table.out, HasSubstr("4 turns of 3 prompts in all, 2 times"));
    EXPECT_THAT(table.out, testing::Not(HasSubstr("decode"))) << "nothing comes after the first token";
    EXPECT_THAT(refused(1, {"--prompts", file, "--ctx", "40", "--max-tokens", "20"}), HasSubstr(file + ":1: "));
    EXPECT_THAT(refused(1, {"--prompts", folder.write("q.jsonl", "{}\n").string()}), HasSubstr("q.jsonl:1: no field"));
    EXPECT_THAT(refused(1, {"--prompts", "/nonexistent.jsonl"}), HasSubstr("/nonexistent.jsonl"));
}

TEST(Bench, SaysWhereATextSaysAgainWhatStoodBefore) {
    const TemporaryFolder folder;
    const std::string file = folder.write("p.jsonl", "{\"prompt\": \"Once\"}\n").string();
    for (const std::vector<std::string>& text :
         std::vector<std::vector<std::string>>{{"--prompts", file}, {"-p", "Once"}}) {
        for (const char* bias : {"100", "0"}) {
            std::vector<std::string> arguments = text;
            arguments.insert(arguments.end(), {"--max-tokens", "60", "--temperature", "0.9", "--logit-bias",
                                               fmt::format("300={}", bias)});
            const ProgramResult result = run_program(bench(arguments));
            EXPECT_EQ(result.code, 0) << result.err;
            EXPECT_EQ(result.err.find("earlier text, of the prompt") != std::string::npos, bias == std::string("100"))
                << result.err;
        }
    }
}

TEST(Bench, RealPromptFilesAreRead) {
    int found = 0;
    for (const char* name : {"HumanEval.jsonl", "gsm8k_test.jsonl", "mt_bench_question.jsonl"}) {
        const std::string file = data_path(fmt::format("evals/{}", name));
        if (!fs::exists(file)) continue;
        ++found;
        const json run = runs_of({"--prompts", file, "--max-prompts", "2", "--max-tokens", "3"})[0];
        EXPECT_EQ(run["prompts"], 2) << name;
        EXPECT_GT(run["phases"][0]["tokens"], 20) << name;
    }
    if (found == 0) GTEST_SKIP() << "prompts of published benches are not there: " << data_path("evals");
}

TEST(Bench, StatisticsAreTheJson) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "s.json").string();
    const ProgramResult result = run_program(bench({"--passes", "1", "--stats", file}));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("tokens  depth"));
    EXPECT_EQ(json::parse(file_text(file))["runs"][0]["passes"][0]["tokens"], 1);
}

// A prompt that a session holds is not read again, and the session stays as it was.
TEST(Bench, GoesOnFromASessionsPrompt) {
    const TemporaryFolder folder;
    const std::string session = (folder.path() / "s.session").string();
    std::string prompt;
    for (int i = 0; i < 40; ++i) prompt += fmt::format("There were {} wolves in the forest of the king. ", i);
    ASSERT_EQ(run_program({"generate", "--no-config", "--tables", "off", "--threads", "1", "--no-template", "--ctx",
                           "1024", "--temperature", "0", "-n", "30", "--session", session, "-p", prompt})
                  .code,
              0);
    const auto bytes = [&] {
        std::ifstream file(session, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const std::string held = bytes();
    ASSERT_FALSE(held.empty());
    const json plain =
        runs_of({"--session", session, "-n", "12", "--draft", "context,suffix", "--draft", "retrieval"})[0];
    EXPECT_EQ(bytes(), held);
    EXPECT_EQ(plain["ctx"], 1024);
    // The last token of the prompt is fed, and what stands behind the last whole chunk is there after the first run.
    EXPECT_EQ(plain["phases"][0]["tokens"], 1);
    EXPECT_EQ(plain["phases"][1]["tokens"], 12);
    ASSERT_EQ(plain["drafts"].size(), 3U);
    for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(plain["drafts"][i]["texts_equal"], 2) << plain["drafts"][i];
    EXPECT_THAT(refused(1, {"--session", (folder.path() / "none").string()}), HasSubstr("there is no session"));
    EXPECT_THAT(refused(1, {"--session", session, "--ctx", "512"}), HasSubstr("was begun with 1024"));
    EXPECT_THAT(refused(1, {"--session", session, "-n", "900"}), HasSubstr("lower --max-tokens"));
    EXPECT_THAT(refused(2, {"--session", session, "-p", "Hi"}), HasSubstr("which has its own text"));
    EXPECT_THAT(refused(2, {"--session", session, "--passes", "1"}), HasSubstr("without --passes and --prompts"));
}

TEST(Bench, MistakesOfUsage) {
    EXPECT_THAT(refused(2, {"--passes", "0"}), HasSubstr("--passes"));
    EXPECT_THAT(refused(2, {"--passes", "1", "--sweep", "threads=1;none"}), HasSubstr("--sweep threads"));
    EXPECT_THAT(refused(2, {"--draft", "magic"}), HasSubstr("'magic'"));
    EXPECT_THAT(refused(2, {"--json", "--stats", "-"}), HasSubstr("--json"));
    EXPECT_THAT(refused(1, {"--logit-bias", "999999=1"}), HasSubstr("999999 is not a token"));
    EXPECT_THAT(refused(1, {"--prompts", "/dev/zero"}), HasSubstr("this is a device"));
    EXPECT_THAT(refused(1, {"--sweep", "model=/nonexistent;/nonexistent"}), HasSubstr("/nonexistent"));
}

TEST(Bench, ASignalEndsItAndLeavesNothing) {
    const TemporaryFolder folder;
    ProgramRun run;
    run.arguments = {"bench",    "--passes", "1", "--depth", "8000", "--stats", (folder.path() / "s.json").string(),
                     "--repeat", "1000000"};
    RunningProgram program(run);
    // Statistics are begun before the work.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (program.n_unfinished_files(folder.path().string()) == 0 && std::chrono::steady_clock::now() < patience)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(program.n_unfinished_files(folder.path().string()), 1);
    program.send(SIGINT);
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 130);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace slipstream::tools
