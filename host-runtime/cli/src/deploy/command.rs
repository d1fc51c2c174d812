//! The command on the device: read as the command line itself is read, so that a mistake in it is told before
//! hours of pushing, and so that a model is put in exactly where none is named.

use super::adb::quoted;
use super::{DeployError, PROGRAM, Reader};
use crate::CliError;
use crate::hang_up::OVER_ADB;
use crate::library_path::VARIABLES;
use crate::llama;
use crate::output::one_line;

/// The options of target and draft.
const OPTIONS: [&str; 2] = ["--model", "--model-draft"];

/// hexflash's arguments on the device.
#[derive(Debug)]
pub(super) struct Remote {
    words: Vec<String>,
    /// Where options can be put in: behind the command's name.
    at: usize,
    /// Whether the command could do with a target and with a draft, and names none.
    lacks: [bool; 2],
}

impl Remote {
    /// Reads the arguments; without any it is `devices`.
    pub(super) fn parse(arguments: &[String], read: Reader) -> Result<Self, CliError> {
        let words = if arguments.is_empty() { vec!["devices".to_owned()] } else { arguments.to_vec() };
        let lacks = match read(&words) {
            Ok(lacks) => lacks,
            // Help, or the version.
            Err(error) if !error.use_stderr() => [false; 2],
            Err(error) => {
                return Err(llama::foreign(&error)
                    .unwrap_or_else(|| DeployError::Command { text: one_line(&error) }.into()));
            }
        };
        // The first place where the options are taken as what they are. A word before it can be the value of
        // an option.
        let taken = |&at: &usize| {
            read(&with_options(&words, at, &lacks.map(|l| l.then_some("x")))).ok() == Some([false; 2])
        };
        let at = if lacks.contains(&true) { (1..=words.len()).find(taken) } else { Some(0) };
        let text = || "the model cannot be put in; name it with -m".to_owned();
        let at = at.ok_or_else(|| DeployError::Command { text: text() })?;
        Ok(Self { words, at, lacks })
    }

    /// The line for the device's shell, with target and draft by their paths there.
    pub(super) fn line(&self, to: &str, models: &[Option<String>; 2]) -> String {
        let wanted = [0, 1].map(|i| models[i].as_deref().filter(|_| self.lacks[i]));
        let words: Vec<_> =
            with_options(&self.words, self.at, &wanted).iter().map(|word| quoted(word)).collect();
        let dir = quoted(to);
        // Nothing of the vendor's: see docs/devices.md.
        let paths = ["LD_LIBRARY_PATH"].into_iter().chain(VARIABLES);
        let paths: Vec<_> = paths.map(|name| format!("{name}={dir}")).collect();
        format!("cd {dir} && {OVER_ADB}=1 {} exec ./{PROGRAM} {}", paths.join(" "), words.join(" "))
    }
}

/// The words, with these models put in.
fn with_options(words: &[String], at: usize, models: &[Option<&str>; 2]) -> Vec<String> {
    let given = OPTIONS.iter().zip(models).filter_map(|(option, model)| Some([*option, (*model)?]));
    let options = given.flatten().map(str::to_owned);
    words[..at].iter().cloned().chain(options).chain(words[at..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What hexflash gets on the device, with a target `T` and a draft `D`.
    fn words(arguments: &[&str]) -> String {
        let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let remote =
            Remote::parse(&arguments, crate::lacks).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        let line = remote.line("/d/x y", &[Some("T".to_owned()), Some("D".to_owned())]);
        let (before, words) = line.split_once("exec ./hexflash ").unwrap();
        let dir = "'/d/x y'";
        let paths = ["LD", "DSP", "ADSP", "CDSP"].map(|name| format!("{name}_LIBRARY_PATH={dir} "));
        assert_eq!(before, format!("cd {dir} && {OVER_ADB}=1 {}", paths.concat()));
        words.to_owned()
    }

    const BOTH: &str = "--model T --model-draft D";

    #[test]
    fn models_are_put_in_where_a_command_takes_them() {
        assert_eq!(words(&[]), "devices");
        assert_eq!(words(&["devices", "--json"]), "devices --json");
        assert_eq!(words(&["run", "--device", "htp", "it's"]), format!(r"run {BOTH} --device htp 'it'\''s'"));
        assert_eq!(words(&["info"]), format!("info {BOTH}"));
        assert_eq!(words(&["bench"]), "bench --model T");
        assert_eq!(words(&["bench", "--draft"]), format!("bench {BOTH} --draft"));
    }

    #[test]
    fn global_options_may_stand_before_the_command() {
        assert_eq!(words(&["-v", "run", "run"]), format!("-v run {BOTH} run"));
        assert_eq!(words(&["-vv", "--verbose", "info"]), format!("-vv --verbose info {BOTH}"));
    }

    #[test]
    fn a_model_that_is_named_in_any_way_stays_the_only_one() {
        for given in ["-mfoo", "-m=foo", "--model=foo"] {
            assert_eq!(words(&["run", given, "a"]), format!("run --model-draft D {given} a"));
        }
        assert_eq!(words(&["run", "-n", "3", "-m", "foo"]), "run --model-draft D -n 3 -m foo");
        assert_eq!(words(&["info", "--json", "--model", "f"]), "info --model-draft D --json --model f");
        for given in [&["-md", "d"][..], &["--model-draft", "d"], &["--model-draft=d"], &["--md=d"]] {
            assert_eq!(words(&[&["run"], given].concat()), format!("run --model T {}", given.join(" ")));
        }
        assert_eq!(words(&["run", "-mfoo", "-md", "d"]), "run -mfoo -md d");
    }

    /// With another drafter a draft model would be a mistake.
    #[test]
    fn a_draft_is_put_in_only_where_it_would_draft() {
        for spec in ["ngram-simple", "none"] {
            assert_eq!(words(&["run", "--spec-type", spec]), format!("run --model T --spec-type {spec}"));
        }
        assert_eq!(
            words(&["run", "--spec-type=draft-dflash"]),
            format!("run {BOTH} --spec-type=draft-dflash")
        );
    }

    #[test]
    fn a_prompt_that_looks_like_an_option_is_none() {
        assert_eq!(words(&["run", "--", "-mfoo"]), format!("run {BOTH} -- -mfoo"));
        assert_eq!(words(&["run", "--stop", "run", "bench"]), format!("run {BOTH} --stop run bench"));
    }

    #[test]
    fn help_and_version_are_asked_of_the_program_there() {
        for asked in [&["--help"][..], &["help", "run"], &["run", "--help"], &["--version"]] {
            assert_eq!(words(asked), asked.join(" "));
        }
    }

    #[test]
    fn mistakes_are_found_here() {
        for (arguments, cause) in [
            (&["rnu"][..], "'rnu'"),
            (&["run", "--tmep", "1"], "--tmep"),
            (&["-v"], "subcommand"),
            (&["run", "-ngl", "1"], "-ngl"),
        ] {
            let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
            let error = Remote::parse(&arguments, crate::lacks).unwrap_err().to_string();
            assert!(error.contains(cause) && error.contains("; ") && !error.contains('\n'), "{error}");
        }
    }
}
