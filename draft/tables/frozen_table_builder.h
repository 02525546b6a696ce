// Builds Cacheback's frozen table from token ids (Ma, Gim, Zhong 2025, section 3.3): the LC most frequent leaders, for
// each the FC most frequent followers. Exact counts: in the suffix array of the texts all windows of LL + FL ids stand
// in order, equal ones together. Ties go to the lower ids, so equal texts give equal tables, whatever their order.
// About 24 bytes a token while sorting.
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

/// The section of the table; no window crosses the borders of documents. Uses LL, FL, LC and FC of `options`.
/// `on_progress` (may be empty) is told how much is done, of how much, and may throw to give up. Throws RequestError
/// where a setting is out of range, or no text has a whole window.
[[nodiscard]] BuiltFrozenTable build_frozen_table(const CachebackOptions& options, const Documents& documents,
                                                  std::uint64_t tokenizer_fingerprint,
                                                  const std::function<void(double, double)>& on_progress);

}  // namespace slipstream::draft
