//! Templates of the shapes that models ship, written for these tests.

use super::*;
use serde_json::json;

const CHATML: &str = "\
{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
";

/// Thinking is kept only in answers after the last question, and `enable_thinking=false` writes an empty one.
const THINKING: &str = r#"
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- content.lstrip('\n') + '<|im_end|>\n' }}
    {%- elif message.role == "system" %}
    {%- else %}
        {{- raise_exception('Unexpected role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"#;

/// Channels, a system block with the date and an effort, tools, and macros.
const HARMONY: &str = r#"
{%- macro signature(tool) -%}
type {{ tool.name }} = ({% for name, spec in tool.parameters.items() %}{{ name }}: {{ spec.type }}{{ ", " if not loop.last }}{% endfor %}) => any;
{%- endmacro -%}
{{- "<|start|>system<|message|>Current date: " ~ strftime_now("%Y-%m-%d") ~ "\n\nReasoning: " ~ (reasoning_effort or "medium") ~ "<|end|>" }}
{%- if tools is defined and tools %}
    {{- "<|start|>developer<|message|># Tools\n\n" }}
    {%- for tool in tools %}
        {{- signature(tool.function) + "\n" }}
    {%- endfor %}
    {{- "<|end|>" }}
{%- endif %}
{%- for message in messages -%}
    {%- if message.role == "assistant" -%}
        {%- if "thinking" in message %}
            {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
        {%- endif %}
        {%- generation %}
        {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- endgeneration %}
    {%- else -%}
        {{- "<|start|>" + message.role + "<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
"#;

fn compile(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, "<s>", "</s>").unwrap()
}

fn render(source: &str, options: &RenderOptions) -> Result<String, ChatError> {
    let result = compile(source).render(&[Message::new("user", "hi")], options);
    if let Err(error) = &result {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    result
}

#[test]
fn chatml() {
    let messages = [Message::new("system", "Be brief."), Message::new("user", "  <b>&\n")];
    let turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  <b>&\n<|im_end|>\n";
    let template = compile(CHATML);
    assert_eq!(template.render(&messages, &RenderOptions::default()).unwrap(), turns);
    let answer = template.render(&messages, &RenderOptions::for_answer()).unwrap();
    assert_eq!(answer, format!("{turns}<|im_start|>assistant\n"));
}

#[test]
fn thinking_blocks() {
    let mut reasoned = Message::new("assistant", "4");
    reasoned.extra.insert("reasoning_content".to_owned(), json!("\neasy\n"));
    let messages = [
        Message::new("system", "S"),
        Message::new("user", "1+1?"),
        Message::new("assistant", "<think>\nold\n</think>\n\n2"),
        Message::new("user", "2+2?"),
        reasoned,
    ];
    let template = compile(THINKING);
    let head = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n\
                <|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n";
    let whole = template.render(&messages, &RenderOptions::default()).unwrap();
    assert_eq!(whole, format!("{head}<|im_start|>assistant\n<think>\neasy\n</think>\n\n4<|im_end|>\n"));

    let question = |options: RenderOptions| template.render(&messages[..4], &options).unwrap();
    assert_eq!(question(RenderOptions::for_answer()), format!("{head}<|im_start|>assistant\n"));
    assert_eq!(
        question(RenderOptions::for_answer().with("enable_thinking", true)),
        format!("{head}<|im_start|>assistant\n")
    );
    assert_eq!(
        question(RenderOptions::for_answer().with("enable_thinking", false)),
        format!("{head}<|im_start|>assistant\n<think>\n\n</think>\n\n")
    );
}

#[test]
fn harmony() {
    let mut answer = Message::new("assistant", "Hello.");
    answer.extra.insert("thinking".to_owned(), json!("Greet."));
    let messages = [Message::new("user", "hi"), answer, Message::new("user", "bye")];
    let tools = json!([{"type": "function", "function": {"name": "look", "parameters": {"where": {"type": "string"}, "at": {"type": "number"}}}}]);
    let mut options = RenderOptions::for_answer().with("tools", tools);
    options.now = Some(951_782_400);
    let expected = "<|start|>system<|message|>Current date: 2000-02-29\n\nReasoning: medium<|end|>\
        <|start|>developer<|message|># Tools\n\ntype look = (where: string, at: number) => any;\n<|end|>\
        <|start|>user<|message|>hi<|end|>\
        <|start|>assistant<|channel|>analysis<|message|>Greet.<|end|>\
        <|start|>assistant<|channel|>final<|message|>Hello.<|return|>\
        <|start|>user<|message|>bye<|end|><|start|>assistant";
    let template = compile(HARMONY);
    assert_eq!(template.render(&messages, &options).unwrap(), expected);
    let high = template.render(&[], &options.with("reasoning_effort", "high")).unwrap();
    assert!(high.contains("Reasoning: high<|end|>"), "{high}");
}

#[test]
fn token_texts_are_given_and_replaceable() {
    let options = RenderOptions::default();
    assert_eq!(render("{{ bos_token }}a{{ eos_token }}", &options).unwrap(), "<s>a</s>");
    assert_eq!(render("{{ bos_token }}", &options.with("bos_token", "B")).unwrap(), "B");
}

#[test]
fn json_is_pythons() {
    let value = json!({"b": [1, 2.5, true, null], "a": "é<\"\n", "e": {}});
    let with = |source: &str| render(source, &RenderOptions::default().with("x", value.clone())).unwrap();
    assert_eq!(with("{{ x | tojson }}"), r#"{"b": [1, 2.5, true, null], "a": "é<\"\n", "e": {}}"#);
    assert_eq!(
        with("{{ x | tojson(sort_keys=true, ensure_ascii=true) }}"),
        r#"{"a": "\u00e9<\"\n", "b": [1, 2.5, true, null], "e": {}}"#
    );
    assert_eq!(with("{{ x.b | tojson(separators=(',', ':')) }}"), "[1,2.5,true,null]");
    assert_eq!(with("{{ {'k': [1]} | tojson(indent=2) }}"), "{\n  \"k\": [\n    1\n  ]\n}");
}

#[test]
fn values_print_as_in_python() {
    let source = "{{ true }} {{ none }} {{ x | string }} {{ 1.0 }} {{ missing }}";
    assert_eq!(render(source, &RenderOptions::default().with("x", false)).unwrap(), "True None False 1.0 ");
}

/// What the engine has in another way; `cargo xtask templates` compares many more with Jinja2 itself.
#[test]
fn filters_and_tests_are_jinjas() {
    for (source, expected) in [
        ("{{ 'a\n'|indent(2, first=true) }}|", "  a\n|"),
        ("{{ 'a\n\nb'|indent('> ') }}", "a\n\n> b"),
        ("{{ 'a\n\nb'|indent(1, blank=true) }}", "a\n \n b"),
        (
            "{{ none is iterable }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 1 is sequence }}",
            "False True True False",
        ),
        (
            "{{ 'x'|int }} {{ ' 7 '|int }} {{ '7.9'|int }} {{ 'x'|int(-1) }} {{ 'ff'|int(base=16) }}",
            "0 7 7 -1 255",
        ),
        ("{{ 'x'|float }} {{ '1.5'|float }} {{ [] |float(default=2.5) }}", "0.0 1.5 2.5"),
        ("{{ 1e16 }} {{ 1e-7 }} {{ 0.0001 }} {{ [1e-7, 2.0]|tojson }}", "1e+16 1e-07 0.0001 [1e-07, 2.0]"),
        ("{{ '<\"\\''|escape }}", "&lt;&#34;&#39;"),
        ("{{ \"it's a1b\".title() }}", "It'S A1B"),
        (
            "{{ {'a': [], 'b': {'c': [1]}}|tojson(indent=1) }}",
            "{\n \"a\": [],\n \"b\": {\n  \"c\": [\n   1\n  ]\n }\n}",
        ),
        ("{{ tools is none }} {{ documents is defined }}", "True True"),
    ] {
        assert_eq!(render(source, &RenderOptions::default()).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn loops_can_be_left() {
    let source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}";
    assert_eq!(render(source, &RenderOptions::default()).unwrap(), "02");
}

#[test]
fn generation_tags_are_transparent() {
    let source = "a {%- generation -%} b {%- endgeneration %} {% generation %}c{% endgeneration %}";
    assert_eq!(render(source, &RenderOptions::default()).unwrap(), "ab c");
    assert_eq!(python::without_generation_tags("x {% generation"), "x {% generation");
}

#[test]
fn refusals_carry_the_templates_words() {
    let error = compile(THINKING).render(&[Message::new("pirate", "arr")], &RenderOptions::default());
    assert_eq!(error, Err(ChatError::Refused { message: "Unexpected role pirate".to_owned() }));
    let nested = "{% macro m() %}{{ raise_exception('two\nlines') }}{% endmacro %}{{ m() }}";
    let error = render(nested, &RenderOptions::default());
    assert_eq!(error, Err(ChatError::Refused { message: "two lines".to_owned() }));
}

#[test]
fn endless_templates_stop() {
    let looping = "{% for a in range(49999) %}{% for b in range(49999) %}{% endfor %}{% endfor %}";
    assert_eq!(render(looping, &RenderOptions::default()), Err(ChatError::OutOfFuel));
    let writing = "{% set x = 'x' * 1000000 %}{% for a in range(20) %}{{ x }}{% endfor %}";
    assert_eq!(render(writing, &RenderOptions::default()), Err(ChatError::OutputTooLong));
    let recursing = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(matches!(render(recursing, &RenderOptions::default()), Err(ChatError::Render { .. })));
}

/// The engine's own mistakes are errors like others, and what comes after them goes well: here, a remainder
/// by zero.
#[test]
fn panics_of_the_engine_are_errors() {
    let template = compile(
        "{% for m in messages %}{{ loop.cycle() if m.content == '' else m.content[::-1] }}{% endfor %}",
    );
    let render = |content| template.render(&[Message::new("user", content)], &RenderOptions::default());
    let error = render("").unwrap_err();
    assert!(matches!(error, ChatError::Engine { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("panicked at") && text.contains("choose another template"), "{text}");
    assert!(!text.contains('\n'), "{text}");
    assert_eq!(render("abc").as_deref(), Ok("cba"));
}

#[test]
fn errors_name_the_line_and_a_remedy() {
    let syntax = ChatTemplate::new("a\n{% if %}", "", "").unwrap_err();
    assert!(matches!(&syntax, ChatError::Syntax { line: 2, .. }), "{syntax}");
    let render_error = render("a\n\n{{ messages.nothing.more }}", &RenderOptions::default()).unwrap_err();
    assert!(matches!(&render_error, ChatError::Render { line: 3, .. }), "{render_error}");
    let clock = render("{{ strftime_now('%Q') }}", &RenderOptions::default()).unwrap_err();
    assert!(clock.to_string().contains("%Q"), "{clock}");
    let long = ChatTemplate::new(&"x".repeat(MAX_SOURCE + 1), "", "").unwrap_err();
    assert_eq!(long, ChatError::SourceTooLong { bytes: MAX_SOURCE + 1 });
    let reserved = render("", &RenderOptions::default().with("messages", 1)).unwrap_err();
    assert_eq!(reserved, ChatError::ReservedArgument { name: "messages".to_owned() });
}

/// Lists in lists, made without recursion.
fn nested(levels: usize) -> Json {
    (1..levels).fold(json!([]), |inner, _| Json::Array(vec![inner]))
}

/// A deep value is taken apart level by level: its own way to be dropped is recursive.
fn dismantle(mut value: Json) {
    while let Json::Array(items) = &mut value {
        let Some(inner) = items.pop() else { break };
        value = inner;
    }
}

#[test]
fn data_that_nests_too_deeply_is_refused_and_as_deep_as_json_allows_is_used() {
    let source = "{{ x == [[x]][0][0] }} {{ [x]|tojson == '[' ~ x|tojson ~ ']' }} {{ (x ~ '')|length }}";
    let with = |value: Json| {
        let options = RenderOptions::default().with("x", value);
        let result = render(source, &options);
        options.kwargs.into_iter().for_each(|(_, value)| dismantle(value));
        result
    };
    assert_eq!(with(nested(MAX_INPUT_DEPTH)).as_deref(), Ok("True True 256"));
    assert_eq!(with(nested(MAX_INPUT_DEPTH + 1)), Err(ChatError::InputTooDeep));
    assert_eq!(with(nested(100_000)), Err(ChatError::InputTooDeep));

    let mut message = Message::new("user", "");
    message.extra.insert("tool_calls".to_owned(), nested(100_000));
    let error = compile("").render(std::slice::from_ref(&message), &RenderOptions::default());
    assert_eq!(error, Err(ChatError::InputTooDeep));
    message.extra.into_iter().for_each(|(_, value)| dismantle(value));

    // What reads messages refuses it by itself.
    let text =
        format!(r#"{{"role": "", "content": "", "x": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(serde_json::from_str::<Message>(&text).is_err());
}

/// The engine's types have no public names: these are known by what they are called, so that a newer engine
/// has to be looked at.
#[test]
fn what_changes_later_is_not_stored_and_views_are_copied() {
    let refused = [
        "{% set n = namespace() %}{{ [n] }}",
        "{% set n = namespace() %}{% set n.a = n %}",
        "{% set n = namespace() %}{{ dict(a=n) }}",
        "{% for x in [1] %}{{ {'a': loop} }}{% endfor %}",
    ];
    for source in refused {
        let text = render(source, &RenderOptions::default()).unwrap_err().to_string();
        assert!(text.contains("cannot be stored in another value"), "{source}: {text}");
    }
    let used = [
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}{{ n is defined }}", "2True"),
        (
            "{% macro m(n) %}{% set n.a = 'x' %}{% endmacro %}{% set n = namespace() %}{{ m(n) }}{{ n.a }}",
            "x",
        ),
        (
            "{% for g in [{'k': 1, 'v': 2}, {'k': 1, 'v': 3}]|groupby('k') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}",
            "12",
        ),
        ("{{ [[1, 2][::-1], {'a': 1}.items(), 'ab'|list|reverse] }}", "[[2, 1], [('a', 1)], ['b', 'a']]"),
        ("{{ (1, 2)[:1] }}{{ {'a': 1}|chain({'b': 2}) }}{{ range(2) }}", "(1,){'a': 1, 'b': 2}[0, 1]"),
        ("{% for x in [1, 1] %}{{ loop.changed([x]) }}{% endfor %}", "TrueFalse"),
        ("{{ 'a,b'.split(',')[-1] }}{{ '-'.join(['a', 1]) }}{{ '{} {:>3}'.format('x', 1) }}", "ba-1x   1"),
    ];
    for (source, expected) in used {
        assert_eq!(render(source, &RenderOptions::default()).as_deref(), Ok(expected), "{source}");
    }
}

/// The template by the engine alone, with Python's methods and nothing else of this program.
fn unguarded(source: &str, context: &Value) -> Result<String, ChatError> {
    let mut env = minijinja::Environment::new();
    env.set_debug(false);
    env.set_fuel(Some(200_000));
    let mut syntax = minijinja::syntax::SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    env.set_syntax(syntax.build().unwrap());
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    python::install(&mut env);
    let source = python::without_generation_tags(source);
    let rendered = contain::contain(|| env.template_from_str(&source)?.render(context));
    rendered.map_err(|panic| ChatError::engine(&panic))?.map_err(|error| ChatError::render(&error))
}

/// What real templates use, and more of the same kind. The reference is the engine without this program's
/// guards.
#[test]
fn guards_change_nothing_that_real_templates_render() {
    let used = [
        CHATML,
        THINKING,
        HARMONY,
        "{{ 'a' + 'b' ~ 1 ~ none ~ [1, 'x'] ~ {'k': true} ~ missing }}",
        "{{ messages[0].role }}{{ messages[-1]['content'] }}{{ messages[0]['content'][0] }}{{ messages[0].content[-1] }}",
        "{{ messages[1:]|length }}{{ messages[::-1][0].content }}{{ 'abc'[1:] }}{{ 'abc'[::-1] }}{{ messages[:-1]|map(attribute='role')|list }}",
        "{% set x = messages + [{'role': 'tool', 'content': 'é'}] %}{{ x|length }}{{ x[-1].content }}{{ x|tojson }}",
        "{% set x = [1, 2] + [3] %}{% set a, b, c = x %}{{ a }}{{ b }}{{ c }}{{ x * 2 }}{{ 'ab' * 2 }}{{ 2 * 3 }}{{ (1, 2) + (3,) }}",
        "{{ 1 < 2 < 3 }}{{ [1] == [1] }}{{ 'a' in 'abc' }}{{ 'a' not in ['b'] }}{{ messages[0] == messages[0] }}{{ messages[0] in messages }}",
        "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|rejectattr('role', 'eq', 'user')|map(attribute='content')|join(', ') }}",
        "{{ [3, 1, 2]|sort|join('-') }}{{ [3, 1]|max }}{{ [3, 1]|min }}{{ [1, 1, 2]|unique|list }}{{ [1, 2]|sum }}{{ [1, 2]|first }}{{ [1, 2]|last }}",
        "{{ [1, 2, 3]|batch(2)|list }}{{ [1, 2, 3]|slice(2)|list }}{{ [1, 2, 3]|reverse|list }}{{ 'abc'|reverse }}{{ 'ab'|list }}",
        "{{ ' x '|trim }}{{ 'xyx'|trim('x') }}{{ 'a'|upper }}{{ 'B'|lower }}{{ 'a b'|title }}{{ 'ab'|capitalize }}{{ 'aXa'|replace('a', 'bb') }}",
        "{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent(2, true) }}{{ 'a,b'|split(',') }}{{ 'a\nb'|lines }}{{ '%s-%03d'|format('a', 7) }}{{ 1.56|round(1) }}",
        "{{ {'b': 1, 'a': 2}|dictsort }}{{ {'b': 1}|items|list }}{{ {'b': 1}.items()|list }}{{ {'b': 1}.keys()|list }}{{ {'b': 1}.values()|list }}",
        "{% for k, v in {'b': 1, 'a': {'c': 2}}.items() %}{{ k }}={{ v }}{{ ',' if not loop.last }}{% endfor %}",
        "{% for k, v in {'b': 1, 'a': 2}|items if v > 1 recursive %}{{ loop.index }}{{ k }}{% else %}none{% endfor %}",
        "{{ {'k': 1}.get('k') }}{{ {'k': 1}.get('x', 2) }}{{ dict(a=1) }}{{ dict({'a': 1}, b=2) }}{{ range(1, 9, 3)|list }}",
        "{{ ' a b '.strip() }}{{ 'a b'.split() }}{{ 'a-b-c'.split('-', 1) }}{{ 'ab'.replace('a', '') }}{{ 'ab'.startswith('a') }}{{ 'ab'.endswith(('b', 'c')) }}",
        "{{ 'ab'.find('b') }}{{ 'abab'.rfind('a') }}{{ 'abab'.count('ab') }}{{ 'a\nb'.splitlines() }}{{ '-'.join(['a', 'b']) }}{{ '{}={a:>4}'.format(1, a=2) }}",
        "{{ 'ab'.upper() ~ 'AB'.lower() ~ 'ab'.title() ~ 'ab'.capitalize() ~ '1'.isdigit() ~ 'a'.isalpha() ~ [1, 1].count(1) }}",
        "{{ x is defined }}{{ none is none }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ 1 is number }}{{ true is boolean }}{{ 4 is divisibleby(2) }}",
        "{{ missing|default('d') }}{{ none|d('e', true) }}{{ '1'|int + 1 }}{{ '1.5'|float }}{{ 1|string ~ 2 }}{{ '<'|e }}{{ '<'|safe }}{{ [1, {'a': 2}]|pprint }}",
        "{{ {'a': [1, {'b': none}]}|tojson }}{{ {'a': [1, {'b': none}]}|tojson(indent=2) }}{{ messages|tojson(sort_keys=true) }}",
        "{% macro m(a, b=2, c=[]) %}{{ a }}{{ b }}{{ c|length }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}{{ m(1, c=[1, 2]) }}{% call m(3) %}in{% endcall %}",
        "{% macro m(d) %}{% if d is mapping %}{% for k in d %}{{ k }}({{ m(d[k]) }}){% endfor %}{% else %}{{ d }}{% endif %}{% endmacro %}{{ m({'a': {'b': {'c': 1}}}) }}",
        "{% set ns = namespace(n=0, l=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.n }}{{ ns.l }}{{ ns.x }}",
        "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{% filter upper %}q{{ x }}{% endfilter %}{% with a = 1, b = [a] %}{{ a }}{{ b }}{% endwith %}",
        "{% for m in messages %}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{{ loop.previtem.role }}{{ loop.nextitem.role }}{{ loop.revindex }}{% endfor %}",
        "{% block a %}x{% endblock %}{% autoescape true %}{{ '<' }}{% endautoescape %}{% raw %}{{ }}{% endraw %}{# no #}{{ 7 // 2 }}{{ 7 % 2 }}{{ 2 ** 3 }}{{ -1 }}",
        "{% for t in [{'a': [{'a': []}]}] recursive %}({{ loop(t.a) }}){% endfor %}{% for c in 'abc' %}{{ c }}.{% endfor %}{{ 'yes' if messages else 'no' }}",
    ];
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", " héllo\n"),
        Message::new("assistant", "Hi."),
    ];
    let mut options = RenderOptions::for_answer();
    options.now = Some(951_782_400);
    let context = Value::from_pairs([
        ("messages", Value::from(Serde(&messages[..]))),
        ("add_generation_prompt", Value::from(true)),
        ("strftime_now", Value::from_function(|_: String| "2000-02-29")),
    ]);
    let differ: Vec<_> = used
        .iter()
        .map(|source| (source, compile(source).render(&messages, &options), unguarded(source, &context)))
        .filter(|(_, guarded, plain)| guarded.as_ref() != plain.as_ref())
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn line_breaks_of_other_systems_are_those_of_jinja() {
    let source = "{% for m in messages %}\r\n{{ '<|' + m.role + '|>\r\n' }}{{ m.content }}\r\n\
                  {% endfor %}\r\nend\rof {{ 'a\\r' }}\r\n";
    let template = ChatTemplate::new(source, "", "").unwrap();
    let text = template.render(&[Message::new("user", "a\r\nb")], &RenderOptions::default()).unwrap();
    assert_eq!(text, "<|user|>\na\r\nb\nend\nof a\r");
}

#[test]
fn templates_tell_what_they_do_with_contents() {
    let contents = |source: &str| {
        let Contents { texts, parts } = ChatTemplate::new(source, "", "").unwrap().contents();
        (texts, parts)
    };
    let each = |content: &str| format!("{{% for m in messages %}}{content}{{% endfor %}}");
    let text = "{{ m.content }}";
    let parts = "{% for p in m.content %}{{ p.text }}{% endfor %}";
    assert_eq!(contents(&each(text)), (true, false));
    assert_eq!(contents(&each("{{ m | tojson }}")), (true, false));
    assert_eq!(contents(&each(parts)), (false, true));
    let both = format!("{{% if m.content is string %}}{text}{{% else %}}{parts}{{% endif %}}");
    assert_eq!(contents(&each(&both)), (true, true));
    assert_eq!(contents("{{ raise_exception('no') }}"), (true, false));
    let mut message = Message::new("user", "ab");
    message.parts = vec![json!({ "type": "text", "text": "a" }), json!({ "type": "text", "text": "b" })];
    let template = ChatTemplate::new(&each(&both), "", "").unwrap();
    assert_eq!(template.render(&[message], &RenderOptions::default()).unwrap(), "ab");
}
