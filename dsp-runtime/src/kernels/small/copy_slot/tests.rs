use hexflash_abi::op::{Op, params::CopySlot};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault};
use zerocopy::IntoBytes;

use crate::testing::{Batch, Setup, everywhere, random, setups};

/// Slots, snapshots, and floats of a state of odd rows.
const SLOTS: usize = 4;
const SNAPSHOTS: usize = 3;
const NE: [u32; 3] = [33, 5, 2];
const STATE: usize = 33 * 5 * 2;

/// What a step of these (slot, snapshot) makes of y: the old contents of x and y are random.
fn copied(setup: Setup, restore: u32, pairs: &[(u32, u32)]) -> Result<Vec<f32>, Fault> {
    let mut batch = Batch::new(8, 64).with_slots(SLOTS as u32);
    let entries = if restore == 0 { [SLOTS, SNAPSHOTS] } else { [SNAPSHOTS, SLOTS] };
    let [x, y] = entries.map(|n| {
        let [n0, n1, n2] = NE;
        batch.f32([n0, n1, n2, n as u32], &random(n as u64, n * STATE, -1.0, 1.0))
    });
    let block = |&(slot, snapshot): &(u32, u32)| {
        StepRegisters::step(3, 1).with(Register::Slot, slot).with(Register::Snapshot, snapshot)
    };
    let blocks: Vec<_> = pairs.iter().map(block).collect();
    batch.advance(setup, Op::CopySlot, &[x], &[y], &CopySlot { restore }, &blocks)?;
    Ok(batch.floats(y))
}

/// The same by the definition.
fn expected(restore: u32, pairs: &[(u32, u32)]) -> Vec<f32> {
    let [from, to] = if restore == 0 { [SLOTS, SNAPSHOTS] } else { [SNAPSHOTS, SLOTS] };
    let [x, mut y] = [from, to].map(|n| random(n as u64, n * STATE, -1.0, 1.0));
    for &(slot, snapshot) in pairs {
        let (from, to) = if restore == 0 { (slot, snapshot) } else { (snapshot, slot) };
        let (from, to) = (from as usize * STATE, to as usize * STATE);
        y[to..to + STATE].copy_from_slice(&x[from..from + STATE]);
    }
    y
}

/// Each block's entry is copied, and no other one is touched. Several slots may start from one snapshot.
#[test]
fn entries_are_saved_and_restored() {
    let both: [&[(u32, u32)]; 4] = [&[(0, 0)], &[(3, 2)], &[(3, 0), (0, 2)], &[(2, 1), (1, 2), (3, 0)]];
    for restore in [0, 1] {
        for pairs in both {
            let found = everywhere(|setup| copied(setup, restore, pairs).unwrap());
            assert_eq!(found.as_bytes(), expected(restore, pairs).as_bytes(), "{restore} {pairs:?}");
        }
    }
    let fork = [(2, 1), (0, 1)];
    let found = everywhere(|setup| copied(setup, 1, &fork).unwrap());
    assert_eq!(found.as_bytes(), expected(1, &fork).as_bytes());
}

/// What was saved comes back to the bit, whatever the state has become meanwhile: NaN, for one.
#[test]
fn a_state_comes_back_from_its_snapshot() {
    for setup in setups() {
        let mut batch = Batch::new(1, 64).with_slots(SLOTS as u32);
        let [n0, n1, n2] = NE;
        let states = random(1, SLOTS * STATE, -1.0, 1.0);
        let x = batch.f32([n0, n1, n2, SLOTS as u32], &states);
        let y = batch.f32([n0, n1, n2, SNAPSHOTS as u32], &vec![f32::NAN; SNAPSHOTS * STATE]);
        let step = StepRegisters::step(0, 1).with(Register::Slot, 2).with(Register::Snapshot, 1);
        batch.run(setup, Op::CopySlot, &[x], &[y], &CopySlot { restore: 0 }, step).unwrap();
        let mut spoilt = states.clone();
        spoilt[2 * STATE..3 * STATE].fill(f32::NAN);
        batch.write(x, spoilt.as_bytes());
        batch.run(setup, Op::CopySlot, &[y], &[x], &CopySlot { restore: 1 }, step).unwrap();
        assert_eq!(batch.floats(x).as_bytes(), states.as_bytes(), "{setup:?}");
    }
}

#[test]
fn snapshots_that_are_not_there_are_refused() {
    let bad = Fault::new(ErrorCode::BadRegister, Register::Snapshot.wire());
    for restore in [0, 1] {
        for snapshot in [SNAPSHOTS as u32, u32::MAX] {
            for pairs in [vec![(0, snapshot)], vec![(1, 0), (0, snapshot)]] {
                assert_eq!(copied(setups()[0], restore, &pairs).unwrap_err(), bad, "{restore} {pairs:?}");
            }
        }
    }
}

/// Two workers would write it at once.
#[test]
fn two_slots_are_not_saved_as_one_snapshot() {
    let bad = Fault::new(ErrorCode::BadRegister, Register::Snapshot.wire());
    assert_eq!(copied(setups()[0], 0, &[(0, 1), (1, 0), (2, 1)]).unwrap_err(), bad);
}
