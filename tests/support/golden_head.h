// The heads of tests/golden/mtp: MTP heads beside some golden models (golden_model.h), whose weights follow from names
// and indices in the same way.
#pragma once

#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/golden_model.h"

namespace slipstream {

struct GoldenHead {
    GoldenModel model;                  // the model with the head's tensors, as a Hugging Face directory has them
    std::vector<GoldenTensor> tensors;  // of the head
    std::vector<TokenId> drafted;       // draft tokens of the head after model.tokens, in order
    /// [n_tokens - 1 + drafted - 1, vocab]: after each pair of a hidden state and the next token of the text, then
    /// after each drafted token but the last.
    std::vector<float> logits;
};

[[nodiscard]] GoldenHead load_golden_head(const std::string& name);

/// Returns a writer of the model and its head as a GGUF file, as llama.cpp's converter writes one.
[[nodiscard]] GgufWriter golden_head_gguf(const GoldenHead& head);

}  // namespace slipstream
