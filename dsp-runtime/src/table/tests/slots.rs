//! Several sequences in one step, for every op that goes by slots: each row and each state gets the bits that
//! its sequence gets alone, in a program of one slot. The states of all other slots, and rows past the step,
//! stay as they were.

use half::f16;
use hexflash_abi::op::Op;
use hexflash_abi::op::params::{DeltaNet, FlashAttn, Rope, RopeMode, SsmConv, Visibility};
use hexflash_abi::program::MAX_PARAMS;
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{DType, TensorIndex};
use zerocopy::{Immutable, IntoBytes};

use crate::testing::{Batch, Setup, everywhere, random};

/// Positions of every context here.
const N_CTX: u32 = 128;
/// Slots of the programs for several sequences.
const SLOTS: usize = 7;
/// Most rows of a sequence in a step.
const WIDEST: u32 = 17;
/// Tokens that a tape has room for: those of the widest step.
const DEPTH: u32 = 5 * WIDEST + SPARE;
/// Rows of the token axis that a step leaves.
const SPARE: u32 = 3;

/// Whose an operand is.
#[derive(Clone, Copy)]
enum Of {
    /// A row per token, along this axis.
    Tokens(usize),
    /// A state per slot, along this axis.
    Slots(usize),
    /// Everybody's.
    All,
}
use Of::{All, Slots, Tokens};

/// An operand as it is for one token in a program of one slot.
#[derive(Clone, Copy)]
struct Operand(DType, [u32; 4], Of);

const fn f32(ne: [u32; 4], of: Of) -> Operand {
    Operand(DType::F32, ne, of)
}

/// An op with its operands.
#[derive(Clone)]
struct Trial {
    op: Op,
    params: [u32; MAX_PARAMS],
    src: Vec<Operand>,
    dst: Vec<Operand>,
    /// Whether it has a tape to commit from.
    taped: bool,
}

impl Trial {
    fn new(op: Op, params: &(impl IntoBytes + Immutable), src: &[Operand], dst: &[Operand]) -> Self {
        let mut words = [0; MAX_PARAMS];
        words.as_mut_bytes()[..params.as_bytes().len()].copy_from_slice(params.as_bytes());
        Self { op, params: words, src: src.to_vec(), dst: dst.to_vec(), taped: false }
    }

    fn taped(self) -> Self {
        Self { taped: true, ..self }
    }

    fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.src.iter().chain(&self.dst)
    }
}

/// What a sequence has in a step.
#[derive(Clone, Copy, Debug)]
struct Part {
    slot: usize,
    n_past: u32,
    rows: u32,
    n_commit: u32,
    fold: bool,
}

impl Part {
    /// Its register block, in a program where its state is in this slot.
    fn block(&self, slot: usize) -> StepRegisters {
        StepRegisters::step(self.n_past, self.rows)
            .with(Register::Slot, slot as u32)
            .with(Register::NCommit, self.n_commit)
            .with(Register::Fold, self.fold.into())
    }
}

/// Steps of one to five sequences, in slots of any order, of widths 1 to [`WIDEST`], some new, some that
/// fold.
fn steps(taped: bool) -> Vec<Vec<Part>> {
    let new = Part { slot: 4, n_past: 0, rows: WIDEST, n_commit: 0, fold: false };
    let mut all = vec![vec![new], vec![new, Part { slot: 1, rows: 1, fold: true, ..new }]];
    for seed in 0..6 {
        let mut random = random(seed, 100, 0.0, 1.0).into_iter();
        let mut below = |n: u32| ((random.next().unwrap() * n as f32) as u32).min(n - 1);
        let mut free: Vec<_> = (0..SLOTS).collect();
        let mut part = || {
            let n_past = [0, 2, 31, 32, 33, below(64)][below(6) as usize];
            Part {
                slot: free.swap_remove(below(free.len() as u32) as usize),
                n_past,
                rows: [1, 1, 2, 16, WIDEST, 1 + below(WIDEST)][below(6) as usize],
                n_commit: if taped { below(5).min(n_past) } else { 0 },
                fold: below(2) == 1,
            }
        };
        all.push((0..2 + seed as usize / 2 % 4).map(|_| part()).collect());
    }
    all
}

/// Reproducible values.
fn contents(dtype: DType, bytes: usize, seed: u64) -> Vec<u8> {
    match dtype {
        DType::F32 => random(seed, bytes / 4, -1.0, 0.0).as_bytes().to_vec(),
        DType::I32 => {
            random(seed, bytes / 4, 0.0, 90.0).iter().flat_map(|&x| (x as i32).to_le_bytes()).collect()
        }
        _ => {
            random(seed, bytes / 2, -1.0, 1.0).iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect()
        }
    }
}

