// slipstream tables: what is built serves, is told, and appears whole or not at all.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class Tables : public testing::Test {
protected:
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
    /// A fairy tale's worth of text, some of it again and again.
    [[nodiscard]] std::string text_file(const std::string& name, int n_lines) const {
        std::string text;
        for (int i = 0; i < n_lines; ++i)
            text += fmt::format("Once upon a time there was a king who had {} sons and {} daughters.\n", i % 7,
                                (i % 91) * (i % 91) % 91);
        return folder_.write(name, text).string();
    }
    static ProgramResult build(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"tables", "build"});
        return run_program(arguments);
    }
    static nlohmann::json inspected(const std::string& what) {
        const ProgramResult result = run_program({"tables", "inspect", what, "--json"});
        EXPECT_EQ(result.code, 0) << result.err;
        return nlohmann::json::parse(result.out)["tables"];
    }
    [[nodiscard]] std::ptrdiff_t n_files() const {
        return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
    }

    TemporaryFolder folder_;
};

TEST_F(Tables, BuildsAFrozenTableOfTextFiles) {
    const std::string one = text_file("one.txt", 300);
    const std::string other = folder_.write("other.txt", "The fisherman went to the sea.").string();
    const ProgramResult result =
        build({"--kind", "cacheback", "--cacheback", "ll=1,fl=2,lc=50,fc=4", "-o", path("a.table"), one, other});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("--frozen-table " + path("a.table")));
    const nlohmann::json table = inspected(path("a.table"))[0];
    EXPECT_EQ(table["bytes"], fs::file_size(path("a.table")));
    EXPECT_TRUE(table["damage"].is_null());
    const nlohmann::json& section = table["sections"][0];
    EXPECT_EQ(section["name"], "cacheback-frozen");
    EXPECT_EQ(section["ll"], 1);
    EXPECT_EQ(section["fl"], 2);
    EXPECT_EQ(section["vocab"], 4096);
    EXPECT_GT(section["n_leaders"], 20);
    EXPECT_LE(section["n_leaders"], 50);
    EXPECT_LE(section["n_followers"], 4 * section["n_leaders"].get<int>());
    // Options may stand between the files; the bytes do not depend on their order.
    ASSERT_EQ(build({other, "--kind", "cacheback", one, "-o", path("b.table"), "--cacheback", "fl=2,lc=50,fc=4"}).code,
              0);
    EXPECT_EQ(file_text(path("b.table")), file_text(path("a.table")));
    const std::string listed = run_program({"tables", "inspect", path("a.table")}).out;
    EXPECT_THAT(listed, testing::AllOf(HasSubstr("n_leaders"), testing::ContainsRegex("[0-9.]+ (bytes|KiB)  ")));
}

TEST_F(Tables, BuildsACorpusStore) {
    const ProgramResult result =
        build({"--kind", "corpus", "-o", path("c.table"), text_file("one.txt", 50), text_file("two.txt", 20)});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("2 documents"));
    const nlohmann::json section = inspected(path("c.table"))[0]["sections"][0];
    EXPECT_EQ(section["name"], "corpus");
    EXPECT_EQ(section["n_documents"], 2);
    EXPECT_GT(section["n_tokens"], 1000);
}

TEST_F(Tables, BuildsTheNgramsOfAModel) {
    const std::string tables = path("tables");
    const ProgramResult result = build({"--kind", "bigram", "--tables", tables, "--threads", "1"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("-bigram.table"));
    ASSERT_EQ(build({"--kind", "bigram", "-o", path("elsewhere.table")}).code, 0);
    const nlohmann::json listed = inspected(tables);
    ASSERT_EQ(listed.size(), 1U);
    EXPECT_EQ(listed[0]["sections"][0]["name"], "bigram");
    EXPECT_EQ(file_text(listed[0]["path"]), file_text(path("elsewhere.table")));
    // Tables in a folder are named after their model; elsewhere nothing tells of one.
    const std::string bundled = nlohmann::json::parse(run_program({"models", "--json"}).out)["models"][0]["name"];
    EXPECT_EQ(listed[0]["model"], bundled);
    EXPECT_THAT(run_program({"tables", "inspect", tables}).out,
                testing::ContainsRegex(fmt::format("-bigram.table  [0-9.]+ KiB, for {}\n", bundled)));
    EXPECT_TRUE(inspected(path("elsewhere.table"))[0]["model"].is_null());
}

TEST_F(Tables, WhatWasBuiltServesAndLeavesTheTextAsItIs) {
    const std::string text = text_file("one.txt", 100);
    ASSERT_EQ(build({"--kind", "cacheback", "-o", path("f.table"), text}).code, 0);
    ASSERT_EQ(build({"--kind", "corpus", "-o", path("c.table"), text}).code, 0);
    const auto generate = [](std::vector<std::string> more) {
        std::vector<std::string> arguments{
            "generate", "--prompt", "Once upon a time there was", "--max-tokens", "60", "--temperature", "0",
            "--tables", "off"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.code, 0) << result.err;
        return result.out;
    };
    const std::string plain = run_program({"generate", "--prompt", "Once upon a time there was", "--max-tokens", "60",
                                           "--temperature", "0", "--draft", "none"})
                                  .out;
    EXPECT_EQ(generate({"--draft", "cacheback", "--frozen-table", path("f.table")}), plain);
    EXPECT_EQ(generate({"--draft", "corpus", "--corpus", path("c.table")}), plain);
    EXPECT_GT(plain.size(), 100U);
}

TEST_F(Tables, UsageErrorsAreTwo) {
    const auto refusal = [](const std::vector<std::string>& arguments) {
        const ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.code, 2) << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        return result.err;
    };
    const std::string text = text_file("one.txt", 5);
    EXPECT_THAT(refusal({"tables"}), HasSubstr("build or inspect"));
    EXPECT_THAT(refusal({"tables", "make"}), HasSubstr("'make'"));
    EXPECT_THAT(refusal({"tables", "build", text}), HasSubstr("--kind"));
    EXPECT_THAT(refusal({"tables", "build", text, "--kind", "soup"}), HasSubstr("'soup'"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "corpus"}), HasSubstr("text files"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "bigram", text}), HasSubstr("leave the text files out"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "bigram", "--tables", "off"}), HasSubstr("--output"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "corpus", text, "--cacheback", "ll=2"}),
                HasSubstr("--cacheback"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "cacheback", text, "--cacheback", "ll=x"}), HasSubstr("ll"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "corpus", text, "--json"}), HasSubstr("--json"));
    EXPECT_THAT(refusal({"tables", "build", "--kind", "corpus", "-o", text, path("other"), text}),
                HasSubstr("same file"));
    EXPECT_THAT(refusal({"tables", "inspect", text, text}), HasSubstr("one file or folder"));
    EXPECT_THAT(refusal({"tables", "inspect", text, "--kind", "corpus"}), HasSubstr("--kind"));
    EXPECT_EQ(n_files(), 1);
}

