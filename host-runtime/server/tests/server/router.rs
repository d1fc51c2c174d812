//! Two servers behind nginx, with the configuration of `docs/many-servers.md`.
//!
//! This is for `cargo xtask test --only router`, which installs nginx.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hexflash_e2e::repo_file;

use crate::support::{Drafter, Reply, Setup, TestServer, Value, greedy};

const PATIENCE: Duration = Duration::from_secs(60);

/// A port that was free a moment ago. Somebody else may take it before nginx does.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// nginx, and where it listens. It ends with the test.
struct Nginx {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts it with the configuration of the page, in front of servers at these ports.
    fn start(ports: [u16; 2]) -> Self {
        let started = (0..10).find_map(|_| Self::start_at(free_port(), ports));
        started.expect("nginx does not start")
    }

    /// Starts it at this port; `None` if it ends at once, as it does where another program has the port.
    fn start_at(port: u16, ports: [u16; 2]) -> Option<Self> {
        let page = std::fs::read_to_string(repo_file("docs/many-servers.md")).unwrap();
        let block = page.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap();
        let mut site = block.to_owned();
        for (named, real) in [(8080, port), (8081, ports[0]), (8082, ports[1])] {
            assert_eq!(site.matches(&format!(":{named}")).count(), 1, "the page has another address");
            site = site.replace(&format!(":{named}"), &format!(":{real}"));
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};\n", at(kind)))
            .concat();
        let config = format!(
            "daemon off;\npid {};\nerror_log {};\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{site}}}\n",
            at("pid"),
            at("errors")
        );
        std::fs::write(folder.path().join("nginx.conf"), config).unwrap();
        // Debian has it where only root looks.
        let program =
            ["/usr/sbin/nginx"].into_iter().find(|path| Path::new(path).exists()).unwrap_or("nginx");
        let process = Command::new(program)
            .args(["-e", &at("errors"), "-c", &at("nginx.conf")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is not there; `cargo xtask setup router` installs it");
        let mut nginx = Self { process, port, folder };
        let start = Instant::now();
        // It has written its number when it listens; until then an answer at this port is somebody else's.
        while !nginx.folder.path().join("pid").exists() || TcpStream::connect(("127.0.0.1", port)).is_err() {
            if nginx.process.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(nginx)
    }

    /// Something to ask it with.
    fn client(&self) -> TestServer {
        TestServer::elsewhere(format!("127.0.0.1:{}", self.port).parse().unwrap())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its main process ends its workers when it is asked to, and not when it is killed.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}

fn ask(client: &TestServer, conversation: usize, prompt: &str) -> Reply {
    let body = greedy(prompt, 8).to_string();
    client.request("POST", "/v1/completions", &[("x-conversation-id", &conversation.to_string())], &body)
}

fn text(answer: &Value) -> String {
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs nginx: cargo xtask test --only router"]
fn conversations_stay_with_their_server_and_outlive_it() {
    const CONVERSATIONS: usize = 8;
    let mut setup = Setup { parallel: CONVERSATIONS as u32, drafter: Drafter::Unhurried, ..Setup::default() };
    setup.options.grace = Duration::ZERO;
    let mut servers = [setup.clone(), setup].map(|setup| Some(TestServer::start(setup)));
    let nginx = Nginx::start([0, 1].map(|i| servers[i].as_ref().unwrap().address.port()));
    let client = nginx.client();

    // Each conversation begins in its own way, so that no other one spares it anything.
    let prompts: Vec<String> =
        (0..CONVERSATIONS).map(|i| format!("{i} def push{i}(self, value):\n    ")).collect();
    let firsts: Vec<String> =
        prompts.iter().enumerate().map(|(i, prompt)| text(&ask(&client, i, prompt).fine())).collect();
    for (i, (prompt, first)) in prompts.iter().zip(&firsts).enumerate() {
        let second = ask(&client, i, &format!("{prompt}{first}\nreturn ")).fine();
        let cached = second["timings"]["cache_n"].as_u64().unwrap();
        assert!(cached >= 8, "conversation {i} went to another server: {cached} tokens reused");
    }
    let shares = [0, 1].map(|i| servers[i].as_ref().unwrap().metric("tokens_predicted_total"));
    assert!(shares.iter().all(|&share| share > 0.0), "one server did everything: {shares:?}");

    // Events come as they are made, and not when the text is complete. Other work may hold up the first one,
    // but not each time.
    let mut body = greedy("import ", 60);
    body["stream"] = true.into();
    let comes_early = || {
        let start = Instant::now();
        let mut stream = client.open("/v1/completions", &body);
        assert!(stream.next().is_some());
        let first = start.elapsed();
        assert_eq!(stream.rest().last().map(String::as_str), Some("[DONE]"));
        first < start.elapsed() / 2
    };
    assert!((0..10).any(|_| comes_early()), "streams are held back until they are complete");

    // One server dies, and all conversations go on, with the same texts.
    servers[0] = None;
    for (i, prompt) in prompts.iter().enumerate() {
        assert_eq!(text(&ask(&client, i, prompt).fine()), firsts[i], "conversation {i}");
    }
    // Where there is none left, clients are told.
    servers[1] = None;
    assert_eq!(ask(&client, 0, "x").status, 502);
}