/// What an op left of each operand: the parts' rows or states, one after the other.
type Found = Vec<Vec<Vec<u8>>>;

/// Runs the op on these parts, in a program with as many slots as `whose` has; the state in slot i is that of
/// sequence `whose[i]`. Everything is made from the numbers of operand and sequence.
fn run(trial: &Trial, setup: Setup, parts: &[Part], whose: &[usize]) -> Found {
    let rows: u32 = parts.iter().map(|part| part.rows).sum();
    let most = (rows + SPARE) as usize;
    let mut batch = Batch::new(rows + SPARE, N_CTX).with_slots(whose.len() as u32);
    let home = |part: &Part| whose.iter().position(|&slot| slot == part.slot).unwrap();
    let seed = |number: usize, slot: usize| (100 * number + slot) as u64;
    // Bytes before and behind the token axis: rows of so many bytes, so often.
    let around = |ne: &[u32; 4], axis: usize, bytes: usize| {
        let often = ne[axis + 1..].iter().product::<u32>() as usize;
        (bytes / often / most, often)
    };
    let mut indices = Vec::new();
    for (number, &Operand(dtype, mut ne, of)) in trial.operands().enumerate() {
        match of {
            Tokens(axis) => ne[axis] *= most as u32,
            Slots(axis) => ne[axis] *= whose.len() as u32,
            All => {}
        }
        let index = batch.tensor(dtype, ne);
        let bytes = batch.read(index).len();
        let mut data = vec![0xff; bytes];
        match of {
            All => data = contents(dtype, bytes, seed(number, 0)),
            Slots(_) => {
                for (slot, state) in whose.iter().zip(data.chunks_exact_mut(bytes / whose.len())) {
                    state.copy_from_slice(&contents(dtype, state.len(), seed(number, *slot)));
                }
            }
            Tokens(axis) if number < trial.src.len() => {
                let (row, often) = around(&ne, axis, bytes);
                let mut first = 0;
                for part in parts {
                    let n = part.rows as usize * row;
                    let all = contents(dtype, often * n, seed(number, part.slot));
                    for (i, some) in all.chunks_exact(n).enumerate() {
                        data[(i * most + first) * row..][..n].copy_from_slice(some);
                    }
                    first += part.rows as usize;
                }
            }
            Tokens(_) => {}
        }
        batch.write(index, &data);
        let axis = if let Tokens(axis) = of { axis as u8 } else { batch.desc(index).token_axis };
        indices.push(batch.view(index, |t| t.token_axis = axis));
    }
    let blocks: Vec<_> = parts.iter().map(|part| part.block(home(part))).collect();
    let (src, dst) = indices.split_at(trial.src.len());
    batch.advance(setup, trial.op, src, dst, &trial.params, &blocks).unwrap();

    let look = |(number, (&Operand(dtype, _, of), &index)): (usize, (&Operand, &TensorIndex))| {
        let (ne, data) = (batch.desc(index).ne, batch.read(index));
        let state = data.len() / whose.len();
        let mut first = 0;
        let found: Vec<_> = parts
            .iter()
            .map(|part| match of {
                All => Vec::new(),
                Slots(_) => data[home(part) * state..][..state].to_vec(),
                Tokens(axis) => {
                    let (row, often) = around(&ne, axis, data.len());
                    let n = part.rows as usize * row;
                    let at = first;
                    first += part.rows as usize;
                    (0..often).flat_map(|i| &data[(i * most + at) * row..][..n]).copied().collect()
                }
            })
            .collect();
        match of {
            All => {}
            Slots(_) => {
                for (i, &slot) in whose.iter().enumerate() {
                    let idle = parts.iter().all(|part| part.slot != slot);
                    let same = data[i * state..][..state] == contents(dtype, state, seed(number, slot));
                    assert!(same || !idle, "{}: the state of idle slot {slot} was changed", trial.op);
                }
            }
            Tokens(axis) => {
                let (row, often) = around(&ne, axis, data.len());
                let rest = (0..often).flat_map(|i| &data[(i * most + first) * row..][..SPARE as usize * row]);
                assert!(rest.copied().all(|byte| byte == 0xff), "{}: a row past the step", trial.op);
            }
        }
        found
    };
    trial.operands().zip(&indices).enumerate().map(look).collect()
}

