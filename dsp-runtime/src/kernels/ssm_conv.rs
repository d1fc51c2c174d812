//! SSM_CONV: a causal convolution per channel, over a ring of past rows.
//!
//! x{C,T,B}, w{C,K}, ring{C,R,B} -> y{C,T,B}; the channel is the fast index everywhere, so that lanes are channels.
//! With X\[p\] the raw row of position p (zero where p < 0), as in ggml (`ggml_compute_forward_ssm_conv_f32`):
//!
//! y\[c,t\] = sum over j = 0..K-1, in this order, of w\[c,j\] X\[n_past + t - (K-1) + j, c\]
//!
//! Row p lives in ring row p mod R. Rows before `n_past` come from the ring, the step's own from x; then the step's
//! last min(T, R) rows go into the ring. Nothing is read for p < 0, so a new sequence needs no clearing.
//!
//! A unit is a block of channels of one sequence: it has read its channels' history before it overwrites any of it,
//! and no other unit touches them. Weights and history go through VTCM, x and y are streamed.

use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use super::{OpRun, OpShapes};
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::platform::Platform;
use crate::pool::{Kernel, Worker};
use crate::row::Row;
use crate::vtcm::VtcmPlan;

/// Vectors of channels in a unit: rows of a kilobyte are a decent transfer, and leave work for every worker.
const BLOCK_VECTORS: usize = 8;
/// Channels of a unit.
const BLOCK: usize = BLOCK_VECTORS * LANES;
/// Bytes of a staged row.
const ROW_BYTES: usize = BLOCK_VECTORS * VECTOR_BYTES;
/// Most taps that validation lets through.
const MAX_TAPS: usize = 32;

struct SsmConv {
    x: View,
    w: View,
    ring: View,
    y: View,
    n_past: usize,
    tokens: usize,
    /// Whether there are units enough to claim one ahead.
    ahead: bool,
}

/// A claimed block of channels, and the transfers that bring its weights and history.
struct Block {
    sequence: usize,
    /// First channel.
    at: usize,
    /// Channels.
    n: usize,
    /// Where its rows are staged: K rows of weights, K - 1 rows of history.
    stage: *mut u8,
    /// Weights, older part of the history, newer part (the ring wraps once at most).
    tickets: [Option<Ticket>; 3],
}

/// SSM_CONV.
///
/// # Errors
/// A transfer that fails; shapes that the token axis has cut apart.
pub fn run<P: Platform>(run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let (x, w, ring, y) = (run.src(0)?, run.src(1)?, run.src(2)?, run.dst()?);
    let sound = x.ne[0] == y.ne[0]
        && w.ne[0] == y.ne[0]
        && ring.ne[0] == y.ne[0]
        && (1..=MAX_TAPS).contains(&w.ne[1])
        && ring.ne[1] >= w.ne[1]
        && x.ne[2] >= y.ne[2]
        && ring.ne[2] >= y.ne[2];
    if !sound {
        return Err(Fault::new(ErrorCode::BadShape, 0));
    }
    let tokens = x.ne[1].min(y.ne[1]);
    let mut kernel = SsmConv { x, w, ring, y, n_past: run.n_past(), tokens, ahead: false };
    kernel.ahead = kernel.units() >= 2 * run.pool.workers();
    run.parallel(&kernel)
}

/// Two slots per worker of K rows of weights and K - 1 of history.
pub fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let taps = shapes.src[1].map_or(1, |(w, _)| w.ne[1] as usize);
    VtcmPlan::new(0, 2 * slot_bytes(taps))
}

const fn slot_bytes(taps: usize) -> usize {
    (2 * taps - 1) * ROW_BYTES
}

impl Kernel for SsmConv {
    fn units(&self) -> usize {
        self.y.ne[0].div_ceil(BLOCK) * self.y.ne[2]
    }

    fn work(&self) -> usize {
        (self.units() * BLOCK_VECTORS).saturating_mul(self.tokens * 2 * self.w.ne[1])
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let slot_bytes = slot_bytes(self.w.ne[1]);
        assert!(worker.own_bytes() >= 2 * slot_bytes);
        let base = worker.own_vtcm().get();
        let slots = [base, base.wrapping_add(slot_bytes)];
        let mut slot = 0;
        // SAFETY: (here and below) a slot is K + K - 1 rows of this worker's own VTCM, and the block that used it
        // before has been computed.
        let mut next = unsafe { self.fetch::<H>(worker, slots[slot]) };
        while let Some(block) = next.take() {
            slot ^= 1;
            if self.ahead {
                // SAFETY: as above; `block` is in the other slot.
                next = unsafe { self.fetch::<H>(worker, slots[slot]) };
            }
            for ticket in block.tickets.into_iter().flatten() {
                worker.dma.wait(ticket)?;
            }
            // SAFETY: the transfers are done, and the block was claimed by this worker alone.
            unsafe { self.convolve::<H>(&block) };
            if !self.ahead {
                // SAFETY: as above.
                next = unsafe { self.fetch::<H>(worker, slots[slot]) };
            }
        }
        Ok(())
    }
}

