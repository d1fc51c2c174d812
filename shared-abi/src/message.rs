//! Requests and responses: fixed-size messages, one response for every request.

use core::mem::size_of;

use zerocopy::{FromBytes, IntoBytes};

use crate::ids::{BufferId, Fd, ProgramId, Seq};
use crate::probe::{ANSWER_WORDS, Question};
use crate::status::{ErrorCode, Fault, Status};
use crate::{ABI_VERSION, LAYOUT_HASH, MAGIC};

wire_enum! {
    /// The kind of a request.
    pub enum MessageKind: u32 {
        /// Compare ABIs and report the session's resources.
        Ping = 1 "Ping",
        /// Map shared memory as a buffer.
        Map = 2 "Map",
        /// Drop a mapping.
        Unmap = 3 "Unmap",
        /// Validate a program and keep it.
        Load = 4 "Load",
        /// Run a kept program.
        Exec = 5 "Exec",
        /// Validate a program, run it once and forget it.
        Run = 6 "Run",
        /// Forget a kept program.
        Unload = 7 "Unload",
        /// Ask what no program tells: see [`crate::probe`].
        Probe = 8 "Probe",
    }
}

wire_struct! {
    /// A range of a mapped buffer, as the host alleges it.
    #[derive(Default)]
    pub struct Range [16 bytes] {
        /// The buffer.
        pub buffer: BufferId,
        /// Length in bytes.
        pub len: u32,
        /// First byte.
        pub offset: u64,
    }
}

wire_struct! {
    /// A request as it crosses the queue: 48 bytes, whatever its kind.
    pub struct Request [48 bytes] {
        /// Echoed by the response.
        pub seq: Seq,
        /// A [`MessageKind`].
        pub kind: u32,
        /// Must be zero.
        pub reserved: u32,
        /// The body of that kind; bytes past it must be zero.
        pub body: [u8; BODY_BYTES],
    }
}
/// Bytes of the largest body.
pub const BODY_BYTES: usize = 32;
const _: () = assert!(size_of::<Run>() == BODY_BYTES);

wire_struct! {
    /// Body of `Ping`: what the host was built with.
    pub struct Ping [16 bytes] {
        /// [`MAGIC`].
        pub magic: u32,
        /// [`ABI_VERSION`].
        pub abi_version: u32,
        /// [`LAYOUT_HASH`].
        pub layout_hash: u64,
    }
}

impl Ping {
    /// The ping of this build.
    pub const OURS: Self = Self { magic: MAGIC, abi_version: ABI_VERSION, layout_hash: LAYOUT_HASH };
}

