//! The threads that pack weights.

use std::error::Error;
use std::io;
use std::sync::OnceLock;

use hexflash_dsp::platform::host::processors;
use rayon::ThreadPoolBuilder;

use super::WeightError;

/// Starts rayon's threads, the first time: one for each core, or fewer if `RAYON_NUM_THREADS` says so. Left
/// to itself, rayon starts as many as that variable names, were they a hundred thousand, and panics where it
/// gets none.
///
/// # Errors
/// [`WeightError::Threads`]: the system gives no threads.
pub(super) fn start() -> Result<(), WeightError> {
    static STARTED: OnceLock<Result<(), io::Error>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let cores = processors();
        let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok());
        let threads = asked.filter(|n| (1..cores).contains(n)).unwrap_or(cores);
        let built = ThreadPoolBuilder::new().num_threads(threads).build_global();
        match built.as_ref().map_err(|error| error.source().and_then(<dyn Error>::downcast_ref::<io::Error>))
        {
            Err(Some(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            // A program that uses this library may have started them before.
            Ok(()) | Err(None) => Ok(()),
        }
    });
    // The first failure is that of all later calls: rayon does not try again.
    started
        .as_ref()
        .copied()
        .map_err(|error| WeightError::Threads { io: io::Error::new(error.kind(), error.to_string()) })
}
