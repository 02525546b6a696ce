// An opened model on disk: configuration, weights as views into mapped memory, and the data of the tokenizer. Hugging
// Face directories and GGUF files (whole or split) have this one interface.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/weight_source.h"
#include "runtime/text/chat/choose_template.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// A tensor of a file; `view` points into the mapping. If the type cannot be computed with, or there are more
/// dimensions than a view has, view.data is null, and only type_name and shape describe the bytes at `data`.
struct FileTensor {
    std::string name;
    ConstTensorView view;
    const std::byte* data = nullptr;  // in the mapping
    std::size_t bytes = 0;
    std::string type_name;            // as the file format spells it: "Q4_K", "IQ2_XS", "F8_E4M3"
    std::vector<std::int64_t> shape;  // row-major
};

/// The vocabulary of a GGUF file (tokenizer.ggml.*).
using GgufVocabulary = PlainVocabulary;

/// Where a model's tokenizer is read from: the arrays of a GGUF file, or the files of a directory. Paths of files that
/// do not exist are empty.
struct TokenizerSource {
    std::optional<GgufVocabulary> gguf;
    std::filesystem::path sentencepiece_model;    // tokenizer.model, or empty
    std::filesystem::path tokenizer_json;         // tokenizer.json, or empty
    std::filesystem::path tekken_json;            // tekken.json, or empty
    std::filesystem::path vocab_json;             // vocab.json, or empty
    std::filesystem::path merges_txt;             // merges.txt, or empty
    std::filesystem::path tokenizer_config_json;  // tokenizer_config.json, or empty
    // From config.json and tokenizer_config.json of a directory; for a GGUF file, `gguf` has them.
    std::optional<std::int64_t> bos_id;
    std::optional<bool> add_bos;
    std::vector<NamedChatTemplate> chat_templates;  // all templates, in the order in which they were found
};

/// Makes the tokenizer of an opened model. Maps the files that `source` names while it reads them. Throws IoError,
/// Unsupported (with the kind of tokenizer), FormatError.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source);

/// An opened model. Views of weights and tensors are valid as long as this object.
class ModelFiles : public WeightSource {
public:
    /// Opens a GGUF file (of a split model the first part), or a Hugging Face directory (or its config.json). Maps the
    /// files and reads only their headers. Throws IoError, FormatError, Unsupported; each message names the file.
    [[nodiscard]] static std::unique_ptr<ModelFiles> open(const std::filesystem::path& path);

    [[nodiscard]] virtual std::string_view format() const = 0;                          // "GGUF v3", "safetensors"
    [[nodiscard]] virtual const std::vector<std::filesystem::path>& paths() const = 0;  // the mapped files
    [[nodiscard]] virtual std::size_t total_bytes() const = 0;                          // bytes of these files together
    [[nodiscard]] virtual const GenerationDefaults& generation_defaults() const = 0;
    [[nodiscard]] virtual const TokenizerSource& tokenizer_source() const = 0;
    /// Returns the template called "default"; tokenizer_source() has all of them.
    [[nodiscard]] virtual const std::optional<std::string>& chat_template() const = 0;
    /// Returns all tensors, in file order, also those that are not weights.
    [[nodiscard]] virtual const std::vector<FileTensor>& tensors() const = 0;
    /// Returns metadata for `inspect`: keys and printable values, in file order (long arrays are shortened).
    [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> metadata() const = 0;
};

}  // namespace slipstream
