//! A sweep as tables.

use std::io::{Result, Write};

use super::figures::AgainstOne;
use super::sweep::{Mode, Report, RoundCost, Row};

pub(super) fn print(out: &mut impl Write, report: &Report) -> Result<()> {
    let d = &report.device;
    let drafter = report.draft.as_deref().unwrap_or(&report.drafter);
    writeln!(out, "{} with {drafter}, {} with {} threads", report.model, d.name, d.threads)?;
    writeln!(out, "{}", d.description)?;
    writeln!(
        out,
        "up to {} tokens after each prompt, {} runs of each way by turns; speed-up: best run against best run",
        report.n_gen, report.repetitions
    )?;
    writeln!(out, "every run gave the tokens of plain decoding")?;
    // Names of drafters are longer than numbers of drafts.
    let w = report.mean.iter().map(|row| row.drafts.to_string().len()).max().unwrap_or(0).max(6);
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
                ("drafts", w),
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
                "| {:>w$} | {:>9} | {:>9} | {:>8} | {:>12} | {:>8} |",
                row.drafts,
                speed(row.best),
                speed(row.median),
                figure(row.speedup, ""),
                figure(row.tokens_per_round().filter(|_| row.drafts != Mode::Plain), ""),
                figure(acceptance(row), " %"),
            )?;
        }
    }

    writeln!(
        out,
        "\nmean of {} prompts (of speed-ups: geometric; by turns: of medians)",
        report.prompts.len()
    )?;
    heading(out, &[("drafts", w), ("speed-up", 8), ("by turns", 13), ("tokens/round", 12), ("accepted", 8)])?;
    for row in &report.mean {
        writeln!(
            out,
            "| {:>w$} | {:>8} | {:>13} | {:>12} | {:>8} |",
            row.drafts,
            figure(row.speedup, ""),
            row.by_turns.map_or("-".to_owned(), |ratio| ratio.to_string()),
            figure(row.mean_accepted_length.filter(|_| row.drafts != Mode::Plain), ""),
            figure(row.acceptance.map(|share| 100.0 * share), " %"),
        )?;
    }
    if let Some(AgainstOne { drafts, ratio }) = report.auto_against_one {
        let one =
            if drafts == Mode::Plain { "plain decoding".to_owned() } else { format!("{drafts} drafts") };
        writeln!(out, "auto is {ratio} times as fast as the best of one choice for all prompts, {one}")?;
    }
    writeln!(
        out,
        "\nauto against the better of plain and the best length: median over the turns, and its standard error"
    )?;
    heading(out, &[("prompt", 6), ("best", w), ("auto", 8), ("error", 7)])?;
    for (i, prompt) in report.prompts.iter().enumerate() {
        let Some(((best, share), error)) = prompt.best.zip(prompt.auto_against_best).zip(prompt.auto_error)
        else {
            continue;
        };
        let (share, error) = (100.0 * (share - 1.0), 100.0 * error);
        writeln!(out, "| {:>6} | {best:>w$} | {share:>+6.1} % | {error:>5.1} % |", i + 1)?;
    }

    writeln!(
        out,
        "\n{} of a round (plain: of a step; auto: of rounds and steps), mean of best runs",
        report.device.cost_unit.thousands()
    )?;
    let columns = RoundCost::NAMES.map(|name| (name, 10));
    heading(out, &[&[("drafts", w)], &columns[..], &[("sum", 10)]].concat())?;
    for row in &report.mean {
        let RoundCost(values) = row.cost_per_round;
        write!(out, "| {:>w$} |", row.drafts)?;
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

/// The speed of every placement with every number of drafts: a matrix for each prompt, and the mean.
pub(super) fn print_placements(out: &mut impl Write, reports: &[Report]) -> Result<()> {
    let Some(first) = reports.first() else { return Ok(()) };
    let name = |report: &Report| report.placement.as_ref().map(ToString::to_string).unwrap_or_default();
    let w = reports.iter().map(|report| name(report).len()).max().unwrap_or(0).max(9);
    let modes: Vec<String> = first.mean.iter().map(|row| row.drafts.to_string()).collect();
    let columns: Vec<(&str, usize)> = modes.iter().map(|mode| (&mode[..], mode.len().max(8))).collect();
    let print_matrix = |out: &mut dyn Write, value: &dyn Fn(&Report, usize) -> String| {
        heading(out, &[&[("placement", w)], &columns[..]].concat())?;
        for report in reports {
            write!(out, "| {:>w$} |", name(report))?;
            for (i, &(_, width)) in columns.iter().enumerate() {
                write!(out, " {:>width$} |", value(report, i))?;
            }
            writeln!(out)?;
        }
        Result::Ok(())
    };
    for (i, prompt) in first.prompts.iter().enumerate() {
        writeln!(out, "\n{}. {:?}: median tok/s, target+draft", i + 1, shortened(&prompt.prompt, 60))?;
        print_matrix(out, &|report, mode| {
            speed(report.prompts.get(i).and_then(|prompt| prompt.rows[mode].median))
        })?;
    }
    writeln!(out, "\nspeed-up over plain decoding on the target's device, geometric mean of the prompts")?;
    print_matrix(out, &|report, mode| figure(report.mean[mode].speedup, ""))
}

fn heading(out: &mut (impl Write + ?Sized), columns: &[(&str, usize)]) -> Result<()> {
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
