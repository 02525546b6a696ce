// What a session's text is made of: the first record of a session file. All that the text depends on stands here, so
// that whoever goes on with it goes on with the same text: the model and the kernels that compute it (E1 holds per
// kind of device and instruction form), context and rope, the type of the KV cache, prompt, samplers, stop rules. What
// guesses does not: it cannot change the text.
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

/// Whether the prompt is printed in front of the text.
enum class PromptEcho : std::uint8_t { No, Yes };

struct SessionBegin {
    std::string program_version;  // of the program that began it
    std::string model_path;       // where the model was found; the fingerprint decides
    std::uint64_t model_fingerprint = 0;
    std::string device_kind;       // "cpu"
    std::string instruction_form;  // Device::instruction_form()
    std::int64_t context_tokens = 0;
    std::uint64_t rope_fingerprint = 0;
    DType kv_dtype = DType::F16;
    std::int64_t n_layers = 0;
    std::uint64_t kv_chunk_bytes = 0;  // KvShape::chunk_bytes()
    std::int64_t vocab = 0;
    SamplerOptions sampling;
    bool ignore_end = false;  // end tokens never come (older sessions have them among the biases instead)
    std::vector<std::string> stops;
    std::vector<TokenId> end_tokens;
    std::int64_t max_tokens = -1;  // that were asked for at first; -1: until the context is full
    StreamingDetokenizer::Start text_start = StreamingDetokenizer::Start::Continued;
    PromptEcho echo = PromptEcho::No;
    std::string prompt_text;                  // as the user gave it
    std::vector<std::string> prompt_options;  // what else was asked for of it: "system Be brief", "no-template true"
    std::vector<TokenId> prompt;              // as it is computed on
};

/// Tells frequencies apart, to the bit.
[[nodiscard]] std::uint64_t rope_fingerprint(const RopeFrequencies& rope);

[[nodiscard]] std::vector<std::byte> encode_session_begin(const SessionBegin& begin);
/// Throws FormatError naming `name` where the bytes are not what encode_session_begin() makes, or hold what no model
/// has: tokens outside of the vocabulary, a prompt that is not shorter than the context.
[[nodiscard]] SessionBegin decode_session_begin(std::span<const std::byte> bytes, std::string_view name);

}  // namespace slipstream
