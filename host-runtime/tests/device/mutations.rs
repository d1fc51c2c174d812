//! A program with some of every kind of op, its words changed at random: what is refused, what fails and what
//! runs must be the same on every device, and what ran leaves the same memory.

use hexflash_abi::program::{OpDesc, TensorDesc};
use hexflash_abi::{DType, Fault, Op, Status};
use zerocopy::IntoBytes;

use super::bench::*;

const ROUNDS: usize = 1500;
/// Bytes of B that the program uses, and that are compared.
const USED: usize = 64 << 10;

/// What came of a mutation.
pub struct Outcome {
    pub what: String,
    pub response: Result<(), (Status, Fault)>,
    pub memory: Vec<u8>,
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    fn below(&mut self, n: usize) -> usize {
        self.word() as usize % n
    }
}

/// Ops over small tensors at multiples of 4 KiB.
fn base() -> Vec<u8> {
    let f32s = |slot: u64, ne| tensor(DType::F32, slot << 12, ne);
    let tokens = |t: TensorDesc| TensorDesc { token_axis: 1, ..t };
    let tensors = [
        tokens(f32s(0, [40, 4, 1, 1])),
        tokens(f32s(1, [40, 4, 1, 1])),
        tokens(f32s(2, [40, 4, 1, 1])),
        f32s(3, [40, 1, 1, 1]),
        f32s(11, [40, 40, 1, 1]),
        TensorDesc { token_axis: 0, ..tensor(DType::I32, 5 << 12, [4, 1, 1, 1]) },
        tokens(f32s(6, [40, 4, 1, 1])),
        TensorDesc { token_axis: 0, ..tensor(DType::I32, 7 << 12, [4, 1, 1, 1]) },
        f32s(8, [40, 3, 1, 1]),
        f32s(9, [40, 5, 1, 1]),
        tokens(f32s(10, [40, 4, 1, 1])),
    ];
    let eps = 1e-6f32.to_bits();
    let ops: [OpDesc; 8] = [
        op(Op::GetRows, &[4, 5], 0, &[]),
        op(Op::RmsNorm, &[0, 3], 1, &[eps]),
        op(Op::Add, &[0, 1], 2, &[]),
        op(Op::SsmConv, &[2, 8, 9], 10, &[]),
        op(Op::Glu, &[2, 1], 6, &[1]),
        op(Op::Argmax, &[6], 7, &[]),
        op(Op::SetRows, &[6, 7], 4, &[]),
        op(Op::Scale, &[10], 10, &[2f32.to_bits(), 1f32.to_bits()]),
    ];
    program(&header(tensors.len(), ops.len()), &tensors, &ops)
}

/// Rows of numbers around one, ids that are in range or nearly.
fn data(random: &mut Random) -> Vec<u8> {
    let mut words: Vec<u32> =
        (0..USED / 4).map(|_| ((random.word() >> 8) as f32 / 1e7 - 0.8).to_bits()).collect();
    for id in &mut words[5 << 10..][..4] {
        let ids = if random.below(8) == 0 { 50 } else { 40 };
        *id = random.below(ids) as u32;
    }
    words.as_bytes().to_vec()
}

/// Sends all mutations, and what came of them. The same on every device, but for mistakes.
pub fn transcript(device: Box<dyn Target>) -> Vec<Outcome> {
    let mut bench = Bench::new(device);
    bench.fresh();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let base = base();
    (0..ROUNDS)
        .map(|_| {
            let mut block = base.clone();
            let mut what = String::new();
            for _ in 0..random.below(3) {
                // Half words: fields are of 1, 2, 4 and 8 bytes.
                let at = 2 * random.below(block.len() / 2);
                let old = u16::from_le_bytes([block[at], block[at + 1]]);
                let new = match random.below(6) {
                    0 => 0,
                    1 => u16::MAX,
                    2 => old.wrapping_add(1),
                    3 => old.wrapping_sub(1),
                    4 => old ^ 1 << random.below(16),
                    _ => {
                        let other = 2 * random.below(block.len() / 2);
                        u16::from_le_bytes([block[other], block[other + 1]])
                    }
                };
                block[at..at + 2].copy_from_slice(&new.to_le_bytes());
                what += &format!("half word {at} from {old:#x} to {new:#x} ");
            }
            bench.write(B, 0, &data(&mut random));
            let n_tokens = 1 + random.below(4) as u32;
            bench.step(random.below(7) as u32, n_tokens);
            let block = bench.block(&block);
            let response = bench.send(run(block));
            Outcome { what, response, memory: bench.bytes(B, 0, USED) }
        })
        .collect()
}

/// The first byte of a word that differs, unless it is NaN on both sides: which NaN is the processor's
/// affair.
pub fn differs(a: &[u8], b: &[u8]) -> Option<usize> {
    let nan = |word: &[u8; 4]| f32::from_le_bytes(*word).is_nan();
    let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
    pairs.enumerate().find(|(_, (a, b))| a != b && !(nan(a) && nan(b))).map(|(i, _)| 4 * i)
}
