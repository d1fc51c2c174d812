//! What is tried: sessions and the turns in them, drawn at random from a seed.

use std::time::Duration;

use clap::ValueEnum;
use hexflash::model::MAX_VERIFY;
use hexflash::speculation::{DraftLength, DraftSource, Drafter, Guess, NGram};
use hexflash_dsp::dma::DmaMode;
use hexflash_e2e::{Draft, Model};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Lengths of a context: the shorter one is soon full.
pub const CONTEXTS: [u32; 2] = [96, 256];

/// Where the DSP side runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Kind {
    /// In this process.
    Inproc,
    /// As Hexagon code under emulation.
    Qemu,
    /// Through the stand-in for FastRPC, in a process of its own.
    Htp,
}

/// One device, one engine, several turns.
#[derive(Clone, Debug)]
pub struct SoakRun {
    /// The device.
    pub kind: Kind,
    /// The target.
    pub model: Model,
    /// The draft; without one the engine can still take tokens back.
    pub draft: Option<Draft>,
    /// Positions of the context.
    pub n_ctx: u32,
    /// Tokens of a prefill step.
    pub batch: u32,
    /// Threads that run kernels.
    pub threads: usize,
    /// Bytes of VTCM.
    pub vtcm_bytes: usize,
    /// When the software DMA engine executes, where one session has it all.
    pub dma: DmaMode,
    /// Sessions that the layers are split over.
    pub sessions: usize,
    /// What the stand-in plays besides.
    pub config: String,
    /// Whether the stand-in was told to fail, so that an error may come.
    pub may_fail: bool,
    /// What is generated.
    pub turns: Vec<Turn>,
}

/// Who drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody.
    Nobody,
    /// The draft model.
    Model,
    /// The text itself.
    NGram,
    /// Somebody who guesses blindly.
    Liar(u64),
}

/// One generation.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Begins anew, instead of going on with the text so far.
    pub fresh: bool,
    /// Tokens that come before what is generated.
    pub prompt: Vec<u32>,
    /// `None` takes the best token.
    pub seed: Option<u64>,
    /// Who drafts.
    pub who: Who,
    /// How much.
    pub length: DraftLength,
    /// Tokens at most.
    pub max_tokens: Option<usize>,
    /// Goes on after the end of a text.
    pub ignore_eos: bool,
    /// A text that ends the generation.
    pub stop: Option<String>,
    /// The user has enough after so many pieces of text.
    pub interrupt: Option<usize>,
    /// The process on the other side ends, or stops, after so long.
    pub kill: Option<Kill>,
}

/// What is done to the process on the other side.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// When, from the beginning of the turn.
    pub after: Duration,
    /// It stops instead of ending.
    pub stop: bool,
}

/// Calls that the stand-in may be told to fail, with a code that a phone's library gives.
const FAILURES: &[&str] = &[
    "dspqueue_write=0x68@",
    "dspqueue_write=0x2e@",
    "dspqueue_read=0x200@",
    "rpcmem_alloc=0x2@",
    "fastrpc_mmap=0x2@",
    "remote_handle64_open=0x72@",
];

/// Texts that end generations: short, so that they come.
const STOPS: &[&str] = &["\n\n", "self", "return", "    ", "("];

impl SoakRun {
    /// The session number `index` of a run that began with `seed`.
    pub fn draw(seed: u64, index: u64, kinds: &[Kind], text: impl Fn(Model) -> Vec<u32>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rng = &mut rng;
        let kind = kinds[index as usize % kinds.len()];
        let slow = kind == Kind::Qemu;
        let model = if slow { Model::Q8_0 } else { *Model::ALL.choose(rng).expect("there are models") };
        let draft = [Some(Draft::F16), Some(Draft::Q8_0), None].choose(rng).copied().flatten();
        let dma = [DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder];
        let mut session = Self {
            kind,
            model,
            draft,
            n_ctx: CONTEXTS[usize::from(rng.random_bool(0.7))],
            batch: *[1, 4, 32, 256].choose(rng).expect("there are batches"),
            threads: rng.random_range(1..=3),
            vtcm_bytes: 1 << rng.random_range(18..=22),
            dma: *dma.choose(rng).expect("there are modes"),
            sessions: if rng.random_bool(0.25) { rng.random_range(2..=3) } else { 1 },
            config: String::new(),
            may_fail: false,
            turns: Vec::new(),
        };
        if kind == Kind::Htp {
            session.config = session.weather(rng);
        }
        let text = text(model);
        let turns = if slow { 1..=2 } else { 1..=8 };
        for _ in 0..rng.random_range(turns) {
            session.turns.push(Turn::draw(rng, &session, &text));
        }
        session
    }

