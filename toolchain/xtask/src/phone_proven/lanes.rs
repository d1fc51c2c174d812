//! Jobs side by side.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::failure::Result;

/// Does all jobs, as many at a time as there are processors; the results in the order of the jobs.
pub fn in_lanes<J: Sync, R: Send>(jobs: &[J], one: impl Fn(&J) -> Result<R> + Sync) -> Result<Vec<R>> {
    let results: Vec<_> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let lanes = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { break };
                    *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(one(job));
                }
            });
        }
    });
    let result = |slot: Mutex<Option<Result<R>>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..50).collect();
        assert_eq!(in_lanes(&jobs, |job| Ok(job * 2)).unwrap(), (0..100).step_by(2).collect::<Vec<_>>());
    }
}
