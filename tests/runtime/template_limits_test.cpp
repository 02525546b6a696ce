// Templates come with models, from anywhere: whatever they do ends within a second, 64 MiB and the stack, with a
// message.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/template_goldens.h"
#include "tests/support/sanitizers.h"

namespace slipstream {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
}

TemplateInputs small_inputs() {
    return inputs_with(parse_template_json(R"({"a": "aaaaaaaaaa", "b": [1, 2, 3]})", "variables"));
}

/// What becomes of a template under small limits.
std::string error_of(const std::string& source) {
    const TemplateLimits limits{.max_steps = 1'000'000, .max_text_bytes = 1 << 20, .max_live_bytes = 8 << 20};
    return rendering_of(source, small_inputs(), limits).error;
}

/// A field of /proc/self/status, in bytes.
std::size_t process_bytes(const std::string& field) {
    std::istringstream status(file_text("/proc/self/status"));
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) * 1024;
    throw std::runtime_error("no " + field);
}

// What a hostile template ends by: a bound, or nothing, where it is but long.
constexpr const char* kSteps = "does not end within";
constexpr const char* kBytes = "bytes at a time";
constexpr const char* kText = "a text grows beyond";
constexpr const char* kLevels = "calls itself too deeply";
constexpr const char* kNested = "nested deeper than";
constexpr const char* kEnds = nullptr;

struct Hostile {
    const char* source;
    const char* end;
};

