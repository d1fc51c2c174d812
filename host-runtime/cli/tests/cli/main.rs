//! The `hexflash` command from outside: arguments in; exit code, standard output and standard error out.

mod bad_drafts;
mod bad_input;
mod bad_models;
mod bench_draft;
mod bench_parallel;
#[cfg(target_os = "linux")]
mod big_models;
mod cache;
mod chat;
mod damaged;
#[cfg(target_os = "linux")]
mod deploy;
#[cfg(target_os = "linux")]
mod deploy_systems;
#[cfg(target_os = "linux")]
mod doctor;
mod embed;
#[cfg(target_os = "linux")]
mod emulator;
#[cfg(target_os = "linux")]
mod fit;
mod good;
#[cfg(target_os = "linux")]
mod hub;
#[cfg(target_os = "linux")]
mod hub_cache;
#[cfg(target_os = "linux")]
mod hub_pictures;
#[cfg(target_os = "linux")]
mod hub_server;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(target_os = "linux")]
mod library_path;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(unix)]
mod manual;
mod mtp;
mod numbers;
mod pictures;
mod programs;
#[cfg(target_os = "linux")]
mod selftest;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod serve_models;
#[cfg(target_os = "linux")]
mod signalled;
mod speculation;
mod support;
#[cfg(target_os = "linux")]
mod templates;
