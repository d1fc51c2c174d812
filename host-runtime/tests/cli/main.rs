//! The `hexflash` command from outside: arguments in; exit code, standard output and standard error out.

mod bad_input;
mod bad_models;
mod cache;
mod good;
mod support;