TEST_F(Tables, WhatCannotBeBuiltIsOne) {
    const std::string text = text_file("one.txt", 5);
    const auto refusal = [](const std::vector<std::string>& arguments) {
        const ProgramResult result = build(arguments);
        EXPECT_EQ(result.code, 1) << result.err;
        return result.err;
    };
    EXPECT_THAT(refusal({"--kind", "cacheback", path("none")}), HasSubstr("none"));
    EXPECT_THAT(refusal({"--kind", "cacheback", folder_.write("empty", "").string()}), HasSubstr("give more text"));
    EXPECT_THAT(refusal({"--kind", "corpus", "-m", path("none"), text}), HasSubstr("none"));
    EXPECT_THAT(refusal({"--kind", "cacheback", "-o", "/dev/full", text}), HasSubstr("/dev/full"));
    EXPECT_THAT(refusal({"--kind", "cacheback", "-o", text + "/x", text}), HasSubstr("one.txt"));
    EXPECT_EQ(n_files(), 2);
}

TEST_F(Tables, DamageIsToldAndNothingElseSuffers) {
    const std::string text = text_file("one.txt", 5);
    ASSERT_EQ(build({"--kind", "cacheback", "-o", path("good.table"), text}).code, 0);
    std::string bytes = file_text(path("good.table"));
    bytes[bytes.size() / 2] ^= 1;
    folder_.write("bad.table", bytes);
    const ProgramResult alone = run_program({"tables", "inspect", path("bad.table")});
    EXPECT_EQ(alone.code, 1);
    EXPECT_THAT(alone.err, HasSubstr("checksum"));
    const nlohmann::json listed = inspected(folder_.path().string());
    ASSERT_EQ(listed.size(), 2U);  // the text is no table
    EXPECT_THAT(listed[0]["damage"].get<std::string>(), HasSubstr("checksum"));
    EXPECT_TRUE(listed[1]["damage"].is_null());
    EXPECT_THAT(run_program({"tables", "inspect", folder_.path().string()}).out, HasSubstr("cannot be used"));
}

TEST_F(Tables, AnEmptyFolderIsNoError) {
    const ProgramResult result = run_program({"tables", "inspect", "--tables", path("none")});
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("no tables here"));
}

TEST_F(Tables, AnInterruptLeavesNothingBehind) {
    const std::string text = text_file("long.txt", 300'000);  // seconds of work
    for (const char* kind : {"cacheback", "corpus"}) {
        ProgramRun run;
        run.arguments = {"tables", "build", "--kind", kind, "-o", path("t.table"), text};
        RunningProgram program(run);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        program.send(SIGINT);
        const ProgramResult result = program.finish();
        EXPECT_EQ(result.code, 130) << kind;
        EXPECT_EQ(result.err, "slipstream: interrupted\n") << kind;
        EXPECT_EQ(n_files(), 1) << kind;
    }
    // While it waits for its text.
    const std::string pipe = path("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    ProgramRun run;
    run.arguments = {"tables", "build", "--kind", "corpus", "-o", path("t.table"), pipe};
    RunningProgram program(run);
    program.wait_until_asleep();
    program.send(SIGTERM);
    EXPECT_EQ(program.finish().code, 143);
    EXPECT_EQ(n_files(), 2);
}

}  // namespace
}  // namespace slipstream::tools
