// The older form of a byte-level vocabulary: vocab.json and merges.txt. The text's way to it is fixed by the class of
// the tokenizer that tokenizer_config.json (or config.json) names.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/pipeline_assembly.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

struct VocabMergesFiles {
    std::string_view vocab_json, merges_txt;  // contents
    std::string vocab_name, merges_name;      // for messages
};

/// Throws FormatError; Unsupported naming the class where it is not GPT-2's, CodeGen's or Qwen 2's.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_vocab_merges(const VocabMergesFiles& files,
                                                            const TokenizerSettings& settings, const TextEnds& ends);

}  // namespace slipstream
