// SessionBegin: the first record of a session file. It holds everything that the session's text depends on, so that a
// program that continues the session continues the same text: the model and the kernels that compute it (batch
// invariance, E1, holds per kind of device and kernel variant), context and rope, the type of the KV cache, prompt,
// samplers, stop rules. Draft sources are not part of it, since they cannot change the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/dtype.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/rope.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Whether the prompt is printed before the text.
enum class PromptEcho : std::uint8_t { No, Yes };

/// Version of the session format. Version 1 has KV blocks of one size (smaller KV chunks are padded with zeros) in a
/// fixed order, all layers of a chunk before the next chunk. A session keeps the version that it was begun with.
inline constexpr std::uint32_t kSessionVersion = 2;
inline constexpr std::uint32_t kOldestSessionVersion = 1;

/// A split of the model over several devices that decides the bits of the text.
struct SessionSplit {
    SplitKind kind = SplitKind::Layers;
    std::vector<std::int64_t> parts{};  // [devices]: layers or kv heads
    friend bool operator==(const SessionSplit&, const SessionSplit&) = default;
};

struct SessionBegin {
    std::uint32_t version = kSessionVersion;  // of the format
    std::string program_version;              // version of the program that began the session
    std::string model_path;  // where the model was found; whether it is the model is decided by its fingerprint
    std::uint64_t model_fingerprint = 0;
    std::string device_kind;              // "cpu", "cuda"; of several devices a list
    std::string instruction_form;         // Device::instruction_form() of each kind of device: kernel variants
    std::optional<SessionSplit> split{};  // split over several devices, if it decides the text; else no value
    std::int64_t context_tokens = 0;
    std::uint64_t rope_fingerprint = 0;
    DType kv_dtype = DType::F16;
    std::vector<std::uint64_t> kv_bytes{};  // [layers]: bytes of a KV block, see session_kv_bytes()
    std::int64_t vocab = 0;
    SamplerOptions sampling;
    bool ignore_end = false;  // end tokens are never sampled (older sessions have them among the biases instead)
    std::vector<std::string> stops;
    std::vector<TokenId> end_tokens;
    // Most tokens to generate, as requested when the session began; -1: until the context is full.
    std::int64_t max_tokens = -1;
    StreamingDetokenizer::Start text_start = StreamingDetokenizer::Start::Continued;
    PromptEcho echo = PromptEcho::No;
    std::string prompt_text;                  // the prompt as the user gave it
    std::vector<std::string> prompt_options;  // other options of the prompt: "system Be brief", "no-template true"
    std::vector<TokenId> prompt;              // tokens that the text begins with

    [[nodiscard]] std::int64_t n_layers() const { return static_cast<std::int64_t>(kv_bytes.size()); }
};

/// Returns SessionBegin::kv_bytes of a model whose layers have these layouts: the bytes of each layer's KV chunk; in
/// version 1 those of the largest KV chunk for all layers.
[[nodiscard]] std::vector<std::uint64_t> session_kv_bytes(std::span<const KvLayout> layouts,
                                                          std::uint32_t version = kSessionVersion);

/// Returns a hash of the frequencies and the magnitude; it differs if any bit differs.
[[nodiscard]] std::uint64_t rope_fingerprint(std::span<const RopeFrequencies> ropes);

/// Returns the encoded fields, except for `version`, as format version begin.version has them.
[[nodiscard]] std::vector<std::byte> encode_session_begin(const SessionBegin& begin);
/// Returns the fields that `bytes` encode. Throws FormatError, which names `name`, if the bytes are not what
/// encode_session_begin() makes for `version`, or hold what no model has: tokens outside the vocabulary, a prompt that
/// is not shorter than the context.
[[nodiscard]] SessionBegin decode_session_begin(std::span<const std::byte> bytes, std::uint32_t version,
                                                std::string_view name);

}  // namespace slipstream