/// Together and alone, in every setup.
#[track_caller]
fn check(trial: &Trial) {
    let everyone: Vec<_> = (0..SLOTS).collect();
    for parts in steps(trial.taped) {
        everywhere(|setup| {
            let together = run(trial, setup, &parts, &everyone);
            for (i, part) in parts.iter().enumerate() {
                let alone = run(trial, setup, &[*part], &[part.slot]);
                for (number, (together, alone)) in together.iter().zip(alone).enumerate() {
                    let same = together[i] == alone[0];
                    assert!(same, "{}: operand {number} of {part:?} among {parts:?}, {setup:?}", trial.op);
                }
            }
            together.concat().concat()
        });
    }
}

const ATTENTION: FlashAttn = FlashAttn {
    scale: 0.3,
    visibility: Visibility::Causal.wire(),
    window: 0,
    softcap: 0.0,
    max_bias: 0.0,
    first: 0,
};

/// Attention with 4 query heads on 2 key heads, for `b` batches: q, caches, k, v.
fn attention(d: u32, dv: u32, b: u32) -> Vec<Operand> {
    attention_over([DType::F16x32, DType::F16], d, dv, b)
}

/// The same with caches of these types.
fn attention_over([keys, values]: [DType; 2], d: u32, dv: u32, b: u32) -> Vec<Operand> {
    vec![
        f32([d, 4, 1, b], Tokens(2)),
        Operand(keys, [d, N_CTX, 2, b], Slots(3)),
        Operand(values, [dv, N_CTX, 2, b], Slots(3)),
        f32([d, 2, 1, b], Tokens(2)),
        f32([dv, 2, 1, b], Tokens(2)),
    ]
}

#[test]
fn attention_sees_the_keys_of_its_own_sequence() {
    let block = FlashAttn { visibility: Visibility::Block.wire(), ..ATTENTION };
    let window = FlashAttn { window: 5, ..ATTENTION };
    for (params, b) in [(ATTENTION, 1), (ATTENTION, 2), (block, 1), (window, 1)] {
        check(&Trial::new(
            Op::FlashAttnExt,
            &params,
            &attention(64, 40, b),
            &[f32([40, 4, 1, b], Tokens(2))],
        ));
    }
}

#[test]
fn caches_of_every_format_belong_to_their_sequences() {
    for format in [DType::Q8_0Cache, DType::Q4RCache] {
        for b in [1, 2] {
            let src = attention_over([format; 2], 64, 64, b);
            check(&Trial::new(Op::FlashAttnExt, &ATTENTION, &src, &[f32([64, 4, 1, b], Tokens(2))]));
            let [_, k_cache, v_cache, k, v] = src.try_into().ok().unwrap();
            check(&Trial::new(Op::KvAppend, &[0u32; 0], &[k, v], &[k_cache, v_cache]));
        }
    }
}

/// A mask has a row for each token of the step, whosever it is.
#[test]
fn masks_and_sinks_go_with_the_rows() {
    let mut src = attention(32, 64, 2);
    src.push(Operand(DType::F16, [N_CTX, 1, 1, 1], Tokens(1)));
    src.push(f32([4, 1, 1, 1], All));
    check(&Trial::new(Op::FlashAttnExt, &ATTENTION, &src, &[f32([64, 4, 1, 2], Tokens(2))]));
}

#[test]
fn keys_and_values_go_into_the_caches_of_their_sequences() {
    for b in [1, 3] {
        let [_, k_cache, v_cache, k, v] = attention(40, 33, b).try_into().ok().unwrap();
        check(&Trial::new(Op::KvAppend, &[0u32; 0], &[k, v], &[k_cache, v_cache]));
    }
}

#[test]
fn convolutions_have_rings_and_tapes_of_their_own() {
    for (c, b) in [(300, 1), (33, 2)] {
        let src = [f32([c, 1, b, 1], Tokens(1)), f32([c, 4, 1, 1], All), f32([c, 5, b, 1], Slots(2))];
        let dst = [f32([c, 1, b, 1], Tokens(1)), f32([c, DEPTH, b, 1], Slots(2))];
        check(&Trial::new(Op::SsmConv, &SsmConv { defer: 0, silu: 0 }, &src, &dst[..1]));
        for defer in [0, 1] {
            check(&Trial::new(Op::SsmConv, &SsmConv { defer, silu: 1 }, &src, &dst).taped());
        }
    }
}

