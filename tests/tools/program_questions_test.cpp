// The commands that only answer: inspect, models, tokenize, perplexity, version.
#include <cmath>
#include <cstdio>
#include <cstring>

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
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

ProgramResult run_with_input(const std::vector<std::string>& arguments, const std::string& input) {
    ProgramRun run;
    run.arguments = arguments;
    run.input = input;
    return run_program(run);
}

TEST(Inspect, TellsWhatTheBundledModelIs) {
    const ProgramResult text = run_program({"inspect", "--ctx", "512", "--kv-type", "f32"});
    EXPECT_EQ(text.code, 0);
    EXPECT_THAT(text.out, HasSubstr("6 layers, d_model 256, d_ff 768, vocab 4096, tied embeddings"));
    EXPECT_THAT(text.out, HasSubstr("SentencePiece BPE, 4096 tokens"));
    EXPECT_THAT(text.out, HasSubstr("f32, 6.0 KiB a token, 3.0 MiB at 512 tokens"));
    EXPECT_THAT(run_program({"inspect", "--ctx", "512", "--kv-type", "q8"}).out,
                HasSubstr("q8, 1.6 KiB a token, 816 KiB at 512 tokens"));
    EXPECT_THAT(run_program({"inspect", "-v"}).out, HasSubstr("model.layers.5.mlp.down_proj.weight"));
    const nlohmann::json json = nlohmann::json::parse(run_program({"inspect", "--json", "--ctx", "512"}).out);
    EXPECT_EQ(json["architecture"], "llama");
    EXPECT_EQ(json["parameters"], 5770496);
    EXPECT_EQ(json["shape"]["n_kv_heads"], 2);
    EXPECT_EQ(json["types"]["BF16"]["parameters"], 5770496);
    EXPECT_EQ(json["kv"]["bytes"], 512 * json["kv"]["bytes_per_token"].get<int>());
    EXPECT_EQ(json["rope"]["scaling"], "none");
}

TEST(Models, ListsTheBundledOne) {
    const nlohmann::json json = nlohmann::json::parse(run_program({"models", "--json"}).out);
    ASSERT_EQ(json["models"].size(), 1U);
    EXPECT_EQ(json["models"][0]["format"], "safetensors");
    EXPECT_THAT(json["models"][0]["path"].get<std::string>(), EndsWith("tools/demo_model/target"));
    // The name that is listed is one that -m takes.
    EXPECT_EQ(run_program({"inspect", "-m", json["models"][0]["name"]}).code, 0);
}

TEST(Models, MarksWhatIsNotServed) {
    const TemporaryFolder folder;
    std::filesystem::copy(source_path("tools/demo_model/target"), folder.path() / "model");
    const std::filesystem::path weights = folder.path() / "model" / "model.safetensors";
    ProgramRun run;
    run.arguments = {"models", "--json"};
    run.environment = {{"SLIPSTREAM_MODELS", folder.path().string()}};
    const auto entry = [&] {
        const nlohmann::json json = nlohmann::json::parse(run_program(run).out);
        for (const nlohmann::json& model : json["models"])
            if (model["path"].get<std::string>().starts_with(folder.path().string())) return model;
        return nlohmann::json();
    };
    EXPECT_EQ(entry()["served"], true);
    EXPECT_FALSE(entry().contains("refusal"));
    std::string bytes = file_text(weights.string());
    const std::size_t type = bytes.find("\"BF16\"");
    ASSERT_NE(type, std::string::npos);
    folder.write(std::filesystem::path("model") / "model.safetensors", bytes.replace(type, 6, "\"I16\" "));
    EXPECT_EQ(entry()["served"], false);
    EXPECT_THAT(entry()["refusal"].get<std::string>(), HasSubstr("has type I16, which is not served (served: F32"));
    run.arguments = {"models"};
    EXPECT_THAT(run_program(run).out, HasSubstr("\n  not served: "));
}

