#include "tools/options/output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/machine/model_lookup.h"
#include "tools/machine/model_stores.h"
#include "tools/options/compute_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

struct Output {
    std::string where;  // for messages
    fs::path path;
};

using FileId = std::pair<dev_t, ino_t>;

// Returns device and inode of a regular file. Returns nothing if there is no file yet, or if it is a device or a pipe,
// to which several outputs may write.
std::optional<FileId> file_id(const fs::path& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return FileId(status.st_dev, status.st_ino);
}

bool is_same_file(const fs::path& one, const fs::path& other) {
    std::error_code error;
    if (fs::exists(one, error) || fs::exists(other, error)) {
        const auto id = file_id(one);
        return id && id == file_id(other);
    }
    // weakly_canonical() leaves a relative path of which nothing exists as it is: "X" and "./X" would differ.
    const auto full = [&](const fs::path& path) { return fs::weakly_canonical(fs::absolute(path, error), error); };
    return full(one) == full(other);
}

std::vector<Output> outputs_of(const Settings& settings) {
    std::vector<Output> outputs;
    for (const auto& [option, setting] : settings.given()) {
        if (option->role == OptionRole::Value || option->role == OptionRole::InputFile) continue;
        const auto name = settings.path(option->name);
        if (option->name == "rates" && name == kMeasureRates) continue;
        if (name != "-") {
            outputs.push_back({setting->where, *name});
        } else if (option->role == OptionRole::OutputFile) {
            throw UsageError(fmt::format("{}: it cannot go to stdout; name a file", setting->where));
        }
    }
    return outputs;
}

[[noreturn]] void refuse_same(std::string_view where, const Output& output) {
    throw UsageError(
        fmt::format("{} and {} name the same file, {}; give each its own", where, output.where, output.path.string()));
}

// Returns the models that are read: the target, the model of --draft-model, and the one whose tokenizer --tokenizer
// names. A model that is not found is left out; the code that opens it reports the error.
std::vector<fs::path> models_of(const Settings& settings) {
    std::vector<fs::path> models;
    const auto add = [&](const auto& path_of) {
        try {
            models.push_back(path_of());
        } catch (const Error&) {
            return;
        }
    };
    if (settings.has("model")) add([&] { return model_path(settings); });
    if (settings.has("draft-model") && settings.find("draft-model") != nullptr) {
        const auto stores = [&] { return find_models(settings.environment(), {}); };
        add([&] { return resolve_model(*settings.path("draft-model"), stores); });
    }
    if (settings.has("tokenizer") && settings.find("tokenizer") != nullptr)
        add([&] { return *settings.path("tokenizer"); });
    return models;
}

// Throws UsageError if an output is a file that is read, or the regular file on stdin.
void check_inputs(const Settings& settings, std::span<const Output> outputs) {
    for (const auto& [option, setting] : settings.given())
        if (option->role == OptionRole::InputFile)
            for (const Output& output : outputs)
                if (std::ranges::any_of(setting->values,
                                        [&](const auto& name) { return is_same_file(name, output.path); }))
                    refuse_same(setting->where, output);
    struct stat status {};
    if (fstat(STDIN_FILENO, &status) != 0 || !S_ISREG(status.st_mode)) return;
    for (const Output& output : outputs)
        if (file_id(output.path) == FileId(status.st_dev, status.st_ino)) refuse_same("stdin", output);
}

bool is_part_of_model(const fs::path& path) {
    constexpr std::array<std::string_view, 13> kNames{"config.json",
                                                      "generation_config.json",
                                                      "model.safetensors.index.json",
                                                      "tokenizer.model",
                                                      "tokenizer.json",
                                                      "tekken.json",
                                                      "tokenizer_config.json",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "merges.txt",
                                                      "chat_template.jinja",
                                                      "chat_template.json"};
    const std::string name = path.filename().string();
    return name.ends_with(".safetensors") || name.ends_with(".gguf") || std::ranges::count(kNames, name) > 0;
}

// Throws RequestError if an output is a file of a model that is read, or a new file that the model would read.
void check_models(const Settings& settings, std::span<const Output> outputs) {
    std::vector<std::pair<FileId, const Output*>> there;
    for (const Output& output : outputs)
        if (const auto id = file_id(output.path)) there.emplace_back(*id, &output);
    for (const fs::path& model : models_of(settings)) {
        std::error_code error;
        for (const Output& output : outputs)
            if (!fs::exists(output.path, error) && fs::is_directory(model, error) && is_part_of_model(output.path) &&
                fs::equivalent(model, output.path.has_parent_path() ? output.path.parent_path() : ".", error))
                throw RequestError(fmt::format("{} {}: the model would read this file; name another", output.where,
                                               output.path.string()));
        for (const fs::path& file : model_file_paths(model))
            for (const auto& [id, output] : there)
                if (file_id(file) == id)
                    throw RequestError(fmt::format("{} {}: this is a file of the model; name another", output->where,
                                                   output->path.string()));
    }
}

}  // namespace

std::vector<fs::path> model_file_paths(const fs::path& model) {
    std::error_code error;
    fs::path folder = model;
    if (!fs::is_directory(model, error)) {
        if (model.filename() != "config.json") {
            std::vector<fs::path> parts;
            for (const std::string& name : split_parts(model.filename().string()))
                if (fs::exists(model.parent_path() / name, error)) parts.push_back(model.parent_path() / name);
            return parts;
        }
        folder = model.has_parent_path() ? model.parent_path() : ".";
    }
    std::vector<fs::path> files;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (is_part_of_model(at->path())) files.push_back(at->path());
    return files;
}

void check_output_files(const Settings& settings) {
    const std::vector<Output> outputs = outputs_of(settings);
    for (std::size_t i = 0; i < outputs.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (is_same_file(outputs[i].path, outputs[j].path)) refuse_same(outputs[j].where, outputs[i]);
    check_inputs(settings, outputs);
    check_models(settings, outputs);
}

void check_output_file(const Settings& settings, std::string_view where, const fs::path& path) {
    const Output output{std::string(where), path};
    for (const Output& other : outputs_of(settings))
        if (is_same_file(other.path, path)) refuse_same(other.where, output);
    check_inputs(settings, {&output, 1});
    check_models(settings, {&output, 1});
}

}  // namespace slipstream::tools
