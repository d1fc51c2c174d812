//! The bytes on the wire: every enum value, a program block, registers. `messages.rs` has those of messages.

mod common;

use core::mem::{offset_of, size_of};
use std::path::Path;

use common::{Case, aligned};
use hexflash_abi::forms::{Form, Group};
use hexflash_abi::message::{
    Answer, BODY_BYTES, Exec, Load, Map, MapFlags, MessageKind, Ping, PingInfo, Probe, Range, Request,
    Response, Run, Unload, Unmap,
};
use hexflash_abi::op::Op;
use hexflash_abi::op::params::{self, Gating, GluKind, RopeMode, Visibility};
use hexflash_abi::probe::{Loop, Outcome, Question};
use hexflash_abi::program::{BufferRef, Numerics, OpDesc, PARTS, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::registers::{Halt, REGISTER_COUNT, Register, StepRegisters};
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{
    ABI_VERSION, BufferId, DType, ErrorCode, LAYOUT_HASH, MAGIC, OpIndex, Status, TensorIndex, accept,
};
use zerocopy::IntoBytes;

/// Pins the number and the name of every value, and that no other number parses.
macro_rules! pinned {
    ($test:ident, $enum:ident, $($variant:ident = $value:literal $name:literal,)+) => {
        #[test]
        fn $test() {
            let pinned = [$(($enum::$variant, $value, $name)),+];
            assert_eq!(pinned.len(), $enum::ALL.len(), "a value without a pin");
            for (value, wire, name) in pinned {
                assert_eq!((value.wire(), value.name(), $enum::parse(wire)), (wire, name, Some(value)));
            }
            let strangers = (0..=u16::MAX).filter(|&n| !pinned.iter().any(|&(_, wire, _)| wire == n.into()));
            assert!(strangers.into_iter().all(|n| $enum::parse(n.into()).is_none()));
        }
    };
}

pinned!(
    message_kinds,
    MessageKind,
    Ping = 1 "Ping",
    Map = 2 "Map",
    Unmap = 3 "Unmap",
    Load = 4 "Load",
    Exec = 5 "Exec",
    Run = 6 "Run",
    Unload = 7 "Unload",
    Probe = 8 "Probe",
);

pinned!(
    questions,
    Question,
    MatrixUnit = 1 "matrix unit",
    OneQueue = 2 "one queue",
    TwoQueues = 3 "two queues",
    Packets = 4 "packets",
);

pinned!(
    loops,
    Loop,
    Scalar = 1 "scalar",
    Vectors = 2 "vectors",
    Loads = 3 "vectors with loads",
);

pinned!(
    outcomes,
    Outcome,
    Answered = 1 "answered",
    NoMatrixUnit = 2 "no matrix unit",
    OneThread = 3 "no second thread",
    NoPackets = 4 "no packets",
);

pinned!(
    statuses,
    Status,
    Ok = 1 "ok",
    Refused = 2 "refused",
    Failed = 3 "failed",
    Fatal = 4 "fatal",
);

pinned!(
    dtypes,
    DType,
    F32 = 1 "F32",
    F16 = 2 "F16",
    I32 = 3 "I32",
    Q8Act = 4 "Q8_ACT",
    Q8_0 = 5 "Q8_0",
    F32x32 = 16 "F32x32",
    F16x32 = 17 "F16x32",
    Q8_0x32 = 18 "Q8_0x32",
    Q4_0x32 = 19 "Q4_0x32",
    Q6Kx32 = 20 "Q6_Kx32",
    BF16x32 = 21 "BF16x32",
    Q4_1x32 = 22 "Q4_1x32",
    Q5_0x32 = 23 "Q5_0x32",
    Q5_1x32 = 24 "Q5_1x32",
    Q2Kx32 = 25 "Q2_Kx32",
    Q3Kx32 = 26 "Q3_Kx32",
    Q4Kx32 = 27 "Q4_Kx32",
    Q5Kx32 = 28 "Q5_Kx32",
    IQ4NLx32 = 29 "IQ4_NLx32",
    IQ4XSx32 = 30 "IQ4_XSx32",
    MXFP4x32 = 31 "MXFP4x32",
    Q8_0Cache = 32 "Q8_0_CACHE",
    Q4RCache = 33 "Q4_R_CACHE",
    Q1_0x32 = 34 "Q1_0x32",
    Q2_0x32 = 35 "Q2_0x32",
);

pinned!(
    registers,
    Register,
    NPast = 0 "n_past",
    NTokens = 1 "n_tokens",
    NAccept = 2 "n_accept",
    NCommit = 3 "n_commit",
    NDraft = 4 "n_draft",
    DraftMax = 5 "draft_max",
    NLeft = 6 "n_left",
    Round = 7 "round",
    Halt = 8 "halt",
    Slot = 9 "slot",
    NOutput = 10 "n_output",
    Fold = 11 "fold",
    Snapshot = 12 "snapshot",
);

pinned!(
    halts,
    Halt,
    Running = 0 "running",
    Finished = 1 "finished",
    NoRoom = 2 "no room for a block",
);

pinned!(
    rope_modes,
    RopeMode,
    Norm = 0 "NORM",
    Neox = 2 "NEOX",
    Mrope = 8 "MROPE",
    Vision = 24 "VISION",
    Imrope = 40 "IMROPE",
);

pinned!(
    visibilities,
    Visibility,
    Causal = 1 "causal",
    Block = 2 "block",
    Past = 3 "past",
    Around = 4 "around",
);

pinned!(
    gatings,
    Gating,
    Softmax = 1 "softmax",
    Sigmoid = 2 "sigmoid",
    SoftmaxOfChosen = 3 "softmax of the chosen",
);

pinned!(
    glu_kinds,
    GluKind,
    Swiglu = 1 "SWIGLU",
    Geglu = 2 "GEGLU",
    SwigluOai = 3 "SWIGLU_OAI",
);

pinned!(
    numerics,
    Numerics,
    Exact = 1 "exact",
    Fast = 2 "fast",
    Hmx = 3 "hmx",
);

pinned!(
    ops,
    Op,
    RmsNorm = 1 "RMS_NORM",
    L2Norm = 2 "L2_NORM",
    MulMat = 3 "MUL_MAT",
    Quantize = 4 "QUANTIZE",
    GetRows = 5 "GET_ROWS",
    SetRows = 6 "SET_ROWS",
    Add = 7 "ADD",
    Mul = 8 "MUL",
    Scale = 9 "SCALE",
    Silu = 10 "SILU",
    Sigmoid = 11 "SIGMOID",
    Softplus = 12 "SOFTPLUS",
    Exp = 13 "EXP",
    Glu = 14 "GLU",
    Rope = 15 "ROPE",
    SsmConv = 16 "SSM_CONV",
    GatedDeltaNet = 17 "GATED_DELTA_NET",
    FlashAttnExt = 18 "FLASH_ATTN_EXT",
    Argmax = 19 "ARGMAX",
    Cpy = 20 "CPY",
    Concat = 21 "CONCAT",
    Accept = 22 "ACCEPT",
    SetTokens = 23 "SET_TOKENS",
    KvAppend = 24 "KV_APPEND",
    CopySlot = 25 "COPY_SLOT",
    MulMatId = 26 "MUL_MAT_ID",
    TopkMoe = 27 "TOPK_MOE",
    WeightedSum = 28 "WEIGHTED_SUM",
    AddId = 29 "ADD_ID",
    NextDraft = 30 "NEXT_DRAFT",
    Attend = 31 "ATTEND",
    Unary = 32 "UNARY",
    Div = 33 "DIV",
    Norm = 34 "NORM",
    SoftMax = 35 "SOFT_MAX",
    SumRows = 36 "SUM_ROWS",
    Argsort = 37 "ARGSORT",
);

pinned!(
    error_codes,
    ErrorCode,
    BadMessage = 1 "malformed message",
    UnknownMessage = 2 "unknown message kind",
    BadMagic = 3 "bad magic",
    AbiVersion = 4 "ABI version mismatch",
    LayoutHash = 5 "ABI layout mismatch",
    ReservedNotZero = 6 "reserved field is not zero",
    UnknownBuffer = 7 "unknown buffer",
    BufferInUse = 8 "buffer id in use",
    BufferBusy = 9 "buffer still used by a loaded program",
    MapFailed = 10 "mapping failed",
    OutOfBounds = 11 "range outside its buffer",
    Misaligned = 12 "misaligned",
    UnknownProgram = 13 "unknown program",
    ProgramInUse = 14 "program id in use",
    ProgramTooLarge = 15 "program does not fit the arena",
    BadCount = 16 "bad count",
    UnknownOp = 17 "unknown op",
    UnknownType = 18 "unknown element type",
    BadTensorIndex = 19 "tensor index out of range",
    BadOperand = 20 "operand missing or unexpected",
    BadType = 21 "operand has an unsupported type",
    BadShape = 22 "operand has an unsupported shape",
    BadStride = 23 "operand has unsupported strides",
    BadParam = 24 "parameter out of range",
    BadAlias = 25 "output overlaps another operand",
    WriteToConst = 26 "write to constant memory",
    VtcmTooSmall = 27 "VTCM too small for the op",
    BadRegister = 28 "step register out of bounds",
    BadRowIndex = 29 "row index out of range",
    DmaError = 30 "DMA transfer failed",
    DmaTimeout = 31 "DMA transfer timed out",
    Internal = 32 "internal error",
    VtcmBusy = 33 "VTCM is held by another client",
    NotFinite = 34 "a value is infinite or not a number",
    BadNumerics = 35 "unknown numerics class",
    NoMatrixUnit = 36 "no matrix unit",
);

pinned!(
    forms,
    Form,
    AddSf = 1 "sf=vadd(sf,sf)",
    SubSf = 2 "sf=vsub(sf,sf)",
    MpySf = 3 "sf=vmpy(sf,sf)",
    MpyAccSf = 4 "sf+=vmpy(hf,hf)",
    MpyHf = 5 "hf=vmpy(hf,hf)",
    CvtSfHf = 6 "sf=vcvt(hf)",
    CvtHfSf = 7 "hf=vcvt(sf,sf)",
    CvtHfB = 8 "hf=vcvt(b)",
    QfAddSf = 16 "qf32=vadd(sf,sf)",
    QfSubSf = 17 "qf32=vsub(sf,sf)",
    QfMpySf = 18 "qf32=vmpy(sf,sf)",
    QfMpyHf = 19 "qf32=vmpy(hf,hf)",
    HfOfQf = 20 "hf=qf32",
    MaxSf = 21 "sf=vmax(sf,sf)",
    MinSf = 22 "sf=vmin(sf,sf)",
    SfOfW = 23 "sf=w",
    HfOfH = 24 "hf=h",
    CopiedQf = 32 "copied qf32",
    SquaredQf = 33 "squared qf32",
    QfAddHf = 34 "qf16=vadd(hf,hf)",
);

pinned!(
    groups,
    Group,
    Sums = 1 "sums",
    Products = 2 "products",
    HalfProducts = 3 "half-products",
    Conversions = 4 "conversions",
    Bytes = 5 "bytes",
);

#[test]
fn flags() {
    assert_eq!(MapFlags::all().bits(), 1);
    assert_eq!(MapFlags::READ_ONLY.bits(), 1);
    assert_eq!(TensorFlags::all().bits(), 7);
    let flags = [TensorFlags::HOST_WRITES, TensorFlags::HOST_READS, TensorFlags::CONST];
    assert_eq!(flags.map(|f| f.bits()), [1, 2, 4]);
}

#[test]
fn constants() {
    assert_eq!(MAGIC.to_le_bytes(), *b"HXFL");
    assert_eq!(ABI_VERSION, 3);
    assert_eq!(TensorIndex::NONE, TensorIndex(0xffff));
    assert_eq!(OpIndex::NONE, OpIndex(0xffff_ffff));
}

/// Changes whenever a name, a size, an offset, a value or an operand does: then bump [`ABI_VERSION`], or know
/// that no build of this version is out.
#[test]
fn layout_hash() {
    assert_eq!(LAYOUT_HASH, PINNED_HASH);
}
const PINNED_HASH: u64 = 0xebe4_0e8b_3643_24d1;

/// Every type that a macro of `wire.rs` defines is a part of the hash. (That a change of any part changes it
/// is tested beside the macros.)
#[test]
fn the_layout_hash_has_every_wire_type() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = std::fs::read_to_string(root.join("lib.rs")).unwrap();
    let mut found = Vec::new();
    for folder in [root.clone(), root.join("op")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "rs") || path.ends_with("wire.rs") {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            for macro_call in ["wire_struct! {", "wire_enum! {", "wire_flags! {"] {
                for (at, _) in text.match_indices(macro_call) {
                    let definition =
                        text[at..].lines().map(str::trim).find(|line| line.starts_with("pub ")).unwrap();
                    let words: Vec<_> = definition.split([' ', ':']).collect();
                    found.push(words[2].to_owned());
                }
            }
        }
    }
    assert!(found.len() >= 28, "too few definitions found: {found:?}");
    let missing: Vec<_> =
        found.iter().filter(|name| !lib.contains(&format!("{name}::FINGERPRINT"))).collect();
    assert!(missing.is_empty(), "not in LAYOUT_HASH: {missing:?}");
}

