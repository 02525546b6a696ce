// Models with delta nets in plans, random files, and what `inspect` says of them.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_files.h"
#include "tests/tools/run_program.h"
#include "tests/tools/serve_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/cli/layer_pattern.h"
#include "tools/lab/random_model/random_model_file.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

double parameters(std::string_view shape) {
    const ModelConfig config = find_shape(shape).value();
    return static_cast<double>(file_bytes(shape_weights(config, Quantisation::BF16), config)) / 2.0;
}

TEST(HybridShapes, HaveTheSizesOfThePublishedModels) {
    const ModelConfig dense = find_shape("qwen3.8-27b").value();
    EXPECT_EQ(layer_pattern(dense), "16 x [3: delta net, 16/48 heads of 128; 1: full, 24/4 heads of 256]");
    EXPECT_EQ(dense.ropes[0].n_rotated, 64);
    EXPECT_TRUE(dense.attention(3).gate_in_queries);
    std::int64_t state_bytes = 0;
    for (const LayerConfig& layer : dense.layers)
        if (!layer.has_attention())
            state_bytes += 4 * (layer.delta_net().shape.state_floats() + layer.delta_net().shape.tap_floats());
    EXPECT_EQ(state_bytes, 48 * (3145728 + 122880));
    // Without vision and the layers that propose tokens.
    EXPECT_NEAR(parameters("qwen3.5-0.8b"), 0.75e9, 0.01e9);
    EXPECT_NEAR(parameters("qwen3.5-9b"), 8.95e9, 0.05e9);
    EXPECT_NEAR(parameters("qwen3.8-27b"), 26.9e9, 0.1e9);
    EXPECT_NEAR(parameters("qwen3.6-35b-a3b"), 34.7e9, 0.2e9);
    EXPECT_NEAR(parameters("qwen3-coder-next"), 79.7e9, 0.3e9);
}

TEST(HybridShapes, APlanNamesTheStateAndTheMemoryOfCheckpoints) {
    const std::vector<std::string> asked{"plan",  "--shape", "qwen3.5-0.8b", "--quant", "Q4_K_M",
                                         "--ctx", "4096",    "--devices",    "cpu"};
    const ProgramResult resident = run_program(asked);
    EXPECT_EQ(resident.code, 0) << resident.err;
    EXPECT_THAT(resident.out, HasSubstr("MiB for any number of tokens"));
    EXPECT_THAT(resident.out, HasSubstr("of it for checkpoints of recurrent layers"));
    std::vector<std::string> streamed = asked;
    streamed.insert(streamed.end(), {"--device-memory", "400M", "--json"});
    const ProgramResult found = run_program(streamed);
    ASSERT_EQ(found.code, 0) << found.err;
    const auto json = nlohmann::json::parse(found.out);
    EXPECT_GT(json["host"]["checkpoint_bytes"], 0);
    EXPECT_GT(json["plan"]["streamed_weights_bytes"], 0);
    // Memory for earlier texts, too little for states and enough.
    for (const auto& [size, is_enough] : {std::pair{"4M", false}, {"1G", true}}) {
        std::vector<std::string> keeping = asked;
        keeping.insert(keeping.end(), {"--kept-memory", size});
        const std::string text = run_program(keeping).out;
        EXPECT_THAT(text, HasSubstr("of it for earlier texts (--kept-memory)"));
        EXPECT_EQ(text.find("too little for any, whose states of recurrent layers take") == std::string::npos,
                  is_enough);
    }
    const ProgramResult on_gpu =
        run_program({"plan", "--shape", "qwen3.8-27b", "--quant", "Q4_K_M", "--ctx", "4096", "--profile", "1x4090"});
    EXPECT_EQ(on_gpu.code, 0) << on_gpu.err;
    EXPECT_THAT(on_gpu.out, HasSubstr("MiB for any number of tokens"));
    EXPECT_THAT(on_gpu.out, HasSubstr("of it for checkpoints of recurrent layers"));
}

