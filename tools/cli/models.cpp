// slipstream models: lists the models on this machine, in the places that -m searches.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/machine/model_stores.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

namespace {

// Returns the list as a table. If a line would be wider than `columns` (0: no limit), each path is on a line of its
// own, and after a name that is too long the other columns are, too.
std::string table(const std::vector<FoundModel>& models, int columns) {
    constexpr std::size_t kFacts = 2 + 11 + 2 + 10;
    std::size_t width = 4;
    std::size_t path_width = 4;
    const auto shown_name = [&](const FoundModel& model) {
        return columns > 0 ? printable(full_name(model)) : full_name(model);
    };
    const auto shown_path = [&](const FoundModel& model) {
        return columns > 0 ? printable(model.path.string(), std::string::npos) : model.path.string();
    };
    const auto cells = [](std::string_view text) { return static_cast<std::size_t>(cells_of(text)); };
    for (const FoundModel& model : models) {
        width = std::max(width, cells(shown_name(model)));
        path_width = std::max(path_width, cells(shown_path(model)));
    }
    const std::size_t room = columns > 0 ? static_cast<std::size_t>(columns) : std::string::npos;
    const bool below = width + kFacts + 2 + path_width > room;
    if (below) width = std::min(width, room - std::min(room, kFacts));
    std::string text;
    const auto add = [&](std::string_view name, std::string_view format, std::string_view size, std::string_view path) {
        text += name;
        if (cells(name) > width) text += '\n';
        text.append(width - (cells(name) > width ? 0 : cells(name)), ' ');
        text += fmt::format("  {:<11}  {:>10}{}{}\n", format, size, below ? "\n  " : "  ", path);
    };
    add("NAME", "FORMAT", "SIZE", "PATH");
    for (const FoundModel& model : models)
        add(shown_name(model), model.format, size_text(model.bytes), shown_path(model));
    return text;
}

std::string json(const ModelStores& stores) {
    std::vector<JsonObject> models;
    for (const FoundModel& model : stores.models)
        models.emplace_back()
            .text("name", full_name(model))
            .text("format", model.format)
            .unsigned_integer("bytes", model.bytes)
            .text("path", model.path.string());
    std::vector<JsonObject> places;
    for (const SearchedPlace& place : stores.places)
        places.emplace_back().text("what", place.what).text("path", place.path.string());
    return JsonObject().objects("models", models).objects("searched", places).to_text(JsonLayout::Indented);
}

int run_models(CommandContext& context) {
    const ModelStores stores = find_models(context.settings.environment(), bundled_model(program_folder()));
    TextOutput(std::nullopt)
        .write(context.settings.flag("json") ? json(stores) : table(stores.models, stdout_columns()));
    for (const SearchedPlace& place : stores.places)
        context.console.detail(fmt::format("searched: {} {}", place.what, place.path.string()));
    return 0;
}

}  // namespace

CommandSpec models_command() {
    return {.name = "models",
            .summary = "List the models found on this machine",
            .details =
                "Places: the folders in SLIPSTREAM_MODELS (separated by colons), slipstream/models in your cache (what "
                "tools/get_model brings), the Hugging Face cache, llama.cpp's cache, Ollama's store. Each name may be "
                "given to -m, or its beginning up to a dash.",
            .example = "slipstream models",
            .options = {{"json", "--json", "", "Print JSON"}},
            .run = run_models};
}

}  // namespace slipstream::tools