#[test]
fn sizes_and_offsets() {
    let sizes = [
        size_of::<Request>(),
        size_of::<Response>(),
        size_of::<ProgramHeader>(),
        size_of::<BufferRef>(),
        size_of::<TensorDesc>(),
        size_of::<OpDesc>(),
        size_of::<StepRegisters>(),
        size_of::<Range>(),
    ];
    assert_eq!(sizes, [48, 64, 64, 8, 48, 96, 64, 16]);
    let bodies = [
        size_of::<Ping>(),
        size_of::<Map>(),
        size_of::<Unmap>(),
        size_of::<Load>(),
        size_of::<Exec>(),
        size_of::<Run>(),
        size_of::<Unload>(),
        size_of::<Probe>(),
        size_of::<PingInfo>(),
        size_of::<Answer>(),
    ];
    assert_eq!(bodies, [16, 24, 4, 24, 24, 32, 4, 24, 24, 24]);
    assert_eq!([offset_of!(Probe, number), offset_of!(Probe, data), offset_of!(Answer, words)], [4, 8, 4]);
    let params = [
        size_of::<params::Norm>(),
        size_of::<params::Scale>(),
        size_of::<params::Glu>(),
        size_of::<params::Rope>(),
        size_of::<params::FlashAttn>(),
        size_of::<params::Concat>(),
        size_of::<params::SsmConv>(),
        size_of::<params::DeltaNet>(),
        size_of::<params::Accept>(),
        size_of::<params::SetTokens>(),
        size_of::<params::CopySlot>(),
        size_of::<params::NextDraft>(),
    ];
    assert_eq!(params, [4, 8, 16, 60, 24, 4, 8, 8, 8, 8, 4, 8]);
    assert_eq!([offset_of!(Request, kind), offset_of!(Request, body), BODY_BYTES], [8, 16, 32]);
    assert_eq!([offset_of!(Response, status), offset_of!(Response, elapsed_ns)], [8, 24]);
    let header = [
        offset_of!(ProgramHeader, layout_hash),
        offset_of!(ProgramHeader, max_tokens),
        offset_of!(ProgramHeader, n_slots),
    ];
    assert_eq!(header, [8, 32, 44]);
    assert_eq!([offset_of!(TensorDesc, token_axis), offset_of!(TensorDesc, nb)], [12, 32]);
    assert_eq!(
        [
            offset_of!(OpDesc, part),
            offset_of!(OpDesc, src),
            offset_of!(OpDesc, dst),
            offset_of!(OpDesc, reserved2)
        ],
        [2, 4, 20, 28]
    );
    assert_eq!((REGISTER_COUNT, PARTS), (16, 6));
}

