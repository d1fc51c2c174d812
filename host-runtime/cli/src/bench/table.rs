//! A sweep as tables.

use std::io::{Result, Write};

use super::sweep::{Mode, Report, RoundCost, Row};

pub(super) fn print(out: &mut impl Write, report: &Report) -> Result<()> {
    let d = &report.device;
    let drafter = report.draft.as_deref().unwrap_or(report.drafter);
    writeln!(out, "{} with {drafter}, {} with {} threads", report.model, d.name, d.threads)?;
    writeln!(out, "{}", d.description)?;
    writeln!(
        out,
        "up to {} tokens after each prompt, {} runs of each way by turns; speed-up: best run against best run",
        report.n_gen, report.repetitions
    )?;
    writeln!(out, "every run gave the tokens of plain decoding")?;
    for (i, prompt) in report.prompts.iter().enumerate() {
        writeln!(
            out,
            "\n{}. {:?}: {} tokens, then {}",
            i + 1,
            shortened(&prompt.prompt, 60),
            prompt.prompt_tokens,
            prompt.generated_tokens
        )?;
        heading(
            out,
            &[
                ("drafts", 6),
                ("tok/s", 9),
                ("median", 9),
                ("speed-up", 8),
                ("tokens/round", 12),
                ("accepted", 8),
            ],
        )?;
        for row in &prompt.rows {
            writeln!(
                out,
                "| {:>6} | {:>9} | {:>9} | {:>8} | {:>12} | {:>8} |",
                row.drafts,
                speed(row.best),
                speed(row.median),
                figure(row.speedup, ""),
                figure(row.tokens_per_round().filter(|_| row.drafts != Mode::Plain), ""),
                figure(acceptance(row), " %"),
            )?;
        }
    }

    writeln!(out, "\nmean of {} prompts (of speed-ups: geometric)", report.prompts.len())?;
    heading(out, &[("drafts", 6), ("speed-up", 8), ("tokens/round", 12), ("accepted", 8)])?;
    for row in &report.mean {
        writeln!(
            out,
            "| {:>6} | {:>8} | {:>12} | {:>8} |",
            row.drafts,
            figure(row.speedup, ""),
            figure(row.mean_accepted_length.filter(|_| row.drafts != Mode::Plain), ""),
            figure(row.acceptance.map(|share| 100.0 * share), " %"),
        )?;
    }
    writeln!(
        out,
        "\nauto against the better of plain and the best length: median over the turns, and its standard error"
    )?;
    heading(out, &[("prompt", 6), ("best", 6), ("auto", 8), ("error", 7)])?;
    for (i, prompt) in report.prompts.iter().enumerate() {
        let Some(((best, share), error)) = prompt.best.zip(prompt.auto_against_best).zip(prompt.auto_error)
        else {
            continue;
        };
        let (share, error) = (100.0 * (share - 1.0), 100.0 * error);
        writeln!(out, "| {:>6} | {best:>6} | {share:>+6.1} % | {error:>5.1} % |", i + 1)?;
    }

    writeln!(
        out,
        "\n{} of a round (plain: of a step; auto: of rounds and steps), mean of best runs",
        report.device.cost_unit.thousands()
    )?;
    let columns = RoundCost::NAMES.map(|name| (name, 10));
    heading(out, &[&[("drafts", 6)], &columns[..], &[("sum", 10)]].concat())?;
    for row in &report.mean {
        let RoundCost(values) = row.cost_per_round;
        write!(out, "| {:>6} |", row.drafts)?;
        for value in values.into_iter().chain([values.iter().sum()]) {
            write!(out, " {value:>10.1} |")?;
        }
        writeln!(out)?;
    }
    if report.interrupted {
        writeln!(out, "\ninterrupted: the figures are of the runs that were finished by then")?;
    }
    Ok(())
}

fn heading(out: &mut impl Write, columns: &[(&str, usize)]) -> Result<()> {
    let names: Vec<String> = columns.iter().map(|(name, width)| format!(" {name:>width$} ")).collect();
    let lines: Vec<String> = columns.iter().map(|(_, width)| format!("{}:", "-".repeat(width + 1))).collect();
    writeln!(out, "|{}|\n|{}|", names.join("|"), lines.join("|"))
}

/// Per cent of the drafts.
fn acceptance(row: &Row) -> Option<f64> {
    let stats = row.speculation.as_ref().filter(|stats| stats.drafted > 0)?;
    Some(100.0 * stats.acceptance())
}

/// Tokens per second.
fn speed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.1}"))
}

fn figure(value: Option<f64>, unit: &str) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.*}{unit}", if unit.is_empty() { 2 } else { 1 }))
}

/// The beginning of a long text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
