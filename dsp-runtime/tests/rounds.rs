//! Programs that move their own registers: a host that only sends `Exec` gets the tokens of plain greedy
//! decoding.
//!
//! The model is two tables: what the target says after a token, and what the draft believes that it says.

mod common;

use common::*;
use hexflash_abi::ErrorCode::*;
use hexflash_abi::accept::{DRAFTED, EMITTED, HALT, HEAD, REPORTS, ROUND};
use hexflash_abi::message::{Message, Run};
use hexflash_abi::op::params;
use hexflash_abi::program::{OpDesc, PARTS, TensorDesc, TensorFlags};
use hexflash_abi::registers::{Halt, Register, StepRegisters};
use hexflash_abi::{DType, ErrorCode, Fault, Op, OpIndex, Status, TensorIndex};
use zerocopy::IntoBytes;

/// Rows of the token axis, and positions, of every program here.
const BLOCK_TOKENS: usize = 4;
const N_CTX: usize = 10;
/// Words that the model knows.
const WORDS: usize = 40;

/// Places in memory B.
const TOKENS: u64 = 0;
const BEST: u64 = 128;
const STOPS: u64 = 256;
const OUT: u64 = 384;
const ANCHOR: u64 = 512;
const COUNTER: u64 = 640;
const TARGET: u64 = 1024;
const DRAFT: u64 = 2048;

/// Op of the program that ends a round.
const ACCEPT: usize = 1;

fn ints(offset: u64, ne: [u32; 2], token_axis: u8) -> TensorDesc {
    let packed = TensorDesc::packed(DType::I32, [ne[0], ne[1], 1, 1]).unwrap();
    TensorDesc { offset, buffer: 1, token_axis, ..packed }
}

fn set_tokens(register: Register, plus: u32) -> OpDesc {
    let mut desc = op(Op::SetTokens, &[], 0);
    desc.dst[0] = TensorIndex::NONE;
    desc.set_params(&params::SetTokens { register: register.wire(), plus });
    desc
}

fn part(part: usize, desc: OpDesc) -> OpDesc {
    OpDesc { part: part as u16, ..desc }
}

/// A round: the target's word after each token of the block, ACCEPT, and a draft from the anchor on.
fn round() -> Vec<u8> {
    let none = hexflash_abi::program::NO_TOKEN_AXIS;
    let [words, block] = [WORDS as u32, BLOCK_TOKENS as u32];
    let mut out = ints(OUT, [HEAD as u32 + block, REPORTS as u32], none);
    out.flags = TensorFlags::HOST_READS.bits();
    let mut tensors = vec![
        ints(TARGET, [1, words], none),
        ints(TOKENS, [block, 1], 0),
        ints(BEST, [1, block], 1),
        ints(BEST, [block, 1], 0),
        ints(STOPS, [1, 1], none),
        out,
        ints(ANCHOR, [1, 1], none),
        ints(DRAFT, [1, words], none),
    ];
    let first = tensors.len() as u16;
    tensors.extend((0..4).map(|i| ints(TOKENS + 4 * i, [1, 1], none)));
    let mut accept = op(Op::Accept, &[3, 1, 4], 5);
    accept.dst[1] = TensorIndex(6);
    accept.set_params(&params::Accept { block, n_ctx: N_CTX as u32 });
    let mut ops = vec![op(Op::GetRows, &[0, 1], 2), part(1, accept), part(3, op(Op::Cpy, &[6], first))];
    ops.extend((0..3).map(|i| part(3, op(Op::GetRows, &[7, first + i], first + i + 1))));
    ops.push(part(5, set_tokens(Register::NDraft, 1)));
    program(&tensors, &ops)
}

/// Numbers below `n`, from a seed.
fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    }
}

/// A model, and what is asked of it.
struct Task {
    target: Vec<u32>,
    draft: Vec<u32>,
    stop: u32,
    first: u32,
    past: u32,
    left: u32,
    draft_max: u32,
}

impl Task {
    fn random(seed: u64) -> Self {
        let mut below = dice(seed + 1);
        let target: Vec<_> = (0..WORDS).map(|_| below(WORDS) as u32).collect();
        let skill = below(11);
        let draft = target.iter().map(|&w| if below(10) < skill { w } else { below(WORDS) as u32 }).collect();
        Self {
            target,
            draft,
            stop: below(WORDS) as u32,
            first: below(WORDS) as u32,
            past: below(5) as u32,
            left: 1 + below(12) as u32,
            draft_max: 1 + below(BLOCK_TOKENS - 1) as u32,
        }
    }

    /// Words that are never a stop token, drafted by one who knows.
    fn endless() -> Self {
        let target: Vec<_> = (0..WORDS as u32).map(|w| (w + 1) % WORDS as u32).collect();
        Self { draft: target.clone(), target, stop: 99, first: 3, past: 0, left: 100, draft_max: 3 }
    }

