// slipstream serve from end to end on the bundled model: every answer is the text of `generate`, whatever runs before
// or beside it, and the program behaves as a server should.
#include <signal.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/serve_program.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

/// What a stream's events say together.
std::string streamed_text(const std::string& body, const std::string& pointer) {
    std::string text;
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("data: {")) continue;
        const json event = json::parse(line.substr(6));
        const json::json_pointer at(pointer);
        if (event.contains(at)) text += event.at(at).get<std::string>();
    }
    return text;
}

struct Case {
    std::string prompt;
    int seed = 0;
    double temperature = 0.0;
    int max_tokens = 0;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    const std::array<std::string, 4> prompts{"The wolf said", "The wolf said that the fox", "Once upon a time",
                                             "Once upon a time there was a king. " + std::string(600, 'a')};
    for (std::size_t i = 0; i < 12; ++i)
        all.push_back({prompts[i % prompts.size()], static_cast<int>(i * 7),
                       i % 3 == 0 ? 0.0 : 0.5 * static_cast<double>(i % 3), 20 + static_cast<int>(i)});
    return all;
}

std::string generated(const Case& one) {
    const ProgramResult result = run_program({"generate", "--prompt", one.prompt, "--seed", fmt::format("{}", one.seed),
                                              "--temperature", fmt::format("{}", one.temperature), "--max-tokens",
                                              fmt::format("{}", one.max_tokens), "--tables", "off", "-q"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

json body_of(const Case& one) {
    return {
        {"prompt", one.prompt}, {"seed", one.seed}, {"temperature", one.temperature}, {"max_tokens", one.max_tokens}};
}

TEST(ProgramServe, AnswersAreThoseOfGenerate) {
    std::vector<std::string> expected;
    for (const Case& one : cases()) expected.push_back(generated(one));
    const Server server;
    std::vector<std::thread> clients;
    for (std::size_t client = 0; client < 3; ++client)
        clients.emplace_back([&, client] {
            const std::vector<Case> all = cases();
            for (std::size_t i = 0; i < all.size(); ++i) {
                const std::size_t which = (i * 5 + client * 4) % all.size();
                json body = body_of(all[which]);
                if ((i + client) % 2 == 0) {
                    const RawAnswer answer = server.post("/v1/completions", body);
                    EXPECT_EQ(json::parse(answer.body).at("choices").at(0).at("text"), expected[which]);
                } else {
                    body["stream"] = true;
                    const RawAnswer answer = server.post("/v1/completions", body);
                    EXPECT_EQ(streamed_text(answer.body, "/choices/0/text"), expected[which]);
                    EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
                }
            }
        });
    for (std::thread& client : clients) client.join();
}

// Texts that are kept between requests.

std::string tale(std::string_view name, int n_sentences) {
    std::string text = fmt::format("Once upon a time there was {}.", name);
    for (int i = 0; i < n_sentences; ++i)
        text += fmt::format(" On day {} {} went into the forest and met {} wolves.", i, name, i * i % 7);
    return text;
}

/// Asks for a text; it must be that of `generate`. Returns the tokens of its prompt, and those that were kept.
std::pair<std::int64_t, std::int64_t> ask(const Server& server, const Case& one, std::string_view expected) {
    const json answer = json::parse(server.post("/v1/completions", body_of(one)).body);
    EXPECT_EQ(answer.at("choices").at(0).at("text"), expected) << one.prompt.substr(0, 40);
    const json& usage = answer.at("usage");
    return {usage.at("prompt_tokens"), usage.at("prompt_tokens_details").at("cached_tokens")};
}

TEST(ProgramServe, TwoConversationsInTurnAreBothKept) {
    for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
             {"--kept-memory", "256M"},
             {"--kept-memory", "256M", "--device-memory", "20M"},  // weights and KV stream
             {"--kept-memory", "256M", "--devices", "cpu,cpu", "--split", "tensor"}}) {
        const Server server(options);
        std::array<Case, 2> talks{Case{tale("a miller", 30), 3, 0.8, 12}, Case{tale("a king", 40), 4, 0.8, 12}};
        for (int turn = 0; turn < 3; ++turn)
            for (Case& talk : talks) {
                std::vector<std::string> arguments{
                    "generate",      "--prompt", talk.prompt,    "--seed", fmt::format("{}", talk.seed),
                    "--temperature", "0.8",      "--max-tokens", "12",     "--tables",
                    "off",           "-q"};
                arguments.insert(arguments.end(), options.begin() + 2, options.end());
                const ProgramResult expected = run_program(arguments);
                ASSERT_EQ(expected.code, 0) << expected.err;
                const auto [n_prompt, n_kept] = ask(server, talk, expected.out);
                // The prompt before, without what its end and the new text share in tokens.
                if (turn > 0) {
                    EXPECT_GT(n_kept, n_prompt - 40) << turn;
                }
                EXPECT_LT(n_kept, n_prompt);
                talk.prompt += expected.out + " Then the miller said";
            }
        EXPECT_GE(metric(server, "kept_hits_total"), 4);
        EXPECT_GT(metric(server, "kept_restored_tokens_total"), 1000);
        EXPECT_GT(metric(server, "kept_bytes"), 0);
    }
}

TEST(ProgramServe, WhatIsKeptIsBounded) {
    const std::vector<std::string> names{"a miller", "a king", "a fox", "a queen"};
    std::vector<Case> talks;
    std::vector<std::string> expected;
    for (const std::string& name : names) {
        talks.push_back({tale(name, 30), 3, 0.0, 4});
        expected.push_back(generated(talks.back()));
    }
    constexpr std::int64_t kMiB = 1 << 20;
    for (const std::int64_t limit : {std::int64_t{0}, 2 * kMiB, 512 * kMiB}) {
        const Server server({}, {{"SLIPSTREAM_KEPT_MEMORY", fmt::format("{}", limit)}});
        std::int64_t n_kept_in_all = 0;
        for (int round = 0; round < 2; ++round)
            for (std::size_t i = 0; i < talks.size(); ++i) {
                n_kept_in_all += ask(server, talks[i], expected[i]).second;
                EXPECT_LE(metric(server, "kept_bytes"), limit);
            }
        EXPECT_EQ(metric(server, "kept_limit_bytes"), limit);
        EXPECT_EQ(metric(server, "kept_evictions_total") > 0, limit == 2 * kMiB);
        if (limit == 0) {
            EXPECT_LT(n_kept_in_all, 100);
        }
        if (limit == 512 * kMiB) {
            EXPECT_GT(n_kept_in_all, 1500);
        }
    }
}

// A client that gave up waits for less when it asks again, also if another one was served meanwhile.
TEST(ProgramServe, APromptThatWasGivenUpGoesOn) {
    const Case talk{tale("a miller", 250), 3, 0.0, 4};
    const std::string expected = generated(talk);
    const Server server({"--kept-memory", "256M"});
    std::int64_t n_done = 0;
    {
        RawClient client = server.connect();
        json body = body_of(talk);
        body["stream"] = true;
        body["return_progress"] = true;
        client.send(post_request("/v1/completions", body.dump()));
        while (n_done < 1024) {
            client.read_until("\"processed\":");
            n_done = std::stoll(client.read_until(","));
        }
    }
    ASSERT_TRUE(becomes([&] { return server.is_idle(); }));
    const Case other{"The wolf said", 7, 0.8, 20};
    static_cast<void>(ask(server, other, generated(other)));
    const auto [n_prompt, n_kept] = ask(server, talk, expected);
    EXPECT_GE(n_kept, n_done / 512 * 512);
    EXPECT_LT(n_kept, n_prompt);
}

TEST(ProgramServe, TheMemoryForTextsIsAnOption) {
    EXPECT_EQ(run_program({"serve", "--port", "0", "--kept-memory", "much"}).code, 2);
    const Server server({"--cache-ram", "16", "-v"});  // llama.cpp counts in MiB
    ASSERT_TRUE(becomes([&] { return server.log().find("is served") != std::string::npos; }));
    EXPECT_EQ(metric(server, "kept_limit_bytes"), 16 << 20);
    EXPECT_THAT(server.log(), HasSubstr("memory of the host: KV of earlier texts at most 16.0 MiB, about"));
    EXPECT_THAT(server.get("/props"), HasSubstr(R"("kept_memory_bytes":16777216)"));
}

// Passes, trees and link use of every text are told while it runs; the text is that without a listener.
TEST(ProgramServe, ListenersSeeTheEngineAndChangeNoText) {
    const Case one{"The wolf said that the fox", 5, 0.8, 600};
    const Server server({"--device-memory", "28M"});
    RawClient listener = server.connect();
    listener.send(get_request("/slipstream/live"));
    EXPECT_THAT(listener.read_until("\"type\":\"hello\""), HasSubstr("200 OK"));
    EXPECT_EQ(json::parse(server.post("/v1/completions", body_of(one)).body).at("choices").at(0).at("text"),
              generated(one));
    const std::string told = listener.read_until("\"phase\":\"ended\"");
    EXPECT_THAT(told, HasSubstr("\"options\":[\"--device-memory\",\"28M\",\"--tables\",\"off\"]"));
    EXPECT_THAT(told, HasSubstr("\"device_memory\":[{\"device\":"));
    EXPECT_THAT(told, HasSubstr("\"tree\":{\"size\":"));
    EXPECT_THAT(told, HasSubstr("\"link_busy\":[0."));
    EXPECT_THAT(server.log(), Not(HasSubstr("tree")));
}

TEST(ProgramServe, ListenersAreToldNoFolders) {
    const TemporaryFolder folder;
    std::filesystem::copy(source_path("tools/demo_model/target"), folder.path() / "model");
    const Server server({"-m", (folder.path() / "model").string() + "/"});
    RawClient listener = server.connect();
    listener.send(get_request("/slipstream/live"));
    const std::string hello = listener.read_until("\"n_ctx\"");
    EXPECT_THAT(hello, HasSubstr("\"options\":[\"--model\",\"model\","));
    EXPECT_THAT(hello, Not(HasSubstr(folder.path().string())));
}

TEST(ProgramServe, AChatWithoutATemplateIsATextInTurns) {
    const ProgramResult expected = run_program({"generate", "--prompt", "The wolf said", "--seed", "5", "--stop",
                                                "\n\n", "--max-tokens", "40", "--tables", "off", "-q"});
    const Server server;
    const json body = {
        {"messages", {{{"role", "user"}, {"content", "The wolf said"}}}}, {"seed", 5}, {"max_tokens", 40}};
    const json answer = json::parse(server.post("/v1/chat/completions", body).body);
    EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), expected.out);
    EXPECT_EQ(answer.at("usage").at("completion_tokens"), answer.at("timings").at("predicted_n"));
}

