//! `hexflash selftest`: what a device makes of float instructions and small kernels, against words that were
//! computed by definitions; what only a processor answers; speeds. One file to mail.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::output::print_json;
use super::{CliError, record};
use crate::deploy::{self, Reader, TargetArgs};
use crate::doctor::{self, Private};
use crate::options::DeviceArgs;
use hexflash::device::{self, CostUnit, Device, DeviceError, DeviceOptions};
use hexflash::gguf::Clean;
use hexflash::selftest::{self, FormAnswer, FormVectors, OpAnswer, OpVectors, Speed, Study, Table};
use hexflash_abi::message::{Message, Ping};
use hexflash_abi::probe::{Loop, Question};

/// How long a speed is measured, at least.
const MEASURED: Duration = Duration::from_millis(500);
/// Size of what is measured: weights of 1,024 by 1,024; and under emulation, which takes long and whose time
/// means nothing.
const SCALE: u32 = 32;
const SCALE_EMULATED: u32 = 2;
/// Lanes of a form that are written out; the first tell what is different.
const SHOWN: usize = 4;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON object instead
    #[arg(long)]
    json: bool,
    /// Write everything into FILE, too, without serial numbers and without names and folders of yours
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Compare with the vectors of FILE [default: those of the program]
    #[arg(long, value_name = "FILE", conflicts_with = "serial")]
    vectors: Option<PathBuf>,
    /// Hide such names in what is printed, too
    #[arg(long, hide = true)]
    anonymous: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// How something came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// As the table has it.
    Expected,
    /// Otherwise.
    Wrong,
    /// Otherwise, and nobody knew: an answer to a question.
    News,
    /// An answer to a question that nobody has an opinion on.
    Answer,
    /// The device or its code has nothing of the kind.
    Absent,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Expected => "expected",
            Self::Wrong => "WRONG",
            Self::News => "news",
            Self::Answer => "answer",
            Self::Absent => "absent",
        }
    }
}

/// A form, a kernel, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    kind: String,
    name: String,
    verdict: Verdict,
    /// Question, if it is one, and what is different.
    text: String,
}

/// A speed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    what: String,
    value: f64,
    unit: String,
}

/// Resources that a session says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Granted {
    threads: u32,
    vtcm_bytes: u32,
}

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Findings {
    /// Whether nothing is wrong.
    ok: bool,
    program: String,
    system: String,
    device: String,
    description: String,
    /// Version of the Hexagon, if it is one.
    hexagon: Option<String>,
    threads: u32,
    vtcm_bytes: u32,
    /// Threads and bytes of VTCM that the session has, as it says.
    granted: Granted,
    matrix_unit: String,
    results: Vec<Line>,
    speeds: Vec<Measured>,
    log: Vec<String>,
}

/// The arguments as they are for the self-test: settings of the device cannot be given for another machine.
pub(super) fn with_target(command: clap::Command) -> clap::Command {
    let elsewhere = doctor::ELSEWHERE.into_iter();
    elsewhere.fold(command, |command, name| command.mut_arg(name, |arg| arg.conflicts_with("DeviceArgs")))
}

pub(super) fn run(args: &Args, read: Reader) -> Result<ExitCode, CliError> {
    if args.target.is_given() {
        return elsewhere(args, read);
    }
    let private = (args.anonymous || args.report.is_some()).then(Private::here);
    let mut found = here(args)?;
    let hidden = private.map(|private| found.clone().without(&private));
    if args.anonymous
        && let Some(hidden) = &hidden
    {
        found = hidden.clone();
    }
    finish(args, &found, hidden.as_ref().unwrap_or(&found))
}

/// Prints what was found, and writes the report; gives 1 if something is wrong.
fn finish(args: &Args, found: &Findings, reported: &Findings) -> Result<ExitCode, CliError> {
    if args.json {
        print_json(found)?;
    } else {
        write!(std::io::stdout().lock(), "{}", found.text())?;
    }
    if let Some(path) = &args.report {
        fs::write(path, reported.text())
            .map_err(|source| CliError::Report { path: path.to_owned(), source })?;
    }
    Ok(ExitCode::from(u8::from(!found.ok)))
}

