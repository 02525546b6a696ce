// /completion, llama-server's own form, as the providers of SillyTavern and Continue use it.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/tools/serve/dialect_server.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class LlamaCompletion : public DialectServer {
protected:
    LlamaCompletion() : DialectServer("/completion") {}
};

TEST_F(LlamaCompletion, AnswersWhole) {
    const json answer = post(R"({"prompt": "Hi", "n_predict": 8, "stop": ["x"], "top_k": 1, "cache_prompt": true})");
    EXPECT_EQ(answer.at("content"), "Hello world");
    EXPECT_EQ(answer.at("stop"), true);
    EXPECT_EQ(answer.at("stop_type"), "eos");
    EXPECT_EQ(answer.at("tokens_predicted"), 2);
    EXPECT_EQ(answer.at("tokens_evaluated"), 2);
    EXPECT_EQ(answer.at("timings").at("predicted_n"), 2);
    EXPECT_EQ(server_.engine.tasks().at(0).text.max_tokens, 8);
    EXPECT_EQ(prompt(), "Hi");
    EXPECT_EQ(post(R"({"prompt": "Hi", "n_predict": 1})").at("stop_type"), "limit");
    server_.engine.set_stop(StopReason::StopString, "x");
    const json stopped = post(R"({"prompt": "Hi", "stop": ["x"]})");
    EXPECT_EQ(stopped.at("stop_type"), "word");
    EXPECT_EQ(stopped.at("stopping_word"), "x");
}

TEST_F(LlamaCompletion, Streams) {
    const std::string body = server_.post(path_, R"({"prompt": "Hi", "stream": true})").body;
    std::vector<json> events;
    for (std::size_t at = 0; at < body.size();) {
        ASSERT_EQ(body.substr(at, 6), "data: ");
        const std::size_t end = body.find("\n\n", at);
        events.push_back(json::parse(body.substr(at + 6, end - at - 6)));
        at = end + 2;
    }
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].at("content"), "Hello");
    EXPECT_EQ(events[0].at("stop"), false);
    EXPECT_EQ(events[2].at("content"), "");
    EXPECT_EQ(events[2].at("stop"), true);
    EXPECT_EQ(events[2].at("timings").at("predicted_n"), 2);
}

TEST_F(LlamaCompletion, TellsProbabilities) {
    const json list = post(R"({"prompt": "Hi", "n_probs": 2})").at("completion_probabilities");
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list.at(0).at("id"), 65);
    EXPECT_EQ(list.at(0).at("token"), "A");
    EXPECT_EQ(list.at(0).at("logprob"), -0.5);
    EXPECT_EQ(list.at(0).at("top_logprobs").at(1).at("id"), 66);
}

// The fields that SillyTavern sends to llama.cpp, all of them off.
TEST_F(LlamaCompletion, TakesFieldsThatAreOff) {
    static_cast<void>(post(R"({"prompt": "Hi", "max_new_tokens": 5, "n_predict": 5, "temperature": 0.7, "top_p": 0.5,
        "typical_p": 1, "typical": 1, "min_p": 0, "repetition_penalty": 1.2, "repeat_penalty": 1.2, "top_k": 40, "top_a": 0,
        "tfs": 1, "tfs_z": 1, "mirostat": 0, "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "min_length": 0,
        "min_tokens": 0, "epsilon_cutoff": 0, "eta_cutoff": 0, "no_repeat_ngram_size": 0, "penalty_alpha": 0,
        "guidance_scale": 1, "negative_prompt": "", "grammar": "", "json_schema": {}, "xtc_probability": 0,
        "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "dynatemp_range": 0, "smoothing_factor": 0,
        "top_n_sigma": -1, "samplers": ["top_k", "temperature"], "n_probs": 0, "logit_bias": [[65, false]],
        "t_max_predict_ms": -1, "image_data": [], "ignore_eos": false, "seed": -1, "stop": ["\nUser:"]})"));
}

TEST_F(LlamaCompletion, RefusesByNameWhatItDoesNotServe) {
    const auto refusal = [&](const std::string& fields) {
        return refused(R"({"prompt": "Hi", )" + fields + "}").at("error").at("param").get<std::string>();
    };
    EXPECT_EQ(refusal(R"("grammar": "root ::= x")"), "grammar");
    EXPECT_EQ(refusal(R"("json_schema": {"type": "object"})"), "json_schema");
    EXPECT_EQ(refusal(R"("image_data": [{"data": "x"}])"), "image_data");
    EXPECT_EQ(refusal(R"("top_n_sigma": 1.5)"), "top_n_sigma");
    EXPECT_EQ(refusal(R"("t_max_predict_ms": 100)"), "t_max_predict_ms");
    EXPECT_EQ(refusal(R"("n_probs": 21)"), "n_probs");
    EXPECT_EQ(refusal(R"("n_probs": 2, "post_sampling_probs": true)"), "post_sampling_probs");
    EXPECT_EQ(refusal(R"("n_predict": -3)"), "n_predict");
    EXPECT_EQ(refused("{}").at("error").at("param"), "prompt");
}

}  // namespace
}  // namespace slipstream::tools
