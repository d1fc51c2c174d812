//! What the templates of Llama, Gemma, Mistral, SmolLM3 and gpt-oss do, in templates written for these tests.
//! The expected texts are those of Python's Jinja, set up as Hugging Face does.

use super::*;
use serde_json::json;

/// Llama 3: names that may be undefined and are then set, a date, tools in the first question, a filter that
/// binds tighter than `+`.
const LLAMA: &str = r#"{{- bos_token }}
{%- if not date is defined %}
    {%- if strftime_now is defined %}
        {%- set date = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date = "some day" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set rules = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set rules = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today: " + date + "\n\n" + rules + "<|eot_id|>" }}
{%- if tools is not none and messages | length != 0 %}
    {%- set first = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first + "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;

/// Gemma: roles of its own, a system message in front of the first question, content in parts, roles that
/// must take turns.
const GEMMA: &str = r#"{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("roles must take turns") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (prefix if loop.first else "") }}
    {%- if message['content'] is iterable and message['content'] is not string -%}
        {%- for item in message['content'] -%}
            {{ item['text'] | trim if item['type'] == 'text' else '<image>' }}
        {%- endfor -%}
    {%- else -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"#;

/// Mistral: messages chosen by attributes, a counter that outlives a loop, EOS after answers.
const MISTRAL: &str = r#"{%- if messages[0]["role"] == "system" %}
    {%- set rules = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- set questions = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in turns %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message["role"] == "user" %}
        {%- if rules is defined and message == questions[-1] %}
            {{- "[INST]" + rules + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"] + eos_token }}
    {%- else %}
        {{- raise_exception("only users and assistants speak") }}
    {%- endif %}
{%- endfor %}
"#;

/// SmolLM3: a switch in the system message, defaults, text cut out with `replace`, blocks with conditions.
const SMOLLM3: &str = r#"{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- set rules = "" -%}
{%- if messages[0].role == "system" -%}
    {%- set rules = messages[0].content -%}
    {%- if "/no_think" in rules -%}
        {%- set mode = "/no_think" -%}
    {%- elif "/think" in rules -%}
        {%- set mode = "/think" -%}
    {%- endif -%}
    {%- set rules = rules.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\n" -}}
{{- "Reasoning: " + mode + "\n\n" + rules|default("None.", true) + "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if mode == "/think" -%}
            {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {%- if mode == "/think" -%}
        {{ "<|im_start|>assistant\n" }}
    {%- else -%}
        {{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" }}
    {%- endif -%}
{%- endif -%}
"#;

/// gpt-oss: macros that call themselves and each other, rules of a system message as those of a developer, a
/// search among the messages that follow, and thoughts of the last turn only.
const GPT_OSS: &str = r#"{%- macro type_of(spec, required=[], nullable=false) -%}
    {%- if spec.type == "array" -%}
        {{- type_of(spec["items"]) + "[]" }}
    {%- elif spec.type == "object" -%}
        {{- "{" }}
        {%- for name, inner in spec.properties.items() -%}
            {{- name }}{{ "?" if name not in (required or []) }}: {{ type_of(inner, inner.required, nullable=inner.nullable) }}{{ ", " if not loop.last }}
        {%- endfor -%}
        {{- "}" }}
    {%- elif spec.enum -%}
        {{- '"' + spec.enum|join('" | "') + '"' }}
    {%- else -%}
        {{- spec.type }}
    {%- endif -%}
    {%- if nullable -%} {{- " | null" }} {%- endif -%}
{%- endmacro -%}
{%- macro first() -%}
    {%- if model_identity is not defined -%}
        {%- set model_identity = "You are a model." -%}
    {%- endif -%}
    {{- model_identity + "\n" }}
    {{- "Current date: " + strftime_now("%Y-%m-%d") + "\n\n" }}
    {%- if reasoning_effort is not defined -%}
        {%- set reasoning_effort = "medium" -%}
    {%- endif -%}
    {{- "Reasoning: " + reasoning_effort }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{ first() }}{{ "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" -%}
    {%- set rules = messages[0].content -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set rules = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- if rules or tools -%}
    {{- "<|start|>developer<|message|>" + rules }}
    {%- if tools -%}
        {{- "\n\nnamespace functions {\n" }}
        {%- for tool in tools -%}
            {%- set tool = tool.function -%}
            {{- "type " + tool.name + " = (_: " + type_of(tool.parameters, tool.parameters.required) + ") => any;\n" }}
        {%- endfor -%}
        {{- "}" }}
    {%- endif -%}
    {{- "<|end|>" }}
{%- endif -%}
{%- set last = namespace(name=none) -%}
{%- for message in turns -%}
    {%- if message.role == "assistant" -%}
        {%- if "<|channel|>" in message.content -%}
            {{- raise_exception("thoughts have a field of their own") }}
        {%- endif -%}
        {%- if "tool_calls" in message -%}
            {%- set later = namespace(answer=false) -%}
            {%- for next in turns[loop.index:] -%}
                {%- if next.role == "assistant" and "tool_calls" not in next -%}
                    {%- set later.answer = true -%}
                {%- endif -%}
            {%- endfor -%}
            {%- if message.thinking and not later.answer -%}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
            {%- endif -%}
            {%- set call = message.tool_calls[0].function -%}
            {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" }}
            {{- call.arguments|tojson + "<|call|>" }}
            {%- set last.name = call.name -%}
        {%- elif loop.last and not add_generation_prompt -%}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else -%}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last.name = none -%}
        {%- endif -%}
    {%- elif message.role == "tool" -%}
        {%- if last.name is none -%}
            {{- raise_exception("nobody has called a tool") }}
        {%- endif -%}
        {{- "<|start|>functions." + last.name + " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == "user" -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}"#;

fn compile(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, "<s>", "</s>").unwrap()
}

fn talk(turns: &[(&str, &str)]) -> Vec<Message> {
    turns.iter().map(|(role, content)| Message::new(*role, *content)).collect()
}

fn options() -> RenderOptions {
    RenderOptions { now: Some(951_782_400), ..RenderOptions::for_answer() }
}

/// One line that says what the template said.
fn refusal(source: &str, messages: &[Message], said: &str) {
    let error = compile(source).render(messages, &options()).unwrap_err().to_string();
    assert!(error.contains(said) && !error.contains('\n'), "{error}");
}

#[test]
fn llama_dates_the_system_message_and_trims() {
    let messages =
        talk(&[("system", " Be brief. "), ("user", "Hi \n"), ("assistant", " Hello."), ("user", "Bye")]);
    let expected = "<s><|start_header_id|>system<|end_header_id|>\n\nToday: 29 Feb 2000\n\nBe brief.<|eot_id|>\
        <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
        <|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>\
        <|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>\
        <|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(compile(LLAMA).render(&messages, &options()).unwrap(), expected);
    let dated = compile(LLAMA).render(&messages[1..2], &options().with("date", "today")).unwrap();
    assert!(dated.contains("\n\nToday: today\n\n<|eot_id|>"), "{dated}");
}

#[test]
fn llama_calls_tools_and_reads_what_they_say() {
    let mut call = Message::new("assistant", "");
    let arguments = json!({"where": "here", "at": 1});
    call.extra
        .insert("tool_calls".to_owned(), json!([{"function": {"name": "look", "arguments": arguments}}]));
    let messages = [Message::new("user", "Hi"), call, Message::new("tool", "a \"cat\"")];
    let tools = options().with("tools", json!([{"name": "look", "parameters": {}}]));
    let expected = "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nToday: 29 Feb 2000\n\n\
        <|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{\n    \"name\": \"look\",\n    \"parameters\": {}\n}\
        \n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n\
        {\"name\": \"look\", \"parameters\": {\"where\": \"here\", \"at\": 1}}<|eot_id|>\
        <|start_header_id|>ipython<|end_header_id|>\n\n\"a \\\"cat\\\"\"<|eot_id|>\
        <|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(compile(LLAMA).render(&messages, &tools).unwrap(), expected);
    let mut two = Message::new("assistant", "");
    two.extra.insert("tool_calls".to_owned(), json!([]));
    refusal(LLAMA, &[Message::new("user", "Hi"), two], "one call at a time");
}

#[test]
fn gemma_has_roles_of_its_own_and_no_system_turn() {
    let messages =
        talk(&[("system", "Be brief."), ("user", " Hi\n"), ("assistant", "Hello. "), ("user", "Bye")]);
    let expected = "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n\
        <start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n";
    assert_eq!(compile(GEMMA).render(&messages, &options()).unwrap(), expected);
    refusal(GEMMA, &messages[2..], "roles must take turns");
}

#[test]
fn mistral_puts_rules_before_the_last_question_and_ends_answers() {
    let messages = talk(&[("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello."), ("user", "Bye")]);
    let expected = "<s>[INST]Hi[/INST]Hello.</s>[INST]Be brief.\n\nBye[/INST]";
    assert_eq!(compile(MISTRAL).render(&messages, &options()).unwrap(), expected);
    assert_eq!(compile(MISTRAL).render(&messages[1..2], &options()).unwrap(), "<s>[INST]Hi[/INST]");
    refusal(MISTRAL, &talk(&[("user", "Hi"), ("user", "Hi")]), "roles must take turns");
    refusal(MISTRAL, &talk(&[("user", "Hi"), ("critic", "No")]), "only users and assistants speak");
}

#[test]
fn smollm3_thinks_unless_it_is_told_not_to() {
    let messages = talk(&[
        ("system", "Be brief. /no_think"),
        ("user", "Hi"),
        ("assistant", "\nHello."),
        ("user", "Bye"),
    ]);
    let expected = "<|im_start|>system\nReasoning: /no_think\n\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
        <|im_start|>assistant\n<think>\n\n</think>\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n\
        <|im_start|>assistant\n<think>\n\n</think>\n";
    assert_eq!(compile(SMOLLM3).render(&messages, &options()).unwrap(), expected);
    let expected = "<|im_start|>system\nReasoning: /think\n\nNone.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
        <|im_start|>assistant\n";
    assert_eq!(compile(SMOLLM3).render(&messages[1..2], &options()).unwrap(), expected);
    let off = compile(SMOLLM3).render(&messages[1..2], &options().with("enable_thinking", false)).unwrap();
    assert!(off.ends_with("assistant\n<think>\n\n</think>\n"), "{off}");
}

#[test]
fn gpt_oss_has_channels_and_forgets_thoughts_of_turns_that_are_over() {
    let mut call = Message::new("assistant", "");
    call.extra.insert("thinking".to_owned(), json!("Look first."));
    call.extra
        .insert("tool_calls".to_owned(), json!([{"function": {"name": "look", "arguments": {"at": ["x"]}}}]));
    let seen = Message::new("tool", "a cat");
    let mut messages =
        vec![Message::new("system", "Be brief."), Message::new("user", "Hi"), call.clone(), seen.clone()];
    let schema = json!({
        "type": "object",
        "required": ["at"],
        "properties": {
            "at": {"type": "array", "items": {"type": "string"}},
            "how": {"type": "string", "enum": ["near", "far"], "nullable": true},
            "more": {"type": "object", "properties": {}},
        },
    });
    let tools = options().with("tools", json!([{"function": {"name": "look", "parameters": schema}}]));
    let system = |effort: &str| {
        format!(
            "<|start|>system<|message|>You are a model.\nCurrent date: 2000-02-29\n\nReasoning: {effort}<|end|>"
        )
    };
    let developer = "<|start|>developer<|message|>Be brief.\n\nnamespace functions {\n\
        type look = (_: {at: string[], how?: \"near\" | \"far\" | null, more?: {}}) => any;\n}<|end|>";
    let turn = "<|start|>user<|message|>Hi<|end|>";
    let thought = "<|start|>assistant<|channel|>analysis<|message|>Look first.<|end|>";
    let called = "<|start|>assistant to=functions.look<|channel|>commentary json<|message|>{\"at\": [\"x\"]}<|call|>\
        <|start|>functions.look to=assistant<|channel|>commentary<|message|>\"a cat\"<|end|>";
    let next = "<|start|>assistant";
    let found = compile(GPT_OSS).render(&messages, &tools).unwrap();
    assert_eq!(found, format!("{}{developer}{turn}{thought}{called}{next}", system("medium")));

    messages.extend(talk(&[("assistant", "A cat."), ("user", "Bye")]));
    let found = compile(GPT_OSS).render(&messages[1..], &options().with("reasoning_effort", "high")).unwrap();
    let answer =
        "<|start|>assistant<|channel|>final<|message|>A cat.<|end|><|start|>user<|message|>Bye<|end|>";
    assert_eq!(found, format!("{}{turn}{called}{answer}{next}", system("high")));

    refusal(GPT_OSS, &[seen], "nobody has called a tool");
    refusal(GPT_OSS, &talk(&[("assistant", "<|channel|>final")]), "thoughts have a field of their own");
}