/// The self-test on a machine that adb reaches, on its DSP.
fn elsewhere(args: &Args, read: Reader) -> Result<ExitCode, CliError> {
    let json = args.json || args.report.is_some();
    let hidden = args.anonymous || args.report.is_some();
    let words =
        [("selftest", true), ("--device", true), ("htp", true), ("--json", json), ("--anonymous", hidden)];
    let words = words.into_iter().filter(|(_, wanted)| *wanted).map(|(word, _)| word.to_owned());
    let deployment = deploy::Args::new(args.target.clone(), None, words.collect());
    if args.report.is_none() {
        return deploy::run(&deployment, read);
    }
    let found: Findings =
        serde_json::from_str(&deploy::output(&deployment, read)?).map_err(|_| CliError::NoFindings)?;
    let found = found.without(&Private::here());
    finish(args, &found, &found)
}

/// The table to compare with.
fn table(args: &Args) -> Result<Table, CliError> {
    let table = match &args.vectors {
        None => Table::built_in(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|source| CliError::Vectors { path: path.clone(), reason: source.to_string() })?;
            Table::parse(&text)
        }
    };
    let path = || args.vectors.clone().unwrap_or_default();
    table.map_err(|reason| CliError::Vectors { path: path(), reason })
}

/// The self-test here.
fn here(args: &Args) -> Result<Findings, CliError> {
    let table = table(args)?;
    // With the unit, if there is one: a device without starts all the same.
    let options = DeviceOptions { sessions: Some(1), matrix_unit: true, ..args.device.options() };
    let mut device = device::open(&args.device.device, &options)?;
    let device = &mut *device;
    let mut results = Vec::new();
    for vectors in &table.forms {
        if let Some(line) = form(device, vectors)? {
            results.push(line);
        }
    }
    for vectors in &table.ops {
        results.push(kernel(device, vectors)?);
    }
    for study in Study::ALL {
        results.push(matrix_unit(device, study)?);
    }
    for question in [Question::OneQueue, Question::TwoQueues] {
        results.push(transfers(device, question)?);
    }
    let mut speeds = Vec::new();
    for &kind in Loop::ALL {
        packets(device, kind, &mut results, &mut speeds)?;
    }
    let scale = if args.device.device == "qemu" { SCALE_EMULATED } else { SCALE };
    for speed in Speed::ALL {
        if let Some(value) = selftest::kernels::measure(device, speed, scale, MEASURED)? {
            speeds.push(Measured { what: speed.name().to_owned(), value, unit: speed.unit().to_owned() });
        }
    }
    let patience = device.patience();
    let session = device.call(&Message::Ping(Ping::OURS), patience)?.ping_info();
    let granted = Granted { threads: session.n_threads, vtcm_bytes: session.vtcm_bytes };
    let info = device.info();
    let version = env!("CARGO_PKG_VERSION");
    Ok(Findings {
        ok: results.iter().all(|line| line.verdict != Verdict::Wrong),
        program: format!("version {version} for {} on {}", std::env::consts::OS, std::env::consts::ARCH),
        system: doctor::system(),
        device: info.name.clone(),
        description: info.description.clone(),
        hexagon: device.hexagon().map(|arch| format!("v{arch:x}")),
        threads: info.threads,
        vtcm_bytes: info.vtcm_bytes,
        granted,
        matrix_unit: info.matrix_unit.name().to_owned(),
        results,
        speeds,
        log: record::lines(),
    })
}

/// Line about a form; `None` where the results are of other versions.
fn form(device: &mut dyn Device, vectors: &FormVectors) -> Result<Option<Line>, CliError> {
    let Some(arch) = device.hexagon().filter(|arch| vectors.archs.contains(arch)) else { return Ok(None) };
    let question = vectors.question.as_deref();
    let otherwise = if question.is_some() { Verdict::News } else { Verdict::Wrong };
    let (verdict, what) = match selftest::forms::ask(device, vectors)? {
        FormAnswer::Expected => (Verdict::Expected, String::new()),
        FormAnswer::Absent => (Verdict::Absent, format!("the code for v{arch:x} has none")),
        FormAnswer::Ended(reason) => (otherwise, format!("ends the process: {reason}")),
        FormAnswer::Other(others) => {
            let shown: Vec<_> = others.iter().take(SHOWN).map(ToString::to_string).collect();
            let more = others.len() - shown.len();
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            (otherwise, format!("{}{more}", shown.join("; ")))
        }
    };
    let text = [question.unwrap_or_default().to_owned(), what];
    let text = text.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    Ok(Some(Line { kind: "form".to_owned(), name: vectors.form.to_string(), verdict, text }))
}

