//! How a message ended: a status, and on failure the op, a code from a closed list and one detail word.

use crate::ids::OpIndex;

wire_enum! {
    /// First answer of a response. Success is not zero, so that zeroed memory never reads as success.
    pub enum Status: u32 {
        /// Done.
        Ok = 1 "ok",
        /// The message was refused before anything ran: the host sent something invalid.
        Refused = 2 "refused",
        /// An op failed while the program ran; the ops after it did not run.
        Failed = 3 "failed",
        /// The session cannot go on; it must be closed.
        Fatal = 4 "fatal",
    }
}

wire_enum! {
    /// Why a message was refused or failed. The detail word's meaning is given per code.
    pub enum ErrorCode: u32 {
        /// Not a message of this ABI. Detail: its length in bytes.
        BadMessage = 1 "malformed message",
        /// Unknown message kind. Detail: the kind.
        UnknownMessage = 2 "unknown message kind",
        /// Magic word differs. Detail: what was found.
        BadMagic = 3 "bad magic",
        /// The two sides were built for different ABI versions. Detail: the other side's version.
        AbiVersion = 4 "ABI version mismatch",
        /// Same version, other layout. Detail: low word of the other side's hash.
        LayoutHash = 5 "ABI layout mismatch",
        /// A reserved field is not zero. Detail: its value or index.
        ReservedNotZero = 6 "reserved field is not zero",
        /// Buffer id out of range or not mapped. Detail: the id.
        UnknownBuffer = 7 "unknown buffer",
        /// Buffer id is in use already. Detail: the id.
        BufferInUse = 8 "buffer id in use",
        /// A loaded program still refers to the buffer. Detail: the program's id.
        BufferBusy = 9 "buffer still used by a loaded program",
        /// The platform could not map the memory. Detail: the platform's error.
        MapFailed = 10 "mapping failed",
        /// A range does not fit its buffer. Detail: index of the range's tensor, or the buffer's id.
        OutOfBounds = 11 "range outside its buffer",
        /// An offset or a stride is not aligned. Detail: tensor index or offset.
        Misaligned = 12 "misaligned",
        /// Program id out of range or not loaded. Detail: the id.
        UnknownProgram = 13 "unknown program",
        /// Program id is loaded already. Detail: the id.
        ProgramInUse = 14 "program id in use",
        /// The program arena is full. Detail: bytes that were needed.
        ProgramTooLarge = 15 "program does not fit the arena",
        /// A count in the program header is wrong or its arrays do not fit, or the program does not take so
        /// many register blocks. Detail: the count.
        BadCount = 16 "bad count",
        /// Unknown opcode. Detail: the opcode.
        UnknownOp = 17 "unknown op",
        /// Unknown element type. Detail: the type.
        UnknownType = 18 "unknown element type",
        /// Tensor index outside the tensor array. Detail: the index.
        BadTensorIndex = 19 "tensor index out of range",
        /// A required operand is absent, or one is given that the op does not take. Detail: operand number.
        BadOperand = 20 "operand missing or unexpected",
        /// Operand has a type that the op does not take. Detail: operand number (outputs count from 16).
        BadType = 21 "operand has an unsupported type",
        /// Operand has a shape that the op does not take. Detail: operand number (outputs count from 16).
        BadShape = 22 "operand has an unsupported shape",
        /// Strides are not what the op can read. Detail: operand number (outputs count from 16).
        BadStride = 23 "operand has unsupported strides",
        /// A parameter is out of range. Detail: parameter index.
        BadParam = 24 "parameter out of range",
        /// An output overlaps another operand in a way the op does not allow. Detail: operand number.
        BadAlias = 25 "output overlaps another operand",
        /// An op writes a tensor that is marked constant, or a buffer that is read-only. Detail: operand
        /// number.
        WriteToConst = 26 "write to constant memory",
        /// The op cannot be laid out in this VTCM. Detail: bytes needed.
        VtcmTooSmall = 27 "VTCM too small for the op",
        /// A step register is outside its bounds. Detail: the register's number.
        BadRegister = 28 "step register out of bounds",
        /// The id of a token, a row or an expert that was read from memory is out of range. Detail: the id.
        BadRowIndex = 29 "row index out of range",
        /// A DMA transfer failed. Detail: the engine's status word.
        DmaError = 30 "DMA transfer failed",
        /// A DMA transfer did not end in time. Detail: microseconds waited.
        DmaTimeout = 31 "DMA transfer timed out",
        /// Code that should be unreachable was reached. Detail: source line.
        Internal = 32 "internal error",
        /// Another client of the device holds VTCM and did not give it back in time. Detail: microseconds
        /// waited.
        VtcmBusy = 33 "VTCM is held by another client",
        /// A result is infinite or no number at all, so that whatever followed from it would be made up:
        /// weights or memory are damaged. Detail: 1 if the op's result was the first such, 0 if that may have
        /// been one before it.
        NotFinite = 34 "a value is infinite or not a number",
        /// The numerics class in the program header is none. Detail: what was found.
        BadNumerics = 35 "unknown numerics class",
        /// The op is one for the matrix unit, and the session lends none: the processor has none, it is
        /// another program's, or it failed its test. Detail: 0.
        NoMatrixUnit = 36 "no matrix unit",
    }
}

