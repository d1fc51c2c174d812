//! Chooses cases, runs them, reports.

use std::collections::BTreeSet;
#[cfg(unix)]
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[cfg(unix)]
use hexflash::device::htp::HtpOptions;
use hexflash::device::{Arch, DeviceOptions, Float};
use hexflash_oracle::cases::{self, Case, CaseKind, Origin};
use hexflash_oracle::ops::Cpu;
use regex::Regex;

use super::adapt::{self, Failure, Trial};
use super::lab::{Dma, Lab, LabDevice, Setting, TOO_LARGE};
use super::report::{Report, Status};
use crate::part::Part;

/// Runs conformance cases on a device: each against ggml's own result.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// The device, as `hexflash devices` names it
    #[arg(long, default_value = "inproc", value_name = "NAME")]
    device: String,
    /// Device htp: the vendor's library [default: where systems have it]
    #[cfg(unix)]
    #[arg(long, value_name = "FILE")]
    htp_library: Option<PathBuf>,
    /// Threads of the device [default: its own choice; on qemu, all of 1 to 8 and all --dma in turn; on htp,
    /// 1 to 4]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// When DMA executes, where it is done in software [default: at once]
    #[arg(long, value_enum, value_name = "WHEN")]
    dma: Option<Dma>,
    /// Run each case with all of 1 to 8 threads and all --dma
    #[arg(long, conflicts_with_all = ["threads", "dma"])]
    each_setting: bool,
    /// Device qemu: the version of the Hexagon whose code runs, v67, v68, v69, v73, v75, v79 or v81; from v79
    /// on results are held against ggml's alone and not against inproc's bits, too [default: v67]
    #[arg(long, value_name = "VERSION")]
    arch: Option<Arch>,
    /// Device inproc: float arithmetic, own, or qf32 for that of v68 to v75 in software
    #[arg(long, value_name = "ARITHMETIC", default_value_t)]
    float: Float,
    /// Only ops that match this regular expression, as a whole
    #[arg(long, value_name = "RE")]
    op: Option<String>,
    /// Only cases whose name matches this regular expression anywhere, or the one with this very name
    #[arg(long, value_name = "RE")]
    case: Option<String>,
    /// One JSON object per case, and one for the totals
    #[arg(long)]
    json: bool,
    /// All cases; without it, every fourth of upstream's largest groups, and none that takes long
    #[arg(long)]
    full: bool,
    /// Another part of upstream's largest groups than the first of four: I/N, counted from 0
    #[arg(long, value_name = "I/N", conflicts_with = "full")]
    part: Option<Part>,
    /// Only programs whose products the matrix unit takes, of whatever size; cases without one are skipped
    #[arg(long)]
    matrix_unit: bool,
    /// Do not print the cases that pass or are skipped
    #[arg(long, short)]
    quiet: bool,
    /// Stop after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// List the chosen cases and run none
    #[arg(long)]
    list: bool,
}

/// The verb.
///
/// # Errors
/// What is wrong with the arguments or the device, in words.
pub fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let regex = |pattern: &str| Regex::new(pattern).map_err(|e| e.to_string());
    let op = arguments.op.as_deref().map(|p| regex(&format!("^(?:{p})$"))).transpose()?;
    let all = cases::all();
    // A name as it was printed is no regular expression for itself: it has brackets.
    let exact = |pattern: &str| {
        all.iter().any(|c| c.name == pattern).then(|| format!("^{}$", regex::escape(pattern)))
    };
    let name = arguments.case.as_deref().map(|p| regex(exact(p).as_deref().unwrap_or(p))).transpose()?;
    let part = arguments.part.unwrap_or(Part::first(4));
    let filtered = op.is_some() || name.is_some();
    let wanted = |c: &Case| {
        op.as_ref().is_none_or(|re| re.is_match(c.op))
            && name.as_ref().is_none_or(|re| re.is_match(&c.name))
            && (arguments.full || name.is_some() || representative(c, part))
    };
    let cases: Vec<Case> = all.into_iter().filter(wanted).collect();
    if arguments.list {
        cases.iter().for_each(|c| println!("{}", c.name));
        return Ok(ExitCode::SUCCESS);
    }
    let place = LabDevice { device: arguments.device.clone(), options: options(arguments) };
    let lab = Lab::open(place, &settings(arguments), arguments.each_setting);
    let mut lab = lab.map_err(|e| e.to_string())?;
    if arguments.matrix_unit && !lab.lends_matrix_unit() {
        return Err(format!(
            "{} lends no matrix unit: --device inproc has one, qemu from v73 on",
            arguments.device
        ));
    }
    if !arguments.json {
        println!("{} cases on {}", cases.len(), lab.description());
    }
    let start = Instant::now();
    let mut report = Report::new(arguments.json, arguments.quiet);
    // What takes long under emulation is HVX. The matrix unit's own programs take a few seconds at most.
    let takes_long = lab.emulates() && name.is_none() && !arguments.matrix_unit;
    let patience = takes_long.then_some(if arguments.full { MINUTE } else { MOMENT });
    for case in &cases {
        let start = Instant::now();
        let status = match patience.filter(|p| emulated_seconds(case) > p.seconds) {
            Some(patience) => Status::Skip(patience.reason.to_owned()),
            None => one(case, &mut lab, arguments.matrix_unit),
        };
        report.add(case, &status, start.elapsed().as_secs_f64());
        if arguments.fail_fast && matches!(status, Status::Fail(_)) {
            break;
        }
    }
    let fine = report.finish(!filtered && !arguments.matrix_unit, start.elapsed().as_secs_f64());
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The settings that cases take turns in. Emulated code is the only one with its own vectors and futexes
/// whose DMA can be told when to execute: there all of them are worth their time. A DSP has as many vector
/// units as it has.
fn settings(arguments: &Arguments) -> Vec<Setting> {
    let given = Setting { threads: arguments.threads, dma: arguments.dma };
    let chosen = given != Setting::default();
    match arguments.device.as_str() {
        "htp" if arguments.each_setting || !chosen => Setting::threads(1..=VECTOR_UNITS),
        "qemu" if !chosen => Setting::all(),
        _ if arguments.each_setting => Setting::all(),
        _ => vec![given],
    }
}

