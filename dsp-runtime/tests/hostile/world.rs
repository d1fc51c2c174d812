//! A session, a model of it, and a stream of hostile messages.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hexflash_abi::message::{
    Exec, Load, Map, Message, Ping, Probe, Range, Request, Response, Run, Unload, Unmap,
};
use hexflash_abi::op::Op;
use hexflash_abi::program::{Numerics, PARTS, ProgramHeader};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::Program;
use hexflash_abi::{BufferId, DType, ErrorCode, Fault, Fd, OpIndex, ProgramId, Seq, Status};
use hexflash_dsp::kernels::products::mul_mat::has_hmx_kernel;
use hexflash_dsp::platform::host::HostPlatform;
use hexflash_dsp::session::Session;
use zerocopy::{FromBytes, IntoBytes};

use crate::build::{Builder, Room};
use crate::counting::allocations;
use crate::course::{Fate, course, follows};
use crate::memory::Marks;
use crate::model::{Block, Expect, FIRST_FD, Model, Step};
use crate::mutate::{self, Bounds};
use crate::random::Random;
use crate::setup::{
    BLOCK, CONTROL, IDS, Memories, NONCE, READ_ONLY, RECEIPT, REGISTERS, SIZES, control, usual_maps,
};

/// Answering takes no longer: programs here are small, whatever they say.
const LONGEST: Duration = Duration::from_secs(30);

/// What a world has seen.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    pub messages: u64,
    pub programs: u64,
    /// Programs that were found sound (at `Load` and `Run`).
    pub sound: u64,
    pub ran: u64,
    /// Programs whose registers had halted, and those that an ACCEPT ended.
    pub halted: u64,
    pub ended: u64,
    pub failed: u64,
    /// Programs that ran for several sequences.
    pub together: u64,
    /// Sound questions.
    pub answered: u64,
    /// Successful runs of each op, by opcode.
    pub ops: BTreeMap<u16, u64>,
    pub longest: Duration,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.programs += other.programs;
        self.sound += other.sound;
        self.ran += other.ran;
        self.halted += other.halted;
        self.ended += other.ended;
        self.failed += other.failed;
        self.together += other.together;
        self.answered += other.answered;
        other.ops.iter().for_each(|(op, n)| *self.ops.entry(*op).or_default() += n);
        self.longest = self.longest.max(other.longest);
    }
}

/// A valid program, with the ids that it reads.
pub fn valid_program(random: &mut Random) -> (Vec<u8>, Vec<(BufferId, usize, i32)>) {
    let room = |i: usize| Room { id: IDS[i], size: SIZES[i], writable: i != READ_ONLY };
    let mut builder = Builder::new(random, &[room(0), room(1), room(READ_ONLY)]);
    builder.program();
    (builder.block(), builder.ids)
}

/// As [`valid_program`], with a last op that proves that it ran.
fn receipt_program(random: &mut Random) -> (Vec<u8>, Vec<(BufferId, usize, i32)>) {
    let room = |i: usize| Room { id: IDS[i], size: SIZES[i], writable: i != READ_ONLY };
    // The control memory is named, and too small for anything else.
    let small = Room { size: 0, ..room(CONTROL) };
    let mut builder = Builder::new(random, &[room(0), room(1), room(READ_ONLY), small]);
    builder.program();
    builder.receipt(3, NONCE, RECEIPT);
    (builder.block(), builder.ids)
}

/// A stream of messages, answered and checked.
pub struct World<'a, 's, 'd, 'p> {
    pub random: Random,
    session: &'a mut Session<'d, 'p, HostPlatform>,
    memories: &'s mut Memories,
    model: Model,
    seq: u64,
    /// Whether requests are damaged on the way.
    damage: bool,
    pub tally: Tally,
}