// llama.cpp counts value matrices, not layers, where it gives some of them more bits.
TEST(HybridShapes, MixturesOfTypesAreThoseOfTheConverter) {
    const ModelConfig config = find_shape("qwen3.8-27b").value();
    const ModelWeights weights = shape_weights(config, Quantisation::Q4_K_M);
    EXPECT_EQ(weights.layers[0][TensorRole::DeltaIn].dtype, DType::Q5_K);
    EXPECT_EQ(weights.layers[0][TensorRole::DeltaOut].dtype, DType::Q4_K);
    EXPECT_EQ(weights.layers[0][TensorRole::DeltaConv].dtype, DType::F32);
    EXPECT_EQ(weights.layers[0][TensorRole::V].rank, 0);
    EXPECT_EQ(weights.layers[3][TensorRole::DeltaIn].rank, 0);
    EXPECT_EQ(weights.layers[3][TensorRole::Q].rows(), 2 * 24 * 256);
    // 16 value matrices: the first two, the last two, and every third between.
    std::string more;
    for (std::int64_t layer = 3; layer < 64; layer += 4)
        more += weights.layers[layer][TensorRole::V].dtype == DType::Q6_K ? '1' : '0';
    EXPECT_EQ(more, "1100100100100111");
}

RandomModelOptions small(const char* shape) {
    RandomModelOptions options{.config = *find_shape(shape, 5), .quantisation = Quantisation::Q4_0};
    options.config.vocab = 512;
    options.config.d_model = 64;
    options.config.context_tokens = 256;
    for (LayerConfig& layer : options.config.layers) {
        FeedForwardConfig& feed_forward = layer.feed_forward;
        if (!feed_forward.experts.empty()) feed_forward.experts = {.n_experts = 16, .n_chosen = 4, .d_ff = 32};
        feed_forward.d_ff = 96;
    }
    return options;
}

class HybridRandomModel : public testing::TestWithParam<const char*> {};

TEST_P(HybridRandomModel, IsTheShapeAndIsInspectedAndGenerates) {
    const TemporaryFolder folder;
    const RandomModelOptions options = small(GetParam());
    const std::filesystem::path path = folder.path() / "model.gguf";
    write_random_model(path, options);
    EXPECT_EQ(std::filesystem::file_size(path), random_model_bytes(options));
    const auto files = ModelFiles::open(path);
    const ModelConfig& read = files->config();
    EXPECT_EQ(layer_pattern(read), layer_pattern(options.config));
    for (std::int64_t layer = 0; layer < read.n_layers(); ++layer) {
        EXPECT_EQ(read.layers[layer].mixer, options.config.layers[layer].mixer) << layer;
        EXPECT_EQ(read.layers[layer].feed_forward, options.config.layers[layer].feed_forward) << layer;
    }
    EXPECT_EQ(describe_ignored_tensors(*files), "");
    std::ifstream stream(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(stream), {});
    const GgufFile gguf = GgufFile::parse(std::as_bytes(std::span(bytes)), "model.gguf");
    const bool is_next = gguf.string("general.architecture") == "qwen3next";
    const GgufValue* const sections =
        gguf.find(fmt::format("{}.rope.dimension_sections", gguf.string("general.architecture").value()));
    ASSERT_EQ(sections == nullptr, is_next);
    if (!is_next) {
        EXPECT_EQ(sections->integers(), (std::vector<std::int64_t>{11, 11, 10, 0}));
    }
    const ProgramResult inspected = run_program({"inspect", path.string()});
    ASSERT_EQ(inspected.code, 0) << inspected.err;
    EXPECT_THAT(inspected.out, HasSubstr("delta net"));
    const ProgramResult as_json = run_program({"inspect", "--json", path.string()});
    ASSERT_EQ(as_json.code, 0) << as_json.err;
    const nlohmann::json json = nlohmann::json::parse(as_json.out);
    const DeltaNetShape& shape = options.config.delta_net(0).shape;
    EXPECT_EQ(json["delta_nets"]["layers"], 4);
    EXPECT_EQ(json["delta_nets"]["n_value_heads"], shape.n_value_heads);
    EXPECT_EQ(json["delta_nets"]["state_bytes"], 4 * 4 * (shape.state_floats() + shape.tap_floats()));
    EXPECT_EQ(json["shape"]["n_q_heads"], options.config.first_attention().n_q_heads);
    const ProgramResult generated = run_program({"generate", "-m", path.string(), "--devices", "cpu", "--prompt",
                                                 "once", "--max-tokens", "24", "--temperature", "0", "--self-check"});
    EXPECT_EQ(generated.code, 0) << generated.err;
    // Passes of more tokens than generation drafts.
    const ProgramResult benched = run_program({"bench", "-m", path.string(), "--devices", "cpu", "--device-memory",
                                               "1G", "--passes", "1,100", "--draft", "none", "--repeat", "1"});
    EXPECT_EQ(benched.code, 0) << benched.err;
}

