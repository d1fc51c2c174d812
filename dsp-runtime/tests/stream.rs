//! Programs with a weight stream, and the same programs without: the same bits, whoever does DMA, whatever
//! VTCM and workers there are, and whatever ended the run before.

use hexflash_abi::message::{Exec, Load, Map, Message, Range, Response, Unload, Unmap};
use hexflash_abi::program::{BufferRef, OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{BufferId, DType, ErrorCode, Fd, Op, ProgramId, Seq, Status, TensorIndex};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::host::{HostPlatform, worker_thread};
use hexflash_dsp::pool::Pool;
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::stream::StreamCounts;
use hexflash_dsp::testing::guarded::Guarded;
use hexflash_dsp::testing::random;
use hexflash_dsp::vtcm::Vtcm;
use zerocopy::IntoBytes;

/// Weights, which nobody writes; activations; registers and program blocks.
const IDS: [BufferId; 3] = [BufferId(0), BufferId(1), BufferId(2)];
const BLOCK: usize = 1024;
/// Values of a row. Short, long and odd strips: parts of one in a piece, and several.
const WIDTHS: [u32; 9] = [256, 288, 1024, 64, 640, 2048, 32, 512, 256];
const ROWS: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Setup {
    workers: usize,
    vtcm: usize,
    dma: DmaMode,
    streams: bool,
    /// Whether even small jobs are shared.
    all: bool,
}

/// A chain of products, y = W x, with what is between them: a norm, and once a row chosen by an id.
struct Chain {
    tensors: Vec<TensorDesc>,
    ops: Vec<OpDesc>,
    weights: Vec<u8>,
    /// First bytes of x, of the id and of the last y among the activations, and their size.
    x: usize,
    id: usize,
    y: usize,
    bytes: usize,
}

impl Chain {
    fn new() -> Self {
        let (mut tensors, mut ops, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        let add = |tensors: &mut Vec<TensorDesc>, dtype, ne, buffer, bytes: &mut usize| {
            let desc = TensorDesc { offset: *bytes as u64, buffer, ..TensorDesc::packed(dtype, ne).unwrap() };
            *bytes += (desc.extent(dtype).unwrap() as usize).next_multiple_of(128);
            tensors.push(desc);
            TensorIndex(tensors.len() as u16 - 1)
        };
        let x = add(&mut tensors, DType::F32, [WIDTHS[0], ROWS, 1, 1], 1, &mut bytes);
        let id = add(&mut tensors, DType::I32, [ROWS, 1, 1, 1], 1, &mut bytes);
        let (mut from, mut weight_bytes) = (x, 0);
        for (i, pair) in WIDTHS.windows(2).enumerate() {
            let w = add(&mut tensors, DType::F16x32, [pair[0], pair[1], 1, 1], 0, &mut weight_bytes);
            let y = add(&mut tensors, DType::F32, [pair[1], ROWS, 1, 1], 1, &mut bytes);
            ops.push(OpDesc::new(Op::MulMat, &[w, from], &[y]));
            let normed = add(&mut tensors, DType::F32, [pair[1], ROWS, 1, 1], 1, &mut bytes);
            let mut norm = OpDesc::new(Op::RmsNorm, &[y], &[normed]);
            norm.set_params(&hexflash_abi::op::norm::Norm { eps: 1e-5 });
            ops.push(norm);
            from = normed;
            if i == 3 {
                let chosen = add(&mut tensors, DType::F32, [pair[1], ROWS, 1, 1], 1, &mut bytes);
                ops.push(OpDesc::new(Op::GetRows, &[normed, id], &[chosen]));
                from = chosen;
            }
        }
        let values = random(7, weight_bytes / 2, -0.1, 0.1);
        weights.extend(values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()));
        let at = |t: TensorIndex| tensors[t.0 as usize].offset as usize;
        let (x, id, y) = (at(x), at(id), at(from));
        Self { tensors, ops, weights, x, id, y, bytes }
    }

    fn block(&self) -> Vec<u8> {
        let header = ProgramHeader::new(4, 10).with_counts([3, self.tensors.len(), self.ops.len()]).unwrap();
        let buffers = IDS.map(|buffer| BufferRef { buffer, reserved: 0 });
        [header.as_bytes(), buffers.as_bytes(), self.tensors.as_bytes(), self.ops.as_bytes()].concat()
    }

    /// The op that chooses rows.
    fn chooses(&self) -> usize {
        self.ops.iter().position(|op| op.opcode == OpDesc::new(Op::GetRows, &[], &[]).opcode).unwrap()
    }

    /// What a session answers to a program that chooses these rows, and the bytes of the last y, each time.
    fn run(&self, setup: Setup, turns: &[[i32; 3]]) -> (Vec<(Response, Vec<u8>)>, Vec<StreamCounts>) {
        let platform = HostPlatform::new();
        let block = self.block();
        let mut memory = [self.weights.len(), self.bytes, BLOCK + block.len()].map(Guarded::new);
        memory[0].bytes_mut().copy_from_slice(&self.weights);
        memory[1].bytes_mut().fill(0);
        let x = random(3, (WIDTHS[0] * ROWS) as usize, -1.0, 1.0);
        memory[1].bytes_mut()[self.x..][..x.as_bytes().len()].copy_from_slice(x.as_bytes());
        memory[2].bytes_mut()[..64].copy_from_slice(StepRegisters::step(0, ROWS).as_bytes());
        memory[2].bytes_mut()[BLOCK..].copy_from_slice(&block);
        for (memory, fd) in memory.iter().zip(1..) {
            // SAFETY: `Guarded` memory begins at a multiple of 128 and is dropped after the session. Nobody
            // has a reference to its bytes while a message is handled.
            unsafe { platform.share(Fd(fd), memory.base(), memory.size() as u64) };
        }
        let (arena, vtcm) = (Guarded::new(64 << 10), Guarded::new(setup.vtcm));
        // SAFETY: `Guarded` memory begins at a multiple of 128, has these bytes, and is dropped after the
        // session. Nobody else uses it.
        let (scratchpad, programs) =
            unsafe { (Vtcm::new(vtcm.base(), vtcm.size()), Arena::new(arena.base(), arena.size())) };
        let pool = Pool::new(&platform, Isa::detect(), scratchpad, setup.workers, setup.dma);
        let pool = if setup.all { pool.sharing_all() } else { pool }.with_streams(setup.streams);
        let mut answers = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&pool);
            for id in 1..setup.workers {
                let pool = &pool;
                worker_thread(id).spawn_scoped(scope, move || pool.serve(id)).unwrap();
            }
            let mut session = Session::new(&platform, pool.dispatcher().unwrap(), programs, 0);
            let send = |session: &mut Session<'_, '_, _>, message: Message| {
                session.handle(message.encode(Seq(1)).as_bytes())
            };
            let ok = |session: &mut _, message| assert_eq!(send(session, message).outcome(), Ok(()));
            for (buffer, fd) in IDS.into_iter().zip(1..) {
                let size = memory[fd as usize - 1].size() as u64;
                ok(&mut session, Message::Map(Map { buffer, fd: Fd(fd), size, flags: 0, reserved: 0 }));
            }
            let range =
                |offset: usize, len: usize| Range { buffer: IDS[2], len: len as u32, offset: offset as u64 };
            let (program, registers) = (ProgramId(5), range(0, 64));
            ok(&mut session, Message::Load(Load { program, reserved: 0, block: range(BLOCK, block.len()) }));
            for ids in turns {
                memory[1].bytes_mut()[self.id..][..12].copy_from_slice(ids.as_bytes());
                let y = self.y..self.y + (4 * WIDTHS[WIDTHS.len() - 1] * ROWS) as usize;
                memory[1].bytes_mut()[y.clone()].fill(0);
                let exec = Message::Exec(Exec { program, reserved: 0, registers });
                let response = session.handle(exec.encode(Seq(1)).as_bytes());
                answers.0.push((response, memory[1].bytes()[y].to_vec()));
                answers.1.push(session.take_stream_counts());
            }
            ok(&mut session, Message::Unload(Unload { program }));
            IDS.into_iter().for_each(|buffer| ok(&mut session, Message::Unmap(Unmap { buffer })));
        });
        assert!(memory.iter().chain([&arena, &vtcm]).all(Guarded::is_whole), "{setup:?}");
        answers
    }
}