/// Line about a kernel.
fn kernel(device: &mut dyn Device, vectors: &OpVectors) -> Result<Line, CliError> {
    let answer = selftest::kernels::ask(device, vectors)?;
    let verdict = match answer {
        OpAnswer::Expected { .. } => Verdict::Expected,
        OpAnswer::Other { .. } => Verdict::Wrong,
        OpAnswer::Absent => Verdict::Absent,
    };
    let text = match answer {
        OpAnswer::Expected { ulps: 0 } => String::new(),
        answer => answer.to_string(),
    };
    Ok(Line { kind: "kernel".to_owned(), name: vectors.name(), verdict, text })
}

/// A label for answers that are no processor's.
fn whose(device: &dyn Device) -> &'static str {
    match device.info().name.as_str() {
        "inproc" => "; in software, which is no evidence",
        "qemu" => "; by the emulator, which is no evidence",
        _ => "",
    }
}

/// Line about a question that is not answered. A session that ended over it is started again.
fn unanswered(
    device: &mut dyn Device,
    [kind, name]: [&str; 2],
    outcome: Result<String, DeviceError>,
) -> Result<Line, CliError> {
    let (verdict, text) = match outcome {
        Ok(reason) => (Verdict::Absent, reason),
        Err(error) => {
            device.reset()?;
            (Verdict::News, format!("ends the session: {error}"))
        }
    };
    Ok(Line { kind: kind.to_owned(), name: name.to_owned(), verdict, text })
}

/// Line about what the matrix unit does.
fn matrix_unit(device: &mut dyn Device, study: Study) -> Result<Line, CliError> {
    let names = ["hmx", study.name()];
    let given = match selftest::sums::ask(device, study) {
        Ok(Some(given)) => given,
        Ok(None) => return unanswered(device, names, Ok("no matrix unit".to_owned())),
        Err(error) => return unanswered(device, names, Err(error)),
    };
    let expected = study.expected(device.hexagon());
    let fitting = study.fitting(&given);
    let words =
        |halves: &[u16]| halves.iter().map(|half| format!("{half:04x}")).collect::<Vec<_>>().join(" ");
    let (verdict, text) = match &fitting[..] {
        [one] if *one == expected => (Verdict::Expected, study.words(*one)),
        others => {
            let named: Vec<_> = others.iter().map(|one| study.words(*one)).collect();
            let named = if named.is_empty() {
                format!("as none of {} hypotheses", study.hypotheses().len())
            } else {
                named.join(", or ")
            };
            let expected = format!("{}: {}", study.words(expected), words(&study.results(expected)));
            (Verdict::News, format!("{named}: {}; expected {expected}", words(&given)))
        }
    };
    let text = format!("{text}{}", whose(device));
    Ok(Line { kind: names[0].to_owned(), name: names[1].to_owned(), verdict, text })
}

/// Line about the order of transfers.
fn transfers(device: &mut dyn Device, question: Question) -> Result<Line, CliError> {
    let names = ["dma", question.name()];
    match selftest::questions::transfers(device, question) {
        Ok(Ok(order)) => {
            let text = format!("{order}{}", whose(device));
            let [kind, name] = names.map(str::to_owned);
            Ok(Line { kind, name, verdict: Verdict::Answer, text })
        }
        Ok(Err(absence)) => unanswered(device, names, Ok(absence.to_string())),
        Err(error) => unanswered(device, names, Err(error)),
    }
}

/// Cycles of a loop's packets, and with the first loop the clock; or a line that says why there are none.
fn packets(
    device: &mut dyn Device,
    kind: Loop,
    results: &mut Vec<Line>,
    speeds: &mut Vec<Measured>,
) -> Result<(), CliError> {
    let cost = match selftest::questions::packets(device, kind) {
        Ok(Ok(cost)) => cost,
        Ok(Err(absence)) => {
            results.push(unanswered(device, ["packets", kind.name()], Ok(absence.to_string()))?);
            return Ok(());
        }
        Err(error) => {
            results.push(unanswered(device, ["packets", kind.name()], Err(error))?);
            return Ok(());
        }
    };
    let emulated = device.info().cost_unit == CostUnit::Packets;
    let unit = if emulated { "packets per packet, as the emulator counts" } else { "cycles per packet" };
    let measured = |what: String, value, unit: &str| Measured { what, value, unit: unit.to_owned() };
    speeds.push(measured(format!("packets, {kind}"), cost.per_packet(), unit));
    // Time means nothing under emulation.
    if let Some(clock) = cost.clock_mhz().filter(|_| kind == Loop::Scalar && !emulated) {
        speeds.push(measured("clock".to_owned(), clock, "MHz"));
    }
    Ok(())
}

