//! The shape and parameter rules of what speculative rounds are made of, broken in every way that the op
//! table excludes: the factor tape, ACCEPT, SET_TOKENS, NEXT_DRAFT, KV_APPEND, rows of integers; and those of
//! slots.

mod common;

use common::{ACCEPT, Case, N_CTX, OUT, SET_TOKENS, TOKENS, valid};
use hexflash_abi::op::{MAX_STOPS, Op, params};
use hexflash_abi::program::MAX_SLOTS;
use hexflash_abi::registers::Register;
use hexflash_abi::{DType, ErrorCode, TensorIndex};

/// Numbers of the tape's operands.
const TAPE: [usize; 3] = [OUT + 1, OUT + 2, OUT + 3];

/// Gives one operand another shape and asserts that `detail` is blamed for it. Its token axis stays, if it
/// can.
#[track_caller]
fn bad_shape(op: Op, operand: usize, ne: [u32; 4], detail: usize) {
    let mut case = valid(op);
    case.reshape(operand, ne);
    let t = case.operand(operand);
    if ne.get(usize::from(t.token_axis)) != Some(&TOKENS) {
        t.token_axis = 0xff;
    }
    case.refused(ErrorCode::BadShape, detail);
}

/// Operands along the token axis that a step does not cut to its tokens.
#[track_caller]
fn uncut(op: Op, operands: &[usize], detail: usize) {
    let mut case = valid(op);
    operands.iter().for_each(|&n| case.operand(n).token_axis = 0xff);
    case.refused(ErrorCode::BadShape, detail);
}

fn gated(defer: u32) -> Case {
    let mut case = valid(Op::GatedDeltaNet);
    case.set_params(&params::DeltaNet { defer, transposed: 0 });
    case
}

/// A tape of `n` tokens.
fn tape(defer: u32, n: u32) -> Case {
    let mut case = gated(defer);
    for (operand, ne) in TAPE.into_iter().zip([[16, 1, n, 1], [16, 2, n, 1], [1, 2, n, 1]]) {
        case.reshape(operand, ne);
    }
    case
}

#[test]
fn tape_shapes() {
    // q,k{16,1,4,1}, v{16,2,4,1}, g{1,2,4,1} -> tape_k{16,1,4,1}, tape_delta{16,2,4,1}, tape_g{1,2,4,1}
    let op = Op::GatedDeltaNet;
    for tape_k in [[15, 1, 4, 1], [16, 2, 4, 1], [16, 1, 3, 1], [16, 1, 4, 2]] {
        bad_shape(op, TAPE[0], tape_k, TAPE[0]);
    }
    for tape_delta in [[15, 2, 4, 1], [16, 1, 4, 1], [16, 2, 3, 1], [16, 2, 5, 1], [16, 2, 4, 2]] {
        bad_shape(op, TAPE[1], tape_delta, TAPE[1]);
    }
    for tape_g in [[2, 2, 4, 1], [16, 2, 4, 1], [1, 1, 4, 1], [1, 2, 3, 1], [1, 2, 5, 1], [1, 2, 4, 2]] {
        bad_shape(op, TAPE[2], tape_g, TAPE[2]);
    }
    // States with a tape are not transposed.
    let mut case = valid(op);
    case.set_params(&params::DeltaNet { defer: 1, transposed: 1 });
    case.refused(ErrorCode::BadParam, 1);
    // One gate per key, on the tape as in the step.
    let mut case = gated(1);
    case.reshape(3, [16, 2, 4, 1]);
    case.refused(ErrorCode::BadShape, TAPE[2]);
    case.reshape(TAPE[2], [16, 2, 4, 1]);
    assert_eq!(case.check(), Ok(()));
}

