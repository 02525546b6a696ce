#include "tools/machine/model_stores.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/text/json_parser.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

constexpr int kFolderDepth = 4;  // levels of folders searched in a folder of SLIPSTREAM_MODELS
constexpr std::string_view kGgufSuffix = ".gguf";
constexpr std::size_t kSplitSuffix = std::string_view("-00001-of-00003.gguf").size();

std::uintmax_t size_of(const fs::path& path) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);  // follows links
    return error ? 0 : size;
}

std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> result;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        result.push_back(at->path());
    std::sort(result.begin(), result.end());
    return result;
}

bool is_folder(const fs::path& path) {
    std::error_code error;
    return fs::is_directory(path, error);
}

bool is_file(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error);
}

// Returns whether `path` is a GGUF file by which a whole model is opened: neither a later part nor a vision projector.
bool is_model_gguf(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.ends_with(kGgufSuffix) && !is_later_part(name) && !name.starts_with("mmproj") && is_file(path);
}

std::string stem_of(const fs::path& gguf) {
    std::string name = gguf.filename().string();
    name.resize(name.size() - kGgufSuffix.size());
    return split_parts(gguf.filename().string()).size() > 1
               ? name.substr(0, name.size() - kSplitSuffix + kGgufSuffix.size())
               : name;
}

FoundModel gguf_model(std::string name, const fs::path& path, StoreKind store) {
    FoundModel model{std::move(name), stem_of(path), "GGUF", path, 0, store};
    for (const std::string& part : split_parts(path.filename().string()))
        model.bytes += size_of(path.parent_path() / part);
    return model;
}

// Returns the safetensors model in `folder`; nothing if there is none.
std::optional<FoundModel> directory_model(std::string name, const fs::path& folder, StoreKind store) {
    if (!is_file(folder / "config.json")) return std::nullopt;
    std::uintmax_t bytes = 0;
    for (const fs::path& path : entries(folder))
        if (path.extension() == ".safetensors") bytes += size_of(path);
    if (bytes == 0) return std::nullopt;
    return FoundModel{std::move(name), "", "safetensors", folder, bytes, store};
}

// Adds the models of a folder tree: directories with config.json, and GGUF files, named by their path from `root`.
void add_folder(const fs::path& root, const fs::path& folder, int depth, std::vector<FoundModel>& models) {
    for (const fs::path& path : entries(folder)) {
        const std::string below = path.lexically_relative(root).generic_string();
        if (is_model_gguf(path)) {
            models.push_back(
                gguf_model((fs::path(below).parent_path() / stem_of(path)).generic_string(), path, StoreKind::Folder));
        } else if (is_folder(path)) {
            if (auto model = directory_model(below, path, StoreKind::Folder)) models.push_back(std::move(*model));
            if (depth > 1) add_folder(root, path, depth - 1, models);
        }
    }
}

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// Adds the models of the Hugging Face cache: models--org--name/{refs/main, snapshots/REVISION/...}.
void add_hugging_face(const fs::path& cache, std::vector<FoundModel>& models) {
    for (const fs::path& repository : entries(cache)) {
        std::string name = repository.filename().string();
        if (!name.starts_with("models--")) continue;
        name = name.substr(8);
        if (const std::size_t cut = name.find("--"); cut != std::string::npos)
            name = fmt::format("{}/{}", name.substr(0, cut), name.substr(cut + 2));
        fs::path snapshot = repository / "snapshots" / first_line(repository / "refs" / "main");
        if (!is_folder(snapshot) || snapshot.filename().empty()) {
            const std::vector<fs::path> all = entries(repository / "snapshots");
            if (all.empty()) continue;
            snapshot = all.back();
        }
        if (auto model = directory_model(name, snapshot, StoreKind::HuggingFace)) models.push_back(std::move(*model));
        for (const fs::path& path : entries(snapshot)) {
            if (is_model_gguf(path)) models.push_back(gguf_model(name, path, StoreKind::HuggingFace));
            if (!is_folder(path)) continue;
            for (const fs::path& inner : entries(path))
                if (is_model_gguf(inner)) models.push_back(gguf_model(name, inner, StoreKind::HuggingFace));
        }
    }
}

// Adds the models of llama.cpp's cache, one folder of files org_name_file.gguf. The names do not show where the
// organisation and the name end; the lookup compares accordingly (model_lookup.cpp).
void add_llama_cpp(const fs::path& cache, std::vector<FoundModel>& models) {
    for (const fs::path& path : entries(cache))
        if (is_model_gguf(path)) models.push_back(gguf_model(stem_of(path), path, StoreKind::LlamaCpp));
}