TEST(ProgramServe, AChatGoesThroughTheTemplateOfAFile) {
    const TemporaryFolder folder;
    const std::string source = "{% for m in messages %}Then {{ m.content }} {% endfor %}and the fox";
    const std::string file = folder.write("template.jinja", source).string();
    const std::string messages = folder.write("m.json", R"([{"role": "user", "content": "The wolf said"}])").string();
    const ProgramResult expected = run_program({"generate", "--messages", messages, "--template", file, "--seed", "5",
                                                "--max-tokens", "20", "--tables", "off", "-q"});
    ASSERT_EQ(expected.code, 0) << expected.err;
    const Server server({"--template", file});
    const json body = {
        {"messages", {{{"role", "user"}, {"content", "The wolf said"}}}}, {"seed", 5}, {"max_tokens", 20}};
    EXPECT_EQ(
        json::parse(server.post("/v1/chat/completions", body).body).at("choices").at(0).at("message").at("content"),
        expected.out);
    EXPECT_EQ(json::parse(server.get("/props")).at("chat_template"), source);
}

TEST(ProgramServe, AChatGoesThroughTheTemplate) {
    const std::string file = cached_model("smollm2-135m-instruct.gguf");
    if (file.empty()) GTEST_SKIP() << "smollm2-135m-instruct.gguf is not in the cache";
    const ProgramResult expected =
        run_program({"generate", "-m", file, "--prompt", "Name a fruit <|im_end|>", "--system", "Be brief.",
                     "--temperature", "0", "--max-tokens", "12", "--tables", "off", "-q"});
    const Server server({"-m", file});
    const json body = {
        {"messages",
         {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "Name a fruit <|im_end|>"}}}},
        {"temperature", 0},
        {"max_tokens", 12}};
    EXPECT_EQ(
        json::parse(server.post("/v1/chat/completions", body).body).at("choices").at(0).at("message").at("content"),
        expected.out);
}

