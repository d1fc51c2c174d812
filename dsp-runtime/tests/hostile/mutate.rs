//! Damage to program blocks, registers and requests.

use std::mem::size_of;

use hexflash_abi::op::Op;
use hexflash_abi::program::{BufferRef, OpDesc, ProgramHeader, TensorDesc};

use crate::random::Random;

/// Where the arrays of an undamaged block lie: first byte, entry size, entries.
#[derive(Clone, Copy)]
struct Array {
    at: usize,
    size: usize,
    n: usize,
}

/// Fields of an entry: offset and width.
type Fields = &'static [(usize, usize)];

const HEADER: Fields = &[
    (0, 4),
    (4, 4),
    (8, 8),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 4),
    (32, 4),
    (36, 4),
    (40, 4),
    (44, 4),
    (60, 4),
];
const BUFFER: Fields = &[(0, 4), (4, 4)];
const TENSOR: Fields = &[
    (0, 8),
    (0, 8),
    (8, 2),
    (10, 2),
    (12, 1),
    (12, 1),
    (13, 1),
    (14, 2),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 4),
    (32, 4),
    (36, 4),
    (40, 4),
    (44, 4),
];
const OP: Fields = &[
    (0, 2),
    (2, 2),
    (4, 2),
    (6, 2),
    (8, 2),
    (10, 2),
    (12, 2),
    (14, 2),
    (16, 2),
    (18, 2),
    (20, 2),
    (22, 2),
    (24, 2),
    (26, 2),
    (28, 4),
    (32, 4),
    (36, 4),
    (40, 4),
    (44, 4),
    (48, 4),
    (52, 4),
    (56, 4),
    (64, 4),
    (92, 4),
];

fn read(block: &[u8], at: usize, width: usize) -> u64 {
    let mut word = [0; 8];
    word[..width].copy_from_slice(&block[at..at + width]);
    u64::from_le_bytes(word)
}

fn write(block: &mut [u8], at: usize, width: usize, value: u64) {
    block[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

fn arrays(block: &[u8]) -> [Array; 3] {
    let count = |i: usize| read(block, 20 + 4 * i, 4) as usize;
    let sizes = [size_of::<BufferRef>(), size_of::<TensorDesc>(), size_of::<OpDesc>()];
    let mut at = size_of::<ProgramHeader>();
    std::array::from_fn(|i| {
        let array = Array { at, size: sizes[i], n: count(i) };
        at += array.size * array.n;
        array
    })
}

/// Damages a valid block in one to four places, most of the time so that parts of it stay believable.
pub fn block(random: &mut Random, block: &mut Vec<u8>) {
    let arrays = arrays(block);
    for _ in 0..random.pick(&[1, 1, 1, 2, 3, 4]) {
        match random.below(16) {
            0 => {
                let at = random.below(block.len());
                block[at] ^= 1 << random.below(8);
            }
            1 => entry_swap(random, block, arrays[1]),
            2 => entry_swap(random, block, arrays[2]),
            3 => opcode(random, block, arrays[2]),
            4 => operand_swap(random, block, arrays[2]),
            5 => header(random, block),
            6 | 7 => believable_tensor(random, block, arrays[1]),
            8 if random.chance(20) => block.truncate(random.below(block.len() + 1)),
            9 if random.chance(30) => field(random, block, Array { at: 0, size: 64, n: 1 }, HEADER),
            10 if random.chance(30) => field(random, block, arrays[0], BUFFER),
            11 | 12 => field(random, block, arrays[2], OP),
            _ => field(random, block, arrays[1], TENSOR),
        }
        if block.len() < arrays[2].at + arrays[2].size * arrays[2].n {
            // Truncated: the arrays are no longer where they were.
            return;
        }
    }
}

/// Gives a field of an entry another value: telling, next to the old one, or another entry's.
fn field(random: &mut Random, block: &mut [u8], array: Array, fields: Fields) {
    if array.n == 0 {
        return;
    }
    let at = array.at + random.below(array.n) * array.size;
    let (offset, width) = random.pick(fields);
    let old = read(block, at + offset, width);
    let value = match random.below(10) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => old.wrapping_add(4),
        3 => old.wrapping_sub(4),
        4 => old.wrapping_mul(2),
        5 => old / 2,
        6 | 7 => read(block, array.at + random.below(array.n) * array.size + offset, width),
        8 => random.float().into(),
        _ => random.telling(),
    };
    write(block, at + offset, width, value);
}

fn entry_swap(random: &mut Random, block: &mut [u8], array: Array) {
    if array.n == 0 {
        return;
    }
    let (a, b) = (random.below(array.n), random.below(array.n));
    for i in 0..array.size {
        block.swap(array.at + a * array.size + i, array.at + b * array.size + i);
    }
}

fn opcode(random: &mut Random, block: &mut [u8], ops: Array) {
    if ops.n == 0 {
        return;
    }
    let at = ops.at + random.below(ops.n) * ops.size;
    write(block, at, 2, random.pick(Op::ALL).wire().into());
    if random.chance(50) {
        // Parameters that the other op may take.
        block[at + 32..at + ops.size].fill(0);
    }
}

fn operand_swap(random: &mut Random, block: &mut [u8], ops: Array) {
    if ops.n == 0 {
        return;
    }
    let mut place = || ops.at + random.below(ops.n) * ops.size + 4 + 2 * random.below(12);
    let (a, b) = (place(), place());
    let (x, y) = (read(block, a, 2), read(block, b, 2));
    write(block, a, 2, y);
    if random.chance(50) {
        write(block, b, 2, x);
    }
}

/// Other bounds for tokens and context; the token axes follow or not.
fn header(random: &mut Random, block: &mut [u8]) {
    let (tokens, context) = (read(block, 32, 4), read(block, 36, 4));
    let n = random.pick(&[1, tokens, tokens.saturating_sub(1), tokens.wrapping_add(1), context]);
    if random.chance(50) {
        write(block, 32, 4, n);
    } else {
        write(
            block,
            36,
            4,
            random.pick(&[tokens, context.wrapping_add(1), 2 * context, context / 2, i32::MAX as u64]),
        );
    }
}

/// Changes a tensor in a way that may well stay valid: a shorter axis, a stride of 0 or more, another place.
fn believable_tensor(random: &mut Random, block: &mut [u8], tensors: Array) {
    if tensors.n == 0 {
        return;
    }
    let at = tensors.at + random.below(tensors.n) * tensors.size;
    let axis = 4 * random.below(4);
    let (ne, nb) = (at + 16 + axis, at + 32 + axis);
    match random.below(8) {
        0 => write(block, ne, 4, 1),
        1 => write(block, ne, 4, read(block, ne, 4) / 2),
        2 => write(block, ne, 4, read(block, 32, 4)),
        3 => write(block, nb, 4, 0),
        4 => write(block, nb, 4, read(block, nb, 4) + 128),
        5 => write(block, at, 8, (random.below(1 << 11) * 128) as u64),
        6 => write(block, at, 8, read(block, at, 8).wrapping_add(4)),
        _ => {
            write(block, nb, 4, 0);
            write(block, ne, 4, 1 << random.below(31));
        }
    }
}

/// What a program's header allows.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub max_tokens: u32,
    pub n_ctx: u32,
    pub n_slots: u32,
}

