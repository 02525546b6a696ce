// Templates come with models, from anywhere: whatever they do ends in bounded time, memory and stack, with a message.
#include <atomic>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/runtime/template_goldens.h"

namespace slipstream {
namespace {

std::string repeated(std::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
}

/// What becomes of a template under small limits.
std::string error_of(const std::string& source) {
    TemplateLimits limits;
    limits.max_steps = 1'000'000;
    limits.max_output_bytes = 1 << 20;
    limits.max_text_bytes = 1 << 20;
    limits.max_allocated_bytes = 64 << 20;
    TemplateInputs inputs = inputs_with(parse_template_json(R"({"a": "aaaaaaaaaa", "b": [1, 2, 3]})", "variables"));
    return rendering_of(source, inputs, limits).error;
}

TEST(TemplateLimits, LoopsThatDoNotEnd) {
    const std::string steps = "the template does not end within 1000000 steps (does it loop for ever?)";
    EXPECT_EQ(error_of("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"), steps);
    EXPECT_EQ(error_of("{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}"),
              steps);
    EXPECT_EQ(error_of("{% for i in range(99999) %}{{ range(99999)|select('gt', i)|list|length }}{% endfor %}"), steps);
    EXPECT_EQ(error_of("{% for i in range(99999) %}{{ i in range(99999)|list }}{% endfor %}"), steps);
    EXPECT_EQ(error_of("{{ 'x'|list|slice(10000000)|list }}"), steps);
    EXPECT_EQ(error_of("{% macro m() %}{% for i in b %}{{ m2() }}{% endfor %}{% endmacro %}"
                       "{% macro m2() %}{% for i in range(99999) %}{{ i }}{% endfor %}{% endmacro %}"
                       "{% for i in range(99) %}{{ m() }}{% endfor %}"),
              steps);
}

TEST(TemplateLimits, EveryWalkOverATextCounts) {
    const std::string steps = "the template does not end within 1000000 steps (does it loop for ever?)";
    for (const char* walk : {"c|float", "c|int(0, 99)", "c.isascii()", "c is sameas c", "c|default(c)|float"})
        EXPECT_EQ(error_of(fmt::format("{{% set c = '1' * 1000000 %}}{{% for i in range(1000) %}}{{% set x = {} %}}"
                                       "{{% endfor %}}",
                                       walk)),
                  steps)
            << walk;
}

TEST(TemplateLimits, ARenderingCanBeStopped) {
    const std::atomic<bool> cancel{true};
    TemplateLimits limits;
    limits.cancel = &cancel;
    const TemplateInputs inputs = inputs_with(parse_template_json("{}", "variables"));
    EXPECT_EQ(rendering_of("{% for i in range(99999) %}{% endfor %}", inputs, limits).error,
              "the rendering was stopped");
}

TEST(TemplateLimits, TextsThatGrow) {
    const std::string text = "a text grows beyond 1048576 bytes";
    EXPECT_EQ(error_of("{{ 'a' * 10000000000 }}"), text);
    EXPECT_EQ(error_of("{{ '%10000000d' % 1 }}"), text);
    EXPECT_EQ(error_of("{{ '{:10000000}'.format(1) }}"), text);
    EXPECT_EQ(error_of("{{ 'a'|center(100000000) }}"), text);
    EXPECT_EQ(error_of("{{ 'a'.zfill(100000000) }}"), text);
    EXPECT_EQ(error_of("{{ '\t'.expandtabs(100000000) }}"), text);
    EXPECT_EQ(error_of("{{ 'a'|indent(100000000) }}"), text);
    EXPECT_EQ(error_of("{{ (a * 1000)|replace('', a * 1000) }}"), text);
    EXPECT_EQ(error_of("{{ (a * 9999).join((a * 9999)|list) }}"), text);
    EXPECT_EQ(error_of("{% set ns = namespace(t=a) %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}"),
              text);
    EXPECT_EQ(
        error_of(
            "{% set ns = namespace(t=b) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t }}"),
        "the template does not end within 1000000 steps (does it loop for ever?)");
    EXPECT_EQ(error_of("{% for i in range(99999) %}{{ a * 100 }}{% endfor %}"), text);  // what is printed grows as well
    EXPECT_EQ(error_of("{% for i in range(99999) %}{% set t = a * 1000 %}{% endfor %}"),
              "the template makes more than 67108864 bytes of values");
    EXPECT_EQ(error_of("{{ [1] * 100000000000 }}"),
              "the template does not end within 1000000 steps (does it loop for ever?)");
    EXPECT_EQ(error_of("{{ [1]|batch(10000000000, 0)|list }}"),
              "the template does not end within 1000000 steps (does it loop for ever?)");
}

TEST(TemplateLimits, RecursionOfMacrosAndLoops) {
    const std::string deep = "the template calls itself too deeply: 1000 levels";
    EXPECT_EQ(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), deep);
    EXPECT_EQ(error_of("{% macro m() %}{% if true %}{% for i in b %}{{ '' ~ (m()|upper) }}{% endfor %}{% endif %}{% "
                       "endmacro %}{{ m() }}"),
              deep);
    EXPECT_EQ(error_of("{% macro m(x=m()) %}{% endmacro %}{{ m() }}"), deep);
    EXPECT_EQ(error_of("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"), deep);
    EXPECT_EQ(error_of("{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}"), deep);
    EXPECT_EQ(error_of("{% for x in b recursive %}{{ loop(b) }}{% endfor %}"), deep);
    EXPECT_EQ(
        error_of(
            "{% set ns = namespace() %}{% macro m() %}{{ range(3)|map(attribute='x')|list }}{{ ns.m() }}{% endmacro %}"
            "{% set ns.m = m %}{{ m() }}"),
        deep);
}

TEST(TemplateLimits, NestingOfValues) {
    const std::string nested = "values nested deeper than 200";
    const std::string loop =
        "{% set ns = namespace(v=b, k=1) %}{% for i in range(9999) %}{% set ns.v = VALUE %}{% endfor %}";
    const auto grown = [&](const std::string& value) {
        std::string source = loop;
        return error_of(source.replace(source.find("VALUE"), 5, value));
    };
    EXPECT_EQ(grown("[ns.v]"), nested);
    EXPECT_EQ(grown("(ns.v, 1)"), nested);
    EXPECT_EQ(grown("{'k': ns.v}"), nested);
    EXPECT_EQ(grown("{ns.k: ns.v}.items()"), nested);
    EXPECT_EQ(grown("[ns.v]|map('first')"), nested);
    EXPECT_EQ(grown("ns.v|map('string')"), nested);
    EXPECT_EQ(grown("ns.v|select"), nested);
    EXPECT_EQ(grown("[ns.v].index"), nested);
    EXPECT_EQ(grown("cycler(ns.v)"), nested);
    EXPECT_EQ(grown("joiner(ns.v)"), nested);
    // Namespaces may be chained without end, and hold themselves; what cannot be done is to print that.
    EXPECT_EQ(grown("namespace(v=ns.v)"), "");
    EXPECT_EQ(grown("namespace(v=[ns.v])"), "");
    EXPECT_EQ(error_of("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me|length }}"), "");
    EXPECT_EQ(error_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
              "a value that holds itself has no text");
    EXPECT_EQ(error_of("{% set ns = namespace() %}{% for i in [ns]|map(attribute='g')|unique %}{% endfor %}"), "");
    EXPECT_EQ(error_of("{% set ns = namespace(l=1) %}{% for i in b %}{% set ns.l = [loop, ns.l] %}{% for j in [ns] %}"
                       "{% set ns.l = [loop, ns.l] %}{% endfor %}{% endfor %}"),
              "");
    // A long chain that falls at once.
    EXPECT_EQ(
        error_of(
            "{% set ns = namespace(head=none) %}{% for i in range(20000) %}{% set ns.head = namespace(next=ns.head) %}"
            "{% endfor %}{% set ns.head = none %}"),
        "");
}

TEST(TemplateLimits, NestingOfSource) {
    const std::string nested = "brackets or tags nested deeper than 100";
    EXPECT_EQ(error_of("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("not ", 5000) + "1 }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("-", 5000) + "1 }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("1 if 1 else ", 5000) + "1 }}"), nested);
    EXPECT_EQ(error_of("{{ " + repeated("f(", 5000) + repeated(")", 5000) + " }}"), nested);
    EXPECT_EQ(error_of("{{ 1" + repeated(" is x", 1) + repeated("[1", 5000) + repeated("]", 5000) + " }}"), nested);
    EXPECT_EQ(error_of(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000)), nested);
    EXPECT_EQ(error_of("{% set " + repeated("(", 5000) + "a" + repeated(")", 5000) + " = 1 %}"), nested);
    const std::string levels = "an expression of more than 400 levels";
    EXPECT_EQ(error_of("{{ 1" + repeated(" + 1", 5000) + " }}"), levels);
    EXPECT_EQ(error_of("{{ a" + repeated(".b", 5000) + " }}"), levels);
    EXPECT_EQ(error_of("{{ a" + repeated("|e", 5000) + " }}"), levels);
    EXPECT_EQ(error_of("{{ a" + repeated("()", 5000) + " }}"), levels);
    EXPECT_EQ(error_of("{{ 1" + repeated(" and 1", 5000) + " }}"), levels);
    // Wide is not deep.
    EXPECT_EQ(error_of("{{ 1" + repeated(" ~ 1", 5000) + " }}"), "");
    EXPECT_EQ(error_of("{{ 1" + repeated(" < 1", 5000) + " }}"), "");
    EXPECT_EQ(error_of("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% endif %}"), "");
    EXPECT_EQ(error_of(std::string(kMaxTemplateBytes + 1, ' ')), "a template of more than 1048576 bytes");
}

