// Models of random weights: blocks of the deviation that was asked for, files that load, plan and generate, the same
// bytes however they are made, and one line where they cannot be.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/rope.h"
#include "tests/support/layers.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lab/random_model/random_model_blocks.h"
#include "tools/lab/random_model/random_model_file.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

// The shape of the smallest, cut to one layer of 2048 words.
RandomModelOptions small_options(Quantisation quantisation) {
    RandomModelOptions options;
    options.config = *find_shape("llama-68m");
    set_n_layers(options.config, 1);
    options.config.vocab = 2048;
    options.quantisation = quantisation;
    return options;
}

ProgramResult run_random_model(const std::string& arguments) {
    ProgramRun run;
    run.shell = "exec '" SLIPSTREAM_LAB_PROGRAM "' random-model " + arguments;
    return run_program(run);
}

TEST(RandomBlocks, HaveTheDeviationThatWasAskedForAndNoMean) {
    constexpr std::int64_t kElements = std::int64_t{1} << 16;
    constexpr double kDeviation = 1.0 / 64.0;
    for (int i = 0; i < kDTypeCount; ++i) {
        const auto type = static_cast<DType>(i);
        SCOPED_TRACE(dtype_name(type));
        std::vector<std::byte> data(row_bytes(type, kElements));
        RandomBlocks(type, kDeviation).fill(data.data(), kElements / dtype_info(type).block_elements, 7);
        std::vector<float> values(kElements);
        cpu::dequantize_row(type, data.data(), values.data(), kElements);
        double sum = 0.0;
        double squares = 0.0;
        for (const float value : values) {
            ASSERT_TRUE(std::isfinite(value));
            sum += value;
            squares += double{value} * value;
        }
        // d varies by a quarter, which adds 1 %; a mean of random blocks is within a few of 1/sqrt(number of blocks).
        EXPECT_NEAR(std::sqrt(squares / kElements), kDeviation, 0.04 * kDeviation);
        EXPECT_NEAR(sum / kElements, 0.0, 0.03 * kDeviation);
    }
}

TEST(RandomBlocks, DependOnTheSeedAlone) {
    for (int i = 0; i < kDTypeCount; ++i) {
        const auto type = static_cast<DType>(i);
        const RandomBlocks blocks(type, 0.02);
        std::vector<std::byte> a(row_bytes(type, 1024));
        std::vector<std::byte> b(a.size(), std::byte{0xff});
        std::vector<std::byte> c(a.size());
        const std::int64_t n = 1024 / dtype_info(type).block_elements;
        blocks.fill(a.data(), n, 1);
        blocks.fill(b.data(), n, 1);
        blocks.fill(c.data(), n, 2);
        EXPECT_EQ(a, b) << dtype_name(type);
        EXPECT_NE(a, c) << dtype_name(type);
    }
}

TEST(RandomModelFile, HoldsTheTypesThatThePlanSays) {
    const TemporaryFolder folder;
    for (const char* name :
         {"BF16", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "IQ4_NL", "MXFP4", "IQ4_XS", "Q2_K"}) {
        SCOPED_TRACE(name);
        const RandomModelOptions options = small_options(*find_quantisation(name));
        const std::filesystem::path path = folder.path() / "model.gguf";
        write_random_model(path, options);
        EXPECT_EQ(std::filesystem::file_size(path), random_model_bytes(options));
        const auto files = ModelFiles::open(path);
        EXPECT_EQ(files->config().vocab, 2048);
        const ModelWeights found = files->weights();
        const ModelWeights planned = shape_weights(options.config, options.quantisation);
        ASSERT_EQ(found.layers.size(), 1U);
        EXPECT_EQ(found.lm_head.dtype, planned.lm_head.dtype);
        EXPECT_EQ(found.token_embedding.dtype, planned.token_embedding.dtype);
        EXPECT_EQ(found.layers[0][TensorRole::V].dtype, planned.layers[0][TensorRole::V].dtype);
        EXPECT_EQ(found.layers[0][TensorRole::Down].dtype, planned.layers[0][TensorRole::Down].dtype);
        EXPECT_TRUE(files->generation_defaults().end_tokens.empty());
    }
}

TEST(RandomModelFile, TakesEveryArchitectureOfTheShapes) {
    const TemporaryFolder folder;
    for (const char* name : {"qwen2.5-0.5b", "qwen3-0.6b", "mistral-7b", "llama3.2-1b"}) {
        SCOPED_TRACE(name);
        RandomModelOptions options{.config = *find_shape(name), .quantisation = Quantisation::Q4_0};
        set_n_layers(options.config, 1);
        options.config.vocab = 512;
        const std::filesystem::path path = folder.path() / "model.gguf";
        write_random_model(path, options);
        const ModelConfig read = ModelFiles::open(path)->config();
        EXPECT_EQ(read.attention(0), options.config.attention(0));
        EXPECT_EQ(read.tied_embeddings, options.config.tied_embeddings);
    }
}

