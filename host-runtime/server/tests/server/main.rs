//! The server through real sockets, with a real model.

mod answers;
mod browser;
mod cache_ram;
mod conversations;
mod dense;
mod embeddings;
mod errors;
mod families;
mod forms;
mod fuzz;
mod hostile;
mod infill;
mod llama;
mod load;
mod messages;
mod page;
mod responses;
mod reuse;
mod router;
mod routes;
mod siege;
mod slots;
mod support;
mod telemetry;
mod thoughts;
mod tools;