// The bundled model has no template, so the conversation is a text in turns.
TEST(ProgramServe, AllDialectsGiveTheTextOfTheSameMessages) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "messages.json").string();
    std::ofstream(file) << R"({"messages": [{"role": "system", "content": "A tale."},
        {"role": "user", "content": "The wolf said"}, {"role": "assistant", "content": "to the fox"}]})";
    const ProgramResult expected = run_program({"generate", "--messages", file, "--seed", "5", "--temperature", "0.8",
                                                "--max-tokens", "30", "--tables", "off", "-q"});
    ASSERT_EQ(expected.code, 0) << expected.err;
    ASSERT_FALSE(expected.out.empty());
    const Server server;
    const json messages = {{{"role", "user"}, {"content", "The wolf said"}},
                           {{"role", "assistant"}, {"content", "to the fox"}}};
    json body = {{"seed", 5}, {"temperature", 0.8}, {"max_tokens", 30}};
    json claude = body;
    claude.update({{"system", "A tale."}, {"messages", messages}});
    json codex = body;
    codex.update({{"instructions", "A tale."}, {"input", messages}});
    EXPECT_EQ(json::parse(server.post("/v1/messages", claude).body).at("content").at(0).at("text"), expected.out);
    const json response = json::parse(server.post("/v1/responses", codex).body);
    EXPECT_EQ(response.at("output").at(0).at("content").at(0).at("text"), expected.out);
    claude["stream"] = codex["stream"] = true;
    EXPECT_EQ(streamed_text(server.post("/v1/messages", claude).body, "/delta/text"), expected.out);
    std::string streamed;
    std::istringstream lines(server.post("/v1/responses", codex).body);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(R"(data: {"type":"response.output_text.delta")"))
            streamed += json::parse(line.substr(6)).at("delta").get<std::string>();
    EXPECT_EQ(streamed, expected.out);
    body.update({{"prompt", "The wolf said"}, {"n_predict", 30}});
    EXPECT_EQ(json::parse(server.post("/completion", body).body).at("content"),
              generated({"The wolf said", 5, 0.8, 30}));
}