// Biases, sinks, experts in MXFP4, and keys that GGUF files of the family have.
TEST(RandomModelFile, IsGptOssOfAShape) {
    const TemporaryFolder folder;
    RandomModelOptions options{.config = *find_shape("gpt-oss-20b", 3), .quantisation = Quantisation::MXFP4};
    options.config.vocab = 512;
    options.config.d_model = 64;
    for (LayerConfig& layer : options.config.layers) {
        layer.feed_forward.experts.n_experts = 5;
        layer.feed_forward.experts.d_ff = 96;
    }
    const std::filesystem::path path = folder.path() / "model.gguf";
    write_random_model(path, options);
    EXPECT_EQ(std::filesystem::file_size(path), random_model_bytes(options));
    const auto files = ModelFiles::open(path);
    const ModelConfig& read = files->config();
    ASSERT_EQ(read.n_layers(), 3);
    for (std::int64_t layer = 0; layer < 3; ++layer) {
        EXPECT_EQ(read.attention(layer), options.config.attention(layer)) << layer;
        EXPECT_EQ(read.layers[layer].feed_forward, options.config.layers[layer].feed_forward) << layer;
    }
    EXPECT_EQ(rope_frequencies(read, 131072), rope_frequencies(options.config, 131072));
    const ModelWeights weights = files->weights();
    EXPECT_EQ(weights.layers[2].experts[4][TensorRole::Up].dtype, DType::MXFP4);
    EXPECT_EQ(weights.layers[2][TensorRole::AttnOut].dtype, DType::Q8_0);
    EXPECT_EQ(weights.layers[2][TensorRole::Sinks].cols(), 64);
    EXPECT_EQ(weights.layers[2][TensorRole::DownBias].rows(), 5);

    options.zipf_routers = true;
    write_random_model(path, options);
    const auto zipf = ModelFiles::open(path);
    const ConstTensorView bias = zipf->weights().layers[2][TensorRole::RouterBias];
    ASSERT_EQ(bias.cols(), 5);
    EXPECT_EQ(float_row(bias, 0)[0], 0.0F);
    for (int i = 1; i < 5; ++i) EXPECT_NEAR(float_row(bias, 0)[i], -std::log(i + 1), 0.001);
}

TEST(RandomModelFile, HasTheSameBytesForAnyNumberOfThreads) {
    const TemporaryFolder folder;
    RandomModelOptions options = small_options(Quantisation::Q4_K_M);
    std::string first;
    for (const int n_threads : {1, 3}) {
        options.n_threads = n_threads;
        write_random_model(folder.path() / "model.gguf", options);
        const std::string bytes = file_text((folder.path() / "model.gguf").string());
        if (first.empty()) first = bytes;
        EXPECT_TRUE(bytes == first);
    }
    options.seed = 2;
    write_random_model(folder.path() / "model.gguf", options);
    EXPECT_FALSE(file_text((folder.path() / "model.gguf").string()) == first);
}

TEST(RandomModelProgram, WritesAModelThatIsInspectedAndGenerates) {
    for (const std::string type : {"Q4_K_M", "IQ4_NL", "MXFP4", "IQ4_XS", "Q2_K"}) {
        SCOPED_TRACE(type);
        const TemporaryFolder folder;
        const std::string path = (folder.path() / "model.gguf").string();
        const ProgramResult made = run_random_model(
            fmt::format("--shape llama-68m --type {} --layers 2 --seed 3 --threads 2 --output {}", type, path));
        ASSERT_EQ(made.code, 0) << made.err;
        EXPECT_THAT(made.err, HasSubstr(fmt::format("llama-68m {}, 2 layers", type)));
        const ProgramResult inspected = run_program({"inspect", path});
        ASSERT_EQ(inspected.code, 0) << inspected.err;
        EXPECT_THAT(inspected.out, HasSubstr(fmt::format("llama-68m {} of random weights, seed 3", type)));
        const std::string of_matrices = type == "Q4_K_M" ? "Q4_K" : type;
        EXPECT_THAT(run_program({"inspect", "--json", path}).out, HasSubstr(fmt::format("\"{}\"", of_matrices)));
        const std::string ids = (folder.path() / "ids.txt").string();
        const ProgramResult generated =
            run_program({"generate", "-m", path, "--devices", "cpu", "--prompt", "once upon", "--max-tokens", "40",
                         "--temperature", "0", "--draft", "none", "--token-ids", ids});
        ASSERT_EQ(generated.code, 0) << generated.err;
        std::istringstream lines(file_text(ids));
        std::multiset<int> tokens;
        for (int id = 0; lines >> id;) tokens.insert(id);
        EXPECT_EQ(tokens.size(), 40U);
        EXPECT_GT(std::set<int>(tokens.begin(), tokens.end()).size(), 5U);  // not the same word for ever
    }
}

