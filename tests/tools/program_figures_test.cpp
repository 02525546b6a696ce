// Figures that must agree with others to many digits, by arithmetic over what the program writes: perplexities with
// logits, the stages of a pass with the pass. Other tests of these commands: program/bench.txt, program/questions.txt.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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
}

// BF16, and thirteen norms widened to float.
constexpr double kBundledBytes = 2.0 * 5770496 + 2.0 * 13 * 256;
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

}  // namespace
}  // namespace slipstream::tools
