//! Small kernels, each as a program of one op.

use std::time::{Duration, Instant};

use hexflash_abi::message::{Message, Range, Run};
use hexflash_abi::program::{MAX_PARAMS, Numerics, TensorFlags};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{DType, Op, VECTOR_BYTES};
use zerocopy::{FromZeros, IntoBytes};

use super::table::OpVectors;
use crate::device::{Buffer, Device, DeviceError, MatrixUnit};
use crate::record::{Homes, RecordError, Recorder, Tensor, packed_bytes};

/// Bytes for a program and its registers: one op takes less than half of it.
const CONTROL: u64 = 4096;
/// Place of the registers in them.
const REGISTERS: usize = 2048;
/// Rows of the weights of a product.
const N: u32 = 32;
/// The half that all weights of a product are.
const ONE: u16 = 0x3c00;

/// Answer of a device that ran a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpAnswer {
    /// What the table has, or as near to it as it may be: so many units in the last place at most.
    Expected {
        /// The largest distance.
        ulps: u32,
    },
    /// Something else.
    Other {
        /// Place of the word that is farthest away.
        place: usize,
        /// The word.
        given: u32,
        /// That of the table.
        expected: u32,
        /// How far away it is.
        ulps: u32,
    },
    /// The device has no matrix unit.
    Absent,
}

impl std::fmt::Display for OpAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Expected { ulps: 0 } => f.write_str("as expected"),
            Self::Expected { ulps } => write!(f, "as expected, {ulps} units in the last place off"),
            Self::Other { place, given, expected, ulps } => {
                write!(
                    f,
                    "word {place} is {given:08x}, and not {expected:08x}: {ulps} units in the last place off"
                )
            }
            Self::Absent => f.write_str("no matrix unit"),
        }
    }
}

/// A kernel could not be run.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The program cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Distance of two floats in units of their last place; both zeros are one number.
pub fn distance(a: u32, b: u32) -> u32 {
    let key = |word: u32| {
        let magnitude = i64::from(word & 0x7fff_ffff);
        if word >> 31 == 1 { -magnitude } else { magnitude }
    };
    u32::try_from(key(a).abs_diff(key(b))).unwrap_or(u32::MAX)
}

/// Answer that the words of a result are.
pub fn verdict(vectors: &OpVectors, given: &[u32]) -> OpAnswer {
    // Halves of a word are compared as they are.
    let far = |given: u32, expected: u32| match vectors.ulps {
        0 => u32::from(given != expected),
        _ => distance(given, expected),
    };
    let words = vectors.gives.iter().enumerate();
    let worst = words.map(|(place, &expected)| {
        let given = given.get(place).copied().unwrap_or(!expected);
        (far(given, expected), place, given, expected)
    });
    match worst.max_by_key(|(far, place, ..)| (*far, std::cmp::Reverse(*place))) {
        Some((ulps, place, given, expected)) if ulps > vectors.ulps => {
            OpAnswer::Other { place, given, expected, ulps: distance(given, expected) }
        }
        Some((ulps, ..)) => OpAnswer::Expected { ulps },
        None => OpAnswer::Expected { ulps: 0 },
    }
}

