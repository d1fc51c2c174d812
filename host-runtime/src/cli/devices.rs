//! `hexflash devices`.

use std::process::ExitCode;

use super::CliError;
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
        println!("{}", serde_json::to_string_pretty(&infos).map_err(std::io::Error::from)?);
    } else {
        println!("{:<8} {:>7} {:>9}  description", "device", "threads", "VTCM");
        for d in &infos {
            println!("{:<8} {:>7} {:>5} MiB  {}", d.name, d.threads, d.vtcm_bytes >> 20, d.description);
        }
    }
    Ok(ExitCode::SUCCESS)
}
