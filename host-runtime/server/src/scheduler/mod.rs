//! Requests to texts: who runs when, on which sequence, and with what of an earlier text.
//!
//! One thread, the [`Worker`](worker::Worker), owns the engine. HTTP tasks leave [`Order`](order::Order)s
//! with the [`Scheduler`](shared::Scheduler) and read [`Update`](news::Update)s from their
//! [`Answers`](shared::Answers).
//!
//! * **Fairness.** Every step carries a token (or a block of drafts) of each text under way, and pieces of
//!   the prompts that are being read. Requests get sequences in the order in which they came.
//! * **Back-pressure.** So many requests wait, and more are refused at once.
//! * **Slow readers.** Answers have a bounded buffer. A text whose buffer is full takes no part in steps
//!   until its client has read; the others go on. If others wait for its sequence, it is ended within
//!   seconds.
//! * **Cancellation.** Dropping the `Answers` ends their texts with the step under way.
//! * **Reuse.** A request begins with what a sequence at rest has of its prompt already (`reuse`), or a text
//!   that had to give way (`ram_cache`).

pub(crate) mod news;
pub(crate) mod order;
pub(crate) mod queue;
mod ram_cache;
mod reuse;
pub(crate) mod shared;
mod slot;
pub(crate) mod task;
pub(crate) mod worker;
