//! Differences between lists of logits, and perplexity, summed up chunk by chunk.

use std::fmt;

use hexflash_oracle::llama::Choice;

/// The logarithm of the sum of `exp` of a row of logits: minus a logit, it is that token's negative log
/// likelihood.
fn log_sum(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&x| f64::from((x - max).exp())).sum();
    f64::from(max) + sum.ln()
}

/// Negative log likelihood of `token` under a row of logits.
fn nll(row: &[f32], token: i32) -> f64 {
    log_sum(row) - f64::from(row[token as usize])
}

/// A position where the best tokens differ.
#[derive(Clone, Copy, Debug)]
pub struct Parting {
    /// Position in the text or, for greedy tokens, number of the generated token.
    pub at: usize,
    /// llama.cpp's choice.
    pub llama: Choice,
    /// hexflash's choice.
    pub hexflash: Choice,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at {}: llama.cpp takes {} ({:.2e} above {}), hexflash {} ({:.2e} above {})",
            self.at,
            self.llama.id,
            self.llama.gap,
            self.llama.second,
            self.hexflash.id,
            self.hexflash.gap,
            self.hexflash.second
        )
    }
}

/// What was found in some rows of logits.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Positions compared.
    pub rows: usize,
    /// Sum of squared differences, and of squares of llama.cpp's logits.
    error: f64,
    norm: f64,
    /// The largest NMSE of a position.
    pub worst: f64,
    /// Where that is.
    pub worst_at: usize,
    /// Positions where the best token is the same.
    pub agreed: usize,
    /// Scored tokens, and their negative log likelihoods.
    scored: usize,
    llama: f64,
    hexflash: f64,
    /// First difference in the best token.
    pub parting: Option<Parting>,
    /// Where the best tokens differ, the largest lead that llama.cpp gave its own.
    pub widest: f32,
    /// NMSE of llama.cpp's own logits when it takes the chunk token by token, if that was asked for.
    pub noise: Option<f64>,
    /// NMSE of hexflash's own last row when the chunk is a prompt, run in batches: nothing, as grouping must
    /// not matter.
    pub prefill: f64,
}

impl Chunk {
    /// Takes a position in; `next` is the token that follows, if it is scored.
    pub fn add(&mut self, at: usize, llama: &[f32], hexflash: &[f32], next: Option<i32>) {
        let (mut error, mut norm) = (0.0, 0.0);
        for (&a, &b) in llama.iter().zip(hexflash) {
            let d = f64::from(a) - f64::from(b);
            error += d * d;
            norm += f64::from(a) * f64::from(a);
        }
        let nmse = if error == 0.0 { 0.0 } else { error / norm };
        // In this order NaN is above all.
        if nmse.total_cmp(&self.worst).is_gt() {
            (self.worst, self.worst_at) = (nmse, at);
        }
        self.rows += 1;
        self.error += error;
        self.norm += norm;
        let (a, b) = (Choice::of(llama), Choice::of(hexflash));
        if a.id == b.id {
            self.agreed += 1;
        } else {
            self.parting.get_or_insert(Parting { at, llama: a, hexflash: b });
            self.widest = self.widest.max(a.gap);
        }
        if let Some(next) = next {
            self.scored += 1;
            self.llama += nll(llama, next);
            self.hexflash += nll(hexflash, next);
        }
    }

    /// Adds another chunk.
    pub fn join(&mut self, other: &Self) {
        self.rows += other.rows;
        self.error += other.error;
        self.norm += other.norm;
        if other.worst.total_cmp(&self.worst).is_gt() {
            (self.worst, self.worst_at) = (other.worst, other.worst_at);
        }
        self.agreed += other.agreed;
        self.scored += other.scored;
        self.llama += other.llama;
        self.hexflash += other.hexflash;
        self.parting = self.parting.or(other.parting);
        self.widest = self.widest.max(other.widest);
        self.prefill = self.prefill.max(other.prefill);
        self.noise = self.noise.into_iter().chain(other.noise).reduce(f64::max);
    }

    /// NMSE over all positions.
    pub fn nmse(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.norm }
    }

    /// Perplexities: llama.cpp's, hexflash's.
    pub fn perplexity(&self) -> [f64; 2] {
        [self.llama, self.hexflash].map(|nll| (nll / self.scored as f64).exp())
    }

    /// Relative difference of the perplexities.
    pub fn perplexity_error(&self) -> f64 {
        let [a, b] = self.perplexity();
        (b / a - 1.0).abs()
    }
}

