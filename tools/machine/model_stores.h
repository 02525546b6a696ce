// Finds the models on this machine, in the places where the usual tools keep them. Lists folders, and opens only small
// index files (Ollama's manifests, refs/main of the Hugging Face cache). What cannot be read is skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/machine/environment.h"

namespace slipstream::tools {

/// The program whose rules the names of a store follow.
enum class StoreKind : std::uint8_t { Bundled, Folder, HuggingFace, LlamaCpp, Ollama };

struct FoundModel {
    std::string name;            // name for -m, without the variant: "org/name", "folder/file", "name"
    std::string variant;         // what ":QUANT" must occur in: the GGUF file's stem; Ollama: the tag; else ""
    std::string format;          // "GGUF", "safetensors"
    std::filesystem::path path;  // path to open
    std::uintmax_t bytes = 0;    // size of all its files
    StoreKind store = StoreKind::Folder;
};

/// Returns the name by which -m finds this model only: "org/name:model-Q4_K_M", "name:tag". In stores whose names
/// contain the file's name (Folder, LlamaCpp), and for safetensors, it is model.name.
[[nodiscard]] std::string full_name(const FoundModel& model);

/// A place that was searched, for messages.
struct SearchedPlace {
    std::string what;  // "the Hugging Face cache"
    std::filesystem::path path;
};

struct ModelStores {
    std::vector<FoundModel> models;  // in the order of `places`, sorted by path within each; the bundled model first
    std::vector<SearchedPlace> places;
};

/// Searches SLIPSTREAM_MODELS (folders, separated by colons), slipstream/models in the user's cache, the cache of the
/// Hugging Face hub (HF_HUB_CACHE, HF_HOME), llama.cpp's cache (LLAMA_CACHE), and Ollama's store (OLLAMA_MODELS), with
/// these tools' own defaults in HOME and XDG_CACHE_HOME. `bundled` is the directory of the bundled model; empty: there
/// is none.
[[nodiscard]] ModelStores find_models(const EnvironmentReader& environment, const std::filesystem::path& bundled);

/// Returns the file names of all parts of a split model, for the name of one: "NAME-00001-of-00003.gguf". Any other
/// name is returned alone.
[[nodiscard]] std::vector<std::string> split_parts(std::string_view file_name);
/// Returns whether `file_name` is the second or a later part of a split model.
[[nodiscard]] bool is_later_part(std::string_view file_name);

}  // namespace slipstream::tools