TEST(Version, SaysWhatWasBuilt) {
    const nlohmann::json json = nlohmann::json::parse(run_program({"version", "--json"}).out);
    EXPECT_THAT(json["version"].get<std::string>(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
    EXPECT_THAT(json["commit"].get<std::string>(), testing::MatchesRegex("unknown|[0-9a-f]+(-dirty)?"));
    EXPECT_EQ(json["backends"][0]["name"], "cpu");
    EXPECT_FALSE(json["backends"][1]["reason"].get<std::string>().empty());
    EXPECT_THAT(run_program({"version"}).out, StartsWith("slipstream " + json["version"].get<std::string>()));
}

TEST(Tokenize, ComesBackAsItWent) {
    const std::string text = " Once  upon\ta time,\r\n\xc3\xa9 \xe2\x82\xac \xff!";
    const ProgramResult ids = run_with_input({"tokenize", "--ids"}, text);
    EXPECT_THAT(ids.out, StartsWith("1 "));
    EXPECT_THAT(ids.out, EndsWith("\n"));
    EXPECT_EQ(run_with_input({"tokenize", "--detokenize"}, ids.out).out, text);
    EXPECT_EQ("1 " + run_with_input({"tokenize", "--ids", "--no-bos"}, text).out, ids.out);
}

TEST(Tokenize, ListsIdsAndPieces) {
    EXPECT_EQ(run_with_input({"tokenize"}, "Once upon").out, "1\t<s>\n2384\t\xe2\x96\x81Once\n697\t\xe2\x96\x81upon\n");
    EXPECT_EQ(run_program({"tokenize", "Once upon"}).out, "1\t<s>\n2384\t\xe2\x96\x81Once\n697\t\xe2\x96\x81upon\n");
    EXPECT_EQ(run_program({"tokenize", "-p", "x", "-f", "y"}).code, 2);
    EXPECT_EQ(run_with_input({"tokenize", "--ids", "--no-bos", "--special"}, "</s>").out, "2\n");
    EXPECT_NE(run_with_input({"tokenize", "--ids", "--no-bos"}, "</s>").out, "2\n");
}

TEST(Tokenize, WorksWithAVocabularyAlone) {
    const std::string file = data_path("tokenizers/ggml-vocab-llama-spm.gguf");
    if (!fs::exists(file)) GTEST_SKIP() << "not there: " << file;
    EXPECT_EQ(run_with_input({"tokenize", "-m", file, "--ids"}, "Hello world").out, "1 15043 3186\n");
    EXPECT_EQ(run_with_input({"tokenize", "-m", data_path("tokenizers/ggml-vocab-gpt-2.gguf"), "--ids"}, "Hello").out,
              "15496\n");
}

TEST(Perplexity, LogitsDoNotDependOnThePass) {
    const TemporaryFolder folder;
    const std::string ids = folder.write("ids", "1 2384 697 261 538 95 300 17 4000 5 6 7 8").string();
    std::string first;
    for (const char* pass : {"1", "2", "5", "64"}) {
        const std::string file = (folder.path() / "logits.f32").string();
        const ProgramResult result = run_program({"perplexity", "--tokens", ids, "--logits", file, "--pass", pass});
        ASSERT_EQ(result.code, 0) << result.err;
        EXPECT_EQ(result.out, "");
        const std::string bytes = file_text(file);
        EXPECT_EQ(bytes.size(), 13U * 4096U * sizeof(float));
        if (first.empty()) first = bytes;
        EXPECT_EQ(bytes, first) << pass;
    }
}

// The nats of each token but the first, from the logits that the program writes for `ids`, in plain double.
std::vector<double> surprises(const std::vector<std::size_t>& ids) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "logits.f32").string();
    const std::string list = folder.write("ids", fmt::format("{}", fmt::join(ids, " "))).string();
    EXPECT_EQ(run_program({"perplexity", "--tokens", list, "--logits", file}).code, 0);
    const std::string bytes = file_text(file);
    std::vector<float> logits(bytes.size() / sizeof(float));
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    std::vector<double> nats;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        double sum = 0.0;
        for (std::size_t j = 0; j < 4096; ++j) sum += std::exp(static_cast<double>(logits[i * 4096 + j]));
        nats.push_back(std::log(sum) - logits[i * 4096 + ids[i + 1]]);
    }
    return nats;
}

std::vector<std::size_t> ids_of(const std::string& file) {
    std::istringstream words(run_program({"tokenize", "--ids", "--file", file}).out);
    std::vector<std::size_t> ids;
    for (std::size_t id = 0; words >> id;) ids.push_back(id);
    return ids;
}

struct Said {
    double perplexity = 0.0;
    double nats = 0.0;
    double error = 0.0;
    double perplexity_error = 0.0;
};
Said said_by(const ProgramResult& result) {
    Said said;
    EXPECT_EQ(std::sscanf(result.out.c_str(),
                          "perplexity %lf nats per token %lf standard error %lf of nats, %lf of the perplexity",
                          &said.perplexity, &said.nats, &said.error, &said.perplexity_error),
              4)
        << result.out << result.err;
    return said;
}

void expect_score(const ProgramResult& result, const std::vector<double>& nats) {
    const auto n = static_cast<double>(nats.size());
    double mean = 0.0;
    for (const double each : nats) mean += each / n;
    double variance = 0.0;
    for (const double each : nats) variance += (each - mean) * (each - mean) / (n - 1.0);
    const Said said = said_by(result);
    EXPECT_NEAR(said.nats, mean, 1e-5);
    EXPECT_NEAR(said.perplexity, std::exp(mean), 1e-3);
    EXPECT_NEAR(said.error, std::sqrt(variance / n), 1e-5);
    EXPECT_NEAR(said.perplexity_error, std::exp(mean) * std::sqrt(variance / n), 1e-3);
    EXPECT_THAT(result.out, HasSubstr(fmt::format("tokens {}\n", nats.size())));
    EXPECT_LT(mean, 3.0);  // a fairy tale is what this model knows
}

TEST(Perplexity, IsTheMeanSurpriseOfItsLogits) {
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "Once upon a time there was a king who had three sons.").string();
    expect_score(run_program({"perplexity", "--file", text, "-q"}), surprises(ids_of(text)));
}