    /// Greedy decoding, up to and with the stop token, within budget and context.
    fn expected(&self) -> Vec<u32> {
        let most = (self.left as usize).min(N_CTX - self.past as usize);
        let mut words = Vec::new();
        let mut word = self.first;
        while words.len() < most && words.last() != Some(&self.stop) {
            word = self.target[word as usize];
            words.push(word);
        }
        words
    }

    /// Lays the model out, with the anchor alone as the first block.
    fn start(&self, host: &mut Host<'_, '_, '_>) {
        for (at, words) in
            [(TARGET, &self.target[..]), (DRAFT, &self.draft), (STOPS, &[self.stop]), (TOKENS, &[self.first])]
        {
            host.memory[1].write(at as usize, words.as_bytes());
        }
        host.put(self.registers());
        let block = host.block(&round());
        host.ok(load(0, block));
    }

    fn registers(&self) -> StepRegisters {
        StepRegisters::step(self.past, 1)
            .with(Register::NLeft, self.left)
            .with(Register::DraftMax, self.draft_max)
            .with(Register::NDraft, 1)
    }
}

/// A round's row: its number, how many drafts it had, the words, the halt.
fn row(host: &Host<'_, '_, '_>, round: u32) -> (u32, u32, Vec<u32>, Halt) {
    let at = OUT as usize + round as usize % REPORTS * 4 * (HEAD + BLOCK_TOKENS);
    let word = |i| host.memory[1].word(at + 4 * i);
    let words = (0..word(EMITTED) as usize).map(|i| word(HEAD + i)).collect();
    (word(ROUND), word(DRAFTED), words, Halt::parse(word(HALT)).unwrap())
}

/// Runs rounds, `ahead` of them between looks, until one halts: the words, the halt, and how many rounds that
/// took.
fn generate(host: &mut Host<'_, '_, '_>, message: Message, ahead: u32) -> (Vec<u32>, Halt, u32) {
    let (mut words, mut round) = (Vec::new(), 0);
    loop {
        (0..ahead).for_each(|_| host.ok(message));
        for _ in 0..ahead {
            let (number, drafted, new, halt) = row(host, round);
            assert_eq!((number, drafted == 0), (round, round == 0));
            assert!((1..=drafted as usize + 1).contains(&new.len()));
            words.extend(new);
            round += 1;
            if halt != Halt::Running {
                return (words, halt, round);
            }
        }
    }
}

#[test]
fn rounds_say_what_plain_decoding_says() {
    let mut halts = [0; 3];
    for seed in 0..600 {
        let (task, ahead) = (Task::random(seed), 1 + seed as u32 % 2);
        with_maps(|host| {
            task.start(host);
            let run = Message::Run(Run { block: range(BLOCK, round().len()), registers: registers() });
            let message = if seed % 3 == 0 { run } else { exec(0, registers()) };
            let (words, halt, rounds) = generate(host, message, ahead);
            let expected = task.expected();
            if halt == Halt::Finished {
                assert_eq!(words, expected, "{seed}");
            } else {
                // Up to where no block fits any more: plain steps would go on.
                assert!(words.len() < expected.len() && expected.starts_with(&words), "{seed}");
                assert!(task.past as usize + words.len() + BLOCK_TOKENS > N_CTX);
            }
            halts[halt as usize] += 1;
            let n = words.len() as u32;
            let values = host.values();
            let expected = [
                (Register::NPast, task.past + n),
                (Register::NTokens, BLOCK_TOKENS as u32),
                (Register::NLeft, task.left - n),
                (Register::Round, rounds),
                (Register::Halt, halt.wire()),
                (Register::DraftMax, task.draft_max),
            ];
            expected.into_iter().for_each(|(r, value)| assert_eq!(values.get(r), value, "{r}, {seed}"));
            assert_eq!(values.get(Register::NAccept) + 1, values.get(Register::NCommit));
        });
    }
    assert!(halts[1] > 100 && halts[2] > 100, "{halts:?}");
}

/// A draft that is always right saves passes: 3 of 4.
#[test]
fn a_good_draft_needs_fewer_rounds() {
    with_maps(|host| {
        Task::endless().start(host);
        let (words, halt, rounds) = generate(host, exec(0, registers()), 1);
        assert_eq!((words.as_slice(), halt, rounds), (&[4, 5, 6, 7, 8, 9, 10, 11, 12][..], Halt::NoRoom, 3));
    });
}

