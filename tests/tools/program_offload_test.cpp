// Memory budgets as a user gives them: the same text whatever streams, the figures of it, and one line where it cannot
// be done.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

std::vector<std::string> generate(std::vector<std::string> more) {
    std::vector<std::string> arguments{"generate", "--prompt",      "The wolf said", "--max-tokens",
                                       "300",      "--temperature", "0.8",           "--seed",
                                       "5",        "--ctx",         "2048",          "--no-config"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

nlohmann::json stats_of(const std::vector<std::string>& more, std::string& text) {
    return run_with_statistics(generate(more), text);
}

TEST(Offload, WhatGuessesFitsBesideTheModelAtEveryBudget) {
    std::string plain;
    static_cast<void>(stats_of({"--draft", "none", "--max-tokens", "12"}, plain));
    for (int mib = 16; mib <= 42; ++mib) {
        std::string text;
        static_cast<void>(stats_of({"--max-tokens", "12", "--tables", "off", "--ctx", "8192", "--link-gib-s", "0.2",
                                    "--device-memory", fmt::format("{}M", mib)},
                                   text));
        EXPECT_EQ(text, plain) << mib;
    }
}

TEST(Offload, SourcesThatWereNamedShrinkAsWell) {
    std::string plain;
    static_cast<void>(stats_of({"--draft", "none", "--max-tokens", "12"}, plain));
    for (const int mib : {15, 18, 20, 23}) {
        for (const char* more : {"--draft=model", "--draft=model,context"}) {
            std::string text;
            static_cast<void>(stats_of({"--max-tokens", "12", "--tables", "off", "--ctx", "8192", more,
                                        "--device-memory", fmt::format("{}M", mib)},
                                       text));
            EXPECT_EQ(text, plain) << mib << more;
        }
    }
    // What computes each pass again counts too.
    std::string checked;
    static_cast<void>(stats_of(
        {"--max-tokens", "12", "--tables", "off", "--ctx", "8192", "--self-check", "--device-memory", "24M"}, checked));
    EXPECT_EQ(checked, plain);
}

TEST(Offload, ARealModelStreamsWithoutAnotherOption) {
    const std::string file = cached_model("smollm2-135m-instruct.gguf");
    if (file.empty()) GTEST_SKIP() << "not there: SmolLM2 (tools/get_model smollm2)";
    const ProgramResult result = run_program({"generate", "-m", file, "--prompt", "Hello", "-n", "4", "--tables", "off",
                                              "--device-memory", "60M", "--no-config"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("in each pass"));
}

TEST(Offload, TheTextIsTheSameWhateverStreams) {
    std::string plain;
    const nlohmann::json all = stats_of({"--draft", "none"}, plain);
    EXPECT_EQ(all["regime"], "all fits");
    EXPECT_EQ(all["streamed"]["link_gib_s"].size(), 0U);
    bool streamed_weights = false;
    bool streamed_kv = false;
    for (const char* memory : {"15M", "17M", "20M", "24M", "64M"}) {
        for (const char* draft : {"none", "context,recycling"}) {
            for (const char* kv : {"auto", "f32"}) {
                if (std::string(kv) == "f32" && (std::string(draft) == "none" || std::string(memory) < "20M")) continue;
                std::string text;
                std::vector<std::string> options{"--draft", draft, "--device-memory", memory, "--kv-type", kv};
                if (std::string(draft) != "none") options.insert(options.end(), {"--budget", "16"});
                const nlohmann::json stats = stats_of(options, text);
                if (std::string(kv) == "auto") {
                    EXPECT_EQ(text, plain) << memory << ", " << draft;
                }
                const std::size_t peak = stats["peak"]["device_bytes"][0];
                EXPECT_LE(peak, std::stoul(memory) << 20) << memory;
                EXPECT_EQ(peak, stats["plan"]["device_bytes"].get<std::size_t>()) << memory << ", " << draft;
                streamed_weights |= stats["streamed"]["weights_bytes"].get<std::size_t>() > 0;
                streamed_kv |= stats["plan"]["streamed_kv_bytes"].get<std::size_t>() > 0;
                if (stats["streamed"]["weights_bytes"].get<std::size_t>() > 0) {
                    EXPECT_EQ(stats["streamed"]["link_busy_fraction"].size(), 1U);
                    EXPECT_GT(stats["peak"]["pinned_bytes"].get<std::size_t>(), 0U);
                }
            }
        }
    }
    EXPECT_TRUE(streamed_weights);
    EXPECT_TRUE(streamed_kv);
}

// A q8 cache changes the text, but not with what streams, what is drafted, or how devices share the model.
TEST(Offload, TheTextOfAnEightBitCacheIsTheSameWhateverStreams) {
    std::string plain, text;
    const nlohmann::json all = stats_of({"--draft", "none", "--kv-type", "q8"}, plain);
    EXPECT_EQ(all["plan"]["kv_type"], "Q8");
    const nlohmann::json wide = stats_of({"--draft", "none"}, text);
    EXPECT_EQ(all["plan"]["kv_bytes"].get<std::size_t>() * 128, wide["plan"]["kv_bytes"].get<std::size_t>() * 68);
    for (const std::vector<std::string>& options :
         {std::vector<std::string>{"--draft", "none", "--device-memory", "16M"},
          {"--draft", "context,recycling", "--device-memory", "17M", "--self-check", "--budget", "8"},
          {"--draft", "retrieval", "--budget", "8"},
          {"--draft", "context", "--devices", "cpu,cpu", "--split", "layers"},
          // Shares are named, since planned ones follow measured rates.
          {"--draft", "context", "--devices", "cpu,cpu", "--split", "layers", "--shares", "1,1", "--device-memory",
           "12M,12M", "--budget", "8"}}) {
        std::vector<std::string> with_type = options;
        with_type.insert(with_type.end(), {"--kv-type", "q8"});
        const nlohmann::json stats = stats_of(with_type, text);
        EXPECT_EQ(text, plain) << testing::PrintToString(options);
        if (std::ranges::find(options, "--self-check") != options.end()) {
            EXPECT_EQ(stats["exact"], true);
        }
    }
}

TEST(Offload, TheSelfCheckHoldsWhereThingsStream) {
    std::string text;
    const nlohmann::json stats =
        stats_of({"--draft", "context", "--device-memory", "24M", "--self-check", "--budget", "8"}, text);
    EXPECT_EQ(stats["exact"], true);
    EXPECT_NE(stats["regime"], "all fits");
}

// A small budget, as README's streaming example has one: the self-check computes in smaller steps, with a message,
// before the tree of draft tokens shrinks.
TEST(Offload, TheSelfCheckTakesTheMemoryThatThereIs) {
    for (const char* memory : {"15M", "17M"}) {
        for (const char* draft : {"--draft=auto", "--draft=none"}) {
            ProgramRun run;
            run.arguments = {"generate", "--device-memory", memory, "--prompt",     "Once upon a time", "-n",
                             "30",       "--self-check",    draft,  "--tables=off", "--stats=-",        "--no-config"};
            const ProgramResult result = run_program(run);
            ASSERT_EQ(result.code, 0) << memory << result.err;
            EXPECT_THAT(result.out, HasSubstr("\"exact\":true")) << memory;
            EXPECT_THAT(result.err, HasSubstr("the self-check computes")) << memory;
        }
    }
}

TEST(Offload, WhatCannotBeDoneIsSaidInOneLine) {
    const auto refused = [](std::vector<std::string> more, int code, const char* words) {
        more.insert(more.end(), {"--draft", "none"});
        const ProgramResult result = run_program(generate(std::move(more)));
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_THAT(result.err, HasSubstr(words));
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    };
    refused({"--device-memory", "2M"}, 1, "--device-memory 13M or more");
    refused({"--device-memory", "13M", "--self-check"}, 1, "--self-check, which computes again, is part of it");
    refused({"--device-memory", "20M", "--ring", "4k"}, 1, "ring");
    refused({"--device-memory", "20M", "--host-memory", "1M"}, 1, "--host-memory");
    refused({"--device-memory", "lots"}, 2, "a size from 1 byte to");
    refused({"--device-memory", "1G,1G"}, 2, "2 values for 1 device");
    refused({"--device-memory", "0"}, 2, "a size from 1 byte to");
    refused({"--link-gib-s", "2"}, 2, "--device-memory");
    refused({"--device-memory", "20M", "--link-gib-s", "-1"}, 2, "GiB a second");
    refused({"--device-memory", "20M", "--link-gib-s", "1e-9"}, 2, "GiB a second");
    refused({"--device-memory", "20M", "--experts", "gpu"}, 2, "--experts: auto, copy or cpu expected, found 'gpu'");
    refused({"--experts", "cpu"}, 2, "--experts has an effect only if something streams");
    refused({"--device-memory", "20M", "--experts", "copy"}, 1, "has no experts; leave it out");
}

}  // namespace
}  // namespace slipstream::tools
