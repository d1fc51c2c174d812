//! The server through real sockets, with a real model.

mod answers;
mod dense;
mod errors;
mod forms;
mod load;
mod messages;
mod responses;
mod reuse;
mod routes;
mod support;
mod thoughts;
mod tools;
