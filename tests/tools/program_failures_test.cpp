// What the program says and answers when it cannot do what was asked: one line, and the right exit code.
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
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
    EXPECT_THAT(answer(2, {"sing"}), HasSubstr("'sing'"));
    EXPECT_THAT(answer(2, {"generate", "--nonsense"}), HasSubstr("--nonsense"));
    EXPECT_THAT(answer(2, {"generate", "--prompt"}), HasSubstr("--prompt"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--max-tokens", "many"}), HasSubstr("'many'"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--temperature", "-1"}), HasSubstr("--temperature"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--top-p", "1.1"}), HasSubstr("from 0 to 1"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--kv-type", "q4"}), HasSubstr("f32 or q8 expected"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--draft", "magic"}), HasSubstr("'magic'"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--devices", "gpu"}), HasSubstr("'gpu'"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--threads", "0"}), HasSubstr("--threads"));
    EXPECT_THAT(answer(2, {"generate", "-ngl", "20"}), HasSubstr("-ngl 20"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "-q", "-v"}), HasSubstr("exclude"));
    EXPECT_THAT(answer(2, {"perplexity"}), HasSubstr("--file"));
    EXPECT_THAT(answer(2, {"perplexity", "--tokens", "x"}), HasSubstr("--logits"));
    EXPECT_THAT(answer(2, {"perplexity", "--file", "x", "--pass", "2"}), HasSubstr("--pass"));
    EXPECT_THAT(answer(2, {"tokenize", "--detokenize", "--ids"}), HasSubstr("--ids"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--stop", ""}), HasSubstr("--stop"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "-m", ""}), HasSubstr("--model"));
    EXPECT_THAT(answer(2, {"inspect", ""}), HasSubstr("--model"));
    EXPECT_THAT(answer(2, {"generate", "--prompt-file", ""}), HasSubstr("--prompt-file"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--token-ids", "-"}), HasSubstr("--token-ids"));
    EXPECT_THAT(answer(2, {"generate", "--prompt", "x", "--output", "/nonexistent/x", "--stats", "/nonexistent/./x"}),
                HasSubstr("--output and --stats"));
}

TEST(Failures, WhatCannotBeServedIsOne) {
    const TemporaryFolder folder;
    EXPECT_THAT(answer(1, {"generate", "--prompt", "x", "--devices", "cuda:99"}), HasSubstr("use --devices cpu"));
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
    const ProgramResult logged =
        run_program({"generate", "x", "-n", "5", "--tables", "off", "--log-file", "/dev/full"});
    EXPECT_EQ(logged.code, 0) << "the text is what was asked for";
    EXPECT_THAT(logged.err, StartsWith("slipstream: --log-file /dev/full: cannot be written: No space left"));
    EXPECT_EQ(logged.err.find("--log-file", 20), std::string::npos) << logged.err;
    ProgramRun run{.arguments = {"generate", "--prompt", "x", "--max-tokens", "5", "--temperature", "0"},
                   .input = "",
                   .environment = {},
                   .stdout_path = "/dev/full"};
    EXPECT_EQ(run_program(run).code, 1);
}

// A copy of the bundled model that a test may damage.
class DamagedModel : public testing::Test {
protected:
    DamagedModel() { fs::copy(source_path("tools/demo_model/target"), model()); }
    [[nodiscard]] fs::path model() const { return folder_.path() / "model"; }
    /// Every `from` in a file of it becomes `to`, of the same length in binary files.
    void replace(const std::string& file, const std::string& from, const std::string& to) {
        std::string bytes = file_text((model() / file).string());
        ASSERT_NE(bytes.find(from), std::string::npos);
        for (std::size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
            bytes.replace(at, from.size(), to);
        folder_.write(fs::path("model") / file, bytes);
    }
    /// inspect and generate agree that the model is not served.
    [[nodiscard]] std::string refusal() const {
        const std::string inspected = answer(1, {"inspect", model().string()});
        EXPECT_EQ(answer(1, {"generate", "-m", model().string(), "--prompt", "x"}), inspected);
        return inspected;
    }

    TemporaryFolder folder_;
};

TEST_F(DamagedModel, AMissingTensorIsFoundByInspect) {
    replace("config.json", "\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7");
    EXPECT_THAT(refusal(), HasSubstr("model.layers.6"));
}

TEST_F(DamagedModel, AWrongShapeIsFoundByInspect) {
    replace("config.json", "\"intermediate_size\": 768", "\"intermediate_size\": 512");
    EXPECT_THAT(refusal(), HasSubstr("shape [768, 256]"));
}

TEST_F(DamagedModel, ABrokenChatTemplateIsFoundByInspect) {
    folder_.write("model/chat_template.jinja", "{% bogus %}");
    const ProgramResult inspected = run_program({"inspect", model().string()});
    EXPECT_EQ(inspected.code, 1);
    EXPECT_THAT(inspected.out, HasSubstr("chat template"));
    EXPECT_THAT(inspected.err, HasSubstr("unknown tag 'bogus'"));
    EXPECT_THAT(answer(1, {"generate", "-m", model().string(), "--prompt", "x"}), HasSubstr("unknown tag 'bogus'"));
}

TEST_F(DamagedModel, AFoldersNameStaysOnOneLine) {
    const fs::path other = folder_.path() /
                           "b\xff"
                           "d\n\xE2\x80\xAE";
    fs::rename(model(), other);
    const ProgramResult shown = run_program({"inspect", other.string()});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("b\\xFFd\\x0A\\xE2\\x80\\xAE"));
}

TEST_F(DamagedModel, ATypeThatIsNotServedIsFoundByInspect) {
    replace("model.safetensors", "\"BF16\"", "\"I16\" ");
    EXPECT_THAT(refusal(), HasSubstr("type I16"));
}

TEST_F(DamagedModel, ACutTokenizerIsFoundByInspect) {
    fs::resize_file(model() / "tokenizer.model", 30001);
    EXPECT_THAT(refusal(), HasSubstr("tokenizer.model"));
}

TEST_F(DamagedModel, ATokenizerOfAnotherKindLeavesTheModelUsable) {
    fs::remove(model() / "tokenizer.model");
    const auto report = [&] {
        const ProgramResult result = run_program({"inspect", model().string()});
        EXPECT_EQ(result.code, 1) << "as of generate";
        EXPECT_FALSE(result.err.empty());
        return result.out;
    };
    EXPECT_THAT(report(), HasSubstr("none (token ids are served"));
    folder_.write("model/tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})");
    EXPECT_THAT(report(), HasSubstr("not served: "));
}

TEST_F(DamagedModel, LogitsThatAreNoNumbersAreAnError) {
    std::string bytes = file_text((model() / "model.safetensors").string());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    std::fill(bytes.begin() + 8 + static_cast<std::ptrdiff_t>(header_bytes), bytes.end(), '\xff');  // NaN in bf16
    folder_.write("model/model.safetensors", bytes);
    const std::string message = "the model's logits are not numbers";
    EXPECT_THAT(answer(1, {"generate", "-m", model().string(), "--prompt", "x"}), HasSubstr(message));
    const std::string text = folder_.write("text", "Once upon a time").string();
    EXPECT_THAT(answer(1, {"perplexity", "-m", model().string(), "--file", text}), HasSubstr(message));
    const std::string ids = folder_.write("ids", "5 6").string();
    const std::string logits = (folder_.path() / "logits").string();
    EXPECT_THAT(answer(1, {"perplexity", "-m", model().string(), "--tokens", ids, "--logits", logits}),
                AllOf(HasSubstr(message), HasSubstr("after token 1, id 5")));
    EXPECT_FALSE(fs::exists(logits));
}

TEST_F(DamagedModel, ItsSamplingDefaultsAreNamedWhereTheyAreWrong) {
    folder_.write("model/generation_config.json", R"({"top_p": 1.5})");
    EXPECT_THAT(answer(1, {"generate", "-m", model().string(), "--prompt", "x"}),
                AllOf(HasSubstr("generation_config.json: top_p"), HasSubstr("--top-p")));
    EXPECT_EQ(run_program({"generate", "-m", model().string(), "-p", "x", "-n", "1", "--top-p", "0.9"}).code, 0);
}

TEST_F(DamagedModel, ItsFilesAreNeverWrittenTo) {
    const std::string before = file_text((model() / "model.safetensors").string());
    fs::create_hard_link(model() / "model.safetensors", folder_.path() / "innocent");
    for (const char* option : {"--output", "--token-ids", "--stats", "--trace", "--log-file"}) {
        for (const fs::path& file : {model() / "model.safetensors", folder_.path() / "innocent"})
            EXPECT_THAT(answer(1, {"generate", "-m", model().string(), "--prompt", "x", option, file.string()}),
                        AllOf(HasSubstr(option), HasSubstr("a file of the model")));
    }
    const std::string ids = folder_.write("ids", "5 6").string();
    EXPECT_THAT(answer(1, {"perplexity", "-m", model().string(), "--tokens", ids, "--logits",
                           (model() / "tokenizer.model").string()}),
                HasSubstr("a file of the model"));
    EXPECT_EQ(file_text((model() / "model.safetensors").string()), before);
}

TEST(Failures, APipeIsNoModel) {
    const TemporaryFolder folder;
    const std::string pipe = (folder.path() / "model.gguf").string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_THAT(answer(1, {"tokenize", "-m", pipe}), HasSubstr("not a regular file"));
    EXPECT_THAT(answer(1, {"inspect", pipe}), HasSubstr("not a regular file"));
}

TEST(Failures, PlacesThatCannotBeWrittenAreFoundBeforeTheWork) {
    for (const char* option : {"--stats", "--token-ids"})  // answer() checks that no text came
        EXPECT_THAT(answer(1, {"generate", "--prompt", "x", "--max-tokens", "1", option, "/nonexistent/f"}),
                    HasSubstr("/nonexistent/f"));
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "Once upon a time").string();
    EXPECT_THAT(answer(1, {"perplexity", "--file", text, "--stats", "/nonexistent/f"}), HasSubstr("/nonexistent/f"));
}

TEST(Failures, IdsThatCannotBeWrittenDoNotLoseTheStatistics) {
    const TemporaryFolder folder;
    const std::string stats = (folder.path() / "stats").string();
    const ProgramResult result =
        run_program({"generate", "-p", "x", "-n", "3", "--token-ids", "/dev/full", "--stats", stats});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("/dev/full"));
    EXPECT_THAT(file_text(stats), HasSubstr("\"generated_tokens\": 3"));
}

// Somebody with a right to the folder knows under which names files are written before they have their own.
TEST(UserFiles, ALinkThatIsPlantedBesideOneIsLeftAlone) {
    const TemporaryFolder folder;
    const std::string victim = folder.write("victim", "precious").string();
    const std::string file = (folder.path() / "f").string();
    const std::string plant = fmt::format(
        "ln -s {0} {1}.$$.part; for i in 0 1 2 3 4 5 6 7 8 9; do ln -s {0} {1}.$$-$i.part; done; ", victim, file);
    for (const std::vector<std::string>& writes :
         {std::vector<std::string>{"generate", "-p", "x", "-n", "3", "--stats", file},
          {"generate", "-p", "x", "-n", "3", "--token-ids", file},
          {"tables", "build", victim, "--kind", "corpus", "-o", file},
          {"chat", "-n", "3", "--session", file},
          {"generate", "-p", "x", "-n", "3", "--session", file}}) {
        fs::remove(file);
        ProgramRun run{.arguments = writes, .input = "hello\n"};
        run.shell = plant + "exec \"$0\" \"$@\"";
        const ProgramResult result = run_program(run);
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_EQ(file_text(victim), "precious") << writes[0];
        EXPECT_TRUE(fs::is_regular_file(file)) << writes[0];
        EXPECT_FALSE(fs::is_symlink(file)) << writes[0];
    }
}

TEST(UserFiles, NewOnesOfPrivateTextsAreForTheirOwnerAndModesAreKept) {
    using fs::perms;
    const perms own = perms::owner_read | perms::owner_write;
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "f").string();
    const auto run = [&](const std::vector<std::string>& writes) {
        ProgramRun program{.arguments = writes, .input = "hello\n"};
        program.shell = "umask 022; exec \"$0\" \"$@\"";
        const ProgramResult result = run_program(program);
        EXPECT_EQ(result.code, 0) << result.err;
        return fs::status(file).permissions();
    };
    const std::vector<std::string> session{"generate", "-p", "x", "-n", "3", "--session", file};
    EXPECT_EQ(run(session), own);
    fs::remove(file);
    const std::vector<std::string> stats{"generate", "-p", "x", "-n", "3", "--stats", file};
    EXPECT_EQ(run(stats), own | perms::group_read | perms::others_read);
    for (const perms mode : {own, own | perms::group_read}) {
        fs::permissions(file, mode);
        EXPECT_EQ(run(stats), mode);
    }
    fs::remove(file);
    const std::vector<std::string> chat{"chat", "-n", "3", "--session", file};
    EXPECT_EQ(run(chat), own);
    for (const perms mode : {own, own | perms::group_read | perms::others_read}) {
        fs::permissions(file, mode);
        EXPECT_EQ(run(chat), mode);
    }
}

