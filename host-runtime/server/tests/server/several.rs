//! Servers with several models, of which few are loaded at once.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hexflash_e2e::Model;
use hexflash_server::{Listed, Models, Served};

use super::support::{Options, Reply, Setup, TestServer, Value, json, load_named};

/// Hybrids in three formats: each writes other texts.
const MODELS: [(&str, Model); 3] = [("half", Model::F16), ("eight", Model::Q8_0), ("four", Model::Q4_0)];
const PROMPT: &str = "def push(self, item):";

/// Record of what the models of a test have been through.
#[derive(Default)]
pub struct Journal {
    loads: AtomicUsize,
    /// Models that are loaded, and the most that ever were.
    loaded: Mutex<(usize, usize)>,
}

fn listed(name: &str, model: Model) -> Listed {
    let path = model.path();
    Listed { name: name.to_owned(), bytes: fs::metadata(&path).unwrap().len(), path }
}

/// Counts a model as long as its drafts can be asked for, which is as long as it is loaded.
struct Counted(Arc<Journal>);

impl Counted {
    fn new(journal: &Arc<Journal>) -> Self {
        journal.loads.fetch_add(1, Ordering::SeqCst);
        let mut loaded = journal.loaded.lock().unwrap();
        *loaded = (loaded.0 + 1, loaded.1.max(loaded.0 + 1));
        Self(Arc::clone(journal))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.loaded.lock().unwrap().0 -= 1;
    }
}

fn models(most: usize, journal: &Arc<Journal>) -> Models<hexflash::Error> {
    let mut all: Vec<_> = MODELS.iter().map(|(name, model)| listed(name, *model)).collect();
    all.push(Listed { name: "gone".to_owned(), path: "/no/such/model.gguf".into(), bytes: 1 });
    let journal = Arc::clone(journal);
    Models {
        listed: all,
        most,
        autoload: true,
        check: Box::new(|one| hexflash::gguf::Gguf::open(&one.path).map(drop).map_err(Into::into)),
        load: Box::new(move |one, _| {
            let setup = Setup { model: Some(one.path.clone()), parallel: 2, ..Setup::default() };
            let Served { card, work } = load_named(&setup, &one.name)?;
            let counted = Counted::new(&journal);
            let hexflash_server::Work::Texts { engine, drafts } = work else { unreachable!() };
            let drafts = move || {
                let _ = &counted;
                drafts()
            };
            Ok(Served::texts(card, engine, drafts))
        }),
    }
}

pub fn start(most: usize) -> (TestServer, Arc<Journal>) {
    start_with(Setup::default().options, most)
}

fn start_with(options: Options, most: usize) -> (TestServer, Arc<Journal>) {
    let journal = Arc::new(Journal::default());
    (TestServer::start_several(options, models(most, &journal)), journal)
}