/// The tape of a convolution: as many channels and sequences as the step, and rows for all its tokens.
#[test]
fn tape_of_a_convolution() {
    let tape = |defer: u32, ne: [u32; 4]| {
        let mut case = valid(Op::SsmConv);
        case.set_params(&params::SsmConv { defer, silu: 0 });
        case.reshape(OUT + 1, ne);
        case
    };
    for ne in [[31, 4, 1, 1], [32, 3, 1, 1], [32, 4, 2, 1], [32, 4, 1, 2]] {
        tape(1, ne).refused(ErrorCode::BadShape, OUT + 1);
    }
    assert_eq!(tape(1, [32, 16, 1, 1]).check(), Ok(()));
    // A step that advances the ring commits what there is, be it less than a step.
    assert_eq!(tape(0, [32, 1, 1, 1]).check(), Ok(()));
    tape(2, [32, 4, 1, 1]).refused(ErrorCode::BadParam, 0);
    for (silu, expected) in [(0, None), (1, None), (2, Some(1)), (u32::MAX, Some(1))] {
        let mut case = valid(Op::SsmConv);
        case.set_params(&params::SsmConv { defer: 1, silu });
        match expected {
            None => assert_eq!(case.check(), Ok(())),
            Some(word) => case.refused(ErrorCode::BadParam, word),
        }
    }
    let mut case = tape(0, [32, 4, 1, 1]);
    case.operand(OUT + 1).token_axis = 1;
    case.refused(ErrorCode::BadShape, OUT + 1);
}

/// Sequences of k on the tape are those of k, the others those of v.
#[test]
fn tape_of_several_sequences() {
    let mut case = gated(1);
    for (operand, ne) in [
        (0, [16, 1, 4, 2]),
        (1, [16, 1, 4, 2]),
        (2, [16, 2, 4, 4]),
        (3, [1, 2, 4, 4]),
        (4, [1, 2, 4, 4]),
        (5, [16, 16, 2, 4]),
        (OUT, [16, 2, 4, 4]),
        (TAPE[0], [16, 1, 4, 2]),
        (TAPE[1], [16, 2, 4, 4]),
        (TAPE[2], [1, 2, 4, 4]),
    ] {
        case.reshape(operand, ne);
    }
    assert_eq!(case.check(), Ok(()));
    let refused = |operand, ne| {
        let mut case = case.clone();
        case.reshape(operand, ne);
        case.refused(ErrorCode::BadShape, operand);
    };
    refused(TAPE[0], [16, 1, 4, 4]);
    refused(TAPE[1], [16, 2, 4, 2]);
    refused(TAPE[2], [1, 2, 4, 2]);
}

/// A tape that is written has a place for every token of a step; one that is only read, any number.
#[test]
fn tape_depth() {
    for n in 1..10 {
        assert_eq!(tape(0, n).check(), Ok(()), "{n} to read");
        if n >= TOKENS {
            assert_eq!(tape(1, n).check(), Ok(()), "{n} to write");
        } else {
            tape(1, n).refused(ErrorCode::BadShape, TAPE[0]);
        }
    }
    // What a step cuts would lose the tokens of the one before.
    for defer in [0, 1] {
        for operand in TAPE {
            let mut case = gated(defer);
            case.operand(operand).token_axis = 2;
            case.refused(ErrorCode::BadShape, operand);
        }
        let mut case = gated(defer);
        TAPE.into_iter().for_each(|n| case.operand(n).token_axis = 2);
        case.refused(ErrorCode::BadShape, TAPE[0]);
    }
}

#[test]
fn tape_comes_whole_or_not_at_all() {
    for present in 0..8 {
        for defer in [0, 1, 2, u32::MAX] {
            let mut case = gated(defer);
            let absent: Vec<_> = (0..3).filter(|i| present >> i & 1 == 0).collect();
            absent.iter().for_each(|&i| case.ops[0].dst[1 + i] = TensorIndex::NONE);
            match (absent[..].first(), absent.len()) {
                (None, _) if defer <= 1 => assert_eq!(case.check(), Ok(())),
                (Some(_), 3) if defer == 0 => assert_eq!(case.check(), Ok(())),
                (None, _) | (Some(_), 3) => case.refused(ErrorCode::BadParam, 0),
                (Some(&i), _) => case.refused(ErrorCode::BadOperand, TAPE[i]),
            }
        }
    }
}

#[test]
fn accept_shapes() {
    // best{4}, tokens{4}, stops{4} -> out{8,2}, anchor{1}
    let op = Op::Accept;
    for operand in [0, 1] {
        for ids in [[5, 1, 1, 1], [4, 2, 1, 1], [4, 1, 2, 1], [4, 1, 1, 2]] {
            bad_shape(op, operand, ids, operand);
        }
        uncut(op, &[operand], operand);
    }
    uncut(op, &[0, 1], 0);
    for stops in [[MAX_STOPS + 1, 1, 1, 1], [4, 2, 1, 1], [4, 1, 2, 1], [4, 1, 1, 2]] {
        bad_shape(op, 2, stops, 2);
    }
    for out in [[7, 2, 1, 1], [9, 2, 1, 1], [8, 1, 1, 1], [8, 3, 1, 1], [8, 2, 2, 1], [8, 2, 1, 2]] {
        bad_shape(op, OUT, out, OUT);
    }
    for anchor in [[2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2]] {
        bad_shape(op, OUT + 1, anchor, OUT + 1);
    }
    for n in [1, 2, MAX_STOPS - 1, MAX_STOPS] {
        let mut case = valid(op);
        case.reshape(2, [n, 1, 1, 1]);
        assert_eq!(case.check(), Ok(()), "{n} stop tokens");
    }
}

