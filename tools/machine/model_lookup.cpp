#include "tools/machine/model_lookup.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "tools/base/closest_name.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

std::string lowered(std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

std::string_view last_component(std::string_view name) {
    return name.substr(name.rfind('/') + 1);
}

// Returns whether `model` has the name `name` (lower case): in full, without its organisation or folder, or by the
// rules of its store.
bool answers_to(const FoundModel& model, const std::string& name) {
    const std::string own = lowered(model.name);
    if (own == name || last_component(own) == name) return true;
    if (model.store == StoreKind::Folder && model.format == "GGUF")  // the folder may be named like the repository
        return own.starts_with(name + "/");
    if (model.store != StoreKind::LlamaCpp) return false;
    std::string flat = name;  // llama.cpp stores org/name as org_name_<file>
    std::replace(flat.begin(), flat.end(), '/', '_');
    return own.starts_with(flat + "_") || own.ends_with("_" + flat);
}

// Returns whether `name` (lower case) begins the name of `model`, up to a dash: "smollm2" of "smollm2-135m-instruct".
// Counts only if answers_to() is false for all models.
bool begins_with(const FoundModel& model, const std::string& name) {
    const std::string own = lowered(model.name);
    return last_component(own).starts_with(name + "-") || own.starts_with(name + "-");
}

bool has_variant(const FoundModel& model, const std::string& variant) {
    const std::string own = lowered(model.variant);
    if (model.store == StoreKind::Ollama) return own == (variant.empty() ? "latest" : variant);
    return variant.empty() || own.find(variant) != std::string::npos;
}

bool looks_like_path(std::string_view model) {
    return model.starts_with("/") || model.starts_with("./") || model.starts_with("../") || model == "." ||
           model == ".." || model.starts_with("~") || model.ends_with(".gguf") || model.ends_with(".json") ||
           model.ends_with(".safetensors") || model.ends_with("/");
}

// The model that tools/get_model downloads, which the pages of the project use in examples.
constexpr std::string_view kFetched = "smollm2";

// Returns the names of the models that `name` (lower case, without a variant) was probably meant for: those that
// contain it, at most four; if there are none, the one with the smallest edit distance, by its name or the part of it
// before the first dash.
std::vector<std::string> meant_names(const std::string& name, const std::vector<FoundModel>& models) {
    constexpr std::size_t kMostNames = 4;
    constexpr std::size_t kLeastLetters = 3;  // fewer letters occur in any name
    std::vector<std::string> found;
    std::vector<std::string> lower;  // two for each model
    for (const FoundModel& model : models) {
        lower.push_back(lowered(last_component(model.name)));
        lower.push_back(lower.back().substr(0, lower.back().find('-')));
        const bool contains = name.size() >= kLeastLetters && lowered(model.name).find(name) != std::string::npos;
        if (contains && found.size() < kMostNames && std::ranges::find(found, full_name(model)) == found.end())
            found.push_back(full_name(model));
    }
    if (!found.empty()) return found;
    const std::vector<std::string_view> names(lower.begin(), lower.end());
    const std::string_view closest = closest_name(name, names);
    if (!closest.empty()) found.push_back(full_name(models[(std::ranges::find(names, closest) - names.begin()) / 2]));
    return found;
}

// Returns whether `name` can be one of Ollama's library: lower case, and no file name such as "readme.md".
bool may_be_pulled(std::string_view name) {
    if (lowered(name) != name) return false;
    const std::size_t dot = name.rfind('.');
    return dot == std::string_view::npos || dot + 1 == name.size() ||
           !std::ranges::all_of(name.substr(dot + 1), [](char c) { return c >= 'a' && c <= 'z'; });
}

[[noreturn]] void refuse_unknown(std::string_view model, const ModelStores& stores, std::string_view option) {
    std::string searched;
    for (const SearchedPlace& place : stores.places)
        searched += fmt::format("{}{}{}", searched.empty() ? "" : ", ", place.what,
                                place.path.empty() ? "" : fmt::format(" ({})", place.path.string()));
    const std::string name(model.substr(0, model.rfind(':')));
    const std::vector<std::string> meant = meant_names(lowered(name), stores.models);
    const std::string download =
        lowered(name) == kFetched ? fmt::format("tools/get_model {0} (installed: slipstream-get-model {0})", kFetched)
        : name.find('/') != std::string::npos  ? fmt::format("hf download {}", name)
        : may_be_pulled(name) && meant.empty() ? fmt::format("ollama pull {}", model)
                                               : "";
    throw RequestError(fmt::format(
        "{} {}: no such path, and no model of that name in {}{}; `slipstream models` lists what is there{}{}", option,
        model, searched, meant.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(meant, " or ")),
        download.empty() ? "" : "; to get it: ", download));
}

