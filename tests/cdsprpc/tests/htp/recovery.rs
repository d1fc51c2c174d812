//! A process on the DSP that ends or stops in the middle of a text: the text is that of an undisturbed run.

use std::time::Duration;

use hexflash::cancel::Cancel;
use hexflash::device::htp::Htp;
use hexflash::device::inproc::Inproc;
use hexflash::device::{Device, SplitDevice};
use hexflash::engine::{Engine, EngineError, EngineOptions};
use hexflash::generate::{Finish, GenerateError, Generated, Generation, Limits, MAX_RETRIES, Request};
use hexflash::gguf::Gguf;
use hexflash::sampler::{Sampler, SamplerOverrides};
use hexflash::speculation::{DraftLength, DraftSource, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};

use cdsprpc::standin::{StandIn, model, sending};

/// What is generated, and how.
pub(crate) struct Setting {
    /// Where.
    standin: fn() -> StandIn,
    target: Gguf,
    draft: Option<Gguf>,
    text: TextModel,
    /// `None` takes the best token.
    seed: Option<u64>,
    tokens: usize,
    sessions: usize,
    cancel: Cancel,
    cache: CachePolicy,
}

impl Setting {
    pub(crate) fn new(draft: bool, seed: Option<u64>, tokens: usize) -> Self {
        let open = |name: &str| Gguf::open(&model(name)).unwrap();
        let target = open("tiny-hybrid-q8_0.gguf");
        let text = TextModel::read(&target).unwrap();
        let draft = draft.then(|| open("tiny-hybrid-dflash-q8_0.gguf"));
        let (cancel, cache) = (Cancel::default(), CachePolicy::Off);
        let standin = || StandIn::new("");
        Self { standin, target, draft, text, seed, tokens, sessions: 1, cancel, cache }
    }

    /// The same elsewhere.
    pub(crate) fn on(self, standin: fn() -> StandIn) -> Self {
        Self { standin, ..self }
    }

    fn run(&self, device: Box<dyn Device>) -> Result<Generated, GenerateError> {
        let image = ImageOptions { cache: self.cache.clone(), ..ImageOptions::default() };
        // Batches of 4: the prompt takes several messages.
        let options = EngineOptions { batch: 4, n_ctx: Some(128), ..EngineOptions::default() };
        let mut engine =
            Engine::load_with(&self.target, self.draft.as_ref(), device, &options, &image).unwrap();
        let source = if self.draft.is_some() { DraftSource::Model } else { DraftSource::None };
        let speculation = Speculation::new(source, DraftLength::Fixed(5));
        let temperature = Some(if self.seed.is_some() { 0.9 } else { 0.0 });
        let overrides = SamplerOverrides { temperature, seed: self.seed, ..SamplerOverrides::default() };
        let sampler = Sampler::new(self.text.sampling.clone().overridden_by(&overrides)).unwrap();
        let prompt = self.text.encode("def __repr__(self):\n        return").unwrap();
        assert!(prompt.len() > 4, "{prompt:?}");
        let (max_tokens, cancel) = (Some(self.tokens), self.cancel.clone());
        let limits = Limits { max_tokens, ignore_eos: true, cancel, ..Limits::default() };
        let request = Request::new(prompt, sampler).limits(limits).speculation(speculation);
        let generation = Generation::new(self.text.tokenizer.clone(), request);
        generation.run(&mut engine, |_| {}).map(|ended| ended.generated)
    }

    fn undisturbed(&self) -> Generated {
        self.run(Box::new(Inproc::open(&StandIn::new("").options()).unwrap())).unwrap()
    }
}

/// A device whose process does not end before the model is loaded: what fails there is an error at once.
fn open(standin: &mut StandIn, setting: &Setting, config: &str) -> Box<dyn Device> {
    standin.configure(&format!("check=0 {config}"));
    let mut options = standin.options();
    if let Some(htp) = options.htp.as_deref_mut() {
        // Long, but where it is to end. A step of emulated code may take seconds where there is other work.
        htp.patience = Some(Duration::from_secs(if config.starts_with("hang") { 15 } else { 60 }));
    }
    match setting.sessions {
        1 => Box::new(Htp::open(&options).unwrap()),
        n => Box::new(SplitDevice::<Htp>::open(&options, n).unwrap()),
    }
}

