//! A session: every turn is held against plain decoding on `inproc`, and at the end nothing is left over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hexflash::device::inproc::{Inproc, Settings};
use hexflash::device::qemu::{self, Qemu};
use hexflash::device::{self, Device, DeviceError, DeviceOptions};
use hexflash::engine::{Engine, EngineError, EngineOptions};
use hexflash::generate::{Event, Finish, GenerateError, Generated, Limits};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::Speculation;
use hexflash::text::TextModel;
use hexflash::tokenizer::Tokenizer;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_dsp::hvx::Isa;
use hexflash_e2e::{Model, generate, inproc, settings, visible};

use crate::plan::{CONTEXTS, Kind, SoakRun, Turn};
use crate::resources::{Held, children};
use crate::totals::Totals;
use cdsprpc::standin::StandIn;

/// How long the process behind `htp` may be silent before it counts as hung.
const HUNG: Duration = Duration::from_secs(3);

/// What is wrong, in words.
pub type Wrong = String;

/// Plain decoding, on engines of its own.
pub struct References {
    texts: HashMap<&'static str, TextModel>,
    engines: HashMap<(&'static str, u32), Engine>,
}

impl References {
    /// For every model and every length of a context. They stay, with their threads.
    ///
    /// # Panics
    /// If a model of the repository has no tokenizer.
    pub fn new() -> Self {
        let read = |model: Model| TextModel::read(&model.gguf()).unwrap_or_else(|error| panic!("{error}"));
        let texts = Model::ALL.map(|model| (model.name(), read(model)));
        let mut engines = HashMap::new();
        for (model, n_ctx) in Model::ALL.iter().flat_map(|&model| CONTEXTS.map(|n_ctx| (model, n_ctx))) {
            let options = EngineOptions { n_ctx: Some(n_ctx), ..EngineOptions::default() };
            let engine = model.engine(inproc(Settings { threads: 1, ..settings() }), &options);
            engines.insert((model.name(), n_ctx), engine);
        }
        Self { texts: HashMap::from(texts), engines }
    }

    /// The engine of a session's model, with its context, and the tokenizer.
    fn of(&mut self, session: &SoakRun) -> (&mut Engine, &Arc<Tokenizer>) {
        let name = session.model.name();
        let engine = self.engines.get_mut(&(name, session.n_ctx)).expect("there is one for every session");
        (engine, &self.texts[name].tokenizer)
    }
}

/// Opens the device of a session.
fn open(session: &SoakRun, standin: &StandIn) -> Result<Box<dyn Device>, DeviceError> {
    let SoakRun { threads, vtcm_bytes, dma, sessions, .. } = *session;
    let mut options = DeviceOptions {
        threads: Some(threads),
        vtcm_bytes: Some(vtcm_bytes),
        sessions: Some(sessions),
        ..standin.options()
    };
    if let Some(htp) = options.htp.as_deref_mut() {
        htp.patience = Some(HUNG);
    }
    // Only these two take a DMA mode, and only one session of them.
    let name = match (session.kind, sessions) {
        (Kind::Inproc, 1) => {
            let settings = Settings { threads, vtcm_bytes, dma, isa: Isa::detect() };
            return Ok(Box::new(Inproc::with_settings(settings)?));
        }
        (Kind::Qemu, 1) => {
            return Ok(Box::new(Qemu::with_settings(qemu::Settings {
                threads,
                vtcm_bytes,
                dma,
                arch: None,
                trace: None,
            })?));
        }
        (Kind::Inproc, _) => "inproc",
        (Kind::Qemu, _) => "qemu",
        (Kind::Htp, _) => "htp",
    };
    device::open(name, &options)
}

/// A device that may fail is no mistake; anything else is.
fn excuse<T, E: std::fmt::Display>(session: &SoakRun, result: Result<T, E>) -> Result<Option<T>, Wrong> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(_) if session.may_fail => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs a session.
///
/// # Errors
/// What is wrong: another text, an error that nobody planned, something left over.
pub fn session(
    session: &SoakRun,
    standin: &mut StandIn,
    references: &mut References,
    totals: &mut Totals,
) -> Result<(), Wrong> {
    let before = Held::at_rest();
    standin.configure(&session.config);
    let outcome = turns(session, standin, references, totals);
    if session.kind == Kind::Htp {
        let (breaches, left) = (standin.violations(), standin.census());
        if !breaches.is_empty() || left != [0; 5] {
            return Err(format!("the stand-in has {left:?} left, and reports {breaches:?}"));
        }
    }
    outcome?;
    before.settle()
}

fn turns(
    session: &SoakRun,
    standin: &StandIn,
    references: &mut References,
    totals: &mut Totals,
) -> Result<(), Wrong> {
    let Some(device) = excuse(session, open(session, standin))? else {
        totals.refused += 1;
        return Ok(());
    };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let SoakRun { n_ctx, batch, .. } = *session;
    let options = EngineOptions { n_ctx: Some(n_ctx), batch, speculate: true, ..EngineOptions::default() };
    let draft = session.draft.map(|draft| draft.gguf());
    let loaded = Engine::load_with(&session.model.gguf(), draft.as_ref(), device, &options, &image);
    let Some(mut engine) = excuse(session, loaded)? else {
        totals.refused += 1;
        return Ok(());
    };
    let mut text = Vec::new();
    for (i, plan) in session.turns.iter().enumerate() {
        let go_on = turn(session, plan, &mut engine, references, &mut text, totals)
            .map_err(|wrong| format!("turn {i}, {plan:?}: {wrong}"))?;
        if !go_on {
            return Ok(());
        }
    }
    same_state(session, &mut engine, references, &text)
}

/// One turn; `text` is all of the text so far, the last token of which is not in the context. `false` if the
/// device is gone, as was planned.
fn turn(
    session: &SoakRun,
    plan: &Turn,
    engine: &mut Engine,
    references: &mut References,
    text: &mut Vec<u32>,
    totals: &mut Totals,
) -> Result<bool, Wrong> {
    let fits = |text: &[u32]| text.len() + plan.prompt.len() <= session.n_ctx as usize;
    if plan.fresh || !fits(text) {
        engine.reset();
        text.clear();
    }
    let known = text.len();
    text.extend_from_slice(&plan.prompt);
    let prompt = text[engine.n_past() as usize..].to_vec();
    assert_eq!(prompt.len(), plan.prompt.len() + usize::from(known > 0));

    let params = match plan.seed {
        None => SamplerParams { temperature: 0.0, ..SamplerParams::default() },
        seed => SamplerParams { temperature: 0.9, seed, ..SamplerParams::default() },
    };
    let new_sampler = || Sampler::new(params.clone()).map_err(|error| error.to_string());
    let stop = plan.stop.iter().cloned().collect();
    let limits =
        Limits { max_tokens: plan.max_tokens, stop, ignore_eos: plan.ignore_eos, ..Limits::default() };

    let mut pieces = 0;
    let on_event = |event: Event<'_>| {
        pieces += usize::from(visible(&event).is_some());
        plan.interrupt.is_none_or(|most| pieces <= most)
    };
    let mut speculation = Speculation::new(plan.source(), plan.length);
    let ((_, tokenizer), mut sampler) = (references.of(session), new_sampler()?);
    let start = Instant::now();
    let found = with_killer(plan, || {
        generate(engine, tokenizer, (&mut sampler, &mut speculation), &prompt, &limits, on_event)
    });
    let time = start.elapsed();