impl<'a, 's, 'd, 'p> World<'a, 's, 'd, 'p> {
    pub fn new(
        session: &'a mut Session<'d, 'p, HostPlatform>,
        memories: &'s mut Memories,
        random: Random,
    ) -> Self {
        let mut world = Self {
            random,
            session,
            memories,
            model: Model::new(),
            seq: 0,
            damage: false,
            tally: Tally::default(),
        };
        usual_maps().for_each(|map| world.message(map));
        world.damage = true;
        world
    }

    /// One message, or a few that belong together.
    pub fn step(&mut self) {
        match self.random.below(100) {
            0..=59 => self.run(),
            60..=69 => self.load(),
            70..=85 => self.exec(),
            86..=90 => {
                let program = self.program_id();
                self.message(Message::Unload(Unload { program }));
            }
            91..=94 => self.remap(),
            95 => {
                let mut ping = Ping::OURS;
                if self.random.chance(50) {
                    ping.magic ^= u32::from(self.random.chance(30));
                    ping.abi_version ^= self.random.telling() as u32;
                }
                self.message(Message::Ping(ping));
            }
            96 => {
                let noise: Vec<u8> = (0..self.random.below(100)).map(|_| self.random.next() as u8).collect();
                self.send(&noise);
            }
            97 => self.probe(),
            _ => self.odd_ranges(),
        }
    }

    /// A question, sound or nearly.
    fn probe(&mut self) {
        let question = self.random.pick(&[1, 2, 2, 2, 3, 3, 4, 0, 5]);
        let number = self.random.pick(&[1, 2, 3, 4, 64, 0, 65, u32::MAX]);
        let tiles = (2 * number.min(4) + 1) * 2048;
        let len = self.random.pick(&[tiles, tiles, 512, 4096, 65536, 1 << 17, 0, 256, 640, u32::MAX - 255]);
        let len = if question == 4 && self.random.chance(80) { 0 } else { len };
        let buffer = if len == 0 { BufferId(0) } else { self.random.pick(&IDS) };
        let offset = if len == 0 { 0 } else { self.random.pick(&[0, 0, 0, 128, 4, 1 << 17, u64::MAX - 127]) };
        self.message(Message::Probe(Probe { question, number, data: Range { buffer, len, offset } }));
    }

    /// Checks the answer to a sound question.
    fn answered(&mut self, probe: Probe, response: &Response) {
        self.tally.answered += 1;
        if let Err((status, fault)) = response.outcome() {
            // The smallest VTCM has room for tiles and loops.
            assert!(probe.question == 2 || probe.question == 3, "{fault}");
            assert_eq!(
                (status, fault),
                (Status::Refused, Fault::new(ErrorCode::VtcmTooSmall, probe.data.len))
            );
            return;
        }
        let [outcome, words @ ..] = response.info;
        match (probe.question, outcome) {
            // No session here has a matrix unit, nor packets; most have one thread.
            (1, 2) | (3, 3) | (4, 4) => assert_eq!(words, [0; 5]),
            (2 | 3, 1) => {
                let [rounds, seen, last, engine, rest] = words;
                assert!(rounds == probe.number || probe.question == 3 && rounds < probe.number);
                assert!(seen <= rounds && last <= rounds && engine == 0 && rest == 0, "{words:?}");
            }
            _ => panic!("{probe:?}: {:?}", response.info),
        }
    }

    /// Everything given back: a session that has seen all this holds as large a program as a new one.
    pub fn finish(mut self) -> (Tally, usize) {
        self.damage = false;
        for id in 0..hexflash_abi::program::MAX_PROGRAMS as u32 {
            if self.model.programs[id as usize].is_some() {
                self.message(Message::Unload(Unload { program: ProgramId(id) }));
            }
        }
        for buffer in (0..64).map(BufferId) {
            if self.model.info(buffer).is_some() {
                self.message(Message::Unmap(Unmap { buffer }));
            }
        }
        usual_maps().for_each(|map| self.message(map));
        let capacity = self.capacity();
        (self.tally, capacity)
    }