/// Messages that an undisturbed run sends: until the model is loaded, and in all.
fn messages(standin: &mut StandIn, setting: &Setting) -> (u64, u64) {
    let sent = |standin: &StandIn| {
        // SAFETY: the type is that of the function, which takes nothing.
        unsafe { standin.symbol::<unsafe extern "C" fn() -> u64>("hexflash_standin_messages")() }
    };
    let device = open(standin, setting, "");
    let generated = setting.run(device).unwrap();
    let all = sent(standin);
    let nothing =
        Setting { sessions: setting.sessions, ..Setting::new(setting.draft.is_some(), setting.seed, 1) };
    let device = open(standin, setting, "");
    nothing.run(device).unwrap();
    assert_eq!(generated.stats.restarts, 0);
    // The prompt takes a message per batch of four, and session.
    let prompt = generated.stats.prompt_tokens.div_ceil(4) * setting.sessions;
    (sent(standin) - prompt as u64, all)
}

/// A message that cannot be sent: the process is gone.
fn lost() -> String {
    format!("{}=0x68@", sending())
}

/// Loses the device at every `step`th message of a run, by `how`, which the message's number completes.
fn at_messages(setting: &Setting, how: &str, step: usize) {
    let mut standin = (setting.standin)();
    let (loaded, all) = messages(&mut standin, setting);
    assert!(all - loaded > setting.tokens as u64 / 6, "{loaded} of {all} messages");
    at_each(&mut standin, setting, how, (loaded + 1..=all).step_by(step));
}

/// Loses the device once by each of these, at so many messages after the model is loaded.
pub(crate) fn at_some_messages(setting: &Setting, how: &[(&str, u64)]) {
    let mut standin = (setting.standin)();
    let (loaded, _) = messages(&mut standin, setting);
    for (how, after) in how {
        at_each(&mut standin, setting, how, std::iter::once(loaded + after));
    }
}

fn at_each(standin: &mut StandIn, setting: &Setting, how: &str, numbers: impl Iterator<Item = u64>) {
    let expected = setting.undisturbed();
    for at in numbers {
        let device = open(standin, setting, &format!("{how}{at}"));
        let generated = setting.run(device).unwrap_or_else(|error| panic!("{how}{at}: {error}"));
        assert_eq!(generated.tokens, expected.tokens, "{how}{at}");
        assert_eq!(generated.text, expected.text, "{how}{at}");
        assert_eq!(generated.stats.restarts, 1, "{how}{at}");
        standin.is_clean();
    }
}

#[test]
fn a_crash_at_any_message_of_a_plain_generation() {
    at_messages(&Setting::new(false, None, 64), "crash=", 1);
}

#[test]
fn a_crash_at_any_message_of_rounds() {
    at_messages(&Setting::new(true, None, 64), "crash=", 1);
}

/// Whoever presses Ctrl-C because the device hangs does not want to see it started again.
#[test]
fn a_device_that_is_lost_after_an_interruption_is_not_started_again() {
    let mut standin = StandIn::new("");
    let setting = Setting::new(false, None, 8);
    let (loaded, _) = messages(&mut standin, &setting);
    setting.cancel.cancel();
    let device = open(&mut standin, &setting, &format!("crash={}", loaded + 1));
    let found = setting.run(device).unwrap();
    assert_eq!((found.finish_reason, &found.tokens[..]), (Finish::Interrupted, &[][..]));
    assert_eq!((found.stats.prompt_tokens, found.stats.restarts), (0, 0));
    standin.is_clean();
}

/// Weights that were left in their cache for the device to copy are copied once more.
#[test]
fn a_crash_where_weights_come_from_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = CachePolicy::Dir(dir.path().to_owned());
    let setting = Setting { cache, sessions: 2, ..Setting::new(true, None, 12) };
    at_messages(&setting, &lost(), 11);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "of both models");
}

/// Both sessions are started again, whichever was lost.
#[test]
fn a_crash_of_one_of_two_sessions() {
    let two = |draft, tokens| Setting { sessions: 2, ..Setting::new(draft, None, tokens) };
    at_messages(&two(true, 40), &lost(), 5);
    at_messages(&two(false, 16), &lost(), 9);
    // The processes count their own messages: about half of them each.
    let (mut standin, setting) = (StandIn::new(""), two(false, 64));
    let (loaded, all) = messages(&mut standin, &setting);
    at_each(&mut standin, &setting, "crash=", (loaded + 1..=all / 2 - 4).step_by(16));
}

#[test]
fn a_crash_after_the_work_and_before_the_answer() {
    at_messages(&Setting::new(true, None, 40), "crash-answer=", 2);
    at_messages(&Setting::new(false, None, 20), "crash-answer=", 5);
}

#[test]
fn a_crash_while_sampling() {
    at_messages(&Setting::new(false, Some(3), 24), "crash=", 4);
    at_messages(&Setting::new(true, Some(3), 24), "crash=", 5);
}