#[test]
fn accept_params() {
    let with = |params: params::Accept| {
        let mut case = valid(Op::Accept);
        case.set_params(&params);
        case
    };
    for block in [0, 1, TOKENS + 1, u32::MAX] {
        with(params::Accept { block, ..ACCEPT }).refused(ErrorCode::BadParam, 0);
    }
    for block in 2..=TOKENS {
        assert_eq!(with(params::Accept { block, ..ACCEPT }).check(), Ok(()));
    }
    for n_ctx in [0, N_CTX - 1, N_CTX + 1, u32::MAX] {
        with(params::Accept { n_ctx, ..ACCEPT }).refused(ErrorCode::BadParam, 1);
    }
    // A program of one token at most has no room for a block.
    for block in [1, 2] {
        let mut case = with(params::Accept { block, ..ACCEPT });
        case.header.max_tokens = 1;
        for (operand, n) in [(0, 1), (1, 1)] {
            case.reshape(operand, [n, 1, 1, 1]);
        }
        case.reshape(OUT, [5, 2, 1, 1]);
        case.refused(ErrorCode::BadParam, 0);
    }
}

#[test]
fn set_tokens_params() {
    let with = |params: params::SetTokens| {
        let mut case = valid(Op::SetTokens);
        case.set_params(&params);
        case
    };
    for &register in Register::ALL {
        for plus in [0, 1, TOKENS] {
            let params = params::SetTokens { register: register.wire(), plus };
            assert_eq!(with(params).check(), Ok(()), "{register} + {plus}");
        }
    }
    for register in [Register::ALL.len() as u32, 15, 16, u32::MAX] {
        with(params::SetTokens { register, ..SET_TOKENS }).refused(ErrorCode::BadParam, 0);
    }
    for plus in [TOKENS + 1, u32::MAX] {
        with(params::SetTokens { plus, ..SET_TOKENS }).refused(ErrorCode::BadParam, 1);
    }
}

#[test]
fn next_draft_params() {
    let mut case = valid(Op::NextDraft);
    for draft in 0..TOKENS {
        for stays in [0, 1] {
            case.set_params(&params::NextDraft { draft, stays });
            assert_eq!(case.check(), Ok(()), "{draft}");
        }
    }
    for draft in [TOKENS, u32::MAX] {
        case.set_params(&params::NextDraft { draft, stays: 0 });
        case.refused(ErrorCode::BadParam, 0);
    }
    for stays in [2, u32::MAX] {
        case.set_params(&params::NextDraft { draft: 0, stays });
        case.refused(ErrorCode::BadParam, 1);
    }
}

