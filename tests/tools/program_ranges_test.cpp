// Every option that takes numbers tells what it takes: absurd values are refused in one line that names the option and
// the range.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/options/command.h"

namespace slipstream::tools {
namespace {

using Arguments = std::vector<std::string>;

// Values that are no numbers, by what stands for them in the help; "LIST" and "K=V" by the option's name.
const std::vector<std::string_view> kTexts{
    "",           "PATH",    "F",           "TEXT",    "PROMPT",        "KIND",
    "SHAPE",      "HOW",     "RULE",        "DIR|off", "OPT=A;B",       "NAME",
    "TYPE",       "FILE...", "K=V",         "FORMAT",  "build|inspect", "cacheback|corpus|bigram",
    "vicuna|raw", "PATH...", "FILE|measure"};
const std::vector<std::string_view> kListsOfNames{"devices", "draft"};

bool takes_numbers(const OptionSpec& option) {
    const auto among = [](const std::vector<std::string_view>& all, std::string_view one) {
        return std::ranges::find(all, one) != all.end();
    };
    return !among(kTexts, option.value) && !among(kListsOfNames, option.name);
}

// What has to stand beside an option for its value to be looked at.
class Ranges : public testing::Test {
protected:
    Arguments beside(std::string_view command, std::string_view option) const {
        const std::map<std::string_view, Arguments> of_option{{"shares", {"--devices", "cpu,cpu"}},
                                                              {"link-gib-s", {"--device-memory", "20M"}},
                                                              {"depth", {"--passes", "1"}},
                                                              {"max-prompts", {"--prompts", prompts_}},
                                                              {"pass", {"--tokens", ids_, "--logits", logits_}}};
        const std::map<std::string_view, Arguments> of_command{
            {"perplexity", {"--file", text_}}, {"tables", {"build", "--kind", "bigram"}}, {"inspect", {model_}}};
        if (option == "cacheback" && command == "tables") return {"build", "--kind", "cacheback", text_};
        if (option == "pass") return {"--tokens", ids_, "--logits", logits_};
        Arguments all;
        if (const auto found = of_command.find(command); found != of_command.end()) all = found->second;
        if (const auto found = of_option.find(option); found != of_option.end())
            all.insert(all.end(), found->second.begin(), found->second.end());
        return all;
    }

    TemporaryFolder folder_;
    std::string text_ = folder_.write("text", "Once upon a time there was a king.").string();
    std::string prompts_ = folder_.write("p.jsonl", "{\"prompt\": \"x\"}\n").string();
    std::string ids_ = folder_.write("ids", "1 2 3\n").string();
    std::string logits_ = (folder_.path() / "logits").string();
    std::string model_ = source_path("tools/demo_model/target");
};

TEST_F(Ranges, AreToldForEveryNumber) {
    std::vector<CommandSpec> commands{generate_command(), bench_command(),      inspect_command(),
                                      models_command(),   perplexity_command(), plan_command(),
                                      tables_command(),   tokenize_command(),   version_command()};
    // Chat is a part of the program that nothing else links; its numbers are among those of generate.
    CommandSpec chat = generate_command();
    chat.name = "chat";
    const std::string help = run_program({"chat", "--help-all"}).out;
    std::erase_if(chat.options, [&](const OptionSpec& option) {
        return help.find(fmt::format("--{}", option.name)) == std::string::npos;
    });
    commands.push_back(chat);
    int n_options = 0;
    for (const CommandSpec& command : commands)
        for (const OptionSpec& option : command.options) {
            if (!takes_numbers(option)) continue;
            ++n_options;
            for (const char* value : {"-99999999999999999999999", "99999999999999999999999999", "1e999", "x"}) {
                Arguments arguments{std::string(command.name), "--no-config"};
                const Arguments more = beside(command.name, option.name);
                arguments.insert(arguments.end(), more.begin(), more.end());
                // A share for each of the two devices; an assumption by its name.
                const std::string values = option.name == "shares"   ? fmt::format("1,{}", value)
                                           : option.name == "assume" ? fmt::format("acceptance={}", value)
                                                                     : value;
                arguments.push_back(fmt::format("--{}={}", option.name, values));
                const ProgramResult result = run_program(arguments);
                const std::string what = fmt::format("{} --{} {}", command.name, option.name, value);
                EXPECT_EQ(result.code, 2) << what << ": " << result.err;
                EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << what << ": " << result.err;
                EXPECT_THAT(result.err, testing::HasSubstr(fmt::format("--{}: ", option.name))) << what;
                EXPECT_THAT(result.err, testing::ContainsRegex("from -?[0-9].* to -?[0-9]|of at least -?[0-9]|"
                                                               "ll, fl, lc, fc, tdl or crt"))
                    << what;
            }
        }
    EXPECT_GT(n_options, 80);
}

}  // namespace
}  // namespace slipstream::tools
