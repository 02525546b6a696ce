#include "tools/cli/token_ids.h"

#include <charconv>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream::tools {

std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view name, std::int64_t limit) {
    constexpr std::string_view kSeparators = " \t\r\n,";
    std::vector<TokenId> ids;
    for (std::size_t begin = text.find_first_not_of(kSeparators); begin != std::string_view::npos;) {
        const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        TokenId id = 0;
        const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (error != std::errc() || stop != word.data() + word.size() || id < 0 || id >= limit)
            throw FormatError(fmt::format("{}: token {} is '{}'; ids from 0 to {} are expected", name, ids.size() + 1,
                                          printable(word, 40), limit - 1));
        ids.push_back(id);
        begin = text.find_first_not_of(kSeparators, end);
    }
    return ids;
}

}  // namespace slipstream::tools