fn completion(model: &str) -> Value {
    json!({ "model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0 })
}

fn text(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["choices"][0]["text"].as_str().unwrap().to_owned()
}

/// The text of each model, by a server that has it alone.
fn alone(model: Model) -> String {
    let server = TestServer::start(Setup { model: Some(model.path()), ..Setup::default() });
    text(&server.post("/v1/completions", &completion("any")))
}

fn status(server: &TestServer, name: &str) -> String {
    let reply = server.get(&format!("/models/{name}"));
    reply.json()["status"]["value"].as_str().unwrap().to_owned()
}

fn wait_for(server: &TestServer, name: &str, wanted: &str) {
    let start = Instant::now();
    while status(server, name) != wanted {
        assert!(start.elapsed() < Duration::from_secs(60), "{name} is not {wanted}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_request_is_answered_by_the_model_that_it_names() {
    let (server, journal) = start(1);
    assert_eq!(server.get("/health").status, 200);
    let listed = server.get("/v1/models").json();
    let names: Vec<_> = listed["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(names, ["half", "eight", "four", "gone"]);
    assert!(listed["data"].as_array().unwrap().iter().all(|one| one["status"]["value"] == "unloaded"));
    for (name, model) in MODELS {
        let reply = server.post("/v1/completions", &completion(name));
        assert_eq!(text(&reply), alone(model), "{name}");
        assert_eq!(reply.json()["model"], name);
        assert_eq!(status(&server, name), "loaded");
        assert_eq!(server.get(&format!("/props?model={name}")).json()["model_alias"], name);
    }
    // The last one is there still, and its file's name will do.
    text(&server.post("/v1/completions", &completion("four.gguf")));
    assert_eq!(journal.loads.load(Ordering::SeqCst), 3);
    assert_eq!(*journal.loaded.lock().unwrap(), (1, 1), "one at a time");
    assert_eq!(status(&server, "half"), "unloaded");
    let ollama = server.get("/api/ps").json();
    assert_eq!(ollama["models"][0]["name"], "four");
    assert_eq!(server.get("/api/tags").json()["models"].as_array().unwrap().len(), 4);
}

#[test]
fn as_many_stay_as_may_be_loaded_at_once() {
    let (server, journal) = start(2);
    for name in ["half", "eight", "half", "eight", "four", "eight", "four"] {
        text(&server.post("/v1/completions", &completion(name)));
    }
    // half was not asked for the longest, and gave way.
    assert_eq!(journal.loads.load(Ordering::SeqCst), 3);
    assert_eq!(*journal.loaded.lock().unwrap(), (2, 2));
    assert_eq!([status(&server, "half"), status(&server, "four")], ["unloaded", "loaded"]);
}

#[test]
fn clients_of_two_models_are_all_answered_rightly() {
    let expected = [alone(Model::F16), alone(Model::Q8_0)];
    let (server, journal) = start(1);
    let answers = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in 0..8 {
            let (server, expected, answers) = (&server, &expected, &answers);
            scope.spawn(move || {
                for i in 0..6 {
                    let which = (client + i / 2) % 2;
                    let mut body = completion(MODELS[which].0);
                    if i % 3 == 2 {
                        body["stream"] = true.into();
                        let events = server.events("/v1/completions", &body);
                        let piece = |event: &String| {
                            let event: Value = serde_json::from_str(event).ok()?;
                            Some(event["choices"][0]["text"].as_str()?.to_owned())
                        };
                        let all: String = events.iter().filter_map(piece).collect();
                        assert_eq!(all, expected[which], "client {client}, request {i}");
                    } else {
                        let reply = server.post("/v1/completions", &body);
                        assert_eq!(text(&reply), expected[which], "client {client}, request {i}");
                    }
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(answers.into_inner(), 48);
    assert_eq!(journal.loaded.lock().unwrap().1, 1, "never two at once");
    let loads = journal.loads.load(Ordering::SeqCst);
    assert!((2..=24).contains(&loads), "{loads} loads for 48 requests");
}

#[test]
fn an_answer_under_way_is_ended_before_its_model_goes() {
    let (server, _) = start(1);
    let long = json!({
        "model": "half", "prompt": PROMPT, "max_tokens": 150, "temperature": 0, "ignore_eos": true,
    });
    thread::scope(|scope| {
        let first = scope.spawn(|| server.post("/v1/completions", &long));
        wait_for(&server, "half", "loaded");
        text(&server.post("/v1/completions", &completion("eight")));
        let reply = first.join().unwrap();
        assert_eq!(reply.json()["usage"]["completion_tokens"], 150, "{reply:?}");
    });
}

#[test]
fn a_model_that_cannot_be_loaded_sends_nobody_away() {
    let (server, journal) = start(1);
    text(&server.post("/v1/completions", &completion("half")));
    let reply = server.post("/v1/completions", &completion("gone"));
    assert_eq!(reply.status, 500);
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("\"gone\" cannot be loaded") && message.contains("model.gguf"), "{message}");
    assert_eq!((status(&server, "half").as_str(), journal.loads.load(Ordering::SeqCst)), ("loaded", 1));
}

#[test]
fn requests_that_name_no_model_or_a_strange_one_are_told_which_there_are() {
    let (server, _) = start(1);
    let reply = server.post("/v1/completions", &completion("huge"));
    assert_eq!(reply.status, 404);
    assert!(reply.text.contains("half, eight, four, gone"), "{reply:?}");
    assert_eq!(server.get("/v1/models/huge").status, 404);
    let nameless = json!({ "prompt": PROMPT, "max_tokens": 2 });
    let reply = server.post("/v1/completions", &nameless);
    assert_eq!((reply.status, reply.json()["error"]["param"].clone()), (400, "model".into()));
    assert_eq!(server.get("/props").json()["role"], "router");
    assert_eq!(server.get("/slots").status, 400);
    // Nothing of this has loaded a model. One that is alone is meant by those that name none.
    assert!(MODELS.iter().all(|(name, _)| status(&server, name) == "unloaded"));
    text(&server.post("/v1/completions", &completion("four")));
    assert_eq!(server.post("/v1/completions", &nameless).status, 200);
    assert_eq!(server.get("/props").json()["model_alias"], "four");
    for (method, path, status) in [
        ("GET", "/models/load", 405),
        ("POST", "/models", 405),
        ("GET", "/v1/completions", 405),
        ("GET", "/x", 404),
    ] {
        assert_eq!(server.request(method, path, &[], "{}").status, status, "{method} {path}");
    }
    assert_eq!(server.request("POST", "/v1/completions", &[], "no JSON").status, 400);
}

#[test]
fn models_are_loaded_and_unloaded_on_wish() {
    let (server, _) = start(1);
    let name = json!({ "model": "eight" });
    assert_eq!(server.post("/models/unload", &name).status, 400, "it is not loaded");
    assert_eq!(server.post("/models/load", &name).json(), json!({ "success": true }));
    wait_for(&server, "eight", "loaded");
    assert_eq!(server.post("/models/unload", &name).json(), json!({ "success": true }));
    wait_for(&server, "eight", "unloaded");
    assert_eq!(server.post("/models/load", &json!({ "model": "gone" })).status, 500);
    assert_eq!(server.post("/models/load", &json!({})).status, 400);
    // Who reads does not load, unless it says so; a request may say that it does not want to wait.
    assert_eq!(server.get("/metrics?model=eight").status, 400);
    assert_eq!(server.get("/props?model=eight&autoload=true").json()["model_alias"], "eight");
    assert_eq!(server.post("/models/unload", &name).status, 200);
    wait_for(&server, "eight", "unloaded");
    let reply = server.post("/v1/completions?autoload=false", &completion("eight"));
    assert!(reply.status == 400 && reply.text.contains("/models/load"), "{reply:?}");
}

#[test]
fn keys_are_asked_for_before_anything_is_loaded() {
    let options = Options { api_keys: vec!["key".to_owned()], ..Setup::default().options };
    let (server, journal) = start_with(options, 1);
    assert_eq!(server.get("/v1/models").status, 200, "the list is open");
    for path in ["/v1/completions", "/models/load", "/models/unload"] {
        assert_eq!(server.post(path, &completion("half")).status, 401, "{path}");
    }
    assert_eq!(journal.loads.load(Ordering::SeqCst), 0);
}

#[test]
fn the_end_of_the_server_ends_all_models() {
    let (mut server, journal) = start(2);
    for name in ["half", "four"] {
        text(&server.post("/v1/completions", &completion(name)));
    }
    server.cancel();
    server.join().unwrap();
    assert_eq!(*journal.loaded.lock().unwrap(), (0, 2));
}
