// What the program says and answers when it cannot do what was asked: one line, and the right exit code.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

// Runs, and checks the code and the form of the answer.
std::string answer(int code, const std::vector<std::string>& arguments) {
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("slipstream: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
}

TEST(Failures, UsageErrorsAreTwo) {
    EXPECT_THAT(answer(2, {}), HasSubstr("no command"));
    EXPECT_THAT(answer(2, {"sing"}), HasSubstr("'sing'"));
    EXPECT_THAT(answer(2, {"generate", "--nonsense"}), HasSubstr("--nonsense"));
    EXPECT_THAT(answer(2, {"generate", "--prompt"}), HasSubstr("--prompt"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--max-tokens", "many"}), HasSubstr("'many'"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--temperature", "-1"}), HasSubstr("--temperature"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--top-p", "1.1"}), HasSubstr("from 0 to 1"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--kv-type", "q8"}), HasSubstr("8-bit"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--draft", "suffix"}), HasSubstr("'suffix'"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--devices", "gpu"}), HasSubstr("'gpu'"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--threads", "0"}), HasSubstr("--threads"));
    EXPECT_THAT(answer(2, {"generate", "-ngl", "99"}), HasSubstr("-ngl"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "-q", "-v"}), HasSubstr("exclude"));
    EXPECT_THAT(answer(2, {"perplexity"}), HasSubstr("--file"));
    EXPECT_THAT(answer(2, {"perplexity", "--tokens", "x"}), HasSubstr("--logits"));
    EXPECT_THAT(answer(2, {"perplexity", "--file", "x", "--pass", "2"}), HasSubstr("--pass"));
    EXPECT_THAT(answer(2, {"tokenize", "--detokenize", "--ids"}), HasSubstr("--ids"));
}

TEST(Failures, WhatCannotBeServedIsOne) {
    const TemporaryFolder folder;
    EXPECT_THAT(answer(1, {"generate", "--prompt", "x", "--devices", "cuda:0"}), HasSubstr("no CUDA backend"));
    EXPECT_THAT(answer(1, {"generate", "--prompt", "x", "--devices", "cpu,cpu"}), HasSubstr("several devices"));
    EXPECT_THAT(answer(1, {"generate", "--prompt", "x", "-m", "no-such-model"}), HasSubstr("no model of that name"));
    EXPECT_THAT(answer(1, {"inspect", "/nonexistent/file.gguf"}), HasSubstr("/nonexistent/file.gguf"));
    EXPECT_THAT(answer(1, {"inspect", folder.path().string()}), HasSubstr("without a model"));
    EXPECT_THAT(answer(1, {"inspect", folder.write("x.gguf", "no model at all").string()}),
                HasSubstr("not a GGUF file"));
    EXPECT_THAT(answer(1, {"generate", "--prompt-file", "/nonexistent"}), HasSubstr("/nonexistent"));
    EXPECT_THAT(answer(1, {"generate", "--prompt", "one two three four five six", "--ctx", "4"}), HasSubstr("--ctx"));
    EXPECT_THAT(answer(1, {"generate", "--prompt", "x", "--output", "/nonexistent/text"}), HasSubstr("--output"));
    EXPECT_THAT(answer(1, {"perplexity", "--tokens", folder.write("ids", "1 99999").string(), "--logits", "x"}),
                HasSubstr("'99999'"));
}

TEST(Failures, AFullDiskIsSaid) {
    const TemporaryFolder folder;
    EXPECT_THAT(
        answer(1, {"generate", "--prompt", "x", "--max-tokens", "5", "--temperature", "0", "--output", "/dev/full"}),
        HasSubstr("No space left"));
    const std::string ids = folder.write("ids", "1 2 3").string();
    EXPECT_THAT(answer(1, {"perplexity", "--tokens", ids, "--logits", "/dev/full"}), HasSubstr("No space left"));
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
    ProgramRun run{.arguments = {"generate", "--prompt", "x", "--max-tokens", "5", "--temperature", "0"},
                   .input = "",
                   .environment = {},
                   .stdout_path = "/dev/full"};
    EXPECT_EQ(run_program(run).code, 1);
}

TEST(Failures, ABadNameStaysOneLine) {
    EXPECT_THAT(answer(1, {"inspect", "/no\nsuch\x1b[31mfile"}), HasSubstr("\\x0A"));
}

}  // namespace
}  // namespace slipstream::tools