// As llama-perplexity scores: whole windows of BOS and text, BOS in place of the first token of each, the second half.
TEST(Perplexity, WindowsOfLlamaScoreTheSecondHalf) {
    const TemporaryFolder folder;
    const std::string text =
        folder.write("text", "Once upon a time there was a king who had three sons, and the youngest of them went out.")
            .string();
    const std::vector<std::size_t> ids = ids_of(text);
    for (const std::size_t size : {std::size_t{7}, std::size_t{8}}) {
        std::vector<double> nats;
        for (std::size_t begin = 0; begin + size <= ids.size(); begin += size) {
            std::vector<std::size_t> window(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                            ids.begin() + static_cast<std::ptrdiff_t>(begin + size));
            window.front() = ids.front();
            const std::vector<double> all = surprises(window);
            nats.insert(nats.end(), all.begin() + static_cast<std::ptrdiff_t>(size / 2), all.end());
        }
        expect_score(run_program({"perplexity", "--file", text, "-q", "--windows", "llama", "--window",
                                  fmt::format("{}", size)}),
                     nats);
    }
    const auto refusal = [&](const char* option, const char* value) {
        return run_program({"perplexity", "--file", text, "--windows", "llama", option, value}).err;
    };
    EXPECT_THAT(refusal("--window", "512"), HasSubstr("two windows of 512 tokens are the least"));
    EXPECT_THAT(refusal("--window", "2"), HasSubstr("3 or more"));
    EXPECT_THAT(refusal("--windows", "theirs"), HasSubstr("all or llama expected, found 'theirs'"));
}

TEST(Perplexity, WindowsCoverEveryToken) {
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "Once upon a time there was a king who had three sons.").string();
    const std::string ids = run_program({"tokenize", "--ids", "--no-bos", "--file", text}).out;
    const auto n = std::count(ids.begin(), ids.end(), ' ') + 1;
    for (const char* window : {"2", "5", "64"}) {
        const ProgramResult result = run_program({"perplexity", "--file", text, "--window", window});
        EXPECT_THAT(result.out, HasSubstr(fmt::format("tokens {}\n", n))) << window;
    }
}

TEST(Perplexity, HasStatisticsToo) {
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "Once upon a time there was a king who had three sons.").string();
    const std::string file = (folder.path() / "stats.json").string();
    const ProgramResult said = run_program({"perplexity", "--file", text, "-t", "1", "--ctx", "256", "--stats", file});
    ASSERT_EQ(said.code, 0) << said.err;
    const nlohmann::json stats = nlohmann::json::parse(file_text(file));
    EXPECT_EQ(stats["devices"], nlohmann::json({"cpu"}));
    EXPECT_EQ(stats["plan"]["context_tokens"], 256);
    EXPECT_EQ(stats["windows"], 1);
    EXPECT_THAT(said.out,
                StartsWith(fmt::format("perplexity {:.4f}\nnats per token {:.6f}\nstandard error {:.6f} of nats, ",
                                       stats["perplexity"].get<double>(), stats["nats_per_token"].get<double>(),
                                       stats["nats_standard_error"].get<double>())));
    EXPECT_THAT(said.out, HasSubstr(fmt::format("\ntokens {}\n", stats["tokens"].get<int>())));
    EXPECT_GT(stats["seconds"], 0.0);
    EXPECT_GT(stats["tokens_per_second"], 0.0);
    EXPECT_GT(stats["peak"]["rss_bytes"], 0);
    // Behind the figures, or of ids: what applies.
    const ProgramResult both = run_program({"perplexity", "--file", text, "--stats", "-"});
    EXPECT_EQ(nlohmann::json::parse(both.out.substr(both.out.find('{')))["perplexity"], stats["perplexity"]);
    const ProgramResult ids = run_program({"perplexity", "--tokens", folder.write("ids", "1 2 3").string(), "--logits",
                                           (folder.path() / "logits").string(), "--stats", "-"});
    const nlohmann::json of_ids = nlohmann::json::parse(ids.out);
    EXPECT_EQ(of_ids["tokens"], 3);
    EXPECT_FALSE(of_ids.contains("perplexity"));
}

// In the source tree, as the shell reads them.
TEST(Questions, TheExampleOfEachHelpRuns) {
    for (const char* command :
         {"generate", "bench", "inspect", "models", "perplexity", "tables", "tokenize", "version"}) {
        const std::string help = run_program({command, "--help"}).out;
        const std::size_t at = help.find("Example:\n");
        ASSERT_NE(at, std::string::npos) << command;
        ProgramRun run;
        run.shell = fmt::format("program=$0; slipstream() {{ \"$program\" \"$@\"; }}; cd '{}' && {}", source_path(""),
                                help.substr(at + 9));
        const ProgramResult result = run_program(run);
        EXPECT_EQ(result.code, 0) << command << ": " << result.err;
        EXPECT_FALSE(result.out.empty()) << command;
    }
}

}  // namespace
}  // namespace slipstream::tools
