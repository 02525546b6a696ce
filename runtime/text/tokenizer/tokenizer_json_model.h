// The "model" of a tokenizer.json: the vocabulary and what turns words into its tokens. Nine tenths of the file; read
// in one pass without building JSON values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/indexed_vocabulary.h"
#include "runtime/text/tokenizer/json_stream.h"
#include "runtime/text/tokenizer/word_model.h"

namespace slipstream {

enum class TokenSpelling : std::uint8_t { ByteAlphabet, Characters };

struct JsonModel {
    IndexedVocabulary vocabulary;
    std::unique_ptr<WordModel> model;
    bool may_cut_at_spaces = false;  // words may be cut in front of "▁" without another result
};

/// The fields of a model; the large ones still as text.
struct JsonModelFields {
    std::string type;
    std::string_view vocabulary, merges;
    std::string unk_token;
    std::optional<std::int64_t> unk_id;
    bool byte_fallback = false, fuse_unk = false, ignore_merges = false;
};

/// The value of "model", which `json` stands before. Throws FormatError, Unsupported; `name` is the file's.
[[nodiscard]] JsonModelFields read_model_fields(JsonStream& json, const std::string& name);

/// Throws FormatError, Unsupported; `name` is the file's.
[[nodiscard]] JsonModel read_json_model(const JsonModelFields& fields, TokenSpelling spelling, const std::string& name);

}  // namespace slipstream
