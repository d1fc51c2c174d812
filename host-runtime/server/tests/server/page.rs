//! The page at `/`: its files, and what it does in a browser.
//!
//! The tests with a browser are for `cargo xtask test --only page`, which installs Chromium.

use std::sync::mpsc;
use std::time::Duration;

use hexflash::text::CHATML;

use crate::browser::{Browser, ENTER, ESCAPE, TAB};
use crate::pictures;
use crate::several;
use crate::support::{Drafter, Setup, TestServer, Value, json};

/// Opens a conversation whose answers have so many tokens, always the best.
fn open(server: &TestServer, tokens: usize) -> Browser {
    let browser = Browser::open(&format!("http://{}/", server.address));
    set(&browser, &json!({ "temperature": "0", "max_tokens": tokens.to_string() }));
    browser.until("!document.querySelector('#send').disabled");
    browser
}

fn set(browser: &Browser, settings: &Value) {
    let text = Value::from(settings.to_string());
    browser.eval(&format!("localStorage.setItem('hexflash.settings', {text})"));
}

/// Sends a message, and waits for the answer to end.
fn ask(browser: &Browser, text: &str) {
    browser.keys("#prompt", &format!("{text}{ENTER}"));
    browser.until("document.querySelector('.message.assistant')");
    browser.until("!document.querySelector('.running')");
}

/// What the conversation that is shown has as the content of its last message.
fn last_content(browser: &Browser) -> String {
    let shown = "JSON.parse(localStorage.getItem('hexflash.conversation.' + location.hash.slice(1)))";
    browser.text(&format!("(({{messages, leaf}}) => messages[leaf].content)({shown})"))
}