/// The meaning of a fault's detail word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The number of an operand of the op: see [`OpSpec::operand`](crate::op::OpSpec::operand). Without an
    /// op, the index of a tensor or the id of a buffer.
    Operand,
    /// A word of the op's parameters: see [`OpSpec::field`](crate::op::OpSpec::field).
    Parameter,
    /// The number of a [`Register`](crate::registers::Register).
    Register,
    /// A number of what is named here.
    Number(&'static str),
    /// A number with a sign.
    Signed(&'static str),
    /// Bits, for people to read in hexadecimal.
    Bits(&'static str),
}

impl ErrorCode {
    /// The meaning of this code's detail word.
    pub const fn detail(self) -> Detail {
        match self {
            Self::BadOperand
            | Self::BadType
            | Self::BadShape
            | Self::BadStride
            | Self::BadAlias
            | Self::WriteToConst => Detail::Operand,
            Self::BadParam => Detail::Parameter,
            Self::BadRegister => Detail::Register,
            Self::BadMagic | Self::LayoutHash => Detail::Bits("found"),
            Self::DmaError => Detail::Bits("status"),
            Self::MapFailed => Detail::Signed("error"),
            Self::BadRowIndex => Detail::Signed("row"),
            Self::BadMessage | Self::BadNumerics => Detail::Number("found"),
            Self::UnknownMessage => Detail::Number("kind"),
            Self::AbiVersion => Detail::Number("version"),
            Self::ReservedNotZero => Detail::Number("value or index"),
            Self::UnknownBuffer | Self::BufferInUse => Detail::Number("buffer"),
            Self::BufferBusy | Self::UnknownProgram | Self::ProgramInUse => Detail::Number("program"),
            Self::OutOfBounds => Detail::Number("tensor or buffer"),
            Self::Misaligned => Detail::Number("tensor or offset"),
            Self::ProgramTooLarge | Self::VtcmTooSmall => Detail::Number("bytes"),
            Self::BadCount => Detail::Number("count"),
            Self::UnknownOp => Detail::Number("opcode"),
            Self::UnknownType => Detail::Number("type"),
            Self::BadTensorIndex => Detail::Number("tensor"),
            Self::DmaTimeout | Self::VtcmBusy => Detail::Number("microseconds"),
            Self::Internal => Detail::Number("line"),
            Self::NotFinite => Detail::Number("known"),
            Self::NoMatrixUnit => Detail::Number("units"),
        }
    }
}

/// A fault, as the response carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The op concerned, or [`OpIndex::NONE`].
    pub op: OpIndex,
    /// The reason.
    pub code: ErrorCode,
    /// One word more, as [`ErrorCode`] describes.
    pub detail: u32,
}

impl Fault {
    /// A fault that concerns no single op.
    pub const fn new(code: ErrorCode, detail: u32) -> Self {
        Self { op: OpIndex::NONE, code, detail }
    }

    /// This fault, blamed on op `index`.
    pub const fn at(self, index: usize) -> Self {
        Self { op: OpIndex(index as u32), ..self }
    }
}

impl core::error::Error for Fault {}
