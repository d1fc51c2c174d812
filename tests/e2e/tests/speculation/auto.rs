//! `auto` against plain decoding and every fixed length, by the drafts that the models really give and by the
//! clock of a machine without noise: costs as they were measured on `inproc`, of caches too.

use std::time::Duration;

use hexflash::model::MAX_PENDING;
use hexflash::speculation::{Choice, DraftLength, Lengths};
use hexflash_e2e::{Draft, Model, inproc, reference, report};

use crate::common::quick;

/// Tokens of short and long texts, the first of which comes from the prompt. Long ones nearly fill the
/// context.
const SHORT: usize = 128;
const LONG: usize = 384;
/// A block of the shipped drafts, less its anchor.
const MOST: u32 = 7;

/// A text, and what is drafted at each of its places: the drafts, how many are right, and how sure the draft
/// is of each.
struct Text {
    ids: Vec<u32>,
    drafts: Vec<[u32; MOST as usize]>,
    right: Vec<usize>,
    margins: Vec<[f32; MOST as usize]>,
}

/// Costs in plain steps.
struct Costs {
    /// A block of drafts alone.
    draft: f64,
    /// With 1 to 7 drafts, as many of the next block included.
    rounds: [f64; MOST as usize],
    /// Another draft of the next block: a row of the LM head.
    row: f64,
    /// The features of a plain step, into the caches of the draft.
    features: f64,
}

/// What the caches hold.
struct Caches {
    /// Plain steps whose features wait; plain steps since a look or round, and since a round.
    pending: u32,
    since_block: i32,
    since_round: i32,
}

impl Caches {
    /// A plain step: the draft and wide rounds drive out of the caches what steps use.
    fn step(&mut self, costs: &Costs) -> f64 {
        let full = self.pending == MAX_PENDING;
        let read = if full { self.read(costs) } else { 0.0 };
        let more = (0.13 * 0.45f64.powi(self.since_round)).max(0.06 * 0.4f64.powi(self.since_block));
        (self.since_block, self.since_round) = (self.since_block + 1, self.since_round + 1);
        self.pending += 1;
        1.0 + read + more
    }

    /// The features that wait are handed to the draft.
    fn read(&mut self, costs: &Costs) -> f64 {
        costs.features * f64::from(std::mem::take(&mut self.pending))
    }

    /// What drafts cost more after plain steps, whose features are handed to the draft first.
    fn draft(&mut self, costs: &Costs) -> f64 {
        let steps = f64::from(std::mem::take(&mut self.since_block));
        0.25 * (1.0 - (-steps / 8.0).exp()) + self.read(costs)
    }

    fn round(&mut self) {
        (self.since_block, self.since_round) = (0, 0);
    }
}

impl Text {
    fn record(engine: &mut hexflash::engine::Engine, prompt: &[u32]) -> Self {
        engine.reset();
        engine.prefill(prompt, |_| {}).unwrap();
        let mut ids = vec![engine.argmax(0)];
        let (mut drafts, mut margins) = (Vec::new(), Vec::new());
        while ids.len() < LONG + MOST as usize {
            let last = ids[ids.len() - 1];
            let block = engine.draft(last, MOST).unwrap();
            drafts.push(std::array::from_fn(|i| block[i]));
            let mut sure = [0.0; MOST as usize];
            engine.read_margins(&mut sure);
            margins.push(sure);
            engine.decode(last).unwrap();
            ids.push(engine.argmax(0));
        }
        let right = |(i, drafts): (usize, &[u32; MOST as usize])| {
            drafts.iter().zip(&ids[i + 1..]).take_while(|(draft, id)| draft == id).count()
        };
        let right = drafts.iter().enumerate().map(right).collect();
        Self { ids, drafts, right, margins }
    }

    /// Generates `tokens` of the text as `lengths` says; the time it takes by `costs`. What `lengths` gets to
    /// see is that time, or what a machine with other work shows of it.
    fn time(&self, tokens: usize, lengths: &mut Lengths, costs: &Costs, noise: Option<u64>) -> f64 {
        let mut clock = self.right.iter().sum::<usize>() as u64;
        let mut step = |x: f64| {
            clock += 1;
            Duration::from_secs_f64(x / 1000.0 * noise.map_or(1.0, |noise| slowness(clock + noise * 1009)))
        };
        let (mut at, mut time) = (0, 0.0);
        let mut caches = Caches { pending: 0, since_block: 30, since_round: 30 };
        lengths.begin();
        while at < tokens - 1 {
            let most = |at: usize| MOST.min((tokens - 2).saturating_sub(at) as u32);
            if let Choice::Draft(mut drafted) = lengths.choose(most(at)) {
                let cost = costs.draft - costs.row * f64::from(MOST - drafted) + caches.draft(costs);
                lengths.drafted(step(cost));
                time += cost;
                while drafted > 0 {
                    let drafts = &self.drafts[at][..drafted as usize];
                    let taken = lengths.take(self.ids[at], drafts, Some(&self.margins[at]));
                    if taken == 0 {
                        break;
                    }
                    let next = lengths.next_block().clamp(taken, MOST);
                    let accepted = self.right[at].min(taken as usize);
                    let cost = costs.rounds[taken as usize - 1] + costs.row * f64::from(next - taken);
                    caches.round();
                    lengths.rounded(taken, &self.ids[at + 1..at + 2 + accepted], step(cost));
                    (at, time) = (at + 1 + accepted, time + cost);
                    drafted = next.min(most(at));
                }
            }
            if at < tokens - 1 {
                let cost = caches.step(costs);
                lengths.stepped(self.ids[at + 1], step(cost));
                (at, time) = (at + 1, time + cost);
            }
        }
        time
    }

