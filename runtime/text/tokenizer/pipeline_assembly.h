// What the readers of byte-level vocabularies share: added tokens take their places in the vocabulary, and which tokens
// begin and end a text is settled between the files of a directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/tokenizer/indexed_vocabulary.h"
#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/tokenizer_settings.h"

namespace slipstream {

/// The tokens around a text, as a post_processor says.
struct TextTemplate {
    std::optional<TokenId> before, after;
};

/// What a directory says beside the tokenizer's files; add_bos overrules them.
struct TextEnds {
    std::optional<std::int64_t> bos_id;  // where no file names the token
    std::optional<bool> add_bos;
};

/// Adds each token at its id, or finds it where the model's vocabulary has its spelling already; returns them with
/// their ids. Of equal contents the last counts. Throws FormatError where an id belongs to another token; `name` is the
/// file's.
[[nodiscard]] std::vector<AddedToken> place_added_tokens(std::vector<AddedToken> tokens, IndexedVocabulary& vocabulary,
                                                         const std::string& name);

/// Sets BOS, EOS and end tokens of `parts`, whose vocabulary and added tokens are there. Throws FormatError.
void set_text_ends(const TokenizerSettings& settings, const TextTemplate& around, const TextEnds& ends,
                   PipelineParts& parts, const std::string& name);

}  // namespace slipstream
