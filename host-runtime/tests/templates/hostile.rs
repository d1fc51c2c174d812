//! Templates that try to end the process: a table of everything that a template can call, with huge and odd
//! arguments; depth in every form; loops; growth; and mixtures of these from a fixed seed.

/// Values to call things on, and to call them with.
const VALUES: [&str; 8] = [
    "''",
    "'abc' * 90000",
    "('a ' * 90000)",
    "range(40000)",
    "messages",
    "deep",
    "wide",
    "{'a': wide, 'b': messages}",
];
/// Arguments: huge counts, widths and texts.
const ARGUMENTS: [&str; 7] = [
    "",
    "1000000000000",
    "9223372036854775807, wide",
    "-9223372036854775808",
    "'a', 'b' * 90000",
    "'', ('0.' * 900000)",
    "('%999999999d{:999999999}' * 999), 9999999999, 'a' * 999999",
];
const FILTERS: [&str; 45] = [
    "safe",
    "escape",
    "e",
    "lower",
    "upper",
    "title",
    "capitalize",
    "replace",
    "length",
    "count",
    "dictsort",
    "items",
    "reverse",
    "trim",
    "join",
    "split",
    "lines",
    "default",
    "d",
    "round",
    "abs",
    "int",
    "float",
    "attr",
    "first",
    "last",
    "min",
    "max",
    "sort",
    "list",
    "string",
    "bool",
    "batch",
    "slice",
    "sum",
    "indent",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
    "map",
    "groupby",
    "unique",
    "chain",
    "zip",
];
const MORE_FILTERS: [&str; 3] = ["pprint", "format", "tojson"];
const TESTS: [&str; 37] = [
    "undefined",
    "defined",
    "none",
    "safe",
    "escaped",
    "boolean",
    "odd",
    "even",
    "divisibleby",
    "number",
    "integer",
    "int",
    "float",
    "string",
    "sequence",
    "iterable",
    "mapping",
    "startingwith",
    "endingwith",
    "lower",
    "upper",
    "sameas",
    "eq",
    "equalto",
    "ne",
    "lt",
    "lessthan",
    "le",
    "gt",
    "greaterthan",
    "ge",
    "in",
    "true",
    "false",
    "filter",
    "test",
    "!=",
];
const FUNCTIONS: [&str; 6] = ["range", "dict", "namespace", "raise_exception", "strftime_now", "debug"];
const METHODS: [&str; 34] = [
    "get",
    "items",
    "keys",
    "values",
    "count",
    "capitalize",
    "endswith",
    "find",
    "format",
    "isalnum",
    "isalpha",
    "isascii",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "join",
    "lower",
    "lstrip",
    "replace",
    "rfind",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
    "encode",
    "center",
    "zfill",
    "ljust",
    "append",
];
/// How an accumulator grows in a loop.
const GROWTH: [&str; 20] = [
    "n.s ~ n.s",
    "n.s + n.s",
    "n.s * 2",
    "[n.s]",
    "[n.s, n.s]",
    "(n.s, n.s)",
    "{'a': n.s}",
    "{'a': n.s, 'b': n.s}",
    "[n.s] + [n.s]",
    "n.s[1:]",
    "n.s[::-1]",
    "n.s|list",
    "n.s|reverse",
    "[n.s]|map('list')|list",
    "[n.s]|zip([n.s])|first",
    "n.s|chain(n.s)",
    "dict(a=n.s, b=n.s)",
    "[n.s]|batch(3, n.s)",
    "n.s|string",
    "n.s|tojson",
];
/// What is done with what has grown.
const USES: [&str; 9] = [
    "{{ n.s }}",
    "{{ n.s == n.t }}",
    "{{ n.s < n.t }}",
    "{{ n.s in [n.t] }}",
    "{{ [n.s, n.t]|sort }}",
    "{{ n.s|tojson }}",
    "{{ n.s ~ '' }}",
    "{{ {n.s: 1} }}",
    "{% for a in n.s %}{% for b in n.s %}{% if a == b %}{% endif %}{% endfor %}{% endfor %}",
];

/// The values above, where they are used.
fn setup(uses: &str) -> &'static str {
    if uses.contains("wide") {
        "{% set wide = range(40000)|list %}"
    } else if uses.contains("deep") {
        "{% set deep = [[[[[[[[[[1]]]]]]]]]] %}"
    } else {
        ""
    }
}

