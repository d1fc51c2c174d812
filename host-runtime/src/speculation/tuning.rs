//! The tuned constants of [`auto`](super::auto), each with its reason.
//!
//! They were chosen by random search for the least time over the replay in
//! `tests/e2e/tests/speculation/auto.rs`, at the costs of seven machines: the two of that test, and five with
//! cheap, dear, steep, flat and hopeless rounds. (`least_chain` was not: with it a chain has two drafts at
//! least.) Run it after a change:
//! `cargo test -p hexflash-e2e --test speculation auto_against -- --nocapture`.

/// Constants of the cost model, the odds and the policy. Costs are in plain steps: 1.0 is the time of one
/// plain step.
pub(super) struct Tuning {
    /// Cost of a block of drafts before any was timed.
    pub usual_draft: f64,
    /// Cost of a round without drafts before any was timed. It is low on purpose: a length that seems cheap
    /// is tried and then known, and one that seems dear never is.
    pub usual_round: f64,
    /// What each draft adds to the cost of a round before any was timed.
    pub usual_row: f64,
    /// Share of an error by which a cost is corrected, once the cost was timed often. It averages over about
    /// 30 times.
    pub gain: f64,
    /// Times that the first guess of a cost counts for.
    pub guess_weight: f64,
    /// Share of an error that is blamed on a slow moment of the machine.
    pub slow_gain: f64,
    /// What is left of a slow moment the next time that something is timed.
    pub slow_fade: f64,
    /// The largest error of a logarithm that counts: what took longer was interrupted.
    pub most_error: f64,

    /// Log odds of a draft of which nothing is known, at the start of a text.
    pub base: f64,
    /// Step by which `base` follows the drafts of this text.
    pub base_gain: f64,
    /// Log odds per unit of the margin by which the draft's logit exceeds all others.
    pub per_margin: f64,
    /// Margins above this say no more, so that no draft is ever certain.
    pub most_margin: f64,
    /// The margin that is assumed where drafts come without one.
    pub unknown_margin: f64,
    /// Log odds per log odds of what became of the same draft before.
    pub recall: f64,
    /// Added to both counts of that past, so that one case does not decide.
    pub doubt: f64,

    /// Rate that a new text is expected to have, in tokens per step; above 1, so that drafts are tried.
    pub first_rate: f64,
    /// Steps of time that this expectation counts for.
    pub first_rate_weight: f64,
    /// Rates at which drafting surely stops after a plain step, and at which it surely goes on.
    pub going: [f64; 2],
    /// What a plain step between two blocks loses if drafting goes on, per cost of a block: the drafts must
    /// be paid for again.
    pub loss: f64,
    /// Gain of a remembered round that makes it worth to draft at the same place again, per cost of a block.
    pub worth: f64,
    /// Plain steps between two looks, per cost of a block, after drafts that gained something.
    pub pause: f64,
    /// Factor of that pause after each look that gained nothing.
    pub pause_growth: f64,
    /// The longest pause.
    pub longest_pause: f64,
    /// What is left of the longest verified block after the next one.
    pub block_fade: f64,
    /// Drafts that a block has beyond the longest verified one: a block can grow only if there are more
    /// drafts.
    pub block_spare: f64,
    /// As the longest verified block counts where drafts are chained, at least: a chain has these drafts and
    /// the spare ones, as a single draft could not show that more of them pay.
    pub least_chain: f64,
}

/// The constants in use.
pub(super) const TUNING: Tuning = Tuning {
    usual_draft: 0.5,
    usual_round: 1.05,
    usual_row: 0.12,
    gain: 0.03,
    guess_weight: 4.0,
    slow_gain: 0.37,
    slow_fade: 0.97,
    most_error: 0.19,

    base: -0.49,
    base_gain: 0.168,
    per_margin: 0.92,
    most_margin: 3.5,
    unknown_margin: 0.7,
    recall: 4.8,
    doubt: 1.22,

    first_rate: 1.85,
    first_rate_weight: 1.5,
    going: [0.82, 1.3],
    loss: 0.73,
    worth: 0.48,
    pause: 3.0,
    pause_growth: 3.4,
    longest_pause: 100.0,
    block_fade: 0.975,
    block_spare: 1.234,
    least_chain: 1.0,
};
