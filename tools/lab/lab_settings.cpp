#include "tools/lab/lab_settings.h"

#include <charconv>

#include <fmt/format.h>

#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {

std::vector<std::int64_t> number_list(const Setting& setting, Range<std::int64_t> range) {
    std::vector<std::int64_t> numbers;
    for (const std::string_view item : split_list(setting.values.back())) {
        const char* const end = item.data() + item.size();
        const auto [stop, error] = std::from_chars(item.data(), end, numbers.emplace_back());
        if (error != std::errc() || stop != end || numbers.back() < range.lowest || numbers.back() > range.highest)
            throw UsageError(fmt::format("{}: numbers {}, separated by commas, expected, found '{}'", setting.where,
                                         limits_text(range), setting.values.back()));
    }
    return numbers;
}

DType type_named(std::string_view name, const Setting& setting) {
    for (int i = 0; i < kDTypeCount; ++i)
        if (dtype_name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
    throw UsageError(fmt::format("{}: unknown type '{}'; use a name such as BF16 or Q4_K", setting.where, name));
}

}  // namespace slipstream::tools
