//! Texts: pieces, callbacks, the end by another thread, several at once.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use hexflash_c::{
    HEXFLASH_ABI_VERSION, HEXFLASH_END, HEXFLASH_ERROR_INPUT, HEXFLASH_LOG_DEBUG, HEXFLASH_LOG_OFF,
    HEXFLASH_OK, HexflashGeneration, hexflash_abi_version, hexflash_cancel, hexflash_chat, hexflash_close,
    hexflash_fits, hexflash_free_generation, hexflash_model_info, hexflash_run, hexflash_set_log,
    hexflash_version,
};

use super::support::{
    EXPECTED, GREEDY, PROMPT, TOKENS, c, figures, generate, json, made, model_path, next, open, rest,
};

fn request() -> String {
    format!(r#"{{"max_tokens": {TOKENS}}}"#)
}

#[test]
fn pieces_make_the_librarys_text_and_a_second_one_is_the_same() {
    let model = open(GREEDY).unwrap();
    for _ in 0..2 {
        let text = generate(&model, PROMPT, &request()).unwrap();
        assert_eq!(figures(&text)["finish_reason"], serde_json::Value::Null);
        let first = next(&text).unwrap().unwrap();
        assert_eq!(figures(&text)["text"], first);
        assert_eq!(first + &rest(&text), *EXPECTED);
        let all = figures(&text);
        assert_eq!((&all["text"], &all["finish_reason"]), (&EXPECTED.as_str().into(), &"length".into()));
        assert_eq!(all["tokens"].as_array().unwrap().len(), TOKENS);
        assert_eq!(all["stats"]["generated_tokens"], TOKENS);
        assert_eq!(next(&text).unwrap(), None);
        hexflash_free_generation(Some(text));
    }
    // The sampling of a request goes before that of the model.
    let drawn = generate(&model, PROMPT, r#"{"max_tokens": 48, "temperature": 2, "seed": 1}"#).unwrap();
    assert_ne!(rest(&drawn), *EXPECTED);
    hexflash_free_generation(Some(drawn));
    hexflash_close(Some(model));
}

#[test]
fn drafts_do_not_change_a_text() {
    let options = r#"{"context": 512, "temperature": 0, "drafts": "ngrams"}"#;
    let model = open(options).unwrap();
    let text = generate(&model, PROMPT, &request()).unwrap();
    assert_eq!(rest(&text), *EXPECTED);
    assert!(figures(&text)["stats"]["speculation"].is_object());
    hexflash_free_generation(Some(text));
    hexflash_close(Some(model));
}

/// Text that a callback has got so far, and the number of pieces after which it wants no more.
#[derive(Default)]
struct Got {
    text: String,
    pieces: usize,
    most: usize,
}

extern "C" fn on_text(text: *const c_char, length: usize, user_data: *mut c_void) -> c_int {
    // SAFETY: it is the `Got` of the test, which nobody else uses meanwhile.
    let got = unsafe { &mut *user_data.cast::<Got>() };
    // SAFETY: the library gives so many bytes, and a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(text.to_bytes().len(), length);
    got.text += text.to_str().unwrap();
    got.pieces += 1;
    c_int::from(got.pieces == got.most)
}

#[test]
fn a_callback_gets_the_text_and_can_end_it() {
    let model = open(GREEDY).unwrap();
    let run = |most| {
        let mut got = Got { most, ..Got::default() };
        let text = generate(&model, PROMPT, &request()).unwrap();
        let status = hexflash_run(Some(&text), Some(on_text), (&raw mut got).cast());
        assert_eq!(status, HEXFLASH_END);
        let reason = figures(&text)["finish_reason"].clone();
        hexflash_free_generation(Some(text));
        (got, reason)
    };
    let (all, reason) = run(0);
    assert_eq!((all.text.as_str(), reason), (EXPECTED.as_str(), "length".into()));
    let (some, reason) = run(3);
    assert_eq!((some.pieces, reason), (3, "interrupted".into()));
    assert!(EXPECTED.starts_with(&some.text));
    hexflash_close(Some(model));
}

#[test]
fn another_thread_ends_a_text() {
    let model = open(GREEDY).unwrap();
    let text = generate(&model, PROMPT, r#"{"ignore_eos": true}"#).unwrap();
    let (has_cancelled, cancelled) = channel();
    let read = std::thread::scope(|scope| {
        let text = &text;
        let reader = scope.spawn(move || {
            // The end comes while these are waited for, or after them: before the context is full.
            let first: String = (0..4).filter_map(|_| next(text).unwrap()).collect();
            cancelled.recv().unwrap();
            first + &rest(text)
        });
        hexflash_cancel(Some(text));
        has_cancelled.send(()).unwrap();
        reader.join().unwrap()
    });
    let figures = figures(&text);
    assert_eq!(figures["finish_reason"], "interrupted");
    assert_eq!(figures["text"], read);
    hexflash_cancel(Some(&text));
    hexflash_free_generation(Some(text));
    // The sequence is free, and writes the text that it would have written.
    let again = generate(&model, PROMPT, &request()).unwrap();
    assert_eq!(rest(&again), *EXPECTED);
    hexflash_free_generation(Some(again));
    hexflash_close(Some(model));
}

extern "C" fn uses_itself(_: *const c_char, _: usize, user_data: *mut c_void) -> c_int {
    // SAFETY: it is the generation of the test.
    let text = unsafe { &*user_data.cast::<HexflashGeneration>() };
    let failed = next(text).unwrap_err();
    assert_eq!(failed.0, HEXFLASH_ERROR_INPUT);
    assert!(failed.1.contains("another call uses this generation"), "{}", failed.1);
    1
}

#[test]
fn one_call_at_a_time_uses_a_generation() {
    let model = open(GREEDY).unwrap();
    let text = generate(&model, PROMPT, &request()).unwrap();
    let user_data = (&raw const *text).cast_mut().cast();
    assert_eq!(hexflash_run(Some(&text), Some(uses_itself), user_data), HEXFLASH_END);
    hexflash_free_generation(Some(text));
    hexflash_close(Some(model));
}

#[test]
fn sequences_have_texts_at_the_same_time_and_outlive_the_model() {
    let model = open(r#"{"context": 512, "temperature": 0, "sequences": 2}"#).unwrap();
    let texts = [(); 2].map(|()| generate(&model, PROMPT, &request()).unwrap());
    let (code, text) = generate(&model, PROMPT, &request()).map(drop).unwrap_err();
    assert_eq!(code, HEXFLASH_ERROR_INPUT);
    assert!(text.contains("all 2 sequences") && text.contains("\"sequences\""), "{text}");
    hexflash_close(Some(model));
    std::thread::scope(|scope| {
        for text in &texts {
            scope.spawn(|| assert_eq!(rest(text), *EXPECTED));
        }
    });
    texts.into_iter().for_each(|text| hexflash_free_generation(Some(text)));
}

#[test]
fn messages_are_rendered_by_a_template() {
    let model = open(GREEDY).unwrap();
    let chat = |messages: &str, request: &str| {
        let (messages, request) = (c(messages), c(request));
        // SAFETY: both are texts of this function.
        made(|place| unsafe { hexflash_chat(Some(&model), messages.as_ptr(), request.as_ptr(), place) })
    };
    let messages = r#"[{"role": "user", "content": "Push to a vector?"}]"#;
    let (code, text) = chat(messages, "").map(drop).unwrap_err();
    assert!(code == HEXFLASH_ERROR_INPUT && text.contains("no chat template of its own"), "{text}");
    // Tools are what a template is given under that name.
    let template = "{{ messages[0].content }}{{ tools[0].name }}{{ more }}";
    let request = format!(
        r#"{{"max_tokens": 8, "chat_template": "{template}", "tools": [{{"name": "T"}}],
            "chat_template_kwargs": {{"more": "M"}}}}"#
    );
    let rendered = chat(messages, &request).unwrap();
    let plain = rest(&rendered);
    hexflash_free_generation(Some(rendered));
    let same = generate(&model, "Push to a vector?TM", r#"{"max_tokens": 8}"#).unwrap();
    assert_eq!(rest(&same), plain);
    hexflash_free_generation(Some(same));
    hexflash_close(Some(model));
}

#[test]
fn versions_a_model_and_how_it_fits_are_told() {
    assert_eq!(hexflash_abi_version(), HEXFLASH_ABI_VERSION);
    // SAFETY: the text is good for ever.
    let version = unsafe { CStr::from_ptr(hexflash_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));

    let model = open(GREEDY).unwrap();
    let info = json(|place| hexflash_model_info(Some(&model), place)).unwrap();
    assert_eq!((&info["context"], &info["sequences"]), (&512.into(), &1.into()));
    assert_eq!((&info["device"]["name"], &info["has_chat_template"]), (&"inproc".into(), &false.into()));
    assert!(info["memory"]["weights"].as_u64().unwrap() > 100_000, "{info}");
    hexflash_close(Some(model));

    let fits = |chip: Option<&str>| {
        let (path, chip) = (c(&model_path()), chip.map(c));
        let chip = chip.as_ref().map_or(std::ptr::null(), |chip| chip.as_ptr());
        // SAFETY: all are null or texts of this function.
        json(|place| unsafe { hexflash_fits(path.as_ptr(), std::ptr::null(), chip, place) })
    };
    assert_eq!(fits(None).unwrap()["chips"].as_array().unwrap().len(), 6);
    let one = fits(Some("SM8550")).unwrap();
    assert_eq!((&one["chips"][0]["chip"], &one["chips"][0]["sessions"]), (&"v73".into(), &1.into()));
    assert_eq!(one["chips"].as_array().unwrap().len(), 1);
    assert!(fits(Some("MT6985")).unwrap_err().1.contains("is not known"));
}

/// Lines of the log.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn on_line(level: c_int, line: *const c_char, user_data: *mut c_void) {
    assert!((1..=HEXFLASH_LOG_DEBUG).contains(&level) && user_data.is_null());
    // SAFETY: the library gives a text that is good until this function returns.
    let line = unsafe { CStr::from_ptr(line) }.to_str().unwrap();
    LINES.lock().unwrap().push(line.to_owned());
}

#[test]
fn the_log_goes_to_a_function_until_it_is_turned_off() {
    let none = std::ptr::null_mut();
    assert_eq!(hexflash_set_log(HEXFLASH_LOG_DEBUG, Some(on_line), none), HEXFLASH_OK);
    // A folder for weights that cannot be made is worth a warning.
    let blocked = tempfile::NamedTempFile::new().unwrap();
    let options = format!(r#"{{"context": 64, "weights_cache_dir": {:?}}}"#, blocked.path().join("folder"));
    hexflash_close(Some(open(&options).unwrap()));
    assert_eq!(hexflash_set_log(HEXFLASH_LOG_OFF, None, none), HEXFLASH_OK);
    let lines = std::mem::take(&mut *LINES.lock().unwrap());
    let is_warning = |line: &String| line.contains("no weight cache") && !line.contains('\n');
    assert!(lines.iter().any(is_warning), "{lines:?}");
    hexflash_close(Some(open(&options).unwrap()));
    assert!(LINES.lock().unwrap().is_empty());
    assert_eq!(hexflash_set_log(9, Some(on_line), none), HEXFLASH_ERROR_INPUT);
    assert_eq!(hexflash_set_log(HEXFLASH_LOG_DEBUG, None, none), HEXFLASH_ERROR_INPUT);
}