TEST(RandomModelProgram, AnswersMistakesWithALine) {
    struct Case {
        const char* arguments;
        int code;
        const char* words;
    };
    for (const Case& c :
         {Case{"--shape nothing --type Q4_0 --output x", 2,
               "--shape: unknown shape 'nothing'; known shapes: llama-68m"},
          Case{"--shape 1b --type Q9 --output x", 2, "--type: unknown type 'Q9'; known types: F32, BF16"},
          Case{"--type Q4_0 --output x", 2, "--shape is missing"},
          Case{
              "--shape 1b --type Q4_0 --mtp-head --output x", 2,
              "--mtp-head: MTP heads are supported for the qwen3.5, qwen3.6, qwen3.8, qwen3-coder-next and glm-4.5-air "
              "shapes only; 1b has none"},
          Case{"--shape qwen3-30b-a3b --type Q4_0 --zipf-routers --output x", 2,
               "--zipf-routers: the routers of qwen3-30b-a3b have no biases"},
          Case{"--shape 1b --type Q4_0", 2, "--output is missing"},
          Case{"--shape 1b --type", 2, "--type requires a value"}, Case{"--wrong 1", 2, "unknown option --wrong"},
          Case{"--shape 1b --type Q4_0 --seed minus --output x", 2, "--seed: a whole number"},
          Case{"--shape 1b --type Q4_0 --output /nowhere/x", 1, "cannot be written"}}) {
        SCOPED_TRACE(c.arguments);
        const ProgramResult result = run_random_model(c.arguments);
        EXPECT_EQ(result.code, c.code);
        EXPECT_THAT(result.err, HasSubstr(c.words));
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
        EXPECT_EQ(result.out, "");
    }
}

TEST(RandomModelProgram, LeavesNothingBehindOnAFullDisk) {
    const ProgramResult in_place = run_random_model("--shape llama-68m --type Q4_0 --layers 1 --output /dev/full");
    EXPECT_EQ(in_place.code, 1);
    EXPECT_THAT(in_place.err, HasSubstr("No space left on device"));
    // A limit on the length of files stands in for a disk that fills up on the way.
    const TemporaryFolder folder;
    ProgramRun run;
    run.shell = "ulimit -f 1000; exec '" SLIPSTREAM_LAB_PROGRAM
                "' random-model --shape llama-68m --type Q4_0 --output " +
                (folder.path() / "cut.gguf").string();
    const ProgramResult cut = run_program(run);
    EXPECT_EQ(cut.code, 1);
    EXPECT_THAT(cut.err, HasSubstr("cut.gguf: cannot be written: File too large"));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RandomModelProgram, RefusesWhatTheDiskHasNoRoomFor) {
    RandomModelOptions options{.config = *find_shape("llama3.1-405b"), .quantisation = Quantisation::F32};
    set_n_layers(options.config, 1024 * 16);  // more than any disk has
    try {
        write_random_model(std::filesystem::temp_directory_path() / "huge.gguf", options);
        FAIL() << "written";
    } catch (const IoError& error) {
        EXPECT_THAT(error.what(), HasSubstr("its disk has"));
    }
}

// As many kv heads as query heads, as the older Llama models have: a device's part of them is all that its kernels see.
TEST(RandomModelProgram, ASessionGoesOnOnAnUnevenSplitOfItsHeads) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model.gguf").string();
    write_random_model(path, small_options(Quantisation::Q8_0));
    const auto generate = [&](const std::string& tokens, const std::vector<std::string>& more) {
        std::vector<std::string> arguments{"generate", "-m",     path,      "--prompt", "x",
                                           "-n",       tokens,   "--ctx",   "512",      "--no-config",
                                           "--tables", "off",    "--draft", "context",  "--temperature",
                                           "0.8",      "--seed", "3"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.code, 0) << result.err;
        return result.out;
    };
    const std::vector<std::string> split{"--devices", "cpu,cpu", "--split", "tensor", "--shares", "2,1"};
    const std::string whole = generate("80", split);
    EXPECT_NE(whole, "");
    const std::string session = (folder.path() / "session").string();
    std::vector<std::string> kept = split;
    kept.insert(kept.end(), {"--session", session});
    static_cast<void>(generate("40", kept));
    const ProgramResult rest =
        run_program({"generate", "--session", session, "-n", "80", "--no-config", "--tables", "off"});
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(rest.out, whole);
}