/// xorshift64*: the same templates in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Names and sources.
pub fn templates() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: String, source: String| all.push((name, source));
    calls(&mut add);
    depth(&mut add);
    growth(&mut add);
    loops(&mut add);
    mixtures(&mut add);
    all
}

/// Everything that can be called: on every kind of value with one choice of arguments, and with all arguments
/// on one value.
fn calls(add: &mut impl FnMut(String, String)) {
    let mut at = 0;
    let mut call = |what: &str, form: &dyn Fn(&str, &str) -> String| {
        for (i, arguments) in ARGUMENTS.iter().enumerate() {
            at += 1;
            let value = VALUES[(at + i) % VALUES.len()];
            let called = form(value, arguments);
            add(format!("{what} ({arguments}) on {value}"), format!("{}{{{{ {called} }}}}", setup(&called)));
        }
    };
    for name in FILTERS.iter().chain(&MORE_FILTERS) {
        call(name, &|value, arguments| format!("({value})|{name}({arguments})"));
        call(&format!("map {name}"), &|value, arguments| {
            format!(
                "[{value}]|map('{name}'{}{arguments})|list|length",
                if arguments.is_empty() { "" } else { ", " }
            )
        });
    }
    for name in TESTS {
        call(name, &|value, arguments| format!("[{value}]|select('{name}', {arguments})|list|length"));
    }
    for name in FUNCTIONS {
        call(name, &|_, arguments| format!("{name}({arguments})"));
    }
    for name in METHODS {
        call(name, &|value, arguments| format!("({value}).{name}({arguments})"));
    }
}

/// Nesting and chains, from what is accepted to what no stack holds.
fn depth(add: &mut impl FnMut(String, String)) {
    let forms: [(&str, &str, &str); 18] = [
        ("{{ ", "not ", "x }}"),
        ("{{ ", "-", "1 }}"),
        ("{{ x", "|upper", " }}"),
        ("{{ x", ".b", " }}"),
        ("{{ x", "[0]", " }}"),
        ("{{ x", "()", " }}"),
        ("{{ x", "~x", " }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ 1", "**1", " }}"),
        ("{{ x", " and x", " }}"),
        ("{{ x", " if x else x", " }}"),
        ("{{ x", " is defined", " }}"),
        ("{{ 1", " < 2", " }}"),
        ("{{ ", "[", " }}"),
        ("{{ ", "(", " }}"),
        ("{% if x %}", "{% elif x %}", "{% endif %}"),
        ("", "{% if x %}", ""),
        ("", "{% for x in x recursive %}", ""),
    ];
    for (before, repeated, after) in forms {
        // The last is as long as a template may be.
        for times in [50, 300, 5000, 250_000 / repeated.len()] {
            let source = format!("{before}{}{after}", repeated.repeat(times));
            add(format!("{times} times {repeated}"), source);
        }
    }
    let closed: [(&str, &str, &str); 8] = [
        ("[", "1", "]"),
        ("(", "1", ")"),
        ("{'a':", "1", "}"),
        ("x(", "1", ")"),
        ("x[", "1", "]"),
        ("[-", "1", "]"),
        ("[not 1 + ", "1", "]"),
        ("-(", "1", ")"),
    ];
    for (open, middle, close) in closed {
        for times in [40, 75, 140, 400, 20_000] {
            let source = format!("{{{{ {}{middle}{} }}}}", open.repeat(times), close.repeat(times));
            add(format!("{times} times {open}{close}"), source);
        }
    }
    for times in [10, 140, 1000] {
        let blocks = [
            ("{% if 1 %}", "{% endif %}"),
            ("{% for i in [1] %}", "{% endfor %}"),
            ("{% with a = 1 %}", "{% endwith %}"),
        ];
        for (open, close) in blocks {
            add(format!("{times} times {open}"), format!("{}{}", open.repeat(times), close.repeat(times)));
        }
    }
    let recursion = [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(x) %}{{ m([x, x]) }}{% endmacro %}{{ m([1]) }}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% block a %}{{ self.a() ~ self.a() }}{% endblock %}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{{ loop([1, 2]) }}{% endfor %}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% macro m(i) %}{% if i %}{{ m(i - 1) }}{% for a in range(9999) %}{% if b %}{% endif %}{% endfor %}{% endif %}{% endmacro %}{{ m(50) }}",
        "{% for x in [1] recursive %}{% if loop.depth < 240 %}{{ loop([1]) }}{% else %}{% for a in range(40000) %}{% for b in range(40000) %}\
         {% if c %}{% endif %}{% if x %}{% endif %}{% endfor %}{% endfor %}{% endif %}{% endfor %}",
        "{% include 'chat' %}",
        "{% extends 'chat' %}",
        "{% import 'chat' as c %}{{ c }}",
        "{% from 'chat' import c %}{{ c }}",
    ];
    for source in recursion {
        add(source.to_owned(), source.to_owned());
    }
}

