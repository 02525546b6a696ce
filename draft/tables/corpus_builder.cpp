#include "draft/tables/corpus_builder.h"

#include <array>
#include <string>
#include <vector>

#include "draft/tables/corpus_file.h"
#include "draft/tables/table_file.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

void write_corpus(const Documents& documents, std::uint64_t tokenizer_fingerprint, const std::filesystem::path& path,
                  const SortProgress& progress) {
    const std::span<const std::int32_t> tokens = documents.tokens();
    if (tokens.empty())
        throw RequestError("a corpus store was asked for, the documents hold no text; name files that do");
    const std::vector<std::uint32_t> suffixes = suffix_array(tokens, progress);
    std::vector<std::uint32_t> first_rank(static_cast<std::size_t>(documents.vocab()) + 2);
    for (const std::int32_t token : tokens) ++first_rank[token + 1];
    for (std::size_t i = 1; i < first_rank.size(); ++i) first_rank[i] += first_rank[i - 1];

    std::array<TableSection, 1> sections;
    sections[0].name = std::string(kCorpusSection);
    TableWriter& fields = sections[0].fields;
    fields.u32(kCorpusVersion);
    fields.u64(tokenizer_fingerprint);
    fields.u64(static_cast<std::uint64_t>(documents.vocab()));
    fields.u64(documents.n_documents());
    fields.u32s(first_rank);
    fields.i32s(tokens);
    fields.u32s(suffixes);
    write_table_file(path, sections);
}

}  // namespace slipstream::draft
