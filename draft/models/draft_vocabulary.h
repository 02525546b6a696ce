// Whether a draft model speaks the target's language: guesses are token ids, so the two vocabularies must be one.
#pragma once

#include "runtime/formats/model_files.h"

namespace slipstream::draft {

/// Compares tokens, ids and special ids (beginning of text, end tokens) of two models. One may have up to 128 tokens
/// more at its end, as padding, and the widths of their logits may differ: ids beyond the narrower model are neither
/// proposed nor fed (llama.cpp's common/speculative.cpp allows as many). Throws RequestError that names the first
/// difference, and what make_tokenizer() throws: Unsupported where a tokenizer's kind is not served.
void check_draft_vocabulary(const ModelFiles& target, const ModelFiles& draft);

}  // namespace slipstream::draft
