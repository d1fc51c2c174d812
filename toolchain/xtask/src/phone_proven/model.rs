//! A whole model through ggml's host side and a library: greedy text, compared with ggml's CPU backend.
//!
//! `tests/phone-proven/host/greedy.cpp` lets the CPU write, and has the library read the same tokens, so that
//! the logits of every place can be compared. Where the two would choose different tokens, the CPU's own
//! logits of both must be close: as close as the errors of logits make it likely.

use std::path::Path;
use std::process::Stdio;

use super::cases::Unit;
use super::lanes::in_lanes;
use super::session::Session;
use crate::failure::{Failure, Result};
use crate::process;
use crate::published;

/// Tokens that are written.
const TOKENS: usize = 64;
/// What they are written after: 18 tokens, which go to the matrix unit at once.
const PROMPT: &str = "The seven wonders of the ancient world were, in the order in which they were built:";
/// Seconds that the emulator may take for one message, on a machine with other work.
const SECONDS: &str = "600";
/// The largest normalized mean square error of logits, on average over the places. Both sides round
/// activations to 8 bits, in blocks of their own. v79 gave 1.7e-3, and 3.7e-2 where the race in pipelined
/// attention was in it. Run again with another model or prompt: `cargo xtask phone-proven --model`.
const MOST_ERROR: f64 = 6e-3;
/// How many times the error of a place's logits the gap of a near-tie may be. The gap is a difference of two
/// logits, each with such an error. v79 gave 1.4 at most, at three places.
const MOST_GAP: f64 = 4.0;

/// Runs the model with each library.
pub fn check(sessions: &[Session<'_>]) -> Result<()> {
    let Some(first) = sessions.first() else { return Ok(()) };
    let (program, model) = (first.harness.greedy()?, published::smollm2()?);
    in_lanes(sessions, |session| greedy(session, &program, &model)).map(drop)
}

/// Runs the model with one library.
fn greedy(session: &Session<'_>, program: &Path, model: &Path) -> Result<()> {
    // With a unit that takes its time, the race in pipelined attention would show: see
    // docs/testing/phone-proven.md.
    let mut command = session.command(program, Unit::AtOnce);
    command.arg(model).args(["HTP0", &TOKENS.to_string(), PROMPT]).env("PROVEN_SECONDS", SECONDS);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().map_err(|error| {
        let cause = format!("`{}` could not be started ({error})", process::typed(&command));
        Failure::unusable(cause, "remove target/phone-proven and try again")
    })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let text = match judge(&printed) {
        Ok(text) => text,
        Err(what) => {
            session.keep("greedy", &printed)?;
            let remedy = "repeat it by --model and --arch";
            return Err(Failure::failed(format!("{}: {what}", session.arch), remedy));
        }
    };
    println!("{}: {text}", session.arch);
    Ok(())
}

/// A place of the text.
struct Place {
    wanted: u32,
    chosen: u32,
    /// By how much the CPU's logit of its own choice is above that of the other one.
    gap: f64,
    /// Normalized mean square error of all logits.
    nmse: f64,
    /// Root of the mean square error of all logits.
    noise: f64,
}

impl Place {
    /// Reads what follows `@token` and the number of the place.
    fn read(words: &str) -> Option<Self> {
        let mut words = words.split_whitespace().skip(1);
        Some(Self {
            wanted: words.next()?.parse().ok()?,
            chosen: words.next()?.parse().ok()?,
            gap: words.next()?.parse().ok()?,
            nmse: words.next()?.parse().ok()?,
            noise: words.next()?.parse().ok()?,
        })
    }
}

/// What a run showed, in one line, or what is wrong with it.
fn judge(printed: &str) -> std::result::Result<String, String> {
    let lost = printed.lines().find(|line| line.starts_with("@lost") || line.starts_with("@greedy failed"));
    if let Some(line) = lost {
        return Err(line.to_owned());
    }
    let places = printed.lines().filter_map(|line| line.strip_prefix("@token "));
    let places: Vec<_> =
        places.map(|words| Place::read(words).ok_or(words)).collect::<std::result::Result<_, _>>()?;
    if places.len() != TOKENS || !printed.lines().any(|line| line == "@greedy ok") {
        return Err(format!("{} of {TOKENS} tokens came", places.len()));
    }
    let mean = places.iter().map(|place| place.nmse).sum::<f64>() / TOKENS as f64;
    if mean.is_nan() || mean > MOST_ERROR {
        return Err(format!("logits differ by {mean:.1e} on average, and {MOST_ERROR:.0e} is allowed"));
    }
    let mut near_ties = 0;
    for (number, place) in places.iter().enumerate() {
        if place.wanted != place.chosen {
            if place.gap.is_nan() || place.gap > MOST_GAP * place.noise {
                let Place { wanted, chosen, gap, noise, .. } = place;
                return Err(format!(
                    "token {number} is {chosen}, and {wanted} on the CPU, {gap} above it; logits differ by \
                     {noise}"
                ));
            }
            near_ties += 1;
        }
    }
    Ok(format!(
        "{} of {TOKENS} tokens of SmolLM2 135M are the CPU's, {near_ties} are near-ties; logits differ by \
         {mean:.1e} on average",
        TOKENS - near_ties
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(odd: &str) -> String {
        let lines = (0..TOKENS).map(|number| match number {
            5 => format!("@token {number} {odd}\n"),
            _ => format!("@token {number} 7 7 0.0 1e-4 0.1\n"),
        });
        lines.chain(["@greedy ok\n".to_owned()]).collect()
    }

    #[test]
    fn a_near_tie_is_as_near_as_logits_differ() {
        assert!(judge(&run("7 8 0.3 1e-4 0.1")).unwrap().starts_with("63 of 64"));
        assert!(judge(&run("7 8 0.9 1e-4 0.1")).unwrap_err().starts_with("token 5 is 8"));
    }

    #[test]
    fn what_is_missing_or_no_number_is_a_failure() {
        assert!(judge(&run("7 7 0.0 NaN 0.1")).is_err());
        assert!(judge(&run("7 7 0.0 1e-4")).is_err());
        assert!(judge(&run("7 7 0.0 1e-4 0.1").replace("@greedy ok", "")).is_err());
        assert!(judge("@lost signal 9 while no answer came").unwrap_err().contains("signal 9"));
    }
}