    /// Tensors that fit the arena: found by trying.
    pub fn capacity(&mut self) -> usize {
        let (mut low, mut high) = (0usize, 2000);
        while low < high {
            let n = (low + high).div_ceil(2);
            let header = ProgramHeader::new(1, 1).with_counts([0, n, 0]).unwrap();
            // The tensors are noise: refused as such if they fit the arena.
            let mut block = header.as_bytes().to_vec();
            block.resize(header.total_bytes as usize, 0);
            if block.len() > SIZES[0] {
                return 0;
            }
            self.memories.shared[0].write(0, &block);
            let block = Range { buffer: IDS[0], len: block.len() as u32, offset: 0 };
            let registers = self.registers(&[0; 16]);
            let run = Run { block, registers };
            let response = self.session.handle(Message::Run(run).encode(Seq(0)).as_bytes());
            match ErrorCode::parse(response.code).unwrap() {
                ErrorCode::ProgramTooLarge => high = n - 1,
                ErrorCode::UnknownType => low = n,
                other => panic!("{other}"),
            }
        }
        low
    }

    fn program_id(&mut self) -> ProgramId {
        ProgramId(if self.random.chance(95) {
            self.random.below(6) as u32
        } else {
            self.random.telling() as u32
        })
    }

    /// Writes a program, damaged or not, into the control memory; where it lies.
    fn block(&mut self) -> Range {
        let (mut block, ids) = if self.random.chance(60) {
            receipt_program(&mut self.random)
        } else {
            valid_program(&mut self.random)
        };
        for (id, at, value) in ids {
            let memory = IDS.iter().position(|&i| i == id).unwrap();
            self.memories.shared[memory].write(at, &value.to_le_bytes());
        }
        if self.random.chance(80) {
            mutate::block(&mut self.random, &mut block);
        }
        let at = BLOCK + self.random.pick(&[0, 0, 0, 1, 4, 8]);
        self.memories.shared[CONTROL].write(at, &block);
        let mut range = control(at, block.len());
        if self.random.chance(2) {
            range.len = range.len.wrapping_add(self.random.pick(&[1, 8, u32::MAX, u32::MAX - 7]));
        }
        self.tally.programs += 1;
        range
    }

    fn registers(&mut self, words: &[u32]) -> Range {
        self.memories.shared[CONTROL].write(REGISTERS, words.as_bytes());
        control(REGISTERS, 4 * words.len())
    }

    /// Register blocks for a program with these bounds.
    fn fresh_registers(&mut self, bounds: Bounds) -> Range {
        let words = mutate::row_table(&mut self.random, bounds);
        let nonce = self.random.next();
        self.memories.shared[CONTROL].write(NONCE, &nonce.to_le_bytes()[..4]);
        self.registers(&words)
    }

    /// The bounds in the header of the block in the control memory.
    fn bounds(&self, block: Range) -> Bounds {
        let word = |at| {
            let bytes = self.memories.shared[CONTROL].bytes().get(block.offset as usize + at..)?;
            Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
        };
        let [max_tokens, n_ctx, n_slots] = [32, 36, 44].map(|at| word(at).unwrap_or(1));
        Bounds { max_tokens, n_ctx, n_slots }
    }

    fn run(&mut self) {
        let block = self.block();
        let registers = self.fresh_registers(self.bounds(block));
        self.message(Message::Run(Run { block, registers }));
    }

    fn load(&mut self) {
        let (program, block) = (self.program_id(), self.block());
        self.message(Message::Load(Load { program, reserved: 0, block }));
    }

    fn exec(&mut self) {
        let program = self.program_id();
        let loaded = self.model.programs.get(program.0 as usize).and_then(Option::as_ref);
        let header = loaded.and_then(|block| block.program().ok()).map(|program| *program.header);
        let registers = self.fresh_registers(header.map_or(Bounds::LEAST, |h| Bounds::of(&h)));
        self.message(Message::Exec(Exec { program, reserved: 0, registers }));
    }

