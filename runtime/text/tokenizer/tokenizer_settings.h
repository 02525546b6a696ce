// tokenizer_config.json of a Hugging Face directory, as far as it is about ids: which class of tokenizer the files are
// for, which tokens begin and end a text, and the tokens that were added.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/added_token_matcher.h"

namespace slipstream {

struct TokenizerSettings {
    std::string tokenizer_class;  // "Qwen2Tokenizer", or empty
    std::optional<std::string> bos_token, eos_token, unk_token;
    std::optional<bool> add_bos, add_eos, add_prefix_space;
    std::vector<AddedToken> added_tokens;  // "added_tokens_decoder", by ascending id
};

/// Reads the file's text; throws FormatError naming it.
[[nodiscard]] TokenizerSettings read_tokenizer_settings(std::string_view text, const std::string& name);

/// Whether a control token ends a turn or a text in published models, by its usual spelling ("<|eot_id|>", "<|end|>",
/// ...): a vocabulary often names only one of its end tokens as EOS.
[[nodiscard]] bool ends_text_by_name(std::string_view spelling);

/// Whether a token looks like one that structures a conversation: "<|...|>", "<｜...｜>", one that ends_text_by_name(),
/// or another that chat templates of published models write. Files call some of them user-defined instead of special.
[[nodiscard]] bool is_turn_mark(std::string_view spelling);

}  // namespace slipstream
