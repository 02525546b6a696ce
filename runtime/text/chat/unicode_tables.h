// What Python's str methods know of Unicode, as sorted runs of code points; written by make_unicode_tables.py.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace slipstream::jinja::tables {

/// Every step-th code point from first to last. Runs of a table are sorted by first and do not overlap.
struct Run {
    char32_t first, last;
    std::uint32_t step;
};

/// The same, with what is added to each.
struct CaseRun {
    char32_t first, last;
    std::uint32_t step;
    std::int32_t delta;
};

/// A mapping to several characters; sorted by `from`.
struct SpecialCase {
    char32_t from;
    std::u32string_view to;
};

extern const std::span<const Run> kUnprintable, kAlpha, kLower, kUpper, kTitle;
/// How identifiers differ from letters, at their start and behind it.
extern const std::span<const Run> kStartLetterNot, kStartOther, kPartLetterNot, kPartOther;
/// Each without those of the ones before it: isdecimal() < isdigit() < isnumeric().
extern const std::span<const Run> kDecimal, kDigit, kNumeric;
/// For the final sigma (SpecialCasing.txt, Final_Sigma).
extern const std::span<const Run> kCased, kCaseIgnorable;
extern const std::span<const CaseRun> kToUpper, kToLower, kToTitle;
extern const std::span<const SpecialCase> kToUpperSpecial, kToLowerSpecial, kToTitleSpecial;

}  // namespace slipstream::jinja::tables