    let expected = {
        let mut sampler = new_sampler()?;
        let (plain, tokenizer) = references.of(session);
        plain.reset();
        let parties = (&mut sampler, &mut Speculation::off());
        generate(plain, tokenizer, parties, text, &limits, |_| true)
            .map_err(|error| format!("plain decoding: {error}"))?
    };
    match found {
        Ok(found) => {
            compare(&found, &expected)?;
            totals.add(&found, time);
            text.extend_from_slice(&found.tokens);
            if engine.n_past() as usize + 1 != text.len() {
                return Err(format!("{} tokens in the context of a text of {}", engine.n_past(), text.len()));
            }
            Ok(true)
        }
        Err(GenerateError::Lost { source, tokens, .. }) if session.may_fail => {
            totals.lost += 1;
            match expected.tokens.starts_with(&tokens) {
                true => Ok(false),
                false => Err(format!("{source}; {tokens:?} before, and not {:?}", expected.tokens)),
            }
        }
        Err(GenerateError::Engine(EngineError::Device(_))) if session.may_fail => {
            totals.lost += 1;
            Ok(false)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Whether that is what plain decoding gives, or the beginning of it where somebody interrupted.
fn compare(found: &Generated, expected: &Generated) -> Result<(), Wrong> {
    let same = if found.finish_reason == Finish::Interrupted {
        expected.tokens.starts_with(&found.tokens) && expected.text.starts_with(&found.text)
    } else {
        (&found.tokens, &found.text, found.finish_reason)
            == (&expected.tokens, &expected.text, expected.finish_reason)
    };
    if same {
        return Ok(());
    }
    let Generated { tokens, finish_reason, .. } = found;
    Err(format!(
        "{tokens:?} ({finish_reason:?}), where plain decoding gives {:?} ({:?})",
        expected.tokens, expected.finish_reason
    ))
}

/// After one more plain step the logits must be those of plain decoding, bit for bit.
fn same_state(
    session: &SoakRun,
    engine: &mut Engine,
    references: &mut References,
    text: &[u32],
) -> Result<(), Wrong> {
    let (Some((&last, before)), true) = (text.split_last(), engine.n_past() < engine.n_ctx()) else {
        return Ok(());
    };
    let (plain, _) = references.of(session);
    plain.reset();
    let expected = plain.prefill(before, |_| {}).and_then(|()| plain.decode(last));
    expected.map_err(|error| format!("plain decoding: {error}"))?;
    let Some(()) = excuse(session, retry(engine, last))? else { return Ok(()) };
    let bits = |engine: &mut Engine| engine.logits(0).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    if bits(engine) != bits(plain) {
        return Err(format!("other logits after {} tokens", text.len()));
    }
    Ok(())
}

/// A step; a process may have been killed after the last turn had ended, which the step finds out.
fn retry(engine: &mut Engine, token: u32) -> Result<(), EngineError> {
    match engine.decode(token) {
        Err(error) if error.is_loss() => engine.recover().and_then(|()| engine.decode(token)),
        other => other,
    }
}

/// Runs `work`, in the course of which the process on the other side comes to harm if that is planned.
fn with_killer<T>(plan: &Turn, work: impl FnOnce() -> T) -> T {
    let Some(kill) = plan.kill else { return work() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while start.elapsed() < kill.after {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            let signal =
                if kill.stop { rustix::process::Signal::STOP } else { rustix::process::Signal::KILL };
            for pid in children() {
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    // It may have ended meanwhile.
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}
