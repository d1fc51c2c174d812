//! Sweeps as a picture: tokens per round and speed-up against draft length, SVG.

use std::fmt::Write;
use std::path::Path;

use super::sweep::{MeanRow, Mode, Report};
use super::table::shortened;
use crate::CliError;
use crate::options::SpecType;

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

/// The file of the picture. One that was not there before is removed if nothing is written into it.
pub(super) struct PlotFile<'a> {
    path: &'a Path,
    is_new: bool,
}

impl<'a> PlotFile<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, CliError> {
        let is_new = !path.exists();
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|source| CliError::Plot { path: path.to_owned(), source })?;
        Ok(Self { path, is_new })
    }

    pub(super) fn write(mut self, svg: &str) -> Result<(), CliError> {
        self.is_new = false;
        std::fs::write(self.path, svg).map_err(|source| CliError::Plot { path: self.path.to_owned(), source })
    }
}

impl Drop for PlotFile<'_> {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// Where a way of decoding stands on the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Plain,
    Drafts(u32),
    Auto,
}

impl From<Mode> for Place {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Plain => Self::Plain,
            Mode::Fixed(n) | Mode::Of(_, n) => Self::Drafts(n),
            Mode::Auto => Self::Auto,
        }
    }
}

/// A line of both panels.
struct Line {
    name: String,
    colour: &'static str,
    is_wide: bool,
    /// Tokens per round, and speed-up, of each way of decoding that has them.
    points: Vec<(Place, [Option<f64>; 2])>,
}

/// The picture of a sweep, or of one for each placement.
pub(super) fn sweep(reports: &[Report]) -> String {
    let Some(report) = reports.first() else { return String::new() };
    let several = reports.len() > 1 || report.mean.iter().any(|row| matches!(row.drafts, Mode::Of(..)));
    let lines = if several { means(reports) } else { prompts(report) };
    let legend_at = LEFT + 2.0 * STEP - 40.0;
    let (w, h) = (legend_at + LEGEND, (TOP + HEIGHT + 60.0).max(TOP + 20.0 * (lines.len() as f64 + 1.0)));
    let drafter = report.draft.as_deref().unwrap_or(&report.drafter);
    let place = match several {
        true => format!("mean of {} prompts", report.prompts.len()),
        false => format!("{} with {} threads", report.device.name, report.device.threads),
    };
    let title = format!("{} with {drafter}, {place}", report.model);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"white\"/>\n"
    );
    text(&mut out, (LEFT, 22.0), "start", &title);
    panel(&mut out, LEFT, "tokens per round", &lines, 0);
    panel(&mut out, LEFT + STEP, "speed-up over plain decoding", &lines, 1);
    for (i, line) in lines.iter().enumerate() {
        let y = TOP + 20.0 * i as f64 + 8.0;
        stroke(&mut out, &[(legend_at, y), (legend_at + 24.0, y)], line);
        text(&mut out, (legend_at + 32.0, y + 4.0), "start", &line.name);
    }
    out + "</svg>\n"
}

/// A line for each prompt, and their mean.
fn prompts(report: &Report) -> Vec<Line> {
    let colours = COLOURS.iter().cycle();
    let mut lines: Vec<Line> = (report.prompts.iter().zip(colours))
        .map(|(prompt, colour)| Line {
            name: shortened(&prompt.prompt, 34),
            colour,
            is_wide: false,
            points: (prompt.rows.iter())
                .map(|row| (row.drafts.into(), [row.tokens_per_round(), row.speedup]))
                .collect(),
        })
        .collect();
    lines.push(Line {
        name: "mean".to_owned(),
        colour: MEAN,
        is_wide: true,
        points: report.mean.iter().map(point).collect(),
    });
    lines
}

