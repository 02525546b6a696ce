// Precedence from end to end: command line, environment, configuration file, the model's generation_config, built in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The bundled model with files of a test beside it.
class ProgramSettings : public testing::Test {
protected:
    ProgramSettings() {
        fs::create_directory(folder_.path() / "model");
        for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"})
            fs::create_symlink(source_path("tools/demo_model/target/") + name, folder_.path() / "model" / name);
    }
    ProgramResult run(const std::vector<std::string>& more,
                      const std::map<std::string, std::string>& environment = {}) {
        ProgramRun run;
        run.arguments = {"generate", "-m", (folder_.path() / "model").string(), "--prompt", "x", "--max-tokens",
                         "1",        "-v"};
        run.arguments.insert(run.arguments.end(), more.begin(), more.end());
        run.environment = environment;
        run.environment["XDG_CONFIG_HOME"] = (folder_.path() / "config").string();
        return run_program(run);
    }

    TemporaryFolder folder_;
};

TEST_F(ProgramSettings, ATypoInTheFileDoesNotHideTheVersion) {
    folder_.write("config/slipstream/config.toml", "thraeds = 4\n");
    ProgramRun version;
    version.arguments = {"version"};
    version.environment["XDG_CONFIG_HOME"] = (folder_.path() / "config").string();
    const ProgramResult result = run_program(version);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, testing::StartsWith("slipstream "));
    EXPECT_THAT(result.err, HasSubstr("config.toml:1: thraeds"));
    EXPECT_EQ(run({}).code, 2) << "what takes settings from it is stopped";
    version.arguments = {"version", "--config", (folder_.path() / "config/slipstream/config.toml").string()};
    EXPECT_EQ(run_program(version).code, 2) << "a file that was named";
}

TEST_F(ProgramSettings, EachLevelGoesBeforeTheNext) {
    EXPECT_THAT(run({}).err, HasSubstr("temperature = 0.8 (built in)"));
    folder_.write("model/generation_config.json", R"({"temperature": 0.5, "top_k": 7, "eos_token_id": 2})");
    EXPECT_THAT(run({}).err,
                AllOf(HasSubstr("temperature = 0.5 (the model's generation_config)"),
                      HasSubstr("top-k = 7 (the model's generation_config)"), HasSubstr("top-p = 0.95 (built in)")));
    const std::string config =
        folder_.write("config/slipstream/config.toml", "[generate]\ntemperature = 0.4\n").string();
    EXPECT_THAT(run({}).err, HasSubstr("temperature = 0.4 (" + config + ":2: temperature)"));
    EXPECT_THAT(run({}, {{"SLIPSTREAM_TEMPERATURE", "0.3"}}).err,
                HasSubstr("temperature = 0.3 (SLIPSTREAM_TEMPERATURE)"));
    EXPECT_THAT(run({"--temp", "0.2"}, {{"SLIPSTREAM_TEMPERATURE", "0.3"}}).err,
                HasSubstr("temperature = 0.2 (--temperature)"));
    EXPECT_THAT(run({"--no-config"}).err, HasSubstr("temperature = 0.5 (the model's"));
    const std::string other = folder_.write("other.toml", "temperature = 0.1\n").string();
    EXPECT_THAT(run({"--config", other}).err, HasSubstr("temperature = 0.1 (" + other));
}

TEST_F(ProgramSettings, AModelMayAskForGreedy) {
    folder_.write("model/generation_config.json", R"({"do_sample": false, "temperature": 0.7})");
    EXPECT_THAT(run({}).err, HasSubstr("temperature = 0 (the model's generation_config)"));
    EXPECT_THAT(run({"--temperature", "0.7"}).err, HasSubstr("temperature = 0.7 (--temperature)"));
}

TEST_F(ProgramSettings, MalformedOnesAreUsageErrors) {
    const ProgramResult environment = run({}, {{"SLIPSTREAM_CTX", "much"}});
    EXPECT_EQ(environment.code, 2);
    EXPECT_THAT(environment.err, HasSubstr("SLIPSTREAM_CTX"));
    const std::string config = folder_.write("config/slipstream/config.toml", "ctx = \"much\"\n").string();
    const ProgramResult file = run({});
    EXPECT_EQ(file.code, 2);
    EXPECT_THAT(file.err, HasSubstr(config + ":1: ctx"));
    const ProgramResult absent = run({"--config", "/nonexistent.toml"});
    EXPECT_EQ(absent.code, 2);
    EXPECT_THAT(absent.err, HasSubstr("/nonexistent.toml"));
}

TEST_F(ProgramSettings, TheEnvironmentNamesModels) {
    ProgramRun run;
    run.arguments = {"inspect", "MODEL"};
    run.environment["SLIPSTREAM_MODELS"] = folder_.path().string();
    const ProgramResult found = run_program(run);
    EXPECT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr((folder_.path() / "model/model.safetensors").string()));
    run.arguments = {"models"};
    EXPECT_THAT(run_program(run).out, HasSubstr((folder_.path() / "model").string()));
}

TEST_F(ProgramSettings, AChatTemplateIsMentioned) {
    folder_.write("model/chat_template.jinja", "{{ messages }}");
    EXPECT_THAT(run({}).err, HasSubstr("chat template"));
    EXPECT_THAT(run({"--no-template"}).err, Not(HasSubstr("chat template")));
}

TEST_F(ProgramSettings, MessagesGoToTheLogFileToo) {
    const std::string log = (folder_.path() / "log").string();
    const ProgramResult result = run({"--log-file", log});
    EXPECT_THAT(file_text(log), AllOf(HasSubstr("temperature = "), HasSubstr("1 token in")));
    EXPECT_EQ(result.code, 0);
}

}  // namespace
}  // namespace slipstream::tools