    /// The time of the better of plain steps and the best fixed length.
    fn best(&self, tokens: usize, costs: &Costs) -> f64 {
        let fixed =
            (1..=MOST).map(|n| self.time(tokens, &mut Lengths::new(DraftLength::Fixed(n)), costs, None));
        fixed.fold((tokens - 1) as f64, f64::min)
    }
}

/// Of a machine that has other work: a third slower now and then, a tenth more or less each time, and
/// sometimes interrupted.
fn slowness(clock: u64) -> f64 {
    let scatter = (clock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24);
    let phase = if clock / 37 % 3 == 1 { 1.33 } else { 1.0 };
    let interrupted = if scatter > 0.97 { 4.0 } else { 1.0 };
    phase * interrupted * (0.95 + 0.15 * scatter)
}

/// What to demand: the time of the best fixed length over that of `auto`, in the mean over all texts, at
/// worst and at best.
struct Demand {
    mean: f64,
    worst: f64,
    best: f64,
}

/// In a session that knows what rounds cost, `auto` is better in the mean than the best fixed length of every
/// single text, which nobody knows beforehand: by far where texts are long, and then never more than 3 %
/// worse. What drafts are worth is learned by looks and rounds of 2.5 steps each, some of which gain nothing,
/// and short texts have 127.
#[test]
fn auto_against_every_fixed_length() {
    // Medians of many runs of one thread: Q8_0 and F16 weights.
    let q8_0 = Costs {
        draft: 0.70,
        rounds: [1.87, 2.11, 2.43, 2.86, 3.06, 3.26, 3.52],
        row: 0.0155,
        features: 0.0165,
    };
    let f16 = Costs {
        draft: 0.62,
        rounds: [1.85, 2.06, 2.26, 2.71, 2.91, 3.06, 3.29],
        row: 0.022,
        features: 0.0123,
    };
    let demands = [
        (SHORT, Demand { mean: 1.0, worst: 0.93, best: 1.05 }),
        (LONG, Demand { mean: 1.07, worst: 0.97, best: 1.1 }),
    ];
    for (model, draft, costs) in [(Model::Q8_0, Draft::Q8_0, q8_0), (Model::F16, Draft::F16, f16)] {
        let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
        let cases = reference::greedy(model).cases;
        let texts: Vec<Text> = cases.iter().map(|case| Text::record(&mut engine, &case.prompt_ids)).collect();
        for (tokens, demand) in &demands {
            for noises in [vec![None], (0..16).map(Some).collect()] {
                let noisy = if noises.len() > 1 { ", noisy clocks" } else { "" };
                let what = format!("{model:?}, {tokens} tokens{noisy}");
                let ratios = against_best(&texts, *tokens, &costs, &noises);
                for ((case, text), ratio) in cases.iter().zip(&texts).zip(&ratios) {
                    let speedup = (tokens - 1) as f64 / text.best(*tokens, &costs);
                    let more = 100.0 * (ratio - 1.0);
                    report(format!("{what}, {:?}: best {speedup:.2}, auto {more:+.1} %", case.prompt));
                }
                let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
                let [worst, highest] =
                    [f64::min, f64::max].map(|f| ratios.iter().copied().reduce(f).unwrap());
                report(format!("{what}: {mean:.3} of the best, {worst:.3} at worst, {highest:.3} at best"));
                assert!(
                    mean > demand.mean && worst > demand.worst && highest > demand.best,
                    "{what}: {mean} {worst} {highest}"
                );
            }
        }
    }
}

/// For each text the time of the better of plain steps and the best fixed length over that of `auto`, the
/// mean over `noises`.
fn against_best(texts: &[Text], tokens: usize, costs: &Costs, noises: &[Option<u64>]) -> Vec<f64> {
    let mut ratios = vec![0.0; texts.len()];
    for &noise in noises {
        let mut auto = Lengths::new(DraftLength::Auto);
        // The session before.
        for text in texts {
            text.time(tokens, &mut auto, costs, noise);
        }
        for (text, ratio) in texts.iter().zip(&mut ratios) {
            let time = text.time(tokens, &mut auto, costs, noise);
            *ratio += text.best(tokens, costs) / time / noises.len() as f64;
        }
    }
    ratios
}
