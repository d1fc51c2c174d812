//! The run: sessions until the time is over, watched.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use hexflash::device::qemu::Qemu;
use hexflash::device::{Device, DeviceOptions};
use hexflash_e2e::{Model, reference};
use serde::Serialize;

use cdsprpc::standin::StandIn;

use crate::crowd;
use crate::load;
use crate::plan::{Kind, SoakRun};
use crate::resources::{Memory, resident};
use crate::run::{self, References};
use crate::speed;
use crate::totals::Totals;

/// A session takes seconds; with processes that hang, and are given up after three, a minute.
const STUCK: Duration = Duration::from_secs(240);
/// Between two lines about how it goes.
const NEWS: Duration = Duration::from_secs(30);

/// Generations without end, each held against plain decoding.
#[derive(Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak")]
struct Arguments {
    /// Minutes to go on for
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Where the random sequence begins; without it, anywhere
    #[arg(long)]
    seed: Option<u64>,
    /// First session: to repeat one, with its seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Devices to try; all that there are if none is named
    #[arg(long, value_enum)]
    device: Vec<Kind>,
    /// Try the server instead: eight clients at once, and a device that is killed twice
    #[arg(long, conflicts_with_all = ["from", "device"])]
    server: bool,
    /// Try the server instead with so many connections, four requests on most of them
    #[arg(long, value_name = "CONNECTIONS", conflicts_with_all = ["from", "device", "server"])]
    crowd: Option<u64>,
    /// Measure instead what the server costs, and what eight streams gain
    #[arg(long, conflicts_with_all = ["from", "device", "server", "crowd"])]
    speed: bool,
    /// The model for that; a small one of the repository without it
    #[arg(short, long, value_name = "FILE", requires = "speed")]
    model: Option<PathBuf>,
    /// Tokens of each text for that
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(2..))]
    tokens: u16,
    /// Report the end as JSON
    #[arg(long)]
    json: bool,
}

/// The end of a run.
#[derive(Serialize)]
struct Report {
    seed: u64,
    minutes: f64,
    #[serde(flatten)]
    totals: Totals,
    /// Resident bytes: median of the second and of the last quarter of the sessions.
    memory_before: Option<u64>,
    memory_after: Option<u64>,
}

/// The command.
pub fn main() -> ExitCode {
    match soak(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("error: {wrong}");
            ExitCode::FAILURE
        }
    }
}

/// Devices that are there.
fn kinds(asked: &[Kind]) -> Result<Vec<Kind>, String> {
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let mut kinds = vec![Kind::Inproc, Kind::Htp];
    match Qemu::open(&DeviceOptions::default()).map(|device| device.info().clone()) {
        Ok(_) => kinds.insert(1, Kind::Qemu),
        Err(error) => eprintln!("without the device qemu: {error}"),
    }
    Ok(kinds)
}

fn soak(arguments: &Arguments) -> Result<(), String> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    if arguments.speed {
        let model = arguments.model.clone().unwrap_or_else(|| Model::Q8_0.path());
        let report = speed::run(&model, usize::from(arguments.tokens))?;
        return print(&report, arguments.json, speed::Report::print);
    }
    if arguments.server {
        eprintln!("the server, seed {seed}");
        let report = load::run(arguments.minutes, seed)?;
        return print(&report, arguments.json, load::Report::print);
    }
    if let Some(connections) = arguments.crowd {
        eprintln!("the server, {connections} connections, seed {seed}");
        let report = crowd::run(connections, seed)?;
        return print(&report, arguments.json, crowd::Report::print);
    }
    let kinds = kinds(&arguments.device)?;
    eprintln!("devices {kinds:?}, seed {seed}");
    let texts: HashMap<_, Vec<u32>> = Model::ALL
        .map(|model| {
            let cases = reference::greedy(model).cases;
            (model.name(), cases.into_iter().flat_map(|case| [case.prompt_ids, case.ids].concat()).collect())
        })
        .into();

    let (mut references, mut totals, mut memory) = (References::new(), Totals::default(), Memory::default());
    // One for all sessions: a library that was opened stays in memory.
    let mut standin = StandIn::new("");
    let progress: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    watch(progress, seed);
    let (start, mut news) = (Instant::now(), Instant::now());
    let end = Duration::from_secs_f64(60.0 * arguments.minutes);
    let mut index = arguments.from;
    while start.elapsed() < end {
        let session = SoakRun::draw(seed, index, &kinds, |model| texts[model.name()].clone());
        totals.open(session.kind);
        run::session(&session, &mut standin, &mut references, &mut totals).map_err(|wrong| {
            let bare = SoakRun { turns: Vec::new(), ..session.clone() };
            format!("{wrong}\nin session {index}, {bare:?}; to repeat it: --seed {seed} --from {index}")
        })?;
        memory.push(resident());
        if !memory.is_flat() {
            let (before, now) = memory.quarters().unwrap_or_default();
            return Err(format!(
                "memory grows: {} MiB, and {} MiB before, after {} sessions; seed {seed}",
                now >> 20,
                before >> 20,
                index + 1 - arguments.from
            ));
        }
        index += 1;
        progress.store(index, Ordering::Relaxed);
        if news.elapsed() > NEWS {
            news = Instant::now();
            let Totals { generations, tokens, restarts, .. } = totals;
            let (minutes, mib) = (start.elapsed().as_secs_f64() / 60.0, resident() >> 20);
            eprintln!(
                "{minutes:5.1} min: {generations} generations, {tokens} tokens, {restarts} restarts, {mib} MiB"
            );
        }
    }
    let (before, after) = memory.quarters().unzip();
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    let report = Report { seed, minutes, totals, memory_before: before, memory_after: after };
    print(&report, arguments.json, print_sessions)
}

/// Prints a report as JSON, or for people.
fn print<T: Serialize>(report: &T, json: bool, for_people: fn(&T)) -> Result<(), String> {
    if json {
        println!("{}", serde_json::to_string_pretty(report).map_err(|error| error.to_string())?);
    } else {
        for_people(report);
    }
    Ok(())
}

fn print_sessions(report: &Report) {
    let Report { seed, minutes, totals, memory_before, memory_after } = report;
    let [inproc, qemu, htp] = totals.sessions;
    println!("{minutes:.1} minutes, seed {seed}: nothing wrong");
    println!("sessions      {inproc} inproc, {qemu} qemu, {htp} htp; {} refused as planned", totals.refused);
    println!(
        "generations   {} equal to plain decoding, {} of them interrupted; {} ended as planned",
        totals.generations, totals.interrupted, totals.lost
    );
    println!("tokens        {}; {} of {} drafts accepted", totals.tokens, totals.accepted, totals.drafted);
    println!(
        "restarts      {}; the longest generation took {:.1} s",
        totals.restarts, totals.longest_seconds
    );
    if let (Some(before), Some(after)) = (memory_before, memory_after) {
        println!("memory        {} MiB, {} MiB in the second quarter", after >> 20, before >> 20);
    }
}

/// Ends this process if a session does not end.
fn watch(progress: &'static AtomicU64, seed: u64) {
    std::thread::spawn(move || {
        let mut last = (progress.load(Ordering::Relaxed), Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = progress.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > STUCK {
                eprintln!("error: session {now} does not end; to repeat it: --seed {seed} --from {now}");
                std::process::exit(1);
            }
        }
    });
}