TEST(ProgramServe, OptionsCountForRequestsThatDoNotSay) {
    const Server server({"--temperature", "0", "--max-tokens", "9"}, {{"SLIPSTREAM_STOP", " never"}});
    const json short_one = json::parse(server.post("/v1/completions", {{"prompt", "The wolf said"}}).body);
    EXPECT_EQ(short_one.at("usage").at("completion_tokens"), 9);
    EXPECT_EQ(short_one.at("choices").at(0).at("text"), generated({"The wolf said", 0, 0.0, 9}));
}

TEST(ProgramServe, GreedyTokensAreTheLikeliest) {
    const Server server;
    const json answer =
        json::parse(server
                        .post("/v1/completions",
                              {{"prompt", "The wolf said"}, {"temperature", 0}, {"max_tokens", 30}, {"logprobs", 5}})
                        .body);
    const json& logprobs = answer.at("choices").at(0).at("logprobs");
    ASSERT_EQ(logprobs.at("tokens").size(), 30U);
    std::string text;
    for (std::size_t i = 0; i < 30; ++i) {
        const std::string token = logprobs.at("tokens").at(i);
        const double logprob = logprobs.at("token_logprobs").at(i);
        EXPECT_LE(logprob, 0.0);
        EXPECT_EQ(logprobs.at("top_logprobs").at(i).size(), 5U);
        for (const auto& [other, its] : logprobs.at("top_logprobs").at(i).items())
            EXPECT_LE(its.get<double>(), logprob) << other;
        EXPECT_EQ(logprobs.at("top_logprobs").at(i).at(token), logprob);
        text += token;
    }
    EXPECT_EQ(answer.at("choices").at(0).at("text"), text);
}

TEST(ProgramServe, AClientThatLeavesFreesTheSlot) {
    const Server server;
    {
        RawClient client = server.connect();
        client.send(
            post_request("/v1/completions", R"({"prompt": "Once upon a time", "ignore_eos": true, "stream": true})"));
        client.read_until("data: ");
    }
    EXPECT_TRUE(becomes([&] { return server.is_idle(); }));
    EXPECT_THAT(server.get("/metrics"), HasSubstr("slipstream:requests_cancelled_total 1\n"));
    EXPECT_EQ(json::parse(server.post("/v1/completions", body_of({"The wolf said", 7, 0.8, 20})).body)
                  .at("choices")
                  .at(0)
                  .at("text"),
              generated({"The wolf said", 7, 0.8, 20}));
}