    /// Ranges that are empty, misplaced, or somebody else's.
    fn odd_ranges(&mut self) {
        let buffer = if self.random.chance(80) {
            self.random.pick(&IDS)
        } else {
            BufferId(self.random.telling() as u32)
        };
        let size = self.random.pick(&SIZES) as u64;
        let offset = self.random.pick(&[0, 2, 64, size - 64, size, size + 1, u64::MAX, u64::MAX - 63]);
        let len = self.random.pick(&[0, 1, 63, 64, 65, 128, 64 * 64, 65 * 64, u32::MAX, u32::MAX - 63]);
        let (odd, program) = (Range { buffer, len, offset }, self.program_id());
        let registers = self.fresh_registers(Bounds { n_ctx: 8, ..Bounds::LEAST });
        let message = match self.random.below(4) {
            0 => Message::Load(Load { program, reserved: 0, block: odd }),
            1 => Message::Exec(Exec { program, reserved: 0, registers: odd }),
            2 => Message::Run(Run { block: odd, registers }),
            _ => Message::Run(Run { block: self.block(), registers: odd }),
        };
        self.message(message);
    }

    /// Takes a mapping away, or adds one; mostly the usual ones come back.
    fn remap(&mut self) {
        let i = self.random.below(4);
        let telling = BufferId(self.random.telling() as u32);
        let buffer = if self.random.chance(80) { IDS[i] } else { telling };
        self.message(Message::Unmap(Unmap { buffer }));
        let fd = Fd(FIRST_FD + self.random.below(6) as i32 - 1);
        let size = if self.random.chance(50) { SIZES[i] as u64 } else { self.random.telling() };
        let flags = self.random.pick(&[0, 0, 1, 1, 2]);
        self.message(Message::Map(Map { buffer, fd, size, flags, reserved: 0 }));
        if self.random.chance(80) {
            for id in (0..64).map(BufferId) {
                let usual = IDS.contains(&id);
                if !usual && self.model.info(id).is_some() {
                    self.message(Message::Unmap(Unmap { buffer: id }));
                }
            }
            self.message(Message::Unmap(Unmap { buffer: IDS[i] }));
            usual_maps().for_each(|map| self.message(map));
        }
    }

    fn message(&mut self, message: Message) {
        self.seq += 1;
        let mut bytes = message.encode(Seq(self.seq)).as_bytes().to_vec();
        if self.damage && self.random.chance(2) {
            mutate::request(&mut self.random, &mut bytes);
        }
        self.send(&bytes);
    }

    /// Writes as the host does.
    #[allow(dead_code, reason = "for the fuzz targets, which share this file")]
    pub fn put(&mut self, memory: usize, at: usize, bytes: &[u8]) {
        self.memories.shared[memory].write(at, bytes);
    }

