// One opened model on disk, whatever its format: configuration, weights as views into mapped memory, and the raw
// material of the tokenizer. Hugging Face directories and GGUF (whole or in parts) answer to the same interface.
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

/// A tensor as it lies in a file; the view points into the mapping. A type that cannot be computed on (or more
/// dimensions than a view has) leaves view.data null; type_name and shape stand for themselves then.
struct FileTensor {
    std::string name;
    ConstTensorView view;
    std::size_t bytes = 0;
    std::string type_name;            // as the file's format spells it: "Q4_K", "IQ2_XS", "F8_E4M3"
    std::vector<std::int64_t> shape;  // row-major
};

/// The vocabulary as a GGUF file holds it (tokenizer.ggml.*).
using GgufVocabulary = PlainVocabulary;

/// Where a model's tokenizer is to be read from: the GGUF's own arrays, or files of a directory (only those that
/// exist).
struct TokenizerSource {
    std::optional<GgufVocabulary> gguf;
    std::filesystem::path sentencepiece_model;    // tokenizer.model, or empty
    std::filesystem::path tokenizer_json;         // tokenizer.json, or empty
    std::filesystem::path vocab_json;             // vocab.json, or empty
    std::filesystem::path merges_txt;             // merges.txt, or empty
    std::filesystem::path tokenizer_config_json;  // tokenizer_config.json, or empty
    // From config.json / tokenizer_config.json of a directory; GGUF keys stand in `gguf`.
    std::optional<std::int64_t> bos_id;
    std::optional<bool> add_bos;
    std::vector<NamedChatTemplate> chat_templates;  // all that there are, in the order they were found
};

/// Reads the tokenizer of an opened model: maps the files that `source` names, while it reads them. Throws IoError,
/// Unsupported (naming the kind), FormatError.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source);

class ModelFiles : public WeightSource {
public:
    /// Opens a GGUF file (or the first part of a split one), or a Hugging Face directory (or its config.json). Maps the
    /// files, reads nothing but headers. Throws IoError, FormatError, Unsupported; each message names the file.
    [[nodiscard]] static std::unique_ptr<ModelFiles> open(const std::filesystem::path& path);

    [[nodiscard]] virtual std::string_view format() const = 0;                          // "GGUF v3", "safetensors"
    [[nodiscard]] virtual const std::vector<std::filesystem::path>& paths() const = 0;  // the mapped files
    [[nodiscard]] virtual std::size_t total_bytes() const = 0;                          // of those files
    [[nodiscard]] virtual const GenerationDefaults& generation_defaults() const = 0;
    [[nodiscard]] virtual const TokenizerSource& tokenizer_source() const = 0;
    /// The template called "default"; all of them stand in tokenizer_source().
    [[nodiscard]] virtual const std::optional<std::string>& chat_template() const = 0;
    [[nodiscard]] virtual const std::vector<FileTensor>& tensors() const = 0;  // all, in file order
    /// Metadata to show in `inspect`, key and printable value, in file order (long arrays summarised).
    [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> metadata() const = 0;
};

}  // namespace slipstream