#[test]
fn kv_append_shapes() {
    // k{64,1,4,1}, v{64,1,4,1} -> k_cache{64,64,1,1}, v_cache{64,64,1,1}
    let op = Op::KvAppend;
    for k in [[513, 1, 4, 1], [64, 1, 5, 1]] {
        bad_shape(op, 0, k, 0);
    }
    // Heads and sequences that v has not.
    for k in [[64, 2, 4, 1], [64, 1, 4, 2]] {
        bad_shape(op, 0, k, 1);
    }
    bad_shape(op, 0, [63, 1, 4, 1], OUT);
    bad_shape(op, 1, [63, 1, 4, 1], OUT + 1);
    for v in [[513, 1, 4, 1], [64, 2, 4, 1], [64, 1, 5, 1], [64, 1, 4, 2]] {
        bad_shape(op, 1, v, 1);
    }
    for kc in [[63, 64, 1, 1], [64, N_CTX - 1, 1, 1], [64, 64, 2, 1], [64, 64, 1, 2]] {
        bad_shape(op, OUT, kc, OUT);
    }
    for vc in [[63, 64, 1, 1], [64, 63, 1, 1], [64, 65, 1, 1], [64, 64, 2, 1], [64, 64, 1, 2]] {
        bad_shape(op, OUT + 1, vc, OUT + 1);
    }
    // Rotated caches have vectors in whole tiles.
    for (keys, values, d, blamed) in
        [(DType::Q4RCache, DType::F16, 48, OUT), (DType::F16x32, DType::Q4RCache, 80, OUT + 1)]
    {
        let mut case = valid(op);
        case.retype(OUT, keys);
        case.retype(OUT + 1, values);
        assert_eq!(case.check(), Ok(()));
        for operand in [0, 1] {
            case.reshape(operand, [d, 1, 4, 1]);
            case.reshape(OUT + operand, [d, 64, 1, 1]);
        }
        case.refused(ErrorCode::BadShape, blamed);
    }
    // Keys and values of different widths, several heads and sequences, a cache longer than the context.
    let mut case = valid(op);
    for (operand, ne) in
        [(0, [40, 3, 4, 2]), (1, [72, 3, 4, 2]), (OUT, [40, 70, 3, 2]), (OUT + 1, [72, 70, 3, 2])]
    {
        case.reshape(operand, ne);
    }
    assert_eq!(case.check(), Ok(()));
}

/// As in FLASH_ATTN_EXT: the registers keep `n_past + n_tokens` inside the cache, and nothing else does.
#[test]
fn kv_append_appends_no_more_rows_than_the_step_has_tokens() {
    uncut(Op::KvAppend, &[0], 0);
    uncut(Op::KvAppend, &[1], 1);
    uncut(Op::KvAppend, &[0, 1], 0);
}

#[test]
fn snapshots_have_the_shape_of_states() {
    // x{32,3,2,1} -> y{32,3,2,5}: it saves.
    let op = Op::CopySlot;
    for y in [[31, 3, 2, 5], [32, 2, 2, 5], [32, 3, 1, 5]] {
        bad_shape(op, OUT, y, OUT);
        bad_shape(op, 0, y, OUT);
    }
    let case = |restore: u32, slots: u32, x: u32, y: u32| {
        let mut case = valid(op);
        case.header.n_slots = slots;
        case.set_params(&params::CopySlot { restore });
        case.reshape(0, [32, 3, 2, x]);
        case.reshape(OUT, [32, 3, 2, y]);
        case
    };
    for [slots, states, snapshots] in [[1, 1, 1], [3, 3, 1], [3, 4, 9], [3, 3, 2]] {
        assert_eq!(case(0, slots, states, snapshots).check(), Ok(()));
        assert_eq!(case(1, slots, snapshots, states).check(), Ok(()));
    }
    case(0, 3, 2, 5).refused(ErrorCode::BadShape, 0);
    case(1, 3, 5, 2).refused(ErrorCode::BadShape, OUT);
    for restore in [2, u32::MAX] {
        case(restore, 1, 1, 1).refused(ErrorCode::BadParam, 0);
    }
    // Entries are states, which no step cuts.
    for (operand, detail) in [(0, 0), (OUT, OUT)] {
        let mut case = case(0, 2, TOKENS, TOKENS);
        case.operand(operand).token_axis = 3;
        case.refused(ErrorCode::BadShape, detail);
    }
}

/// Every state, with the axis that has an entry per slot.
#[test]
fn states_have_an_entry_for_every_slot() {
    let states = [
        (Op::FlashAttnExt, vec![(1, 3), (2, 3)]),
        (Op::KvAppend, vec![(OUT, 3), (OUT + 1, 3)]),
        (Op::GatedDeltaNet, vec![(5, 3), (OUT + 1, 3), (OUT + 2, 3), (OUT + 3, 3)]),
        (Op::SsmConv, vec![(2, 2), (OUT + 1, 2)]),
    ];
    for (op, states) in states {
        for slots in [2, 7, MAX_SLOTS] {
            let mut case = valid(op);
            case.header.n_slots = slots;
            // The states of one sequence are too few.
            assert_eq!(case.check().unwrap_err().code, ErrorCode::BadShape, "{op}");
            for &(operand, axis) in &states {
                let mut ne = case.operand(operand).ne;
                ne[axis] *= slots;
                case.reshape(operand, ne);
            }
            assert_eq!(case.check(), Ok(()), "{op} with {slots} slots");
            for &(operand, axis) in &states {
                for wrong in [1, slots - 1, slots + 1, 2 * slots] {
                    let mut case = case.clone();
                    let mut ne = case.operand(operand).ne;
                    if ne[axis] == wrong {
                        continue;
                    }
                    ne[axis] = wrong;
                    case.reshape(operand, ne);
                    let fault = case.check().expect_err("too few or too many states");
                    assert_eq!(fault.code, ErrorCode::BadShape, "{op}: {wrong} entries of operand {operand}");
                }
            }
        }
    }
}

