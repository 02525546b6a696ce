// SessionBegin: the first record of a session file. It holds everything that the session's text depends on, so that a
// program that continues the session continues the same text: the model and the kernels that compute it (batch
// invariance, E1, holds per kind of device and kernel variant), context and rope, the type of the KV cache, prompt,
// samplers, stop rules. Draft sources are not part of it, since they cannot change the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/rope.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Whether the prompt is printed before the text.
enum class PromptEcho : std::uint8_t { No, Yes };

struct SessionBegin {
    std::string program_version;  // version of the program that began the session
    std::string model_path;       // where the model was found; whether it is the model is decided by its fingerprint
    std::uint64_t model_fingerprint = 0;
    std::string device_kind;       // "cpu", "cuda"; of several devices a list
    std::string instruction_form;  // Device::instruction_form(): kernel variants, and the split if it decides the text
    std::int64_t context_tokens = 0;
    std::uint64_t rope_fingerprint = 0;
    DType kv_dtype = DType::F16;
    std::int64_t n_layers = 0;
    std::uint64_t kv_chunk_bytes = 0;  // size of a KV block: KvLayout::chunk_bytes() of the largest layer
    std::int64_t vocab = 0;
    SamplerOptions sampling;
    bool ignore_end = false;  // end tokens are never sampled (older sessions have them among the biases instead)
    std::vector<std::string> stops;
    std::vector<TokenId> end_tokens;
    std::int64_t max_tokens = -1;  // as requested when the session began; -1: until the context is full
    StreamingDetokenizer::Start text_start = StreamingDetokenizer::Start::Continued;
    PromptEcho echo = PromptEcho::No;
    std::string prompt_text;                  // as the user gave it
    std::vector<std::string> prompt_options;  // other options of the prompt: "system Be brief", "no-template true"
    std::vector<TokenId> prompt;              // tokens that the text begins with
};

/// Returns a hash of the frequencies and the magnitude; it differs if any bit differs.
[[nodiscard]] std::uint64_t rope_fingerprint(std::span<const RopeFrequencies> ropes);

[[nodiscard]] std::vector<std::byte> encode_session_begin(const SessionBegin& begin);
/// Throws FormatError, which names `name`, if the bytes are not what encode_session_begin() makes, or hold what no
/// model has: tokens outside the vocabulary, a prompt that is not shorter than the context.
[[nodiscard]] SessionBegin decode_session_begin(std::span<const std::byte> bytes, std::string_view name);

}  // namespace slipstream