/// Vector units that every DSP from v73 on has.
const VECTOR_UNITS: usize = 4;

/// What the device is opened with, in every setting.
fn options(arguments: &Arguments) -> DeviceOptions {
    #[cfg(unix)]
    let htp = arguments
        .htp_library
        .clone()
        .map(|library| Box::new(HtpOptions { vendor_library: Some(library), ..HtpOptions::default() }));
    DeviceOptions {
        arch: arguments.arch,
        float: arguments.float,
        #[cfg(unix)]
        htp,
        ..DeviceOptions::default()
    }
}

/// Whether a case runs without `--full`: all of our own, upstream's where there are few, a part of its
/// largest groups; none that takes long.
fn representative(c: &Case, part: Part) -> bool {
    let many = matches!(c.op, "MUL_MAT" | "MUL_MAT_ID" | "FLASH_ATTN_EXT" | "ROPE" | "CPY" | "SET_ROWS");
    c.kind.work() < 1 << 28 && (c.origin != Origin::Upstream || !many || part.has(c.seed))
}

/// Why a case is skipped that has only other programs than were asked for.
const NO_MATRIX_UNIT: &str = "it has no program for the matrix unit";

/// How long a case may take under emulation.
#[derive(Clone, Copy)]
struct Patience {
    seconds: f64,
    reason: &'static str,
}

const MOMENT: Patience =
    Patience { seconds: 1.0, reason: "it takes too long under emulation for every change: --full runs it" };
const MINUTE: Patience = Patience { seconds: 60.0, reason: "it takes more than a minute under emulation" };

/// About how long a case takes under emulation: measured on one busy core, on v67. It has no floating point
/// in HVX, so that 32 lanes are 32 scalar operations; products of int8 are whole vectors. Where there is HVX
/// float the same cases are chosen, and take less.
fn emulated_seconds(c: &Case) -> f64 {
    let whole = match c.kind {
        CaseKind::MulMat { a, .. } | CaseKind::MulMatId { a, .. } => a.is_quantized(),
        _ => false,
    };
    c.kind.work() as f64 / if whole { 2e7 } else { 1e6 }
}

fn one(case: &Case, lab: &mut Lab, only_matrix_unit: bool) -> Status {
    if let Some(why) = adapt::skip(case) {
        return Status::Skip(why);
    }
    let cpu = Cpu::default();
    let x = case.inputs();
    let fail = |why| Status::Fail(Failure { way: "ggml", why, nmse: None });
    lab.turn(case.seed, case.kind.work());
    let want = match case.expected_from(&x, cpu) {
        Ok(want) => want,
        Err(e) => return fail(e.to_string()),
    };
    let mut trial = Trial {
        case,
        x: &x,
        want: &want,
        lab,
        cpu,
        only_matrix_unit,
        nmse: 0.0,
        ways: Vec::new(),
        ops: BTreeSet::new(),
    };
    match adapt::attempt(&mut trial) {
        Ok(()) if only_matrix_unit && trial.ways.is_empty() => Status::Skip(NO_MATRIX_UNIT.to_owned()),
        Ok(()) => Status::Ok { nmse: trial.nmse, ways: trial.ways, ops: trial.ops },
        Err(failure) if failure.why == TOO_LARGE => Status::Skip(TOO_LARGE.to_owned()),
        Err(failure) => Status::Fail(failure),
    }
}
