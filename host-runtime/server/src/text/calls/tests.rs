//! Calls of every family, as its documentation shows them, in pieces of any size, and what is none.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::python;
use super::reader::Reader;
use crate::text::family::Family;
use crate::text::part::{Call, Part};
use crate::text::tools::Tools;

const FAMILIES: [Family; 8] = [
    Family::Json,
    Family::Functions,
    Family::Lfm2,
    Family::Gemma,
    Family::MistralList,
    Family::MistralNames,
    Family::Llama,
    Family::Harmony,
];

const PROMPT: &str = "<|start|>user<|message|>How many?<|end|><|start|>assistant";

fn reader(family: Family, parallel: bool) -> Reader {
    let tool = |name: &str, properties: Value| {
        json!({ "type": "function", "function": { "name": name, "parameters": {
            "properties": properties, "$defs": { "unit": { "enum": ["1", "2"] } } } } })
    };
    let tools = vec![
        tool("find", json!({ "text": { "type": "string" }, "n": { "type": "integer" } })),
        tool(
            "look",
            json!({
                "text": { "type": "string" },
                "n": { "type": "integer" },
                "exact": { "type": "boolean" },
                "zip": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
                "code": { "type": ["string", "null"] },
                "unit": { "$ref": "#/$defs/unit" },
                "words": { "type": "array", "items": { "type": "string" } },
                "more": { "type": "object" },
            }),
        ),
    ];
    let tools = Arc::new(Tools::of(tools, parallel));
    match family {
        Family::Harmony => Reader::harmony(PROMPT, Some(tools), true),
        family => Reader::new(family, tools),
    }
}

/// The parts of a text that comes in such pieces; texts that follow each other are one, as thoughts are.
fn read<'t>(mut reader: Reader, pieces: impl Iterator<Item = &'t str>) -> Vec<Part> {
    let mut parts = Vec::new();
    pieces.for_each(|piece| parts.extend(reader.push(piece)));
    parts.extend(reader.finish(false));
    parts.into_iter().fold(Vec::new(), |mut all, part| {
        match (all.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(more))
            | (Some(Part::Thought(before)), Part::Thought(more)) => before.push_str(&more),
            (_, part) => all.push(part),
        }
        all
    })
}

/// A text in pieces of `n` characters.
fn pieces(text: &str, n: usize) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(n).collect();
    let ends: Vec<usize> = starts.iter().copied().skip(1).chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(move |(start, end)| &text[start..end])
}

