//! An HTTP server with OpenAI's interface, and llama-server's, for a model that hexflash runs.
//!
//! [`Server::bind`] takes a port, and [`Server::run`] loads the model and answers until it is cancelled:
//!
//! ```no_run
//! use hexflash::cancel::Cancel;
//! use hexflash_server::{Card, Options, Served, Server};
//!
//! # fn serve(load: fn() -> Result<Served, hexflash::Error>) -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind(Options::default())?;
//! println!("http://{}", server.address());
//! server.run(&Cancel::default(), move |_| load())?;
//! # Ok(())
//! # }
//! ```
//!
//! Two kinds of threads do the work. One thread owns the engine: the scheduler gives each request one of
//! the engine's sequences and steps all of them together. The others speak HTTP: they parse,
//! apply chat templates, split text into tokens, and format what comes back. Between them are a queue of
//! bounded length for requests, and a buffer of bounded length for each answer.

// No property of a request may end the process: what can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod card;
mod connections;
mod embeddings;
mod gbnf;
mod grammar;
mod guarded;
mod http;
mod id;
mod instance;
mod metrics;
mod options;
mod scheduler;
mod schema;
mod server;
mod several;
mod text;

pub use card::{Card, Served, Work};
pub use options::{CorsOrigins, Options, ReasoningFormat};
pub use server::{RunError, Server};
pub use several::{CheckModel, Listed, LoadModel, Models};