impl Findings {
    /// All lines.
    fn text(&self) -> String {
        let mut text = format!("hexflash selftest, {}\n\n", self.program);
        let hexagon = self.hexagon.as_deref().unwrap_or("no Hexagon");
        for (what, value) in [
            ("system", self.system.clone()),
            ("device", format!("{} ({hexagon}): {}", self.device, self.description)),
            (
                "has",
                format!(
                    "{} threads, {} KiB of VTCM (granted: {}, {}), matrix unit: {}",
                    self.threads,
                    self.vtcm_bytes >> 10,
                    self.granted.threads,
                    self.granted.vtcm_bytes >> 10,
                    self.matrix_unit
                ),
            ),
        ] {
            text.push_str(&format!("{what:<9} {}\n", Clean(&value)));
        }
        for Line { kind, name, verdict, text: what } in &self.results {
            let line = format!("{:<9} {kind:<7} {name:<22} {}", verdict.word(), Clean(what));
            text.push_str(&format!("{}\n", line.trim_end()));
        }
        for Measured { what, value, unit } in &self.speeds {
            text.push_str(&format!("{:<9} {:<7} {what:<22} {value:.3} {unit}\n", "measured", "speed"));
        }
        text.push_str(&format!("\n{}\n", self.verdict()));
        if !self.log.is_empty() {
            text.push_str("\nlog:\n");
            self.log.iter().for_each(|line| text.push_str(&format!("    {}\n", Clean(line))));
        }
        text
    }

    /// The last line.
    fn verdict(&self) -> String {
        let named = |verdict| {
            let those = self.results.iter().filter(move |line| line.verdict == verdict);
            those.map(|line| line.name.as_str()).collect::<Vec<_>>()
        };
        let (wrong, news) = (named(Verdict::Wrong), named(Verdict::News));
        match (wrong.is_empty(), news.is_empty()) {
            (true, true) => "all is as expected".to_owned(),
            (true, false) => format!("nothing is wrong; news of {}: please mail it", news.join(", ")),
            (false, _) => format!("WRONG: {}; please mail it", wrong.join(", ")),
        }
    }

    /// Hides what tells whose device it is.
    fn without(mut self, private: &Private) -> Self {
        let texts = [&mut self.system, &mut self.description];
        let lines = self.results.iter_mut().map(|line| &mut line.text);
        texts.into_iter().chain(lines).chain(&mut self.log).for_each(|text| *text = private.hide(text));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(verdicts: &[Verdict]) -> Findings {
        let line = |(i, verdict): (usize, &Verdict)| Line {
            kind: "form".to_owned(),
            name: format!("form{i}"),
            verdict: *verdict,
            text: "in /home/alice/x".to_owned(),
        };
        Findings {
            ok: true,
            program: "version 1".to_owned(),
            system: "Linux".to_owned(),
            device: "htp".to_owned(),
            description: "through /home/alice/lib".to_owned(),
            hexagon: Some("v73".to_owned()),
            threads: 4,
            vtcm_bytes: 8 << 20,
            granted: Granted { threads: 4, vtcm_bytes: 4 << 20 },
            matrix_unit: "none".to_owned(),
            results: verdicts.iter().enumerate().map(line).collect(),
            speeds: Vec::new(),
            log: vec!["said \x1b[2J".to_owned()],
        }
    }

    #[test]
    fn the_last_line_names_what_is_wrong() {
        use Verdict::{Absent, Expected, News, Wrong};
        assert_eq!(findings(&[Expected, Absent]).verdict(), "all is as expected");
        assert!(findings(&[Expected, News]).verdict().contains("news of form1"));
        assert!(findings(&[News, Wrong, Wrong]).verdict().starts_with("WRONG: form1, form2;"));
    }

    #[test]
    fn a_report_hides_folders_and_steers_no_terminal() {
        let text = findings(&[Verdict::Wrong]).without(&Private::default()).text();
        assert!(!text.contains("alice") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("WRONG     form    form0"), "{text}");
    }

    #[test]
    fn what_another_machine_found_can_be_read() {
        let found = findings(&[Verdict::Expected]);
        let read: Findings = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
        assert_eq!(read.text(), found.text());
    }
}
