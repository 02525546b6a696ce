// Tokens that a Hugging Face directory adds behind its tokenizer.model: "added_tokens_decoder" of
// tokenizer_config.json, the only place that names, for instance, Phi-3's <|end|>.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/added_token_matcher.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"

namespace slipstream {

/// Appends to `model` the added tokens, ascending, whose ids lie behind its pieces: special ones as Control, others as
/// UserDefined; ids between that nobody names become Unused. Ids inside the model are left as the model has them. End
/// tokens among the new ones are added to end_tokens. Throws FormatError naming the file, `name`.
void append_added_tokens(const std::vector<AddedToken>& tokens, std::string_view name, SentencePieceModel& model);

}  // namespace slipstream