/// The content that the server gives without a browser.
fn expected(server: &TestServer, messages: &Value, tokens: usize) -> String {
    let body = json!({ "messages": messages, "temperature": 0, "max_tokens": tokens });
    let answer = server.post("/v1/chat/completions", &body).fine();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn said(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// A server whose answers take a while: some 100 tokens a second.
fn unhurried() -> TestServer {
    TestServer::start(Setup { drafter: Drafter::Unhurried, ..Setup::default() })
}

#[test]
fn the_files_of_the_page_ask_nobody_else() {
    let server = TestServer::shared();
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    // Whatever the page, its style or its scripts name is there.
    let mut files = vec![("".to_owned(), page.text)];
    let mut seen = 0;
    while let Some((name, text)) = files.pop() {
        seen += 1;
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        for line in text.lines() {
            let named = line
                .split_once("from \"./")
                .map(|(_, rest)| format!("{folder}/{rest}"))
                .or_else(|| line.split_once("=\"page/").map(|(_, rest)| format!("page/{rest}")));
            let Some(named) = named.and_then(|rest| Some(rest.split_once('"')?.0.to_owned())) else {
                continue;
            };
            let file = server.get(&format!("/{named}"));
            assert_eq!(file.status, 200, "{name} names {named}");
            if named.ends_with(".js") {
                assert_eq!(file.header("content-type"), Some("text/javascript; charset=utf-8"));
                if seen < 100 {
                    files.push((named, file.text));
                }
            }
        }
    }
    assert!(seen > 10, "{seen} files");
}

#[test]
fn a_server_may_have_no_page() {
    let mut setup = Setup::default();
    setup.options.page = false;
    let server = TestServer::start(setup);
    assert_eq!(server.get("/").error(), (404, "not_found_error".to_owned()));
    assert_eq!(server.get("/page/app.js").status, 404);
}

/// Every token says whether it was drafted, alone (in rounds on the device) and beside another text.
#[test]
fn streams_tell_which_tokens_were_drafted() {
    let asking = |text: &str| {
        json!({ "messages": [said("user", text)], "temperature": 0, "max_tokens": 90, "ignore_eos": true,
            "token_origins": true })
    };
    for drafter in [Drafter::Nobody, Drafter::NGrams, Drafter::Model] {
        let server = TestServer::start(Setup { drafter, ..Setup::default() });
        let check = |text: &str| {
            let mut body = asking(text);
            let whole = server.post("/v1/chat/completions", &body).fine();
            body["stream"] = true.into();
            let events = server.events("/v1/chat/completions", &body);
            let values: Vec<Value> =
                events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
            let origins: Vec<&Value> = values
                .iter()
                .filter_map(|event| event["choices"][0]["token_origins"].as_array())
                .flatten()
                .collect();
            let text: String = origins.iter().map(|token| token["token"].as_str().unwrap()).collect();
            assert_eq!(text, whole["choices"][0]["message"]["content"].as_str().unwrap());
            assert_eq!(whole["choices"][0]["token_origins"].as_array().unwrap().len(), 90);
            let timings = &values.iter().find(|event| event.get("timings").is_some()).unwrap()["timings"];
            let drafted = origins.iter().filter(|token| token["drafted"] == true).count() as u64;
            let rejected: u64 = origins.iter().map(|token| token["rejected"].as_u64().unwrap()).sum();
            let (verified, accepted) = (timings["draft_n"].as_u64(), timings["draft_n_accepted"].as_u64());
            assert_eq!(drafted, accepted.unwrap_or(0), "{drafter:?}");
            // Drafts after the end of the text were not rejected.
            let unused = verified.unwrap_or(0) - drafted - rejected;
            assert!(unused <= 5, "{drafter:?}: {verified:?} {drafted} {rejected}");
            assert_eq!(drafted > 10, drafter != Drafter::Nobody);
        };
        check("def push(");
        let check = &check;
        std::thread::scope(|scope| {
            for text in ["Hello", "import os"] {
                scope.spawn(move || check(text));
            }
        });
    }
    // Nobody is told who does not ask.
    let mut body = asking("Hello");
    body.as_object_mut().unwrap().remove("token_origins");
    let whole = TestServer::shared().post("/v1/chat/completions", &body).fine();
    assert!(whole["choices"][0].get("token_origins").is_none());
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn an_answer_is_sent_stopped_and_written_again() {
    let server = unhurried();
    let browser = open(&server, 200);
    browser.keys("#prompt", &format!("Hello{ENTER}"));
    browser.until("document.querySelector('.message.assistant .body').textContent.length > 20");
    browser.click("#stop");
    browser.until("document.querySelector('.assistant .footnote').textContent.includes('stopped')");
    server.wait_for_busy(0);
    let whole = expected(&server, &json!([said("user", "Hello")]), 200);
    let stopped = last_content(&browser);
    assert!(whole.starts_with(&stopped) && stopped.len() < whole.len(), "{stopped}");

    browser.click("[aria-label='Answer again']");
    browser.until("document.querySelector('.running')");
    browser.until("!document.querySelector('.running')");
    assert_eq!(last_content(&browser), whole);
    let code = "document.querySelector('.message.assistant pre code').textContent";
    assert!(browser.text(code).contains("This is a way to use"), "markdown is rendered");
    // The answer that was stopped is still there.
    browser.click("[aria-label='Earlier version']");
    assert_eq!(last_content(&browser), stopped);
    browser.press(ESCAPE);
    assert_eq!(server.metric("requests_processing"), 0.0);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn conversations_outlive_a_reload_and_messages_can_be_edited() {
    let server = TestServer::shared();
    let browser = open(server, 12);
    let (first, second) = ("import os", "use std::fmt;");
    ask(&browser, first);
    let one = last_content(&browser);
    assert_eq!(one, expected(server, &json!([said("user", first)]), 12));
    ask(&browser, "more");
    let messages = json!([said("user", first), said("assistant", &one), said("user", "more")]);
    assert_eq!(last_content(&browser), expected(server, &messages, 12), "the conversation goes on");

    browser.click("#new");
    browser.until("document.querySelectorAll('.message').length == 0");
    browser.keys("#files", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    browser.until("document.querySelector('#attached li').textContent.includes('Cargo.toml')");
    ask(&browser, second);
    browser.reload();
    browser.until("document.querySelectorAll('.message').length == 2");
    browser.until("document.querySelectorAll('#conversations li').length == 2");
    assert!(browser.text("document.querySelector('.message.user').innerText").contains("Cargo.toml"));
    browser.click("#conversations li:last-child .open");
    browser.until("document.querySelectorAll('.message').length == 4");

    // An edit of the first message is another version of all that follows.
    browser.eval("document.querySelector('[aria-label=\"Edit and send again\"]').click()");
    browser.press(&format!(" sys{ENTER}"));
    browser.until("document.querySelectorAll('.message').length == 2 && !document.querySelector('.running')");
    assert_eq!(last_content(&browser), expected(server, &json!([said("user", "import os sys")]), 12));
    browser.eval("document.querySelector('[aria-label=\"Earlier version\"]').click()");
    browser.until("document.querySelectorAll('.message').length == 4");

    browser.click("#conversations li.shown [aria-label^=Delete]");
    browser.until("document.querySelectorAll('#conversations li').length == 1");
    browser.click("#toast button");
    browser.until("document.querySelectorAll('.message').length == 4");
}

/// A small picture goes to the model as it is, a large one as what the browser has made of it, and both stay.
#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn pictures_are_shown_to_the_model_and_kept_with_the_conversation() {
    let server = TestServer::start(pictures::setup());
    let browser = open(&server, 8);
    let folder = tempfile::tempdir().unwrap();
    let attach = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        browser.keys("#files", path.to_str().unwrap());
    };
    attach("small.bmp", &pictures::bitmap(60, 40, 7));
    browser.until("document.querySelector('#attached img')?.alt == 'small.bmp'");
    ask(&browser, "What is it?");
    let url = format!("data:image/bmp;base64,{}", pictures::picture(7));
    let shown = json!({ "type": "image_url", "image_url": { "url": url } });
    let parts = json!([shown, { "type": "text", "text": "What is it?" }]);
    let messages = json!([{ "role": "user", "content": parts }]);
    assert_eq!(last_content(&browser), expected(&server, &messages, 8));
    browser.picture("pictures");
    browser.reload();
    browser.until("document.querySelector('.message.user img')?.naturalWidth == 60");

    browser.click("#new");
    attach("large.bmp", &pictures::bitmap(2000, 1000, 9));
    browser.until("document.querySelector('#attached img')?.naturalWidth == 1536");
    assert!(
        browser.text("document.querySelector('#attached img').src").starts_with("data:image/jpeg;base64,")
    );
    ask(&browser, "And this?");
    assert_eq!(browser.eval("document.querySelectorAll('.message .error').length"), 0);

    // A file that is none, dropped; and a picture for a model that takes none, pasted.
    let carried = "(() => { const all = new DataTransfer(); \
        all.items.add(new File(['BM?'], 'broken.bmp', { type: 'image/bmp' })); return all; })()";
    browser.eval(&format!(
        "dispatchEvent(new DragEvent('drop', {{ dataTransfer: {carried}, cancelable: true }}))"
    ));
    browser.until("document.querySelector('#toast').innerText.includes('broken.bmp is no picture')");
    let without = open(TestServer::shared(), 3);
    let pasted = format!("new ClipboardEvent('paste', {{ clipboardData: {carried} }})");
    without.eval(&format!("document.querySelector('#prompt').dispatchEvent({pasted})"));
    without.until("document.querySelector('#toast').innerText.includes('--mmproj')");
    assert_eq!(without.eval("document.querySelectorAll('#attached li').length"), 0);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn tokens_show_which_of_them_were_drafted() {
    let server = TestServer::start(Setup { drafter: Drafter::NGrams, ..Setup::default() });
    let browser = open(&server, 150);
    browser.click("#tokens");
    ask(&browser, "def push(");
    let tokens =
        browser.text("Array.from(document.querySelectorAll('.tokens .token'), t => t.textContent).join('')");
    assert!(tokens.contains(last_content(&browser).trim()), "{tokens}");
    let figures = browser.text("document.querySelector('.assistant .footnote').textContent");
    let drafted = browser.eval("document.querySelectorAll('.tokens .draft').length").as_u64().unwrap();
    assert!(drafted > 20 && figures.contains(&format!(" {drafted} of ")), "{drafted}, {figures}");
    assert_eq!(server.metric("spec_decode_num_accepted_tokens_total"), drafted as f64);
    browser.until("document.querySelector('#figures').innerText.includes('%')");
    browser.picture("tokens");
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn colours_follow_the_system_and_narrow_screens_have_room() {
    let server = TestServer::shared();
    let browser = open(server, 60);
    ask(&browser, "Hello");
    let lightness = || {
        let colour = browser.text("getComputedStyle(document.body).backgroundColor");
        let parts = colour.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
        parts.take(3).sum::<u32>()
    };
    browser.prefer("light");
    assert!(lightness() > 600);
    browser.picture("light");
    browser.prefer("dark");
    assert!(lightness() < 150);
    browser.picture("dark");
    // The setting wins over the system.
    browser.click("#open-settings");
    browser.eval(
        "(() => { const field = document.querySelector('[name=theme]'); field.value = 'light'; \
        field.dispatchEvent(new Event('input', { bubbles: true })); })()",
    );
    assert!(lightness() > 600);
    browser.press(ESCAPE);
    browser.until("!document.querySelector('dialog[open]')");

    browser.resize(360, 700);
    assert_eq!(browser.eval("document.documentElement.scrollWidth"), 360, "nothing is cut off");
    let is_seen = "getComputedStyle(document.querySelector('#sidebar')).visibility == 'visible'";
    browser.until(&format!("!({is_seen})"));
    browser.picture("narrow");
    browser.click("#open-sidebar");
    browser.until(is_seen);
    browser.press(ESCAPE);
    browser.until(&format!("!({is_seen}) && document.activeElement.id == 'open-sidebar'"));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn what_an_answer_says_asks_nobody_and_runs_nothing() {
    let browser = open(TestServer::shared(), 5);
    let evil = "![a](http://stranger.invalid/a.png) \
        <img src=http://stranger.invalid/b.png onerror='window.ran=1'>\n\
        <script>window.ran = 1</script><iframe src=http://stranger.invalid/c></iframe>\n\
        <style>@import url(http://stranger.invalid/d)</style>\n[x](javascript:window.ran=1) \
        [good](http://stranger.invalid/e)\n\n<svg><image href=http://stranger.invalid/f /></svg>";
    // What looks like that within code is code.
    let evil = format!("{evil}\n\n`vec![a](b)`");
    let message = json!({ "id": "m", "parent": null, "role": "assistant", "content": evil, "at": 1 });
    let conversation =
        json!({ "id": "c", "title": "c", "updated": 1, "leaf": "m", "messages": { "m": message } });
    let text = Value::from(conversation.to_string());
    browser.eval(&format!("localStorage.setItem('hexflash.conversation.c', {text})"));
    browser.eval("(location.hash = 'c')");
    browser.reload();
    browser.until("document.querySelector('.message a[href=\"http://stranger.invalid/e\"]')");
    assert_eq!(
        browser.eval("document.querySelectorAll('.message :is(img, script, iframe, style)').length"),
        0
    );
    assert_eq!(browser.eval("document.querySelectorAll('.message a[href^=javascript]').length"), 0);
    assert_eq!(browser.text("document.querySelector('.message code').textContent"), "vec![a](b)");
    assert_eq!(browser.text("document.querySelector('a[href$=\"a.png\"]').textContent"), "a");
    // Even a script of the page itself could not ask.
    browser.eval("fetch('http://stranger.invalid/g').catch(() => { window.refused = true }) && null");
    browser.until("window.refused");
    assert_eq!(browser.eval("window.ran"), Value::Null);
    let own = "performance.getEntriesByType('resource').every(({name}) => name.startsWith(location.origin))";
    assert_eq!(browser.eval(own), true);
    // Chromium asks its makers for this and that.
    let asked = || browser.strangers().into_iter().filter(|line| line.contains("stranger.invalid"));
    assert_eq!(asked().collect::<Vec<_>>(), [""; 0]);
    // The browser would have asked through the trap.
    browser.go("http://stranger.invalid/h");
    assert!(asked().any(|line| line.contains("stranger.invalid/h")));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn everything_that_has_the_focus_has_a_name_and_the_keyboard_reaches_it() {
    let browser = open(TestServer::shared(), 20);
    ask(&browser, "Hello");
    let tree = browser.emulate("Accessibility.getFullAXTree", &json!({}));
    let mut focusable = 0;
    for node in tree["nodes"].as_array().unwrap() {
        let is_focusable = node["properties"].as_array().is_some_and(|properties| {
            properties.iter().any(|it| it["name"] == "focusable" && it["value"]["value"] == true)
        });
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if is_focusable && ["button", "textbox", "link", "spinbutton", "combobox"].contains(&role) {
            focusable += 1;
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(!name.trim().is_empty(), "{node}");
        }
    }
    assert!(focusable > 8, "{focusable}");
    browser.eval("document.querySelector('.skip').focus()");
    let mut reached = Vec::new();
    for _ in 0..40 {
        reached.push(browser.text("document.activeElement.id || document.activeElement.className"));
        browser.press(TAB);
    }
    for id in ["new", "open-settings", "tokens", "prompt", "attach", "send"] {
        assert!(reached.iter().any(|it| it == id), "{id} is not in {reached:?}");
    }
    // What is going on is said, and not every piece of it.
    assert!(browser.text("document.querySelector('#status').textContent").starts_with("Answer: "));
    assert_eq!(browser.text("document.querySelector('#messages').ariaLive"), "off");
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn a_key_is_asked_for_and_a_loading_model_is_waited_for() {
    let mut setup = Setup::default();
    setup.options.api_keys = vec!["secret".to_owned()];
    let (go, wait) = mpsc::channel::<()>();
    let server = TestServer::start_late(setup, wait);
    let browser = Browser::open(&format!("http://{}/", server.address));
    browser.until("document.querySelector('#key').open");
    browser.keys("#key input", &format!("wrong{ENTER}"));
    browser.until("document.querySelector('#key').open && !document.querySelector('#key-wrong').hidden");
    browser.keys("#key input", &format!("secret{ENTER}"));
    browser.until("document.querySelector('#model').textContent.includes('being loaded')");
    assert_eq!(browser.eval("document.querySelector('#send').disabled"), true);
    go.send(()).unwrap();
    browser.until("!document.querySelector('#send').disabled");
    set(&browser, &json!({ "max_tokens": "3" }));
    ask(&browser, "Hello");
    assert_eq!(browser.eval("document.querySelectorAll('.message .error').length"), 0);
    // The server ends: the page says so, and keeps what there is.
    drop(server);
    std::thread::sleep(Duration::from_millis(10));
    ask(&browser, "Hello again");
    browser.until("document.querySelector('.message .error').textContent.includes('cannot be reached')");
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn one_of_several_models_is_chosen() {
    let (server, _) = several::start(1);
    let browser = open(&server, 8);
    let names = "[...document.querySelectorAll('#models option')].map((one) => one.value).join()";
    assert_eq!(browser.text(names), "half,eight,four,gone");
    let answers = |model: &str, messages: &Value| {
        let body = json!({ "model": model, "messages": messages, "temperature": 0, "max_tokens": 8 });
        let answer = server.post("/v1/chat/completions", &body).fine();
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    // The first one, as none was loaded.
    ask(&browser, "Hello");
    let first = last_content(&browser);
    assert_eq!(first, answers("half", &json!([said("user", "Hello")])));

    let choose = |name: &str| {
        let list = "document.querySelector('#models')";
        browser.eval(&format!("(({list}.value = '{name}'), {list}.dispatchEvent(new Event('change')))"));
    };
    choose("four");
    browser.until("document.querySelector('#model').textContent === 'four'");
    browser.until("!document.querySelector('#send').disabled");
    browser.keys("#prompt", &format!("Go on{ENTER}"));
    browser.until("document.querySelectorAll('.message.assistant').length === 2");
    browser.until("!document.querySelector('.running')");
    let messages = json!([said("user", "Hello"), said("assistant", &first), said("user", "Go on")]);
    assert_eq!(last_content(&browser), answers("four", &messages));
    // A model that cannot be loaded is told of, and another one can be chosen. The choice outlives a reload.
    choose("gone");
    browser.until("document.querySelector('#model').textContent.includes('cannot be loaded')");
    choose("eight");
    browser.until("document.querySelector('#model').textContent === 'eight'");
    browser.reload();
    browser.until("document.querySelector('#model').textContent === 'eight'");
    assert_eq!(browser.text("document.querySelector('#models').value"), "eight");
}

#[test]
#[ignore = "needs Chromium: cargo xtask test --only page"]
fn thoughts_are_folded() {
    // The template opens thoughts, which this model never ends.
    let template = format!("{CHATML}{{#- </think> #}}<think>\n");
    let setup = Setup { template: template.leak(), ..Setup::default() };
    let server = TestServer::start(setup);
    let browser = open(&server, 20);
    ask(&browser, "def push(");
    assert_eq!(browser.eval("document.querySelector('.thoughts').open"), false);
    browser.click(".thoughts summary");
    browser.until("document.querySelector('.thoughts').open");
    assert_eq!(last_content(&browser), "");
}
