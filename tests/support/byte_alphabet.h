// Spells one byte in the alphabet of byte-level vocabularies.
#pragma once

#include <string>

#include "runtime/text/tokenizer/byte_spellings.h"

namespace slipstream {

inline std::string byte_to_alphabet(unsigned char byte) {
    std::string spelling;
    append_in_alphabet({reinterpret_cast<const char*>(&byte), 1}, spelling);
    return spelling;
}

}  // namespace slipstream
