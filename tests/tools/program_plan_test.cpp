// `slipstream plan` as a user calls it.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

nlohmann::json planned(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    arguments.emplace_back("--json");
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
}

ProgramResult refused(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    return run_program(arguments);
}

TEST(Plan, ForAProfileAndAShape) {
    const ProgramResult text =
        run_program({"plan", "--profile", "1x4090", "--shape", "llama-70b", "--quant", "Q4_K_M"});
    EXPECT_EQ(text.code, 0) << text.err;
    for (const char* part : {"llama-70b in Q4_K_M", "RTX 4090", "PCIe 4.0 x16", "weights stream", "pass of 1 ",
                             "tokens/s", "What would help most (times as fast: the geometric mean of passes",
                             "a second RTX 4090", "nothing was measured"})
        EXPECT_THAT(text.out, HasSubstr(part));
    const nlohmann::json json = planned({"--profile", "1x4090", "--shape", "llama-70b", "--quant", "Q4_K_M",
                                         "--expect-tokens", "64", "--tokens-per-pass", "1,8"});
    EXPECT_EQ(json["plan"]["regime"], "weights stream");
    EXPECT_EQ(json["plan"]["pass_tokens"], 64);
    EXPECT_LE(json["plan"]["device_bytes"], json["hardware"]["device_memory_bytes"]);
    EXPECT_EQ(json["plan"]["resident_weights_bytes"].get<std::int64_t>() +
                  json["plan"]["streamed_weights_bytes"].get<std::int64_t>(),
              json["model"]["weights_bytes"].get<std::int64_t>());
    EXPECT_EQ(json["passes"][1]["tokens"], 64);
    EXPECT_NEAR(
        json["tokens_per_second"][1]["tokens_per_second"].get<double>() * json["passes"][1]["seconds"].get<double>(),
        8.0, 1e-9);
    EXPECT_EQ(json["measured"], false);
    EXPECT_GE(json["would_help"].size(), 3U);
}

TEST(Plan, CountsTheMemoryForAServersEarlierTexts) {
    const std::vector<std::string> shape{"--profile", "1x4090", "--shape", "llama3-8b"};
    const auto with = [&](const std::string& size) {
        std::vector<std::string> arguments = shape;
        arguments.insert(arguments.end(), {"--kept-memory", size});
        return arguments;
    };
    const nlohmann::json plain = planned(shape)["host"];
    const nlohmann::json kept = planned(with("8G"))["host"];
    EXPECT_EQ(plain["kept_bytes"], 0);
    EXPECT_EQ(kept["kept_bytes"], std::int64_t{8} << 30);
    EXPECT_EQ(kept["bytes"].get<std::int64_t>() - plain["bytes"].get<std::int64_t>(), std::int64_t{8} << 30);
    const ProgramResult much = refused(with("500G"));
    EXPECT_EQ(much.code, 1);
    EXPECT_THAT(much.err, HasSubstr("less --kept-memory"));
}

