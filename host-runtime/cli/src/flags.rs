//! The flags of the library's settings, for its messages.

use hexflash::setting::Setting;

/// The flag that sets it, if one does.
pub(super) fn of(setting: Setting) -> Option<&'static str> {
    Some(match setting {
        Setting::Device => "--device",
        Setting::Threads => "--threads",
        Setting::Vtcm => "--vtcm",
        Setting::Sessions => "--sessions",
        Setting::SessionBytes => "--session-memory",
        Setting::Arch => "--arch",
        Setting::Float => "--float",
        Setting::Trace => "--trace",
        Setting::VendorLibrary => "--htp-library",
        Setting::Dma => "--dma threads",
        Setting::Context => "-c",
        Setting::Batch => "--batch-size",
        Setting::KeyCache => "--cache-type-k",
        Setting::ValueCache => "--cache-type-v",
        Setting::Model => "-m",
        Setting::DraftModel => "-md",
        Setting::Encoder => "--mmproj",
        Setting::DraftLength => "--draft-max",
        Setting::MaxTokens => "-n",
        Setting::Sequences => "--parallel",
        Setting::MatrixUnit => "--no-hmx",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// A flag in a message must be one that `run` or `serve` takes.
    #[test]
    fn flags_are_those_of_the_command() {
        let command = crate::Cli::command();
        let arguments = || {
            let of = |name: &str| command.find_subcommand(name).unwrap().get_arguments();
            of("run").chain(of("serve"))
        };
        let settings = [
            Setting::Device,
            Setting::Threads,
            Setting::Vtcm,
            Setting::Sessions,
            Setting::SessionBytes,
            Setting::Arch,
            Setting::Float,
            Setting::Trace,
            Setting::VendorLibrary,
            Setting::Dma,
            Setting::Context,
            Setting::Batch,
            Setting::Model,
            Setting::DraftModel,
            Setting::DraftLength,
            Setting::MaxTokens,
            Setting::Sequences,
            Setting::MatrixUnit,
        ];
        for setting in settings {
            let flag = of(setting).unwrap().split(' ').next().unwrap();
            let takes = |arg: &clap::Arg| {
                let long = arg.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long));
                let short = arg.get_short().is_some_and(|short| flag == format!("-{short}"));
                let alias = arg.get_all_aliases().unwrap_or_default();
                long || short || alias.iter().any(|alias| flag == format!("-{alias}"))
            };
            assert!(arguments().any(takes), "{flag}");
        }
    }
}
