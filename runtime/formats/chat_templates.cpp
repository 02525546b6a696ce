#include "runtime/formats/chat_templates.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/formats/file_presence.h"
#include "runtime/formats/gguf_file.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
    const MappedFile file(path);
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Adds a template, or replaces the one with this name.
void set(std::vector<NamedChatTemplate>& templates, std::string_view name, std::string source) {
    const auto found =
        std::find_if(templates.begin(), templates.end(), [name](const auto& known) { return known.name == name; });
    if (found != templates.end()) {
        found->source = std::move(source);
    } else {
        templates.push_back({std::string(name), std::move(source)});
    }
}

// Adds the templates in the field chat_template: one text, or a list of {"name", "template"}. Ignores anything else.
void add_field(std::vector<NamedChatTemplate>& templates, const nlohmann::json& object) {
    const auto field = object.find("chat_template");
    if (field == object.end()) return;
    if (field->is_string()) set(templates, kDefaultChatTemplate, field->get<std::string>());
    if (!field->is_array()) return;
    for (const auto& entry : *field) {
        if (!entry.is_object()) continue;
        const auto name = entry.find("name");
        const auto source = entry.find("template");
        if (name != entry.end() && name->is_string() && source != entry.end() && source->is_string())
            set(templates, name->get_ref<const std::string&>(), source->get<std::string>());
    }
}

// Adds all NAME.jinja of a folder, if it exists.
void add_folder(std::vector<NamedChatTemplate>& templates, const fs::path& folder) {
    if (!is_there(folder)) return;
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        if (it->path().extension() == ".jinja") paths.push_back(it->path());
    if (error) throw IoError(fmt::format("{}: cannot list: {}", folder.string(), error.message()));
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) set(templates, path.stem().string(), content_of(path));
}

}  // namespace

std::vector<NamedChatTemplate> hf_chat_templates(const fs::path& directory, const nlohmann::json& tokenizer_config) {
    std::vector<NamedChatTemplate> templates;
    if (const fs::path path = directory / "chat_template.json"; is_there(path))
        add_field(templates, parse_json_object(content_of(path), path.string()));
    add_field(templates, tokenizer_config);
    if (const fs::path path = directory / "chat_template.jinja"; is_there(path))
        set(templates, kDefaultChatTemplate, content_of(path));
    add_folder(templates, directory / "additional_chat_templates");
    return templates;
}

std::vector<NamedChatTemplate> gguf_chat_templates(const GgufFile& file) {
    constexpr std::string_view kKey = "tokenizer.chat_template";
    constexpr std::string_view kNames = "tokenizer.chat_templates";
    std::vector<NamedChatTemplate> templates;
    if (const auto text = file.string(kKey)) set(templates, kDefaultChatTemplate, std::string(*text));
    const GgufValue* value = file.find(kNames);
    if (value == nullptr) return templates;
    const auto names = value->strings();
    if (!names) throw FormatError(fmt::format("{}: {} is not an array of strings", file.name(), kNames));
    for (const std::string& name : *names) {
        const auto text = file.string(fmt::format("{}.{}", kKey, name));
        if (!text)
            throw FormatError(fmt::format("{}: {} names {}, which is missing", file.name(), kNames, printable(name)));
        set(templates, name, std::string(*text));
    }
    return templates;
}

}  // namespace slipstream