// What a plan rests on is said, and the ways that users weigh are compared.
TEST(Plan, TellsAssumptionsAndComparesTheWays) {
    const ProgramResult laptop =
        run_program({"plan", "--profile", "laptop-8gb", "--shape", "llama-70b", "--quant", "Q3_K_S"});
    EXPECT_EQ(laptop.code, 0) << laptop.err;
    EXPECT_THAT(laptop.out, AllOf(HasSubstr("assumed tokens a pass"), HasSubstr("Tokens a pass are assumed, not"),
                                  HasSubstr("Nodes: as many as take the time of one")));
    EXPECT_THAT(laptop.out,
                testing::ContainsRegex("\n +way  pass of 1  pass of [0-9]+ +fastest from +options\n"
                                       " +streaming +[0-9.]+ m?s +[0-9.]+ m?s +[0-9]+ tokens *\n"
                                       "layers shared with the CPU, [0-9]+\\+[0-9]+ +[0-9.]+ m?s +[0-9.]+ m?s .*"
                                       "--devices cuda:0,cpu\n +CPU only .*--devices cpu\n"));
    const ProgramResult here = run_program({"plan", "--ctx", "1024", "--draft", "none", "--device-memory", "15M",
                                            "--link-gib-s", "0.01", "--tokens-per-pass", "1,2.5"});
    EXPECT_EQ(here.code, 0) << here.err;
    EXPECT_THAT(here.out, AllOf(testing::ContainsRegex("CPU only .* 1 token +without --device-memory, --link-gib-s\n"),
                                HasSubstr("--devices cpu,cpu --device-memory 15M,none")));
    EXPECT_THAT(here.out, HasSubstr("assumed (--tokens-per-pass), not predicted"));
    const nlohmann::json json = planned({"--profile", "laptop-8gb", "--shape", "llama-70b", "--quant", "Q3_K_S"});
    EXPECT_EQ(json["tokens_per_pass_from"], "assumed");
    const nlohmann::json& ways = json["ways"];
    ASSERT_EQ(ways.size(), 3U);
    EXPECT_EQ(ways[0]["pass_seconds"][0], json["passes"][0]["seconds"]);
    EXPECT_EQ(ways[0]["pass_seconds"][1], json["passes"][1]["seconds"]);
    EXPECT_LT(ways[2]["pass_seconds"][0], ways[0]["pass_seconds"][0]);
    EXPECT_EQ(ways[1]["layers"].size(), 2U);
    const nlohmann::json fits = planned({"--profile", "5090", "--shape", "llama3-8b", "--quant", "Q4_K_M"});
    EXPECT_TRUE(fits["ways"].empty());
}

TEST(Plan, ComesNearAPublishedFigure) {
    // TriForce: 13B behind 130,304 tokens on two 4090, with the link that its 7B figure implies: 1794 ms.
    const nlohmann::json json =
        planned({"--profile", "2x4090", "--shape", "llama2-13b-128k", "--ctx", "130304", "--link-gib-s", "23.65"});
    EXPECT_NEAR(json["passes"][0]["seconds"].get<double>(), 1.794, 0.05 * 1.794);
    EXPECT_EQ(json["plan"]["regime"], "KV streams");
    EXPECT_EQ(json["hardware"]["devices"], 2);
}

TEST(Plan, ForThisMachineIsMeasured) {
    const nlohmann::json all = planned({"--ctx", "1024"});
    EXPECT_EQ(all["plan"]["regime"], "all fits");
    EXPECT_EQ(all["measured"], true);
    EXPECT_EQ(all["kv"]["bytes"], 1024 * 6 * 2 * 64 * 2 * 2);  // the bundled model's, bf16
    EXPECT_TRUE(all["hardware"]["device_memory_bytes"].is_null());
    EXPECT_GT(all["passes"][0]["seconds"].get<double>(), 0.0);
    // With a budget below what it takes, and a slow link: that is the time.
    const std::int64_t whole = all["plan"]["device_bytes"];
    const nlohmann::json some =
        planned({"--ctx", "1024", "--draft", "none", "--device-memory", std::to_string(whole - 4'000'000),
                 "--link-gib-s", "0.01", "--expect-tokens", "1"});
    const double streamed =
        some["plan"]["streamed_weights_bytes"].get<double>() + some["plan"]["streamed_kv_bytes"].get<double>();
    EXPECT_GT(streamed, 1e6);
    EXPECT_LE(some["plan"]["device_bytes"], whole - 4'000'000);
    EXPECT_NEAR(some["passes"][0]["seconds"].get<double>(), streamed / 10737418.24, 0.2 * streamed / 10737418.24);
    EXPECT_NEAR(some["hardware"]["link_gib_s"].get<double>(), 0.01, 1e-6);
}

TEST(Plan, UnlikeDevicesAreToldOneByOne) {
    const nlohmann::json hardware = planned({"--devices", "cpu,cpu", "--ctx", "512", "--device-memory", "20M,none",
                                             "--link-gib-s", "0.5,none"})["hardware"];
    EXPECT_EQ(hardware["device_memory_bytes"], 20 << 20);
    ASSERT_EQ(hardware["each"].size(), 2U);
    EXPECT_EQ(hardware["each"][0]["device_memory_bytes"], 20 << 20);
    EXPECT_TRUE(hardware["each"][1]["device_memory_bytes"].is_null());
    EXPECT_NEAR(hardware["each"][0]["link_gib_s"].get<double>(), 0.5, 1e-9);
    EXPECT_GT(hardware["each"][1]["link_gib_s"], 0.5);
}

