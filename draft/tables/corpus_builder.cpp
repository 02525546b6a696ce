#include "draft/tables/corpus_builder.h"

#include <array>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "draft/tables/corpus_file.h"
#include "draft/tables/table_file.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

CorpusBuilder::CorpusBuilder(std::int64_t vocab, std::uint64_t tokenizer_fingerprint)
    : vocab_(static_cast<std::int32_t>(vocab)), tokenizer_fingerprint_(tokenizer_fingerprint) {
    CHECK(vocab > 0 && vocab < std::numeric_limits<std::int32_t>::max(), "{}", vocab);
}

void CorpusBuilder::add_document(std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    if (tokens.size() >= kMaxCorpusTokens - tokens_.size())
        throw RequestError(fmt::format("a corpus of {} and {} tokens was asked for, a store holds {}; leave some out",
                                       tokens_.size(), tokens.size(), kMaxCorpusTokens));
    for (const TokenId token : tokens) CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    tokens_.push_back(vocab_);
    ++n_documents_;
}

void CorpusBuilder::write(const std::filesystem::path& path, const SortProgress& progress) const {
    if (tokens_.empty())
        throw RequestError("a corpus store was asked for, the documents hold no text; name files that do");
    const std::vector<std::uint32_t> suffixes = suffix_array(tokens_, progress);
    std::vector<std::uint32_t> first_rank(static_cast<std::size_t>(vocab_) + 2);
    for (const std::int32_t token : tokens_) ++first_rank[static_cast<std::size_t>(token) + 1];
    for (std::size_t i = 1; i < first_rank.size(); ++i) first_rank[i] += first_rank[i - 1];

    std::array<TableSection, 1> sections;
    sections[0].name = std::string(kCorpusSection);
    TableWriter& fields = sections[0].fields;
    fields.u32(kCorpusVersion);
    fields.u64(tokenizer_fingerprint_);
    fields.u64(static_cast<std::uint64_t>(vocab_));
    fields.u64(n_documents_);
    fields.u32s(first_rank);
    fields.i32s(tokens_);
    fields.u32s(suffixes);
    write_table_file(path, sections);
}

}  // namespace slipstream::draft
