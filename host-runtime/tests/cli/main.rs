//! The `hexflash` command from outside: arguments in; exit code, standard output and standard error out.

mod bad_drafts;
mod bad_input;
mod bad_models;
mod bench_draft;
mod cache;
#[cfg(target_os = "linux")]
mod deploy;
mod good;
mod speculation;
mod support;
#[cfg(target_os = "linux")]
mod templates;
