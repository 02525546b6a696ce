#!/usr/bin/env python3
"""Renders our own templates (features/*.jinja, every feature of the language) and what must be refused (REFUSED below).

    python3 make_features.py      writes features/NAME.json for each NAME.jinja, and refused.json
"""
from pathlib import Path

import golden
import oracle
from conversations import ANSWERED, CASES, TALK, WEATHER

HERE = Path(__file__).parent
PLAIN = [{"name": "plain", "messages": TALK, "tools": [WEATHER]}]

# Sources, all on as many lines as matter: the line of the error is compared as well.
REFUSED = [
    "{{ nothing.x }}", "{{ nothing['x'] }}", "{{ nothing[1:] }}", "{{ nothing() }}", "{{ nothing + 1 }}", "{{ 'a' + nothing }}",
    "{{ nothing < 1 }}", "{{ -nothing }}", "{{ nothing|int }}", "{{ messages[0].nope.nope }}", "{{ messages[9].role }}",
    "{{ (1 if not messages) + 1 }}", "{{ [].append(1) }}", "{{ {}.update(a=1) }}", "{{ messages.pop() }}",
    "a\nb{{ 'x' + 1 }}", "\n\n{{ 1 + 'x' }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ 'a' < 1 }}", "{{ [1] < ['a'] }}",
    "{{ {} < {} }}", "{{ 1 in 2 }}", "{{ 1 in 'abc' }}", "{{ [1] in {} }}", "{{ {[1]: 2} }}", "{{ (none if messages)[1:] }}", "{{ messages[0].role['a':] }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' * 'b' }}", "{{ [] - [] }}",
    "{{ 5() }}", "{{ 'x'.upper(1) }}", "{{ 'x'.nope() }}", "{{ 'x'.split('') }}", "{{ 'x'.index('y') }}", "{{ ','.join([1]) }}",
    "{{ '%d' % 'x' }}", "{{ '%s %s' % 'x' }}", "{{ '%s' % (1, 2) }}", "{{ '%y' % 1 }}", "{{ '{} {}'.format(1) }}", "{{ '{'.format() }}",
    "{{ '{a}'.format(b=1) }}", "{{ '{:d}'.format('x') }}", "{{ range(1, 2, 0) }}", "{{ range(1000000) }}", "{{ range('a') }}",
    "{{ namespace(_a=1) }}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set d = {} %}{% set d.x = 1 %}",
    "{% set nope.x = 1 %}", "{% set a, b = 1 %}", "{% set a, b = [1] %}", "{% set a, b = [1, 2, 3] %}",
    "{% for a, b in [1] %}{% endfor %}", "{% for a in 5 %}{% endfor %}", "{% for a in none %}{% endfor %}",
    "{% for a in [1] %}\n{{ loop(a) }}{% endfor %}", "{% for a in [1] %}{{ loop.cycle() }}{% endfor %}",
    "{% macro m(a) %}{{ a.x }}{% endmacro %}\n{{ m() }}", "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m() %}{% endmacro %}{{ m(a=1) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ [1, 'a']|sort }}", "{{ 5|length }}", "{{ 5|list }}", "{{ none|join }}", "{{ 'a'|round }}", "{{ 'a'|abs }}", "{{ 5|items|list }}",
    "{{ [[]]|unique|list }}", "{{ [1]|map|list }}", "{{ [1]|map('nope')|list }}", "{{ [1]|select('nope')|list }}", "{{ [1]|selectattr|list }}",
    "{{ 'a'|replace('b') }}", "{{ 1|default(1, 2, 3) }}", "{{ 1|default(nope=1) }}", "{{ 'a'|sum }}", "{{ ['a']|sum }}", "{{ nothing|tojson }}",
    "{{ namespace()|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ {1: 2, 'a': 3}|tojson(sort_keys=true) }}", "{{ raise_exception('stop: ' ~ 1) }}",
    "line one\n{% if true %}\n{{ raise_exception('on line three') }}\n{% endif %}", "{{ raise_exception() }}", "{{ strftime_now() }}",
    "{% if true %}{{ 1|nope }}{% endif %}", "{% if true %}{{ 1 is nope }}{% endif %}",
    "{{ 1|nope }}", "{{ 1 is nope }}", "{% for x in [] %}{{ x|nope }}{% endfor %}", "{% if false %}{% for x in [] %}{{ x|nope }}{% endfor %}{% endif %}",
    "{{", "{{ }}", "{{ 1 ", "{{ 1 2 }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ {1} }}", "{{ {1: } }}", "{{ a. }}", "{{ a.'b' }}", "{{ 1 + }}",
    "{{ not }}", "{{ a | }}", "{{ a is }}", "{{ a is b is c }}", "{{ a is defined if b }}", "{{ f(a=1, 2) }}", "{{ f(*a, *b) }}", "{{ f(**a, b) }}", "{{ 'abc }}", "{{ 'a\\x1' }}",
    "{{ ! }}", "{{ a ? b }}", "{{ 1 if }}", "{% if %}{% endif %}", "{% if 1 %}", "{% if 1 %}{% else %}", "{% endif %}", "{% if 1 %}{% endfor %}",
    "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for x in y %}", "{% for 1 in y %}{% endfor %}",
    "{% for loop in [1] %}{% endfor %}", "{% for x in [1] %}{% set loop = 1 %}{% endfor %}", "{% set %}", "{% set x = %}", "{% set x %}",
    "{% set 1 = 2 %}", "{% set true = 1 %}", "{% macro %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(1) %}{% endmacro %}", "{% call %}{% endcall %}", "{% call 5 %}{% endcall %}", "{% filter %}{% endfilter %}", "{% with a %}{% endwith %}",
    "{% nope %}", "{% %}", "{% 5 %}", "{# open", "{% raw %}open", "{% generation %}", "text\n\n{% if x %}\n{{ y }\n", "{% break %}",
    "{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in [1] %}{% else %}{% break %}{% endfor %}",
    "{% macro m(caller) %}{{ caller() }}{% endmacro %}", "{% call(caller) m() %}{{ caller }}{% endcall %}",
]


def main():
    for path in sorted((HERE / "features").glob("*.jinja")):
        cases = CASES if path.stem == "conversation" else PLAIN
        path.with_suffix(".json").write_text(golden.renderings(path.read_text(), golden.complete(cases)))
    rows = []
    for source in REFUSED:
        result = oracle.render(source, ANSWERED, bos_token="<s>")
        assert "error" in result, source
        # Python itself refuses some when it compiles what Jinja made of them, and then names a line of that.
        line = None if result["kind"] == "SyntaxError" else result["line"]
        rows.append(golden.dumped([source, result["error"], line]))
    (HERE / "refused.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


main()