impl SsmConv {
    /// Claims a block and starts to stage it at `stage`.
    ///
    /// # Safety
    /// `stage` is a slot of the worker's own VTCM that nobody reads or writes until the block is done.
    #[inline(always)]
    unsafe fn fetch<H: Hvx>(&self, worker: &mut Worker<'_>, stage: *mut u8) -> Option<Block> {
        let unit = worker.claim()?;
        let (blocks, taps) = (self.y.ne[0].div_ceil(BLOCK), self.w.ne[1]);
        let (sequence, at) = (unit / blocks, unit % blocks * BLOCK);
        let n = (self.y.ne[0] - at).min(BLOCK);
        let rows = |src: *mut u8, to_row: usize, rows: usize, stride: usize| Transfer {
            src: src.cast_const().wrapping_add(at * 4),
            dst: stage.wrapping_add(to_row * ROW_BYTES),
            row_bytes: n * 4,
            rows,
            src_stride: stride,
            dst_stride: ROW_BYTES,
        };
        // Rows of history that exist; the older ones are zero.
        let known = (taps - 1).min(self.n_past);
        let mut tickets = [None; 3];
        // SAFETY: K rows of n channels lie inside w, and the slot has K rows for them.
        tickets[0] = Some(unsafe { worker.dma.push(rows(self.w.at([0; 3]), 0, taps, self.w.nb[1])) });
        for row in taps..2 * taps - 1 - known {
            for v in 0..BLOCK_VECTORS {
                // SAFETY: a row of the slot that no transfer writes.
                unsafe { H::store(stage.add(row * ROW_BYTES + v * VECTOR_BYTES).cast(), H::splat(0.0)) };
            }
        }
        if known > 0 {
            let size = self.ring.ne[1];
            let oldest = (self.n_past - known) % size;
            // `known` < K <= R: at most one wrap, and no row twice.
            let first = known.min(size - oldest);
            let to = 2 * taps - 1 - known;
            let src = self.ring.at([oldest, sequence, 0]);
            // SAFETY: `first` rows from `oldest` lie inside the ring; this block alone writes its channels there,
            // after it has waited.
            tickets[1] = Some(unsafe { worker.dma.push(rows(src, to, first, self.ring.nb[1])) });
            if first < known {
                let src = self.ring.at([0, sequence, 0]);
                let transfer = rows(src, to + first, known - first, self.ring.nb[1]);
                // SAFETY: as above, for the rows from 0.
                tickets[2] = Some(unsafe { worker.dma.push(transfer) });
            }
        }
        Some(Block { sequence, at, n, stage, tickets })
    }

    /// Computes a block's outputs, then moves the ring on.
    ///
    /// # Safety
    /// The block's transfers are done; no other worker touches its channels of y and of the ring.
    #[inline(always)]
    unsafe fn convolve<H: Hvx>(&self, block: &Block) {
        let &Block { sequence, at, n, stage, .. } = block;
        let taps = self.w.ne[1];
        // SAFETY: row r of the slot, staged per the caller's promise; n <= BLOCK floats of it are used.
        let staged = |r: usize| unsafe { Row::new(stage.add(r * ROW_BYTES).cast(), n) };
        let x = |t: usize| self.x.row([t, sequence, 0]).part(at, n);
        for t in 0..self.tokens {
            let mut rows = [staged(0); MAX_TAPS];
            for (j, row) in rows.iter_mut().enumerate().take(taps) {
                // Row t + j of history followed by x.
                *row = if t + j < taps - 1 { staged(taps + t + j) } else { x(t + j - (taps - 1)) };
            }
            // SAFETY: this block's channels, per the caller's promise.
            let mut y = unsafe { self.y.part_mut([t, sequence, 0], at, n) };
            for v in 0..n.div_ceil(LANES) {
                let mut sum = H::mul(rows[0].vector::<H>(v), staged(0).vector::<H>(v));
                for (j, row) in rows.iter().enumerate().take(taps).skip(1) {
                    sum = H::add(sum, H::mul(row.vector::<H>(v), staged(j).vector::<H>(v)));
                }
                y.set_vector::<H>(v, sum);
            }
        }
        let size = self.ring.ne[1];
        for t in self.tokens.saturating_sub(size)..self.tokens {
            // SAFETY: as above.
            let mut ring = unsafe { self.ring.part_mut([(self.n_past + t) % size, sequence, 0], at, n) };
            ring.copy::<H>(x(t));
        }
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, Setup, nmse, random, setups};