struct StopOnDrop<'a, 'p>(&'a Pool<'p, HostPlatform>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

const GOOD: [i32; 3] = [2, 0, 1];
const BAD: [i32; 3] = [0, 3, 1];

fn setups() -> Vec<Setup> {
    let mut all = Vec::new();
    for dma in [DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder] {
        for workers in 1..=4 {
            for vtcm in [48 << 10, 96 << 10, 192 << 10, 2 << 20] {
                let share = [true, false].map(|all| Setup { workers, vtcm, dma, streams: true, all });
                // Room for the sums, and for four groups.
                all.extend(share.into_iter().filter(|s| s.vtcm >= s.workers * (24 << 10)));
            }
        }
    }
    all
}

#[test]
fn the_stream_changes_no_bits_and_runs_that_end_early_leave_nothing_behind() {
    let chain = Chain::new();
    let turns = [GOOD, BAD, GOOD, BAD, BAD, GOOD];
    let without = Setup { workers: 1, vtcm: 2 << 20, dma: DmaMode::AtOnce, streams: false, all: false };
    let (expected, counts) = chain.run(without, &turns);
    assert!(counts.iter().all(|&count| count == StreamCounts::default()));
    assert!(expected[0].1.iter().any(|&byte| byte != 0));
    for setup in setups() {
        let (found, counts) = chain.run(setup, &turns);
        for (turn, ((response, y), (expected, expected_y))) in found.iter().zip(&expected).enumerate() {
            assert_eq!(response.outcome(), expected.outcome(), "{setup:?}, turn {turn}");
            assert!(y == expected_y, "{setup:?}, turn {turn}");
            let streamed = counts[turn];
            if turns[turn] == GOOD {
                // Each byte once, and all of them.
                assert_eq!(
                    (streamed.bytes, response.dma_bytes),
                    (chain.weights.len() as u64, expected.dma_bytes)
                );
            } else {
                let (status, fault) = response.outcome().unwrap_err();
                assert_eq!((status, fault.code), (Status::Failed, ErrorCode::BadRowIndex), "{setup:?}");
                assert_eq!(fault.op.0 as usize, chain.chooses());
                // Pieces of later ops had been fetched.
                assert!(streamed.bytes > expected.dma_bytes, "{setup:?}: {streamed:?} {expected:?}");
            }
            assert!(streamed.most_bytes <= setup.vtcm as u64);
        }
    }
}

/// What a program writes is not fetched ahead: the matrix may come to be while it runs.
#[test]
fn matrices_that_a_program_writes_are_not_fetched_ahead() {
    let mut chain = Chain::new();
    let setup = Setup { workers: 2, vtcm: 2 << 20, dma: DmaMode::AtWait, streams: true, all: true };
    let expected = chain.run(setup, &[GOOD]).0;
    // A copy of a word of the weights to itself would be refused; one behind them is enough.
    let word = TensorDesc { offset: 0, buffer: 0, ..TensorDesc::packed(DType::I32, [1; 4]).unwrap() };
    let behind = TensorDesc { offset: chain.weights.len() as u64, ..word };
    chain.weights.extend([0; 128]);
    let first = chain.tensors.len() as u16;
    chain.tensors.extend([word, behind]);
    chain.ops.push(OpDesc::new(Op::Cpy, &[TensorIndex(first)], &[TensorIndex(first + 1)]));
    let (found, counts) = chain.run(setup, &[GOOD]);
    assert_eq!(found[0].0.outcome(), Ok(()));
    assert!(found[0].1 == expected[0].1);
    assert_eq!(counts[0], StreamCounts::default());
}
