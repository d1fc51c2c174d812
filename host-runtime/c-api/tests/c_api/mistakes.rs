//! Mistakes of programs: each is a code and a text, and none is a crash.

use std::ptr::{null, null_mut};

use hexflash_c::{
    HEXFLASH_ABI_VERSION, HEXFLASH_ERROR_INPUT, Status, hexflash_cancel, hexflash_chat, hexflash_close,
    hexflash_conversation_add, hexflash_conversation_load, hexflash_conversation_messages,
    hexflash_conversation_new, hexflash_conversation_say, hexflash_conversation_undo, hexflash_figures,
    hexflash_fits, hexflash_free_conversation, hexflash_free_generation, hexflash_free_text,
    hexflash_generate, hexflash_model_info, hexflash_next, hexflash_open, hexflash_run,
};

use super::support::{
    GREEDY, c, conversation, figures, generate, last, made, model_path, next, open, open_file,
};

#[test]
fn a_file_that_is_missing_is_named() {
    let (code, text) = open_file("none.gguf", GREEDY).map(drop).unwrap_err();
    assert_eq!(code, HEXFLASH_ERROR_INPUT);
    assert!(text.starts_with("none.gguf") && !text.contains('\n'), "{text}");
    let (code, text) = open(r#"{"draft": "none.gguf"}"#).map(drop).unwrap_err();
    assert!(code == HEXFLASH_ERROR_INPUT && text.starts_with("none.gguf"), "{text}");
}

#[test]
fn another_version_of_the_functions_is_refused() {
    let path = c(&model_path());
    let open = |abi| {
        // SAFETY: the path is a text of this function.
        made(|place| unsafe { hexflash_open(abi, path.as_ptr(), null(), place) })
    };
    let (code, text) = open(HEXFLASH_ABI_VERSION + 1).map(drop).unwrap_err();
    assert!(code == HEXFLASH_ERROR_INPUT && text.contains("hexflash.h of this library"), "{text}");
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    for (options, part) in [
        ("{", "options is no JSON"),
        (r#"{"contxt": 1}"#, "\"contxt\""),
        (r#"{"context": 100000000}"#, "context length"),
        (r#"{"device": "gpu"}"#, "gpu"),
        (r#"{"sequences": 0}"#, "sequences"),
        (r#"{"top_p": 2}"#, "top_p"),
    ] {
        let (code, text) = open(options).map(drop).unwrap_err();
        assert!(code == HEXFLASH_ERROR_INPUT && text.contains(part), "{options}: {text}");
    }
    let model = open(GREEDY).unwrap();
    for (prompt, request, part) in
        [("a", "[]", "request must be"), ("a", r#"{"n": 1}"#, "\"n\""), ("a", r#"{"min_p": 9}"#, "min_p")]
    {
        let (code, text) = generate(&model, prompt, request).map(drop).unwrap_err();
        assert!(code == HEXFLASH_ERROR_INPUT && text.contains(part), "{request}: {text}");
    }
    hexflash_close(Some(model));
}

#[test]
fn a_prompt_that_does_not_fit_ends_its_text_and_no_other() {
    let model = open(r#"{"context": 16, "temperature": 0}"#).unwrap();
    for prompt in ["fn main() { let a = 1; let b = 2; let c = 3; let d = 4; let e = 5; }", ""] {
        let text = generate(&model, prompt, "").unwrap();
        let (code, why) = next(&text).unwrap_err();
        assert_eq!(code, HEXFLASH_ERROR_INPUT, "{why}");
        assert_eq!(next(&text).unwrap(), None);
        assert_eq!(figures(&text)["tokens"].as_array().unwrap().len(), 0);
        hexflash_free_generation(Some(text));
    }
    let text = generate(&model, "fn", "").unwrap();
    assert!(next(&text).unwrap().is_some());
    hexflash_free_generation(Some(text));
    hexflash_close(Some(model));
}

/// Checks that a call was refused over an argument, which the last failure names.
fn refused(name: &str, status: Status) {
    assert_eq!(status, HEXFLASH_ERROR_INPUT, "{name}");
    assert_eq!(last(), (status, format!("the argument {name} is NULL; give one")));
}

#[test]
fn null_is_an_error_where_something_must_be_there() {
    let model = open(GREEDY).unwrap();
    let text = generate(&model, "fn", r#"{"max_tokens": 1}"#).unwrap();
    let talk = conversation(&model, "").unwrap();
    let a = c("a");
    let (a, list) = (a.as_ptr(), c("[]"));
    let (m, g, t) = (Some(&*model), Some(&*text), Some(&*talk));
    // SAFETY: texts are null or such of this function, and handles are open.
    unsafe {
        let mut made = std::mem::MaybeUninit::uninit();
        let mut begun = std::mem::MaybeUninit::uninit();
        let mut json = std::mem::MaybeUninit::uninit();
        let mut talk = std::mem::MaybeUninit::uninit();
        let mut piece = std::mem::MaybeUninit::uninit();
        refused("path", hexflash_open(HEXFLASH_ABI_VERSION, null(), null(), Some(&mut made)));
        refused("model", hexflash_open(HEXFLASH_ABI_VERSION, a, null(), None));
        refused("model", hexflash_model_info(None, Some(&mut json)));
        refused("json", hexflash_model_info(m, None));
        refused("model", hexflash_generate(None, a, null(), Some(&mut begun)));
        refused("prompt", hexflash_generate(m, null(), null(), Some(&mut begun)));
        refused("generation", hexflash_generate(m, a, null(), None));
        refused("model", hexflash_chat(None, list.as_ptr(), null(), Some(&mut begun)));
        refused("messages", hexflash_chat(m, null(), null(), Some(&mut begun)));
        refused("generation", hexflash_chat(m, list.as_ptr(), null(), None));
        refused("generation", hexflash_next(None, Some(&mut piece), None));
        refused("text", hexflash_next(g, None, None));
        refused("on_text", hexflash_run(g, None, null_mut()));
        refused("generation", hexflash_figures(None, Some(&mut json)));
        refused("json", hexflash_figures(g, None));
        refused("model", hexflash_conversation_new(None, null(), Some(&mut talk)));
        refused("conversation", hexflash_conversation_new(m, null(), None));
        refused("conversation", hexflash_conversation_add(None, a, a));
        refused("role", hexflash_conversation_add(t, null(), a));
        refused("content", hexflash_conversation_add(t, a, null()));
        refused("conversation", hexflash_conversation_say(None, a, null(), Some(&mut begun)));
        refused("content", hexflash_conversation_say(t, null(), null(), Some(&mut begun)));
        refused("generation", hexflash_conversation_say(t, a, null(), None));
        refused("conversation", hexflash_conversation_undo(None, None));
        refused("conversation", hexflash_conversation_messages(None, Some(&mut json)));
        refused("json", hexflash_conversation_messages(t, None));
        refused("conversation", hexflash_conversation_load(None, list.as_ptr()));
        refused("messages", hexflash_conversation_load(t, null()));
        refused("path", hexflash_fits(null(), null(), null(), Some(&mut json)));
        refused("json", hexflash_fits(a, null(), null(), None));
        // What is freed or cancelled may be null.
        hexflash_free_text(null_mut());
    }
    hexflash_close(None);
    hexflash_free_generation(None);
    hexflash_free_conversation(None);
    hexflash_cancel(None);
    hexflash_free_conversation(Some(talk));
    hexflash_free_generation(Some(text));
    hexflash_close(Some(model));
}
