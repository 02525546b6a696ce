// slipstream version: prints version, commit, CPU features and backends.
#include "tools/base/build_version.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu_device.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/machine/compute_device.h"
#include "tools/machine/host.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

namespace {

// Returns "NVIDIA GeForce RTX 4090 (cuda:0, sm_89, 24 GiB), ...".
std::string cards_text(const CudaCards& cards) {
    std::string text;
    for (std::size_t i = 0; i < cards.cards.size(); ++i)
        text += fmt::format("{}{} (cuda:{}, sm_{}, {}{})", i == 0 ? "" : ", ", cards.cards[i].name, i,
                            cards.cards[i].sm, size_text(cards.cards[i].memory_bytes),
                            cards.serves(i)                      ? ""
                            : cards.cards[i].sm < cuda::kLeastSm ? ", too old to serve"
                                                                 : ", which the module has no code for");
    return text;
}

// Returns one line: the GPUs, or why none can be used.
std::string cuda_text(const CudaCards& cards) {
    if (!cards.why_not.empty()) return fmt::format("{}; the CPU serves everything", cards.why_not);
    return fmt::format("{}; driver for CUDA {}, built with {}", cards_text(cards),
                       cuda_version_text(cards.cards.front().driver_version),
                       cuda_version_text(cards.cards.front().runtime_version));
}

JsonObject cuda_json(const CudaCards& cards) {
    JsonObject json;
    json.text("name", "cuda").boolean("found", cards.why_not.empty());
    if (cards.why_not.empty()) {
        json.text("form", fmt::format("sm_{}", cards.cards.front().sm)).null("reason").text("cards", cards_text(cards));
    } else {
        json.null("form").text("reason", cards.why_not);
    }
    return json;
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

int run_version(CommandContext& context) {
    const std::vector<std::string> features = cpu_features();
    const std::string form(cpu_form_name(best_cpu_form()));
    const int cores = physical_cores();
    const CudaCards cards = cuda_cards();
    if (context.settings.flag("json")) {
        std::vector<JsonObject> backends;
        backends.emplace_back().text("name", "cpu").boolean("found", true).text("form", form).null("reason");
        backends.push_back(cuda_json(cards));
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
        .write(folded(fmt::format("slipstream {} ({})\n"
                                  "cpu: {} kernels, {} physical cores; {}\n"
                                  "cuda: {}\n",
                                  build_version(), build_commit(), form, cores, joined(features), cuda_text(cards)),
                      stdout_columns()));
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