INSTANTIATE_TEST_SUITE_P(Shapes, HybridRandomModel,
                         testing::Values("qwen3.8-27b", "qwen3.6-35b-a3b", "qwen3-coder-next"), [](const auto& shape) {
                             std::string name;
                             for (const char c : std::string(shape.param))
                                 if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
                             return name;
                         });

// Killed after a prompt and within the text, a session goes on after the states that it saved.
TEST(HybridSession, AKilledTextGoesOnAfterItsStates) {
    const TemporaryFolder folder;
    RandomModelOptions options = small("qwen3.8-27b");
    options.config.context_tokens = 2048;
    const std::string model = (folder.path() / "model.gguf").string();
    const std::string session = (folder.path() / "s").string();
    const std::string prompt = (folder.path() / "prompt").string();
    write_random_model(model, options);
    std::ofstream(prompt) << std::string(600, 'a') + std::string(300, 'b');
    const auto generate = [&](const char* n_tokens, const std::vector<std::string>& more = {}) {
        std::vector<std::string> all{"generate", "-m", model, "--devices", "cpu", "--ctx", "2048"};
        all.insert(all.end(), {"--prompt-file", prompt, "--ignore-eos", "--seed", "5", "--tables", "off", "-t", "1"});
        all.insert(all.end(), {"--max-tokens", n_tokens});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    const auto inspect = [&] { return nlohmann::json::parse(run_program({"inspect", "--json", session}).out); };
    const ProgramResult expected = run_program(generate("900"));
    ASSERT_EQ(expected.code, 0) << expected.err;
    for (const auto& [n_bytes, signal] : {std::pair<std::size_t, int>{20, SIGKILL}, {400, SIGINT}}) {
        ProgramRun run;
        run.arguments = generate("700", {"--session", session});
        RunningProgram program(run);
        program.wait_for_output(n_bytes);
        program.send(signal);
        const ProgramResult result = program.finish();
        EXPECT_TRUE(result.code == -1 - signal || result.code == -signal || result.code == 130 || result.code == 0)
            << result.code << result.err;
        EXPECT_THAT(result.err, Not(HasSubstr("tokens alone")));
    }
    const nlohmann::json found = inspect();
    const std::int64_t in_states = found["states_file"]["tokens"];
    EXPECT_GE(in_states, 512);
    EXPECT_EQ(in_states % 512, 0);
    EXPECT_GE(found["kv"]["tokens"], in_states);
    EXPECT_THAT(run_program({"inspect", session}).out, HasSubstr("states of recurrent layers after"));
    const ProgramResult rest = run_program(generate("800", {"--session", session, "--self-check"}));
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_THAT(expected.out, StartsWith(rest.out));
    EXPECT_THAT(rest.err, HasSubstr(fmt::format("KV of {} tokens is read", in_states)));
    // A file of that name which is something else: the note says what it means, and names the remedy.
    const std::string other = (folder.path() / "t").string();
    std::ofstream(other + ".states") << "a list of states";
    const ProgramResult refused = run_program(generate("5", {"--session", other}));
    EXPECT_EQ(refused.code, 0) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("remove or rename that file"));
    EXPECT_THAT(refused.err, HasSubstr("the text is computed again from its beginning"));
    EXPECT_THAT(refused.err, Not(HasSubstr("tokens alone")));
    const ProgramResult limited =
        run_program(generate("5", {"--session", (folder.path() / "u").string(), "--session-limit", "64K"}));
    EXPECT_EQ(limited.code, 0) << limited.err;
    EXPECT_THAT(
        limited.err,
        HasSubstr("KV of 0 tokens at most (--session-limit 64.0 KiB, of which the states of recurrent layers need "));
    // Without states, everything is computed again, and they are saved again.
    std::filesystem::resize_file(session + ".states", 100);
    const ProgramResult again = run_program(generate("900", {"--session", session}));
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.out, expected.out);
    EXPECT_THAT(again.err, HasSubstr("s.states: the states of recurrent layers are damaged or of another session"));
    EXPECT_THAT(again.err, HasSubstr("KV of 0 tokens is read"));
    EXPECT_EQ(inspect()["states_file"]["tokens"], 1536);
    EXPECT_EQ(inspect()["states_file"]["bytes"], std::filesystem::file_size(session + ".states"));
}

