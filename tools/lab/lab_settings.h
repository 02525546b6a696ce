// Values of options that several commands of the lab take.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"
#include "tools/base/range.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Parses "1,8,64"; each number is in `range`. Throws UsageError.
[[nodiscard]] std::vector<std::int64_t> number_list(const Setting& setting, Range<std::int64_t> range);

/// Returns the type that `name` spells, "Q4_K". Throws UsageError, which names the option that `setting` is from.
[[nodiscard]] DType type_named(std::string_view name, const Setting& setting);

}  // namespace slipstream::tools