    /// Sends bytes, and checks the answer and the memory.
    pub fn send(&mut self, bytes: &[u8]) {
        let expect = self.model.answer(bytes, &self.memories.shared);
        let (before, start) = (allocations(), Instant::now());
        let response = self.session.handle(bytes);
        let (allocated, took) = (allocations() - before, start.elapsed());
        assert_eq!(allocated, 0, "answering allocates");
        self.tally.messages += 1;
        self.tally.longest = self.tally.longest.max(took);
        assert!(took < LONGEST, "{took:?}");

        let request = Request::read_from_bytes(bytes).ok();
        assert_eq!(response.seq, request.map_or(Seq(u64::MAX), |r| r.seq));
        let message = request.and_then(|r| Message::decode(&r).ok());
        let outcome = response.outcome();
        let none = vec![Marks::default(); SIZES.len()];
        let (marks, loaded) = match expect {
            Expect::Done => {
                assert_eq!(outcome, Ok(()), "{message:?}");
                (none, None)
            }
            Expect::Refused(fault) => {
                // Room in the arena is looked for before the block is looked at, VTCM before registers are
                // checked.
                let not_planned = not_planned(&response, None)
                    && matches!(message, Some(Message::Load(_) | Message::Run(_)))
                    && (response.code == ErrorCode::ProgramTooLarge.wire() || of_registers(&fault));
                let right = outcome == Err((Status::Refused, fault));
                assert!(right || not_planned, "{outcome:?}, not {fault:?}: {message:?}");
                (none, None)
            }
            Expect::Loads(id, block) => {
                self.tally.sound += 1;
                let fine = outcome.is_ok() || not_planned(&response, block.program().ok().as_ref());
                assert!(fine, "{outcome:?}");
                (none, outcome.is_ok().then_some((id, block)))
            }
            Expect::Runs(block, step) => {
                self.tally.sound += u64::from(matches!(message, Some(Message::Run(_))));
                (self.ran(&response, &block, &step), None)
            }
            Expect::Answers(probe) => {
                self.answered(probe, &response);
                (none, None)
            }
        };
        for (i, memory) in self.memories.shared.iter_mut().enumerate() {
            let stray = memory.stray_write(&marks[i]);
            assert_eq!(stray, None, "memory {i} was written where it must not: {message:?} {outcome:?}");
        }
        assert!(self.memories.guarded(), "a write outside: {message:?}");
        if let (Ok(()), Some(message)) = (outcome, message) {
            self.model.apply(&message, loaded);
        }
    }

