// Opens GGUF models: one file, or all parts of a split one (NAME-00001-of-000NN.gguf, as llama.cpp's gguf-split writes
// them, with the keys split.no, split.count and split.tensors.count). Metadata is read from the first part, tensors
// from all.
#include <fmt/format.h>

#include <charconv>

#include "kernels/base/error.h"
#include "runtime/formats/chat_templates.h"
#include "runtime/formats/family.h"
#include "runtime/formats/file_presence.h"
#include "runtime/formats/gguf_config.h"
#include "runtime/formats/gguf_file.h"
#include "runtime/formats/gguf_vocabulary.h"
#include "runtime/formats/model_contents.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Most parts of a split model: the number in a file name has five digits.
constexpr std::int64_t kMaxParts = 99999;

// The parsed file name of a part: "NAME-00001-of-00003.gguf" is NAME, 1, 3.
struct PartName {
    std::string stem;
    std::int64_t number = 0;
    std::int64_t count = 0;
};

std::optional<std::int64_t> five_digits(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.size() != 5 || error != std::errc() || end != text.data() + 5 || value < 1) return std::nullopt;
    return value;
}

std::optional<PartName> parse_part_name(const std::string& file_name) {
    constexpr std::string_view kTail = "-00000-of-00000.gguf";
    if (file_name.size() <= kTail.size() || !file_name.ends_with(".gguf")) return std::nullopt;
    const std::size_t at = file_name.size() - kTail.size();
    const std::string_view tail = std::string_view(file_name).substr(at);
    if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
    const auto number = five_digits(tail.substr(1, 5));
    const auto count = five_digits(tail.substr(10, 5));
    if (!number || !count) return std::nullopt;
    return PartName{file_name.substr(0, at), *number, *count};
}

std::string part_name(const PartName& name, std::int64_t number) {
    return fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, number, name.count);
}

void add_tensors(ModelContents& model, const GgufFile& part) {
    for (const GgufTensor& tensor : part.tensors()) {
        const std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
        model.tensors.push_back(make_file_tensor(tensor.name, tensor.type->name, tensor.type->dtype, shape,
                                                 part.bytes().subspan(tensor.offset, tensor.bytes)));
    }
}

void add_part(ModelContents& model, const std::filesystem::path& path, std::int64_t index, std::int64_t count) {
    if (!is_there(path))
        throw IoError(fmt::format("{}: part {} of {} of the model is missing", path.string(), index + 1, count));
    model.files.emplace_back(path);
    const GgufFile part = GgufFile::parse(model.files.back().bytes(), path.string());
    const auto number = part.integer("split.no");
    const auto part_count = part.integer("split.count");
    if (number != index || part_count != count)
        throw FormatError(fmt::format("{}: claims to be part {} of {}, not part {} of {}", path.string(),
                                      number.value_or(-1) + 1, part_count.value_or(0), index + 1, count));
    add_tensors(model, part);
}

// Adds the tensors of all parts after the first.
void add_parts(ModelContents& model, const GgufFile& first, const std::filesystem::path& path) {
    const std::int64_t count = first.integer("split.count").value_or(1);
    if (count <= 1) return;
    if (count > kMaxParts) throw FormatError(fmt::format("{}: claims {} parts", first.name(), count));
    const auto name = parse_part_name(path.filename().string());
    if (!name || name->count != count)
        throw FormatError(fmt::format("{}: the first of {} parts, which must be named NAME-00001-of-{:05}.gguf",
                                      first.name(), count, count));
    const std::int64_t number = first.integer("split.no").value_or(0);
    if (number != 0)
        throw FormatError(fmt::format("{}: part {} of {} of a model; open the first, {}", first.name(), number + 1,
                                      count, part_name(*name, 1)));
    model.files.reserve(count);
    for (std::int64_t i = 1; i < count; ++i) add_part(model, path.parent_path() / part_name(*name, i + 1), i, count);
    const auto n_tensors = first.integer("split.tensors.count");
    if (n_tensors && *n_tensors != static_cast<std::int64_t>(model.tensors.size()))
        throw FormatError(fmt::format("{}: {} tensors in all {} parts, split.tensors.count says {}", first.name(),
                                      model.tensors.size(), count, *n_tensors));
}

}  // namespace

ModelContents open_gguf(const std::filesystem::path& path) {
    ModelContents model;
    model.label = path.string();
    model.files.emplace_back(path);
    const GgufFile first = GgufFile::parse(model.files.front().bytes(), path.string());
    model.format = fmt::format("GGUF v{}", first.version());
    add_tensors(model, first);
    add_parts(model, first, path);
    if (model.tensors.empty())
        throw FormatError(
            fmt::format("{}: holds no tensors (a vocabulary alone?), so there is no model in it", first.name()));
    // A model without a tokenizer can still be inspected and benchmarked.
    GgufVocabulary vocabulary;
    if (first.find("tokenizer.ggml.model") != nullptr) {
        vocabulary = read_gguf_vocabulary(first);
        model.tokenizer_source.gguf = vocabulary;
    }
    try {
        const TensorIndex index(model.tensors);
        model.config = read_gguf_config(first, index);
    } catch (const FormatError& error) {
        const std::string text = error.what();
        throw FormatError(text.starts_with(first.name()) ? text : fmt::format("{}: {}", first.name(), text));
    }
    if (static_cast<std::int64_t>(vocabulary.tokens.size()) > model.config.vocab)
        throw FormatError(fmt::format("{}: {} tokens in the vocabulary, {} rows in token_embd.weight", first.name(),
                                      vocabulary.tokens.size(), model.config.vocab));
    model.generation_defaults = read_gguf_generation_defaults(first, vocabulary);
    model.tokenizer_source.chat_templates = gguf_chat_templates(first);
    if (const std::string* text = find_chat_template(model.tokenizer_source.chat_templates, kDefaultChatTemplate))
        model.chat_template = *text;
    for (const auto& [key, value] : first.entries()) model.metadata.emplace_back(printable(key), value.to_text());
    const Family& family = find_family(model.config.family);
    model.names = &family.gguf_names;
    model.rules = family.gguf_biases;
    return model;
}

}  // namespace slipstream
