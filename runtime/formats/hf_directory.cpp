// Opens Hugging Face directories: config.json, generation_config.json, tokenizer files, and model.safetensors or the
// files that model.safetensors.index.json lists.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "kernels/base/error.h"
#include "runtime/formats/chat_templates.h"
#include "runtime/formats/family.h"
#include "runtime/formats/file_presence.h"
#include "runtime/formats/hf_config.h"
#include "runtime/formats/model_contents.h"
#include "runtime/formats/safetensors_file.h"
#include "runtime/formats/suppressed_tokens.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

fs::path if_exists(fs::path path) {
    return is_there(path) ? std::move(path) : fs::path();
}

void add_shard(ModelContents& model, const fs::path& path) {
    model.files.emplace_back(path);
    const auto bytes = model.files.back().bytes();
    SafetensorsFile shard = SafetensorsFile::parse(bytes, path.string());
    for (SafetensorsTensor& tensor : shard.tensors)
        model.tensors.push_back(make_file_tensor(std::move(tensor.name), tensor.type_name, tensor.dtype,
                                                 std::move(tensor.shape), bytes.subspan(tensor.offset, tensor.bytes)));
    for (const auto& [key, value] : shard.metadata) model.metadata.emplace_back(printable(key), printable(value));
}

// Reads a model.safetensors.index.json at `path`. Returns the file name of each tensor. Throws FormatError.
std::map<std::string, std::string> read_weight_map(const fs::path& path) {
    const MappedFile file(path);
    const nlohmann::json json = parse_json_object(text_of(file), path.string());
    const JsonFields fields(json, path.string());
    const auto* map = fields.object("weight_map");
    if (map == nullptr || map->empty()) fields.fail("weight_map", "is missing or empty");
    std::map<std::string, std::string> result;
    for (const auto& [tensor, value] : map->items()) {
        if (!value.is_string()) fields.fail("weight_map", fmt::format("names no file for {}", printable(tensor)));
        const auto& name = value.get_ref<const std::string&>();
        // Only a plain file name is accepted, so that an index cannot lead out of its directory.
        if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
            name.find('\0') != std::string::npos)
            fields.fail("weight_map", fmt::format("names the file \"{}\", which is not a plain name", printable(name)));
        result.emplace(tensor, name);
    }
    return result;
}

void add_shards(ModelContents& model, const fs::path& directory, const fs::path& index_path) {
    const auto weight_map = read_weight_map(index_path);
    const std::string index_name = index_path.filename().string();
    std::set<std::string> names;
    for (const auto& [tensor, file] : weight_map) names.insert(file);
    model.files.reserve(names.size());
    std::vector<std::string_view> shard_of;  // [tensors]: file name
    for (const std::string& name : names) {
        const fs::path path = directory / name;
        if (!is_there(path)) throw IoError(fmt::format("{}: missing, though {} lists it", path.string(), index_name));
        add_shard(model, path);
        shard_of.resize(model.tensors.size(), name);
    }
    std::unordered_map<std::string_view, std::string_view> held;
    for (std::size_t i = 0; i < shard_of.size(); ++i)
        if (!held.emplace(model.tensors[i].name, shard_of[i]).second)
            throw FormatError(fmt::format("{}: tensor {} is in {} too", (directory / shard_of[i]).string(),
                                          printable(model.tensors[i].name), held.at(model.tensors[i].name)));
    for (const auto& [tensor, file] : weight_map) {
        const auto found = held.find(tensor);
        if (found == held.end() || found->second != file)
            throw FormatError(fmt::format("{}: tensor {} is missing, though {} lists it", (directory / file).string(),
                                          printable(tensor), index_name));
    }
}

void add_weights(ModelContents& model, const fs::path& directory) {
    const fs::path whole = directory / "model.safetensors";
    const fs::path index = directory / "model.safetensors.index.json";
    // If a directory has both a whole file and an index of shards, transformers uses the whole file.
    if (is_there(whole)) {
        add_shard(model, whole);
    } else if (is_there(index)) {
        add_shards(model, directory, index);
    } else {
        const bool pickled =
            is_there(directory / "pytorch_model.bin") || is_there(directory / "pytorch_model.bin.index.json");
        throw FormatError(fmt::format("{}: no model.safetensors and no model.safetensors.index.json{}",
                                      directory.string(),
                                      pickled ? "; convert the pytorch_model.bin to safetensors" : ""));
    }
}

