// Token ids in text files: whole numbers separated by white space or commas.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::tools {

/// Ids in [0, limit). `name` is the source's, for messages. Throws FormatError naming the first word that is none.
[[nodiscard]] std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view name, std::int64_t limit);

}  // namespace slipstream::tools
