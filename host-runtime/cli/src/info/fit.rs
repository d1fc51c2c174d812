//! How a model fits the versions of the Hexagon NPU, as a table.

use std::io::{Result, Write};

use hexflash::engine::{ChipFit, ModelFit, SessionNeeds};

fn mib(bytes: u64) -> String {
    format!("{:.0}", (bytes as f64 / 1048576.0).ceil())
}

/// Prints the table, and a line for each version that could do with less.
pub(super) fn print(out: &mut impl Write, fit: &ModelFit) -> Result<()> {
    let how = if fit.estimated { ", estimated from the file" } else { "" };
    writeln!(
        out,
        "\nfit, with a context of {}{how}: sessions, and MiB that the fullest one maps",
        fit.n_ctx
    )?;
    let [chip, sessions, weights, kv, states, other, all, limit] =
        ["chip", "sessions", "weights", "KV caches", "states", "other", "all", "of"];
    writeln!(
        out,
        "  {chip:<5} {sessions:>8} {weights:>9} {kv:>9} {states:>9} {other:>9} {all:>9} {limit:>9}"
    )?;
    for row in &fit.chips {
        let fullest = row.needs.iter().max_by_key(|needs| needs.total()).copied().unwrap_or_default();
        let SessionNeeds { weights, kv, recurrent, other, .. } = fullest;
        let sessions = row.sessions.map_or_else(|| "no".to_owned(), |n| n.to_string());
        let [weights, kv, states, other, all, limit] =
            [weights, kv, recurrent, other, fullest.total(), row.limits.total].map(mib);
        writeln!(
            out,
            "  {:<5} {sessions:>8} {weights:>9} {kv:>9} {states:>9} {other:>9} {all:>9} {limit:>9}",
            row.chip
        )?;
    }
    for row in &fit.chips {
        if let Some(line) = remedy(row, fit.weight_bits) {
            writeln!(out, "  {}: {line}", row.chip)?;
        }
    }
    Ok(())
}

/// What would make it fit, or fit fewer sessions.
fn remedy(row: &ChipFit, bits: f64) -> Option<String> {
    let misfit = match row.sessions {
        Some(1) => return None,
        Some(_) => String::new(),
        None => format!("does not fit {} sessions; ", row.needs.len()),
    };
    let Some(remedy) = &row.remedy else {
        return (row.sessions.is_none())
            .then(|| format!("{misfit}no shorter context and no quantization would make it fit"));
    };
    let context = remedy.context.map(|n| format!("-c {n}"));
    let weights = remedy
        .weight_bits
        .map(|most| format!("weights of at most {most:.1} bits on average (this file has {bits:.1})"));
    let ways: Vec<_> = context.into_iter().chain(weights).collect();
    let sessions = match remedy.sessions {
        1 => "1 session".to_owned(),
        n => format!("{n} sessions"),
    };
    Some(format!("{misfit}{sessions} would do with {}", ways.join(", or with ")))
}