TEST(Failures, AFileThatMayNotGrowIsSaid) {
    const TemporaryFolder folder;
    ProgramRun run;
    run.arguments = {"perplexity", "--tokens", folder.write("ids", "1 2 3").string(), "--logits",
                     (folder.path() / "logits").string()};
    run.shell = R"(ulimit -f 8; exec "$0" "$@")";
    const ProgramResult result = run_program(run);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("File too large"));
    EXPECT_FALSE(fs::exists(folder.path() / "logits"));
}

TEST(Failures, ClosedDescriptorsAreNoFilesOfOurs) {
    const TemporaryFolder folder;
    const std::string text = (folder.path() / "text").string();
    ProgramRun run;
    run.arguments = {"generate", "-p", "Once", "-n", "5", "--temp", "0", "--output", text};
    run.shell = R"(exec "$0" "$@" <&- >&- 2>&-)";
    EXPECT_EQ(run_program(run).code, 0);
    EXPECT_EQ(file_text(text), run_program({"generate", "-p", "Once", "-n", "5", "--temp", "0"}).out);
    // Text that has no way out is an error, and so is a prompt that has no way in.
    run.arguments = {"generate", "-p", "Once", "-n", "5"};
    run.shell = R"(exec "$0" "$@" >&-)";
    const ProgramResult mute = run_program(run);
    EXPECT_EQ(mute.code, 1);
    EXPECT_THAT(mute.err, HasSubstr("stdout"));
    run.arguments = {"generate", "-n", "5"};
    run.shell = R"(exec "$0" "$@" <&-)";
    const ProgramResult deaf = run_program(run);
    EXPECT_EQ(deaf.code, 1);
    EXPECT_THAT(deaf.err, HasSubstr("stdin"));
}

TEST(Failures, ABadNameStaysOneLine) {
    EXPECT_THAT(answer(1, {"inspect", "/no\nsuch\x1b[31mfile"}), HasSubstr("\\x0A"));
}

// What has no end is refused by its kind, and what no context holds before it is tokenised.
TEST(Failures, TextsThatCannotBeOnesAreRefusedAtOnce) {
    const TemporaryFolder folder;
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"tokenize", "--file", "/dev/zero"}, {"perplexity", "--file", "/dev/zero"}}) {
        const ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.code, 1) << arguments[0];
        EXPECT_THAT(result.err, testing::HasSubstr("a device")) << arguments[0];
    }
    // Many tokens more than the bundled model's context; said of bytes, so nothing was tokenised.
    const std::string file = folder.write("long", std::string(std::size_t{3} << 20, 'a')).string();
    const ProgramResult result = run_program({"generate", "--prompt-file", file, "-n", "1"});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, testing::HasSubstr("the prompt has 3.0 MiB, more than the "));
}

}  // namespace
}  // namespace slipstream::tools