// Returns the path of the blob with the weights of a manifest; nothing if there is none.
std::optional<fs::path> ollama_blob(const fs::path& store, const fs::path& manifest) {
    std::ifstream file(manifest, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const nlohmann::json json = parse_json_value(text);
    if (!json.is_object() || !json.contains("layers") || !json["layers"].is_array()) return std::nullopt;
    for (const nlohmann::json& layer : json["layers"]) {
        if (!layer.is_object() || layer.value("mediaType", nlohmann::json()) != "application/vnd.ollama.image.model")
            continue;
        const auto digest = layer.find("digest");
        if (digest == layer.end() || !digest->is_string()) continue;
        std::string blob = digest->get<std::string>();
        if (blob.find('/') != std::string::npos) continue;
        std::replace(blob.begin(), blob.end(), ':', '-');
        if (is_file(store / "blobs" / blob)) return store / "blobs" / blob;
    }
    return std::nullopt;
}

// Adds the models of Ollama's store: manifests/HOST/NAMESPACE/NAME/TAG.
void add_ollama(const fs::path& store, std::vector<FoundModel>& models) {
    for (const fs::path& host : entries(store / "manifests"))
        for (const fs::path& owner : entries(host))
            for (const fs::path& name : entries(owner))
                for (const fs::path& tag : entries(name)) {
                    const auto blob = ollama_blob(store, tag);
                    if (!blob) continue;
                    std::string full = name.filename().string();
                    if (owner.filename() != "library") full = fmt::format("{}/{}", owner.filename().string(), full);
                    if (host.filename() != "registry.ollama.ai")
                        full = fmt::format("{}/{}", host.filename().string(), full);
                    models.push_back({full, tag.filename().string(), "GGUF", *blob, size_of(*blob), StoreKind::Ollama});
                }
}

fs::path below_home(const EnvironmentReader& environment, const fs::path& path) {
    const auto home = environment("HOME");
    return home ? fs::path(*home) / path : fs::path();
}

fs::path cache_folder(const EnvironmentReader& environment) {
    const auto cache = environment("XDG_CACHE_HOME");
    return cache ? fs::path(*cache) : below_home(environment, ".cache");
}

// Returns the folder in which tools/get_model stores models; empty if the user has no cache folder.
fs::path own_folder(const EnvironmentReader& environment) {
    const fs::path cache = cache_folder(environment);
    return cache.empty() ? cache : cache / "slipstream" / "models";
}

fs::path hugging_face_cache(const EnvironmentReader& environment) {
    if (const auto hub = environment("HF_HUB_CACHE")) return *hub;
    if (const auto home = environment("HF_HOME")) return fs::path(*home) / "hub";
    const fs::path cache = cache_folder(environment);
    return cache.empty() ? cache : cache / "huggingface" / "hub";
}

fs::path llama_cpp_cache(const EnvironmentReader& environment) {
    if (const auto cache = environment("LLAMA_CACHE")) return *cache;
    const fs::path cache = cache_folder(environment);
    return cache.empty() ? cache : cache / "llama.cpp";
}

fs::path ollama_store(const EnvironmentReader& environment) {
    if (const auto store = environment("OLLAMA_MODELS")) return *store;
    return below_home(environment, ".ollama/models");
}

std::optional<int> five_digits(std::string_view text) {
    int value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + (c - '0');
    }
    return value;
}

struct PartNumber {
    int index, count;
};

// Parses the end of a split model's file name: "...-00002-of-00003.gguf".
std::optional<PartNumber> part_number(std::string_view name) {
    if (name.size() <= kSplitSuffix || !name.ends_with(kGgufSuffix)) return std::nullopt;
    const std::string_view tail = name.substr(name.size() - kSplitSuffix);
    if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
    const auto index = five_digits(tail.substr(1, 5));
    const auto count = five_digits(tail.substr(10, 5));
    if (!index || !count || *index < 1 || *index > *count) return std::nullopt;
    return PartNumber{*index, *count};
}

}  // namespace

bool is_later_part(std::string_view file_name) {
    const auto part = part_number(file_name);
    return part && part->index > 1;
}

std::string full_name(const FoundModel& model) {
    const bool alone = model.variant.empty() || model.store == StoreKind::LlamaCpp || model.store == StoreKind::Folder;
    return alone ? model.name : fmt::format("{}:{}", model.name, model.variant);
}

std::vector<std::string> split_parts(std::string_view file_name) {
    const auto part = part_number(file_name);
    if (!part) return {std::string(file_name)};
    const std::string_view base = file_name.substr(0, file_name.size() - kSplitSuffix);
    std::vector<std::string> names;
    for (int i = 1; i <= part->count; ++i) names.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", base, i, part->count));
    return names;
}

ModelStores find_models(const EnvironmentReader& environment, const fs::path& bundled) {
    ModelStores found;
    if (!bundled.empty())
        if (auto model = directory_model("fairy", bundled, StoreKind::Bundled))
            found.models.push_back(std::move(*model));
    const std::string folders = environment("SLIPSTREAM_MODELS").value_or("");
    if (folders.empty()) found.places.push_back({"SLIPSTREAM_MODELS (not set)", {}});
    for (std::size_t begin = 0; begin < folders.size();) {
        const std::size_t end = std::min(folders.find(':', begin), folders.size());
        if (const fs::path folder = folders.substr(begin, end - begin); !folder.empty()) {
            found.places.push_back({"SLIPSTREAM_MODELS", folder});
            add_folder(folder, folder, kFolderDepth, found.models);
        }
        begin = end + 1;
    }
    const auto search = [&](const char* what, const fs::path& path, auto add) {
        if (path.empty()) return;
        found.places.push_back({what, path});
        add(path, found.models);
    };
    search("Slipstream's own folder", own_folder(environment),
           [](const fs::path& folder, std::vector<FoundModel>& models) {
               std::vector<FoundModel> own;
               add_folder(folder, folder, kFolderDepth, own);
               for (FoundModel& model : own)  // SLIPSTREAM_MODELS may name Slipstream's own folder too
                   if (std::ranges::find(models, model.path, &FoundModel::path) == models.end())
                       models.push_back(std::move(model));
           });
    search("the Hugging Face cache", hugging_face_cache(environment), add_hugging_face);
    search("llama.cpp's cache", llama_cpp_cache(environment), add_llama_cpp);
    search("Ollama's store", ollama_store(environment), add_ollama);
    return found;
}

}  // namespace slipstream::tools
