//! `hexflash devices`.

use std::io::Write;
use std::process::ExitCode;

use super::CliError;
use super::output::print_json;
use hexflash::device::{self, DeviceInfo, DeviceOptions};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON array instead
    #[arg(long)]
    json: bool,
    /// Also ask the DSP for its matrix unit (HMX), and test it
    #[arg(long)]
    hmx: bool,
}

/// A line of the list: what a device says of itself, or why it cannot be had here.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Entry {
    Available(DeviceInfo),
    Unavailable { name: &'static str, unavailable: String },
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let open = |&(name, _): &(&'static str, &str)| -> Result<Entry, CliError> {
        let options = DeviceOptions { matrix_unit: args.hmx, ..DeviceOptions::default() };
        match device::open(name, &options) {
            Ok(device) => Ok(Entry::Available(device.info().clone())),
            Err(error) if error.is_absence() => {
                Ok(Entry::Unavailable { name, unavailable: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    };
    let entries = device::DEVICES.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    let unit = |column: &str| if args.hmx { format!("  {column:<15}") } else { String::new() };
    let hmx = unit("HMX");
    writeln!(out, "{:<8} {:>7} {:>9}{hmx}  description", "device", "threads", "VTCM")?;
    for entry in &entries {
        match entry {
            Entry::Available(DeviceInfo { name, threads, vtcm_bytes, matrix_unit, description, .. }) => {
                let (vtcm, hmx) = (vtcm_bytes >> 20, unit(matrix_unit.name()));
                writeln!(out, "{name:<8} {threads:>7} {vtcm:>5} MiB{hmx}  {description}")?;
            }
            Entry::Unavailable { name, unavailable } => {
                let hmx = unit("-");
                writeln!(out, "{name:<8} {:>7} {:>9}{hmx}  not available: {unavailable}", "-", "-")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