/// Two buffers, three tensors, two ops: SCALE of a cut tensor, then SILU in place, in the last part.
fn program() -> Case {
    let mut case = Case::new();
    let weights = case.buffer(4096, true);
    let (x, y) = (case.cut(1, DType::F32, [32, 4, 1, 1]), case.cut(1, DType::F32, [32, 4, 1, 1]));
    let unused = case.fixed(DType::F16x32, [32, 32, 1, 1]);
    let t = &mut case.tensors[usize::from(unused.0)];
    (t.buffer, t.offset, t.flags) = (weights, 2048, TensorFlags::CONST.bits());
    case.op(Op::Scale, &[x], &[y], &params::Scale { scale: 2.0, bias: -1.0 });
    case.op(Op::Silu, &[y], &[y], &[0u32; 0]);
    case.ops[1].part = 5;
    case
}

#[rustfmt::skip]
const PROGRAM: &[u8] = &[
    // header: magic, version, hash (see `PINNED_HASH`), bytes, buffers, tensors, ops, tokens, context,
    // numerics, slots, reserved
    b'H', b'X', b'F', b'L', 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0xa0, 1, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
    4, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // buffers: id, reserved
    10, 0, 0, 0, 0, 0, 0, 0,
    11, 0, 0, 0, 0, 0, 0, 0,
    // tensor 0: offset, buffer, type F32, token axis, flags, reserved; ne; nb
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0,
    32, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,
    4, 0, 0, 0, 128, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0,
    // tensor 1
    0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0,
    32, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,
    4, 0, 0, 0, 128, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0,
    // tensor 2: F16x32 (17), no token axis, CONST, in buffer 1
    0, 8, 0, 0, 0, 0, 0, 0, 1, 0, 17, 0, 0xff, 4, 0, 0,
    32, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,
    0, 8, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0,
    // op 0, SCALE: opcode, part, 8 inputs, 4 outputs, reserved; 16 words of parameters: 2.0, -1.0
    9, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
    0, 0, 0, 0x40, 0, 0, 0x80, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // op 1, SILU
    10, 0, 5, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn program_block() {
    let mut bytes = PROGRAM.to_vec();
    bytes[8..16].copy_from_slice(&PINNED_HASH.to_le_bytes());
    assert_eq!(program().block().as_bytes(), bytes);

    let block = aligned(&bytes);
    let parsed = Program::parse(block.as_bytes()).unwrap();
    assert_eq!((parsed.buffers.len(), parsed.tensors.len(), parsed.ops.len()), (2, 3, 2));
    assert_eq!(parsed.ops[0].params::<params::Scale>(), params::Scale { scale: 2.0, bias: -1.0 });
    let info = |id: BufferId| Some(BufferInfo { size: 4096, read_only: id == BufferId(11) });
    assert_eq!(parsed.check(info), Ok(()));
    assert_eq!(parsed.tensor(TensorIndex::NONE), None);
}

#[test]
fn another_layout_is_told_apart() {
    let mut case = program();
    case.header.layout_hash ^= 1;
    case.refused_early(ErrorCode::LayoutHash, (PINNED_HASH ^ 1) as u32);
    case.header.layout_hash = LAYOUT_HASH ^ 1 << 63;
    case.refused_early(ErrorCode::LayoutHash, PINNED_HASH as u32);
}

/// A round's report to the host: see `accept.rs`, and `dsp-runtime` for who fills it in.
#[test]
fn accept_rows() {
    assert_eq!([accept::ROUND, accept::DRAFTED, accept::EMITTED, accept::HALT], [0, 1, 2, 3]);
    assert_eq!((accept::HEAD, accept::REPORTS), (4, 2));
}

#[test]
fn register_block() {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&[0x34, 0x12, 0, 0, 4, 0, 0, 0]);
    let step = StepRegisters::step(0x1234, 4);
    assert_eq!(step.as_bytes(), bytes);
    assert_eq!((step.get(Register::NPast), step.get(Register::NTokens)), (0x1234, 4));
    // Every register is the word of its number.
    for &register in Register::ALL {
        bytes[4 * register as usize..][..4].copy_from_slice(&[register as u8, 0, 0, 0x80]);
    }
    let all = |block: StepRegisters, &r: &Register| block.with(r, 0x8000_0000 | r as u32);
    let block = Register::ALL.iter().fold(StepRegisters::default(), all);
    assert_eq!(block.as_bytes(), bytes);
    assert!(Register::ALL.iter().all(|&r| block.get(r) == 0x8000_0000 | r as u32));
}

#[test]
fn whatever_is_not_running_has_halted() {
    assert!(!StepRegisters::step(1, 1).halted());
    assert!(!StepRegisters::step(1, 1).with(Register::Halt, Halt::Running.wire()).halted());
    for halt in [Halt::Finished.wire(), Halt::NoRoom.wire(), 3, u32::MAX] {
        assert!(StepRegisters::step(1, 1).with(Register::Halt, halt).halted());
    }
}
