// Builds Cacheback's frozen table from token ids (Ma, Gim, Zhong 2025, section 3.3): the LC most frequent leaders, and
// for each the FC most frequent followers. Counts are exact: in the suffix array of the documents all windows of LL +
// FL tokens are in order, equal ones next to each other. Ties go to the lower ids, so the same documents in any order
// give the same table. Needs about 24 bytes per token while sorting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "draft/tables/cacheback_options.h"
#include "draft/tables/documents.h"
#include "draft/tables/frozen_table.h"
#include "draft/tables/table_file.h"

namespace slipstream::draft {

struct BuiltFrozenTable {
    TableSection section;
    std::size_t n_leaders = 0;
    std::size_t n_followers = 0;
};

/// Returns the table's section. No window crosses the border of a document. Uses LL, FL, LC and FC of `options`.
/// `on_progress` (may be empty) is called with the work done and the work in all, and may throw to cancel. Throws
/// RequestError if a setting is out of range or no document has a whole window.
[[nodiscard]] BuiltFrozenTable build_frozen_table(const CachebackOptions& options, const Documents& documents,
                                                  std::uint64_t tokenizer_fingerprint,
                                                  const std::function<void(double, double)>& on_progress);

}  // namespace slipstream::draft