// Three layers of 48 experts of 410 KiB, of which a token chooses 4; with `zipf`, some far more often than others.
void write_random_mixture(const std::string& path, bool zipf = false) {
    RandomModelOptions options{.config = *find_shape("gpt-oss-20b", 3), .quantisation = Quantisation::MXFP4};
    options.zipf_routers = zipf;
    options.config.vocab = 512;
    options.config.d_model = 256;
    for (LayerConfig& layer : options.config.layers) {
        layer.feed_forward.experts.n_experts = 48;
        layer.feed_forward.experts.d_ff = 1024;
    }
    write_random_model(path, options);
}

// Budgets with few slots for experts to nearly all: the same text, memory as it was announced, and fewer bytes. A
// session goes on with another number of slots, or with none where host memory does not hold all experts.
TEST(RandomModelProgram, SlotsOfExpertsChangeBytesAndNoText) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model.gguf").string();
    write_random_mixture(path);
    const auto generated = [&](const std::vector<std::string>& more, std::string& text) {
        std::vector<std::string> arguments{
            "generate", "-m",   path,     "--devices", "cpu",           "-t",  "1",        "--no-template",
            "-p",       "x",    "-n",     "60",        "--ctx",         "512", "--tables", "off",
            "--draft",  "none", "--seed", "3",         "--temperature", "1"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_with_statistics(arguments, text);
    };
    std::string resident;
    const auto all = generated({}, resident)["peak"]["device_bytes"][0].get<std::int64_t>();
    const auto budget = [&](std::int64_t less) { return std::to_string(all - (less << 20)); };
    double slots_before = 0.0;
    double hits_before = 0.0;
    double copied_before = std::numeric_limits<double>::infinity();
    for (const std::int64_t less : {24, 17, 10, 3}) {
        SCOPED_TRACE(less);
        std::string text;
        const nlohmann::json stats =
            generated({"--device-memory", budget(less), "--ring", "2M", "--experts", "copy"}, text);
        EXPECT_EQ(text, resident);
        const nlohmann::json& row = stats["plan"]["device_memory"][0];
        std::int64_t sum = 0;
        for (const auto& [name, bytes] : row.items())
            if (name != "device" && name != "free") sum += bytes.get<std::int64_t>();
        EXPECT_EQ(sum, stats["peak"]["device_bytes"][0]);
        const double slots = row["experts"].get<double>();
        const double copied = stats["streamed"]["weights_bytes"].get<double>();
        const nlohmann::json& experts = stats["plan"]["experts"];
        EXPECT_EQ(experts["regime"], "experts in slots");
        EXPECT_EQ(experts["slot_bytes"], slots);
        EXPECT_EQ(experts["n_experts"], 3 * 48);
        EXPECT_EQ(experts["hits_from"], "prior");
        EXPECT_GT(experts["hits"], hits_before);
        EXPECT_LT(experts["hits"], 1.0);
        EXPECT_TRUE(experts["reason"].is_null());
        hits_before = experts["hits"].get<double>();
        EXPECT_GT(slots, slots_before);
        EXPECT_LT(copied, copied_before);
        slots_before = slots;
        copied_before = copied;
        std::int64_t needed = 0, hits = 0;
        for (const nlohmann::json& layer : stats["experts"]["layers"]) {
            needed += layer["needed"].get<std::int64_t>();
            hits += layer["hits"].get<std::int64_t>();
        }
        EXPECT_EQ(needed, 59 * 3 * 4);
        EXPECT_GT(hits, 0);
        EXPECT_LT(hits, needed);
    }
    EXPECT_GT(slots_before, 20.0 * (1 << 20)) << "most experts have slots in the end";
    const std::string session = (folder.path() / "session").string();
    std::string text;
    static_cast<void>(generated(
        {"--session", session, "-n", "20", "--device-memory", budget(17), "--ring", "2M", "--experts", "copy"}, text));
    static_cast<void>(
        run_with_statistics({"generate", "--session", session, "-n", "40", "-t", "1", "--devices", "cpu",
                             "--device-memory", budget(3), "--ring", "2M", "--experts", "copy", "--tables", "off"},
                            text));
    const ProgramResult fixed = run_program(
        {"generate", "--session",       session,    "-n",         "60", "-t",        "1",    "--devices",
         "cpu",      "--device-memory", budget(10), "--ring",     "2M", "--experts", "copy", "--host-memory",
         "48M",      "--tables",        "off",      "--no-config"});
    EXPECT_EQ(fixed.code, 0) << fixed.err;
    EXPECT_EQ(fixed.out, resident);
    EXPECT_THAT(fixed.err, HasSubstr("experts on the device stay there; to change them, all experts would be in host "
                                     "memory, "));
}

