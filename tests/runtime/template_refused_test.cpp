// What Jinja has and chat templates do not use is not served: where it is reached the error names it, with its line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/template_goldens.h"

namespace slipstream {
namespace {

struct Refused {
    const char* source;  // on its second line
    const char* feature;
};

constexpr Refused kRefused[] = {
    {"{% include 'x' %}", "{% include %}"},
    {"{% extends 'x' %}", "{% extends %}"},
    {"{% block b %}{% endblock b %}", "{% block %}"},
    {"{% import 'x' as y %}", "{% import %}"},
    {"{% from 'x' import y %}", "{% from %}"},
    {"{% autoescape true %}{% endautoescape %}", "{% autoescape %}"},
    {"{% with x = 1 %}{% endwith %}", "{% with %}"},
    {"{% raw %}{% endraw %}", "'raw'"},
    {"{% print a %}", "'print'"},
    {"{% do x %}", "'do'"},
    {"{% trans %}x{% endtrans %}", "'trans'"},
    {"{% debug %}", "'debug'"},
    {"{% for x in a recursive %}{{ loop(x) }}{% endfor %}", "recursive loops"},
    {"{{ a|e }}", "'e'"},
    {"{{ a|escape }}", "'escape'"},
    {"{{ a|filesizeformat }}", "'filesizeformat'"},
    {"{{ a|forceescape }}", "'forceescape'"},
    {"{{ a|format(1) }}", "'format'"},
    {"{{ a|pprint }}", "'pprint'"},
    {"{{ a|random }}", "'random'"},
    {"{{ a|striptags }}", "'striptags'"},
    {"{{ a|urlencode }}", "'urlencode'"},
    {"{{ a|urlize }}", "'urlize'"},
    {"{{ a|wordcount }}", "'wordcount'"},
    {"{{ a|wordwrap }}", "'wordwrap'"},
    {"{{ a|xmlattr }}", "'xmlattr'"},
    {"{{ a is sameas 'x' }}", "'sameas' of two values of type str"},
    {"{{ b|map('wordcount')|list }}", "'wordcount'"},
    {"{% filter wordwrap %}x{% endfilter %}", "'wordwrap'"},
    {"{{ 1.5|round(30, 'ceil') }}", "round() to 30 places"},
    {"{{ a is escaped }}", "'escaped'"},
    {"{{ a is filter }}", "'filter'"},
    {"{{ a is test }}", "'test'"},
    {"{{ b|select('escaped')|list }}", "'escaped'"},
    {"{{ '%s' % a }}", "formatting text by %"},
    {"{{ '%d' % 1 }}", "formatting text by %"},
    {"{{ '{:>5}'.format(a) }}", "'{:>5}'"},
    {"{{ '{!r}'.format(a) }}", "'{!r}'"},
    {"{{ '{a.b}'.format(a=1) }}", "'{a.b}'"},
    {"{{ '{0[x]}'.format(a) }}", "'{0[x]}'"},
    {"{{ a.splitlines() }}", "'splitlines'"},
    {"{{ a.rsplit(',') }}", "'rsplit'"},
    {"{{ a.partition(',') }}", "'partition'"},
    {"{{ a.find('x') }}", "'find'"},
    {"{{ a.count('x') }}", "'count'"},
    {"{{ b.index(1) }}", "'index'"},
    {"{{ a.isdigit() }}", "'isdigit'"},
    {"{{ a.removeprefix('x') }}", "'removeprefix'"},
    {"{{ a.encode() }}", "'encode'"},
    {"{{ a.zfill(3) }}", "'zfill'"},
    {"{{ a.center(3) }}", "'center'"},
    {"{{ a.translate({}) }}", "'translate'"},
    {"{{ a.swapcase() }}", "'swapcase'"},
    {"{{ a.expandtabs() }}", "'expandtabs'"},
    {"{{ 2 ** 3 }}", "'**'"},
    {"{{ dict(a=1) }}", "'dict'"},
    {"{{ strftime_now('%z') }}", "%z"},
    {"{{ lipsum() }}", "'lipsum'"},
    {"{{ cycler(1, 2) }}", "'cycler'"},
    {"{{ joiner() }}", "'joiner'"},
    {"{% for x in b %}{{ loop.cycle(1, 2) }}{% endfor %}", "loop.cycle"},
    {"{% for x in b %}{{ loop.changed(1) }}{% endfor %}", "loop.changed"},
    {"{% for x in b %}{{ loop.depth }}{% endfor %}", "loop.depth"},
    {"{{ '\\N{BULLET}' }}", "characters by name"},
    {"{{ 99999999999999999999 }}", "integers have 64 bits"},
    {"{{ 9223372036854775807 + 1 }}", "64 bits"},
    {"{{ long + 1 }}", "int beyond 64 bits"},
};

TEST(TemplateRefused, NamesTheFeatureAndTheLine) {
    const TemplateInputs inputs =
        inputs_with(parse_template_json(R"({"a": "x", "b": [1, 2], "long": 18446744073709551615})", "variables"));
    EXPECT_GE(std::size(kRefused), 50U);
    for (const auto& [source, feature] : kRefused) {
        const Rendering rendering = rendering_of("text\n" + std::string(source) + "\nmore", inputs);
        EXPECT_THAT(rendering.error, testing::HasSubstr(feature)) << source;
        EXPECT_EQ(rendering.line, 2) << source;
    }
}

TEST(TemplateRefused, WhereItIsNotReachedItDoesNoHarm) {
    const TemplateInputs inputs = inputs_with(parse_template_json("{}", "variables"));
    EXPECT_EQ(
        rendering_of("{% if false %}{% include 'x' %}{% block b %}{{ y }}{% endblock %}{{ 'a'|groupby('x') }}{{ a is "
                     "escaped }}{{ lipsum() }}{{ '%s' % 1 }}{% endif %}ok",
                     inputs)
            .text,
        "ok");
}

}  // namespace
}  // namespace slipstream
