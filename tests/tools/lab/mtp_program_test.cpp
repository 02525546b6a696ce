// `--draft mtp` in the program, on small files of random weights that have an MTP head: every text is that of
// `--draft none`, in `generate`, in a chat that goes back, and of a server. The head proposes in each of them.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/formats/head_files.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_files.h"
#include "tests/tools/run_program.h"
#include "tests/tools/serve/raw_client.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lab/random_model/random_model_file.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Parameter: a shape. Heads of GLM-4.5 have experts, and an embedding and an LM head of their own.
class MtpProgram : public testing::TestWithParam<const char*> {
protected:
    MtpProgram() {
        RandomModelOptions options{.config = *find_shape(GetParam(), 4), .quantisation = Quantisation::Q4_0};
        options.config.vocab = 512;
        options.config.d_model = 64;
        options.config.context_tokens = 1024;
        for (LayerConfig& layer : options.config.layers) {
            layer.feed_forward.d_ff = 96;
            ExpertsConfig& experts = layer.feed_forward.experts;
            if (!experts.empty()) {
                experts.n_experts = 6;
                experts.n_chosen = 2;
                experts.d_ff = 96;
            }
            if (!layer.has_attention() || is_qwen()) continue;
            layer.attention().n_q_heads = 4;
            layer.attention().n_kv_heads = 2;
        }
        options.has_head = true;
        write_random_model(model_, options);
        EXPECT_EQ(std::filesystem::file_size(model_), random_model_bytes(options));
    }
    [[nodiscard]] static bool is_qwen() { return std::string_view(GetParam()).starts_with("qwen"); }
    [[nodiscard]] std::string at(const char* name) const { return (folder_.path() / name).string(); }
    [[nodiscard]] ProgramResult run(const char* command, std::vector<std::string> more,
                                    const std::string& input = "") const {
        ProgramRun run;
        run.arguments = {command, "-m", model_, "--no-config", "--threads", "1", "--tables", "off"};
        run.arguments.insert(run.arguments.end(), more.begin(), more.end());
        run.input = input;
        return run_program(run);
    }
    /// The messages of a saved chat.
    [[nodiscard]] static std::vector<std::string> messages_in(const std::string& path) {
        std::ifstream file(path);
        std::vector<std::string> messages;
        const json session = json::parse(file);
        for (const json& message : session.at("messages")) messages.push_back(message.at("content"));
        return messages;
    }
    /// What the head was asked for and proposed, by a statistics file.
    [[nodiscard]] static std::int64_t offered_in(const std::string& path) {
        std::ifstream file(path);
        return json::parse(file).at("sources").at("mtp").at("offered");
    }

    TemporaryFolder folder_;
    std::string model_ = at("model.gguf");
};

// A budget of nodes: the head is asked in each pass, whether it pays or not.
const std::vector<std::string> kMtp{"--draft", "mtp", "--budget", "6"};

TEST_P(MtpProgram, ARandomModelHasAHeadThatIsRead) {
    const auto files = ModelFiles::open(model_);
    EXPECT_EQ(files->config().n_layers(), 4);
    ASSERT_TRUE(has_head(*files));
    const auto head = open_head(*files);
    EXPECT_EQ(head->head_tensors().projection.cols(), 128);
    EXPECT_EQ(head->weights().layers.size(), 1U);
    EXPECT_EQ(head->has_own_lm_head(), !is_qwen());
    EXPECT_EQ(head->weights().layers[0].experts.size(), is_qwen() ? 0U : 6U);
    EXPECT_EQ(describe_ignored_tensors(*files), "");
}

TEST_P(MtpProgram, GeneratedTextsAreThoseOfPlainDecoding) {
    for (const char* temperature : {"0", "0.8"}) {
        const std::vector<std::string> common{
            "--prompt", "Once upon a time", "--max-tokens", "40", "--temperature", temperature, "--seed", "7", "-q"};
        std::vector<std::string> plain = common;
        plain.insert(plain.end(), {"--draft", "none"});
        const ProgramResult expected = run("generate", plain);
        ASSERT_EQ(expected.code, 0) << expected.err;
        for (const std::vector<std::string>& more :
             std::vector<std::vector<std::string>>{{"--draft", "mtp", "--budget", "6"},
                                                   {"--draft", "mtp,lookup", "--budget", "6"},
                                                   {"--draft", "mtp", "--budget", "6", "--devices", "cpu,cpu"},
                                                   {"--draft", "mtp", "--budget", "6", "--device-memory", "160M"}}) {
            std::vector<std::string> drafted = common;
            drafted.insert(drafted.end(), more.begin(), more.end());
            drafted.insert(drafted.end(), {"--stats", at("stats.json")});
            const ProgramResult found = run("generate", drafted);
            EXPECT_EQ(found.code, 0) << found.err;
            EXPECT_EQ(found.out, expected.out);
            EXPECT_GT(offered_in(at("stats.json")), 0);
        }
    }
}

