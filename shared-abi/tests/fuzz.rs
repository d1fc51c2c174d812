//! Random damage: nothing panics, and what is accepted is safe by a recomputation that shares no code with
//! it.

mod common;

use std::sync::LazyLock;

use common::{Case, aligned, valid};
use hexflash_abi::message::{Message, Request, Response};
use hexflash_abi::op::Op;
use hexflash_abi::program::{OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::registers::{REGISTER_COUNT, Register, StepRegisters};
use hexflash_abi::validate::{Program, check_step};
use hexflash_abi::{DType, Seq, Status, TensorIndex};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use zerocopy::{FromBytes, IntoBytes};

/// The valid case of every op, and its bytes.
static CASES: LazyLock<Vec<(Case, Vec<u64>)>> = LazyLock::new(|| {
    let cases = Op::ALL.iter().map(|&op| valid(op));
    cases.map(|case| (case.clone(), case.block())).collect()
});

/// The k that a group covers, and its bytes, by the tables in `dtype/tile.rs`.
fn group(dtype: DType) -> Option<(u128, u128)> {
    Some(match dtype {
        DType::F32x32 => (32, 32 * 128),
        DType::F16x32 | DType::BF16x32 => (32, 16 * 128),
        DType::Q8_0x32 => (128, 34 * 128),
        DType::Q4_0x32 | DType::IQ4NLx32 => (128, 18 * 128),
        DType::Q4_1x32 => (128, 20 * 128),
        DType::Q5_0x32 => (128, 22 * 128),
        DType::Q5_1x32 => (128, 24 * 128),
        DType::MXFP4x32 => (128, 17 * 128),
        DType::Q1_0x32 => (256, 9 * 128),
        DType::Q2_0x32 => (128, 9 * 128),
        DType::Q2Kx32 => (256, 21 * 128),
        DType::Q3Kx32 => (256, 29 * 128),
        DType::Q4Kx32 => (256, 37 * 128),
        DType::Q5Kx32 => (256, 45 * 128),
        DType::Q6Kx32 => (256, 53 * 128),
        DType::IQ4XSx32 => (256, 35 * 128),
        DType::Q8_0Cache => (64, 17 * 128),
        DType::Q4RCache => (32, 4 * 128),
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act | DType::Q8_0 => return None,
    })
}

/// First byte and one past the last of everything that a kernel may touch of a tensor: its corner elements,
/// or the corner strips of tiles, or the corner rows of activations, in integers that cannot overflow.
fn touched(t: &TensorDesc, dtype: DType) -> (u128, u128) {
    let [ne, nb] = [t.ne, t.nb].map(|a| a.map(u128::from));
    assert!(ne.iter().all(|&n| n > 0));
    let (unit, counts) = match (dtype, group(dtype)) {
        (_, Some((k, bytes))) => {
            // Scales of whole heads are behind the groups.
            let tail = if dtype == DType::Q4RCache { 128 } else { 0 };
            (ne[0].div_ceil(k) * bytes + tail, [1, ne[1].div_ceil(32), ne[2], ne[3]])
        }
        (DType::Q8Act, _) => {
            // int8 values; an f32, an i16 per 16, an f16 and another f32 per 32; whole vectors.
            let k = ne[0].div_ceil(256) * 256;
            ((k + k / 32 * 10 + k / 16 * 2).div_ceil(128) * 128, [1, ne[1], ne[2], ne[3]])
        }
        // An f16 and 32 int8.
        (DType::Q8_0, _) => (34, [ne[0].div_ceil(32), ne[1], ne[2], ne[3]]),
        (DType::F16, _) => (2, ne),
        _ => (4, ne),
    };
    let corner =
        |bits: usize| (0..4).filter(|i| bits >> i & 1 == 1).map(|i| (counts[i] - 1) * nb[i]).sum::<u128>();
    let starts = (0..16).map(|bits| u128::from(t.offset) + corner(bits));
    (u128::from(t.offset), starts.max().unwrap() + unit)
}

/// Asserts what validation promises of an accepted program.
fn assert_safe(case: &Case, program: &Program<'_>) {
    let info = |t: &TensorDesc| case.info(program.buffers[t.buffer as usize].buffer).unwrap();
    let dtype = |t: &TensorDesc| DType::parse(t.dtype).unwrap();
    for t in program.tensors {
        assert!(touched(t, dtype(t)).1 <= u128::from(info(t).size), "outside its buffer: {t:?}");
    }
    for op in program.ops {
        let spec = Op::parse(op.opcode).unwrap().spec();
        for (i, slot) in spec.dst.iter().enumerate() {
            if op.dst[i] != TensorIndex::NONE {
                assert_writable(program, op, op.dst[i], &info);
            } else {
                assert!(slot.optional);
            }
        }
        for (i, _) in spec.src.iter().enumerate().filter(|(_, slot)| slot.written) {
            assert_writable(program, op, op.src[i], &info);
        }
    }
}

fn assert_writable(
    program: &Program<'_>,
    op: &OpDesc,
    index: TensorIndex,
    info: &dyn Fn(&TensorDesc) -> hexflash_abi::validate::BufferInfo,
) {
    let t = program.tensor(index).unwrap();
    assert!(!info(t).read_only);
    let (start, end) = touched(t, DType::parse(t.dtype).unwrap());
    let operands = op.src.iter().chain(&op.dst).filter_map(|&i| program.tensor(i));
    let mut seen_itself = false;
    for other in operands.filter(|o| program.buffers[o.buffer as usize] == program.buffers[t.buffer as usize])
    {
        let (other_start, other_end) = touched(other, DType::parse(other.dtype).unwrap());
        if start < other_end && other_start < end {
            assert_eq!((start, end, t.ne, t.nb), (other_start, other_end, other.ne, other.nb));
            seen_itself = true;
        }
    }
    assert!(seen_itself);
}

/// Integers around which rules change their mind.
fn telling() -> impl Strategy<Value = u32> {
    let edges = vec![0, 1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 127, 128, 256, 4096, 0xffff];
    let far = vec![1 << 16, 1 << 24, i32::MAX as u32, 1 << 31, u32::MAX - 127, u32::MAX - 3, u32::MAX];
    prop_oneof![4 => select(edges), 1 => select(far), 1 => any::<u32>(), 1 => (0..65536u32).prop_map(|n| n * 4)]
}

/// A write of `width` bytes somewhere.
#[derive(Clone, Debug)]
struct Damage {
    at: prop::sample::Index,
    width: usize,
    value: u32,
}

impl Damage {
    fn apply(&self, bytes: &mut [u8], from: usize) {
        let at = from + self.at.index((bytes.len() - from) / self.width) * self.width;
        bytes[at..at + self.width].copy_from_slice(&self.value.to_le_bytes()[..self.width]);
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let parts = (any::<prop::sample::Index>(), select(vec![1, 2, 4, 4]), telling());
    parts.prop_map(|(at, width, value)| Damage { at, width, value })
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(50_000))]

    #[test]
    fn damaged_programs(op in 0..Op::ALL.len(), damage in vec(damage(), 1..4), anywhere in prop::bool::weighted(0.2)) {
        let (case, block) = &CASES[op];
        let mut block = block.clone();
        // The header has few fields that may differ; most damage goes to the arrays.
        damage.iter().for_each(|d| d.apply(block.as_mut_bytes(), if anywhere { 0 } else { 72 }));
        if let Ok(program) = Program::parse(block.as_bytes()) && program.check(|id| case.info(id)).is_ok() {
            assert_safe(case, &program);
        }
    }
}

