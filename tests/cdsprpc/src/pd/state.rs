//! Settings, counted calls, breaches.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use hexflash_fastrpc::config::Config;
use hexflash_fastrpc::{aee, report};

use crate::guest;

pub(crate) static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let line = std::env::args().nth(1).unwrap_or_default();
    Config::parse(&line).unwrap_or_else(|word| panic!("settings: {word}"))
});

/// Process id of the host.
pub(crate) static HOST: LazyLock<u32> =
    LazyLock::new(|| std::env::args().nth(2).and_then(|id| id.parse().ok()).expect("the host's process id"));

static COUNTS: Mutex<Option<HashMap<&'static str, u32>>> = Mutex::new(None);

/// Counts a call, and gives the code with which it is planned to fail: `dsp.NAME` in the settings.
pub(crate) fn planned(name: &'static str) -> Option<i32> {
    failure(name).map(aee::on_dsp)
}

/// The same, for numbers that are no codes.
pub(crate) fn planned_number(name: &'static str) -> Option<u32> {
    failure(name).map(|number| number as u32)
}

fn failure(name: &'static str) -> Option<i32> {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.get_or_insert_default().entry(name).or_default();
    *count += 1;
    CONFIG.failure(name, *count)
}

/// Reports a breach, and where in the skel it happened, if that is known.
pub(crate) fn violation(line: &str) {
    let report = CONFIG.file("report");
    match guest::place() {
        Some(place) => report::violation(report.as_deref(), &format!("{line} ({place})")),
        None => report::violation(report.as_deref(), line),
    }
}

/// Ends a function with the code that is planned for it.
#[macro_export]
macro_rules! plan {
    ($name:literal) => {
        if let Some(code) = $crate::state::planned($name) {
            return code;
        }
    };
}