// The free memory of the host changes from start to start.
nlohmann::json without_free_memory(nlohmann::json plan) {
    for (const char* name : {"host_memory_bytes", "host_budget_bytes"}) plan["hardware"].erase(name);
    return plan;
}

// A plan rests on rates that are measured once; a file of them can be named, and measured again.
TEST(Plan, RatesHoldStill) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "rates").string();
    const std::vector<std::string> options{"-t", "1", "--devices", "cpu", "--ctx", "2048", "--device-memory", "26M"};
    const auto planned_by = [&](const std::string& rates) {
        std::vector<std::string> arguments = options;
        arguments.insert(arguments.end(), {"--rates", rates});
        return without_free_memory(planned(arguments));
    };
    const auto replaced = [&](const char* name, double value) {
        std::string text = file_text(file);
        const std::size_t line = text.find('\n') + 1;
        nlohmann::json json = nlohmann::json::parse(text.substr(line, text.find('\n', line) - line));
        json[name] = value;
        json["spread"] = 0.125;
        folder.write("rates", text.substr(0, line) + json.dump() + "\n");
    };
    EXPECT_EQ(planned_by(file)["rates"]["source"], "measured");
    replaced("copy_bytes_per_second", 1 << 30);
    const nlohmann::json kept = planned_by(file);
    EXPECT_EQ(kept["rates"]["source"], "kept");
    EXPECT_EQ(kept["rates"]["spread"], 0.125);
    EXPECT_NEAR(kept["hardware"]["link_gib_s"].get<double>(), 1.0, 1e-9);
    EXPECT_EQ(planned_by(file), kept);
    // The file in the folder of the tables is the same.
    std::vector<std::string> beside = options;
    std::filesystem::rename(file, folder.path() / "rates.txt");
    beside.insert(beside.end(), {"--tables", folder.path().string()});
    EXPECT_EQ(without_free_memory(planned(beside)), kept);
    beside.insert(beside.begin(), "plan");
    beside.insert(beside.end(), {"--rates", "measure", "--json"});
    // On a busy machine what was measured before is better, and that is said.
    const ProgramResult again = run_program(beside);
    const auto source = nlohmann::json::parse(again.out)["rates"]["source"];
    if (again.err.find("the rates measured before are kept, since those of now are doubtful") == std::string::npos)
        EXPECT_EQ(source, "measured") << again.err;
    else
        EXPECT_EQ(source, "kept");
    EXPECT_FALSE(std::filesystem::exists("measure"));
    EXPECT_EQ(planned({"--profile", "1x4090", "--shape", "llama3-8b"})["rates"]["source"], "profile");
    const ProgramResult odd = refused({"--profile", "1x4090", "--shape", "llama3-8b", "--rates", file});
    EXPECT_EQ(odd.code, 2);
    EXPECT_THAT(odd.err, HasSubstr("a profile has its own rates"));
}

// The sum of a row of the table of device memory, without what is free.
std::size_t used_of(const nlohmann::json& row) {
    std::size_t sum = 0;
    for (const auto& [name, bytes] : row.items())
        if (name != "device" && name != "free") sum += bytes.get<std::size_t>();
    return sum;
}