/// The loss shows when the host sends, and not when it waits: what it has read before still counts.
#[test]
fn a_message_that_cannot_be_sent_is_a_loss_too() {
    at_messages(&Setting::new(true, None, 40), &lost(), 1);
    at_messages(&Setting::new(true, Some(3), 16), &lost(), 5);
    at_messages(&Setting::new(false, None, 16), &lost(), 5);
}

#[test]
fn a_hang_is_a_loss_too() {
    at_messages(&Setting::new(false, None, 8), "hang=", 4);
}

/// A device that ends again and again, but gets on in between, finishes its text.
#[test]
fn a_device_that_crashes_now_and_then_gets_there() {
    let setting = Setting::new(false, None, 64);
    let expected = setting.undisturbed();
    let mut standin = StandIn::new("");
    let (loaded, _) = messages(&mut standin, &setting);
    // Coming back takes as many messages as loading did, and the tokens so far.
    let device = open(&mut standin, &setting, &format!("crash-every={}", loaded + 30));
    let generated = setting.run(device).unwrap();
    assert_eq!(generated.text, expected.text);
    assert!(generated.stats.restarts > 1, "{}", generated.stats.restarts);
    standin.is_clean();
}

/// A device that never gets on is given up, and what it wrote is kept.
#[test]
fn a_device_that_keeps_crashing_is_given_up_with_the_text_so_far() {
    let setting = Setting::new(false, None, 64);
    let expected = setting.undisturbed();
    let mut standin = StandIn::new("");
    let (loaded, _) = messages(&mut standin, &setting);
    // With so few messages per process, the growing context soon leaves none for a new token.
    let device = open(&mut standin, &setting, &format!("crash-every={}", loaded + 6));
    let error = setting.run(device).expect_err("no device comes back from this");
    let line = error.to_string();
    assert!(line.contains(&format!("{MAX_RETRIES} times did not help")), "{line}");
    let GenerateError::Lost { tokens, text, .. } = error else { panic!("{line}") };
    assert!(!tokens.is_empty() && tokens.len() < 64, "{}", tokens.len());
    assert_eq!(tokens, expected.tokens[..tokens.len()]);
    assert!(!text.is_empty() && expected.text.starts_with(&text), "{text:?}");
    standin.is_clean();
}

/// The command prints what it has, says what the matter is, and fails.
#[test]
fn the_command_keeps_the_text_of_a_device_that_does_not_come_back() {
    let setting = Setting::new(false, None, 1);
    let mut standin = StandIn::new("");
    let (loaded, _) = messages(&mut standin, &setting);
    standin.configure(&format!("check=0 crash={} remote_handle64_open=0x72@2+", loaded + 9));
    let run = |extra: &[&str]| {
        let arguments = ["run", "--no-repack-cache", "--temp", "0", "-n", "40", "def __repr__(self):"];
        let output = standin.hexflash(&[&arguments, extra].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("AEE_ECONNREFUSED"), "{stderr}");
        assert!(last.contains("3 times did not help"), "{stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let kept: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let text = kept["text"].as_str().unwrap();
    assert_eq!(kept["tokens"].as_array().unwrap().len(), 8, "{kept}");
    assert!(!text.is_empty() && kept["error"].as_str().unwrap().contains("did not help"), "{kept}");
    assert_eq!(run(&[]), format!("def __repr__(self):{text}\n"));
    assert_eq!(standin.violations(), Vec::<String>::new());
}

/// A process that ends while the model is loaded for the first time is an error at once, at whichever
/// message: nothing was generated that could be kept, and nothing of it is left.
#[test]
fn a_crash_while_the_model_is_loaded_is_an_error_that_leaves_nothing() {
    let setting = Setting::new(true, None, 1);
    let mut standin = StandIn::new("");
    let (loaded, _) = messages(&mut standin, &setting);
    assert!(loaded > 10, "{loaded}");
    for at in 1..=loaded {
        standin.configure(&format!("check=0 crash={at}"));
        let outcome = standin.open().map_err(EngineError::from).and_then(|device| {
            let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
            let options = EngineOptions { batch: 4, n_ctx: Some(128), ..EngineOptions::default() };
            Engine::load_with(&setting.target, setting.draft.as_ref(), Box::new(device), &options, &image)
        });
        let error = outcome.err().unwrap_or_else(|| panic!("message {at} of {loaded}: no error"));
        assert!(error.is_loss() && error.to_string().contains("crashed"), "message {at}: {error}");
        standin.is_clean();
    }
}