/// Values that grow, all ways, and what is done with them.
fn growth(add: &mut impl FnMut(String, String)) {
    let mut at = 0;
    for start in ["'x'", "[1]", "{'k': 1}", "messages"] {
        for grow in GROWTH {
            at += 1;
            let used = USES[at % USES.len()];
            let times = [12, 25, 40, 50_000][at % 4];
            add(
                format!("{times} times {grow} from {start}, then {used}"),
                format!(
                    "{{% set n = namespace(s={start}, t={start}) %}}{{% for i in range({times}) %}}{{% set n.s = {grow} %}}\
                     {{% set n.t = {} %}}{{% endfor %}}{used}",
                    grow.replace("n.s", "n.t"),
                ),
            );
        }
    }
    let cycles = [
        "{% set n = namespace() %}{% set n.a = n %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = [n] %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = dict(n) %}{% for i in range(9) %}{% set n.a = dict(n) %}{% endfor %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = n|chain({}) %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = n.items() %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = n|items %}{{ n }}",
        "{% set n = namespace() %}{% set m = namespace(a=n) %}{% set n.a = m %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = namespace(**{'n': n}) %}{{ n }}",
        "{% set n = namespace() %}{% set n.a, n.b = n, n %}{{ n }}",
        "{% set n = namespace(l=1) %}{% for i in range(5) %}{% set n.l = loop %}{% endfor %}{{ n }}",
        "{% set n = namespace(l=1) %}{% for i in [n.l] %}{% set n.l = [loop] %}{% endfor %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = n|default(n) %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = [1]|map('default', n)|list %}{{ n }}",
        "{% set n = namespace() %}{% set n.a = [none]|map('default', n, true)|list %}{{ n == n.a }}{{ n }}",
        "{% set n = namespace() %}{% macro m(x) %}{% set n.a = x %}{% endmacro %}{{ m(n) }}{{ n }}",
        "{% set n = namespace() %}{% set n.a %}{{ n }}{% endset %}{{ n }}",
    ];
    for source in cycles {
        add(source.to_owned(), source.to_owned());
    }
}