TEST(Plan, DeviceMemoryByPurpose) {
    const nlohmann::json split = planned({"--devices", "cpu,cpu", "-t", "1", "--split", "tensor", "--ctx", "4096",
                                          "--device-memory", "30M", "--draft", "context", "--budget", "8"});
    const nlohmann::json& table = split["device_memory"];
    ASSERT_EQ(table.size(), 2U);
    std::size_t in_all = 0;
    for (const nlohmann::json& row : table) {
        EXPECT_EQ(used_of(row) + row["free"].get<std::size_t>(), std::size_t{30} << 20);
        EXPECT_GT(row["kv"], 0);
        EXPECT_GT(row["sums"], 0);
        EXPECT_EQ(row["draft"], 0);
        in_all += used_of(row);
    }
    EXPECT_EQ(in_all, split["plan"]["device_bytes"]);
    const std::vector<std::string> view{"-t",       "1",       "--devices",       "cpu",         "--ctx",
                                        "2048",     "--draft", "retrieval,model", "--kv-budget", "512",
                                        "--budget", "8",       "--view-type",     "q4"};
    std::vector<std::string> limited = view;
    limited.insert(limited.end(), {"--device-memory", "60M"});
    const nlohmann::json with_view = planned(limited);
    EXPECT_EQ(with_view["view"], nlohmann::json({{"type", "q4"}, {"tokens", 512}}));
    EXPECT_TRUE(split["view"].is_null());
    const nlohmann::json row = with_view["device_memory"][0];
    for (const char* name : {"weights", "kv", "kv_scratch", "activations", "draft", "views", "workspace"})
        EXPECT_GT(row[name], 0) << name;
    EXPECT_EQ(row["sums"], 0);
    EXPECT_EQ(row["logits"], 0) << "they fit into the memory of the activations";
    EXPECT_TRUE(planned(view)["device_memory"][0]["free"].is_null()) << "without a budget nothing is free of it";
    const ProgramResult text = run_program({"plan", "-t", "1", "--devices", "cpu", "--ctx", "2048", "--device-memory",
                                            "26M", "--draft", "none", "--ring", "3M"});
    EXPECT_THAT(text.out, testing::ContainsRegex("\nmemory of +weights +kv +kv scratch .*free\n +cpu +[0-9]"));
}

// What plan tells, bench and generate take: for the same options, to the byte. (tools/dev/compare_memory.py draws
// more.)
TEST(Plan, BenchAndGenerateNameTheSameBytes) {
    const std::vector<std::string> common{"-t", "1", "--devices", "cpu", "--link-gib-s", "0.1", "--ring", "3M"};
    bool streams = false;
    for (const std::vector<std::string>& some : std::vector<std::vector<std::string>>{
             {"--draft", "none", "--ctx", "512", "--device-memory", "20M"},
             {"--draft", "none", "--ctx", "8192", "--device-memory", "36M", "--kv-type", "f32"},
             {"--draft", "context", "--tables", "off", "--budget", "16", "--ctx", "2048", "--device-memory", "26M"},
             {"--draft", "model", "--tables", "off", "--budget", "8", "--ctx", "1024", "--device-memory", "24M"}}) {
        std::vector<std::string> options = common;
        options.insert(options.end(), some.begin(), some.end());
        const nlohmann::json whole = planned(options);
        const nlohmann::json& plan = whole["plan"];
        const auto ran = [&](std::vector<std::string> arguments) {
            arguments.insert(arguments.end(), options.begin(), options.end());
            const ProgramResult result = run_program(arguments);
            EXPECT_EQ(result.code, 0) << result.err;
            return nlohmann::json::parse(result.out, nullptr, false);
        };
        const nlohmann::json bench = ran(
            {"bench", "--json", "--prompt-tokens", "4", "-n", "2", "--repeat", "1", "--temperature", "0"})["runs"][0];
        const nlohmann::json generate =
            ran({"generate", "-p", "Once", "-n", "1", "--temperature", "0", "-o", "/dev/null", "--stats", "-"});
        const nlohmann::json passes = ran({"bench", "--json", "--passes", "1", "--repeat", "1"})["runs"][0];
        EXPECT_EQ(generate["plan"]["device_memory"], whole["device_memory"]) << "case " << some[1];
        EXPECT_EQ(used_of(whole["device_memory"][0]), generate["peak"]["device_bytes"][0]) << "case " << some[1];
        EXPECT_LE(whole["device_memory"][0]["other"], 1 << 20);
        for (const char* name : {"device_bytes", "ring_bytes", "resident_weights_bytes", "resident_kv_bytes",
                                 "streamed_weights_bytes", "streamed_kv_bytes"}) {
            EXPECT_EQ(passes["plan"][name], plan[name]) << name << " of bench --passes, case " << some[1];
            EXPECT_EQ(bench["plan"][name], plan[name]) << name << " of bench, case " << some[1];
            EXPECT_EQ(generate["plan"][name], plan[name]) << name << " of generate, case " << some[1];
        }
        streams = streams || plan["ring_bytes"] > 0;
    }
    EXPECT_TRUE(streams);
}

