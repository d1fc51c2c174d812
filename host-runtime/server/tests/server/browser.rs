//! A Chromium without a window, driven through the WebDriver protocol: JSON over HTTP to `chromedriver`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

/// Nothing in the page takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys of the protocol.
pub const ENTER: &str = "\u{E007}";
pub const ESCAPE: &str = "\u{E00C}";
pub const TAB: &str = "\u{E004}";

/// A page in a browser. Browser and driver end with it.
pub struct Browser {
    driver: Child,
    /// The address of the session.
    session: String,
    /// What the browser has asked of others than 127.0.0.1.
    strangers: Arc<Mutex<Vec<String>>>,
    /// Open as long as the driver may write there.
    _output: Lines<BufReader<ChildStdout>>,
    _profile: tempfile::TempDir,
}

/// A proxy for all addresses but 127.0.0.1, which writes down what it is asked for and answers nothing.
fn trap() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
    let found = Arc::clone(&asked);
    // It ends with the tests.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            found.lock().unwrap().push(line.trim_end().to_owned());
            let _ = stream.write_all(b"HTTP/1.1 502 no\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    (port, asked)
}

impl Browser {
    /// A browser of 1280 by 800 points that shows the page at `url`.
    pub fn open(url: &str) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is not there; `cargo xtask setup browser` installs it");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        let profile = tempfile::tempdir().unwrap();
        let (proxy, strangers) = trap();
        let mut arguments: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,800",
            "--hide-scrollbars",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--proxy-server=http://127.0.0.1:{proxy}"));
        arguments.push("--proxy-bypass-list=127.0.0.1".to_owned());
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let options = json!({ "args": arguments });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options });
        let server = format!("http://127.0.0.1:{}", port.expect("chromedriver does not start"));
        let started =
            call("POST", &format!("{server}/session"), &json!({ "capabilities": { "alwaysMatch": wanted } }));
        let session = format!("{server}/session/{}", started["sessionId"].as_str().unwrap());
        let browser = Self { driver, session, strangers, _output: lines, _profile: profile };
        browser.emulate("Emulation.setDeviceMetricsOverride", &size(1280, 800));
        browser.go(url);
        browser
    }

    fn post(&self, what: &str, body: &Value) -> Value {
        call("POST", &format!("{}/{what}", self.session), body)
    }

    /// Loads a page.
    pub fn go(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// Loads this page again.
    pub fn reload(&self) {
        self.post("refresh", &json!({}));
    }

    /// The value of an expression of JavaScript in the page.
    pub fn eval(&self, expression: &str) -> Value {
        self.post("execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// The text of an expression.
    pub fn text(&self, expression: &str) -> String {
        match self.eval(expression) {
            Value::String(text) => text,
            other => panic!("{expression} is {other}"),
        }
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&self, expression: &str) {
        let start = Instant::now();
        while self.eval(&format!("Boolean({expression})")) != true {
            let seen = self.text("document.body.innerText");
            assert!(start.elapsed() < PATIENCE, "not {expression} in:\n{seen}");
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().and_then(|found| found.values().next()?.as_str().map(str::to_owned));
        id.unwrap_or_else(|| panic!("no {selector}"))
    }

    /// Clicks on an element, as a user does: it must be seen, and nothing may be above it.
    pub fn click(&self, selector: &str) {
        self.post(&format!("element/{}/click", self.element(selector)), &json!({}));
    }

    /// Types into an element.
    pub fn keys(&self, selector: &str, text: &str) {
        self.post(&format!("element/{}/value", self.element(selector)), &json!({ "text": text }));
    }

    /// Types into whatever has the focus.
    pub fn press(&self, text: &str) {
        let focused = call("GET", &format!("{}/element/active", self.session), &Value::Null);
        let id = focused.as_object().unwrap().values().next().unwrap().as_str().unwrap();
        self.post(&format!("element/{id}/value"), &json!({ "text": text }));
    }

    /// Calls a method of Chromium's own protocol.
    pub fn emulate(&self, method: &str, parameters: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({ "cmd": method, "params": parameters }))
    }

    /// Makes the window so large, in points.
    pub fn resize(&self, width: u32, height: u32) {
        self.emulate("Emulation.setDeviceMetricsOverride", &size(width, height));
    }

    /// Prefers light or dark colours.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.emulate("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Saves what is seen as a picture, if `HEXFLASH_PICTURES` names a folder for that.
    pub fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("HEXFLASH_PICTURES") else { return };
        let shot = self.emulate("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }

    /// What the browser has asked of others than 127.0.0.1, so far.
    pub fn strangers(&self) -> Vec<String> {
        self.strangers.lock().unwrap().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A browser that hangs ends with its driver.
        let agent = agent(Duration::from_secs(5));
        let _ = agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn size(width: u32, height: u32) -> Value {
    json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false })
}

fn agent(timeout: Duration) -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(timeout)).build().into()
}

/// A command of the protocol.
#[track_caller]
fn call(method: &str, url: &str, body: &Value) -> Value {
    let agent = agent(2 * PATIENCE);
    let answer = match method {
        "POST" => agent.post(url).send(body.to_string()),
        _ => agent.get(url).call(),
    };
    let text = answer.unwrap().body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    let value = answer["value"].take();
    assert!(value.get("error").is_none(), "{url} {body}: {} {}", value["error"], value["message"]);
    value
}
