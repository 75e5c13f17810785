"""Small templates, one or two points of the language each; make_template_goldens.py runs them in jinja2."""

CONTEXT = {
    "name": "wörld", "n": 7, "x": 2.5, "yes": True, "no": False, "nothing": None, "empty": "", "items": [3, 1, 2],
    "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "items": 3}, "nested": {"list": [{"k": "v", "n": 1}, {"k": "w", "n": 0}]},
    "text": "  one two  three\n", "html": "<a href=\"x\">&'</a>", "uni": "straße ŒUVRE Σας ΣΑΣ ǆ 👋🏽 e\u0301",
    "users": [{"name": "Ann", "age": 30, "city": "Rome"}, {"name": "bob", "age": 25, "city": "oslo"}, {"name": "Cy", "age": 30, "city": "Oslo"}],
    "odd": {"quote": "it's", "both": "'\"", "tab": "\t\\", "nul": "\u0000\u007f\u00ad\u200b", "f": 1e16, "g": 1e-5, "h": 0.1, "i": 100000.0, "big": 123456789012, "unsigned": 18446744073709551615, "neg": -0.0},
    "long": "abc" * 5, "lines": "a\r\nb\x0bc\u2028d\n\ne", "mixed": [1, "1", 1.0, True, None, [], {}],
}