// Several devices: the layers that generate gives each, what streams where, and why.
TEST(Plan, TellsTheSplitThatGenerateHas) {
    for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
             {"--device-memory", "22M,20M", "--link-gib-s", "0.02,0.01"},
             {"--device-memory", "22M", "--link-gib-s", "0.02", "--shares", "2,1"},
             {"--device-memory", "22M,none", "--link-gib-s", "0.02", "--expect-tokens", "4"}}) {
        std::vector<std::string> arguments{"--devices", "cpu,cpu", "-t", "1", "--draft", "none", "--ctx", "2048"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        const nlohmann::json plan = planned(arguments);
        std::vector<std::string> run{"generate", "-p", "Once", "-n", "1", "-o", "/dev/null", "--stats", "-"};
        run.insert(run.end(), arguments.begin(), arguments.end());
        const ProgramResult generated = run_program(run);
        ASSERT_EQ(generated.code, 0) << generated.err;
        EXPECT_EQ(plan["plan"]["split"], "layers");
        const nlohmann::json run_plan = nlohmann::json::parse(generated.out)["plan"];
        for (const char* name : {"layers", "device_bytes", "ring_bytes", "resident_weights_bytes", "resident_kv_bytes",
                                 "streamed_weights_bytes", "streamed_kv_bytes"})
            EXPECT_EQ(plan["plan"][name], run_plan[name]) << name << " with " << options[1];
        arguments.insert(arguments.begin(), "plan");
        const std::string text = run_program(arguments).out;
        for (const char* part : {"split ", "device 1 ", "device 2 ", "why ", "computing takes"})
            EXPECT_THAT(text, HasSubstr(part));
    }
}

TEST(Plan, TellsWhatAssumptionsComeTo) {
    const std::vector<std::string> arguments{"plan",    "--profile",      "2x4090-x16",
                                             "--shape", "llama2-7b-128k", "--ctx",
                                             "130304",  "--assume",       "acceptance=.95,hidden=.7"};
    const std::string text = run_program(arguments).out;
    EXPECT_THAT(text, AllOf(HasSubstr("Assumed: acceptance 0.95"), HasSubstr("tokens/s, ")));
    EXPECT_THAT(text, testing::Not(HasSubstr("(1 - a^(n + 1))")));
    std::vector<std::string> verbose = arguments;
    verbose.emplace_back("-v");
    EXPECT_THAT(run_program(verbose).out, HasSubstr("tokens a pass = (1 - a^(n + 1)) / (1 - a) = "));
    const nlohmann::json json = planned(std::vector<std::string>(arguments.begin() + 1, arguments.end()))["assumed"];
    EXPECT_NEAR(1.0 / json["tokens_per_second"].get<double>(), 0.058, 0.003);
    // Guesses over a view of each card's heads are made by both cards at once.
    std::vector<std::string> tensor(arguments.begin() + 1, arguments.end());
    tensor.insert(tensor.end(), {"--split", "tensor"});
    EXPECT_NEAR(1.0 / planned(tensor)["assumed"]["tokens_per_second"].get<double>(), 0.051, 0.003);
    // A view of as many tokens in 4 bits reads less, and leaves more memory to the KV.
    std::vector<std::string> paged(arguments.begin() + 1, arguments.end());
    paged.insert(paged.end(), {"--view-type", "q4"});
    const nlohmann::json of_pages = planned(paged)["assumed"];
    EXPECT_EQ(json["view_type"], "f16");
    EXPECT_EQ(of_pages["view_type"], "q4");
    EXPECT_LT(of_pages["draft_seconds"], json["draft_seconds"]);
    EXPECT_GT(of_pages["tokens_per_second"], json["tokens_per_second"]);
}

