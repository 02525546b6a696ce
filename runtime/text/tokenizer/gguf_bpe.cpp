#include "runtime/text/tokenizer/gguf_bpe.h"

#include <fmt/format.h>

#include <string>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

const std::string kName = "tokenizer.ggml";

}  // namespace

MergeTable gguf_merges(const PlainVocabulary& source, const IndexedVocabulary& vocabulary) {
    if (source.merges.empty()) throw FormatError(fmt::format("{}.merges: is missing or empty", kName));
    MergeReader reader(vocabulary, source.merges.size(), kName + ".merges");
    for (const std::string& merge : source.merges) reader.add(merge);
    return reader.take();
}

std::optional<TokenId> gguf_token(const std::optional<std::int64_t>& id, std::string_view what,
                                  const IndexedVocabulary& vocabulary) {
    if (!id || *id < 0) return std::nullopt;
    if (*id >= vocabulary.tokens->size())
        throw FormatError(
            fmt::format("{}: {} id {} where there are {} tokens", kName, what, *id, vocabulary.tokens->size()));
    return static_cast<TokenId>(*id);
}

}  // namespace slipstream