wire_struct! {
    /// Body of `Map`.
    pub struct Map [24 bytes] {
        /// Id that the host gives the buffer.
        pub buffer: BufferId,
        /// The shared memory.
        pub fd: Fd,
        /// Bytes to map, from the start of the memory.
        pub size: u64,
        /// [`MapFlags`].
        pub flags: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

wire_flags! {
    /// How a buffer is mapped.
    pub struct MapFlags: u32 {
        /// Programs may not write it: weights.
        const READ_ONLY = 1;
    }
}

wire_struct! {
    /// Body of `Unmap`.
    pub struct Unmap [4 bytes] {
        /// The buffer to drop.
        pub buffer: BufferId,
    }
}

wire_struct! {
    /// Body of `Load`.
    pub struct Load [24 bytes] {
        /// Id that the host gives the program.
        pub program: ProgramId,
        /// Must be zero.
        pub reserved: u32,
        /// Where the program block lies.
        pub block: Range,
    }
}

wire_struct! {
    /// Body of `Exec`.
    pub struct Exec [24 bytes] {
        /// The program to run.
        pub program: ProgramId,
        /// Must be zero.
        pub reserved: u32,
        /// Where the row table lies: register blocks, one after the other.
        pub registers: Range,
    }
}

wire_struct! {
    /// Body of `Run`.
    pub struct Run [32 bytes] {
        /// Where the program block lies.
        pub block: Range,
        /// Where the row table lies: register blocks, one after the other.
        pub registers: Range,
    }
}

wire_struct! {
    /// Body of `Unload`.
    pub struct Unload [4 bytes] {
        /// The program to forget.
        pub program: ProgramId,
    }
}

wire_struct! {
    /// Body of `Probe`.
    #[derive(Default)]
    pub struct Probe [24 bytes] {
        /// A [`Question`].
        pub question: u32,
        /// Number that goes with the question: see [`Question`].
        pub number: u32,
        /// Memory that the question is about; all zero where it is about none.
        pub data: Range,
    }
}

impl Probe {
    /// The question, once what it says about numbers and bytes holds. Whether there is such a range, and
    /// whether VTCM has room for it, is not checked here.
    ///
    /// # Errors
    /// [`ErrorCode::BadParam`] with 0 for an unknown question, 1 for its number and 2 for the bytes of its
    /// data; [`ErrorCode::Misaligned`] with the low word of the offset.
    pub fn question(&self) -> Result<Question, Fault> {
        let bad = |field| Fault::new(ErrorCode::BadParam, field);
        let question = Question::parse(self.question).ok_or(bad(0))?;
        if !question.takes_number(self.number) {
            return Err(bad(1));
        }
        let sound = match question {
            // No other range means nothing.
            Question::Packets => self.data == Range::default(),
            _ => question.takes_bytes(self.number, self.data.len),
        };
        if !sound {
            return Err(bad(2));
        }
        if !self.data.offset.is_multiple_of(crate::VECTOR_BYTES as u64) {
            return Err(Fault::new(ErrorCode::Misaligned, self.data.offset as u32));
        }
        Ok(question)
    }
}

/// A request, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Compare ABIs.
    Ping(Ping),
    /// Map a buffer.
    Map(Map),
    /// Drop a mapping.
    Unmap(Unmap),
    /// Validate and keep a program.
    Load(Load),
    /// Run a kept program.
    Exec(Exec),
    /// Validate and run once.
    Run(Run),
    /// Forget a program.
    Unload(Unload),
    /// Ask what no program tells.
    Probe(Probe),
}

impl Message {
    /// The kind that goes with the body.
    pub const fn kind(&self) -> MessageKind {
        match self {
            Self::Ping(_) => MessageKind::Ping,
            Self::Map(_) => MessageKind::Map,
            Self::Unmap(_) => MessageKind::Unmap,
            Self::Load(_) => MessageKind::Load,
            Self::Exec(_) => MessageKind::Exec,
            Self::Run(_) => MessageKind::Run,
            Self::Unload(_) => MessageKind::Unload,
            Self::Probe(_) => MessageKind::Probe,
        }
    }

    /// The request that carries this message.
    pub fn encode(&self, seq: Seq) -> Request {
        let mut body = [0; BODY_BYTES];
        let bytes = match self {
            Self::Ping(b) => b.as_bytes(),
            Self::Map(b) => b.as_bytes(),
            Self::Unmap(b) => b.as_bytes(),
            Self::Load(b) => b.as_bytes(),
            Self::Exec(b) => b.as_bytes(),
            Self::Run(b) => b.as_bytes(),
            Self::Unload(b) => b.as_bytes(),
            Self::Probe(b) => b.as_bytes(),
        };
        body[..bytes.len()].copy_from_slice(bytes);
        Request { seq, kind: self.kind().wire(), reserved: 0, body }
    }

    /// Decodes a request: kind known, reserved bytes zero. Nothing else is checked here.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownMessage`] or [`ErrorCode::ReservedNotZero`].
    pub fn decode(request: &Request) -> Result<Self, Fault> {
        let kind =
            MessageKind::parse(request.kind).ok_or(Fault::new(ErrorCode::UnknownMessage, request.kind))?;
        if request.reserved != 0 {
            return Err(Fault::new(ErrorCode::ReservedNotZero, request.reserved));
        }
        let message = match kind {
            MessageKind::Ping => Self::Ping(body(request)?),
            MessageKind::Map => {
                let map: Map = body(request)?;
                zero(map.reserved)?;
                Self::Map(map)
            }
            MessageKind::Unmap => Self::Unmap(body(request)?),
            MessageKind::Load => {
                let load: Load = body(request)?;
                zero(load.reserved)?;
                Self::Load(load)
            }
            MessageKind::Exec => {
                let exec: Exec = body(request)?;
                zero(exec.reserved)?;
                Self::Exec(exec)
            }
            MessageKind::Run => Self::Run(body(request)?),
            MessageKind::Unload => Self::Unload(body(request)?),
            MessageKind::Probe => Self::Probe(body(request)?),
        };
        Ok(message)
    }
}

fn zero(reserved: u32) -> Result<(), Fault> {
    if reserved == 0 { Ok(()) } else { Err(Fault::new(ErrorCode::ReservedNotZero, reserved)) }
}

fn body<T: FromBytes>(request: &Request) -> Result<T, Fault> {
    let (head, tail) = request.body.split_at(size_of::<T>());
    if let Some(i) = tail.iter().position(|&b| b != 0) {
        return Err(Fault::new(ErrorCode::ReservedNotZero, (size_of::<T>() + i) as u32));
    }
    T::read_from_bytes(head).map_err(|_| Fault::new(ErrorCode::BadMessage, head.len() as u32))
}

wire_struct! {
    /// A response as it crosses the queue: 64 bytes.
    pub struct Response [64 bytes] {
        /// Sequence number of the request.
        pub seq: Seq,
        /// A [`Status`].
        pub status: u32,
        /// An [`ErrorCode`], or zero when the status is `Ok`.
        pub code: u32,
        /// The op at fault, or `u32::MAX`.
        pub op: u32,
        /// Detail word of the code.
        pub detail: u32,
        /// Nanoseconds between reading the request and writing the response.
        pub elapsed_ns: u64,
        /// Bytes that the DMA engines moved.
        pub dma_bytes: u64,
        /// Answer of `Ping` (see [`PingInfo`]) and of `Probe` (see [`Answer`]); of `Exec` and `Run` what each
        /// part of the program cost, 2^32 - 1 at most: nanoseconds, on an emulator packets; zero otherwise.
        pub info: [u32; 6],
    }
}
const _: () = assert!(crate::program::PARTS == 6);

wire_enum! {
    /// A session's knowledge of the processor's matrix unit (HMX).
    pub enum MatrixUnit: u16 {
        /// There is none, or it was not asked for.
        None = 0 "none",
        /// There is one, and it has passed its test.
        Works = 1 "works",
        /// There is one, and it has failed its test: programs that need it are refused.
        Failed = 2 "failed its test",
    }
}

wire_struct! {
    /// A session's answer to `Ping`, about itself.
    pub struct PingInfo [24 bytes] {
        /// [`ABI_VERSION`] of the DSP side.
        pub abi_version: u32,
        /// Low word of its [`LAYOUT_HASH`].
        pub layout_hash_low: u32,
        /// Threads that run kernels.
        pub n_threads: u32,
        /// Bytes of VTCM.
        pub vtcm_bytes: u32,
        /// Hexagon architecture (0x73, 0x75, ...), 0 on the host's own processor.
        pub arch: u16,
        /// The matrix unit: see [`MatrixUnit`].
        pub matrix_unit: u16,
        /// Bytes of the program arena.
        pub arena_bytes: u32,
    }
}

wire_struct! {
    /// A session's answer to `Probe`.
    pub struct Answer [24 bytes] {
        /// An [`Outcome`](crate::probe::Outcome).
        pub outcome: u32,
        /// Words that the question asks for: see [`Question`]; zero where there is no answer.
        pub words: [u32; ANSWER_WORDS],
    }
}

impl Response {
    /// A success with nothing to add.
    pub const fn ok(seq: Seq) -> Self {
        Self {
            seq,
            status: Status::Ok.wire(),
            code: 0,
            op: u32::MAX,
            detail: 0,
            elapsed_ns: 0,
            dma_bytes: 0,
            info: [0; 6],
        }
    }

    /// A failure.
    pub const fn fault(seq: Seq, status: Status, fault: Fault) -> Self {
        let mut response = Self::ok(seq);
        response.status = status.wire();
        response.code = fault.code.wire();
        response.op = fault.op.0;
        response.detail = fault.detail;
        response
    }

    /// The outcome that the response states: success, or the status and the fault.
    ///
    /// A response whose status or code is not in the closed lists, or that succeeds with a code, is itself a
    /// fault ([`Status::Fatal`], [`ErrorCode::BadMessage`] with the offending word): its sender is not to be
    /// trusted.
    pub fn outcome(&self) -> Result<(), (Status, Fault)> {
        let bad = |word| Err((Status::Fatal, Fault::new(ErrorCode::BadMessage, word)));
        match (Status::parse(self.status), ErrorCode::parse(self.code)) {
            (None, _) => bad(self.status),
            (Some(Status::Ok), _) if self.code == 0 => Ok(()),
            (Some(Status::Ok), _) | (_, None) => bad(self.code),
            (Some(status), Some(code)) => {
                Err((status, Fault { op: crate::OpIndex(self.op), code, detail: self.detail }))
            }
        }
    }

    /// The answer of a `Ping`.
    pub fn ping_info(&self) -> PingInfo {
        zerocopy::transmute!(self.info)
    }

    /// The answer of a `Probe`.
    pub fn answer(&self) -> Answer {
        zerocopy::transmute!(self.info)
    }
}