    /// What happens on the stand-in's side. Every fifth session has coherence checked, which is slow.
    fn weather(&mut self, rng: &mut StdRng) -> String {
        let mut words = vec![format!("arch={}", [73, 75, 79, 81].choose(rng).expect("there are chips"))];
        words.push("skels=73,75,79,81".to_owned());
        words.push(format!("sessions={}", self.sessions));
        if !rng.random_bool(0.2) {
            words.push("check=0".to_owned());
        }
        let at = rng.random_range(1..400);
        match rng.random_range(0..10) {
            0 => words.push(format!("crash={at}")),
            1 => words.push(format!("crash-answer={at}")),
            2 => words.push(format!("wanted={at}")),
            3 => words.push(format!("late={at},50")),
            4 => words.push(format!("{}{at}", FAILURES.choose(rng).expect("there are failures"))),
            _ => return words.join(" "),
        }
        // The end of a process while the model is loaded is an error at once, and some failures always are.
        self.may_fail = !words.iter().any(|word| word.starts_with("wanted") || word.starts_with("late"));
        words.join(" ")
    }
}

impl Turn {
    fn draw(rng: &mut StdRng, session: &SoakRun, text: &[u32]) -> Self {
        let slow = session.kind == Kind::Qemu;
        let most = if slow { 10 } else { 48 };
        let n = rng.random_range(1..=most);
        let start = rng.random_range(0..text.len() - most);
        let mut prompt = text[start..][..n].to_vec();
        if rng.random_bool(0.1) {
            // No text at all.
            prompt
                .iter_mut()
                .for_each(|id| *id = rng.random_range(0..text.iter().max().copied().unwrap_or(1)));
        }
        let who = match rng.random_range(0..10) {
            0..5 if session.draft.is_some() => Who::Model,
            0..7 => Who::NGram,
            7..9 => Who::Liar(rng.random()),
            _ => Who::Nobody,
        };
        let length = if rng.random_bool(0.25) {
            DraftLength::Auto
        } else {
            DraftLength::Fixed(rng.random_range(1..MAX_VERIFY))
        };
        let max_tokens = match rng.random_range(0..8) {
            _ if slow => Some(rng.random_range(1..=12)),
            0 => None,
            1 => Some(1),
            _ => Some(rng.random_range(2..=100)),
        };
        let kill = (session.kind != Kind::Inproc && rng.random_bool(0.2)).then(|| Kill {
            after: Duration::from_micros(rng.random_range(0..if slow { 5_000_000 } else { 400_000 })),
            stop: session.kind == Kind::Htp && rng.random_bool(0.1),
        });
        Self {
            fresh: rng.random_bool(0.4),
            prompt,
            seed: rng.random_bool(0.4).then(|| rng.random()),
            who,
            length,
            max_tokens,
            ignore_eos: rng.random_bool(0.5),
            stop: rng.random_bool(0.2).then(|| (*STOPS.choose(rng).expect("there are texts")).to_owned()),
            interrupt: rng.random_bool(0.15).then(|| rng.random_range(0..30)),
            kill,
        }
    }

    /// Where its drafts come from.
    pub fn source(&self) -> DraftSource {
        match self.who {
            Who::Nobody => DraftSource::None,
            Who::Model => DraftSource::Model,
            Who::NGram => DraftSource::Host(Box::new(NGram::new(2))),
            Who::Liar(seed) => DraftSource::Host(Box::new(Liar(StdRng::seed_from_u64(seed)))),
        }
    }
}

/// Drafts tokens of the text, in any order: now and then one is right. Some are no tokens at all.
struct Liar(StdRng);

impl Drafter for Liar {
    fn draft(&mut self, text: &[u32], most: usize, out: &mut Guess) {
        for _ in 0..self.0.random_range(0..=most) {
            let token = match self.0.random_range(0..40) {
                0 => u32::MAX,
                _ => text.choose(&mut self.0).copied().unwrap_or(1),
            };
            out.push(token, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run can be repeated, and from any session on.
    #[test]
    fn a_seed_says_it_all() {
        let kinds = [Kind::Inproc, Kind::Htp];
        let draw = |seed, index| format!("{:?}", SoakRun::draw(seed, index, &kinds, |_| (0..500).collect()));
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 5));
        assert_ne!(draw(7, 3), draw(8, 3));
    }
}