// Returns what to open in a directory: if it has no config.json, its only GGUF model; else the directory itself.
fs::path inside_directory(const fs::path& directory) {
    std::error_code error;
    if (fs::exists(directory / "config.json", error)) return directory;
    std::vector<fs::path> files;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (name.ends_with(".gguf") && !is_later_part(name) && !name.starts_with("mmproj")) files.push_back(at->path());
    }
    return files.size() == 1 ? files.front() : directory;  // ModelFiles::open() reports what is wrong with it
}

// Returns a directory of the bundled models; empty if it is not there.
fs::path bundled_part(const fs::path& program_folder, std::string_view part) {
    for (const char* way : {"../../tools/demo_model", "../share/slipstream/demo_model"}) {
        std::error_code error;
        fs::path folder = (program_folder / way / part).lexically_normal();
        if (fs::exists(folder / "config.json", error)) return folder;
    }
    return {};
}

}  // namespace

fs::path resolve_model(std::string_view model, const std::function<ModelStores()>& find_stores,
                       std::string_view option) {
    std::error_code error;
    fs::path path(model);
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) return inside_directory(path);
    if (fs::exists(status)) return path;
    if (looks_like_path(model) ||
        (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory))
        throw IoError(
            fmt::format("{} {}: cannot be opened: {}", option, model, error ? error.message() : std::strerror(ENOENT)));

    const std::size_t colon = model.rfind(':');
    const std::string name = lowered(model.substr(0, colon));
    const std::string variant = colon == std::string_view::npos ? "" : lowered(model.substr(colon + 1));
    const ModelStores stores = find_stores();
    std::vector<const FoundModel*> matches;
    for (const auto& answers : {answers_to, begins_with}) {
        for (const FoundModel& found : stores.models) {
            if (!answers(found, name) || !has_variant(found, variant)) continue;
            // The first kind of store with a match decides.
            if (!matches.empty() && matches.front()->store != found.store) break;
            matches.push_back(&found);
        }
        if (!matches.empty()) break;
    }
    if (matches.empty()) refuse_unknown(model, stores, option);
    // If the full name of a model matches, models that match by a part of theirs do not count.
    const auto whole = [&](const FoundModel* found) { return lowered(found->name) == name; };
    if (std::any_of(matches.begin(), matches.end(), whole))
        std::erase_if(matches, [&](const FoundModel* found) { return !whole(found); });
    // Several folders may hold a model of the same name, variant and file name: of these, only the first one in the
    // order of the search counts.
    for (std::size_t i = 0; i < matches.size(); ++i)
        matches.erase(std::remove_if(matches.begin() + static_cast<std::ptrdiff_t>(i) + 1, matches.end(),
                                     [&, first = matches[i]](const FoundModel* found) {
                                         return found->path.filename() == first->path.filename() &&
                                                found->name == first->name && found->variant == first->variant;
                                     }),
                      matches.end());
    if (matches.size() == 1) return matches.front()->path;
    std::string choices;
    if (!answers_to(*matches.front(), name)) {
        for (const FoundModel* found : matches)
            choices += fmt::format("{}{}", choices.empty() ? "" : ", ", found->name);
        throw RequestError(fmt::format("{} {}: {} models match: {}; give the full name of one", option, model,
                                       matches.size(), choices));
    }
    for (const FoundModel* found : matches)
        choices += fmt::format("{}{}", choices.empty() ? "" : ", ",
                               found->variant.empty() ? fmt::format("{} (safetensors)", found->name) : found->variant);
    throw RequestError(fmt::format("{} {}: {} models match: {}; add :QUANT, e.g. :Q4_K_M, or give the path", option,
                                   model, matches.size(), choices));
}

fs::path bundled_model(const fs::path& program_folder) {
    return bundled_part(program_folder, "target");
}

fs::path bundled_draft_model(const fs::path& program_folder) {
    return bundled_part(program_folder, "draft");
}

}  // namespace slipstream::tools
