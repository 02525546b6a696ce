// The token ids over which `slipstream-lab drafts` drafts: those of a book, or random ones that repeat as a book does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::tools {

struct BenchText {
    std::vector<TokenId> tokens;
    std::int64_t vocab = 0;
};

/// Returns the first `n_tokens` ids of a text file, after BOS if the tokenizer adds it. Throws RequestError if the file
/// has fewer, IoError, and what find_tokenizer_source() and make_tokenizer() throw.
[[nodiscard]] BenchText read_bench_text(const std::filesystem::path& file, const std::filesystem::path& tokenizer,
                                        std::size_t n_tokens);

/// Returns `n_tokens` >= 2 ids in [0, vocab), vocab >= 2, the same for the same seed. New tokens are drawn by the law
/// of Zipf and Mandelbrot (probability proportional to 1 / (rank + 2.7)). One position in eight begins a copy, 6 tokens
/// long on average, of what followed the previous occurrence of the current token, as names and phrases repeat.
[[nodiscard]] BenchText make_bench_text(std::size_t n_tokens, std::int64_t vocab, std::uint64_t seed);

}  // namespace slipstream::tools