// The host's memory for hidden states, and the head's on the device.
TEST_P(MtpProgram, APlanTellsTheMemoryOfTheHead) {
    const auto planned = [&](const char* draft) {
        const ProgramResult result =
            run("plan", {"--draft", draft, "--budget", "6", "--device-memory", "160M", "--ctx", "512", "--json"});
        EXPECT_EQ(result.code, 0) << result.err;
        return json::parse(result.out);
    };
    const json plain = planned("none");
    const json drafted = planned("mtp");
    EXPECT_EQ(plain["host"]["hidden_tail_bytes"], 0);
    EXPECT_GT(drafted["host"]["hidden_tail_bytes"], 2 * 512 * 64 * 4);
    EXPECT_EQ(plain["device_memory"][0]["draft"], 0);
    EXPECT_GT(drafted["device_memory"][0]["draft"], 0);
    const ProgramResult text = run("plan", {"--draft", "mtp", "--device-memory", "160M", "--ctx", "512"});
    EXPECT_THAT(text.out, HasSubstr("of it for hidden states that the MTP head reads"));
    // A CPU device without a limit, of which nothing else of drafting is planned.
    const auto unlimited = [&](const char* draft) {
        const ProgramResult result = run("plan", {"--draft", draft, "--budget", "6", "--ctx", "512", "--json"});
        EXPECT_EQ(result.code, 0) << result.err;
        return json::parse(result.out)["host"]["hidden_tail_bytes"].get<std::int64_t>();
    };
    EXPECT_EQ(unlimited("none"), 0);
    EXPECT_EQ(unlimited("mtp"), drafted["host"]["hidden_tail_bytes"]);
}

TEST_P(MtpProgram, AChatThatGoesBackHasTheAnswersOfPlainDecoding) {
    const std::string input =
        "Once upon a time\nThe fox said\n/undo\nThe wolf said\n/regen\nThen they went\n/undo\n/undo\nAnd so\n/regen\n";
    for (const char* temperature : {"0", "0.8"}) {
        const std::vector<std::string> common{
            "--max-tokens", "20", "--temperature", temperature, "--seed", "3", "--template", "chatml", "-q"};
        std::vector<std::string> plain = common;
        plain.insert(plain.end(), {"--draft", "none", "--session", at("plain.json")});
        std::vector<std::string> drafted = common;
        drafted.insert(drafted.end(), kMtp.begin(), kMtp.end());
        drafted.insert(drafted.end(), {"--session", at("drafted.json"), "--stats", at("stats.json")});
        for (const char* name : {"plain.json", "drafted.json"}) std::filesystem::remove(at(name));
        const ProgramResult expected = run("chat", plain, input);
        ASSERT_EQ(expected.code, 0) << expected.err;
        const ProgramResult found = run("chat", drafted, input);
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_EQ(found.out, expected.out);
        EXPECT_EQ(messages_in(at("drafted.json")), messages_in(at("plain.json")));
        EXPECT_EQ(messages_in(at("plain.json")).size(), 4U) << expected.err;
        EXPECT_GT(offered_in(at("stats.json")), 0);
    }
}