EXPRESSIONS = """
'a' ~ 1 ~ none ~ true ~ 2.0
name
name|upper
uni|upper
uni|lower
uni|title
uni|capitalize
uni.title()
uni.swapcase()
"hello wOrld-foo (bar)"|title
"hello wOrld-foo (bar) it's".title()
name|length
uni|length
uni[0:3]
uni[::-1]
uni[-1]
uni[-3:]
uni[100:]
uni[3]
long[1:10:2]
long[10:1:-3]
long[-4:-1]
items[::-1]
items[1:]
items[:-1]
items[5]
items[-1]
items[-4]
items.0
d.a
d['b']
d.items
d['items']
d.items()|list
d.items()
d.keys()
d.values()|list
d.keys()|list
d.get('zz')
d.get('zz', 5)
d.get('a')
d.zz
d.zz.y
nothing.y
nothing['y']
nope
nope.x
nope['x']
nope ~ 'x'
nope + 'x'
nope|length
nope|default('dd')
nope|d('dd')
empty|default('dd')
empty|default('dd', true)
nothing|default('dd')
nothing|default('dd', boolean=true)
1 + 2 * 3
(1 + 2) * 3
7 / 2
6 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2.0 ** 0.5
-2 ** 2
1 / 0
1 % 0
n - 3 * x
1e3
1.5e-7
1_000
0.1 + 0.2
1e22
123456789.123
5 // 0.3
'ab' * 3
3 * 'ab'
[1] * 3
[1] + [2]
(1,) + (2,)
'a' + 1
'a' + 'b'
[1, 'a', none, true, 2.0, {'k': (1,)}]
(1, 2)
(1,)
()
{}
{'a': 1, 'b': [1, 2]}
odd
odd.quote
odd|tojson
mixed
mixed|tojson
mixed|string
x|string
'%s and %d and %5.2f|%-5s|%05d|%x' % ('a', 3, 2.5, 'b', 42, 255)
'%s' % name
'%s' % d
'%(a)s-%(b)s' % d
'%%' % ()
'%s %s' % ('a',)
'%s'|format(1)
'{} {}'.format(1, 'b')
'{0}-{1}-{0}'.format('a', 'b')
'{x}|{y:>5}|{y:<5}|{y:^5}|{n:03d}|{f:.2f}|{c:,}'.format(x=1, y='b', n=7, f=2.345, c=1234567)
'{d[a]} {{}}'.format(d=d)
true and false
true or nope.x
false and nope.x
not true
not nope
1 and 'a'
0 or 'b'
none or []
1 < 2 < 3
1 < 2 > 3
1 == 1.0
true == 1
'a' == 'a'
'a' != 'b'
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
'a' < 'b'
[1, 2] < [1, 3]
'a' < 1
none == nope
nope == nope2
1 in items
9 in items
9 not in items
'or' in 'world'
'b' in d
1 in d
1 in 'a'
'a' in nope
'a' in nothing
'x' if yes else 'y'
'x' if no else 'y'
'x' if no
('x' if no) ~ '!'
'a' if no else 'b' if no else 'c'
text|trim
text.strip()
text.lstrip() ~ '|'
text.rstrip() ~ '|'
'xxaxx'.strip('x')
'xyaxy'|trim('xy')
text.split()
text.split(' ')
text.rsplit(none, 1)
text.split(none, 1)
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.split(',')[-1]
'abc'.split('')
''.split()
''.split(',')
'a--b--c'.partition('--')
'a--b--c'.rpartition('--')
'abc'.partition('x')
lines.splitlines()
lines.splitlines(true)
'abc'.startswith('ab')
'abc'.startswith(('x', 'ab'))
'abc'.endswith('bc')
'abc'.startswith('b', 1)
'abcabc'.find('c')
'abcabc'.rfind('c')
'abc'.find('x')
'äbc'.find('c')
'abc'.index('x')
'abcabc'.count('bc')
'aaa'.count('')
'a-b'.replace('-', '+')
'aaa'.replace('a', 'b', 2)
'abc'.replace('', '-')
'aaa'|replace('a', 'b', 1)
123|replace(1, 'x')
','.join(words)
','.join(items)
words|join(', ')
items|join
users|join(', ', attribute='name')
'abc'|join('-')
'abc'.upper()
'ABC'.lower()
'abc def'.capitalize()
'ab'.ljust(5, '.') ~ '|'
'ab'.rjust(5)
'ab'.center(5, '*')
'-42'.zfill(6)
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'12'.isdigit()
'½'.isdigit()
'½'.isnumeric()
'ab'.isalpha()
'a1'.isalnum()
'  '.isspace()
'abc'.islower()
'ABC'.isupper()
'é'.isascii()
''.isdigit()
'abc'.nope
'abc'.nope()
words|sort
words|sort(case_sensitive=true)
items|sort(reverse=true)
users|sort(attribute='age,name')|map(attribute='name')|list
users|sort(attribute='name')|map(attribute='name')|join(',')
mixed|sort
words|unique|list
users|unique(attribute='age')|map(attribute='name')|list
items|min
items|max
words|min
words|max(case_sensitive=true)
[]|min
users|max(attribute='age')
items|sum
users|sum(attribute='age')
[]|sum
[1.5, 2]|sum(start=1)
items|first
items|last
[]|first
[]|last
'abc'|first
'abc'|last
items|reverse|list
'abc'|reverse
items|list
'abc'|list
d|list
range(5)|list
range(2, 10, 3)|list
range(5, 0, -2)|list
range(3)
range(3)|length
range(5)[-1]
range(200000)
d|dictsort
d|dictsort(by='value')
d|dictsort(reverse=true)
d|items|list
nope|items|list
items|items|list
users|groupby('age')|map('first')|list
users|groupby('city')|map(attribute='grouper')|list
users|groupby('city')|map(attribute='list')|map('length')|list
users|selectattr('age', 'gt', 26)|map(attribute='name')|list
users|selectattr('nope')|list
users|rejectattr('age', 'equalto', 30)|map(attribute='name')|list
users|selectattr('name', 'in', ['Ann', 'Cy'])|list|length
items|select('odd')|list
items|reject('odd')|list
items|select|list
mixed|select('string')|list
items|map('string')|list
words|map('upper')|join
items|map('float')|list
users|map(attribute='nope', default='-')|list
users|map(attribute='nope')|list
items|map
users|map(attribute='name')|first
items|batch(2)|list
items|batch(2, 'x')|list
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent('> ', blank=true)
42.55|round
42.55|round(1)
42.55|round(1, 'floor')
42.51|round(1, 'ceil')
2.5|round
3.5|round|int
5|round
2.675|round(2)
-3|abs
-3.5|abs
'12'|int
'12.7'|int
'abc'|int
'abc'|int(5)
'0x1f'|int(base=16)
'  7_0 '|int
3.9|int
true|int
nothing|int
'1.5'|float
'abc'|float
'abc'|float(2.5)
7|float
'1e3'|float
html|escape
html|e
html|safe
html|safe|length
html|escape|upper
d|tojson
d|tojson(indent=2)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
nested|tojson(indent=4)
nested|tojson(indent='-')
uni|tojson
uni|tojson(ensure_ascii=true)
html|tojson
odd.nul|tojson
odd.nul|tojson(ensure_ascii=true)
[]|tojson(indent=2)
{}|tojson(indent=2)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
(1, 2)|tojson
nope|tojson
x|tojson
1e100|tojson
text|string|length
items|count
5|length
nothing|length
yes is boolean
yes is true
1 is true
no is false
n is number
yes is number
n is integer
yes is integer
x is float
x is number
name is string
d is mapping
d is sequence
items is sequence
items is iterable
name is iterable
n is iterable
nope is iterable
nope is sequence
nothing is none
nope is none
nope is defined
n is defined
nope is undefined
d.zz is defined
d.a is defined
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
name is lower
'ABC' is upper
n is eq 7
n is equalto(7)
n is ne 7
n is gt 5
n is lt 5
n is ge 7
n is le 6
n is in [7, 8]
'a' is in 'abc'
range is callable
name is callable
name.upper is callable
nothing is sameas none
n is not none
not n is none
n is not defined
x is nosuchtest
x|nosuchfilter
nosuchfunction()
n()
items.append(4)
d.update({})
d.pop('a')
items.index(1)
items.count(1)
items.index(9)
d.copy()
dict(a=1, b=2)
dict([('a', 1)])
dict(d, c=3)
namespace(a=1).a
namespace(a=1).b
namespace(a=1)
raise_exception('stop "here"')
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %B %-d')
strftime_now is defined
name.__class__
d|attr('a')
'a' 'b' "c"
"\\n\\t\\x41\\u00e9\\U0001F600\\101\\q"
'it\\'s'
"tab\there"
items[nope]
items['a']
items[1:nope]
nothing[1:]
name|trim|upper|replace('Ö', 'o')
users[0].name ~ users[1]['age']
nested.list[0].k
nested['list'][1]['n'] is odd
-n|abs
(-n)|abs
- 3 + 5
+n
not (1 == 2)
1 if 0 else 2 + 3
[1, 2, 3,]
{'a': 1,}
(1, 2, )[1]
items|length > 2 and name
"%.3s" % 'abcdef'
'%r' % 'a'
'%i' % 3.7
'%e' % 12345.678
'%g' % 0.0001
'%s' % none
'%d' % 'a'
name|default|upper
none|string
[none, true]|join(',')
{'b': {'c': [1, {'d': none}]}}
'a' in {'a': 1}
(1, 'a') in [(1, 'a')]
(yes, no)|first
loop
nothing|upper
nothing|trim
5|upper
items|title
d|length
(d|dictsort)[0][1]
((1, 2), (3, 4))|map('last')|list
'{:>8.3f}|{:+d}|{:x}|{:%}'.format(3.14159, 5, 255, 0.25)
'abc' is filter
'upper' is filter
9223372036854775807
x // 0
x % 0
1.0
100.0 * 3
1e15
1e16
12345678901234567.0
-1.5e-10
15511210043330985984000000
-15511210043330985984000000
15511210043330985984000000|tojson
[15511210043330985984000000, {'k': -99999999999999999999}]
{18446744073709551616: 1}|tojson
9223372036854775807 + 1
-9223372036854775808 - 1
-9223372036854775808
9223372036854775808 - 1
9223372036854775807 * 9223372036854775807
4294967296 * 4294967296 - 18446744073709551616
-15511210043330985984000000 * 99999999999999999999
15511210043330985984000000 - 15511210043330985983999999
1000000000000000000000 - 999999999999999999999999
1000000000000000000000000000 + 1 - 1000000000000000000000000000
2 ** 64
3 ** 100
(-2) ** 63
(-2) ** 127
2 ** 200 * 2 ** -1
10 ** 30 + 0.5
-9223372036854775808 // -1
99999999999999999999 == 99999999999999999999
99999999999999999999 < 100000000000000000000
-99999999999999999999 < 5
99999999999999999999 > 1e19
9007199254740993 == 9007199254740992.0
9007199254740993 > 9007199254740992.0
9223372036854775807 < 9223372036854775808.0
18446744073709551616 == 18446744073709551616.0
99999999999999999999 == 1e20
99999999999999999999 < odd.f * 1e300 * 1e300
99999999999999999999 in [1, 99999999999999999999]
{99999999999999999999: 'x'}[99999999999999999999]
items[99999999999999999999]
99999999999999999999 is integer
99999999999999999999 is number
99999999999999999999 is odd
99999999999999999998 is even
99999999999999999999|abs
(-99999999999999999999)|abs
(-9223372036854775807 - 1)|abs
99999999999999999999|int
'99999999999999999999'|int
'-99999999999999999999'|int
'99_999_999_999_999_999_999'|int
1e30|int
'1e30'|int
99999999999999999999|float
99999999999999999999|round
99999999999999999999|string|length
99999999999999999999 ~ ''
99999999999999999999 * 1.5
'%d|%s|%25d|%+d' % (99999999999999999999, 99999999999999999999, 99999999999999999999, 99999999999999999999)
'%d' % 1e20
'%.2f' % 99999999999999999999
'{}|{:d}|{:,}|{:>25}'.format(99999999999999999999, 99999999999999999999, 99999999999999999999, 99999999999999999999)
[99999999999999999999, 1, 100000000000000000000]|sort
[99999999999999999999, 1]|sum
[99999999999999999999, 1]|max
99999999999999999999 and 'yes'
not 99999999999999999999
+99999999999999999999
odd.unsigned
odd.unsigned|tojson
odd.unsigned + 1
'<b>'|safe + '<i>'
'<i>' + '<b>'|safe
'<b>'|safe + '<i>'|safe
'"' + html|safe + '"'
html|safe + 1
1 + html|safe
html|safe + none
'{"a": ' + (d|tojson|safe) + '}'
'<b>'|safe * 2
2 * ('<b>'|safe) + '<'
'<b>%s</b>'|safe % '<i>'
'<b>%s %d %s</b>'|safe % ('<i>', 3, '<u>'|safe)
'<b>%(a)s</b>'|safe % {'a': '<'}
'%s' % ('<b>'|safe)
'<b>%s</b>'|safe|format('<')
'%s'|format('<b>'|safe)
'<b>'|safe ~ '<i>'
('<b>'|safe ~ '<i>') + '<u>'
'<b>'|safe == '<b>'
'<'|safe < '<a'
'b' in '<b>'|safe
('<b>'|safe)[0] + '<'
('<b>'|safe)[1:] + '<'
('<b>'|safe)[::-1] + '<'
'<b>'|safe|upper + '<'
'<b>'|safe|trim + '<'
'<b>'|safe|replace('b', 'i') + '<'
'<b>'|safe|title + '<'
'<b>'|safe|capitalize + '<'
'<b>'|safe|reverse + '<'
'<b>'|safe|first + '<'
'<b>'|safe|last + '<'
'<b>'|safe|center(9) + '<'
'<b>\n<i>'|safe|indent + '<'
'<b>'|safe|string + '<'
'<b>'|safe|default('x') + '<'
nope|default('<'|safe) + '<'
['<b>'|safe, '<i>']|join('<') + '<'
'<b>'|safe|join('<')
['<b>'|safe]
{'a': '<b>'|safe}
['<b>'|safe, 1]|string
'<b>'|safe|tojson
'<b>'|safe|escape
'<'|escape + '<'
'<'|e ~ '<'
('<'|e)|safe + '&'
'<b>'|safe is escaped
('<b>'|safe + 'x') is escaped
('<b>'|safe ~ 'x') is escaped
'<b>'|safe|length
'<b>'|safe - 1
-('<b>'|safe)
'<b>'|safe + x|string
long|truncate(9)
long|truncate(10)
long|truncate(5, true)
'a bc def ghij'|truncate(9)
'a bc def ghij'|truncate(9, leeway=0)
'a bc def ghij'|truncate(9, true, '', 0)
'a bc def ghij'|truncate(9, true, '>>', 0)
'a bc def ghij'|truncate(2)
'abcdefghijkl'|truncate(6, leeway=0)
uni|truncate(10, false, '…', 0)
'a bc def ghij klmno'|safe|truncate(9, end='<', leeway=0)
items|truncate
5|truncate
'x'|truncate(9, leeway=-1)
'one, two_three  4 é-ñ'|wordcount
''|wordcount
uni|wordcount
123|wordcount
'ab'|center(7)
'ab'|center(6) ~ '|'
'abc'|center(6) ~ '|'
'abc'|center(2)
'ab'|center|length
items|center(20)
'a b/c?d=é&~'|urlencode
{'a b': 'c/d', 'é': 1, 'n': none}|urlencode
[('a', 'x y'), ('b', '&')]|urlencode
[1, 2]|urlencode
5|urlencode
'👋🏽'|urlencode
[1, 2, 3, 4, 5, 6, 7]|slice(3)|list
[1, 2, 3, 4, 5, 6, 7]|slice(3, 'x')|list
[1, 2]|slice(4)|list
[1, 2]|slice(4, 0)|list
[]|slice(2, 'x')|list
'abcde'|slice(2)|list
[1, 2]|slice(0)|list
[1, 2]|slice(-1)|list
[1, 2]|slice(2)
d|pprint
nested|pprint
users|pprint
mixed|pprint
'a'|pprint
uni|pprint
text|pprint
odd|pprint
(1,)|pprint
('x' * 90)|pprint
('word ' * 40)|pprint
('line one is long\n' * 8)|pprint
{'k': 'word ' * 40, 'a': {'b': ['x' * 30, 'y' * 30, 'z' * 30], 'c': (1, 2)}}|pprint
[['word ' * 10, 'word ' * 20], ('a' * 80,), {}]|pprint
{'tuple': ('x' * 50, 'y' * 50), 'one': ('z' * 100,), 'list': [[['deep ' * 20]]]}|pprint
{2: 'b' * 50, 1: 'a' * 50, 'x': [1, 2]}|pprint
[users, users]|pprint
none|pprint
x|pprint
nope|pprint
1234|round(-1)
1235|round(-1)
1245|round(-1)
1250|round(-2)
1350|round(-2)
-1250|round(-2)
5|round(-1)
15|round(-1)
4|round(-1)
99|round(-2)
49|round(-2)
50|round(-2)
1|round(-5)
1234.5|round(-1)
1235.0|round(-1)
1245.0|round(-1)
1245.0000001|round(-1)
-15.0|round(-1)
4.9|round(-1)
-4.9|round(-1)
1e20|round(-3)
15511210043330985984000000|round(-20)
15511210043330985984000000|round(-30)
1234|round(-2, 'ceil')
1234|round(-2, 'floor')
1234.5|round(-1, 'floor')
true|round(-1)
"""