impl Bounds {
    pub const LEAST: Self = Self { max_tokens: 1, n_ctx: 1, n_slots: 1 };

    #[allow(dead_code, reason = "for the worlds, not for those who race them")]
    pub const fn of(header: &ProgramHeader) -> Self {
        Self { max_tokens: header.max_tokens, n_ctx: header.n_ctx, n_slots: header.n_slots }
    }
}

/// The register blocks of a step, mostly such that a program with these bounds takes them: slots of their
/// own, and no more tokens together than there are. Now and then too many blocks, or too few words.
pub fn row_table(random: &mut Random, Bounds { max_tokens, n_ctx, n_slots }: Bounds) -> Vec<u32> {
    let most = n_slots.min(max_tokens).min(65);
    let mut count = if random.chance(60) { most.min(1 + random.below(5) as u32) } else { 1 };
    if random.chance(3) {
        count = random.pick(&[0, 2, 3, 64, 65]);
    }
    let mut words = Vec::new();
    let mut slots: Vec<_> = (0..n_slots.min(65)).collect();
    for left in (0..count).rev() {
        let share = max_tokens / (left + 1).max(count / 2).max(1);
        let mut block = registers(random, share.max(1), max_tokens, n_ctx);
        if !slots.is_empty() {
            block[9] = slots.swap_remove(random.below(slots.len()));
        }
        if random.chance(4) {
            block[9] = random.pick(&[0, n_slots.wrapping_sub(1), n_slots, u32::MAX]);
        }
        if count > 1 && random.chance(95) {
            block[8] = 0;
        }
        words.extend(block);
    }
    if random.chance(1) {
        words.truncate(random.below(words.len() + 1));
    }
    words
}

/// A register block of up to `share` tokens: mostly within the bounds of a program for `max_tokens` and
/// `n_ctx`.
fn registers(random: &mut Random, share: u32, max_tokens: u32, n_ctx: u32) -> [u32; 16] {
    let mut values = [0; 16];
    values[1] = 1 + random.below(share.clamp(1, 4096) as usize) as u32;
    values[0] = random.below(n_ctx.saturating_sub(values[1]).min(1 << 20) as usize + 1) as u32;
    if random.chance(10) {
        values[0] = n_ctx.saturating_sub(values[1]);
    }
    rounds(random, max_tokens, &mut values);
    if random.chance(5) {
        values[random.below(2)] = random.telling() as u32;
    }
    if random.chance(2) {
        values[random.below(16)] = random.telling() as u32;
    }
    values
}

/// The registers of rounds, mostly such that they go on.
fn rounds(random: &mut Random, max_tokens: u32, values: &mut [u32; 16]) {
    let upto = |random: &mut Random, n: u32| random.below(n.min(1 << 20) as usize + 1) as u32;
    if random.chance(70) {
        values[5] = upto(random, max_tokens.saturating_sub(1));
        values[4] = upto(random, values[5]);
    }
    if random.chance(10) {
        values[2] = upto(random, max_tokens);
    }
    if random.chance(25) {
        values[3] = upto(random, values[0].min(4));
    }
    if random.chance(90) {
        values[6] = 1 + upto(random, 8);
    }
    if random.chance(50) {
        values[7] = random.next() as u32;
    }
    if random.chance(3) {
        values[8] = 1 + upto(random, 1);
    }
    if random.chance(50) {
        values[10] = upto(random, values[1]);
    }
    values[11] = u32::from(random.chance(30));
    values[12] = random.below(3) as u32;
}

/// Damages a request.
pub fn request(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(4) {
        0 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        1 => bytes.resize(random.below(100), 0),
        _ => {
            let at = 4 * random.below(bytes.len() / 4);
            let value = random.telling();
            write(bytes, at, 4, value);
        }
    }
}