TEST(Plan, WhatDoesNotFitIsRefusedWithTheNumbers) {
    const ProgramResult host = refused({"--profile", "1x4090", "--shape", "llama-70b"});
    EXPECT_EQ(host.code, 1);
    EXPECT_EQ(host.out, "");
    EXPECT_THAT(host.err, AllOf(HasSubstr("128.5 GiB"), HasSubstr("128.0 GiB"), HasSubstr("larger than host memory")));
    const ProgramResult device = refused({"--device-memory", "1M"});
    EXPECT_EQ(device.code, 1);
    EXPECT_THAT(device.err, AllOf(HasSubstr("a device budget of 1.0 MiB is too small"), HasSubstr("--device-memory ")));
    const ProgramResult ring =
        refused({"--profile", "1x4090", "--shape", "llama-70b", "--quant", "Q4_0", "--ring", "1M"});
    EXPECT_EQ(ring.code, 1);
    EXPECT_THAT(ring.err, AllOf(HasSubstr("a ring of 1.0 MiB is too small"), HasSubstr("--ring ")));
}

// A pass of one token reads the chosen experts alone, and copies those of them that are not on the device.
TEST(Plan, AMixtureOnGpus) {
    const nlohmann::json fits =
        planned({"--profile", "1x4090", "--shape", "qwen3-30b-a3b", "--quant", "Q4_K_M", "--ctx", "8192"});
    EXPECT_EQ(fits["plan"]["regime"], "all fits");
    // 1.9 GB at 857 GB/s and 48 layers of 110 us; the whole model would take 21 ms.
    EXPECT_NEAR(fits["passes"][0]["seconds"].get<double>(), 0.0078, 0.001);
    const nlohmann::json streams =
        planned({"--profile", "1x4090", "--shape", "gpt-oss-120b", "--quant", "MXFP4", "--ctx", "8192"});
    EXPECT_EQ(streams["plan"]["regime"], "weights stream");
    EXPECT_EQ(streams["plan"]["pass_tokens"], 1);
    const double pinned = streams["plan"]["pinned_bytes"].get<double>();
    const double copied = streams["plan"]["streamed_weights_bytes"].get<double>();
    const double slots = streams["device_memory"][0]["experts"].get<double>();
    EXPECT_GT(pinned, 55e9);  // all experts
    EXPECT_GT(slots, 15e9);   // a fifth or more of the device
    const nlohmann::json& experts = streams["plan"]["experts"];
    EXPECT_EQ(experts["regime"], "experts in slots");
    EXPECT_EQ(experts["n_experts"], 36 * 128);
    EXPECT_EQ(experts["slot_bytes"], slots);
    EXPECT_EQ(experts["hits_from"], "prior");
    EXPECT_EQ(experts["copied_bytes"], copied);
    EXPECT_TRUE(experts["reason"].is_null());
    // 4 of 128 are chosen, and a third of them, in slots, hit as the prior says; between .82 and .92.
    EXPECT_GT(experts["hits"], 0.82);
    EXPECT_LT(experts["hits"], 0.92);
    EXPECT_NEAR(copied, pinned * 4 / 128 * (1.0 - experts["hits"].get<double>()), 0.01 * copied);
    EXPECT_GT(streams["one_more_gib"]["hits"], experts["hits"]);
    EXPECT_GT(streams["one_more_gib"]["tokens_per_second"], streams["tokens_per_second"][0]["tokens_per_second"]);
    EXPECT_EQ(fits["plan"]["experts"]["regime"], "experts fit");
    EXPECT_EQ(fits["plan"]["experts"]["reason"], "all experts fit");
    EXPECT_TRUE(fits["plan"]["experts"]["hits_from"].is_null());
    EXPECT_TRUE(fits["one_more_gib"].is_null());
    EXPECT_TRUE(planned({"--profile", "1x4090", "--shape", "1b"})["plan"]["experts"].is_null());
    EXPECT_GT(streams["passes"][0]["seconds"].get<double>(), copied / 25.2e9);
    EXPECT_LT(streams["passes"][0]["seconds"].get<double>(), copied / 25.2e9 + 0.02);
    const ProgramResult expected = run_program({"plan", "--profile", "2x4090-x16", "--shape", "gpt-oss-120b", "--quant",
                                                "MXFP4", "--ctx", "8192", "--expect-tokens", "4"});
    EXPECT_THAT(expected.out, HasSubstr("of weights (expected for passes of 4 tokens; at most "));
    EXPECT_THAT(expected.out, HasSubstr(" stream (expected for a pass of 1 token), "));
    EXPECT_THAT(expected.out,
                testing::ContainsRegex("device 1 .* MiB resident, 1[78]\\.[0-9] GiB of slots for experts; "));
    const ProgramResult dense = run_program({"plan", "--profile", "2x4090-x16", "--shape", "llama-70b", "--quant",
                                             "Q8_0", "--ctx", "8192", "--expect-tokens", "4"});
    EXPECT_THAT(dense.out, testing::Not(HasSubstr("(expected")));

    // Host memory that does not hold all experts: those on the device stay there.
    const nlohmann::json fixed = planned({"--profile", "1x4090", "--shape", "gpt-oss-120b", "--quant", "MXFP4", "--ctx",
                                          "8192", "--host-memory", "50G"});
    EXPECT_EQ(fixed["device_memory"][0]["experts"], 0);
    EXPECT_NEAR(fixed["plan"]["pinned_bytes"].get<double>(), pinned - slots, 0.01 * pinned);
    const double even = (pinned - slots) * 4 / 128;
    EXPECT_NEAR(fixed["plan"]["streamed_weights_bytes"].get<double>(), even, 0.01 * even);
    EXPECT_EQ(fixed["plan"]["experts"]["regime"], "experts fixed");
    EXPECT_EQ(fixed["plan"]["experts"]["hits_from"], "even");
    EXPECT_THAT(fixed["plan"]["experts"]["reason"].get<std::string>(), HasSubstr("of which 50.0 GiB may be used"));
    const auto text = [](const std::vector<std::string>& more) {
        std::vector<std::string> arguments{"plan",         "--no-config", "--profile", "1x4090", "--shape",
                                           "gpt-oss-120b", "--quant",     "MXFP4",     "--ctx",  "8192"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_program(arguments).out;
    };
    EXPECT_THAT(text({"--host-memory", "70G"}),
                testing::ContainsRegex("slots +for [0-9]+ to [0-9]+ of 128 experts of a layer, .* in host memory"));
    EXPECT_THAT(text({}),
                AllOf(testing::ContainsRegex("hits +8[0-9.]+ % of the experts .*prior from public traces"),
                      testing::ContainsRegex("one more GiB +[0-9.]+ tokens/s instead of [0-9.]+ for passes")));
    EXPECT_THAT(text({"--assume", "hits=.5"}), testing::ContainsRegex("hits +50.0 % of the experts .*--assume"));
    // All experts of the second device's six layers are on it, so a sixth of the chosen ones hit at least.
    const ProgramResult few = run_program({"plan", "--no-config", "--profile", "2x4090", "--shape", "gpt-oss-120b",
                                           "--quant", "MXFP4", "--shares", "30,6", "--assume", "hits=.1"});
    EXPECT_EQ(few.code, 1);
    EXPECT_THAT(few.err, HasSubstr("hits are 0.167 at least"));
    EXPECT_THAT(text({"--host-memory", "50G"}), HasSubstr("if tokens choose experts evenly)"));
    EXPECT_THAT(text({"--host-memory", "50G"}),
                AllOf(HasSubstr("none: experts on the device stay there"), HasSubstr("of which 50.0 GiB may be used")));
    // The same where the KV of a server's earlier texts takes it.
    EXPECT_THAT(text({"--kept-memory", "75G"}), AllOf(HasSubstr("none: experts on the device stay there"),
                                                      HasSubstr("75.0 GiB of it for earlier texts")));
    EXPECT_THAT(text({}), testing::Not(HasSubstr("stay there")));
}

// `generate` keeps the model's context whatever the device's budget is, so `plan` of a file does not shorten it either.
TEST(Plan, RefusesABudgetInTheWordsOfGenerate) {
    for (const char* memory : {"12000000", "1K"}) {  // 1K does not even hold the workspace
        const auto refusal = [&](std::vector<std::string> arguments) {
            for (const char* option : {"--devices", "cpu", "--device-memory", memory, "--draft", "context"})
                arguments.emplace_back(option);
            return run_program(arguments);
        };
        const ProgramResult planned = refusal({"plan"});
        const ProgramResult generated = refusal({"generate", "-p", "x", "-n", "1"});
        EXPECT_EQ(planned.code, 1);
        EXPECT_EQ(generated.code, 1);
        EXPECT_THAT(planned.err, HasSubstr("is too small"));
        EXPECT_THAT(generated.err, HasSubstr(planned.err));
    }
}

TEST(Plan, OptionsThatCannotActAreMistakes) {
    for (const auto& [arguments, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--shape", "llama-71b"}, "unknown shape 'llama-71b'; known shapes:"},
             {{"--shape", "llama-70b", "--quant", "Q9"}, "unknown quantisation 'Q9'; known:"},
             {{"--quant", "Q8_0"}, "--quant requires --shape"},
             {{"--profile", "1x4090", "--draft", "context"}, "speculative decoding is planned only for a model file"},
             {{"--profile", "1x4090", "--view-type", "q4"}, "speculative decoding is planned only for a model file"},
             {{"--profile", "1x4090", "--view-type", "q4", "--assume", "acceptance=.9,draft=.003"},
              "speculative decoding is planned only for a model file"},
             {{"--shape", "1b", "-m", "x"}, "--shape and -m both name a model"},
             {{"--profile", "3x4090", "--shape", "1b"}, "unknown profile '3x4090'; known profiles:"},
             {{"--profile", "1x4090", "--shape", "1b", "--threads", "2"}, "--threads"},
             {{"--profile", "1x4090", "--shape", "1b", "--devices", "cpu"}, "a profile has its own devices"},
             {{"--device-memory", "8G,8G"}, "2 values for 1 device;"},
             {{"--shares", "2,1"}, "--shares requires several devices"},
             {{"--devices", "cpu,cpu", "--shares", "2,1,1"}, "--shares: 3 values for 2 devices"},
             {{"--profile", "1x4090", "--shape", "1b", "--device-memory", "none"}, "a size from 1 byte"},
             {{"--devices", "cpu,cpu", "--split", "rows"}, "layers or tensor expected"},
             {{"--assume", "hidden=0"}, "acceptance=.95"},
             {{"--assume", "hits=2"}, "from 0 to 1 expected, found '2'"},
             {{"--link-gib-s", "x"}, "GiB a second from 0.001 to 1000000"}}) {
        const ProgramResult result = refused(arguments);
        EXPECT_EQ(result.code, 2) << said;
        EXPECT_THAT(result.err, HasSubstr(said));
    }
    const ProgramResult hits = refused({"--profile", "1x4090", "--shape", "1b", "--assume", "hits=.9"});
    EXPECT_EQ(hits.code, 1);
    EXPECT_THAT(hits.err, HasSubstr("--assume hits=0.9: no expert has a slot in this plan"));
    const ProgramResult experts = refused({"--profile", "1x4090", "--shape", "qwen3-30b-a3b", "--experts", "cpu"});
    EXPECT_EQ(experts.code, 1);
    EXPECT_THAT(experts.err, HasSubstr("--experts: experts that the CPU computes have other bits than those of a GPU"));
    const ProgramResult dense = refused({"--shape", "1b", "--experts", "copy"});
    EXPECT_EQ(dense.code, 1);
    EXPECT_THAT(dense.err, HasSubstr("has no experts; leave it out"));
    const ProgramResult card = refused({"--devices", "cuda:99"});
    EXPECT_EQ(card.code, 1);
    EXPECT_THAT(card.err, HasSubstr("use --devices cpu"));
}

}  // namespace
}  // namespace slipstream::tools
