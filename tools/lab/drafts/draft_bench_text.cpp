#include "tools/lab/drafts/draft_bench_text.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/lab/random_model/random_model_blocks.h"
#include "tools/machine/tokenizer_files.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

constexpr double kMandelbrot = 2.7;      // offset of the rank in the law of Zipf and Mandelbrot
constexpr std::uint64_t kCopyOneIn = 8;  // one position in this many begins a copy
constexpr std::uint64_t kCopyTokens = 6;
constexpr std::size_t kBytesOfAToken = 8;  // bytes read per wanted token; the tokens of no text need more

std::string read_start(const fs::path& path, std::size_t n_bytes) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw IoError(fmt::format("{}: cannot be read; give a text file", path.string()));
    std::string text(n_bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(n_bytes));
    text.resize(file.gcount());
    return text;
}

}  // namespace

BenchText read_bench_text(const fs::path& file, const fs::path& tokenizer_path, std::size_t n_tokens) {
    const auto tokenizer = make_tokenizer(find_tokenizer_source(tokenizer_path));
    BenchText text{.tokens = {}, .vocab = tokenizer->vocab_size()};
    if (tokenizer->adds_bos() && tokenizer->bos_id()) text.tokens.push_back(*tokenizer->bos_id());
    const auto ids = tokenizer->encode(read_start(file, n_tokens * kBytesOfAToken), SpecialTokens::AsText);
    text.tokens.insert(text.tokens.end(), ids.begin(), ids.end());
    if (text.tokens.size() < n_tokens)
        throw RequestError(
            fmt::format("{}: {} tokens are needed and there are {}; give a longer text or a shorter "
                        "context",
                        file.string(), n_tokens, text.tokens.size()));
    text.tokens.resize(n_tokens);
    return text;
}

BenchText make_bench_text(std::size_t n_tokens, std::int64_t vocab, std::uint64_t seed) {
    CHECK(n_tokens >= 2 && vocab >= 2, "{} tokens of {}", n_tokens, vocab);
    std::vector<double> up_to(vocab);
    double sum = 0.0;
    for (std::size_t rank = 0; rank < up_to.size(); ++rank)
        up_to[rank] = sum += 1.0 / (static_cast<double>(rank) + kMandelbrot);
    RandomWords numbers(seed);
    BenchText text{.tokens = {}, .vocab = vocab};
    std::vector<std::size_t> behind_last(up_to.size(), 0);  // index after the last occurrence of each token; 0: none
    std::size_t copy_from = 0;
    std::uint64_t copy_left = 0;
    while (text.tokens.size() < n_tokens) {
        if (copy_left == 0 && !text.tokens.empty() && numbers.next() % kCopyOneIn == 0) {
            const TokenId last = text.tokens.back();
            copy_from = behind_last[last];
            if (copy_from != 0) copy_left = 1 + numbers.next() % (2 * kCopyTokens - 1);
        }
        if (!text.tokens.empty()) behind_last[text.tokens.back()] = text.tokens.size();
        if (copy_left > 0) {
            --copy_left;
            text.tokens.push_back(text.tokens[copy_from++]);
            continue;
        }
        const auto found = std::ranges::upper_bound(up_to, static_cast<double>(numbers.next() >> 11) * 0x1p-53 * sum);
        text.tokens.push_back(static_cast<TokenId>(std::min(found - up_to.begin(), std::ssize(up_to) - 1)));
    }
    return text;
}

}  // namespace slipstream::tools