// Gives the tensors of a text model inside a larger one the names that they have alone. Older directories put a prefix
// before all of them, newer ones a part after "model.".
void strip_nesting(std::vector<FileTensor>& tensors) {
    constexpr std::string_view kOlder = "language_model.";
    constexpr std::string_view kNewer = "model.language_model.";
    for (FileTensor& tensor : tensors) {
        if (tensor.name.starts_with(kNewer))
            tensor.name = fmt::format("model.{}", tensor.name.substr(kNewer.size()));
        else if (tensor.name.starts_with(kOlder))
            tensor.name = tensor.name.substr(kOlder.size());
    }
}

void find_tokenizer(ModelContents& model, const fs::path& directory) {
    TokenizerSource& source = model.tokenizer_source;
    source.sentencepiece_model = if_exists(directory / "tokenizer.model");
    source.tokenizer_json = if_exists(directory / "tokenizer.json");
    source.tekken_json = if_exists(directory / "tekken.json");
    source.vocab_json = if_exists(directory / "vocab.json");
    source.merges_txt = if_exists(directory / "merges.txt");
    source.tokenizer_config_json = if_exists(directory / "tokenizer_config.json");
    nlohmann::json config = nlohmann::json::object();
    if (!source.tokenizer_config_json.empty()) {
        const MappedFile file(source.tokenizer_config_json);
        const std::string name = source.tokenizer_config_json.string();
        config = parse_json_object(text_of(file), name);
        source.add_bos = JsonFields(config, name).boolean("add_bos_token");
    }
    source.chat_templates = hf_chat_templates(directory, config);
    if (const std::string* text = find_chat_template(source.chat_templates, kDefaultChatTemplate))
        model.chat_template = *text;
}

// Adds the fields of config.json to the metadata that `inspect` shows.
void add_config_metadata(ModelContents& model, std::string_view text, const std::string& name) {
    const nlohmann::json json = parse_json_object(text, name);
    for (const auto& [key, value] : json.items())
        model.metadata.emplace_back(printable(key),
                                    printable(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
}

// Returns the type of the KV cache: the one in config.json, else that of the first matrix, so that 16-bit weights have
// a 16-bit cache.
DType kv_type(const ModelContents& model, const HfConfig& config) {
    if (config.dtype) return *config.dtype;
    for (const FileTensor& tensor : model.tensors)
        if (tensor.name.ends_with(".weight") && tensor.shape.size() == 2 && !tensor.view.empty())
            return tensor.view.dtype;
    return DType::F16;
}

}  // namespace

ModelContents open_hf_directory(const fs::path& directory) {
    ModelContents model;
    model.label = directory.string();
    model.format = "safetensors";
    const fs::path config_path = directory / "config.json";
    const MappedFile config_file(config_path);
    HfConfig config = parse_hf_config(text_of(config_file), config_path.string());
    add_config_metadata(model, text_of(config_file), config_path.string());
    add_weights(model, directory);
    if (config.is_nested) strip_nesting(model.tensors);
    const TensorNames& names = find_family(config.model.family).hf_names;
    if (config.is_tied_without_head)
        config.model.tied_embeddings =
            std::ranges::find(model.tensors, names[TensorRole::LmHead], &FileTensor::name) == model.tensors.end();
    model.config = std::move(config.model);
    model.config.kv_dtype = kv_type(model, config);
    if (model.config.name.empty()) model.config.name = fs::absolute(directory / "").parent_path().filename().string();
    if (const fs::path path = directory / "generation_config.json"; is_there(path)) {
        const MappedFile file(path);
        model.generation_defaults = parse_generation_config(text_of(file), path.string());
    }
    auto& ends = model.generation_defaults.end_tokens;
    if (ends.empty()) ends = config.end_tokens;
    std::erase_if(ends, [&](TokenId id) { return id >= model.config.vocab; });
    tidy_suppressed_tokens(model.generation_defaults, model.config.vocab);
    if (config.bos_id && *config.bos_id < model.config.vocab) model.tokenizer_source.bos_id = config.bos_id;
    find_tokenizer(model, directory);
    model.names = &names;
    model.rules = config.biases;
    return model;
}

}  // namespace slipstream
