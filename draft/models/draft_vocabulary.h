// Whether a draft model has the vocabulary of the target: draft tokens are token ids, so both models must use the same
// ids.
#pragma once

#include "runtime/formats/model_files.h"

namespace slipstream::draft {

/// Compares tokens, ids and special ids (beginning of text, end tokens) of two models. One model may have up to 128
/// tokens more at the end, as padding, and the widths of the logits may differ: ids beyond the narrower model are
/// neither proposed nor fed (llama.cpp's common/speculative.cpp allows as many). Throws RequestError that names the
/// first difference; also throws what make_tokenizer() throws: Unsupported if a kind of tokenizer is not supported.
void check_draft_vocabulary(const ModelFiles& target, const ModelFiles& draft);

}  // namespace slipstream::draft