TEST(TemplateLimits, TheDeepestThatIsAllowedFitsTheStack) {
    // All levels of all kinds at once: 90 brackets in each of the macros that call each other.
    const std::string open = repeated("[", 90);
    const std::string close = repeated("]", 90);
    EXPECT_EQ(error_of("{% macro m() %}{{ " + open + "m()" + close + " }}{% endmacro %}{{ m() }}"),
              "the template calls itself too deeply: 1000 levels");
    EXPECT_EQ(error_of("{{ 1" + repeated(" + 1", 390) + " }}"), "");
    EXPECT_EQ(error_of(repeated("{% for i in b %}", 60) + repeated("{% endfor %}", 60)).substr(0, 29),
              "the template does not end wit");
    EXPECT_EQ(error_of("{% set ns = namespace(v=1) %}{% for i in range(199) %}{% set ns.v = [ns.v] %}{% endfor %}"
                       "{{ ns.v }}{{ ns.v|tojson }}{{ ns.v == ns.v }}{{ ns.v < ns.v }}"),
              "");
}

TEST(TemplateLimits, ManyNamesAndBranches) {
    std::string source;
    for (int i = 0; i < 20000; ++i) source += fmt::format("{{{{ v{} }}}}", i);
    source += repeated("{% if a %}{% set a = 1 %}{% endif %}", 10000);
    EXPECT_EQ(error_of(source), "");
    std::string loops;
    for (int i = 0; i < 90; ++i) loops += "{% for x in [] %}";
    loops += repeated("{{ a + 1 }}", 20000);
    loops += repeated("{% endfor %}", 90);
    EXPECT_EQ(error_of(loops), "");
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
    EXPECT_EQ(error(repeated("[", 100) + repeated("]", 100)), "");
    EXPECT_EQ(error("[1, 9223372036854775808, -" + repeated("9", 300) + "]"), "");
    EXPECT_EQ(error("[1e400]"), "messages: not JSON at byte 6");
    EXPECT_EQ(error("{\"a\": 1,}"), "messages: not JSON at byte 9");
    EXPECT_EQ(error(""), "messages: not JSON at byte 1");
}

}  // namespace
}  // namespace slipstream
