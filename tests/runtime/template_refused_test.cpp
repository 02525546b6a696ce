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
    {"{% call m() %}{% endcall %}", "{% call %}"},
    {"{% with x = 1 %}{% endwith %}", "{% with %}"},
    {"{% raw %}{% endraw %}", "'raw'"},
    {"{% print a %}", "'print'"},
    {"{% do x %}", "'do'"},
    {"{% trans %}x{% endtrans %}", "'trans'"},
    {"{% debug %}", "'debug'"},
    {"{% for x in a recursive %}{{ loop(x) }}{% endfor %}", "recursive loops"},
    {"{{ a|abs }}", "'abs'"},
    {"{{ a|float }}", "'float'"},
    {"{{ b|sum }}", "'sum'"},
    {"{{ a|attr('x') }}", "'attr'"},
    {"{{ a|batch(2) }}", "'batch'"},
    {"{{ a|center }}", "'center'"},
    {"{{ a|e }}", "'e'"},
    {"{{ a|escape }}", "'escape'"},
    {"{{ a|filesizeformat }}", "'filesizeformat'"},
    {"{{ a|forceescape }}", "'forceescape'"},
    {"{{ a|format(1) }}", "'format'"},
    {"{{ a|groupby('x') }}", "'groupby'"},
    {"{{ a|pprint }}", "'pprint'"},
    {"{{ a|random }}", "'random'"},
    {"{{ a|round }}", "'round'"},
    {"{{ a|slice(2) }}", "'slice'"},
    {"{{ a|striptags }}", "'striptags'"},
    {"{{ a|truncate }}", "'truncate'"},
    {"{{ a|urlencode }}", "'urlencode'"},
    {"{{ a|urlize }}", "'urlize'"},
    {"{{ a|wordcount }}", "'wordcount'"},
    {"{{ a|wordwrap }}", "'wordwrap'"},
    {"{{ a|xmlattr }}", "'xmlattr'"},
    {"{{ b|map('groupby')|list }}", "'groupby'"},
    {"{% filter center %}x{% endfilter %}", "'center'"},
    {"{% for x in b %}{{ x }}{% else %}none{% endfor %}", "for ... else"},
    {"{{ 1 is float }}", "'float'"},
    {"{{ 1 is integer }}", "'integer'"},
    {"{{ 2 is odd }}", "'odd'"},
    {"{{ 2 is even }}", "'even'"},
    {"{{ 2 is divisibleby(2) }}", "'divisibleby'"},
    {"{{ 1 is eq 1 }}", "'eq'"},
    {"{{ 1 is ne 1 }}", "'ne'"},
    {"{{ 1 is gt 1 }}", "'gt'"},
    {"{{ 1 is ge 1 }}", "'ge'"},
    {"{{ 1 is lt 1 }}", "'lt'"},
    {"{{ 1 is le 1 }}", "'le'"},
    {"{{ 1 is in b }}", "'in'"},
    {"{{ b|select('==', 1)|list }}", "'=='"},
    {"{{ a is callable }}", "'callable'"},
    {"{{ a is lower }}", "'lower'"},
    {"{{ a is sameas true }}", "'sameas'"},
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
    {"{{ range(*b) }}", "* and **"},
    {"{{ dict(a=1) }}", "'dict'"},
    {"{{ strftime_now('%z') }}", "%z"},
    {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "'caller'"},
    {"{% macro m() %}{{ kwargs.x }}{% endmacro %}{{ m() }}", "'kwargs'"},
    {"{% macro m() %}{{ varargs.x }}{% endmacro %}{{ m() }}", "'varargs'"},
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
