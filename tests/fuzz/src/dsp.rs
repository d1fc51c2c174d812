//! The DSP side: whatever arrives is answered once, rightly, and touches only what it may.
//!
//! The memory that a session sees lies between pages that nobody may touch, and every byte of it is compared
//! with what a message may have changed: see `dsp-runtime/tests/hostile`.

use std::sync::LazyLock;

use hexflash_abi::message::{Exec, Load, Map, Message, Ping, Probe, Range, Run, Unload, Unmap};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault, Fd, ProgramId, Seq, Status};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use zerocopy::IntoBytes;

use crate::memory::Guarded;
use crate::model::FIRST_FD;
use crate::mutate::{self, Bounds};
use crate::random::Random;
use crate::setup::{
    BLOCK, CONTROL, IDS, Memories, REGISTERS, SIZES, Setup, control, usual_maps, with_session,
};
use crate::world::{World, valid_program};

/// Bytes of a request.
pub const REQUEST: usize = 48;
/// Messages of an input at most, so that none takes long.
const MESSAGES: usize = 40;

/// What the memories hold at first.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut random = Random::new(1);
    let fill = |&size: &usize| {
        let mut memory = Guarded::new(size);
        memory.fill(&mut random);
        memory.bytes().to_vec()
    };
    SIZES.iter().map(fill).collect()
});

fn memories(setup: &Setup) -> Memories {
    let mut memories = Memories::blank(setup);
    memories.shared.iter_mut().zip(&*CONTENTS).for_each(|(memory, content)| memory.write(0, content));
    memories
}

/// A session in any setup. Kernels are the same in all back ends; the definition is compiled without vector
/// instructions, so that the sanitizer sees every access.
fn setup(choices: &mut Random) -> Setup {
    Setup {
        isa: Isa::Portable,
        workers: choices.pick(&[1, 1, 1, 2, 3]),
        dma: choices.pick(&[DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder]),
        vtcm_bytes: choices.pick(&[1 << 20, 64 << 10, 256 << 10]),
        arena_bytes: choices.pick(&[64 << 10, 4 << 10, 16 << 10]),
    }
}

fn in_world(setup: Setup, choices: Random, work: impl FnOnce(&mut World<'_, '_, '_, '_>)) {
    let mut memories = memories(&setup);
    with_session(setup, &mut memories, |session, memories| {
        work(&mut World::new(session, memories, choices));
    });
    assert!(memories.guarded(), "a write around the memories");
}

/// Requests as raw bytes: a length, as many bytes for the control memory (where blocks and registers lie),
/// then requests of 48 bytes, the last one perhaps shorter.
pub fn message(data: &[u8]) {
    let Some((&[low, high], rest)) = data.split_first_chunk() else { return };
    let (content, requests) = rest.split_at(rest.len().min(u16::from_le_bytes([low, high]).into()));
    let setup = setup(&mut Random::chosen(&[0; 4]));
    in_world(setup, Random::chosen(&[]), |world| {
        world.put(CONTROL, 0, &content[..content.len().min(SIZES[CONTROL])]);
        requests.chunks(REQUEST).take(MESSAGES).for_each(|request| world.send(request));
    });
}

/// A stream of messages of all kinds about valid and damaged programs, chosen by the bytes.
pub fn session(data: &[u8]) {
    let mut choices = Random::chosen(data);
    let setup = setup(&mut choices);
    in_world(setup, choices, |world| {
        for _ in 0..MESSAGES {
            if world.random.is_spent() {
                break;
            }
            world.step();
        }
    });
}

