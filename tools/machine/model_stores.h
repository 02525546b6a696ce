// Models that lie on this machine, in the places where the usual tools keep them. Folders are listed, nothing is opened
// but Ollama's manifests; whatever cannot be read is passed over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/machine/environment.h"

namespace slipstream::tools {

/// Whose rules a store's names follow.
enum class StoreKind : std::uint8_t { Bundled, Folder, HuggingFace, LlamaCpp, Ollama };

struct FoundModel {
    std::string name;            // as `-m` takes it, without a quantisation: "org/name", "name:tag", "folder/file"
    std::string variant;         // what a ":QUANT" is matched against: the file's name; Ollama's tag
    std::string format;          // "GGUF", "safetensors"
    std::filesystem::path path;  // to open
    std::uintmax_t bytes = 0;    // of all its files
    StoreKind store = StoreKind::Folder;
};

/// As `-m` takes it, with the quantisation where a name has several: "org/name:Q4_K_M".
[[nodiscard]] std::string full_name(const FoundModel& model);

/// One place that was searched, for messages.
struct SearchedPlace {
    std::string what;  // "the Hugging Face cache"
    std::filesystem::path path;
};

struct ModelStores {
    std::vector<FoundModel> models;  // in order of the places, by name within one
    std::vector<SearchedPlace> places;
};

/// Looks through SLIPSTREAM_MODELS (folders, separated by colons), slipstream/models in the user's cache, the Hugging
/// Face hub's cache (HF_HUB_CACHE, HF_HOME), llama.cpp's cache (LLAMA_CACHE), and Ollama's store (OLLAMA_MODELS), with
/// the tools' own defaults below HOME and XDG_CACHE_HOME. `bundled` is the demo model's directory, empty where it is
/// not there.
[[nodiscard]] ModelStores find_models(const EnvironmentReader& environment, const std::filesystem::path& bundled);

/// "NAME-00001-of-00003.gguf" -> its other parts' names too; any other name alone.
[[nodiscard]] std::vector<std::string> split_parts(std::string_view file_name);
/// Whether the name is that of a later part of a split model.
[[nodiscard]] bool is_later_part(std::string_view file_name);

}  // namespace slipstream::tools
