//! A sweep as a picture: tokens per round and speed-up against draft length, SVG.

use std::fmt::Write;

use super::sweep::{Mode, Report};
use super::table::shortened;

const WIDTH: f64 = 430.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
/// From one panel to the next.
const STEP: f64 = WIDTH + 70.0;
const LEGEND: f64 = 290.0;
const MEAN: &str = "#111";
/// Colours of the prompts, by turns.
const COLOURS: [&str; 10] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
    "#17becf",
];

/// A line of a panel: a value for each way of decoding.
struct Line {
    name: String,
    colour: &'static str,
    values: Vec<Option<f64>>,
}

/// The picture of a report.
pub(super) fn sweep(report: &Report) -> String {
    let modes: Vec<Mode> = report.mean.iter().map(|row| row.drafts).collect();
    let names = report.prompts.iter().map(|prompt| shortened(&prompt.prompt, 34));
    let colours = COLOURS.iter().cycle();
    let prompts = || report.prompts.iter().zip(names.clone().zip(colours.clone()));
    let mean = |values| Line { name: "mean".to_owned(), colour: MEAN, values };
    let mut rounds: Vec<Line> = prompts()
        .map(|(prompt, (name, colour))| Line {
            name,
            colour,
            values: prompt.rows.iter().map(|row| row.tokens_per_round()).collect(),
        })
        .collect();
    rounds.push(mean(report.mean.iter().map(|row| row.mean_accepted_length).collect()));
    let mut speed: Vec<Line> = prompts()
        .map(|(prompt, (name, colour))| Line {
            name,
            colour,
            values: prompt.rows.iter().map(|row| row.speedup).collect(),
        })
        .collect();
    speed.push(mean(report.mean.iter().map(|row| row.speedup).collect()));

    let legend_at = LEFT + 2.0 * STEP - 40.0;
    let rows = rounds.len() as f64 + 1.0;
    let (w, h) = (legend_at + LEGEND, (TOP + HEIGHT + 60.0).max(TOP + 20.0 * rows));
    let drafter = report.draft.as_deref().unwrap_or(&report.drafter);
    let title = format!(
        "{} with {drafter}, {} with {} threads",
        report.model, report.device.name, report.device.threads
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"white\"/>\n"
    );
    text(&mut out, (LEFT, 22.0), "start", &title);
    panel(&mut out, LEFT, "tokens per round", &modes, &rounds);
    panel(&mut out, LEFT + STEP, "speed-up over plain decoding", &modes, &speed);
    for (i, line) in rounds.iter().enumerate() {
        let y = TOP + 20.0 * i as f64 + 8.0;
        stroke(&mut out, &[(legend_at, y), (legend_at + 24.0, y)], line);
        text(&mut out, (legend_at + 32.0, y + 4.0), "start", &line.name);
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, left: f64, title: &str, modes: &[Mode], lines: &[Line]) {
    let longest =
        modes.iter().filter_map(|mode| if let Mode::Fixed(n) = mode { Some(*n) } else { None }).max();
    let longest = f64::from(longest.unwrap_or(1));
    // Plain decoding drafts nothing; auto has a place of its own, to the right.
    let place = |mode: &Mode| match mode {
        Mode::Plain => 0.0,
        Mode::Fixed(n) | Mode::Of(_, n) => f64::from(*n),
        Mode::Auto => longest + (0.15 * longest).max(0.6),
    };
    let end = place(&Mode::Auto) + 0.05 * longest;
    let highest = lines.iter().flat_map(|line| &line.values).flatten().copied().fold(1.0, f64::max);
    let tick = tick(highest);
    let top = (1.05 * highest / tick).ceil() * tick;
    let at = |mode: &Mode, value: f64| (left + WIDTH * place(mode) / end, TOP + HEIGHT * (1.0 - value / top));

    text(out, (left + WIDTH / 2.0, TOP - 14.0), "middle", title);
    let bottom = TOP + HEIGHT;
    for i in 0..=(top / tick).round() as u32 {
        let (value, y) = (f64::from(i) * tick, bottom - HEIGHT * f64::from(i) * tick / top);
        let grey = if i == 0 { "#444" } else { "#ddd" };
        rule(out, (left, y), (left + WIDTH, y), grey, "");
        text(out, (left - 8.0, y + 4.0), "end", &format!("{value:.*}", if tick < 1.0 { 1 } else { 0 }));
    }
    let (from, to) = (at(&Mode::Plain, 1.0), left + WIDTH);
    rule(out, from, (to, from.1), "#888", " stroke-dasharray=\"4 4\"");
    for mode in modes {
        let (x, _) = at(mode, 0.0);
        rule(out, (x, bottom), (x, bottom + 5.0), "#444", "");
        let label = if *mode == Mode::Plain { "0".to_owned() } else { mode.to_string() };
        text(out, (x, bottom + 19.0), "middle", &label);
    }
    text(out, (left + WIDTH / 2.0, bottom + 40.0), "middle", "tokens drafted per round");
    for line in lines {
        let points: Vec<(Mode, (f64, f64))> = modes
            .iter()
            .zip(&line.values)
            .filter_map(|(mode, value)| Some((*mode, at(mode, (*value)?))))
            .collect();
        let fixed = points.iter().filter(|(mode, _)| *mode != Mode::Auto).map(|(_, point)| *point);
        stroke(out, &fixed.collect::<Vec<_>>(), line);
        for (_, (x, y)) in &points {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", line.colour);
        }
    }
}

/// A round distance of about five ticks.
fn tick(highest: f64) -> f64 {
    let rough = highest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0)
}

fn stroke(out: &mut String, points: &[(f64, f64)], line: &Line) {
    let width = if line.colour == MEAN { 3.0 } else { 1.5 };
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let (points, colour) = (points.join(" "), line.colour);
    let _ = writeln!(
        out,
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
    );
}

fn rule(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str, more: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"{more}/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ =
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(text));
}

/// Text as XML has it; line breaks and other control characters as marks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' => out.push('↵'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('·'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        for (highest, expected) in [(1.0, 0.2), (2.3, 0.5), (7.0, 2.0), (8.0, 2.0), (16.0, 5.0)] {
            assert!((tick(highest) - expected).abs() < 1e-12, "{highest}: {}", tick(highest));
        }
    }

    #[test]
    fn text_is_safe_in_xml() {
        assert_eq!(escaped("a<b> & c\n\u{0}"), "a&lt;b&gt; &amp; c↵·");
    }
}
