//! The checks and what came of them: lines for people, JSON for programs, a report to send to others.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::private::Private;
use crate::output::print_json;
use crate::{CliError, record};
use hexflash::gguf::Clean;

/// A check, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Check {
    /// Processor, kernel, Android, chip.
    System,
    /// The vendor's library.
    Library,
    /// Device nodes of the kernel.
    Nodes,
    /// The rules of SELinux.
    Selinux,
    /// The DSP's version.
    Dsp,
    /// hexflash's library for that version.
    Skel,
    /// A session with it on the DSP.
    Session,
    /// The session's queue, threads and scratchpad.
    Start,
    /// A few tokens, which must be those of device `inproc`.
    SelfTest,
}

impl Check {
    pub(super) const ALL: [Self; 9] = [
        Self::System,
        Self::Library,
        Self::Nodes,
        Self::Selinux,
        Self::Dsp,
        Self::Skel,
        Self::Session,
        Self::Start,
        Self::SelfTest,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Library => "library",
            Self::Nodes => "nodes",
            Self::Selinux => "selinux",
            Self::Dsp => "dsp",
            Self::Skel => "skel",
            Self::Session => "session",
            Self::Start => "start",
            Self::SelfTest => "self-test",
        }
    }
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// Nothing is wrong.
    Ok,
    /// Something may be in the way.
    Warning,
    /// Something is in the way.
    Failed,
    /// Something before it is in the way.
    NotTried,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::NotTried => "not tried",
        }
    }
}

/// A check that was made, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) check: Check,
    pub(super) outcome: Outcome,
    /// Text of what was found; for failures and warnings also what to do.
    pub(super) text: String,
    /// More about it, for the report.
    #[serde(default)]
    pub(super) details: Vec<String>,
}

impl Step {
    pub(super) fn new(check: Check, outcome: Outcome, text: impl Into<String>) -> Self {
        Self { check, outcome, text: text.into(), details: Vec::new() }
    }

    pub(super) fn with(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// The step in one line, without anything that steers a terminal.
    fn line(&self) -> String {
        let text = Clean(&self.text).to_string();
        let line = format!("{:<9}  {:<9}  {text}", self.outcome.word(), self.check.name());
        line.trim_end().to_owned()
    }
}

/// All of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Findings {
    /// Whether nothing failed.
    pub(super) ok: bool,
    /// The program's version, and what it was built for.
    pub(super) program: String,
    pub(super) steps: Vec<Step>,
    /// Lines of the log meanwhile, as `-vv` would show them.
    #[serde(default)]
    log: Vec<String>,
}

impl Findings {
    fn new(program: String) -> Self {
        Self { ok: true, program, steps: Vec::new(), log: Vec::new() }
    }

    /// The last line.
    fn verdict(&self) -> String {
        let failed = self.steps.iter().find(|step| step.outcome == Outcome::Failed);
        match failed {
            Some(step) => format!("{} failed; what needs it was not tried", step.check.name()),
            None if self.steps.iter().any(|step| step.outcome == Outcome::Warning) => {
                "nothing failed; there are warnings".to_owned()
            }
            None => "all is well".to_owned(),
        }
    }

    /// All lines.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        self.steps.iter().try_for_each(|step| writeln!(out, "{}", step.line()))?;
        writeln!(out, "{}", self.verdict())
    }

    /// The report: all lines, with details.
    pub(super) fn report(&self) -> String {
        let mut text = format!("hexflash doctor, {}\n\n", self.program);
        for step in &self.steps {
            text.push_str(&step.line());
            text.push('\n');
            for detail in &step.details {
                text.push_str(&format!("    {}\n", Clean(detail)));
            }
        }
        text.push_str(&format!("\n{}\n", self.verdict()));
        if !self.log.is_empty() {
            text.push_str("\nlog:\n");
            self.log.iter().for_each(|line| text.push_str(&format!("    {}\n", Clean(line))));
        }
        text
    }

    /// Hides what tells whose device it is.
    pub(super) fn without(mut self, private: &Private) -> Self {
        for step in &mut self.steps {
            *step = hidden(step.clone(), private);
        }
        self.log = self.log.iter().map(|line| private.hide(line)).collect();
        self
    }
}