/// The mean of the prompts: a line for each drafter in each placement. Where there are several drafters,
/// `auto` is a choice among them and belongs to none: it is a line of its own.
fn means(reports: &[Report]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut colours = COLOURS.iter().cycle();
    for report in reports {
        let mut kinds: Vec<Option<SpecType>> = Vec::new();
        for row in &report.mean {
            let kind = kind_of(row.drafts);
            if !matches!(row.drafts, Mode::Plain | Mode::Auto) && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let is_one = kinds.len() == 1;
        let on = report.placement.as_ref().map_or(String::new(), |placement| format!(", {placement}"));
        let mut add = |name: &str, is_wide: bool, of: &dyn Fn(Mode) -> bool| {
            let points = report.mean.iter().filter(|row| of(row.drafts)).map(point).collect();
            let colour = colours.next().copied().unwrap_or(MEAN);
            lines.push(Line { name: format!("{name}{on}"), colour, is_wide, points });
        };
        for kind in kinds {
            let name = kind.map_or(&report.drafter[..], |kind| kind.name());
            add(name, false, &|mode| match mode {
                Mode::Plain => true,
                Mode::Fixed(_) | Mode::Of(..) => kind_of(mode) == kind,
                Mode::Auto => is_one,
            });
        }
        if !is_one {
            add("auto", true, &|mode| mode == Mode::Auto);
        }
    }
    lines
}

fn kind_of(mode: Mode) -> Option<SpecType> {
    if let Mode::Of(kind, _) = mode { Some(kind) } else { None }
}

fn point(row: &MeanRow) -> (Place, [Option<f64>; 2]) {
    (row.drafts.into(), [row.mean_accepted_length, row.speedup])
}

fn panel(out: &mut String, left: f64, title: &str, lines: &[Line], value: usize) {
    let mut places: Vec<Place> =
        lines.iter().flat_map(|line| &line.points).map(|(place, _)| *place).collect();
    places.sort_unstable();
    places.dedup();
    let drafts = |place: &Place| if let Place::Drafts(n) = place { Some(*n) } else { None };
    let longest = f64::from(places.iter().filter_map(drafts).max().unwrap_or(1));
    // Plain decoding drafts nothing; auto stands to the right of all.
    let across = |place: Place| match place {
        Place::Plain => 0.0,
        Place::Drafts(n) => f64::from(n),
        Place::Auto => longest + (0.15 * longest).max(0.6),
    };
    let end = across(Place::Auto) + 0.05 * longest;
    let values = lines.iter().flat_map(|line| &line.points).filter_map(|(_, values)| values[value]);
    let highest = values.fold(1.0, f64::max);
    let tick = tick(highest);
    let top = (1.05 * highest / tick).ceil() * tick;
    let at =
        |place: Place, value: f64| (left + WIDTH * across(place) / end, TOP + HEIGHT * (1.0 - value / top));

    text(out, (left + WIDTH / 2.0, TOP - 14.0), "middle", title);
    let bottom = TOP + HEIGHT;
    for i in 0..=(top / tick).round() as u32 {
        let (value, y) = (f64::from(i) * tick, bottom - HEIGHT * f64::from(i) * tick / top);
        let grey = if i == 0 { "#444" } else { "#ddd" };
        rule(out, (left, y), (left + WIDTH, y), grey, "");
        text(out, (left - 8.0, y + 4.0), "end", &format!("{value:.*}", if tick < 1.0 { 1 } else { 0 }));
    }
    let (from, to) = (at(Place::Plain, 1.0), left + WIDTH);
    rule(out, from, (to, from.1), "#888", " stroke-dasharray=\"4 4\"");
    for place in places {
        let (x, _) = at(place, 0.0);
        rule(out, (x, bottom), (x, bottom + 5.0), "#444", "");
        let label = match place {
            Place::Plain => "0".to_owned(),
            Place::Drafts(n) => n.to_string(),
            Place::Auto => "auto".to_owned(),
        };
        text(out, (x, bottom + 19.0), "middle", &label);
    }
    text(out, (left + WIDTH / 2.0, bottom + 40.0), "middle", "tokens drafted per round");
    for line in lines {
        let points: Vec<(Place, (f64, f64))> = (line.points.iter())
            .filter_map(|(place, values)| Some((*place, at(*place, values[value]?))))
            .collect();
        let fixed = points.iter().filter(|(place, _)| *place != Place::Auto).map(|(_, point)| *point);
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
    let width = if line.is_wide { 3.0 } else { 1.5 };
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