#[track_caller]
fn check(family: Family, text: &str, expected: &[Part]) {
    for n in [1, 2, 3, 7, 1000] {
        assert_eq!(read(reader(family, true), pieces(text, n)), expected, "pieces of {n} of {text}");
    }
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(Call { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn thought(text: &str) -> Part {
    Part::Thought(text.to_owned())
}

const ONE: &str =
    "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"é<\", \"n\": 3}}\n</tool_call>";
const TWO: &str = "<tool_call>\n<function=find>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n3\n\
    </parameter>\n</function>\n</tool_call>";

/// What both of them, and the calls of other families below, say.
const FIND: &str = r#"{"text":"é<","n":3}"#;

#[test]
fn json_and_functions_between_tags_are_read() {
    check(Family::Json, ONE, &[call("find", FIND)]);
    // The schema says what is a text.
    check(Family::Functions, TWO, &[call("find", r#"{"text":"12","n":3}"#)]);
    check(
        Family::Functions,
        &format!("Let me see.\n\n{ONE}\n{TWO}\n"),
        &[text("Let me see."), call("find", FIND), call("find", r#"{"text":"12","n":3}"#)],
    );
}

#[test]
fn a_call_that_ends_with_the_answer_needs_no_closing_tag() {
    check(Family::Json, ONE.strip_suffix("</tool_call>").unwrap(), &[call("find", FIND)]);
    check(Family::Lfm2, "<|tool_call_start|>[find(n=3)]", &[call("find", r#"{"n":3}"#)]);
}

#[test]
fn what_is_no_call_stays_text() {
    for other in [
        "a < b, <tool",
        "plain\n",
        "No \n\n<tool_call>nonsense</tool_call> and more",
        "<tool_call>\n{\"name\": 7}\n</tool_call>",
        "<tool_call>\n{\"name\": \"find\", \"arg",
        "<tool_call><function=find><parameter=n>3</tool_call>",
        "</tool_call>",
    ] {
        check(Family::Json, other, &[text(other)]);
    }
    for other in [
        "<|tool_call_start|>[find(n=]<|tool_call_end|>",
        "<|tool_call_start|>[]<|tool_call_end|>",
        "<|tool_call_start|>[find(n=3)] and<|tool_call_end|>",
        "<|tool_call_start|>find(1, 2, 3)<|tool_call_end|>",
    ] {
        check(Family::Lfm2, other, &[text(other)]);
    }
    for other in ["<|tool_call>call:find{n:}<tool_call|>", "<|tool_call>find{n:1}<tool_call|>"] {
        check(Family::Gemma, other, &[text(other)]);
    }
    for other in ["[TOOL_CALLS]", "[TOOL_CALLS][{\"name\":", "[TOOL_CALLS]find[ARGS][1]", "[TOOL_CALL"] {
        check(Family::MistralNames, other, &[text(other)]);
    }
    for other in [
        "{\"name\": \"Ann\", \"parameters\": {}}",
        "{\"name\": \"find\", \"parameters\": 3}",
        "{\"answer\": [1, 2, \"}\"]} is it.",
        "{\"name\": \"find\", ",
        "It is {\"name\": \"Ann\", \"parameters\": {}}",
        "<|python_tag|>print(1)",
        "<|python_",
        "",
    ] {
        let expected: &[Part] = if other.is_empty() { &[] } else { &[text(other)] };
        check(Family::Llama, other, expected);
    }
}

#[test]
fn one_call_is_one_call() {
    let two = format!("{ONE}\n{TWO}\nand text");
    for (family, answer) in [
        (Family::Json, two.as_str()),
        (Family::Lfm2, "<|tool_call_start|>[find(text='é<', n=3), find()]<|tool_call_end|>text"),
        (
            Family::MistralList,
            "[TOOL_CALLS][{\"name\":\"find\",\"arguments\":{\"text\":\"é<\",\"n\":3}},{\"name\":\"find\"}]",
        ),
    ] {
        assert_eq!(read(reader(family, false), pieces(answer, 5)), [call("find", FIND)], "{answer}");
    }
}

#[test]
fn lfm2_writes_python() {
    check(
        Family::Lfm2,
        "<|tool_call_start|>[get_candidate_status(candidate_id=\"12345\")]<|tool_call_end|>\
         Checking the current \
         status of candidate ID 12345.",
        &[
            call("get_candidate_status", r#"{"candidate_id":"12345"}"#),
            text("Checking the current status of candidate ID 12345."),
        ],
    );
    check(
        Family::Lfm2,
        "<|tool_call_start|>[find(text='é<', n=3), a.b(x=True, y=None, z=-1.5e3, \
         l=[1, 2,], d={'k': (\"\\u00e9\\n\")})]\
         <|tool_call_end|>",
        &[text(
            "<|tool_call_start|>[find(text='é<', n=3), a.b(x=True, y=None, z=-1.5e3, l=[1, 2,], \
             d={'k': (\"\\u00e9\\n\")})]<|tool_call_end|>",
        )],
    );
    check(
        Family::Lfm2,
        "<|tool_call_start|>[find('é<', n=3), a.b(x=True, y=None, z=-1.5e3, \
         l=[1, 2,], d={'k': \"\\u00e9\\n\"})]\
         <|tool_call_end|>",
        &[
            call("find", FIND),
            call("a.b", "{\"x\":true,\"y\":null,\"z\":-1500.0,\"l\":[1,2],\"d\":{\"k\":\"é\\n\"}}"),
        ],
    );
    // It writes JSON where it is asked to.
    check(
        Family::Lfm2,
        "<|tool_call_start|>[{\"name\": \"find\", \"arguments\": {\"text\": \"é<\", \"n\": 3}}]\
         <|tool_call_end|>",
        &[call("find", FIND)],
    );
}

#[test]
fn what_python_is_written_is_read() {
    let arguments = json!({ "text": "é<'\"\n\\", "n": 3, "x": [true, null, { "k": -1.5 }] });
    let calls = json!([{ "id": "1", "function": { "name": "find", "arguments": arguments } },
        { "function": { "name": "other" } }]);
    let written = python::written(calls.as_array().unwrap());
    let answer = format!("<|tool_call_start|>{written}<|tool_call_end|>");
    check(Family::Lfm2, &answer, &[call("find", &arguments.to_string()), call("other", "{}")]);
}

#[test]
fn gemma_has_strings_of_its_own() {
    check(
        Family::Gemma,
        "<|tool_call>call:get_current_temperature{location:<|\"|>London<|\"|>}<tool_call|>",
        &[call("get_current_temperature", r#"{"location":"London"}"#)],
    );
    check(
        Family::Gemma,
        "So:<|tool_call>call:find{text:<|\"|>é<<|\"|>,n:3}<tool_call|>\
         <|tool_call>call:f{a:[1,{b c:<|\"|>}\"<|\"|>}],\
         \"d\":\"\\\"\",e:true,f:null}<tool_call|>",
        &[
            text("So:"),
            call("find", FIND),
            call("f", "{\"a\":[1,{\"b c\":\"}\\\"\"}],\"d\":\"\\\"\",\"e\":true,\"f\":null}"),
        ],
    );
    check(Family::Gemma, "<|tool_call>call:now{}<tool_call|>", &[call("now", "{}")]);
}

#[test]
fn mistral_has_two_forms() {
    let other = call("other", "{}");
    check(
        Family::MistralList,
        "[TOOL_CALLS] [{\"name\": \"find\", \"arguments\": {\"text\": \"é<\", \"n\": 3}, \
         \"id\": \"123456789\"}, \
         {\"name\": \"other\", \"arguments\": {}}]",
        &[call("find", FIND), other],
    );
    for answer in [
        "I look.[TOOL_CALLS]find[ARGS]{\"text\": \"é<\", \"n\": 3}[TOOL_CALLS]other[ARGS]{}",
        "I look. [TOOL_CALLS]find{\"text\": \"é<\", \"n\": 3}[TOOL_CALLS]other{}",
        "I look.\n[TOOL_CALLS]find[CALL_ID]123456789[ARGS]{\"text\": \"é<\", \"n\": 3}\n\
         [TOOL_CALLS]other[ARGS]",
    ] {
        check(Family::MistralNames, answer, &[text("I look."), call("find", FIND), call("other", "{}")]);
    }
}

#[test]
fn llama_writes_an_object_with_and_without_a_tag() {
    let object = "{\"name\": \"find\", \"parameters\": {\"text\": \"é<\", \"n\": 3}}";
    for answer in [
        object.to_owned(),
        format!("\n{object}\n"),
        format!("<|python_tag|>{object}"),
        format!("<|python_tag|> {object}"),
        "<|python_tag|>find.call(text=\"é<\", n=3)".to_owned(),
        object.replacen('{', "{\"type\": \"function\", ", 1),
    ] {
        check(Family::Llama, &answer, &[call("find", FIND)]);
    }
    check(Family::Llama, &format!("{object}; {object}"), &[call("find", FIND), call("find", FIND)]);
    check(Family::Llama, &format!("I look.<|python_tag|>{object}"), &[text("I look."), call("find", FIND)]);
    check(Family::Llama, &format!("{object}\nThat was it."), &[call("find", FIND), text("That was it.")]);
    check(Family::Llama, "{\"n\": 3}", &[text("{\"n\": 3}")]);
}

#[test]
fn harmony_has_channels() {
    let analysis = "<|channel|>analysis<|message|>Need <b> it.<|end|>";
    let arguments = "<|message|>{\"text\": \"é<\", \"n\": 3}";
    check(
        Family::Harmony,
        &format!("{analysis}<|start|>assistant<|channel|>final<|message|>It is 3 < 4."),
        &[thought("Need <b> it."), text("It is 3 < 4.")],
    );
    for header in [
        "<|start|>assistant<|channel|>commentary to=functions.find <|constrain|>json",
        "<|start|>assistant<|channel|>commentary to=functions.find json",
        "<|start|>assistant to=functions.find<|channel|>commentary <|constrain|>json",
        "<|start|>assistant<|channel|>analysis to=functions.find",
        // An end that is not shown.
        " to=functions.find<|channel|>commentary json",
    ] {
        let first = if header.starts_with(' ') { "" } else { analysis };
        let parts = read(reader(Family::Harmony, true), pieces(&format!("{first}{header}{arguments}"), 3));
        assert_eq!(parts.last(), Some(&call("find", FIND)), "{header}");
        assert_eq!(parts.len(), if first.is_empty() { 1 } else { 2 }, "{header}");
    }
    check(
        Family::Harmony,
        &format!(
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary \
             to=functions.find{arguments}<|end|><|start|>assistant<|channel|>commentary \
             to=functions.other<|message|>{{}}"
        ),
        &[text("I look."), call("find", FIND), call("other", "{}")],
    );
    // Calls that cannot be read, and of what was not offered, are text.
    let wrong = "<|channel|>commentary to=functions.find<|message|>{\"text\": <|end|>";
    check(Family::Harmony, wrong, &[text(wrong)]);
    let wrong = "<|channel|>analysis to=python<|message|>print(1)";
    check(Family::Harmony, wrong, &[text(wrong)]);
    // So is what a model writes that does not keep to the format.
    for other in ["Yes.", "assist them", "<|channel", "to be"] {
        check(Family::Harmony, other, &[text(other)]);
    }
    check(Family::Harmony, "<|channel|>final", &[]);
}

#[test]
fn harmony_goes_on_from_where_the_prompt_ends() {
    let begun = "<|start|>assistant<|channel|>final<|message|>It";
    let parts = read(Reader::harmony(begun, None, true), pieces(" is 3.", 2));
    assert_eq!(parts, [text(" is 3.")]);
    let parts = read(
        Reader::harmony("<|start|>assistant<|channel|>analysis<|message|>", None, true),
        pieces("Hm.", 1),
    );
    assert_eq!(parts, [thought("Hm.")]);
}

#[test]
fn harmony_leaves_thoughts_in_where_they_are_wanted() {
    let answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.";
    let parts = read(Reader::harmony(PROMPT, None, false), pieces(answer, 2));
    assert_eq!(parts, [text("<|channel|>analysis<|message|>Hm.<|end|>Yes.")]);
}

/// What texts of all families are made of, and what stands in their way.
const SCRAPS: [&str; 44] = [
    "<tool_call>",
    "</tool_call>",
    "<function=find>",
    "<parameter=n>",
    "</parameter>",
    "</function>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "[find(n=3)]",
    "find(",
    "text='é', ",
    "n=3",
    ")",
    "]",
    "[",
    "<|tool_call>",
    "<tool_call|>",
    "call:find{",
    "n:3",
    "<|\"|>",
    "}",
    "{",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[{\"name\": \"find\"}]",
    "{\"name\": \"find\", \"parameters\": {\"n\": 3}}",
    "<|python_tag|>",
    ";",
    "<|start|>assistant",
    "<|channel|>",
    "analysis",
    "final",
    "commentary",
    " to=functions.find",
    "<|constrain|>json",
    "<|message|>",
    "<|end|>",
    "<|",
    "|>",
    "\"",
    "\\",
    " ",
    "\n",
    "é",
];

/// Such a text.
fn hostile() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&SCRAPS[..]), 0..24).prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn any_cuts_of_a_stream_give_the_same_parts(
        answer in hostile(),
        family in prop::sample::select(&FAMILIES[..]),
        parallel: bool,
        cuts in prop::collection::vec(0_usize..400, 0..12),
    ) {
        let whole = read(reader(family, parallel), [answer.as_str()].into_iter());
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&at| answer.is_char_boundary(at)).collect();
        cuts.extend([0, answer.len()]);
        cuts.sort_unstable();
        let cut = cuts.windows(2).map(|ends| &answer[ends[0]..ends[1]]);
        prop_assert_eq!(read(reader(family, parallel), cut), whole);
    }

    /// A text in which no call was found has lost nothing, but for the tags of harmony's messages.
    #[test]
    fn a_text_without_calls_is_all_there(answer in hostile(), family in prop::sample::select(&FAMILIES[..7])) {
        let parts = read(reader(family, true), pieces(&answer, 3));
        if !parts.iter().any(|part| matches!(part, Part::Call(_))) {
            let all: String = parts.iter().map(|part| match part {
                Part::Text(text) => text.as_str(),
                Part::Thought(_) | Part::Call(_) => "",
            }).collect();
            prop_assert_eq!(all, answer);
        }
    }
}

/// A call by tags with one argument.
fn tagged(parameter: &str, value: &str) -> String {
    format!(
        "<tool_call>\n<function=look>\n<parameter={parameter}>\n{value}\n</parameter>\n</function>\n\
         </tool_call>"
    )
}

#[test]
fn arguments_without_quotes_have_the_kinds_of_the_schema() {
    for (parameter, written, value) in [
        ("exact", "True", json!(true)),
        ("exact", "false", json!(false)),
        ("zip", "02134", json!("02134")),
        ("zip", "None", json!(null)),
        ("code", "12", json!("12")),
        ("unit", "1", json!("1")),
        ("text", "True", json!("True")),
        ("text", "null", json!("null")),
        ("n", "5.0", json!(5)),
        ("n", "five", json!("five")),
        ("words", "['a', \"b\"]", json!(["a", "b"])),
        ("more", "{'k': True}", json!({ "k": true })),
        ("unknown", "3", json!(3)),
        ("unknown", "three", json!("three")),
    ] {
        let arguments = json!({ parameter: value }).to_string();
        check(Family::Functions, &tagged(parameter, written), &[call("look", &arguments)]);
    }
}

#[test]
fn values_may_have_the_tags_that_end_them() {
    for value in [
        "<a>\n  </parameter> and </tool_call> too\n</a>",
        "</function>",
        "</parameter>\n</tool_call>",
        "<tool_call>",
        "<parameter=text>",
        "</parameter></function> and more",
        "\n</parameter>\n",
    ] {
        let arguments = json!({ "text": value }).to_string();
        check(Family::Functions, &tagged("text", value), &[call("look", &arguments)]);
        let json = json!({ "name": "find", "arguments": { "text": value } });
        let answer = format!("<tool_call>\n{json}\n</tool_call>\nSo.");
        check(Family::Json, &answer, &[call("find", &arguments), text("So.")]);
    }
    for (family, answer, value) in [
        (
            Family::Lfm2,
            "<|tool_call_start|>[find(text='<|tool_call_end|>')]<|tool_call_end|>",
            "<|tool_call_end|>",
        ),
        (Family::Gemma, "<|tool_call>call:find{text:<|\"|><tool_call|><|\"|>}<tool_call|>", "<tool_call|>"),
        (Family::MistralNames, "[TOOL_CALLS]find[ARGS]{\"text\": \"[TOOL_CALLS]\"}", "[TOOL_CALLS]"),
        (
            Family::Llama,
            "{\"name\": \"find\", \"parameters\": {\"text\": \"<|python_tag|>}\"}}",
            "<|python_tag|>}",
        ),
    ] {
        check(family, answer, &[call("find", &json!({ "text": value }).to_string())]);
    }
}

#[test]
fn calls_may_lack_tags() {
    let find = |n: u32| call("find", &json!({ "n": n }).to_string());
    let function = |n: u32| format!("<function=find>\n<parameter=n>\n{n}\n</parameter>\n</function>");
    for (answer, expected) in [
        // Without the opening one, and perhaps with the closing one.
        (format!("I look.\n\n{}\n</tool_call>", function(1)), &[text("I look."), find(1)][..]),
        (format!("{}\n{}\nSo.", function(1), function(2)), &[find(1), find(2), text("So.")]),
        // Several in one tag.
        (format!("<tool_call>\n{}\n{}\n</tool_call>", function(1), function(2)), &[find(1), find(2)]),
        // Without one in the middle.
        ("<tool_call>\n<function=find>\n<parameter=n>\n1\n</function>\n</tool_call>".to_owned(), &[find(1)]),
        ("<tool_call>\n<function=find>\n<parameter=n>\n1\n</parameter>\n</tool_call>".to_owned(), &[find(1)]),
        // The next parameter ends one that has no closing tag, and so has no other's name.
        (
            "<tool_call>\n<function=find>\n<parameter=text>\na\n<parameter=n>\n1\n</parameter>\n\
             </function>\n</tool_call>"
                .to_owned(),
            &[call("find", r#"{"text":"a","n":1}"#)],
        ),
        (
            "<tool_call>\n<function=find>\n<parameter=text>\na\n<parameter=m>\n1\n</parameter>\n\
             </function>\n</tool_call>"
                .to_owned(),
            &[call("find", r#"{"text":"a\n<parameter=m>\n1"}"#)],
        ),
        (
            format!(
                "<tool_call><function=find><parameter=n>1</parameter></tool_call>\n<tool_call>{}</tool_call>",
                function(2)
            ),
            &[find(1), find(2)],
        ),
    ] {
        check(Family::Functions, &answer, expected);
    }
    // Without its end, and with something behind it.
    check(Family::Functions, &format!("<tool_call>\n{}\nSo.", function(1)), &[find(1), text("So.")]);
    check(
        Family::Functions,
        &format!("<tool_call>{}\n<tool_call>{}</tool_call>", function(1), function(2)),
        &[find(1), find(2)],
    );
    let json = |n: u32| json!({ "name": "find", "arguments": { "n": n } });
    for (answer, expected) in [
        (format!("<tool_call>{}\nSo.", json(1)), &[find(1), text("So.")][..]),
        (format!("<tool_call>{}\n<tool_call>{}</tool_call>", json(1), json(2)), &[find(1), find(2)]),
        (format!("<tool_call>{}\n{}</tool_call>", json(1), json(2)), &[find(1), find(2)]),
        (format!("I look: {}\n</tool_call>", json(1)), &[text("I look:"), find(1)]),
        (format!("{{a}} {}", json(1)), &[text("{a}"), find(1)]),
    ] {
        check(Family::Json, &answer, expected);
    }
    for other in
        ["{\"name\": \"Ann\", \"arguments\": {}}", "{\"name\": \"find\", \"arguments\": 3} is", "{ \"na"]
    {
        check(Family::Json, other, &[text(other)]);
    }
    // What names no tool that was offered is a text about calls.
    for other in
        ["Write <function=NAME> and so on.", "<function=other>\n</function>", "<function=", "a <func"]
    {
        check(Family::Functions, other, &[text(other)]);
    }
}

#[test]
fn json_that_is_nearly_right_is_read() {
    for (json, arguments) in [
        ("{\"name\": \"find\", \"arguments\": {\"text\": \"a\nb\tc\"}}", r#"{"text":"a\nb\tc"}"#),
        ("{\"name\": \"find\", \"arguments\": null}", "{}"),
        ("{\"name\": \"find\", \"arguments\": \"\"}", "{}"),
        ("{\"name\": \"find\"}", "{}"),
        ("{\"name\": \"find\", \"arguments\": \"{\\\"n\\\": 3}\"}", r#"{"n":3}"#),
        ("{\"name\": \"find\", \"arguments\": {\"exact\": True, \"n\": 3,}}", r#"{"exact":true,"n":3}"#),
        ("{\"name\": \"find\", \"arguments\": {\"n\": 3}", r#"{"n":3}"#),
        ("{\"name\": \"find\", \"arguments\": {\"words\": [\"a\"", r#"{"words":["a"]}"#),
        ("{\"name\": \"find\", \"arguments\": {\"n\": 3}}}", r#"{"n":3}"#),
        ("{\"function\": {\"name\": \"find\", \"arguments\": {\"n\": 3}}}", r#"{"n":3}"#),
        ("{\"name\": \"functions.find\", \"arguments\": {\"n\": 3}}", r#"{"n":3}"#),
        (
            "{'name': 'find', 'arguments': {'text': 'a \"b\"', 'exact': True}}",
            r#"{"text":"a \"b\"","exact":true}"#,
        ),
        ("[{\"name\": \"find\", \"arguments\": {\"n\": 3}}]", r#"{"n":3}"#),
        (
            "{\"name\": \"find\", \"arguments\": {\"text\": \"\\ud83d\\ude00 \\' \n\"}}",
            "{\"text\":\"😀 ' \\n\"}",
        ),
        // Half a character, and another one behind it.
        (
            "{\"name\": \"find\", \"arguments\": {\"text\": \"\\ud83d \\ud83dx\"}}",
            "{\"text\":\"\u{fffd} \u{fffd}x\"}",
        ),
        ("```json\n{\"name\": \"find\", \"arguments\": {\"n\": 3}}\n```", r#"{"n":3}"#),
    ] {
        let answer = format!("<tool_call>\n{json}\n</tool_call>");
        check(Family::Json, &answer, &[call("find", arguments)]);
        check(Family::MistralList, &format!("[TOOL_CALLS]{json}"), &[call("find", arguments)]);
    }
    // An answer that was cut off has no call that is not complete.
    let mut cut = reader(Family::Json, true);
    let begun = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 3}";
    assert!(cut.push(begun).is_empty());
    assert!(cut.finish(true).iter().all(|part| matches!(part, Part::Text(_))));
}

#[test]
fn names_may_have_quotes_and_a_namespace() {
    for (family, answer) in [
        (
            Family::Functions,
            "<tool_call><function=\"find\"><parameter='n'>3</parameter></function></tool_call>",
        ),
        (Family::Functions, "<function=functions.find><parameter=n>3</parameter></function>"),
        (Family::MistralNames, "[TOOL_CALLS]\"find\"[ARGS]{\"n\": 3}"),
        (Family::Gemma, "<|tool_call>call:functions.find{n:3}<tool_call|>"),
        (Family::Harmony, "<|channel|>commentary to=find <|constrain|>json<|message|>{\"n\":3}"),
        (Family::Harmony, "<|channel|>commentary to=functions.find <|constrain|>json<|message|>{\"n\":3"),
        (Family::Llama, "{\"name\": \"functions.find\", \"parameters\": {\"n\": 3}}"),
    ] {
        check(family, answer, &[call("find", r#"{"n":3}"#)]);
    }
}

#[test]
fn values_in_the_notation_of_python_are_read() {
    let arguments = r#"{"text":"Rome","exact":true,"size":[800,600]}"#;
    check(
        Family::Lfm2,
        "<|tool_call_start|>[find(text=\"Rome\", exact=True, size=(800, 600))]<|tool_call_end|>",
        &[call("find", arguments)],
    );
    check(
        Family::Gemma,
        "<|tool_call>call:find{text:Rome,exact:True,size:[800,600]}<tool_call|>",
        &[call("find", arguments)],
    );
    check(
        Family::Lfm2,
        "<|tool_call_start|>[find(text='\\ud83d\\ude00', words=('a',), size=())]",
        &[call("find", "{\"text\":\"😀\",\"words\":[\"a\"],\"size\":[]}")],
    );
}

#[test]
fn llama_calls_after_prose() {
    let object = "{\"name\": \"find\", \"parameters\": {\"n\": 3}}";
    check(
        Family::Llama,
        &format!("Here {{it}} is: {object}\nSo."),
        &[text("Here {it} is:"), call("find", r#"{"n":3}"#), text("So.")],
    );
}

#[test]
fn calls_in_blocks_of_code_leave_no_fences() {
    for (family, key) in [(Family::Llama, "parameters"), (Family::Json, "arguments")] {
        let object = json!({ "name": "find", key: { "n": 3 } });
        check(
            family,
            &format!("Here:\n```json\n{object}\n```\nSo."),
            &[text("Here:"), call("find", r#"{"n":3}"#), text("So.")],
        );
        let code = "Code:\n```json\n{\"a\": 1}\n```\nSo.";
        check(family, code, &[text(code)]);
    }
}

/// Template that writes a call as its family does; those of LFM2 show what is written for them.
fn template_of(family: Family) -> &'static str {
    match family {
        Family::Json | Family::Generic => "<tool_call>\n{{ call | tojson }}\n</tool_call>",
        Family::Functions => {
            "<tool_call>\n<function={{ call.name }}>\n\
             {% for k, v in call.arguments | items %}<parameter={{ k }}>\n\
             {{ v if v is string else (v | tojson if v is mapping or v is iterable else v | string) }}\n\
             </parameter>\n{% endfor %}</function>\n</tool_call>"
        }
        Family::Lfm2 => "<|tool_call_start|>{{ python }}<|tool_call_end|>",
        Family::Gemma => {
            "{% macro value(v) %}{% if v is string %}{{ '<|\"|>' + v + '<|\"|>' }}{% elif v is boolean %}\
             {{ 'true' if v else 'false' }}{% elif v is none %}null{% elif v is mapping %}{{ '{' }}\
             {% for k, i in v | items %}{{ '<|\"|>' + k + '<|\"|>:' + value(i) }}{{ ',' if not loop.last }}\
             {% endfor %}{{ '}' }}{% elif v is iterable %}[{% for i in v %}{{ value(i) }}\
             {{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}\
             <|tool_call>call:{{ call.name }}{{ '{' }}\
             {% for k, v in call.arguments | items %}{{ k + ':' + value(v) }}{{ ',' if not loop.last }}\
             {% endfor %}{{ '}' }}<tool_call|>"
        }
        Family::MistralList => "[TOOL_CALLS] [{{ call | tojson }}]",
        Family::MistralNames => "[TOOL_CALLS]{{ call.name }}[ARGS]{{ call.arguments | tojson }}",
        Family::Llama => {
            "{{ '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{ call.arguments | tojson }}{{ '}' }}"
        }
        Family::Harmony => {
            "<|channel|>commentary to=functions.{{ call.name }} <|constrain|>json<|message|>\
             {{ call.arguments | tojson }}"
        }
    }
}

/// Arguments of the tool, with texts of all that may stand in a reader's way.
fn arguments() -> impl Strategy<Value = Value> {
    let value = hostile();
    let words = prop::collection::vec(hostile(), 0..3);
    let zip = prop::option::of(prop_oneof![hostile(), "[0-9]{1,6}"]);
    (value, any::<i32>(), any::<bool>(), zip, words, hostile()).prop_map(|(text, n, exact, zip, words, k)| {
        json!({
            "text": text, "n": n, "exact": exact, "zip": zip, "words": words, "more": { "k": [k, n, exact] }
        })
    })
}

/// Whether a text in arguments has what ends it in this family, so that nobody could tell.
fn ends_early(family: Family, arguments: &Value) -> bool {
    let all = arguments.to_string().replace("\\n", "\n");
    let has = |ends: &[&str]| ends.iter().any(|end| all.contains(end));
    match family {
        Family::Functions => {
            let ends = ["</function>", "<parameter=", "</tool_call>"];
            let behind = all.split("</parameter>").skip(1).map(str::trim_start);
            let closes = behind.into_iter().any(|next| ends.iter().any(|end| next.starts_with(end)));
            // The next parameter, as where a closing tag is missing: a text begins a line, too.
            let closes = closes || ["\n<parameter=", "\"<parameter="].iter().any(|next| all.contains(next));
            closes || matches!(arguments["zip"].as_str(), Some("null" | "None"))
        }
        Family::Gemma => has(&["<|\\\"|>"]),
        Family::Harmony => has(&["<|end|>", "<|start|>", "<|channel|>"]),
        _ => false,
    }
}

proptest! {
    /// A call that the template of a family writes is read as that call, however it comes.
    #[test]
    fn what_templates_write_is_read_back(
        family in prop::sample::select(&FAMILIES[..]),
        arguments in arguments(),
        n in 1_usize..40,
    ) {
        prop_assume!(!ends_early(family, &arguments));
        let template = hexflash::chat::ChatTemplate::new(template_of(family), "", "").unwrap();
        let called = json!({ "name": "look", "arguments": arguments });
        let python = python::written(&[json!({ "function": called })]);
        let options = hexflash::chat::RenderOptions::default().with("call", called).with("python", python);
        let written = template.render(&[], &options).unwrap();
        let parts = read(reader(family, true), pieces(&written, n));
        let [Part::Call(read)] = &parts[..] else { panic!("{written}: {parts:?}") };
        prop_assert_eq!(&read.name, "look");
        prop_assert_eq!(serde_json::from_str::<Value>(&read.arguments).unwrap(), arguments);
    }
}

#[test]
fn deep_and_long_blocks_end() {
    for (family, answer) in [
        (Family::Lfm2, format!("<|tool_call_start|>[find(n={})]", "[".repeat(100_000))),
        (Family::Gemma, format!("<|tool_call>call:find{{n:{}", "{a:".repeat(100_000))),
        (Family::Json, format!("<tool_call>{}", "[".repeat(100_000))),
        (Family::MistralList, format!("[TOOL_CALLS]{}", "[".repeat(100_000))),
        (Family::Llama, format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000))),
    ] {
        let parts = read(reader(family, true), pieces(&answer, 1000));
        assert_eq!(parts, [text(&answer)]);
    }
}
