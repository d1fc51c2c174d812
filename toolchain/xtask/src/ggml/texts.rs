//! Texts of llama-server, which must be those that it writes on the CPU.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{DEVICE, Here, not_well};
use crate::failure::{Failure, Result};
use crate::process;
use crate::upstream::free_port;

/// The server.
pub(super) const SERVER: &str = "bin/llama-server";

/// Models of this repository whose texts are compared. With each, the distance of the logarithms of the two
/// best tokens' probabilities up to which they count as a near-tie: both sides add up in another order, and
/// with weights in Q8_0 they round activations to 8 bits in other places.
pub(super) const MODELS: [(&str, f64); 2] =
    [("models/tiny-hybrid-f16.gguf", 2e-3), ("models/tiny-hybrid-q8_0.gguf", 5e-2)];
/// Beginnings of texts, one of them long enough for all kernels of prompts.
const PROMPTS: [&str; 4] = ["def fib(n):", "pub fn push(&mut self", "import os\n\nclass ", LONG];
const LONG: &str = "#### pub fn push(&mut self, value: T)\n\nAppends an element to the back of a collection. \
                    The capacity of the new allocation is at least twice the old one, so that many calls take \
                    linear time together. It panics if the new capacity exceeds isize::MAX bytes.\n\n";
/// Most near-ties of a model.
const MAX_NEAR_TIES: usize = 1;
/// The model that is split over sessions, and how many there are.
const SPLIT: (&str, usize) = ("models/tiny-hybrid-q8_0.gguf", 3);
/// Tokens of a text.
const TOKENS: u32 = 48;
/// How long a server may take to start or to write, also on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(240);

impl Here {
    /// Texts of llama-server, on our device and on the CPU. With programs of the class `fast`, too.
    pub(super) fn compare_texts(&self, model: &str, near_tie: f64) -> Result<()> {
        let path = self.root.join(model);
        let cpu = Server::start(self.programs.command(SERVER, None)?, &path, "none")?.texts()?;
        for numerics in ["exact", "fast"] {
            let mut command = self.command(SERVER)?;
            command.env("HEXFLASH_NUMERICS", numerics);
            let ours = Server::start(command, &path, DEVICE)?.texts()?;
            compare(&format!("{model}, {numerics}"), near_tie, &ours, &cpu)?;
        }
        Ok(())
    }

    /// Texts of a model whose layers are on several sessions, and on one.
    pub(super) fn compare_sessions(&self) -> Result<()> {
        let (model, sessions) = SPLIT;
        let path = self.root.join(model);
        let one = Server::start(self.command(SERVER)?, &path, DEVICE)?.texts()?;
        let devices: Vec<_> = (0..sessions).map(|number| format!("HEXFLASH{number}")).collect();
        let mut command = self.command(SERVER)?;
        command.env("HEXFLASH_SESSIONS", sessions.to_string());
        let several = Server::start(command, &path, &devices.join(","))?.texts()?;
        if one != several {
            return Err(Failure::failed(
                format!("{model} gives other texts in {sessions} sessions than in one"),
                "compare what `HEXFLASH_SESSIONS=3 llama-server` and `llama-server` write",
            ));
        }
        println!("{model}: {} texts in {sessions} sessions are those in one", one.len());
        Ok(())
    }
}

/// Compares texts on our device with those on the CPU. `model` says what wrote them.
fn compare(model: &str, near_tie: f64, ours: &[Vec<Best>], cpu: &[Vec<Best>]) -> Result<()> {
    let mut ties = 0;
    for ((prompt, ours), cpu) in PROMPTS.iter().zip(ours).zip(cpu) {
        let Some(at) = (0..cpu.len()).find(|&at| ours.get(at).map(best) != Some(best(&cpu[at]))) else {
            continue;
        };
        let [(first, p), (second, q)] = &cpu[at];
        let found = ours.get(at).map_or("nothing", best);
        if found != second || p - q > near_tie {
            return Err(Failure::failed(
                format!(
                    "{model} continues {prompt:?} with {found:?} at token {at}, on the CPU with {first:?}"
                ),
                "compare ops of this model with test-backend-ops",
            ));
        }
        // From here on these are two texts.
        println!("near-tie after {prompt:?}: token {at} is {found:?}, on the CPU {first:?} ({:.3})", p - q);
        ties += 1;
    }
    if ties > MAX_NEAR_TIES {
        return Err(Failure::failed(
            format!("{model}: {ties} near-ties in {} texts", ours.len()),
            "compare ops of this model with test-backend-ops",
        ));
    }
    let but = if ties > 0 { ", up to a near-tie" } else { "" };
    println!("{model}: {} texts of llama-server are those of the CPU{but}", ours.len());
    Ok(())
}

/// The two best tokens at a place of a text, with the logarithms of their probabilities.
type Best = [(String, f64); 2];

/// The token that stands there.
fn best([(token, _), _]: &Best) -> &str {
    token
}

/// A llama-server that ends with this value.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(mut command: Command, model: &Path, device: &str) -> Result<Self> {
        let port = free_port()?.to_string();
        command.arg("-m").arg(model).args(["--port", &port, "--device", device, "-c", "512", "-np", "1"]);
        command.args(["--no-warmup", "-t", "2"]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|_| not_well(&command))?;
        let mut server = Self { child, url: format!("http://127.0.0.1:{port}") };
        let start = Instant::now();
        while process::output(curl().arg(format!("{}/health", server.url))).is_none() {
            if server.child.try_wait().is_ok_and(|ended| ended.is_some()) || start.elapsed() > PATIENCE {
                return Err(not_well(&command));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    /// The likeliest continuations of all prompts, token by token.
    fn texts(&self) -> Result<Vec<Vec<Best>>> {
        PROMPTS.iter().map(|prompt| self.text(prompt)).collect()
    }

    fn text(&self, prompt: &str) -> Result<Vec<Best>> {
        let mut body = json!({ "prompt": prompt, "n_predict": TOKENS, "temperature": 0, "n_probs": 2 });
        body["cache_prompt"] = Value::Bool(false);
        let mut request = curl();
        request.args(["--max-time", &PATIENCE.as_secs().to_string(), "--data", &body.to_string()]);
        request.args(["--header", "Content-Type: application/json"]).arg(format!("{}/completion", self.url));
        let answer = process::output(&mut request);
        let answer = answer.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let tokens = answer.as_ref().and_then(|answer| answer["completion_probabilities"].as_array());
        let text: Option<Vec<Best>> = tokens.and_then(|tokens| tokens.iter().map(two_best).collect());
        text.filter(|text| !text.is_empty()).ok_or_else(|| {
            Failure::failed(format!("llama-server does not continue {prompt:?}"), "start it by hand")
        })
    }
}

/// The two best tokens of an entry of `completion_probabilities`.
fn two_best(token: &Value) -> Option<Best> {
    let one = |i: usize| {
        let entry = &token["top_logprobs"][i];
        Some((entry["token"].as_str()?.to_owned(), entry["logprob"].as_f64()?))
    };
    Some([one(0)?, one(1)?])
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn curl() -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--silent", "--noproxy", "*"]);
    curl
}