    /// Checks the answer of a sound program's run; what it may have written.
    fn ran(&mut self, response: &Response, block: &Block, step: &Step) -> Vec<Marks> {
        let program = block.program().unwrap();
        if step.halted() {
            self.tally.halted += 1;
            assert!(response.outcome().is_ok() || not_planned(response, Some(&program)), "{response:?}");
            assert_eq!(response.info, [0; PARTS]);
            return self.model.may_write(&program, &[], SIZES.len());
        }
        let moments = course(&program, &step.blocks);
        self.tally.together += u64::from(step.blocks.len() > 1 && response.outcome().is_ok());
        let upto = |n| self.model.may_write(&program, &moments[..n], SIZES.len());
        let doomed = moments.iter().position(|moment| matches!(moment.fate, Fate::Fails(_)));
        match response.outcome() {
            Ok(()) => {
                self.tally.ran += 1;
                let ran = &program.ops[..moments.len()];
                ran.iter().for_each(|op| *self.tally.ops.entry(op.opcode).or_default() += 1);
                assert!(!program.ops.is_empty() || response.info[1..] == [0; PARTS - 1]);
                let idle = |part: usize| program.ops.iter().all(|op| usize::from(op.part) != part);
                let timed = (0..PARTS).all(|part| response.info[part] == 0 || !idle(part));
                assert!(timed || program.ops.is_empty(), "{:?}", response.info);
                let (mut marks, mut ended) = (upto(moments.len()), moments.len() < program.ops.len());
                let accepts = program.ops.iter().filter(|op| op.opcode == Op::Accept.wire()).count() as u32;
                if accepts > 0 {
                    let home = &self.memories.shared[step.memory].bytes()[step.at..][..64];
                    let after = StepRegisters::read_from_bytes(home).unwrap();
                    assert!(follows(&program, &step.blocks[0], &after, accepts), "{after:?} after {step:?}");
                    marks[step.memory].0.push((step.at, step.at + 64));
                    ended = after.halted();
                    self.tally.ended += u64::from(ended);
                }
                if let Some(doomed) = doomed {
                    assert!(ended && moments[doomed].accepted, "success of {:?}", moments[doomed]);
                }
                if self.gives_receipt(&program) && !ended {
                    let bytes = self.memories.shared[CONTROL].bytes();
                    let mut untouched = upto(program.ops.len() - 1);
                    untouched[step.memory].0.push((step.at, step.at + 64));
                    if !untouched[CONTROL].meets(NONCE, RECEIPT + 4) {
                        assert_eq!(bytes[NONCE..][..4], bytes[RECEIPT..][..4], "success, but it did not run");
                    }
                }
                marks
            }
            Err((Status::Failed, fault)) => {
                self.tally.failed += 1;
                let at = fault.op.0 as usize;
                assert!(doomed.is_none_or(|doomed| at <= doomed), "{fault}, after {doomed:?}");
                let right = match (fault.code, moments[at].fate) {
                    (ErrorCode::BadRowIndex, fate) => fate == Fate::Fine,
                    (ErrorCode::BadRegister | ErrorCode::BadCount, Fate::Fails(expected)) => {
                        fault == expected.at(at)
                    }
                    (ErrorCode::BadRegister, fate) => fate == Fate::Unknown,
                    // Memory holds what it likes. The op named is where it came from.
                    (ErrorCode::NotFinite, fate) => !matches!(fate, Fate::Fails(_)),
                    _ => false,
                };
                assert!(right, "{fault}, not {:?}: {:?}", moments[at], program.ops[at]);
                assert_eq!(response.info, [0; PARTS]);
                // Others ran before one noticed that.
                let noticed = doomed.unwrap_or(moments.len());
                if fault.code == ErrorCode::NotFinite {
                    // They have run, whatever they gave.
                    program.ops[..=at]
                        .iter()
                        .for_each(|op| *self.tally.ops.entry(op.opcode).or_default() += 1);
                    return upto(noticed);
                }
                upto(at + 1)
            }
            Err((Status::Refused, _)) if not_planned(response, Some(&program)) => upto(0),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Whether the program's last op copies the nonce.
    fn gives_receipt(&self, program: &Program<'_>) -> bool {
        let Some(op) = program.ops.last() else { return false };
        let place = |i| {
            let t = program.tensor(i)?;
            let buffer = program.buffers[t.buffer as usize].buffer;
            Some((self.model.buffers[buffer.0 as usize]?.memory, t.offset as usize, t.dtype, t.ne))
        };
        let word = |at| Some((CONTROL, at, hexflash_abi::DType::I32.wire(), [1; 4]));
        op.opcode == Op::Cpy.wire() && place(op.src[0]) == word(NONCE) && place(op.dst[0]) == word(RECEIPT)
    }
}

/// Refused for registers, their values or their place.
fn of_registers(fault: &Fault) -> bool {
    let codes = [ErrorCode::BadRegister, ErrorCode::BadCount, ErrorCode::WriteToConst];
    fault.op == OpIndex::NONE && codes.contains(&fault.code)
}

/// Refused for what the model does not know: arena or VTCM is too small, or only a matrix unit could multiply
/// these types.
fn not_planned(response: &Response, program: Option<&Program<'_>>) -> bool {
    let Err((Status::Refused, fault)) = response.outcome() else { return false };
    match fault.code {
        ErrorCode::ProgramTooLarge => fault.op == OpIndex::NONE,
        ErrorCode::VtcmTooSmall => fault.op != OpIndex::NONE,
        ErrorCode::BadType | ErrorCode::NoMatrixUnit => {
            fault.op != OpIndex::NONE && program.is_none_or(|program| is_for_unit(program, fault.op))
        }
        _ => false,
    }
}

/// Whether an op multiplies F32 with weights that want int8, or that are the unit's in such a program.
fn is_for_unit(program: &Program<'_>, op: OpIndex) -> bool {
    let op = &program.ops[op.0 as usize];
    let dtype = |i: usize| {
        let wire = program.tensor(op.src[i])?.dtype;
        DType::ALL.iter().find(|dtype| dtype.wire() == wire)
    };
    [Op::MulMat, Op::MulMatId].map(Op::wire).contains(&op.opcode)
        && dtype(0).is_some_and(|dtype| {
            dtype.wants_q8_activations()
                || program.header.numerics == Numerics::Hmx.wire() && has_hmx_kernel(*dtype)
        })
        && dtype(1) == Some(&DType::F32)
}