// A request for a title between two turns loses nothing of a conversation.
TEST(HybridServe, TitlesBetweenTurnsLeaveTheConversation) {
    const TemporaryFolder folder;
    RandomModelOptions options = small("qwen3.6-35b-a3b");
    options.config.context_tokens = 2048;
    const std::string model = (folder.path() / "model.gguf").string();
    write_random_model(model, options);
    const auto arguments = [&](const char* kept_memory, const char* devices = "cpu") {
        return std::vector<std::string>{"-m",   model, "--devices",     devices,    "--ctx",
                                        "2048", "-v",  "--kept-memory", kept_memory};
    };
    struct Answer {
        std::string text;
        std::int64_t n_prompt = 0;
        std::int64_t n_kept = 0;
    };
    const auto ask = [](const Server& server, const std::string& prompt) {
        const nlohmann::json answer = nlohmann::json::parse(
            server.post("/v1/completions", {{"prompt", prompt}, {"temperature", 0}, {"max_tokens", 8}}).body);
        const nlohmann::json& usage = answer.at("usage");
        return Answer{answer.at("choices").at(0).at("text"), usage.at("prompt_tokens"),
                      usage.at("prompt_tokens_details").at("cached_tokens")};
    };
    const auto words = [](std::string_view name, int n) {
        std::string text(name);
        for (int i = 0; i < n; ++i) text += fmt::format(" {}", i * i % 89);
        return text;
    };
    // Five turns, each followed by a title.
    std::vector<std::string> prompts;
    for (int turn = 0; turn < 5; ++turn) {
        prompts.push_back(turn == 0 ? words("talk", 180) : prompts[prompts.size() - 2] + words(" more", 20));
        prompts.push_back(words(fmt::format("{} title", turn), 100));
    }
    std::vector<std::string> expected;
    {
        const Server plain(arguments("0"));
        for (const std::string& prompt : prompts) expected.push_back(ask(plain, prompt).text);
        EXPECT_EQ(metric(plain, "kept_bytes"), 0);
    }
    for (const char* devices : {"cpu", "cpu,cpu"}) {
        SCOPED_TRACE(devices);
        const Server server(arguments("512M", devices));
        std::int64_t n_before = 0;
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            const Answer answer = ask(server, prompts[i]);
            EXPECT_EQ(answer.text, expected[i]);
            if (i % 2 == 1) continue;
            EXPECT_GE(answer.n_kept, n_before - 20) << i;
            EXPECT_LT(answer.n_kept, answer.n_prompt);
            n_before = answer.n_prompt;
        }
        EXPECT_GT(n_before, 600);
        EXPECT_EQ(metric(server, "kept_hits_total"), 4);
        EXPECT_GE(metric(server, "kept_states"), 3);
        EXPECT_EQ(metric(server, "kept_states_evictions_total"), 0);
        EXPECT_LE(metric(server, "kept_bytes"), 512 << 20);
        EXPECT_THAT(server.log(), HasSubstr("of recurrent layers are kept, of "));
    }
    const Server small_one(arguments("20K"));
    for (const std::size_t i : {0, 1, 0}) EXPECT_EQ(ask(small_one, prompts[i]).n_kept, 0);
    EXPECT_EQ(metric(small_one, "kept_bytes"), 0);
    EXPECT_THAT(small_one.log(), HasSubstr("no text but the last is kept: the states of recurrent layers take "));
    EXPECT_THAT(small_one.log(), HasSubstr("--kept-memory is 20.0 KiB"));
}

