// The little language of format(value, spec) and the shapes of numbers that it shares with "%" formatting: fill,
// alignment, sign, grouping, precision, type (Python library reference, "Format Specification Mini-Language").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/text/chat/text_builder.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

struct FormatSpec {
    std::string_view fill = " ";  // one character, of the text that was parsed
    char align = 0;               // < > ^ = or none said
    char sign = 0;                // + - space or none said
    bool alternate = false;       // "#"
    char grouping = 0;            // , _ or none
    std::int64_t width = 0;       // in characters
    std::int64_t precision = -1;  // none said
    char type = 0;                // none said

    /// Throws TemplateError for what is no specification.
    [[nodiscard]] static FormatSpec parse(std::string_view text);
};

/// Appends format(value, spec); throws TemplateError where the type does not know such a specification.
void format_value(TextBuilder& out, const Value& value, std::string_view spec);

/// The digits of `number` (not negative) in the manner of e, f or g (either case), without padding.
[[nodiscard]] std::string float_digits(double number, char type, std::int64_t precision, bool alternate);
/// The digits of |number| to a base of 2, 8, 10 or 16 (type b, o, d, x or X), with its prefix where `alternate`.
[[nodiscard]] std::string int_digits(std::int64_t number, char type, bool alternate);

/// Appends `sign_and_prefix` and `digits` in a field: "=" puts the fill between them.
void pad_number(TextBuilder& out, std::string_view sign_and_prefix, std::string_view digits, const FormatSpec& spec);
/// Appends `text` in a field, to the left where no alignment is said.
void pad_text(TextBuilder& out, std::string_view text, const FormatSpec& spec);

}  // namespace slipstream::jinja