proptest! {
    #![proptest_config(config(10_000))]

    #[test]
    fn damaged_requests(kind in 0..9u32, body in vec(telling(), 8), used in 0..9usize, reserved in 0..20u32) {
        let mut body = body;
        body[used..].fill(0);
        // Mostly none.
        let reserved = reserved.saturating_sub(18);
        let bytes = [&[7, 0, kind, reserved], &body[..]].concat();
        let request = Request::read_from_bytes(bytes.as_bytes()).unwrap();
        match Message::decode(&request) {
            // What decodes says all there is: no byte is ignored.
            Ok(message) => prop_assert_eq!(message.encode(Seq(7)), request),
            Err(fault) => prop_assert!(fault.op == hexflash_abi::OpIndex::NONE),
        }
    }

    #[test]
    fn damaged_responses(words in vec(prop_oneof![0..40u32, any::<u32>()], 16)) {
        let response = Response::read_from_bytes(words.as_bytes()).unwrap();
        let success = response.status == Status::Ok.wire() && response.code == 0;
        prop_assert_eq!(response.outcome().is_ok(), success);
    }

    #[test]
    fn registers(past in telling(), tokens in telling(), max_tokens in 1..4097u32, more in telling()) {
        let mut header = CASES[0].0.header;
        (header.max_tokens, header.n_ctx) = (max_tokens, max_tokens.saturating_add(more).min(i32::MAX as u32));
        let fine = tokens >= 1 && tokens <= max_tokens && u64::from(past) + u64::from(tokens) <= header.n_ctx.into();
        prop_assert_eq!(check_step(&header, &[StepRegisters::step(past, tokens)]).is_ok(), fine);
    }

    /// The others, each around its bound or anywhere.
    #[test]
    fn registers_of_rounds(
        near in vec(0..7u32, Register::ALL.len() - 2),
        far in vec(prop_oneof![9 => Just(None), 1 => telling().prop_map(Some)], REGISTER_COUNT - 2),
    ) {
        let header = CASES[0].0.header;
        let mut block = StepRegisters::step(4, 2);
        block.values[2..Register::ALL.len()].copy_from_slice(&near);
        for (value, far) in block.values[2..].iter_mut().zip(far) {
            *value = far.unwrap_or(*value);
        }
        let [past, tokens, accept, commit, draft, most, _, _, halt, slot, output, fold, _, reserved @ ..] =
            block.values;
        prop_assert_eq!((past, tokens), (4, 2));
        let fine = accept <= header.max_tokens
            && commit <= past
            && (draft <= most && most < header.max_tokens)
            && halt <= 2
            && (slot == 0 && output <= header.max_tokens && fold <= 1)
            && reserved == [0; 3];
        prop_assert_eq!(check_step(&header, &[block]).is_ok(), fine);
    }

    /// Several blocks: each alone is right, slots differ, the rows fit, and none has halted.
    #[test]
    fn steps(
        max_tokens in 1..9u32,
        n_slots in 1..5u32,
        blocks in vec((0..5u32, 0..5u32, 0..70u32, prop_oneof![9 => Just(0), 1 => 0..4u32]), 0..6),
    ) {
        let header = ProgramHeader { max_tokens, n_slots, ..CASES[0].0.header };
        let made: Vec<_> = blocks.iter().map(|&(slot, tokens, past, halt)| {
            StepRegisters::step(past, tokens).with(Register::Slot, slot).with(Register::Halt, halt)
        }).collect();
        let alone = made.iter().all(|block| check_step(&header, &[*block]).is_ok());
        let slots: std::collections::BTreeSet<_> = blocks.iter().map(|block| block.0).collect();
        let tokens: u32 = blocks.iter().map(|block| block.1).sum();
        let halted = blocks.len() > 1 && blocks.iter().any(|block| block.3 != 0);
        let fine = alone && !blocks.is_empty() && slots.len() == blocks.len() && tokens <= max_tokens && !halted;
        prop_assert_eq!(check_step(&header, &made).is_ok(), fine);
    }

    #[test]
    fn noise(bytes in vec(any::<u8>(), 0..512)) {
        let block = aligned(&bytes);
        prop_assert!(Program::parse(block.as_bytes()).is_err());
    }
}

#[test]
fn damage_is_sometimes_accepted() {
    // The property above would say nothing if no damaged block were ever accepted.
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        config(2_000),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let accepted = std::cell::Cell::new(0);
    let strategy = (0..Op::ALL.len(), damage());
    runner
        .run(&strategy, |(op, damage)| {
            let (case, block) = &CASES[op];
            let mut block = block.clone();
            damage.apply(block.as_mut_bytes(), 72);
            let program = Program::parse(block.as_bytes());
            accepted
                .set(accepted.get() + u32::from(program.is_ok_and(|p| p.check(|id| case.info(id)).is_ok())));
            Ok(())
        })
        .unwrap();
    assert!(accepted.get() > 200, "{} of 2000", accepted.get());
}