// Cut off within a prompt, a chat goes on after the states that it kept.
TEST(HybridSession, AChatGoesOnWithinItsPrompt) {
    const TemporaryFolder folder;
    RandomModelOptions options = small("qwen3.8-27b");
    options.config.context_tokens = 8192;
    options.config.d_model = 256;
    const std::string model = (folder.path() / "model.gguf").string();
    const std::filesystem::path session = folder.path() / "s";
    const std::filesystem::path kv = folder.path() / "s.kv";
    const std::filesystem::path states = folder.path() / "s.kv.states";
    const std::string form = (folder.path() / "template").string();
    write_random_model(model, options);
    std::ofstream(form) << "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }} {% endfor %}"
                           "{% if add_generation_prompt %}assistant: {% endif %}";
    std::string message = "once";
    for (int i = 0; i < 1500; ++i) message += fmt::format(" {}", i * i % 89);
    const std::vector<std::string> command{"chat",  "--no-config", "-m",      model,  "--devices",  "cpu",
                                           "--ctx", "8192",        "--seed",  "3",    "-n",         "5",
                                           "-t",    "1",           "--draft", "none", "--template", form};
    const auto with = [&](const std::vector<std::string>& more, const std::string& input) {
        ProgramRun run;
        run.arguments = command;
        run.arguments.insert(run.arguments.end(), more.begin(), more.end());
        run.input = input;
        return run;
    };
    const ProgramResult expected = run_program(with({}, message + "\n"));
    ASSERT_EQ(expected.code, 0) << expected.err;
    std::int64_t n_kept = 0;
    std::chrono::milliseconds delay{200};
    for (int tries = 0; tries < 20 && n_kept <= 0; ++tries) {
        for (const std::filesystem::path& file : {session, kv, states}) std::filesystem::remove(file);
        RunningProgram program(with({"--session", session.string()}, message + "\n"));
        for (int i = 0; i < 10000 && program.is_running() && !std::filesystem::exists(kv); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        std::this_thread::sleep_for(delay);
        program.send(SIGTERM);
        const ProgramResult first = program.finish();
        std::smatch found;
        const bool is_cut =
            std::regex_search(first.err, found, std::regex("([0-9]+) of [0-9]+ prompt tokens are kept"));
        n_kept = is_cut ? std::stoll(found[1]) : -1;
        delay = n_kept == 0 ? delay * 2 : delay * 2 / 3;
    }
    ASSERT_GT(n_kept, 0);
    EXPECT_EQ(n_kept % 512, 0);
    EXPECT_TRUE(std::filesystem::exists(states));
    EXPECT_EQ(nlohmann::json::parse(
                  run_program({"inspect", "--json", session.string()}).out)["kept_prompt"]["states_file"]["tokens"],
              n_kept);
    const std::string stats = (folder.path() / "stats").string();
    const ProgramResult rest = run_program(with({"--session", session.string(), "--stats", stats}, "/regen\n"));
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(rest.out, expected.out);
    EXPECT_THAT(rest.err, HasSubstr(fmt::format("going on within the prompt: {} of ", n_kept)));
    std::ifstream file(stats);
    EXPECT_EQ(nlohmann::json::parse(file)["prompt"]["resumed_tokens"], n_kept);
    EXPECT_FALSE(std::filesystem::exists(kv));
    EXPECT_FALSE(std::filesystem::exists(states));
}

TEST(HybridRandomModel, TooFewLayersAreRefused) {
    const TemporaryFolder folder;
    ProgramRun run;
    run.shell = fmt::format("exec '" SLIPSTREAM_LAB_PROGRAM
                            "' random-model --shape qwen3.8-27b --type Q4_0 --layers 3 --output {}",
                            (folder.path() / "model.gguf").string());
    const ProgramResult made = run_program(run);
    EXPECT_EQ(made.code, 1);
    EXPECT_THAT(made.err, HasSubstr("no layer has attention"));
}

}  // namespace
}  // namespace slipstream::tools