/// Whatever else the block says, and whoever may write it: a program that has halted does nothing, in no
/// time.
#[test]
fn a_halted_block_runs_nothing() {
    with_maps(|host| {
        let task = Task::endless();
        task.start(host);
        host.ok(exec(0, registers()));
        host.ok(exec(0, registers()));
        for halt in [Halt::Finished, Halt::NoRoom] {
            for nonsense in [0, 1, u32::MAX] {
                let mut block = StepRegisters { values: [nonsense; 16] };
                block.set(Register::Halt, halt.wire());
                host.put(block);
                let before = host.everything();
                for message in [
                    exec(0, registers()),
                    Message::Run(Run { block: range(BLOCK, round().len()), registers: registers() }),
                ] {
                    let response = host.send(message);
                    assert_eq!((response.outcome(), response.info), (Ok(()), [0; PARTS]));
                    assert!(host.everything() == before);
                }
            }
        }
        // It must be there, though.
        host.refused(exec(1, registers()), UnknownProgram, 1);
        for no_halt in [3, u32::MAX] {
            host.put(task.registers().with(Register::Halt, no_halt));
            host.refused(exec(0, registers()), BadRegister, Register::Halt.wire());
        }
    });
}

/// What the draft would have written stays as it was.
#[test]
fn a_halt_skips_the_rest() {
    for (stop, left, past, halt) in [
        (4, 9, 0, Halt::Finished),
        (99, 1, 0, Halt::Finished),
        (99, 9, 9, Halt::Finished),
        (99, 9, 6, Halt::NoRoom),
    ] {
        with_maps(|host| {
            let task = Task { stop, left, past, ..Task::endless() };
            task.start(host);
            let response = host.send(exec(0, registers()));
            assert_eq!(response.outcome(), Ok(()));
            assert_eq!(row(host, 0), (0, 0, vec![4], halt));
            assert_eq!([0, 4, 8, 12].map(|i| host.memory[1].word(TOKENS as usize + i)), [3, 0, 0, 0]);
            // Not what the last op would have set.
            assert_eq!(host.values().get(Register::NTokens), BLOCK_TOKENS as u32);
            assert!(response.info[1] > 0 && response.info[3..] == [0; 3], "{:?}", response.info);
        });
    }
}

/// Registers that a program advances lie where it may write, those of others anywhere.
#[test]
fn registers_in_a_read_only_buffer() {
    with_host(|host| {
        host.ok(map(A, 1, SIZE, 1));
        host.ok(map(B, 2, SIZE, 0));
        let task = Task::endless();
        task.start(host);
        let plain = host.block(&copies(COUNTER, COUNTER + 4));
        host.ok(load(1, plain));
        let before = host.everything();
        host.refused(exec(0, registers()), WriteToConst, A.0);
        assert!(host.everything() == before);
        host.ok(exec(1, registers()));
        // What is wrong with them is said first; and there is nothing to advance if they have halted.
        host.put(task.registers().with(Register::NTokens, 5));
        host.refused(exec(0, registers()), BadRegister, Register::NTokens.wire());
        host.put(task.registers().with(Register::Halt, 1));
        host.ok(exec(0, registers()));
    });
}

/// Only ACCEPT advances: other programs find their registers as they left them, whatever SET_TOKENS did
/// meanwhile.
#[test]
fn a_program_without_accept_keeps_its_registers_to_itself() {
    with_maps(|host| {
        let rows = |offset| ints(offset, [4, 1], 0);
        let ops = [op(Op::Cpy, &[0], 1), set_tokens(Register::NDraft, 1), op(Op::Cpy, &[0], 2)];
        let block = host.block(&program(&[rows(0), rows(128), rows(256)], &ops));
        host.ok(load(0, block));
        host.memory[1].write(0, [1u32, 2, 3, 4].as_bytes());
        let step = StepRegisters::step(5, 2).with(Register::NDraft, 2).with(Register::DraftMax, 3);
        host.put(step);
        host.ok(exec(0, registers()));
        assert_eq!(host.values(), step);
        let words = |at: usize| [0, 4, 8, 12].map(|i| host.memory[1].word(at + i));
        assert_eq!([words(128), words(256)], [[1, 2, 0, 0], [1, 2, 3, 0]]);
    });
}

