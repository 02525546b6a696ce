// A vocabulary as arrays, by id, whichever file held it. What is optional stands for "the file does not say".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slipstream {

struct PlainVocabulary {
    std::string model;          // "llama", "gpt2", ...
    std::string pre_tokenizer;  // "default", "qwen2", ... or empty
    std::vector<std::string> tokens;
    std::vector<float> scores;        // [n] or empty
    std::vector<std::int32_t> types;  // [n] or empty: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    std::vector<std::string> merges;
    std::optional<std::int64_t> bos_id, eos_id, eot_id, unk_id, pad_id;
    std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
    std::string precompiled_charsmap;  // normalisation rules, bytes; or empty
};

}  // namespace slipstream