/// Runs a kernel, and compares.
///
/// # Errors
/// [`KernelError`].
pub fn ask(device: &mut dyn Device, vectors: &OpVectors) -> Result<OpAnswer, KernelError> {
    let by_unit = vectors.way.ends_with("HMX");
    if by_unit && device.info().matrix_unit == MatrixUnit::None {
        return Ok(OpAnswer::Absent);
    }
    let mut program = OneOp::new(vectors.op);
    program.params.iter_mut().zip(&vectors.params).for_each(|(to, from)| *to = *from);
    let (from, to) = match vectors.way.as_str() {
        "f32 f16" => (DType::F32, DType::F16),
        "f16 f32" => (DType::F16, DType::F32),
        _ => (DType::F32, DType::F32),
    };
    let elements = |words: &[u32], dtype| (4 * words.len() / if dtype == DType::F16 { 2 } else { 4 }) as u32;
    let rows: Vec<_> =
        vectors.takes.iter().map(|row| (from, [elements(row, from), 1, 1, 1], bytes(row))).collect();
    if vectors.op == Op::MulMat {
        program.numerics = if by_unit { Numerics::Hmx } else { Numerics::Exact };
        let k = rows.first().map_or(0, |(_, [k, ..], _)| *k);
        program.sources.push(ones(k, N)?);
    }
    program.sources.extend(rows);
    program.result = (to, [elements(&vectors.gives, to), 1, 1, 1]);
    let loaded = program.load(device)?;
    loaded.run(device)?;
    let given = loaded.result();
    loaded.free(device)?;
    let words: Vec<u32> =
        given.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    Ok(verdict(vectors, &words))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A source of an op: type, extents, bytes.
type Source = (DType, [u32; 4], Vec<u8>);

/// Weights of ones, which are the same however they are laid out.
fn ones(k: u32, n: u32) -> Result<Source, RecordError> {
    let ne = [k, n, 1, 1];
    let halves = packed_bytes(DType::F16x32, ne)? as usize / 2;
    Ok((DType::F16x32, ne, ONE.to_le_bytes().repeat(halves)))
}

/// A program of one op, with what it reads.
struct OneOp {
    op: Op,
    params: [u32; MAX_PARAMS],
    numerics: Numerics,
    sources: Vec<Source>,
    result: (DType, [u32; 4]),
}

/// A program in the memory of a device, with what it reads and writes.
struct Loaded {
    data: Buffer,
    control: Buffer,
    message: Message,
    /// Place of the result in `data`.
    place: usize,
    /// Bytes of the result.
    bytes: usize,
}

impl OneOp {
    fn new(op: Op) -> Self {
        Self {
            op,
            params: [0; MAX_PARAMS],
            numerics: Numerics::Exact,
            sources: Vec::new(),
            result: (DType::F32, [1; 4]),
        }
    }

    /// Writes the program and all that it reads into memory of the device.
    fn load(&self, device: &mut dyn Device) -> Result<Loaded, KernelError> {
        let bytes = packed_bytes(self.result.0, self.result.1)? as usize;
        let mut places = Vec::new();
        let mut end = 0;
        for length in self.sources.iter().map(|(.., bytes)| bytes.len()).chain([bytes]) {
            places.push(end);
            end = (end + length).next_multiple_of(VECTOR_BYTES);
        }
        let (data, control) = (device.allocate(end as u64)?, device.allocate(CONTROL)?);
        for ((.., bytes), place) in self.sources.iter().zip(&places) {
            data.memory.write(*place, bytes);
        }
        let block = self.record(&data, &places)?;
        let registers = StepRegisters::new_zeroed().with(Register::NTokens, 1);
        control.memory.write(0, &block);
        control.memory.write(REGISTERS, registers.as_bytes());
        let range =
            |len: usize, offset: usize| Range { buffer: control.id, len: len as u32, offset: offset as u64 };
        let message = Message::Run(Run {
            block: range(block.len(), 0),
            registers: range(registers.as_bytes().len(), REGISTERS),
        });
        let place = places.last().copied().unwrap_or_default();
        Ok(Loaded { data, control, message, place, bytes })
    }

    /// Records the op over tensors at these places: the sources, and then the result.
    fn record(&self, data: &Buffer, places: &[usize]) -> Result<Vec<u8>, RecordError> {
        let mut recorder = Recorder::new(1, 1);
        recorder.numerics(self.numerics);
        let flags = TensorFlags::HOST_WRITES | TensorFlags::HOST_READS;
        let shapes = self.sources.iter().map(|(dtype, ne, _)| (*dtype, *ne)).chain([self.result]);
        let tensors: Vec<Tensor> = shapes
            .zip(places)
            .map(|((dtype, ne), &place)| recorder.tensor(data.id, place as u64, dtype, ne, flags))
            .collect();
        let (sources, result) = tensors.split_at(self.sources.len());
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        recorder.op_with(self.op, &sources, result, &self.params);
        let homes = Homes { activations: data.id, kept_at: 0, handed: data.id };
        let info = BufferInfo { size: data.memory.len() as u64, read_only: false };
        recorder.finish()?.block(0, &homes, |id| (id == data.id).then_some(info))
    }
}

impl Loaded {
    /// Runs the program.
    fn run(&self, device: &mut dyn Device) -> Result<(), DeviceError> {
        let patience = device.patience();
        device.call(&self.message, patience).map(drop)
    }

    /// The bytes of the result.
    fn result(&self) -> Vec<u8> {
        let mut given = vec![0; self.bytes];
        self.data.memory.read(self.place, &mut given);
        given
    }

    fn free(self, device: &mut dyn Device) -> Result<(), DeviceError> {
        device.free(self.data)?;
        device.free(self.control)
    }
}

/// Speed that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Bytes that a copy from memory to memory moves, by DMA where the device has engines.
    Copy,
    /// Products of one row with weights of halves, by vectors.
    Vectors,
    /// Products of many rows with weights of halves, by the matrix unit.
    MatrixUnit,
}