/// A program that the bytes choose gives the same bits for any number of workers, any order of transfers and
/// any VTCM, or the same refusal.
pub fn program(data: &[u8]) {
    let mut choices = Random::chosen(data);
    let plain = Setup {
        isa: Isa::Portable,
        workers: 1,
        dma: DmaMode::AtOnce,
        vtcm_bytes: 1 << 20,
        arena_bytes: 64 << 10,
    };
    let other = Setup { arena_bytes: 64 << 10, ..setup(&mut choices) };
    let damaged = choices.chance(25);
    let (mut block, ids) = valid_program(&mut choices);
    if damaged {
        mutate::block(&mut choices, &mut block);
    }
    let word = |at: usize| block.get(at..at + 4).map_or(1, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let bounds = Bounds { max_tokens: word(32), n_ctx: word(36), n_slots: word(44) };
    let registers = mutate::row_table(&mut choices, bounds);

    let run = |setup: Setup| {
        let mut memories = memories(&setup);
        for (id, at, value) in &ids {
            let memory = IDS.iter().position(|i| i == id).expect("a program's buffer");
            memories.shared[memory].write(*at, &value.to_le_bytes());
        }
        memories.shared[CONTROL].write(REGISTERS, registers.as_bytes());
        memories.shared[CONTROL].write(BLOCK, &block);
        let outcome = with_session(setup, &memories, |session, _| {
            for map in usual_maps() {
                assert_eq!(session.handle(map.encode(Seq(1)).as_bytes()).outcome(), Ok(()));
            }
            let registers = control(REGISTERS, 4 * registers.len());
            let run = Run { block: control(BLOCK, block.len()), registers };
            let response = session.handle(Message::Run(run).encode(Seq(2)).as_bytes());
            assert_eq!(response.seq, Seq(2));
            response.outcome()
        });
        assert!(memories.guarded(), "a write around the memories");
        (outcome, memories)
    };
    let ((a, before), (b, after)) = (run(plain), run(other));
    assert!(agree(a, b), "{a:?} as usual, {b:?} with {other:?}");
    if a.is_ok() && b.is_ok() {
        for (memory, (before, after)) in before.shared.iter().zip(&after.shared).enumerate() {
            let differs = before.bytes().iter().zip(after.bytes()).position(|(a, b)| a != b);
            assert_eq!(differs, None, "memory {memory} differs with {other:?}");
        }
    }
}

/// Whether two outcomes may be of one program: with more workers more VTCM is needed, and of several bad ids
/// another one may be found first.
fn agree(a: Result<(), (Status, Fault)>, b: Result<(), (Status, Fault)>) -> bool {
    let no_room = |outcome: &Result<(), (Status, Fault)>| {
        let code =
            outcome.err().filter(|(status, _)| *status == Status::Refused).map(|(_, fault)| fault.code);
        code == Some(ErrorCode::VtcmTooSmall)
    };
    match (a, b) {
        _ if no_room(&a) || no_room(&b) => true,
        (Err((Status::Failed, a)), Err((Status::Failed, b))) => (a.code, a.op) == (b.code, b.op),
        _ => a == b,
    }
}

/// Inputs of [`program`] and [`session`] to begin with: choices at random.
pub fn choices() -> Vec<Vec<u8>> {
    let bytes = |seed: u64| {
        let mut random = Random::new(seed);
        (0..100 + 25 * seed).map(|_| random.next() as u8).collect()
    };
    (0..40).map(bytes).collect()
}

/// Inputs of [`message`] to begin with: every kind of message about valid programs.
pub fn requests() -> Vec<Vec<u8>> {
    let input = |seed: u64| {
        let mut random = Random::new(seed);
        let (block, _) = valid_program(&mut random);
        let mut content = vec![0; BLOCK];
        // Steps of one sequence, of two, and of one slot twice.
        let slots = [&[0][..], &[0, 1], &[1, 0], &[1, 1]][seed as usize % 4];
        for (block, &slot) in content[REGISTERS..].chunks_exact_mut(64).zip(slots) {
            block.copy_from_slice(StepRegisters::step(0, 1).with(Register::Slot, slot).as_bytes());
        }
        content.extend(&block);
        let (program, reserved) = (ProgramId(seed as u32 % 4), 0);
        let (block, registers) = (control(BLOCK, block.len()), control(REGISTERS, 64 * slots.len()));
        let messages = [
            Message::Ping(Ping::OURS),
            Message::Load(Load { program, reserved, block }),
            Message::Exec(Exec { program, reserved, registers }),
            Message::Run(Run { block, registers }),
            Message::Unload(Unload { program }),
            Message::Unmap(Unmap { buffer: IDS[0] }),
            Message::Map(Map { buffer: IDS[0], fd: Fd(FIRST_FD), size: 4096, flags: 1, reserved }),
            Message::Probe(Probe {
                question: 1 + seed as u32 % 3,
                number: 1,
                data: Range { buffer: IDS[2], len: 3 * 2048, offset: 0 },
            }),
        ];
        let length = (content.len() as u16).to_le_bytes();
        let requests = (0..).zip(messages).flat_map(|(seq, m)| m.encode(Seq(seq)).as_bytes().to_vec());
        length.into_iter().chain(content).chain(requests).collect()
    };
    (0..40).map(input).collect()
}
