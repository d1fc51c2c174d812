//! `hexflash devices`.

use std::io::Write;
use std::process::ExitCode;

use super::{CliError, print_json};
use crate::device::{self, DeviceInfo, DeviceOptions};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON array instead
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let open = |&(name, _): &(&str, &str)| -> Result<DeviceInfo, CliError> {
        Ok(device::open(name, &DeviceOptions::default())?.info().clone())
    };
    let infos = device::DEVICES.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        print_json(&infos)?;
    } else {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{:<8} {:>7} {:>9}  description", "device", "threads", "VTCM")?;
        for d in &infos {
            writeln!(out, "{:<8} {:>7} {:>5} MiB  {}", d.name, d.threads, d.vtcm_bytes >> 20, d.description)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