/// Loops that do much in each turn.
fn loops(add: &mut impl FnMut(String, String)) {
    let steps = [
        "{% set x = wide == other %}",
        "{% set x = wide < other %}",
        "{% set x = other in wide %}",
        "{% set x = text[-1] %}",
        "{% set x = text[1:2] %}",
        "{% set x = wide[-1:] %}",
        "{% set x = {text: 1} %}",
        "{% set x = {}[text] %}",
        "{% set x = text == text2 %}",
        "{% set x = text is eq(text2) %}",
        "{% set x = [text]|select('eq', text2)|list %}",
        "{% set x = text.find('zz') %}",
        "{% set x = text.strip('bcdefgh' * 99999) %}",
        "{% set x = text|trim('bcdefgh' * 99999) %}",
        "{% set x = text is lower %}",
        "{% set x = wide|sort %}",
        "{% set x = wide|unique %}",
        "{% set x = wide|sum(start=[]) %}",
        "{% set x = [wide]|sum(start=wide) %}",
        "{% set x = [text, text]|sum(start='') %}",
        "{% set x = ['a']|map(attribute=('0.' * 99999))|list %}",
        "{% set x = loop.changed(wide) %}",
        "{% set x = loop.cycle() %}",
        "{% set a, b = wide %}",
        "{% set x = dict(**{'a': wide}) %}",
        "{% set x = range(99999) %}",
        "{% for c in text %}{% endfor %}",
        "{% for c in text if c == 'q' %}{% endfor %}",
        "{% set x %}{{ text }}{% endset %}{% set kept = [x, kept] %}",
        "{% autoescape true %}{% set x %}{{ text }}{{ '<' * 999999 }}{% endset %}{% endautoescape %}",
        "{% autoescape 'json' %}{{ wide }}{% endautoescape %}",
        "{% filter upper %}{{ text }}{% endfilter %}",
        "{% set x = strftime_now('%A' * 99999) %}",
        "{{ wide }}",
        "{{ text }}",
        "{% set x = text|upper|lower|title|capitalize|e %}",
        "{% set x = ('\u{390}' * 4000000)|upper %}",
        "{% set x = 'x' * 90000000 %}",
        "{% set x = (1, 2) * 40000 %}",
        "{% set x = [1] * 90000000 %}",
        "{% if nothing %}{% endif %}",
        "{% macro m(a=i) %}{{ i }}{{ j }}{{ loop }}{{ wide }}{% endmacro %}",
        "{% macro m(a=i) %}{{ i }}{% endmacro %}{% set x = m() %}",
        "{% call range(1) %}{{ i }}{% endcall %}",
        "{% for k in [1, 2] %}{% autoescape true %}{% break %}{% endautoescape %}{% endfor %}",
        "{% for k in [1, 2] %}{% set x %}a{% break %}{% endset %}{% endfor %}",
        "{% for k in [1, 2] %}{% with a = 1 %}{% continue %}{% endwith %}{% endfor %}",
        "{% set x = namespace(a=wide) %}",
        "{% set x = namespace(**{text: 1}) %}",
        "{% set x = [text, text2, i, j] %}",
        "{% set x = [i|string * 30, j, x[:9]] %}",
        "{% set x = not (wide and text) %}",
        "{% set x = wide ~ 1 %}",
        "{% set x = loop %}{% set y = loop.nextitem %}",
        "{% set x = text.split('') %}",
        "{% set x = text|split('a') %}",
        "{% set x = text.splitlines(true) %}",
        "{% set x = 'a b ' * 40000 %}{% set y = x.split() %}",
        "{% set x = wide|map('string')|join %}",
        "{% set x = wide|groupby('a') %}",
        "{% set x = wide[39999] %}",
        "{% set x = range(-9223372036854775807, 9223372036854775807, 3) %}",
        "{% set x = wide[::-9223372036854775808] %}",
    ];
    for step in steps {
        add(
            format!("many times {step}"),
            format!(
                "{{% set wide = range(40000)|list %}}{{% set other = range(40000)|list %}}{{% set text = 'a' * 2000000 %}}\
                 {{% set text2 = 'a' * 2000000 %}}{{% set kept = [] %}}{{% for i in range(40000) %}}{{% for j in range(40000) %}}\
                 {step}{{% endfor %}}{{% endfor %}}"
            ),
        );
    }
}

/// Mixtures from a fixed seed.
fn mixtures(add: &mut impl FnMut(String, String)) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for i in 0..100 {
        let mut source = format!("{{% set n = namespace(s={0}, t={0}) %}}", random.of(&VALUES));
        for _ in 0..1 + random.below(4) {
            let times = [3, 20, 40, 2000][random.below(4)];
            let grow = random.of(&GROWTH);
            source.push_str(&format!("{{% for i in range({times}) %}}{{% set n.s = {grow} %}}"));
            if random.below(2) == 0 {
                source.push_str(random.of(&USES));
            }
            source.push_str("{% endfor %}");
            let filter = random.of(&FILTERS);
            let arguments = random.of(&ARGUMENTS);
            match random.below(4) {
                0 => source.push_str(&format!("{{% set n.t = n.s|{filter}({arguments}) %}}")),
                1 => source.push_str(&format!("{{% set n.t = n.s.{}({arguments}) %}}", random.of(&METHODS))),
                2 => source.push_str(&format!("{{% set n.t = [n.s]|map('{filter}')|list %}}")),
                _ => source.push_str(random.of(&USES)),
            }
        }
        source.push_str(random.of(&USES));
        source.insert_str(0, setup(&source));
        add(format!("mixture {i}: {source}"), source);
    }
}