    /// A convolution over a whole sequence, fed in steps.
    struct Case {
        channels: usize,
        taps: usize,
        ring: usize,
        sequences: usize,
        tokens: usize,
    }

    impl Case {
        fn x(&self) -> Vec<f32> {
            random(1, self.channels * self.tokens * self.sequences, -1.0, 1.0)
        }

        fn w(&self) -> Vec<f32> {
            random(2, self.channels * self.taps, -1.0, 1.0)
        }

        /// y and the final ring, by [sequence][token][channel]. The ring starts with garbage.
        fn run(&self, setup: Setup, steps: &[usize]) -> (Vec<f32>, Vec<f32>) {
            let &Case { channels, taps, ring, sequences, tokens } = self;
            assert_eq!(steps.iter().sum::<usize>(), tokens);
            let most = steps.iter().copied().max().unwrap();
            let mut batch = Batch::new(most as u32, tokens as u32);
            let ne = |n: usize| [channels as u32, n as u32, sequences as u32, 1];
            // Room for the longest step; the token axis cuts it.
            let tokened = |batch: &mut Batch| {
                let whole = batch.f32(ne(most), &vec![f32::NAN; channels * most * sequences]);
                batch.view(whole, |t| t.token_axis = 1)
            };
            let (x, y) = (tokened(&mut batch), tokened(&mut batch));
            let w = batch.f32([channels as u32, taps as u32, 1, 1], &self.w());
            let ring = batch.f32(ne(ring), &vec![f32::NAN; channels * ring * sequences]);
            let (all, mut out, mut past) = (self.x(), vec![0.0; channels * tokens * sequences], 0);
            for &n in steps {
                let mut part = vec![f32::NAN; channels * most * sequences];
                for b in 0..sequences {
                    let (from, to) = ((b * tokens + past) * channels, b * most * channels);
                    part[to..to + n * channels].copy_from_slice(&all[from..from + n * channels]);
                }
                batch.write(x, zerocopy::IntoBytes::as_bytes(&part[..]));
                let step = StepRegisters::step(past as u32, n as u32);
                batch.run(setup, Op::SsmConv, &[x, w, ring], &[y], &[0u32; 0], step).unwrap();
                let part = batch.floats(y);
                for b in 0..sequences {
                    let (to, from) = ((b * tokens + past) * channels, b * most * channels);
                    out[to..to + n * channels].copy_from_slice(&part[from..from + n * channels]);
                }
                past += n;
            }
            (out, batch.floats(ring))
        }

        fn expected(&self) -> Vec<f32> {
            let &Case { channels, taps, sequences, tokens, .. } = self;
            let (x, w) = (self.x(), self.w());
            let mut y = Vec::new();
            for b in 0..sequences {
                for t in 0..tokens {
                    y.extend((0..channels).map(|c| {
                        let term = |j: usize| {
                            let p = (t + j).checked_sub(taps - 1)?;
                            Some(
                                f64::from(w[j * channels + c])
                                    * f64::from(x[(b * tokens + p) * channels + c]),
                            )
                        };
                        (0..taps).filter_map(term).sum::<f64>() as f32
                    }));
                }
            }
            y
        }
    }

    #[test]
    fn matches_the_definition_however_it_is_fed() {
        let cases = [
            Case { channels: 33, taps: 4, ring: 4, sequences: 1, tokens: 16 },
            Case { channels: 6 * 256 + 37, taps: 4, ring: 19, sequences: 2, tokens: 40 },
            Case { channels: 300, taps: 1, ring: 1, sequences: 2, tokens: 5 },
            Case { channels: 256, taps: 2, ring: 3, sequences: 3, tokens: 9 },
            Case { channels: 64, taps: 32, ring: 33, sequences: 1, tokens: 70 },
        ];
        for case in cases {
            let whole = case.run(setups()[0], &[case.tokens]);
            let error = nmse(&whole.0, &case.expected());
            assert!(error <= 1e-10, "C={} K={}: {error}", case.channels, case.taps);
            // The last R rows that there are, each at its position mod R.
            for p in case.tokens.saturating_sub(case.ring)..case.tokens {
                let (x, at) = (case.x(), p % case.ring * case.channels);
                assert_eq!(
                    whole.1[at..at + case.channels],
                    x[p * case.channels..][..case.channels],
                    "row {p}"
                );
            }
            let n = case.tokens;
            let feeds = [vec![n], vec![1; n], vec![2, n - 3, 1], vec![n - 1, 1]];
            for setup in setups() {
                for steps in &feeds {
                    let (y, ring) = case.run(setup, steps);
                    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&y), bits(&whole.0), "C={} {setup:?} {steps:?}", case.channels);
                    assert_eq!(bits(&ring), bits(&whole.1), "ring, C={} {setup:?} {steps:?}", case.channels);
                }
            }
        }
    }
}
