// Builds a corpus store (corpus_file.h) from tokenised documents, in memory: 8 bytes per token for the documents and
// their index, about 24 while sorting (suffix_sort.h), and twice the 8 while writing.
#pragma once

#include <cstdint>
#include <filesystem>

#include "draft/tables/documents.h"
#include "draft/tables/suffix_sort.h"

namespace slipstream::draft {

/// Sorts the suffixes of `documents` and writes the corpus store to the file `path`. The store can then only be opened
/// with the same `tokenizer_fingerprint`. Throws RequestError if there are no documents, IoError, and what `progress`
/// throws (then no file is written).
void write_corpus(const Documents& documents, std::uint64_t tokenizer_fingerprint, const std::filesystem::path& path,
                  const SortProgress& progress);

}  // namespace slipstream::draft