STATEMENTS = [
    "{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ i }};{% endfor %}",
    "{% for i in items %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{% endfor %}",
    "{% for i in items %}{{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{{ loop.depth }}{% endfor %}",
    "{% for i in items if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for i in items if i > 5 %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in nope %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in nothing %}{{ i }}{% endfor %}",
    "{% for i in n %}{{ i }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in name %}[{{ c }}]{% endfor %}",
    "{% for a, b in items %}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in items %}{% for j in items %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in items %}{% set outer = loop %}{% for j in items %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for i in items %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, l=[]) %}{% for i in items %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}",
    "{% set ns = namespace() %}{% set ns.y = 1 %}{{ ns.y }}{{ ns.z }}{{ ns.z is defined }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set d.x = 1 %}", "{% set nope.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = items %}", "{% set a = 1, %}{{ a }}", "{% set a = 1, 2 %}{{ a }}",
    "{% set t %}  x {{ n }} {% endset %}[{{ t }}]", "{% set t | trim | upper %}  x {{ name }} {% endset %}[{{ t }}]",
    "{% set t %}{% set inner = 1 %}{% endset %}{{ inner is defined }}",
    "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if nope %}a{% endif %}b",
    "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}", "{% if no %}{% set q = 1 %}{% endif %}{{ q is defined }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c=5) }}|{{ f(b=1, a=0) }}|{{ f() }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a) %}<{{ a }}:{{ caller() }}>{% endmacro %}{% call f(1) %}in {{ n }}{% endcall %}",
    "{% macro f() %}{{ caller('x', y=2) }}{% endmacro %}{% call(a, y) f() %}{{ a }}{{ y }}{% endcall %}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro f(k) %}{{ f(k) }}{% endmacro %}{{ f(4) }}",
    "{% macro f() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ f() }}",
    "{% macro f() %}{% set hidden = 1 %}{% endmacro %}{{ f() }}{{ hidden is defined }}",
    "{% for i in items %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% macro f() %} a {% endmacro %}[{{ f()|trim }}]{{ f() is string }}{{ f is callable }}",
    "{% filter upper %}abc {{ name }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}banana{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% generation %}gen {{ n }}{% endgeneration %} after", "{% generation %}{% set z = 1 %}{% endgeneration %}{{ z is defined }}",
    "{% raw %}{{ not }} {% this %}{% endraw %}", "{%- raw -%}  a  {%- endraw -%}  b", "  {% raw %}\n x\n {% endraw %}\n y",
    "{# comment #}a{#- b -#} c {# d #}\ne", "a\n  {# comment #}\nb", "a {#- c #} b", "{# unclosed",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}\n    b\n  {% endif %}\nc\n\n", "a {%- if yes -%} b {%- endif -%} c",
    "a\n  {%+ if yes %}x{% endif %}", "a {% if yes +%}\nx{% endif %}", "  {{ n }}\n  {{ n }}\n", "{{- n }}  {{ n -}}  x", "x  \n {{- n -}} \n y",
    "{% if yes %}\n\n{% endif %}x", "\n\n{{ n }}\n\n", "a\r\nb\rc\n", "{{ 'a\nb' }}", "{{ \"a\r\nb\" }}", "\u00a0 {%- if yes %}x{% endif -%} \u2003y",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {} }}", "{{ '}}' }}{{ '%}' }}{{ \"{{\" }}", "{{ [1,2][0] }}{{ (1,2)[1] }}", "{{ 1, 2 }}",
    "{{ x.y.z }}", "{% set it = items|map('string') %}{{ it|join }}{{ it|join }}|", "{% if items|select('gt', 100) %}lazy is true{% endif %}",
    "{{ items|map('string')|length }}", "{{ (items|map('string'))[0] }}", "{{ items|select('odd')|first }}", "{{ users|map(attribute='name') is iterable }}",
    "{{ }}", "{{ 1 + }}", "{% if %}x{% endif %}", "{% if yes %}x", "{% endif %}", "{% for x %}{% endfor %}", "{% nope %}", "{{ 'abc }}", "{{ (1 }}", "{{ 1) }}", "{{ a b }}",
    "{% set 1 = 2 %}", "{% break %}", "{{ foo(a=1, 2) }}", "{{ x is defined is none }}", "{{ 5 5 }}", "{{ a.b. }}", "{{ @ }}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(**d, **d) }}",
    "{{ dict(**d).a }}{{ '{}{}'.format(*[1, 2]) }}", "{% set f = name.upper %}{{ f() }}", "{{ name.upper()[0:2] }}{{ name . upper ( ) }}",
    "{%- for m in users %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor -%}", "{% for x in [1,2]%}{{x}}{%endfor%}", "{%if yes%}a{%else%}b{%endif%}",
    "{% for i in items %}{{ i }}{% if loop.index == 2 %}{% break %}{% endif %}{% else %}never{% endfor %}",
    "{% for x in range(3) %}{% set y = x %}{% endfor %}{{ y is defined }}", "{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}",
    "{% set loop_messages = users[1:] %}{% for u in loop_messages %}{{ u.name }}{% endfor %}{{ users[0] == users[0] }}{{ users.index(users[1]) }}",
    "{{ [1, 2, 3][nope] is defined }}{{ d[nope] is defined }}", "{% set x = {'k': [1, 2]} %}{{ x.k[1] }}{{ x['k'][-1] }}{{ x.get('k')[0] }}",
    "{{ '%s' % (1, 2) }}", "{{ '%s %s' % [1, 2] }}", "{{ 'no args' % () }}", "{{ 'x' % 5 }}", "{{ ('a', 'b')|join('+') }}{{ 'a,b'|replace(',', '\\n') }}",
    "{{ '\\u2028' }}", "{{ '\\x4' }}", "line\n{{ raise_exception('here') }}", "{% set big = 'x' * 3 %}{{ big }}",
    "{{ ' a  b '.split(' ') }}{{ 'a\\tb c'.split() }}{{ 'x'.split('x') }}", "{{ 'aXbX'.rsplit('X') }}{{ ' a b c '.rsplit(None, 1) }}", "{{ (' a b c ').split(None, 1) }}",
    "{% block a %}x{{ n }}{% endblock %}|{% block b %}{{ name }}{% endblock b %}", "{% block a %}{% endblock c %}", "{% block a %}{% endblock %}{% block a %}{% endblock %}",
    "{% set v = 1 %}{% block a %}{{ v }}{% set v = 2 %}{{ v }}{% endblock %}{{ v }}", "{% block a %}{% set w = 1 %}{% endblock %}{{ w is defined }}",
    "{% for i in items %}{% block a %}{{ i is defined }}{{ loop is defined }}{% endblock %}{% endfor %}", "{% for i in items %}{% block a scoped %}{{ i }}{{ loop.index }}{% endblock %}{% endfor %}",
    "{% if yes %}{% set v = 1 %}{% block a %}{{ v }}{% block b %}[{{ n }}]{% endblock %}{% endblock %}{% endif %}", "{% with q = 1 %}{% block a %}{{ q is defined }}{% endblock %}{% endwith %}",
    "{% for i in items %}{% block a scoped %}{% break %}{% endblock %}{% endfor %}", "{% macro f() %}m{% endmacro %}{% block a %}{{ f() }}{% endblock %}", "  {% block a %}\n x\n {% endblock %}\n y", "{% block %}{% endblock %}", "{% block a %}",
    "{% for i in [[1, [2, [3]]], [4]] recursive %}{{ loop.depth }}{{ loop.depth0 }}:{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{% endif %};{% endfor %}",
    "{% for i in [{'n': 'a', 'c': [{'n': 'b', 'c': []}, {'n': 'd'}]}] recursive %}<{{ i.n }}{% if i.c %}{{ loop(i.c) }}{% endif %}>{% endfor %}",
    "{% for i in [1, 2, 3] if i > 1 recursive %}{{ i }}{% if i == 2 %}[{{ loop([0, 5]) }}]{% endif %}{% else %}none{% endfor %}", "{% for i in [1] recursive %}{{ loop([]) }}{% else %}none{% endfor %}", "{% for i in [] recursive %}{% else %}none{% endfor %}",
    "{% set v = 1 %}{% for i in [1, [2]] recursive %}{{ v }}{% if i is iterable %}{% set v = 2 %}{{ v }}{{ loop(i) }}{{ v }}{% endif %}{% endfor %}", "{% for i in items %}{{ loop([1]) }}{% endfor %}", "{% for i in [1] recursive %}{{ loop() }}{% endfor %}",
    "{% for i in [[1]] recursive %}{% set l = loop %}{% if i is iterable %}{% for j in [7] %}{{ l(i) }}{% endfor %}{% else %}{{ i }}{{ loop.index }}/{{ loop.length }}{% endif %}{% endfor %}", "{% for i in [[1, 2]] recursive %}{{ (loop(i) if i is iterable else i)|string|upper }}{% endfor %}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{% for k, v in {'a': {'b': {}}}.items() recursive %}{{ k }}({{ loop(v.items()) }}){% endfor %}", "{% for i in items recursive %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endfor %}",
    "{% set s = 'a' %}{% set s = s ~ 'b' %}{{ s }}{% set s = s + 'c' %}{{ s }}", "{{ not nope }}{{ not none }}{{ not 0 }}{{ not '' }}{{ not [] }}{{ not {} }}{{ not 0.0 }}",
    "{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}", "{{ 'a'.join(['1', '2', '3']) }}{{ ''.join([]) }}", "{{ [[1, 2], [3]]|sum(start=[]) }}",
]

CASES = ["{{ " + line + " }}" for line in EXPRESSIONS.strip("\n").split("\n")] + STATEMENTS