/// Heads of `s` values with gates of length `g`; `b` batches of v on `bk` of q and k.
fn delta_net_operands(s: u32, g: u32, b: u32, bk: u32) -> ([Operand; 6], [Operand; 4]) {
    let src = [
        f32([s, 2, 1, bk], Tokens(2)),
        f32([s, 2, 1, bk], Tokens(2)),
        f32([s, 4, 1, b], Tokens(2)),
        f32([g, 4, 1, b], Tokens(2)),
        f32([1, 4, 1, b], Tokens(2)),
        f32([s, s, 4, b], Slots(3)),
    ];
    let dst = [
        f32([s, 4, 1, b], Tokens(2)),
        f32([s, 2, DEPTH, bk], Slots(3)),
        f32([s, 4, DEPTH, b], Slots(3)),
        f32([g, 4, DEPTH, b], Slots(3)),
    ];
    (src, dst)
}

fn delta_net(s: u32, g: u32, b: u32, bk: u32) {
    let (src, dst) = delta_net_operands(s, g, b, bk);
    check(&Trial::new(Op::GatedDeltaNet, &DeltaNet { defer: 0, transposed: 0 }, &src, &dst[..1]));
    for defer in [0, 1] {
        check(&Trial::new(Op::GatedDeltaNet, &DeltaNet { defer, transposed: 0 }, &src, &dst).taped());
    }
}

#[test]
fn the_delta_rule_has_states_and_tapes_of_its_own() {
    delta_net(32, 1, 1, 1);
    delta_net(64, 1, 2, 1);
}

#[test]
fn the_general_delta_rule_has_too() {
    delta_net(16, 1, 1, 1);
    delta_net(20, 20, 2, 2);
}

#[test]
fn rotary_positions_are_those_of_the_sequence() {
    let p = Rope {
        n_dims: 32,
        mode: RopeMode::Neox.wire(),
        n_ctx_orig: 4096,
        freq_base: 10000.0,
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        sections: [0; 4],
        temperature: 0.0,
        temperature_span: 0,
    };
    for (mode, b) in [(RopeMode::Neox, 1), (RopeMode::Norm, 2)] {
        let (p, x) = (Rope { mode: mode.wire(), ..p }, f32([40, 3, 1, b], Tokens(2)));
        check(&Trial::new(Op::Rope, &p, &[x], &[x]));
        let positions = Operand(DType::I32, [1; 4], Tokens(0));
        check(&Trial::new(Op::Rope, &p, &[x, positions], &[x]));
    }
}

/// Rows with `fold` enter the states at once in an op that was recorded to defer, and leave the tape as it
/// is: the same bits as from the op that does not defer. Without `fold` they do neither.
fn folds(defers: &Trial, plain: &Trial) {
    for parts in steps(true) {
        everywhere(|setup| {
            let all = |fold| parts.iter().map(|part| Part { fold, ..*part }).collect::<Vec<_>>();
            let everyone: Vec<_> = (0..SLOTS).collect();
            let [found, expected] = [defers, plain].map(|trial| run(trial, setup, &all(true), &everyone));
            assert!(found == expected, "{} of {parts:?}, {setup:?}", defers.op);
            let deferred = run(defers, setup, &all(false), &everyone);
            let (state, tape) = (defers.src.len() - 1, found.len() - 1);
            for i in 0..parts.len() {
                assert!(deferred[state][i] != found[state][i] && deferred[tape][i] != found[tape][i]);
            }
            found.concat().concat()
        });
    }
}

#[test]
fn rows_that_fold_enter_rings_as_in_a_plain_step() {
    let src = [f32([65, 1, 2, 1], Tokens(1)), f32([65, 4, 1, 1], All), f32([65, 5, 2, 1], Slots(2))];
    let dst = [f32([65, 1, 2, 1], Tokens(1)), f32([65, DEPTH, 2, 1], Slots(2))];
    let [plain, defers] =
        [0, 1].map(|defer| Trial::new(Op::SsmConv, &SsmConv { defer, silu: 0 }, &src, &dst));
    folds(&defers, &plain);
}

#[test]
fn rows_that_fold_enter_states_as_in_a_plain_step() {
    for (s, g) in [(32, 1), (20, 20)] {
        let (src, dst) = delta_net_operands(s, g, 1, 1);
        let [plain, defers] =
            [0, 1].map(|defer| Trial::new(Op::GatedDeltaNet, &DeltaNet { defer, transposed: 0 }, &src, &dst));
        folds(&defers, &plain);
    }
}