/// Runs over a mixture whose routers prefer some experts, under budgets with slots.
class ExpertCountsProgram : public testing::Test {
protected:
    ExpertCountsProgram() {
        write_random_mixture(path_, true);
        std::string text;
        all_ = generated({"-n", "1", "--tables", "off"}, text)["peak"]["device_bytes"][0].get<std::int64_t>();
    }
    // With or without tables, all plan by the same rates.
    [[nodiscard]] std::vector<std::string> arguments(const std::vector<std::string>& more) const {
        std::vector<std::string> arguments{
            "generate", "-m", path_,           "-t",  "1",       "--no-template",
            "-p",       "x",  "--ctx",         "512", "--draft", "none",
            "--seed",   "3",  "--temperature", "1",   "--rates", (folder_.path() / "rates").string()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    [[nodiscard]] nlohmann::json generated(const std::vector<std::string>& more, std::string& text) const {
        return run_with_statistics(arguments(more), text);
    }
    [[nodiscard]] std::vector<std::string> in_slots(const std::vector<std::string>& more, int n_devices = 1) const {
        const std::int64_t budget =
            n_devices == 1 ? all_ - (std::int64_t{24} << 20) : all_ / 2 + (std::int64_t{8} << 20);
        std::vector<std::string> arguments{"--devices",       n_devices == 1 ? "cpu" : "cpu,cpu",
                                           "--device-memory", std::to_string(budget),
                                           "--experts",       "copy"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    [[nodiscard]] std::vector<std::string> kept(const std::vector<std::string>& more, int n_devices = 1) const {
        std::vector<std::string> arguments = in_slots(more, n_devices);
        arguments.insert(arguments.end(), {"--tables", tables_});
        return arguments;
    }
    [[nodiscard]] std::vector<std::filesystem::path> files(std::string_view end) const {
        std::vector<std::filesystem::path> found;
        std::error_code missing;
        for (const auto& entry : std::filesystem::directory_iterator(tables_, missing))
            if (entry.path().filename().string().ends_with(end)) found.push_back(entry.path());
        return found;
    }
    static double hits(const nlohmann::json& stats) {
        double needed = 0.0;
        double hits = 0.0;
        for (const nlohmann::json& layer : stats["experts"]["layers"]) {
            needed += layer["needed"].get<double>();
            hits += layer["hits"].get<double>();
        }
        EXPECT_GT(needed, 0.0);
        return hits / needed;
    }

    TemporaryFolder folder_;
    std::string path_ = (folder_.path() / "model.gguf").string();
    std::string tables_ = (folder_.path() / "tables").string();
    std::int64_t all_ = 0;  // bytes of a device on which all fits
};

// A second start has the experts that the first one's text chose most often, on one device and on two, and plans so.
TEST_F(ExpertCountsProgram, ASecondStartBeginsWithWarmSlots) {
    std::string text, cold_text, warm_text;
    const nlohmann::json first = generated(kept({"-n", "400"}), text);
    EXPECT_EQ(first["plan"]["experts"]["regime"], "experts in slots");
    EXPECT_EQ(first["plan"]["experts"]["hits_from"], "prior");
    ASSERT_EQ(files("-experts.table").size(), 1U);
    const std::string counts = file_text(files("-experts.table").front());
    const double later_hits = hits(first);
    for (const int n_devices : {1, 2}) {
        double cold_hits = 0.0;
        double warm_hits = 0.0;
        for (const char* seed : {"5", "6", "7"}) {
            SCOPED_TRACE(testing::Message() << n_devices << " devices, seed " << seed);
            const nlohmann::json cold =
                generated(in_slots({"-n", "40", "--seed", seed, "--tables", "off"}, n_devices), cold_text);
            const nlohmann::json warm = generated(kept({"-n", "40", "--seed", seed}, n_devices), warm_text);
            EXPECT_EQ(warm_text, cold_text);
            cold_hits += hits(cold) / 3.0;
            warm_hits += hits(warm) / 3.0;
            EXPECT_EQ(warm["experts"]["layers"].size(), 3U);
            const nlohmann::json& experts = warm["plan"]["experts"];
            EXPECT_EQ(experts["hits_from"], "counts");
            EXPECT_EQ(cold["plan"]["experts"]["hits_from"], "prior");
            EXPECT_EQ(experts["slots"], cold["plan"]["experts"]["slots"]) << "earlier texts change no memory";
            EXPECT_LT(experts["hits"], cold["plan"]["experts"]["hits"]) << "the prior is for real routers";
            if (n_devices == 1) {
                EXPECT_NEAR(experts["hits"].get<double>(), later_hits, 0.05);
            }
            // What fills the slots counts as the prompt's.
            EXPECT_GT(warm["streamed"]["prompt_weights_bytes"], experts["slot_bytes"]);
            EXPECT_GT(warm["streamed"]["prompt_weights_bytes"], cold["streamed"]["prompt_weights_bytes"]);
        }
        EXPECT_GT(warm_hits, cold_hits + 0.02) << n_devices << " devices";
        EXPECT_NE(file_text(files("-experts.table").front()), counts) << "counts go on";
    }
    std::vector<std::string> asked{"plan",
                                   "-m",
                                   path_,
                                   "-t",
                                   "1",
                                   "--ctx",
                                   "512",
                                   "--draft",
                                   "none",
                                   "--json",
                                   "--no-config",
                                   "--rates",
                                   (folder_.path() / "rates").string()};
    const std::vector<std::string> where = kept({});
    asked.insert(asked.end(), where.begin(), where.end());
    const ProgramResult planned = run_program(asked);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const nlohmann::json plan = nlohmann::json::parse(planned.out)["plan"]["experts"];
    EXPECT_EQ(plan["hits_from"], "counts");
    std::string said;
    EXPECT_EQ(plan["hits"], generated(kept({"-n", "1"}), said)["plan"]["experts"]["hits"]);
    std::erase(asked, "--json");
    EXPECT_THAT(run_program(asked).out, testing::ContainsRegex("hits +[0-9.]+ % of the experts .*counted in earlier"));
    asked.insert(asked.end(), {"--json", "--assume", "hits=.5"});
    EXPECT_EQ(nlohmann::json::parse(run_program(asked).out)["plan"]["experts"]["hits_from"], "assumed");
    const ProgramResult listed = run_program({"tables", "inspect", tables_});
    EXPECT_THAT(listed.out, testing::ContainsRegex("experts: experts that texts chose, n_layers 3, n_tokens [0-9]+"));
    std::vector<std::string> verbose = arguments(kept({"-n", "2", "-v", "--no-config"}));
    const ProgramResult told = run_program(verbose);
    EXPECT_THAT(told.err, testing::AllOf(HasSubstr("slots of experts begin with "),
                                         testing::ContainsRegex("hits of slots: .*counted in earlier texts")));
}

// Texts say how many experts several tokens need together, also where all experts fit: later runs and `plan` expect so
// much of passes, and the text is the same. Runs without slots leave the counts of slots as they are.
TEST_F(ExpertCountsProgram, DistinctExpertsOfTextsAreExpectedLater) {
    std::string text, later_text, drafted_text;
    const nlohmann::json first = generated({"-n", "300", "--tables", tables_}, text);
    EXPECT_EQ(first["plan"]["experts"]["distinct_from"], "even");
    const nlohmann::json& sizes = first["experts"]["distinct_by_tokens"];
    ASSERT_EQ(sizes.size(), 1U) << sizes;
    EXPECT_EQ(sizes[0]["tokens"], 1.0);
    EXPECT_EQ(sizes[0]["passes"], 299);
    EXPECT_EQ(sizes[0]["distinct"], 4.0);
    ASSERT_EQ(files("-experts.table").size(), 1U);
    const auto planned = [&](const std::vector<std::string>& more) {
        std::vector<std::string> asked{"plan",
                                       "-m",
                                       path_,
                                       "-t",
                                       "1",
                                       "--ctx",
                                       "512",
                                       "--draft",
                                       "none",
                                       "--json",
                                       "--rates",
                                       (folder_.path() / "rates").string(),
                                       "--expect-tokens",
                                       "16",
                                       "--no-config"};
        asked.insert(asked.end(), more.begin(), more.end());
        const ProgramResult result = run_program(asked);
        EXPECT_EQ(result.code, 0) << result.err;
        return nlohmann::json::parse(result.out)["plan"];
    };
    const std::string budget = std::to_string(all_ - (std::int64_t{24} << 20));
    for (const std::string rule : {"copy", "cpu"}) {
        const std::vector<std::string> where{"--devices", "cpu", "--device-memory", budget, "--experts", rule};
        std::vector<std::string> with = where;
        with.insert(with.end(), {"--tables", tables_});
        std::vector<std::string> without = where;
        without.insert(without.end(), {"--tables", "off"});
        const nlohmann::json by_counts = planned(with)["experts"];
        const nlohmann::json even = planned(without)["experts"];
        EXPECT_EQ(by_counts["distinct_from"], "counts");
        EXPECT_EQ(even["distinct_from"], "even");
        EXPECT_NE(by_counts["hits_from"], "counts");
        EXPECT_EQ(by_counts["slots"], even["slots"]);
        // The routers of this model prefer some experts. What slots miss follows from hits, not from these counts,
        // unless a pass is expected to need fewer experts than that.
        if (rule == "copy")
            EXPECT_LE(by_counts["copied_bytes"], even["copied_bytes"]);
        else
            EXPECT_LT(by_counts["cpu_bytes"], even["cpu_bytes"]);
    }
    const nlohmann::json later = generated({"-n", "300", "--tables", tables_, "--draft", "auto"}, later_text);
    EXPECT_EQ(later_text, text);
    EXPECT_EQ(later["plan"]["experts"]["distinct_from"], "counts");
    EXPECT_TRUE(later["plan"]["experts"]["hits_from"].is_null()) << "all experts fit";
    const nlohmann::json drafted = generated(
        {"-n", "60", "--tables", "off", "--draft", "context", "--budget", "8", "--tree", "chain"}, drafted_text);
    std::int64_t passes = 0;
    double needed = 0.0;
    double of_layers = 0.0;
    for (const nlohmann::json& size : drafted["experts"]["distinct_by_tokens"]) {
        passes += size["passes"].get<std::int64_t>();
        needed += size["passes"].get<double>() * size["distinct"].get<double>();
    }
    for (const nlohmann::json& layer : drafted["experts"]["layers"]) of_layers += layer["needed"].get<double>();
    EXPECT_EQ(passes + 1, drafted["passes"]) << "the prompt's is left out";
    EXPECT_NEAR(3.0 * needed, of_layers, 1e-6 * of_layers);
}

// Nothing is read or written without a folder, and too little is not expected.
TEST_F(ExpertCountsProgram, ReadAndWriteNothingWithoutAFolder) {
    std::string text;
    static_cast<void>(generated(in_slots({"-n", "20", "--tables", "off"}), text));
    EXPECT_FALSE(std::filesystem::exists(tables_));
    const nlohmann::json short_text = generated(kept({"-n", "20"}), text);
    ASSERT_EQ(files("-experts.table").size(), 1U);
    const nlohmann::json next = generated(kept({"-n", "20"}), text);
    EXPECT_EQ(next["plan"]["experts"]["hits_from"], "prior") << "of 38 tokens";
    EXPECT_EQ(next["plan"]["experts"]["distinct_from"], "even");
    EXPECT_GT(hits(next), hits(short_text));
    const auto before = std::filesystem::last_write_time(files("-experts.table").front());
    static_cast<void>(generated(in_slots({"-n", "20", "--tables", "off"}), text));
    EXPECT_EQ(std::filesystem::last_write_time(files("-experts.table").front()), before);
}

TEST_F(ExpertCountsProgram, ADamagedFileIsToldInOneLineAndTheTextIsTheSame) {
    std::string text, again;
    static_cast<void>(generated(kept({"-n", "30"}), text));
    ASSERT_EQ(files("-experts.table").size(), 1U);
    const std::filesystem::path file = files("-experts.table").front();
    const std::string good = file_text(file.string());
    for (std::size_t i = 0; i < 8; ++i) {
        std::string bad = good;
        bad[i * (bad.size() - 1) / 7] ^= 0x20;
        if (i == 7) bad.resize(bad.size() / 2);
        std::ofstream(file, std::ios::binary | std::ios::trunc) << bad;
        const ProgramResult result = run_program(arguments(kept({"-n", "30", "--no-config"})));
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_EQ(result.out, text);
        std::size_t n = 0;
        for (std::size_t at = 0; (at = result.err.find("starting afresh", at)) != std::string::npos; ++at) ++n;
        EXPECT_EQ(n, 1U) << i << ": " << result.err;
        EXPECT_EQ(files(".table.damaged").size(), 1U);
        EXPECT_EQ(files("-experts.table").size(), 1U) << "a new one";
    }
}

// Ended by a signal, a text has counted what it chose.
TEST_F(ExpertCountsProgram, AreKeptAtASignal) {
    for (const int signal : {SIGINT, SIGTERM}) {
        ProgramRun run;
        run.arguments = arguments(kept({"-n", "400", "--no-config", "--link-gib-s", "0.02"}));
        RunningProgram program(run);
        program.wait_for_output(20);
        program.send(signal);
        EXPECT_EQ(program.finish().code, signal == SIGINT ? 130 : 143);
        ASSERT_EQ(files("-experts.table").size(), 1U);
        std::filesystem::remove(files("-experts.table").front());
    }
}

// Of experts that do not fit, those that were chosen are copied; the text is that of the resident model.
TEST(RandomModelProgram, AMixtureCopiesTheExpertsThatItsTokensChose) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model.gguf").string();
    write_random_mixture(path);
    const auto generated = [&](const std::vector<std::string>& more, std::string& text) {
        std::vector<std::string> arguments{
            "generate", "-m",       path,  "--no-template", "-p", "The wolf",      "-n", "40", "--ctx", "512", "-t",
            "1",        "--tables", "off", "--seed",        "3",  "--temperature", "1"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_with_statistics(arguments, text);
    };
    std::string resident;
    const nlohmann::json whole = generated({"--draft", "none"}, resident);
    const auto all = whole["peak"]["device_bytes"][0].get<std::int64_t>();
    EXPECT_EQ(whole["plan"]["experts"]["regime"], "experts fit");
    EXPECT_EQ(whole["plan"]["experts"]["reason"], "all experts fit");
    for (const nlohmann::json& layer : whole["experts"]["layers"]) {
        EXPECT_EQ(layer["needed"], 39 * 4);  // of 39 passes, the prompt's left out
        EXPECT_EQ(layer["hits"], layer["needed"]);
    }
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{"--devices", "cpu", "--draft", "none"},
                                               {"--devices", "cpu", "--draft", "context", "--self-check"},
                                               {"--devices", "cpu,cpu", "--draft", "none"}}) {
        std::vector<std::string> arguments = more;
        const bool two = more[1] == "cpu,cpu";
        arguments.insert(arguments.end(),
                         {"--experts", "copy", "--device-memory",
                          std::to_string(two ? all / 2 + (std::int64_t{16} << 20) : all - (std::int64_t{12} << 20))});
        std::string text;
        const nlohmann::json stats = generated(arguments, text);
        EXPECT_EQ(text, resident);
        EXPECT_EQ(stats["regime"], "weights stream");
        const nlohmann::json& layers = stats["experts"]["layers"];
        ASSERT_EQ(layers.size(), 3U);
        std::int64_t copied = 0;
        for (const nlohmann::json& layer : layers) {
            EXPECT_GT(layer["needed"], 0);
            EXPECT_LE(layer["hits"], layer["needed"]);
            copied += layer["copied_bytes"].get<std::int64_t>();
        }
        EXPECT_GT(copied, 0);
        const auto streamed = stats["streamed"]["weights_bytes"].get<std::int64_t>();
        if (more.back() == "--self-check") {
            EXPECT_EQ(stats["exact"], true);
            EXPECT_LT(copied, streamed);  // the self-check copies for itself
        } else {
            EXPECT_EQ(copied, streamed);
            EXPECT_LT(copied, 39 * stats["peak"]["pinned_bytes"].get<std::int64_t>() / 2);
        }
    }
}

// Blocks of a layer take ten seconds over such a link, and the ring holds several.
TEST(RandomModelProgram, AnInterruptIsHeardWhileItStreamsOverTheSlowestLink) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model.gguf").string();
    const std::string log = (folder.path() / "log").string();
    RandomModelOptions options = small_options(Quantisation::Q8_0);
    set_n_layers(options.config, 4);
    write_random_model(path, options);
    for (const auto& [devices, memory] : {std::pair{"cpu", "48M"}, std::pair{"cpu,cpu", "40M"}}) {
        ProgramRun run;
        run.arguments = {"generate",
                         "-m",
                         path,
                         "--prompt",
                         "x",
                         "-n",
                         "9",
                         "--ctx",
                         "256",
                         "--no-config",
                         "--tables",
                         "off",
                         "--draft",
                         "none",
                         "--devices",
                         devices,
                         "--device-memory",
                         memory,
                         "--link-gib-s",
                         "0.001",
                         "--log-file",
                         log + devices};
        RunningProgram program(run);
        while (program.is_running() && file_text(log + devices).find("each pass") == std::string::npos)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::this_thread::sleep_for(std::chrono::seconds(2));
        program.send(SIGINT);
        const auto told = std::chrono::steady_clock::now();
        const ProgramResult result = program.finish();
        EXPECT_LT(std::chrono::steady_clock::now() - told, std::chrono::milliseconds(1500)) << devices;
        EXPECT_EQ(result.code, 130) << result.err;
        EXPECT_THAT(result.err, HasSubstr("each pass"));
    }
}

}  // namespace
}  // namespace slipstream::tools