/// The server of a model, until it is destroyed.
class MtpServer {
public:
    MtpServer(const std::string& model, const std::string& log, const std::vector<std::string>& more)
        : program_(run_of(model, log, more)) {
        constexpr std::string_view kPlace = "listening at http://127.0.0.1:";
        for (int i = 0; i < 6000 && port_ == 0 && program_.is_running(); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            std::ifstream file(log);
            const std::string text{std::istreambuf_iterator<char>(file), {}};
            const std::size_t found = text.find(kPlace);
            if (found != std::string::npos)
                port_ = static_cast<std::uint16_t>(std::stoi(text.substr(found + kPlace.size())));
        }
        if (port_ == 0) throw std::runtime_error("it does not listen: " + program_.finish().err);
    }
    [[nodiscard]] json answer(const char* path, const json& body) const {
        RawClient client(port_);
        client.send(post_request(path, body.dump()));
        return json::parse(read_answer(client).body);
    }
    [[nodiscard]] std::string text(const json& body) const {
        return answer("/v1/completions", body).at("choices").at(0).at("text");
    }
    [[nodiscard]] std::string metrics() const {
        RawClient client(port_);
        client.send(get_request("/metrics"));
        return read_answer(client).body;
    }

private:
    static ProgramRun run_of(const std::string& model, const std::string& log, const std::vector<std::string>& more) {
        std::ofstream{log};
        ProgramRun run;
        run.arguments = {"serve",  "-m", model,        "--no-config", "--threads", "1",
                         "--port", "0",  "--log-file", log,           "--tables",  "off"};
        run.arguments.insert(run.arguments.end(), more.begin(), more.end());
        return run;
    }

    RunningProgram program_;
    std::uint16_t port_ = 0;
};

TEST_P(MtpProgram, AServerGivesTheTextsOfPlainDecoding) {
    std::vector<std::string> with_head = kMtp;
    with_head.insert(with_head.end(), {"--template", "chatml"});
    const MtpServer drafted(model_, at("drafted.log"), with_head);
    const MtpServer plain(model_, at("plain.log"), {"--draft", "none", "--template", "chatml"});
    // Prompts that go on where others were, begin anew, and come again.
    const std::vector<std::string> prompts{"Once upon a time", "Once upon a time there was a wolf", "The fox said",
                                           "Once upon a time"};
    for (std::size_t i = 0; i < 2 * prompts.size(); ++i) {
        const json body{{"prompt", prompts[i % prompts.size()]},
                        {"max_tokens", 24},
                        {"temperature", i < prompts.size() ? 0.0 : 0.8},
                        {"seed", i}};
        EXPECT_EQ(drafted.text(body), plain.text(body)) << i;
    }
    // Two turns, and the first one again after another chat: the second begins with KV that is kept.
    const auto turn = [&](json messages, double temperature) {
        messages.push_back({{"role", "user"}, {"content", messages.empty() ? "Once upon a time" : "And then?"}});
        const json body{{"messages", messages}, {"max_tokens", 24}, {"temperature", temperature}, {"seed", 11}};
        const json found = drafted.answer("/v1/chat/completions", body);
        const json expected = plain.answer("/v1/chat/completions", body);
        const std::string text = found.at("choices").at(0).at("message").at("content");
        EXPECT_EQ(text, expected.at("choices").at(0).at("message").at("content"));
        const auto n_kept = [](const json& answer) -> std::int64_t {
            return answer.at("usage").at("prompt_tokens_details").at("cached_tokens");
        };
        EXPECT_EQ(n_kept(found), n_kept(expected));
        if (messages.size() > 1) {
            EXPECT_GT(n_kept(found), 0);
        }
        messages.push_back({{"role", "assistant"}, {"content", text}});
        return messages;
    };
    for (const double temperature : {0.0, 0.8}) {
        const json first = turn(json::array(), temperature);
        static_cast<void>(turn(first, temperature));
        static_cast<void>(drafted.text({{"prompt", "The fox said"}, {"max_tokens", 3}}));
        static_cast<void>(plain.text({{"prompt", "The fox said"}, {"max_tokens", 3}}));
        static_cast<void>(turn(first, temperature));
    }
    EXPECT_THAT(drafted.metrics(), testing::ContainsRegex("\nslipstream:draft_tokens_total [1-9]"));
    EXPECT_THAT(plain.metrics(), testing::ContainsRegex("\nslipstream:draft_tokens_total 0"));
}

INSTANTIATE_TEST_SUITE_P(Shapes, MtpProgram, testing::Values("qwen3.5-0.8b", "glm-4.5-air"), [](const auto& test) {
    return std::string_view(test.param).starts_with("qwen") ? "Qwen" : "Glm";
});

}  // namespace
}  // namespace slipstream::tools
