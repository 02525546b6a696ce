#include "runtime/text/tokenizer/byte_spellings.h"

#include <array>
#include <cstdint>

#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

constexpr char32_t kFirstOther = 0x100;  // code point that stands for the first of the 68 bytes that are not printable
constexpr char32_t kEnd = 0x144;         // one past the last code point of the alphabet

constexpr bool is_printable(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Tables {
    std::array<std::uint16_t, 256> point{};  // [byte]: code point that stands for it
    std::array<std::int16_t, kEnd> byte{};   // [code point]: byte; -1: not in the alphabet
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

}  // namespace

void append_in_alphabet(std::string_view bytes, std::string& out) {
    for (const char c : bytes) append_utf8(kTables.point[static_cast<unsigned char>(c)], out);
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

namespace {

constexpr std::array<std::int16_t, 256> make_values() {
    std::array<std::int16_t, 256> values{};
    values.fill(-1);
    std::int16_t value = 0;
    for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
        values[static_cast<unsigned char>(c)] = value++;
    return values;
}

constexpr std::array<std::int16_t, 256> kValues = make_values();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
    if (text.ends_with('=') && text.size() % 4 != 0) return std::nullopt;
    for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
    if (text.size() % 4 == 1) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 2);
    std::uint32_t bits = 0;
    unsigned n_bits = 0;
    for (const char c : text) {
        const int value = kValues[static_cast<unsigned char>(c)];
        if (value < 0) return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        bytes += static_cast<char>(bits >> n_bits & 0xffU);
    }
    return bytes;
}

}  // namespace slipstream
