// What the template runtime knows of Python's texts and numbers, against Python itself
// (tests/golden/templates/make_numbers.py).
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "runtime/text/chat/format_spec.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_format.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/sorting.h"
#include "runtime/text/chat/unicode.h"
#include "tests/runtime/template_goldens.h"

namespace slipstream::jinja {
namespace {

double from_bits(const std::string& hex) {
    return std::bit_cast<double>(std::stoull(hex, nullptr, 16));
}

std::string formatted(double number, const std::string& spec) {
    TextBuilder out(4096);
    format_value(out, Value(number), spec);
    return out.take();
}

TEST(TemplateNumbers, FloatsAreSpelledRoundedAndFormattedAsInPython) {
    const OrderedJson golden = template_golden("numbers.json");
    Runtime runtime({}, {});
    ASSERT_GE(golden.at("rows").size(), 150U);
    for (const OrderedJson& row : golden.at("rows")) {
        const double number = from_bits(row[0].get<std::string>());
        EXPECT_EQ(float_text(number), row[1].get<std::string>());
        for (std::size_t i = 0; i < golden.at("digits").size(); ++i) {
            const auto digits = golden.at("digits")[i].get<std::int64_t>();
            const double expected = from_bits(row[2][i].get<std::string>());
            EXPECT_EQ(std::bit_cast<std::uint64_t>(round_float(number, digits)), std::bit_cast<std::uint64_t>(expected))
                << row[1] << " to " << digits;
        }
        for (std::size_t i = 0; i < row[3].size(); ++i) {
            const auto spec = golden.at("specs")[i].get<std::string>();
            EXPECT_EQ(formatted(number, spec), row[3][i].get<std::string>()) << row[1] << " as " << spec;
        }
        for (std::size_t i = 0; i < row[4].size(); ++i) {
            const auto conversion = golden.at("conversions")[i].get<std::string>();
            EXPECT_EQ(format_percent(runtime, Value(conversion), Value(number)).view(), row[4][i].get<std::string>())
                << row[1] << " as " << conversion;
        }
    }
}

TEST(TemplateNumbers, RefusesWhatLeaves64Bits) {
    const Value largest(INT64_MAX);
    const Value smallest(INT64_MIN);
    EXPECT_EQ(calculate(Arithmetic::Power, Value(-2), Value(63)).integer(), INT64_MIN);
    EXPECT_EQ(calculate(Arithmetic::Modulo, smallest, Value(-1)).integer(), 0);
    EXPECT_THROW(static_cast<void>(calculate(Arithmetic::Add, largest, Value(1))), TemplateError);
    EXPECT_THROW(static_cast<void>(calculate(Arithmetic::Multiply, smallest, Value(-1))), TemplateError);
    EXPECT_THROW(static_cast<void>(calculate(Arithmetic::FloorDivide, smallest, Value(-1))), TemplateError);
    EXPECT_THROW(static_cast<void>(calculate(Arithmetic::Power, Value(2), Value(63))), TemplateError);
    EXPECT_THROW(static_cast<void>(negate(smallest)), TemplateError);
    EXPECT_THROW(static_cast<void>(truncate(1e19)), TemplateError);
    EXPECT_THROW(static_cast<void>(parse_int("9223372036854775808", 10)), TemplateError);
    EXPECT_EQ(parse_int("-9223372036854775808", 10), INT64_MIN);
    EXPECT_THROW(static_cast<void>(round_int(INT64_MAX, -1)), TemplateError);
    EXPECT_EQ(round_int(INT64_MAX, -30), 0);
}

TEST(TemplateNumbers, ComparesIntsWithFloatsExactly) {
    EXPECT_EQ(compare_numbers(Value(std::int64_t{9007199254740993}), Value(9007199254740992.0)),
              std::partial_ordering::greater);
    EXPECT_EQ(compare_numbers(Value(INT64_MAX), Value(9223372036854775808.0)), std::partial_ordering::less);
    EXPECT_EQ(compare_numbers(Value(INT64_MIN), Value(-9223372036854775808.0)), std::partial_ordering::equivalent);
    EXPECT_EQ(compare_numbers(Value(-1), Value(-1.5)), std::partial_ordering::greater);
    EXPECT_EQ(compare_numbers(Value(1), Value(std::numeric_limits<double>::quiet_NaN())),
              std::partial_ordering::unordered);
    EXPECT_TRUE(equal(Value(true), Value(1.0)));
}

TEST(TemplateNumbers, ReadsIntsAndFloatsAsPythonDoes) {
    EXPECT_EQ(parse_int(" +1_000 ", 10), 1000);
    EXPECT_EQ(parse_int("0x_ff", 16), 255);
    EXPECT_EQ(parse_int("0b11", 0), 3);
    EXPECT_EQ(parse_int("٣٤", 10), 34);
    for (const char* bad : {"", "-", "1__0", "_1", "1_", "1.0", "0x", "a", "1 2"})
        EXPECT_EQ(parse_int(bad, 10), std::nullopt) << bad;
    EXPECT_EQ(parse_int("010", 0), std::nullopt);
    EXPECT_EQ(parse_float(" -1_0.5e2 "), -1050.0);
    EXPECT_EQ(parse_float("1e400"), std::numeric_limits<double>::infinity());
    EXPECT_EQ(parse_float("-Infinity"), -std::numeric_limits<double>::infinity());
    for (const char* bad : {"", "e5", "1e", "--1", "0x1p3", "1.5.2", "infinit"})
        EXPECT_EQ(parse_float(bad), std::nullopt) << bad;
}

std::uint64_t fnv(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return hash;
}

// All code points but surrogates.
template <typename Visit>
void for_all_characters(Visit visit) {
    for (char32_t code = 0; code < 0x110000; ++code) {
        if (code >= 0xd800 && code < 0xe000) continue;
        std::string text;
        append_utf8(text, code);
        visit(code, text);
    }
}

TEST(TemplateUnicode, ClassesOfAllCharacters) {
    const OrderedJson golden = template_golden("unicode.json");
    const std::vector<std::pair<std::string, bool (*)(char32_t)>> tests = {
        {"isspace", is_space},
        {"isprintable", is_printable},
        {"isalpha", is_alpha},
        {"isdecimal", is_decimal},
        {"isdigit", is_digit},
        {"isnumeric", is_numeric},
        {"islower", is_lower},
        {"isupper", is_upper},
        {"isidentifier", is_identifier_start},
        {"isidentifier behind a letter", is_identifier_part}};
    for (const auto& entry : tests) {
        const std::string& name = entry.first;
        const auto test = entry.second;
        std::string answers;
        for_all_characters([&](char32_t code, const std::string& text) {
            EXPECT_EQ(first_char(text).code, code);
            answers.push_back(test(code) ? '1' : '0');
        });
        EXPECT_EQ(std::count(answers.begin(), answers.end(), '1'), golden.at(name)[0].get<std::ptrdiff_t>()) << name;
        EXPECT_EQ(fmt::format("{:016x}", fnv(answers)), golden.at(name)[1].get<std::string>()) << name;
    }
}

TEST(TemplateUnicode, CaseOfAllCharacters) {
    const OrderedJson golden = template_golden("unicode.json");
    const std::vector<std::pair<std::string, std::string (*)(std::string_view)>> conversions = {
        {"upper", to_upper},
        {"lower", to_lower},
        {"title", to_title},
        {"capitalize", capitalize},
        {"swapcase", swap_case}};
    for (const auto& entry : conversions) {
        const std::string& name = entry.first;
        const auto convert = entry.second;
        std::string alone;
        std::string in_words;
        for_all_characters([&](char32_t code, const std::string& c) {
            if (!alone.empty()) alone += '\n';
            alone += convert(c);
            if (code >= 0x11000) return;
            if (!in_words.empty()) in_words += '\n';
            in_words += convert("a" + c + "Σ " + c + "bΣ");
        });
        EXPECT_EQ(fmt::format("{:016x}", fnv(alone)), golden.at(name)[1].get<std::string>()) << name;
        EXPECT_EQ(fmt::format("{:016x}", fnv(in_words)), golden.at(name + " in words")[1].get<std::string>()) << name;
    }
}

TEST(TemplateUnicode, BrokenBytesAreCharactersThatPassThrough) {
    const std::string broken = "a\xff\xe4\xbd\x62\xf0\x9f\x99";  // a lone byte, a cut character, b, a cut character
    EXPECT_EQ(count_chars(broken), 5);
    EXPECT_EQ(byte_offset(broken, 3), 4U);
    EXPECT_EQ(to_lower(broken), broken);
    std::string_view rest = broken;
    std::vector<std::string> backwards;
    while (!rest.empty()) {
        backwards.emplace_back(last_char(rest).bytes);
        rest.remove_suffix(backwards.back().size());
    }
    EXPECT_EQ(backwards, (std::vector<std::string>{"\xf0\x9f\x99", "b", "\xe4\xbd", "\xff", "a"}));
    EXPECT_EQ(strip(" \xe3\x80\x80\xff "), "\xff");
}

TEST(TemplateValues, DictsKeepTheirOrderAndFindEqualKeys) {
    Dict dict;
    for (int i = 0; i < 100; ++i) dict.set(fmt::format("key {}", i), Value(i));
    dict.set(Value(1), Value("int"));
    dict.set(Value(1.0), Value("float"));
    dict.set("key 50", Value("again"));
    ASSERT_EQ(dict.size(), 101U);
    EXPECT_EQ(dict.find(Value(true))->view(), "float");
    EXPECT_EQ(dict.items()[50].second.view(), "again");
    EXPECT_EQ(dict.find("key 100"), nullptr);
    EXPECT_EQ(dict.find(Value::tuple({Value(1)})), nullptr);
}

TEST(TemplateValues, NestingIsLimited) {
    Value value(1);
    for (int i = 0; i < kMaxValueDepth; ++i) value = Value::list({value});
    EXPECT_THROW(static_cast<void>(Value::list({value})), TemplateError);
    EXPECT_THROW(static_cast<void>(Value::dict({{"k", value}})), TemplateError);
}

TEST(TemplateValues, SharedPartsWeighEachTime) {
    // A list of two lists of two lists ...: small in memory, huge to walk over.
    Value value = Value::list({Value(1), Value(2)});
    for (int i = 0; i < 60; ++i) value = Value::list({value, value});
    EXPECT_GE(value.weight(), std::int64_t{1} << 59);
    Runtime runtime({}, {});
    EXPECT_THROW(static_cast<void>(to_text(runtime, value)), TemplateError);
    EXPECT_TRUE(equal(value, value));
}

TEST(TemplateSorting, StaysInBoundsWhateverTheComparisonSays) {
    std::vector<int> items(1000);
    for (int i = 0; i < 1000; ++i) items[static_cast<std::size_t>(i)] = i * 7919 % 1000;
    std::vector<int> sorted = items;
    merge_sort(sorted, [](int a, int b) { return a < b; });
    EXPECT_TRUE(std::is_sorted(sorted.begin(), sorted.end()));
    merge_sort(items, [](int a, int b) { return (a * 31 + b) % 3 == 0; });
    std::sort(items.begin(), items.end());
    EXPECT_EQ(items, sorted);  // none lost, none twice
}

TEST(TemplateOperators, FindsTextInLinearTime) {
    const std::string hay(1 << 22, 'a');
    const std::string needle = std::string(1 << 21, 'a') + "b";
    EXPECT_EQ(find_text(hay, needle), std::string_view::npos);
    EXPECT_EQ(find_text("abcabc", "c", 3), 5U);
    EXPECT_EQ(find_text("abc", "", 3), 3U);
    EXPECT_EQ(find_text("abc", "", 4), std::string_view::npos);
}

}  // namespace
}  // namespace slipstream::jinja
