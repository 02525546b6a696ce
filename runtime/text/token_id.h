// The number of a token in a vocabulary.
#pragma once

#include <cstdint>

namespace slipstream {

using TokenId = std::int32_t;

}  // namespace slipstream
