// slipstream models: lists the models on this machine, in the places that -m searches.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/model_files.h"
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

/// A model that was found, and whether it is served.
struct ListedModel {
    FoundModel found;
    std::string refusal;  // why it is not served; empty: its configuration and the types of its tensors are served
};

// Returns the models, each with the reason why it is not served, if it is not. Reads headers only.
std::vector<ListedModel> listed(std::vector<FoundModel> models) {
    std::vector<ListedModel> list;
    for (FoundModel& model : models) {
        ListedModel& entry = list.emplace_back(ListedModel{std::move(model), {}});
        try {
            static_cast<void>(ModelFiles::open(entry.found.path)->weights());
        } catch (const Error& error) {
            entry.refusal = error.what();
            // The table has the path in the line above the reason.
            const std::string path = entry.found.path.string() + ": ";
            if (entry.refusal.starts_with(path)) entry.refusal.erase(0, path.size());
        }
    }
    return list;
}

// Returns the list as a table. If a line would be wider than `columns` (0: no limit), each path is on a line of its
// own, and after a name that is too long the other columns are, too. Below a model that is not served, a line says why.
std::string table(const std::vector<ListedModel>& models, int columns) {
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
    for (const auto& [model, refusal] : models) {
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
    for (const auto& [model, refusal] : models) {
        add(shown_name(model), model.format, size_text(model.bytes), shown_path(model));
        if (!refusal.empty()) text += fmt::format("  not served: {}\n", printable(refusal));
    }
    return text;
}

std::string json(const std::vector<ListedModel>& list, const std::vector<SearchedPlace>& searched) {
    std::vector<JsonObject> models;
    for (const auto& [model, refusal] : list) {
        JsonObject& object = models.emplace_back()
                                 .text("name", full_name(model))
                                 .text("format", model.format)
                                 .unsigned_integer("bytes", model.bytes)
                                 .text("path", model.path.string())
                                 .boolean("served", refusal.empty());
        if (!refusal.empty()) object.text("refusal", refusal);
    }
    std::vector<JsonObject> places;
    for (const SearchedPlace& place : searched)
        places.emplace_back().text("what", place.what).text("path", place.path.string());
    return JsonObject().objects("models", models).objects("searched", places).to_text(JsonLayout::Indented);
}

int run_models(CommandContext& context) {
    ModelStores stores = find_models(context.settings.environment(), bundled_model(program_folder()));
    const std::vector<ListedModel> models = listed(std::move(stores.models));
    TextOutput(std::nullopt)
        .write(context.settings.flag("json") ? json(models, stores.places) : table(models, stdout_columns()));
    for (const SearchedPlace& place : stores.places)
        context.console.detail(fmt::format("searched: {} {}", place.what, place.path.string()));
    return 0;
}

}  // namespace

CommandSpec models_command() {
    return {
        .name = "models",
        .summary = "List the models found on this machine",
        .details =
            "Places: the folders in SLIPSTREAM_MODELS (separated by colons), slipstream/models in your cache (what "
            "tools/get_model downloads), the Hugging Face cache, llama.cpp's cache, Ollama's store. Each name may be "
            "given to -m, or its beginning up to a dash. A model whose family or types are not served is marked, "
            "with the reason.",
        .example = "slipstream models",
        .options = {{"json", "--json", "", "Print JSON"}},
        .run = run_models};
}

}  // namespace slipstream::tools
