//! `hexflash devices`.

use std::process::ExitCode;

use super::CliError;
use crate::device::{self, DeviceError, DeviceInfo, DeviceOptions};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON array instead
    #[arg(long)]
    json: bool,
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
        match device::open(name, &DeviceOptions::default()) {
            Ok(device) => Ok(Entry::Available(device.info().clone())),
            Err(error @ DeviceError::Unavailable { .. }) => {
                Ok(Entry::Unavailable { name, unavailable: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    };
    let entries = device::DEVICES.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&entries).map_err(std::io::Error::from)?);
    } else {
        println!("{:<8} {:>7} {:>9}  description", "device", "threads", "VTCM");
        for entry in &entries {
            match entry {
                Entry::Available(d) => {
                    println!(
                        "{:<8} {:>7} {:>5} MiB  {}",
                        d.name,
                        d.threads,
                        d.vtcm_bytes >> 20,
                        d.description
                    );
                }
                Entry::Unavailable { name, unavailable } => {
                    println!("{name:<8} {:>7} {:>9}  not available: {unavailable}", "-", "-");
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