/// A step without what tells whose device it is.
fn hidden(mut step: Step, private: &Private) -> Step {
    step.text = private.hide(&step.text);
    step.details = step.details.iter().map(|detail| private.hide(detail)).collect();
    step
}

/// The findings as they come. A line is printed as soon as its check is made: should the next one never end,
/// the last line tells which that is.
pub(super) struct Live<'a> {
    pub(super) findings: Findings,
    json: bool,
    /// Words that are hidden at once.
    private: Option<&'a Private>,
}

impl<'a> Live<'a> {
    pub(super) fn new(json: bool, private: Option<&'a Private>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let program = format!("version {version} for {} on {}", std::env::consts::OS, std::env::consts::ARCH);
        Self { findings: Findings::new(program), json, private }
    }

    /// Whether a check was made.
    pub(super) fn has(&self, check: Check) -> bool {
        self.findings.steps.iter().any(|step| step.check == check)
    }

    /// Whether a check has failed that the next ones need.
    pub(super) fn has_failed(&self) -> bool {
        !self.findings.ok
    }

    pub(super) fn add(&mut self, step: Step) -> Result<(), CliError> {
        let step = match self.private {
            Some(private) => hidden(step, private),
            None => step,
        };
        if !self.json {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}", step.line())?;
            out.flush()?;
        }
        self.findings.ok &= step.outcome != Outcome::Failed;
        self.findings.steps.push(step);
        Ok(())
    }

    /// The end: what was not tried, and the last line.
    pub(super) fn end(mut self) -> Result<Findings, CliError> {
        for check in Check::ALL {
            if !self.has(check) {
                self.add(Step::new(check, Outcome::NotTried, ""))?;
            }
        }
        self.findings.log = record::lines();
        if let Some(private) = self.private {
            self.findings = self.findings.without(private);
        }
        if self.json {
            print_json(&self.findings)?;
        } else {
            writeln!(std::io::stdout().lock(), "{}", self.findings.verdict())?;
        }
        Ok(self.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(outcomes: &[Outcome]) -> Findings {
        let mut findings = Findings::new("version 1".to_owned());
        for (check, outcome) in Check::ALL.into_iter().zip(outcomes) {
            findings.steps.push(Step::new(check, *outcome, "a text").with(vec!["more\x1b[2J".to_owned()]));
        }
        findings
    }

    #[test]
    fn the_last_line_says_what_failed() {
        use Outcome::{Failed, NotTried, Ok, Warning};
        assert_eq!(findings(&[Ok, Ok]).verdict(), "all is well");
        assert_eq!(findings(&[Ok, Warning]).verdict(), "nothing failed; there are warnings");
        let failed = findings(&[Warning, Failed, Ok, NotTried]);
        assert_eq!(failed.verdict(), "library failed; what needs it was not tried");
        let mut lines = Vec::new();
        failed.print(&mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.starts_with("warning    system     a text\nfailed     library    a text\n"), "{lines}");
    }

    #[test]
    fn a_report_has_the_details_and_steers_no_terminal() {
        let report = findings(&[Outcome::Ok]).report();
        assert!(report.contains("ok         system     a text\n    more\\u{1b}[2J\n"), "{report}");
    }

    #[test]
    fn what_another_machine_found_can_be_read() {
        let found = findings(&[Outcome::Ok, Outcome::NotTried]);
        let read: Findings = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
        assert_eq!(read.steps, found.steps);
    }

    #[test]
    fn each_check_has_one_name() {
        for check in Check::ALL {
            assert_eq!(serde_json::to_value(check).unwrap(), check.name());
        }
    }
}
