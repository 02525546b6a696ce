// Builds a corpus store (corpus_file.h) out of tokenised documents, in memory: 8 bytes a token for the documents and
// their index, twice that while sorting and while writing.
#pragma once

#include <cstdint>
#include <filesystem>

#include "draft/tables/documents.h"
#include "draft/tables/suffix_sort.h"

namespace slipstream::draft {

/// Sorts and writes the store, with `tokenizer_fingerprint` of the caller's choice. Throws RequestError where there are
/// no documents, IoError, and whatever `progress` throws (no file is written then).
void write_corpus(const Documents& documents, std::uint64_t tokenizer_fingerprint, const std::filesystem::path& path,
                  const SortProgress& progress);

}  // namespace slipstream::draft
