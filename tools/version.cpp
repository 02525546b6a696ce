// slipstream version: what was built, what the CPU can do, and which backends there are.
#include "tools/version.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu_device.h"
#include "tools/command.h"
#include "tools/file_output.h"
#include "tools/host.h"
#include "tools/json_object.h"
#include "tools/settings.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kNoCuda = "not part of this build; the CPU serves everything";

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

int run_version(CommandContext& context) {
    const std::vector<std::string> features = cpu_features();
    const std::string form(cpu_form_name(best_cpu_form()));
    const int cores = physical_cores();
    if (context.settings.flag("json")) {
        std::vector<JsonObject> backends;
        backends.emplace_back().text("name", "cpu").boolean("found", true).text("form", form).null("reason");
        backends.emplace_back().text("name", "cuda").boolean("found", false).null("form").text("reason", kNoCuda);
        JsonObject json;
        json.text("version", build_version())
            .text("commit", build_commit())
            .texts("cpu_features", features)
            .integer("physical_cores", cores)
            .objects("backends", backends);
        TextOutput(std::nullopt).write(json.to_text(JsonLayout::Indented));
        return 0;
    }
    TextOutput(std::nullopt)
        .write(fmt::format("slipstream {} ({})\n"
                           "cpu: {} kernels, {} physical cores; {}\n"
                           "cuda: {}\n",
                           build_version(), build_commit(), form, cores, joined(features), kNoCuda));
    return 0;
}

}  // namespace

CommandSpec version_command() {
    return {.name = "version",
            .summary = "Version, commit, CPU features, backends",
            .details = "",
            .example = "slipstream version --json",
            .options = {{"json", "--json", "", "Print JSON"}},
            .run = run_version};
}

}  // namespace slipstream::tools