constexpr Hostile kHostile[] = {
    {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{{ range(99999)|select('equalto', i)|list|length }}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{{ i in range(99999)|list }}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{{ range(99999)|sort|list|last }}{% endfor %}", kBytes},
    {"{% macro m() %}{% for i in b %}{{ n() }}{% endfor %}{% endmacro %}{% macro n() %}{% for i in range(99999) %}{{ i "
     "}}{% endfor %}{% endmacro %}{% for i in range(99) %}{{ m() }}{% endfor %}",
     kSteps},
    {"{% set c = 'x' * 8000000 %}{% for i in range(99999) %}{{ c|int(0) }}{% endfor %}", kSteps},
    {"{% set c = ' ' * 8000000 %}{% for i in range(99999) %}{% set x = c.strip() %}{% endfor %}", kSteps},
    {"{% set c = 'aB' * 4000000 %}{% for i in range(99999) %}{% set x = c|lower %}{% endfor %}", kSteps},
    {"{% set c = 'aΣ' * 2000000 %}{% for i in range(99999) %}{% set x = c|lower %}{% endfor %}", kSteps},
    {"{% set c = 'é' * 4000000 %}{% for i in range(99999) %}{% set x = c[i:i+9] %}{% endfor %}", kSteps},
    {"{% set c = 'a' * 8000000 %}{% for i in range(99999) %}{% set x = c.split('a', 1) %}{% endfor %}", kBytes},
    {"{% set c = 'ab' * 4000000 %}{% for i in range(99999) %}{{ 'abab' * 9999 ~ 'c' in c }}{% endfor %}", kSteps},
    {"{% set c = 'a\n' * 4000000 %}{{ c|indent(4) }}", kText},
    {"{{ ('a ' * 4000000).split() }}", kBytes},
    {"{{ ('a' * 8000000)|list }}", kBytes},
    {"{{ ('aé' * 2000000)[::-1] }}", kBytes},
    {"{{ ('\n' * 8000000)|tojson }}", kText},
    {"{{ 'a' * 10000000000 }}", kText},
    {"{{ [1] * 100000000000 }}", kBytes},
    {"{{ ([[]] * 1000000)|tojson }}", kBytes},
    {"{{ (a * 1000)|replace('', a * 1000) }}", kText},
    {"{{ (a * 9999).join((a * 9999)|list) }}", kText},
    {"{{ ('x' * 2000000)|indent(width=1000000) }}", kEnds},
    {"{{ ('x\n' * 2000)|indent(1000000) }}", kText},
    {"{% set ns = namespace(t=a) %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}", kText},
    {"{% set ns = namespace(t=b) %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}", kBytes},
    {"{% set ns = namespace(t=b) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t }}", kText},
    {"{% set ns = namespace(t=b) %}{% for i in range(60) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t == "
     "[ns.t][0] }}",
     kEnds},
    {"{% set ns = namespace(t=b, u=b) %}{% for i in range(60) %}{% set ns.t = [ns.t, ns.t] %}{% set ns.u = [ns.u, "
     "ns.u] %}{% endfor %}{{ ns.t == ns.u }}{{ ns.t < ns.u }}{{ ns.t|tojson }}",
     kSteps},
    {"{% for i in range(99999) %}{{ a * 100 }}{% endfor %}", kText},
    {"{% for i in range(99999) %}{% set t = a * 100000 %}{% endfor %}", kSteps},
    {"{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + [a * 1000] %}{% endfor %}", kBytes},
    {"{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}", kNested},
    {"{% set ns = namespace(l=none) %}{% for i in range(99999) %}{% set ns.l = namespace(n=ns.l) %}{% endfor %}",
     kEnds},
    {"{% set ns = namespace(l=none) %}{% for i in range(99999) %}{% set ns.l = [nope, nope is defined, loop] %}{% "
     "endfor %}",
     kEnds},
    {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [(('[' * 50 ~ ']' * "
     "50)|from_json)[0]] %}{% endfor %}",
     kBytes},
    {"{{ ('[' ~ '[],' * 2000000 ~ '[]]')|from_json }}", kBytes},
    {"{{ ('[' * 100000)|from_json }}", kNested},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", kLevels},
    {"{% macro m(x=m()) %}{% endmacro %}{{ m() }}", kLevels},
    {"{% macro m(x) %}{{ m(x * 2) }}{% endmacro %}{{ m(a) }}", kText},
    {"{% macro m() %}{% if true %}{% for i in b %}{{ '' ~ (m()|upper) }}{% endfor %}{% endif %}{% endmacro %}{{ m() }}",
     kLevels},
    {"{% macro m() %}{% set x %}{{ a * 99999 }}{{ m() }}{% endset %}{% endmacro %}{{ m() }}", kBytes},
    {"{% for i in range(99999) %}{% macro m() %}{{ i }}{% endmacro %}{% endfor %}", kBytes},
    {"{% for i in range(99999) %}{% set x = {'a': range(9999)|list} %}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{{ b.x is defined }}{{ range(100)|map('string')|join|length }}{% endfor %}", kSteps},
    {"{{ range(99999)|map('string')|join(a * 99) }}", kText},
    {"{% for i in range(99) %}{{ range(99999)|unique|list|length }}{% endfor %}", kSteps},
    {"{% set s %}[{% for i in range(60000) %}999999999999999{{ 100000 + i }},{% endfor %}1]{% endset %}{{ "
     "s|from_json|unique|list|length }}",
     kEnds},
    {"{% set i = 1e308 * 10 %}{% set x = i - i %}{{ ([x] * 100000)|unique|list|length }}", kEnds},
    {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [namespace()] %}{% endfor %}{{ "
     "ns.l|unique|list|length }}",
     kSteps},
    {"{% set ns = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: "
     "1}|length }}",
     kSteps},
    {"{% set d = {1: 1} %}{% set c = 'a' * 8000000 %}{% for i in range(99999) %}{{ d[c] }}{% endfor %}", kSteps},
    {"{{ ('a' * 1000000)|trim('b' * 1000000 ~ 'a')|length }}", kSteps},
    {"{{ ('b' * 8000000)|trim('ab')|length }}", kSteps},
    {"{% set l = range(100000)|list %}{{ (l + l + l + l)|unique|list|length }}", kBytes},
    {"{{ ('[' ~ '9999999999999999999,' * 390000 ~ '1]')|from_json|length }}", kBytes},
    {"{{ ('[' ~ ('[' ~ '1,' * 400000) * 4)|from_json }}", kBytes},
    {"{{ ([1.5] * 450000)|sort|length }}", kBytes},
    {"{{ ([1] * 600000)|map('int')|list|length }}", kBytes},
    {"{{ ([1] * 600000)|select|list|length }}", kBytes},
    {"{{ ([1] * 1000000)[::-1]|length }}", kBytes},
    {"{% macro m() %}{% for i in range(99999) if i < 99990 or m() %}{% endfor %}{% endmacro %}{{ m() }}", kBytes},
    {"{% set c = '0' * 8000000 %}{% for i in range(99999) %}{% set x = []|sum(attribute=c) %}{% endfor %}", kSteps},
    {"{% set c = '0' * 8000000 %}{% for i in range(99999) %}{% set x = []|sort(attribute=c) %}{% endfor %}", kSteps},
    {"{% set c = 'b' * 8000000 %}{% for i in range(99999) %}{% set x = 'x'|attr(c) %}{{ x is defined }}{% endfor %}",
     kSteps},
    {"{% set c = 'b' * 8000000 %}{% for i in range(99999) %}{{ 'x'[c] is defined }}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{{ (1e308|round(323))|string|length }}{{ (1e308|round(323)) }}{% endfor %}", kSteps},
    {"{% for i in range(99999) %}{{ ('x'|center(8000000))|length }}{% endfor %}", kSteps},
    {"{% macro m() %}{{ caller(*b[:1]) }}{% endmacro %}{% for i in range(99999) %}{% call(x=1) m() %}{{ i }}{% endcall "
     "%}"
     "{% endfor %}",
     kEnds},
    {"{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}"
     "{{ n() }}",
     kLevels},
    {"{% for i in range(99999) %}{% set x = range(99999)|batch(1)|list %}{% endfor %}", kBytes},
    {"{% for i in range(99999) %}{% set x = [1]|batch(9999999, 0)|list %}{% endfor %}", kBytes},
};

// Returns the processor time of this process that rendering `hostile` takes, in seconds; a rendering that ends
// otherwise than `hostile` says is a failure.
double seconds_of(const Hostile& hostile) {
    // Under a sanitizer all steps of a template that never ends take minutes: a tenth of them shows the same bound.
    TemplateLimits limits;
    if (kSanitized && hostile.end == kSteps) limits.max_steps /= 10;
    const std::clock_t begin = std::clock();
    const std::string error = rendering_of(hostile.source, small_inputs(), limits).error;
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_THAT(
        error, hostile.end == kEnds ? testing::Matcher<const std::string&>(testing::IsEmpty()) : HasSubstr(hostile.end))
        << hostile.source;
    return seconds;
}

TEST(TemplateLimits, AHostileTemplateEndsWithin64Mebibytes) {
    if (kThreadSanitizer) GTEST_SKIP() << "one thread, for which ThreadSanitizer takes twelve minutes";
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins again here
    const std::size_t before = process_bytes("VmRSS");
    for (const Hostile& hostile : kHostile) seconds_of(hostile);
    if (!kSanitized) {
        EXPECT_LT(process_bytes("VmHWM"), before + (std::size_t{64} << 20U));
    }
}

// A budget of steps bounds the time only if each thing that a template can do is charged what it takes. The dearest are
// five times as dear a step as the plain loop, whose steps take 0.1 to 0.2 s in all.
TEST(TemplateLimits, AStepOfAHostileTemplateIsNoDearerThanTenOfAPlainLoop) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer makes some steps dearer than others";
    constexpr Hostile kPlainLoop = kHostile[0];
    for (const Hostile& hostile : kHostile) {
        // Other work on the machine makes one of two measurements longer, seldom three times in turn.
        bool is_within = false;
        for (int i = 0; i < 3 && !is_within; ++i) is_within = seconds_of(hostile) < 10 * seconds_of(kPlainLoop);
        EXPECT_TRUE(is_within) << hostile.source;
    }
}

TEST(TemplateLimits, TheSourceItselfTakesLittle) {
    std::ofstream("/proc/self/clear_refs") << 5;
    const std::size_t before = process_bytes("VmRSS");
    for (const char* piece : {"{{a}}", "{%if a%}{%endif%}", "{{[a,[b],{1:2}]}}", "x{{a.b.c(1)|d}}"}) {
        const int times = static_cast<int>(kMaxTemplateBytes / std::string_view(piece).size());
        static_cast<void>(rendering_of(repeated(piece, times), small_inputs()));
    }
    if (!kSanitized) {
        EXPECT_LT(process_bytes("VmHWM"), before + (std::size_t{64} << 20U));
    }
    EXPECT_EQ(error_of(std::string(kMaxTemplateBytes + 1, ' ')), "a template of more than 262144 bytes");
}

TEST(TemplateLimits, EachBoundSaysWhichItIs) {
    const std::string steps = "the template does not end within 1000000 steps (does it loop for ever?)";
    EXPECT_EQ(error_of(kHostile[0].source), steps);
    EXPECT_EQ(error_of("{{ 'a' * 10000000000 }}"), "a text grows beyond 1048576 bytes");
    EXPECT_EQ(error_of("{% for i in range(99999) %}{{ a * 100 }}{% endfor %}"), "a text grows beyond 1048576 bytes");
    EXPECT_EQ(error_of("{{ [1] * 100000000000 }}"), "the template needs more than 8388608 bytes at a time");
    EXPECT_EQ(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              "the template calls itself too deeply: 1000 levels");
    EXPECT_EQ(error_of("{% set ns = namespace(v=b) %}{% for i in range(9999) %}{% set ns.v = [ns.v] %}{% endfor %}"),
              "values nested deeper than 200");
}

TEST(TemplateLimits, WhatIsGoneIsGivenBack) {
    EXPECT_EQ(error_of("{% for i in range(9999) %}{% set t = a * 100 %}{% endfor %}"), "");
    EXPECT_EQ(
        error_of("{% for i in range(9999) %}{% for j in b %}{{ loop.last|string|length - 4 }}{% endfor %}{% endfor %}"),
        "");
}

TEST(TemplateLimits, ARenderingCanBeStopped) {
    const std::atomic<bool> cancel{true};
    EXPECT_EQ(rendering_of("{% for i in range(99999) %}{% endfor %}", small_inputs(), {.cancel = &cancel}).error,
              "the rendering was stopped");
}

TEST(TemplateLimits, ObjectsMayHoldThemselves) {
    for (const char* source :
         {"{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me|length }}",
          "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ ns.me == ns }}",
          "{% set ns = namespace(l=1) %}{% for i in b %}{% set ns.l = [loop, ns.l] %}{% for j in [ns] %}"
          "{% set ns.l = [loop, ns.l] %}{% endfor %}{% endfor %}{{ ns.l|length }}",
          "{% set ns = namespace() %}{% for i in b %}{% set k = loop %}{% macro m() %}{{ k.index }}{{ i }}{% endmacro "
          "%}"
          "{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
          "{% set ns = namespace(head=none) %}{% for i in range(20000) %}{% set ns.head = namespace(next=ns.head) %}"
          "{% endfor %}{% set ns.head = none %}"})
        EXPECT_EQ(error_of(source), "") << source;
}

TEST(TemplateLimits, NestingOfSource) {
    const std::string nested = "brackets or tags nested deeper than 100";
    EXPECT_EQ(error_of("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("not ", 5000) + "1 }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("-", 5000) + "1 }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("1 if 1 else ", 5000) + "1 }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("f(", 5000) + repeated(")", 5000) + " }}"), nested);
    EXPECT_EQ(error_of(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000)), nested);
    EXPECT_EQ(error_of("{% set " + repeated("(", 5000) + "a" + repeated(")", 5000) + " = 1 %}"), nested);
    const std::string levels = "an expression of more than 400 levels";
    for (const char* more : {" + 1", " and 1", "|d", "()", ".b"})
        EXPECT_EQ(error_of("{{ a" + repeated(more, 5000) + " }}"), levels) << more;
    // Wide is not deep.
    EXPECT_EQ(error_of("{{ 1" + repeated(" ~ 1", 5000) + " }}"), "");
    EXPECT_EQ(error_of("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% endif %}"), "");
    EXPECT_EQ(error_of("{{ 1" + repeated(" + 1", 390) + " }}"), "");
    // All levels of all kinds at once: 90 brackets in each of the macros that call each other.
    EXPECT_EQ(
        error_of("{% macro m() %}{{ " + repeated("[", 90) + "m()" + repeated("]", 90) + " }}{% endmacro %}{{ m() }}"),
        "the template calls itself too deeply: 1000 levels");
}

// Texts that the library's hash cannot tell apart: of each 16 bytes both halves may be exchanged for others that
// differ, as they enter the hash, in the highest bit alone, which the multiplications behind them keep there.
std::vector<std::string> colliding_keys(std::size_t n_pairs) {
    constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995;  // of MurmurHash64A
    std::uint64_t inverse = kFactor;
    for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
    const auto shifted = [](std::uint64_t mixed) { return mixed ^ (mixed >> 47U); };
    std::vector<std::string> keys = {""};
    for (std::uint64_t i = 0; i < n_pairs; ++i) {
        std::array<std::uint64_t, 2> bytes{i, i + 1};
        std::array<std::uint64_t, 2> others{};
        for (const std::size_t half : {0U, 1U}) {
            const std::uint64_t mixed = kFactor * shifted(kFactor * bytes[half]) ^ (std::uint64_t{1} << 63U);
            others[half] = inverse * shifted(inverse * mixed);
        }
        for (std::size_t k = 0, n = keys.size(); k < n; ++k) {
            keys.push_back(keys[k] + std::string(reinterpret_cast<const char*>(others.data()), 16));
            keys[k].append(reinterpret_cast<const char*>(bytes.data()), 16);
        }
    }
    return keys;
}

TEST(TemplateLimits, KeysThatWereMadeToCollideAreRefused) {
    const std::vector<std::string> keys = colliding_keys(9);
    ASSERT_EQ(std::hash<std::string>()(keys.front()), std::hash<std::string>()(keys.back()));
    const auto set = [&](std::size_t n) {
        jinja::Dict dict;
        for (std::size_t i = 0; i < n; ++i) dict.set(keys[i], jinja::Value(i));
        return dict.size();
    };
    EXPECT_EQ(set(200), 200U);
    EXPECT_THROW(set(keys.size()), TemplateError);
}

TEST(TemplateLimits, JsonThatIsTooMuch) {
    const auto error = [](const std::string& json) {
        try {
            static_cast<void>(parse_template_json(json, "messages"));
        } catch (const TemplateError& caught) {
            return caught.message();
        }
        return std::string();
    };
    EXPECT_EQ(error(repeated("[", 100000)), "messages: JSON nested deeper than 100");
    EXPECT_EQ(error(repeated("{\"a\":", 100000)), "messages: JSON nested deeper than 100");
    EXPECT_EQ(error("[1, 9223372036854775808, -" + repeated("9", 300) + "]"), "");
    EXPECT_EQ(error("[1e400]"), "messages: not JSON at byte 6");
    EXPECT_EQ(error("{\"a\": 1,}"), "messages: not JSON at byte 9");
}

}  // namespace
}  // namespace slipstream
