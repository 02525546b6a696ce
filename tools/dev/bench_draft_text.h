// What bench_draft drafts over: token ids of a book, or made-up ones that repeat themselves as a book does.
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

/// The first `n_tokens` ids of a text file, BOS in front where the tokenizer asks for it. Throws RequestError where the
/// file holds fewer, IoError, and what find_tokenizer_source() and make_tokenizer() throw.
[[nodiscard]] BenchText read_bench_text(const std::filesystem::path& file, const std::filesystem::path& tokenizer,
                                        std::size_t n_tokens);

/// `n_tokens` >= 2 ids in [0, vocab), vocab >= 2, the same for the same seed. New tokens are drawn by Zipf's law
/// (probability proportional to 1 / (rank + 2.7)); one place in eight begins a copy of what stood behind the last
/// place of the same token, of 6 tokens in the mean: names and turns of phrase.
[[nodiscard]] BenchText make_bench_text(std::size_t n_tokens, std::int64_t vocab, std::uint64_t seed);

}  // namespace slipstream::tools
