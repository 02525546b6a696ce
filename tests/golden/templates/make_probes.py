#!/usr/bin/env python3
"""Small templates, each about one thing that chat templates rely on, and what the reference engine makes of them: writes
probes.json, {"variables": ..., "cases": [[source, text] or [source, null, line, message]]}.

    python3 make_probes.py
"""
import json
from pathlib import Path

import oracle
from conversations import NUMBERS, TALK, WEATHER

VARIABLES = {
    "bos_token": "<s>", "talk": TALK, "tool": WEATHER, "numbers": NUMBERS, "s": "Hello, World", "u": "Größe ß ΑΣ 你好🙂",
    "w": " \t a b\n", "xs": [3, 1, 2, 2], "ws": ["b", "A", "c", "a"], "d": {"b": 2, "a": 1, "items": 7, "c d": "x"},
    "ds": [{"k": "x", "v": 2}, {"k": "Y", "v": 1}, {"k": "x", "v": 3}], "nil": None, "yes": True, "f": 2.5, "html": "<b>&\"'",
    "deep": {"a": {"b": [{"c": "z"}]}}, "calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
}

PROBES = [
    # scopes of loops
    "{% set x = 'o' %}{% for i in [1, 2] %}{{ x }}{% set x = x ~ i %}{{ x }} {% endfor %}{{ x }}",
    "{% for i in [1] %}{% set q = 1 %}{% endfor %}{{ q is defined }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set q = 1 %}{% endif %}{{ q is defined }}{% endfor %}",
    "{% for i in [1, 2] %}{% endfor %}{{ i is defined }}{{ loop is defined }}",
    "{% set i = 9 %}{% for i in [1, 2] %}{{ i }}{% endfor %}{{ i }}",
    "{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for m in talk if m.role == 'user' %}{{ loop.index }}{{ m.content }}{{ loop.last }} {% endfor %}",
    "{% for m in talk %}{{ loop.first }}{{ loop.last }}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ 'n' if loop.nextitem is defined else 'end' }}{{ loop.previtem is defined }} {% endfor %}",
    "{% for x in xs %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}.",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{{ loop.last }} {% endfor %}",
    "{% for x in [] %}a{% endfor %}none {% for x in [1] %}a{% endfor %}",
    "{% for x in xs %}{% for y in [1, 2] %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}|{% endfor %}",
    "{% for x in [1] %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for c in 'aé你' %}{{ c }}-{% endfor %}", "{% for k in d %}{{ k }},{% endfor %}", "{% for x in nope %}{{ x }}{% endfor %}.",
    "{% for x in range(3) %}{{ x }}{% endfor %} {{ range(2, 8, 3)|list }} {{ range(3, 0, -1)|list }} {{ range(3) }}",
    "{% for x in xs|sort %}{{ x }}{% endfor %}", "{% for i in range(talk|length - 1, -1, -1) %}{{ talk[i].role }} {% endfor %}",
    "{% for m in talk[1:] %}{{ m.role }}{% endfor %} {% for m in talk[::-1] %}{{ m.role }}{% endfor %}",
    "{% set found = [] %}{% for x in xs %}{% set found = found + [x] %}{% endfor %}{{ found }}",
    "{% if yes %}{% set a = 1 %}{% endif %}{{ a }} {% if nil %}{% set b = 1 %}{% endif %}{{ b is defined }}",
    "{% if nil %}1{% elif yes %}2{% else %}3{% endif %}{% if not yes %}1{% elif nil %}2{% else %}3{% endif %}",
    "{% for x in [1, 2] %}{% set bos_token = 'q' %}{{ bos_token }}{% endfor %}{{ bos_token }}",
    "{% for x in xs %}{{ x }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}{{ v }} {% endfor %}", "{% for k, v in tool|items %}{{ k }} {% endfor %}",
    "{% for m in talk %}{%- if not loop.index0 % 2 %}{% set r = m.role %}{% endif %}{{ r if r is defined else '-' }}{% endfor %}",
    "{% for m in talk %}{%- if loop.index0 % 2 == 0 %}{% set r = m.role %}{% endif %}{{ r if r is defined else '-' }}{% endfor %}",
    "{% for talk in [1] %}{{ talk }}{% endfor %} {{ talk|length }}",
    "{% set loop = 'l' %}{{ loop }}{% for x in [1] %}{{ loop.index }}{% endfor %}{{ loop }}",
    "{% for x in xs if x > 1 %}{{ x }}{% endfor %} {% for x in xs if x > 9 %}{{ x }}{% endfor %}",
    # macros
    "{% macro m() %}plain{% endmacro %}{{ m() }}{{ m()|upper }}{{ m() ~ 1 }}",
    "{% macro m(a, b='b', c=a ~ b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(1, c=3) }} {{ m(b=2, a=1) }} {{ m() }}",
    "{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m(1) }}{{ x }}",
    "{% macro m() %}{{ late }}{% endmacro %}{% set late = 'seen' %}{{ m() }}",
    "{% set a = 1 %}{% macro m() %}{{ a }}{% set a = 2 %}{{ a }}{% endmacro %}{{ m() }}{{ a }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ x is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}",
    "{% macro m(a, b) %}{{ a is defined }}{{ b is defined }}{% endmacro %}{{ m(1) }}",
    "{% macro m(spec, indent=0) %}{{ ' ' * indent }}{{ spec.type }}{% if spec.properties %}{% for k, v in spec.properties.items() %}\n{{ m(v, indent + 2) }}{% endfor %}{% endif %}{% endmacro %}{{ m(tool.function.parameters) }}",
    "{%- macro m(x) -%}\n  {{- x -}}\n{%- endmacro -%}\n[{{ m('a') }}]", "{% macro m(*a) %}{% endmacro %}",
    "{% set f = namespace() %}{% macro m() %}hi{% endmacro %}{% set f.m = m %}{{ f.m() }}",
    "{% macro m() %}a{% endmacro %}{% if m() == 'a' %}same{% endif %}{{ m.name }}",
    "{% macro m(ns) %}{% set ns.n = ns.n + 1 %}{% endmacro %}{% set ns = namespace(n=0) %}{{ m(ns) }}{{ m(ns) }}{{ ns.n }}",
    # set, namespace, blocks
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e), g = 'ce', 3 %}{{ c }}{{ e }}{{ g }}",
    "{% set ns = namespace(n=0, seen=[]) %}{% for m in talk %}{% set ns.n = ns.n + 1 %}{% set ns.seen = ns.seen + [m.role] %}{% endfor %}{{ ns.n }}{{ ns.seen }}",
    "{% set ns = namespace() %}{{ ns.nope is defined }}{% set ns.a = 1 %}{{ ns.a }}{{ ns['a'] }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(found=false) %}{% for x in xs %}{% if x == 2 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
    "{% set t %}a {{ s }}{% endset %}{{ t }}{{ t|length }}", "{% set t | upper | replace('L', '-') %}{{ s }}{% endset %}{{ t }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter trim %}  a  {% endfilter %}.", "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}",
    "a{% generation %}{{ s }}{% endgeneration %}b", "{% generation %}{% set h = 1 %}{% endgeneration %}{{ h is defined }}",
    "{% set x = none %}{{ x }}|{{ x is none }}|{{ x or 'd' }}", "{% set x = {'a': [1]} %}{{ x.a[0] }}{{ x['a'] }}",
    "{% set x = talk[0].content if talk else '' %}{{ x }}", "{% set x = xs, 1 %}{{ x }}",
    "{# comment #}a{#- c -#} b", "{% if true %}{# {{ x }} #}{% endif %}.",
    # white space
    "a\n{% if yes %}\nb\n{% endif %}\nc", "  {% if yes %}  \n  b\n  {% endif %}  \nc", "a  {%- if yes -%}  b  {%- endif -%}  c",
    "a\n  {{- 'b' -}}\n c", "a\n  {{ 'b' }}\n c\n", "a\n\n", "{%- for x in xs %}\n{{ x }}\n{%- endfor %}\n.", "{% for x in xs -%}\n  {{ x }}\n{% endfor %}",
    "  {%+ if yes %}b{% endif +%}\nc", "a {#- c #} b {# c -#} d", "\t{% set q = 1 %}\n x", "x {% set q = 1 %}\n y", "{{ 'a' }}\n{{ 'b' }}\n",
    "a\r\nb\rc{% if yes %}\r\nd{% endif %}", "{{- '' }} a {{ '' -}} b", "{%- set x = 1 -%}\n\n a", "\n{% if yes %}a{% endif %}\n\n{{ s }}\n",
    "{{ \"two\nlines\" }}", "{{ 'tab\\tnl\\nq\\'b\\\\ \\x41 \\u00e9 \\U0001F642 \\101 \\q' }}", "{{ 'a' \"b\" }}", "<|im_start|>{{ '<|im_end|>' + '\\n' }}",
    "    {% for x in [1] %}\n    {{ x }}\n    {% endfor %}\nend", "{% if yes -%}   a{%- endif %}   b",
    # indices and slices
    "{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ s[:-1] }}{{ s[-3:] }}{{ s[::-1] }}{{ s[::2] }}{{ s[99:] }}|", "{{ u[1] }}{{ u[-1] }}{{ u[2:5] }}{{ u[::-1] }}{{ u|length }}",
    "{{ xs[0] }}{{ xs[-1] }}{{ xs[1:] }}{{ xs[:2] }}{{ xs[-2:] }}{{ xs[::-1] }}{{ xs[:0] }}{{ xs[5:] }}", "{{ talk[-1].role }}{{ talk[-1]['content'] }}",
    "{{ xs[9] is defined }}{{ d.nope is defined }}{{ d['nope'] is defined }}{{ s[99] is defined }}", "{{ d['a'] }}{{ d.b }}{{ d['c d'] }}{{ d.items is defined }}{{ d['items'] }}",
    "{{ (1, 2)[1] }}{{ [1, [2, 3]][1][0] }}{{ {'a': {'b': 1}}.a.b }}{{ deep.a.b[0].c }}", "{{ s.0 }}{{ xs.1 }}", "{{ s[2:1] }}|{{ s[1:-1:3] }}|{{ s[4:1:-1] }}", "{{ s.split(', ')[-1][0] }}",
    "{{ xs[yes] }}{{ xs['0'] is defined }}", "{{ range(10)[3] }}{{ range(10)[-1] }}{{ range(10)[2:4]|list }}",
    # operators
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}", "{{ 1 / 3 }} {{ 10 / 2 }} {{ 1e3 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-7 }} {{ 100000000000000000.0 }}",
    "{{ 'a' + 'b' }}{{ 'a' ~ 1 ~ none ~ true ~ 2.0 }}{{ 'ab' * 3 }}{{ [1] + [2] }}{{ [0] * 3 }}{{ (1,) + (2,) }}", "{{ 1 == 1.0 }}{{ 1 == true }}{{ '1' == 1 }}{{ [1] == [1] }}{{ {'a': 1} == {'a': 1} }}{{ none == false }}{{ (1, 2) == [1, 2] }}",
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' < 'b' }}{{ 'B' < 'a' }}{{ [1, 2] < [1, 3] }}{{ 2 >= 2.0 }}", "{{ 'lo' in s }}{{ 'x' not in s }}{{ 2 in xs }}{{ 'a' in d }}{{ 9 not in xs }}{{ '' in s }}{{ 'a' in nope }}",
    "{{ yes and nil }}{{ nil or 'x' }}{{ not nil }}{{ not yes or yes }}{{ 0 or '' or [] }}{{ 1 and 2 }}", "{{ 'y' if yes else 'n' }}{{ 'y' if nil }}|{{ ('a' if nil else 'b') ~ 'c' }}", "{{ -f }}{{ +1 }}{{ -(-3) }}{{ - 2 * 2 }}",
    "{{ (1 if yes) + 1 }}", "{{ not 1 == 2 }}{{ 1 * 1 ~ 2 }}{{ 2 * 'a' }}", "{{ 1 + 1 ~ 2 }}", "{{ true }}{{ True }}{{ false }}{{ None }}{{ none }}", "{{ 5 % 2 == 1 }}{{ 4 % 2 }}{{ 6 % 3 }}{{ 6 % 4 }}", "{{ -3 % 2 }}{{ 2.0 % 2 }}{{ nope|reverse|list }}{{ d|reverse|list }}",
    "{{ {('a', 1): 2} }}{{ {(1, 2): 3}[(1.0, 2)] }}{{ d.items()|unique|list }}{{ (1, 2) in {(1, 2): 3} }}", "{{ {([1], 2): 3} }}", "{{ [1, 1.0, true, (1, 2), (1, 2.0), 'a', 'A', none, none]|unique|list }}",
    "{{ xs|length > 3 and s is string }}", "{{ yes is true }}{{ nil is none }}{{ 1 is true }}{{ false is false }}",
    # tests
    "{{ nope is defined }}{{ nope is undefined }}{{ nope is none }}{{ nil is defined }}{{ s is defined and s }}", "{{ s is string }}{{ 1 is string }}{{ d is mapping }}{{ xs is mapping }}{{ d is iterable }}{{ s is iterable }}{{ 1 is iterable }}{{ xs is sequence }}{{ d is sequence }}{{ s is sequence }}{{ 1 is sequence }}",
    "{{ 1 is number }}{{ f is number }}{{ '1' is number }}{{ yes is number }}{{ yes is boolean }}{{ 0 is boolean }}", "{{ xs is not none }}{{ s is not string }}{{ not s is string }}{{ s is not defined }}",
    "{{ 1 is equalto 1 }}{{ 1 is equalto(2) }}{{ 1 is not equalto 2 }}{{ 'a' is equalto 'a' }}{{ xs is equalto [1, 2, 3] }}", "{{ range(2) is iterable }}{{ d.items() is iterable }}{{ d.items() is mapping }}{{ (1,) is sequence }}{{ xs|map('string') is iterable }}",
    "{{ d.x is defined and d.x }}{{ d.x.y is defined }}", "{{ (d.x is defined) == (d['x'] is not undefined) }}", "{{ d.get is defined }}{{ s.upper is string }}{{ d.nope is defined }}",
    # tojson
    "{{ tool|tojson }}", "{{ tool|tojson(indent=2) }}", "{{ numbers|tojson }}", "{{ numbers|tojson(indent=4) }}", "{{ numbers.function.parameters }}", "{{ numbers.function.parameters.properties.n.maximum }} {{ numbers.function.parameters.properties.big.maximum }}",
    "{{ numbers.function.parameters.properties.n.maximum is number }}{{ numbers.function.parameters.properties.n.maximum is equalto 5 }}{{ numbers.function.parameters.properties.big.maximum is string }}",
    "{{ {'b': [1, 2.0, none, true], 'a': {'x': []}, 'e': {}}|tojson }}", "{{ 'é🙂<>&\\'\"\\n\\t\\x01\\x7f\\u2028/'|tojson }}", "{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}", "{{ u|tojson(ensure_ascii=true) }}", "{{ [1, {'a': 2}]|tojson(separators=(',', ':')) }}", "{{ [1, [2, {}], []]|tojson(indent='\t') }}", "{{ {'a': [1]}|tojson(indent=0) }}",
    "{{ (1, 2)|tojson }}{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ 1e16|tojson }}{{ 1.0|tojson }}{{ 0.1|tojson }}{{ -0.0|tojson }}{{ 1e-7|tojson }}", "{{ html|tojson|safe }}", "{{ nope|tojson }}", "{{ d.items()|tojson }}", "{{ xs|map('string')|tojson }}", "{{ xs|map('string')|list|tojson }}", "{{ '{\"a\": [1, 2.5, null]}'|from_json }}", "{{ ('{\"a\": 1}'|from_json).a + 1 }}",
    # Python's spelling
    "{{ ['x', \"it's\", 'q\"', none, true, 1.5, {'k': 'v'}, (1,), ()] }}", "{{ {'a': \"b\\n\\\\\"} }}{{ {1: 2, 'x': none} }}", "{{ [u, '\\x00\\x7f', '\\u200b'] }}", "{{ talk }}", "{{ talk[0]|string }}{{ xs|string|length }}", "{{ d.items() }}{{ d.keys() }}{{ d.values() }}", "{{ d.items()|list }}", "{{ 1.0 }} {{ 1e100 }} {{ 123456789.125 }} {{ -1.5e-10 }} {{ 3.0 * 2 }}", "{{ namespace is defined }}",
    # filters
    "{{ w|trim }}|{{ 'xxaxx'|trim('x') }}|{{ '\\u00a0\\u3000a\\x1f'|trim }}|", "{{ s|upper }}{{ s|lower }}{{ s|title }}{{ 'hELLO wORLD'|capitalize }}{{ 'a-b (c d)'|title }}{{ \"it's o'neil\"|title }}", "{{ u|upper }}{{ u|lower }}{{ 'ǆ ŉ ﬁ'|upper }}{{ 'ΑΣ Σ ΑΣΑ'|lower }}{{ 'İ'|lower|length }}", "{{ xs|first }}{{ xs|last }}{{ s|first }}{{ s|last }}{{ []|first is defined }}{{ d|first }}{{ u|last }}",
    "{{ xs|length }}{{ s|length }}{{ d|length }}{{ u|count }}{{ range(5)|length }}{{ d.items()|length }}{{ nope|length }}", "{{ xs|join }}{{ xs|join(', ') }}{{ ds|join('-', attribute='k') }}{{ 'abc'|join('.') }}{{ [1, none, 'x']|join('|') }}{{ []|join(',') }}", "{{ xs|sort }}{{ xs|sort(reverse=true) }}{{ ws|sort }}{{ ws|sort(case_sensitive=true) }}{{ ds|sort(attribute='v')|map(attribute='v')|list }}{{ ds|sort(attribute='k,v') }}",
    "{{ xs|unique|list }}{{ ws|unique|list }}{{ ['a', 'A']|unique(case_sensitive=true)|list }}{{ ds|unique(attribute='k')|list }}", "{{ xs|min }}{{ xs|max }}{{ ws|min }}{{ ds|max(attribute='v') }}{{ [] | max is defined }}", "{{ nope|default('x') }}{{ nil|default('x') }}{{ nil|default('x', true) }}{{ ''|default('x', boolean=true) }}{{ nope|d }}|{{ d.nope|d('q') }}", "{{ s|replace('l', 'L') }}{{ s|replace('l', '', 1) }}{{ s|replace('', '-') }}{{ 5|replace(5, 6) }}",
    "{{ xs|map('string')|list }}{{ ds|map(attribute='k')|join }}{{ ws|map('upper')|join(',') }}{{ ds|map(attribute='nope', default='-')|list }}{{ ['a b', 'c']|map('replace', ' ', '_')|list }}{{ calls|map(attribute='function.name')|list }}", "{{ xs|select('equalto', 1)|list }}{{ [0, 1, '']|select|list }}{{ [0, 1, '']|reject|list }}{{ xs|reject('equalto', 2)|list }}{{ [1, 'a']|select('string')|list }}{{ xs|select('number')|list }}",
    "{{ ds|selectattr('k', 'equalto', 'x')|list|length }}{{ ds|selectattr('k', 'equalto', 'Y')|list }}{{ ds|rejectattr('v', 'equalto', 1)|list }}{{ ds|selectattr('nope')|list }}{{ ds|selectattr('nope', 'defined')|list }}{{ talk|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(' ') }}", "{{ (ds|selectattr('v', 'equalto', 1)|first).k }}", "{{ ds|selectattr('k', 'equalto', 'x') is defined }}{% if talk|selectattr('role', 'equalto', 'nobody') %}true{% endif %}",
    "{% set g = xs|map('string') %}{{ g|join }}|{{ g|join }}|{{ g|list }}", "{% set g = xs|select %}{% for x in g %}{{ x }}{% endfor %}{{ g|first is defined }}", "{{ xs|map('string')|length }}", "{{ xs|reverse|list }}{{ s|reverse }}", "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ') }}", "{{ '42'|int + 1 }}{{ 'x'|int }}{{ 'x'|int(7) }}{{ 3.9|int }}{{ '3.9'|int }}{{ ' 7 '|int }}{{ yes|int }}", "{{ nope|int }}", "{{ d|items|list }}{{ d|dictsort }}{{ d|dictsort(by='value') if false }}{{ {'b': 1, 'A': 2}|dictsort(reverse=true) }}{{ {'b': 1, 'A': 0}|dictsort(false, 'value') }}",
    "{{ 'abc'|list }}{{ d|list }}{{ (1, 2)|list }}{{ range(2)|list }}", "{{ html|safe }}{{ html|safe|length }}{{ html|string|upper }}", "{{ xs|string }}", "{{ nil|string }}{{ 1.0|string }}{{ yes|string|lower }}", "{{ s | upper | lower | trim | length }}", "{{ s|upper ~ s|lower }}{{ (s ~ 'x')|length }}{{ -1|string }}",
    # methods
    "{{ w.strip() }}|{{ w.lstrip() }}|{{ w.rstrip() }}|{{ 'xyax'.strip('xy') }}|{{ 'aab'.lstrip('a') }}|{{ 'b\\n\\n'.rstrip('\\n') }}|", "{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}{{ 'a b c'.split(maxsplit=1) }}{{ 'x</think>y</think>z'.split('</think>')[-1] }}{{ ''.split() }}{{ ''.split(',') }}", "{{ s.startswith('He') }}{{ s.endswith('ld') }}{{ s.startswith(('x', 'H')) }}{{ s.endswith('') }}{{ s.startswith('e', 1) }}", "{{ s.replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ s.upper() }}{{ s.lower() }}{{ 'a b'.title() }}{{ \"it's\".title() }}", "{{ ', '.join(['a', 'b']) }}{{ '-'.join('abc') }}{{ ','.join(d) }}{{ ', '.join(ws|sort) }}",
    "{{ d.get('a') }}{{ d.get('z') }}{{ d.get('z', 5) }}{{ d.get('z', default=5) if false }}", "{{ d.keys()|list }}{{ d.values()|list }}{{ d.items()|list|length }}{{ 'a' in d.keys() }}", "{{ '{} and {}'.format(1, 'x') }}{{ '{0}{1}{0}'.format('a', 2) }}{{ '{a}{{}}'.format(a=3) }}", "{{ 'x'.join([]) }}|{{ 'é你'.split('é') }}{{ 'ab'.split('') if false }}", "{{ s.strip().lower().split(',')[0]|length }}", "{{ [1].append(2) }}", "{{ {}.update({}) }}", "{{ xs.pop() }}", "{{ 'abc'.capitalize() }}{{ 'aBc'.swapcase() if false }}",
    # globals
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j') }}", "{{ raise_exception('no: ' ~ s) }}", "a\n{% if yes %}\n{{ raise_exception('line 3') }}{% endif %}", "{% set ns = namespace(a=1) %}{{ ns.a == 1 }}", "{{ messages|length }}{{ tools }}",
    # slices of constants, which Jinja computes when it compiles: undefined where Python fails
    "{{ 5[1:] }}|{{ none[0:2] }}|{{ true[1:] }}|{{ 1.5[:1] }}|{{ {}[1:] }}|{{ {'a': 1}[:2] }}|{{ 'abc'['x':] }}|{{ 'abc'[:1.5] }}|{{ [1][::none] }}|{{ (1, 2)[true:] }}|{{ 'abc'[2] }}{{ 5[0] }}{{ none['a':] }}",
    "{{ 5[1:]|default('d') }}{{ (5)[1:] is defined }}{{ 1[1:] ~ 'x' }}{{ [5[1:]]|length }}{{ 5[1:] or 'y' }}{{ not 5[1:] }}{{ 'a' if 5[1:] else 'b' }}{{ 5[1:] == none[1:] }}{{ [none[1:], 1] }}",
    "{% set y = 5[1:]|default('d') %}{{ y }}{% set z = [5[1:] is defined, 1] %}{{ z }}{% if 5[1:] is defined %}a{% else %}b{% endif %}{% for q in [5[1:]|d(7)] %}{{ q }}{% endfor %}{{ [5[1:] ~ 'x']|map('upper')|list }}",
    "{{ nope[0:2] }}", "{{ nope[1:]|default('d') }}", "{% set y = 5 %}{{ y[1:] }}", "{{ nil[1:] }}", "{% set y = {} %}{{ y[1:] is defined }}", "{{ f[1:]|default('d') }}", "{{ 5[nope:] }}", "{{ 5[xs:] }}", "{{ 'abc'[nope:] }}", "{{ 'abc'[::0] }}", "{{ 5[1:][2] }}", "{{ 5[1:].a }}", "{{ 5[1:][0:1] }}", "{{ -5[1:] }}", "{{ 5[1:] + 1 }}", "{{ 'a' in 5[1:] }}",
    "{% if 5[1:] %}a{% endif %}", "{% for q in 5[1:] %}x{% endfor %}", "{% set y = 5[1:] %}{{ y }}", "{% set y = [5[1:]] %}{{ y }}", "{{ [5[1:], s] }}", "{{ s ~ 5[1:] }}", "{{ 5[1:]|map('upper')|list }}", "{{ 5[1:]|list }}", "{{ 5[1:]|join }}", "{{ 5[1:]|tojson }}", "{{ 5[1:]|upper }}", "{{ strftime_now(5[1:]) }}", "{{ s if 5[1:] is defined else u }}", "{{ {5[1:]: 1} }}", "{{ {1: 5[1:]} }}",
    "{% macro m() %}{% endmacro %}{{ m[1:] }}", "{{ namespace(a=1)[1:] }}", "{{ loop[1:] }}",
    # else of a loop, macros that are called with a body, arguments with * and **
    "{% for x in [] %}a{% else %}none{% endfor %}{% for x in xs %}{{ x }}{% else %}none{% endfor %}{% for x in nope %}a{% else %}{{ x is defined }}{% endfor %}",
    "{% for x in xs if x > 9 %}a{% else %}none{% endfor %}{% for x in xs %}{% break %}{% else %}cut{% endfor %}{% for x in xs %}{% continue %}{% else %}went on{% endfor %}",
    "{% for x in xs %}{% if loop.index > 1 %}{% continue %}{% endif %}{% else %}no{% endfor %}.{% for x in [1] %}{% for y in [] %}{% else %}{{ loop.index }}{% set q = 1 %}{% endfor %}{{ q is defined }}{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}|{% for x in [1, 2] %}{% for y in [] %}{% else %}{% continue %}{% endfor %}{{ x }}{% endfor %}",
    "{% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(1) %}body {{ s }}{% endcall %}", "{% macro m() %}{% for x in xs %}{{ caller(x, k=1) }}{% endfor %}{% endmacro %}{% call(x, k=0, z='z') m() %}{{ x }}{{ k }}{{ z }} {% endcall %}",
    "{% macro m() %}{{ caller }}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}", "{% call 5 %}{% endcall %}", "{% macro m() %}{{ caller.name }}|{{ m.name }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m(caller) %}{{ caller }}{% endmacro %}", "{% macro m(caller=5) %}{{ caller }}{% endmacro %}{{ m() }}{{ m(6) }}", "{% macro m(caller=5) %}{{ caller() }}{% endmacro %}{% call m() %}b{% endcall %}", "{% macro m() %}{% set caller = 1 %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m(caller=5) }}",
    "{% macro inner() %}[{{ caller() }}]{% endmacro %}{% macro outer() %}{% call inner() %}in {{ caller() }}{% endcall %}{% endmacro %}{% call outer() %}out{% endcall %}", "{% set caller = 'c' %}{{ caller }}{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% for x in [1, 2] %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ x }}{{ loop.index if loop is defined }}{% set x = 9 %}{% endcall %}{{ x }}{% endfor %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% for x in xs %}{% break %}{% endfor %}a{% endcall %}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3) }}{{ m(1, z=2) }}{{ m(*xs, **d) }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1]) }}{{ m(*[1, 5]) }}{{ m(1, **{'b': 7}) }}{{ m(**{'a': 8, 'b': 9}) }}{{ m(*'xy') }}{{ m(*nope) }}",
    "{{ range(*[1, 9, 3])|list }}{{ '{}-{}'.format(*xs) }}{{ '{a}'.format(**d) if false }}{{ '{k}{v}'.format(**ds[0]) }}{{ s.replace(*['l', 'L']) }}{{ xs|join(*[',']) }}{{ xs|sort(**{'reverse': true}) }}{{ namespace(**d).a }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*5) }}", "{% macro m(a) %}{% endmacro %}{{ m(**5) }}", "{% macro m(a) %}{% endmacro %}{{ m(**nope) }}", "{% macro m(a) %}{% endmacro %}{{ m(a=1, **{'a': 2}) }}", "{% macro m(a) %}{% endmacro %}{{ m(**{1: 2}) }}", "{{ range(*xs, 1) }}", "{{ range(**d, *xs) }}", "{{ range(**d, a=1) }}", "{{ range(a=1, 2) }}", "{{ range(*xs, *xs) }}", "{{ range(*[1], **{}) | list }}", "{{ 3 is divisibleby(*[3]) }}",
    # the other tests and filters
    "{{ 1 is eq 1 }}{{ 1 is eq('1') }}{{ 1 is ne 2 }}{{ 2 is gt 1 }}{{ 2 is ge 2 }}{{ 1 is lt 1 }}{{ 1 is le 1 }}{{ 2 is greaterthan 1 }}{{ 1 is lessthan(2) }}{{ 'a' is in 'abc' }}{{ 1 is in xs }}{{ 'a' is in d }}{{ 9 is not in xs }}{{ 'b' is in ['a', 'b'] }}",
    "{{ xs|select('==', 2)|list }}{{ xs|select('!=', 2)|list }}{{ xs|select('>', 1)|list }}{{ xs|select('>=', 2)|list }}{{ xs|reject('<', 2)|list }}{{ xs|select('<=', 2)|list }}{{ ws|select('in', ['a', 'b'])|list }}{{ ds|selectattr('v', 'gt', 1)|map(attribute='v')|list }}{{ talk|rejectattr('role', 'in', ['system', 'user'])|map(attribute='role')|join }}",
    "{{ 3 is odd }}{{ 4 is even }}{{ 4.0 is even }}{{ true is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 1 is integer }}{{ 1.0 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ 1 is float }}{{ 'ab' is lower }}{{ 'aB' is lower }}{{ '1' is lower }}{{ 'AB' is upper }}{{ 'ß' is lower }}{{ 5 is upper }}{{ none is upper }}",
    "{{ range is callable }}{{ s is callable }}{{ s.upper is callable }}{{ nil is sameas none }}{{ yes is sameas true }}{{ yes is sameas false }}{{ 1 is sameas true }}{{ xs is sameas xs }}{{ [] is sameas [] }}{{ nope is sameas none }}", "{{ 'a' is odd }}", "{{ 1 is in 2 }}", "{{ 1 is divisibleby 0 }}", "{{ 1 is gt 'a' }}", "{{ 1 is eq }}", "{{ 'x' is lower 5 }}",
    "{{ '2.5'|float }}{{ 'x'|float }}{{ 'x'|float(1) }}{{ 3|float }}{{ yes|float }}{{ nil|float }}{{ xs|float('d') }}{{ '1e3'|float }}{{ ' 7 '|float }}{{ 'inf'|float }}{{ 18446744073709551615.0|float }}", "{{ nope|float }}", "{{ -3|abs }}{{ (-3)|abs }}{{ (-2.5)|abs }}{{ yes|abs }}", "{{ 'a'|abs }}", "{{ nope|abs }}",
    "{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 42.55|round(1, 'floor') }}{{ 42.55|round(1, 'ceil') }}{{ 5|round }}{{ 15|round(-1) }}{{ 25|round(-1) }}{{ 25.1|round(-1) }}{{ 1234.5|round(-2) }}{{ 1e20|round(-19) }}{{ 55.0|round(-2) }}{{ 50.0|round(-2) }}{{ 0.5|round }}{{ 1.5|round|int }}{{ (-2.5)|round }}{{ 0.1|round(20) }}{{ 1234.5|round(-2, 'ceil') }}{{ 7|round(method='floor') }}{{ -7.1|round(0, 'ceil') }}{{ yes|round }}{{ 4.9e-324|round(323) }}{{ 99.99|round(1) }}{{ 0.05|round(1) }}{{ 0.25|round(1) }}",
    "{{ 's'|round }}", "{{ 1|round(1.5) }}", "{{ 1|round(0, 'up') }}", "{{ nil|round }}", "{{ xs|sum }}{{ xs|sum(start=10) }}{{ ds|sum(attribute='v') }}{{ []|sum }}{{ [0.1, 0.2]|sum }}{{ [[1], [2]]|sum(start=[]) }}{{ ds|sum('v', 1) }}", "{{ ws|sum }}", "{{ ['a']|sum(start='') }}", "{{ ds|sum(attribute='nope') }}",
    "{{ range(5)|batch(2)|list }}{{ range(5)|batch(2, 'x')|list }}{{ []|batch(2)|list }}{{ xs|batch(0)|list }}{{ xs|batch(9, none)|list }}{{ 'abc'|batch(2)|list }}", "{{ range(7)|slice(3)|list }}{{ range(7)|slice(3, 'x')|list }}{{ range(2)|slice(4)|list }}{{ range(2)|slice(-1)|list }}{{ range(6)|slice(3, 'x')|list }}", "{{ xs|slice(0)|list }}",
    "{{ ds|groupby('k') }}{% for g in ds|groupby('k') %}{{ g.grouper }}={{ g.list|length }}{{ g[0] }}{{ g|length }} {% endfor %}{% for k, items in ds|groupby('v') %}{{ k }}{{ items }}{% endfor %}", "{{ ds|groupby('k', case_sensitive=true)|map('first')|list }}{{ ds|groupby('nope', default='d') }}{{ talk|groupby('role')|map(attribute='grouper')|list }}{{ (ds|groupby('k'))[0]['list'] }}{{ [['b', 1], ['a', 2]]|groupby(0) }}", "{{ ds|groupby('nope') }}", "{{ xs|groupby }}",
    "{{ 'foo bar baz qux'|truncate(9) }}|{{ 'foo bar baz qux'|truncate(9, true) }}|{{ 'foo bar baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}|{{ u|truncate(8, true, '…', 0) }}|{{ 'abcdefghij'|truncate(4, leeway=0) }}|{{ s|truncate }}", "{{ 'abcdefghi'|truncate(2) }}", "{{ 5|truncate }}", "{{ 'ab'|center(5) }}|{{ 'abc'|center(6) }}|{{ 'abc'|center(7) }}|{{ 5|center(4) }}|{{ 'abc'|center(1) }}|{{ u|center(20) }}|{{ 'a'|center|length }}",
    "{{ d|attr('a') is defined }}{{ (d|attr('items'))() }}{{ (s|attr('upper'))() }}{{ s|attr('nope') is defined }}{{ namespace(q=4)|attr('q') }}", "{{ nope|attr('x') }}", "{{ xs|map('round', 1)|list }}{{ ['1', 'x']|map('float')|list }}{{ [-1, 2]|map('abs')|sum }}",
    # errors as the reference has them
    "{{ nope.x }}", "{{ d.x.y }}", "{{ nope + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' + none }}", "{{ none.x.y }}", "{{ xs[9].x }}", "\n{{ nope() }}", "{{ s.nope() }}", "{{ 5() }}", "{{ none|length }}", "{{ 1 in 2 }}", "{{ 1 in 'abc' }}", "{{ 'a' < 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{% for x in 5 %}{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% set a, b = [1] %}", "{% set nope.x = 1 %}", "{% set d.x = 1 %}", "{{ nil + 'x' }}", "{{ ', '.join([1]) }}", "{{ 's'.upper(1) }}", "{% macro m(a) %}\n{{ a.b.c }}{% endmacro %}\n{{ m({}) }}", "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m() %}{% endmacro %}{{ m(a=1) }}",
    "{{ [1]['a'].x }}", "{{ 'x'|nope }}", "{{ 'x' is nope }}", "{% nope %}", "{% if %}", "{% if yes %}", "{{ 'x }}", "{{ (1 }}", "{% endfor %}", "{{ ", "{% for x in xs %}", "{# open", "a\n\n{% for %}",
]


def main():
    rows = []
    for source in PROBES:
        result = oracle.render(source, **VARIABLES)
        row = [source, result["text"]] if "text" in result else [source, None, result["line"], result["error"]]
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    Path(__file__).with_name("probes.json").write_text(
        '{"variables":' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"cases":[\n' + ",\n".join(rows) + "\n]}\n")
    print(len(rows))


main()
