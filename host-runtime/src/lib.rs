//! LLM inference on the Qualcomm Hexagon NPU: models, devices, texts, with and without drafts.
//!
//! # A text
//!
//! Open a model, ask for a text, take its pieces as they come:
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! use hexflash::{Limits, Model};
//!
//! let mut model = Model::open("models/tiny-hybrid-q8_0.gguf")?;
//! for piece in model.complete("def __repr__(self):\n    return ", Limits::tokens(24))? {
//!     print!("{}", piece?);
//! }
//! # Ok::<(), hexflash::Error>(())
//! ```
//!
//! [`Answer::finish`] gives the whole text at once, with its tokens, the reason of its end and what it took.
//!
//! # Settings
//!
//! [`ModelOptions`] says where a model runs and on how many [threads](ModelOptions::threads), how it samples,
//! how long its context is and who drafts. A draft model, or the text itself, guesses tokens before the model
//! computes them. The text stays the same, bit for bit:
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! use hexflash::{Limits, ModelOptions};
//!
//! let options = ModelOptions::default().temperature(0.0).context(256).threads(2);
//! let mut plain = options.open("models/tiny-hybrid-q8_0.gguf")?;
//! let mut drafted = options.clone()
//!     .draft("models/tiny-hybrid-dflash-q8_0.gguf")
//!     .open("models/tiny-hybrid-q8_0.gguf")?;
//!
//! let prompt = "def __repr__(self):\n    return ";
//! let text = drafted.complete(prompt, Limits::tokens(40))?.finish()?;
//! assert_eq!(text.tokens, plain.complete(prompt, Limits::tokens(40))?.finish()?.tokens);
//! if let Some(drafts) = text.stats.speculation {
//!     println!("{:.0} % of the drafts were right", 100.0 * drafts.acceptance());
//! }
//! # Ok::<(), hexflash::Error>(())
//! ```
//!
//! # A conversation
//!
//! [`Model::chat`] renders a conversation by the template of the model's file, and is an error where it has
//! none; [`Model::chat_with`] by one that the program gives, as here. The context keeps the earlier turns.
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! use hexflash::{Limits, Model, text::CHATML};
//!
//! let mut model = Model::open("models/tiny-hybrid-q8_0.gguf")?;
//! let mut chat = model.chat_with(CHATML);
//! chat.add("system", "You write Rust.");
//! for question in ["Push to a vector?", "And pop?"] {
//!     let answer = chat.say(question, Limits::tokens(16))?.finish()?;
//!     println!("> {question}\n{}", answer.text);
//! }
//! assert_eq!(chat.messages().len(), 5);
//! # Ok::<(), hexflash::Error>(())
//! ```
//!
//! # A step at a time
//!
//! What serves many people at once does not want to wait for a whole text. A
//! [`Generation`](generate::Generation) is made of a [`Request`](generate::Request), borrows nothing, can be
//! sent to another thread, and does one step each time it is asked: a piece of the prompt, or a token.
//! Between two steps it can be cancelled or dropped.
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! use hexflash::generate::{Event, Generation, Request};
//! use hexflash::{Limits, Model, sampler::Sampler};
//!
//! let mut model = Model::open("models/tiny-hybrid-q8_0.gguf")?;
//! let sampler = Sampler::new(model.text().sampling.clone())?;
//! let request = Request::new(model.text().encode("pub fn push(")?, sampler).limits(Limits::tokens(12));
//! let mut generation = Generation::new(model.text().tokenizer.clone(), request);
//! loop {
//!     match generation.step(model.engine())? {
//!         Event::Prompt { done, total } => println!("{done} of {total} tokens read"),
//!         Event::Text(piece) => print!("{piece}"),
//!         Event::Done(generated) => break println!("\n{:?}", generated.finish_reason),
//!     }
//! }
//! # Ok::<(), hexflash::Error>(())
//! ```
//!
//! # Several texts at once
//!
//! An engine has room for as many [sequences](engine::Sequence) as its settings say.
//! [`step_together`](generate::step_together) takes a generation for each of them a step further, all in one
//! step of the model. Each text is, bit for bit, the one that it would be alone.
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! use hexflash::generate::{Event, Generation, Request, step_together};
//! use hexflash::{Limits, ModelOptions, sampler::Sampler};
//!
//! let mut model = ModelOptions::default().sequences(2).open("models/tiny-hybrid-q8_0.gguf")?;
//! let ids = model.engine().sequences();
//! let mut generations = Vec::new();
//! for (id, prompt) in ids.zip(["pub fn push(", "impl fmt::Display for "]) {
//!     let sampler = Sampler::new(model.text().sampling.clone())?;
//!     let request = Request::new(model.text().encode(prompt)?, sampler).limits(Limits::tokens(12));
//!     generations.push(Generation::new(model.text().tokenizer.clone(), request.sequence(id)));
//! }
//! let mut running: Vec<_> = generations.iter_mut().collect();
//! while !running.is_empty() {
//!     let mut done = vec![false; running.len()];
//!     step_together(model.engine(), &mut running, |i, event| match event {
//!         Ok(Event::Done(_)) => done[i] = true,
//!         Ok(_) => {}
//!         Err(error) => {
//!             eprintln!("{error}");
//!             done[i] = true;
//!         }
//!     });
//!     let mut done = done.into_iter();
//!     running.retain(|_| done.next() != Some(true));
//! }
//! for generation in generations {
//!     println!("{}", generation.text());
//! }
//! # Ok::<(), hexflash::Error>(())
//! ```
//!
//! Below that, [`Engine`](engine::Engine) runs tokens and gives logits, and its [`Rounds`](engine::Rounds)
//! draft, verify and accept on the device.
//!
//! # Errors
//!
//! Each message is one line with a cause and a remedy, and a `main` that returns [`Error`] prints that line.
//! [`Error`] is all of them; [`Error::blame`] tells bad
//! input from a failure of the system. Messages speak of settings in words; a program whose settings have
//! flags can [name them](setting::name_flags).
//!
//! # Modules
//!
//! | module | what |
//! |---|---|
//! | [`gguf`] | model files: metadata and tensors |
//! | [`tokenizer`], [`chat`], [`text`] | text and conversations to tokens, and back |
//! | [`sampler`] | the next token from logits |
//! | [`speculation`] | who drafts, how many tokens, and what came of it |
//! | [`generate`] | texts, a step at a time |
//! | [`embed`] | texts as vectors |
//! | [`engine`] | a model on a device |
//! | [`model`], [`record`], [`weights`] | graphs, programs, and weights as devices read them |
//! | [`device`] | where programs run: this processor, an emulator, a Snapdragon |
//! | [`selftest`] | what a device makes of instructions and small kernels |
//!
//! The command line is the package `hexflash-cli`.

// No property of a file or of an option may end the process: what can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]
// The macros of the standard library panic where the output cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod cancel;
pub mod chat;
pub mod device;
pub mod embed;
pub mod engine;
mod error;
mod facade;
pub mod generate;
pub mod gguf;
pub mod model;
#[cfg(feature = "pictures")]
pub mod picture;
mod positioned;
pub mod record;
pub mod rerank;
mod runtime;
pub mod sampler;
pub mod selftest;
mod sequence;
pub mod setting;
pub mod speculation;
#[doc(hidden)]
pub mod testing;
pub mod text;
pub mod tokenizer;
pub mod weights;

pub use error::{Blame, Error};
pub use facade::{Answer, Chat, Drafts, Model, ModelOptions};
pub use generate::{Generated, Limits};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