/// A width that the program or its context has no room for: the op before has run, the one after has not, and
/// the session goes on.
#[test]
fn set_tokens_out_of_range() {
    with_maps(|host| {
        let step = StepRegisters::step(6, 4).with(Register::DraftMax, 3).with(Register::NDraft, 3);
        for (register, plus, step, blamed) in [
            (Register::NDraft, 2, step, Register::NTokens),
            (Register::NPast, 0, step, Register::NTokens),
            (Register::NCommit, 0, step, Register::NTokens),
            (Register::NLeft, 4, step.with(Register::NLeft, u32::MAX), Register::NLeft),
            (Register::Round, 0, step.with(Register::Round, u32::MAX), Register::NTokens),
            (
                Register::NDraft,
                1,
                StepRegisters { values: [7, 1, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
                Register::NPast,
            ),
        ] {
            let ops = [op(Op::Cpy, &[0], 1), set_tokens(register, plus), op(Op::Cpy, &[0], 2)];
            let words = [0, 4, 8].map(|offset| ints(offset, [1, 1], 0xff));
            let block = host.block(&program(&words, &ops));
            host.memory[1].write(0, [5u32, 0, 0].as_bytes());
            host.put(step);
            host.ok(load(0, block));
            for message in [exec(0, registers()), Message::Run(Run { block, registers: registers() })] {
                fails(host, message, 1, BadRegister, blamed.wire());
                assert_eq!([0, 4, 8].map(|i| host.memory[1].word(i)), [5, 5, 0], "{register} + {plus}");
                assert_eq!(host.values(), step);
            }
            host.ok(unload(0));
        }
        let fine = host.block(&copies(0, 8));
        host.put(step);
        host.ok(Message::Run(Run { block: fine, registers: registers() }));
        assert_eq!(host.memory[1].word(8), 5);
    });
}

#[track_caller]
fn fails(host: &mut Host<'_, '_, '_>, message: Message, op: u32, code: ErrorCode, detail: u32) {
    let response = host.send(message);
    assert_eq!(response.outcome(), Err((Status::Failed, Fault { op: OpIndex(op), code, detail })));
    assert_eq!(response.info, [0; PARTS]);
}

/// A round that fails, at ACCEPT or after it, leaves its registers as they were: sent again, it says the same
/// again (here, where the model has no state that the failed one may have changed).
#[test]
fn a_round_that_fails_does_not_count() {
    with_maps(|host| {
        let task = Task::endless();
        task.start(host);
        let good = task.registers();
        // No budget, and none for drafts: the least that is drafted is one token.
        for (bad, register) in [
            (good.with(Register::NLeft, 0), Register::NLeft),
            (good.with(Register::DraftMax, 0).with(Register::NDraft, 0), Register::NDraft),
        ] {
            host.put(bad);
            fails(host, exec(0, registers()), ACCEPT as u32, BadRegister, register.wire());
            assert_eq!(host.values(), bad);
        }
        // The draft's last word but one is no word.
        host.put(good);
        host.memory[1].write(DRAFT as usize + 4 * 4, &[200]);
        for _ in 0..2 {
            fails(host, exec(0, registers()), 4, BadRowIndex, 200);
            assert_eq!((host.values(), row(host, 0)), (good, (0, 0, vec![4], Halt::Running)));
            host.memory[1].write(TOKENS as usize, &[3]);
        }
        host.memory[1].write(DRAFT as usize + 4 * 4, &[5]);
        assert_eq!(generate(host, exec(0, registers()), 1).0, [4, 5, 6, 7, 8, 9, 10, 11, 12]);
    });
}

/// The block is written where it was read, all 64 bytes and not one more.
#[test]
fn registers_come_back_where_they_were() {
    with_maps(|host| {
        let task = Task::endless();
        task.start(host);
        host.memory[0].write(0, &[0xa5; BLOCK]);
        host.memory[0].write(260, task.registers().as_bytes());
        host.ok(exec(0, range(260, 64)));
        let words: Vec<_> = (0..BLOCK / 4).map(|i| host.memory[0].word(4 * i)).collect();
        let (before, rest) = words.split_at(65);
        let (block, after) = rest.split_at(16);
        assert!(before.iter().chain(after).all(|&w| w == 0xa5a5_a5a5));
        // n_past, n_tokens, n_accept, n_commit, n_draft, draft_max, n_left, round, halt
        assert_eq!(block, [1, 4, 0, 1, 3, 3, 99, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
}

/// Each part has the time of its ops, wherever they stand; a part without ops has none.
#[test]
fn part_times() {
    with_maps(|host| {
        let copy = |p: usize| part(p, op(Op::Cpy, &[0], 1));
        let words = [ints(0, [1, 1], 0xff), ints(4, [1, 1], 0xff)];
        host.step(0, 1);
        for parts in [&[0][..], &[5], &[2, 2, 2], &[1, 0, 1], &[0, 1, 2, 3, 4, 5], &[4, 1, 4, 1, 4]] {
            let ops: Vec<_> = parts.iter().map(|&p| copy(p)).collect();
            let block = host.block(&program(&words, &ops));
            let response = host.send(Message::Run(Run { block, registers: registers() }));
            assert_eq!(response.outcome(), Ok(()));
            for (p, &ns) in response.info.iter().enumerate() {
                assert_eq!(ns > 0, parts.contains(&p), "{parts:?}: {:?}", response.info);
            }
            assert!(response.info.iter().map(|&ns| u64::from(ns)).sum::<u64>() <= response.elapsed_ns);
        }
    });
}