/// How far two ways to run a model are from the same weights without any rounding of activations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounding {
    /// llama.cpp on the file as it is.
    llama: Distance,
    /// hexflash.
    hexflash: Distance,
    /// Sum of squares of the logits without rounding.
    norm: f64,
    rows: usize,
    /// Logits of a position.
    width: usize,
    /// Negative log likelihood of the scored tokens without rounding, and their number.
    nll: f64,
    scored: usize,
}

/// A distance from the unrounded logits, summed up: of the logits, and of the probabilities.
#[derive(Clone, Copy, Debug, Default)]
struct Distance {
    square: f64,
    divergence: f64,
    /// Negative log likelihood of the scored tokens.
    nll: f64,
}

impl Distance {
    fn add(&mut self, exact: &[f32], row: &[f32], next: Option<i32>) {
        let squares = exact.iter().zip(row).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
        self.square += squares.sum::<f64>();
        let (exact_sum, row_sum) = (log_sum(exact), log_sum(row));
        let terms = exact.iter().zip(row).map(|(&exact, &found)| {
            let (exact, found) = (exact_sum - f64::from(exact), row_sum - f64::from(found));
            (-exact).exp() * (found - exact)
        });
        self.divergence += terms.sum::<f64>();
        self.nll += next.map_or(0.0, |next| nll(row, next));
    }
}

impl Rounding {
    /// hexflash may be as far from the unrounded result as llama.cpp, within this factor.
    ///
    /// Both round activations of the same weights in the same places, to numbers of the same precision or,
    /// hexflash, of a better one. So their errors have the same size, and go through the same layers, however
    /// many there are. Eight models of 64 layers (Q8_0 and Q4_0, four seeds each, 128 tokens) had 0.84 to
    /// 1.08 times llama.cpp's NMSE and 0.86 to 1.05 times its divergence; F16 and BF16, where only llama.cpp
    /// rounds, less than a tenth.
    pub const ROOM: f64 = 1.5;

    /// Takes a position in; `next` is the token that follows, if it is scored.
    pub fn add(&mut self, exact: &[f32], llama: &[f32], hexflash: &[f32], next: Option<i32>) {
        self.llama.add(exact, llama, next);
        self.hexflash.add(exact, hexflash, next);
        if let Some(next) = next {
            self.nll += nll(exact, next);
            self.scored += 1;
        }
        self.norm += exact.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        self.rows += 1;
        self.width = exact.len();
    }

    /// NMSE of the logits: llama.cpp's, hexflash's.
    pub fn nmse(&self) -> [f64; 2] {
        [self.llama, self.hexflash].map(|d| d.square / self.norm)
    }

    /// Kullback-Leibler divergence of the probabilities, in nats per position: llama.cpp's, hexflash's.
    pub fn divergence(&self) -> [f64; 2] {
        [self.llama, self.hexflash].map(|d| d.divergence / self.rows as f64)
    }

    /// Perplexities: without rounding, llama.cpp's, hexflash's.
    pub fn perplexity(&self) -> [f64; 3] {
        [self.nll, self.llama.nll, self.hexflash.nll].map(|nll| (nll / self.scored as f64).exp())
    }

    /// The widest lead of a token that rounding may well undo. A lead is the difference of two logits, each
    /// with the errors of both; four standard deviations of that are allowed.
    pub fn near_tie(&self) -> f64 {
        let logits = self.rows as f64 * self.width as f64;
        4.0 * (2.0 * (self.llama.square + self.hexflash.square) / logits).sqrt()
    }

    /// Whether hexflash is no further off than llama.cpp. NaN never is.
    pub fn fits(&self) -> bool {
        [self.nmse(), self.divergence()].iter().all(|[llama, hexflash]| *hexflash <= llama * Self::ROOM)
    }
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([a, b], [c, d], [exact, p, q]) = (self.nmse(), self.divergence(), self.perplexity());
        write!(
            f,
            "from the same weights without rounding of activations (perplexity {exact:.4}) llama.cpp is off by NMSE {a:.2e} \
             (divergence {c:.2e}, perplexity {:+.4} %), hexflash by {b:.2e} ({d:.2e}, {:+.4} %)",
            (p / exact - 1.0) * 100.0,
            (q / exact - 1.0) * 100.0
        )
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.perplexity();
        write!(
            f,
            "NMSE {:.2e} (position {} {:.2e}), best token the same in {} of {}, perplexity {a:.4} and {b:.4} ({:+.4} %)",
            self.nmse(),
            self.worst_at,
            self.worst,
            self.agreed,
            self.rows,
            (b / a - 1.0) * 100.0
        )?;
        self.noise
            .map_or(Ok(()), |noise| write!(f, "; llama.cpp against itself, token by token: {noise:.2e}"))
    }
}