/// The states of a batch of several, of as many slots each.
#[test]
fn slots_multiply_batches() {
    let mut case = valid(Op::SsmConv);
    case.header.n_slots = 3;
    for (operand, ne) in [(0, [32, 4, 2, 1]), (OUT, [32, 4, 2, 1])] {
        case.reshape(operand, ne);
        case.operand(operand).token_axis = 1;
    }
    case.reshape(2, [32, 8, 6, 1]);
    case.reshape(OUT + 1, [32, 4, 6, 1]);
    assert_eq!(case.check(), Ok(()));
    case.reshape(2, [32, 8, 3, 1]);
    case.refused(ErrorCode::BadShape, 2);
}

/// With several slots the rows of a step are not one sequence's: a tape may be shorter, and each sequence
/// must find room when it runs.
#[test]
fn tapes_of_several_slots_may_be_shorter_than_a_step() {
    for n in 1..TOKENS {
        tape(1, n).refused(ErrorCode::BadShape, TAPE[0]);
        let mut case = tape(1, n);
        case.header.n_slots = 2;
        case.reshape(5, [16, 16, 2, 2]);
        for (operand, ne) in TAPE.into_iter().zip([[16, 1, n, 2], [16, 2, n, 2], [1, 2, n, 2]]) {
            case.reshape(operand, ne);
        }
        assert_eq!(case.check(), Ok(()), "{n} rows");
    }
}

/// Rows that lie on no token axis are nobody's, unless there is one slot.
#[test]
fn with_several_slots_rows_lie_on_the_token_axis() {
    let uncut = |op: Op, operands: &[usize], slots: u32| {
        let mut case = valid(op);
        case.header.n_slots = slots;
        for &n in operands {
            case.operand(n).token_axis = 0xff;
        }
        case
    };
    let rope = [0, OUT];
    let mut positions = uncut(Op::Rope, &[0, 1, OUT], 1);
    for slots in [1, 2] {
        // With positions it does not matter whose they are.
        positions.header.n_slots = slots;
        assert_eq!(positions.check(), Ok(()));
    }
    let mut case = uncut(Op::Rope, &rope, 1);
    case.ops[0].src[1] = TensorIndex::NONE;
    assert_eq!(case.check(), Ok(()));
    case.header.n_slots = 2;
    case.refused(ErrorCode::BadShape, 0);
    case.operand(0).token_axis = 2;
    case.operand(OUT).token_axis = 2;
    assert_eq!(case.check(), Ok(()));

    for (op, rows, states, blamed) in [
        (Op::SsmConv, vec![0, OUT], vec![(2, 2), (OUT + 1, 2)], 0),
        (
            Op::GatedDeltaNet,
            vec![0, 1, 2, 3, 4, OUT],
            vec![(5, 3), (OUT + 1, 3), (OUT + 2, 3), (OUT + 3, 3)],
            2,
        ),
    ] {
        assert_eq!(uncut(op, &rows, 1).check(), Ok(()), "{op}");
        let mut case = uncut(op, &rows, 2);
        for (operand, axis) in states {
            let mut ne = case.operand(operand).ne;
            ne[axis] *= 2;
            case.reshape(operand, ne);
        }
        case.refused(ErrorCode::BadShape, blamed);
    }
}

/// Integers are gathered as integers: no float holds every id.
#[test]
fn rows_of_integers() {
    let tables = DType::ALL.iter().filter(|t| t.is_weight() || t.element_bytes().is_some());
    for &table in tables {
        for y in [DType::F32, DType::I32] {
            let mut case = valid(Op::GetRows);
            case.retype(0, table);
            case.retype(OUT, y);
            if (table == DType::I32) == (y == DType::I32) {
                assert_eq!(case.check(), Ok(()), "{table} to {y}");
            } else {
                case.refused(ErrorCode::BadType, OUT);
            }
        }
    }
}