impl Speed {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Copy, Self::Vectors, Self::MatrixUnit];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Vectors => "vectors",
            Self::MatrixUnit => "matrix unit",
        }
    }

    /// The unit of what [`measure`] gives.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Copy => "GB/s",
            Self::Vectors | Self::MatrixUnit => "Gop/s",
        }
    }
}

/// Runs a kernel for at least `time`, of `scale` times the least work, and gives how many units of a billion
/// it does in a second; `None` where the device has no such unit.
///
/// # Errors
/// [`KernelError`].
pub fn measure(
    device: &mut dyn Device,
    speed: Speed,
    scale: u32,
    time: Duration,
) -> Result<Option<f64>, KernelError> {
    if speed == Speed::MatrixUnit && device.info().matrix_unit == MatrixUnit::None {
        return Ok(None);
    }
    let (k, n) = (32 * scale, 32 * scale);
    let mut program;
    let work = match speed {
        Speed::Copy => {
            program = OneOp::new(Op::Cpy);
            let ne = [k, n, 1, 1];
            program.sources.push((DType::F32, ne, vec![0; 4 * (k * n) as usize]));
            program.result = (DType::F32, ne);
            // Read and written.
            8.0 * f64::from(k) * f64::from(n)
        }
        Speed::Vectors | Speed::MatrixUnit => {
            let by_unit = speed == Speed::MatrixUnit;
            let rows = if by_unit { 32 } else { 1 };
            program = OneOp::new(Op::MulMat);
            program.numerics = if by_unit { Numerics::Hmx } else { Numerics::Exact };
            program.sources.push(ones(k, n)?);
            program.sources.push((DType::F32, [k, rows, 1, 1], vec![0; 4 * (k * rows) as usize]));
            program.result = (DType::F32, [n, rows, 1, 1]);
            2.0 * f64::from(k) * f64::from(n) * f64::from(rows)
        }
    };
    let loaded = program.load(device)?;
    loaded.run(device)?;
    let start = Instant::now();
    let mut times = 0_u32;
    while times == 0 || start.elapsed() < time {
        loaded.run(device)?;
        times += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    loaded.free(device)?;
    Ok(Some(work * f64::from(times) / seconds / 1e9))
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use crate::device::{DeviceOptions, open};

    #[test]
    fn distances_count_floats() {
        assert_eq!(distance(1.0_f32.to_bits(), 1.000_000_1_f32.to_bits()), 1);
        assert_eq!(distance(0, 0x8000_0000), 0);
        assert_eq!(distance(1, 0x8000_0001), 2);
    }

    #[test]
    fn inproc_gives_the_words_of_the_table() {
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut device = open("inproc", &options).unwrap();
        for vectors in Table::built_in().unwrap().ops {
            let answer = ask(&mut *device, &vectors).unwrap();
            assert!(matches!(answer, OpAnswer::Expected { .. }), "{}: {answer}", vectors.name());
        }
    }

    #[test]
    fn a_wrong_word_in_any_place_is_named() {
        for vectors in Table::built_in().unwrap().ops {
            for place in 0..vectors.gives.len() {
                let mut planted = vectors.clone();
                planted.gives[place] ^= 0x0001_0000;
                let found = verdict(&planted, &vectors.gives);
                assert!(matches!(found, OpAnswer::Other { place: named, .. } if named == place), "{found}");
            }
        }
    }

    #[test]
    fn speeds_are_measured() {
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut device = open("inproc", &options).unwrap();
        for speed in Speed::ALL {
            let measured = measure(&mut *device, speed, 2, Duration::ZERO).unwrap();
            assert!(measured.is_none_or(|speed| speed > 0.0), "{}: {measured:?}", speed.name());
        }
    }
}
