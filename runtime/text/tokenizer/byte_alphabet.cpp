#include "runtime/text/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

constexpr char32_t kFirstOther = 0x100;
constexpr char32_t kEnd = 0x144;

constexpr bool is_printable(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Tables {
    std::array<std::uint16_t, 256> point{};  // by byte
    std::array<std::int16_t, kEnd> byte{};   // by code point; -1: none
};

constexpr Tables make_tables() {
    Tables tables;
    tables.byte.fill(-1);
    char32_t other = kFirstOther;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char32_t point = is_printable(byte) ? byte : other++;
        tables.point[byte] = static_cast<std::uint16_t>(point);
        tables.byte[point] = static_cast<std::int16_t>(byte);
    }
    return tables;
}

constexpr Tables kTables = make_tables();

struct Spellings {
    std::array<std::array<char, 2>, 256> bytes{};
    std::array<std::uint8_t, 256> length{};
};

constexpr Spellings make_spellings() {
    Spellings spellings;
    for (std::size_t byte = 0; byte < 256; ++byte) {
        const unsigned point = kTables.point[byte];
        if (point < 0x80) {
            spellings.bytes[byte] = {static_cast<char>(point), '\0'};
            spellings.length[byte] = 1;
        } else {
            spellings.bytes[byte] = {static_cast<char>(0xc0U | point >> 6), static_cast<char>(0x80U | (point & 0x3fU))};
            spellings.length[byte] = 2;
        }
    }
    return spellings;
}

constexpr Spellings kSpellings = make_spellings();

}  // namespace

std::string_view byte_to_alphabet(unsigned char byte) {
    return {kSpellings.bytes[byte].data(), kSpellings.length[byte]};
}

void append_in_alphabet(std::string_view bytes, std::string& out) {
    for (const char c : bytes) out += byte_to_alphabet(static_cast<unsigned char>(c));
}

bool append_from_alphabet(std::string_view spelling, std::string& out) {
    const std::size_t before = out.size();
    while (!spelling.empty()) {
        const Utf8Step step = next_utf8(spelling);
        const char32_t point = step.kind == Utf8Kind::Complete ? code_point(spelling) : kEnd;
        const int byte = point < kEnd ? kTables.byte[point] : -1;
        if (byte < 0) {
            out.resize(before);
            return false;
        }
        out += static_cast<char>(byte);
        spelling.remove_prefix(step.length);
    }
    return true;
}

}  // namespace slipstream
