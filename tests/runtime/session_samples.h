// A small session for tests: its beginning, and a file with records of every kind.
#pragma once

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/session/session_file.h"

namespace slipstream {

inline constexpr std::int64_t kSampleLayers = 2;
inline constexpr std::size_t kSampleChunkBytes = 96;

/// A prompt of 250 tokens, so that six more fill a chunk.
inline SessionBegin sample_begin() {
    SessionBegin begin{.program_version = "1.2.3",
                       .model_path = "models/tales",
                       .model_fingerprint = 0x1234567890abcdef,
                       .device_kind = "cpu",
                       .instruction_form = "avx2",
                       .context_tokens = 2048,
                       .rope_fingerprint = 77,
                       .kv_dtype = DType::BF16,
                       .kv_bytes = std::vector<std::uint64_t>(kSampleLayers, kSampleChunkBytes),
                       .vocab = 97,
                       .sampling = {.temperature = 0.7, .top_k = 5, .top_p = 0.9, .min_p = 0.01, .seed = 42},
                       .stops = {"END", "\xe2\x82"},
                       .end_tokens = {2, 96},
                       .max_tokens = 500,
                       .text_start = StreamingDetokenizer::Start::OfText,
                       .echo = PromptEcho::Yes,
                       .prompt_text = std::string("a\0b", 3),
                       .prompt_options = {"system Be brief."},
                       .prompt = {}};
    for (TokenId i = 0; i < 250; ++i) begin.prompt.push_back(i % 97);
    return begin;
}

inline std::vector<std::byte> sample_block(int seed) {
    std::vector<std::byte> block(kSampleChunkBytes);
    for (std::size_t i = 0; i < block.size(); ++i)
        block[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
    return block;
}

/// Appends tokens, a chunk of KV, a new limit and more tokens.
inline void grow(SessionFile& session) {
    session.append_tokens(std::vector<TokenId>{1, 2, 3, 4, 5});
    session.append_tokens(std::vector<TokenId>{6, 7});
    session.append_kv(0, 0, sample_block(1));
    session.append_kv(1, 0, sample_block(2));
    session.append_max_tokens(900);
    session.append_tokens(std::vector<TokenId>{8});
}

inline std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::vector<std::byte> bytes(text.size());
    if (!bytes.empty()) std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

inline void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace slipstream