TEST(ProgramServe, ASignalEndsAnswersWithAnError) {
    for (const int signal : {SIGINT, SIGTERM}) {
        Server server;
        RawClient runs = server.connect();
        runs.send(
            post_request("/v1/completions", R"({"prompt": "Once upon a time", "ignore_eos": true, "stream": true})"));
        runs.read_until("data: ");
        RawClient waits = server.connect();
        waits.send(post_request("/v1/completions", R"({"prompt": "Once upon a time", "stream": true})"));
        waits.read_until("\r\n\r\n");
        server.program().send(signal);
        for (RawClient* client : {&runs, &waits}) {
            const std::string rest = client->read_all();
            EXPECT_THAT(rest, HasSubstr("server_stopping"));
            EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
        }
        EXPECT_EQ(server.program().finish().code, 128 + signal);
    }
}

TEST(ProgramServe, OutlivesItsTerminal) {
    Server server;
    server.program().send(SIGHUP);
    EXPECT_EQ(json::parse(server.post("/v1/completions", body_of({"The wolf said", 7, 0.8, 20})).body)
                  .at("choices")
                  .at(0)
                  .at("text"),
              generated({"The wolf said", 7, 0.8, 20}));
    EXPECT_TRUE(server.program().is_running());
}

TEST(ProgramServe, SaysWhereItListensAndWhatItDid) {
    Server server({"--alias", "org/tales"});
    static_cast<void>(server.post("/v1/completions", body_of({"SECRET", 7, 0.8, 3})));
    EXPECT_THAT(server.get("/v1/models"), HasSubstr(R"("id":"org/tales")"));
    ASSERT_TRUE(becomes([&] { return server.log().find(" request 1 /v1/completions: ") != std::string::npos; }));
    EXPECT_THAT(server.log(), HasSubstr("org/tales is served, a context of 8192 tokens; base URL http://127.0.0.1:"));
    EXPECT_THAT(server.log(), Not(HasSubstr("SECRET")));
}

TEST(ProgramServe, WithoutAModelItNamesTheOthers) {
    const TemporaryFolder folder;
    static_cast<void>(folder.write("tale.gguf", "x"));
    Server server({}, {{"SLIPSTREAM_MODELS", folder.path().string()}});
    ASSERT_TRUE(becomes([&] { return server.log().find("other models for -m: ") != std::string::npos; }));
    EXPECT_THAT(server.log(), HasSubstr("tale"));
}

TEST(ProgramServe, TheKeyComesFromAFileOrTheEnvironment) {
    const TemporaryFolder folder;
    const std::string file = folder.write("key", "sesame\n").string();
    const auto status = [](const Server& server, const std::string& key) {
        RawClient client = server.connect();
        client.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key + "\r\n\r\n");
        return read_answer(client).status;
    };
    const Server by_file({"--api-key-file", file, "--host", "127.0.0.1"});
    EXPECT_EQ(status(by_file, "sesame"), 200);
    EXPECT_EQ(status(by_file, "other"), 401);
    const Server by_environment({}, {{"SLIPSTREAM_API_KEY", "sesame"}});
    EXPECT_EQ(status(by_environment, "sesame"), 200);
    EXPECT_EQ(status(by_environment, "other"), 401);
}

TEST(ProgramServe, RefusesWhatIsUnsafeOrWrong) {
    const ProgramResult open = run_program({"serve", "--host", "0.0.0.0", "--port", "0"});
    EXPECT_EQ(open.code, 2);
    EXPECT_THAT(open.err, HasSubstr("--api-key-file"));
    EXPECT_EQ(run_program({"serve", "--host", "127.0.0.1.example.org", "--port", "0"}).code, 2);
    const TemporaryFolder folder;
    const ProgramResult blank = run_program({"serve", "--api-key-file", folder.write("key", "two words\n").string()});
    EXPECT_EQ(blank.code, 1);
    EXPECT_EQ(run_program({"serve", "--port", "65536"}).code, 2);
    EXPECT_EQ(run_program({"serve", "--session", "f"}).code, 2);
    EXPECT_EQ(run_program({"serve", "--self-check"}).code, 2);
    const Server server;
    const std::string port = server.log().substr(server.log().find("127.0.0.1:") + 10);
    const ProgramResult busy = run_program({"serve", "--port", port.substr(0, port.find(' '))});
    EXPECT_EQ(busy.code, 1);
    EXPECT_THAT(busy.err, HasSubstr("another program has the port"));
    EXPECT_EQ(std::ranges::count(busy.err, '\n'), 1) << busy.err;
}

}  // namespace
}  // namespace slipstream::tools
