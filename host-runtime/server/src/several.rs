//! Several models behind one port, of which few are loaded at once.
//!
//! A request takes its model, which is loaded for it, and gives it back with the end of its answer. `turns`
//! decides who gets which model when, and what gives way; `stock` does that, and has the loaded ones.

pub(crate) mod routes;
pub(crate) mod stock;
mod turns;

use std::path::PathBuf;

use hexflash::cancel::Cancel;

use crate::card::Served;

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name in requests and answers.
    pub name: String,
    /// File of the model; of a split one, the first.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
}

/// Models that a server has, and how they are loaded. `E` is why one cannot be.
pub struct Models<E> {
    /// Models that can be asked for, in the order in which they are told.
    pub listed: Vec<Listed>,
    /// Most models that are loaded at once; at least 1.
    pub most: usize,
    /// Whether a request for a model that is not loaded loads it.
    pub autoload: bool,
    /// Finds out whether a model could be loaded, before others give way to it.
    pub check: Box<CheckModel<E>>,
    /// Loads a model; its card has the name that is listed.
    pub load: Box<LoadModel<E>>,
}

/// How a model is looked at.
pub type CheckModel<E> = dyn Fn(&Listed) -> Result<(), E> + Send + Sync;

/// How a model is loaded, until it is cancelled.
pub type LoadModel<E> = dyn Fn(&Listed, &Cancel) -> Result<Served, E> + Send + Sync;
