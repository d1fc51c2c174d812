//! Products of tiles: the emulator's matrix unit, through the layer that kernels use, against
//! [`hexflash_hvx_float::matrix`], bit for bit, and against a product that others have [`recorded`].
//!
//! The image for v73 multiplies random tiles and tiles of edge values (`IMAGE matrix`), under each version.

mod recorded;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use hexflash_hvx_float::matrix::{Accumulator, Generation, Half, SIDE, VALUES};

use crate::arch::Arch;
use crate::failure::{Failure, Result};
use crate::hexagon::{self, Product};
use crate::toolchain::{self, Toolchain};

/// Versions, and how they sum. The unit's words are the same for all, so that one image does.
const RUNS: [(&str, Generation); 4] =
    [("v73", Generation::V73), ("v75", Generation::V75), ("v79", Generation::V75), ("v81", Generation::V75)];
/// Records for each version, of 1 to 6 pairs of tiles.
const RECORDS: usize = 400;
const PAIRS: usize = 6;
const TILE_BYTES: usize = 2 * VALUES;

type Tile = Box<[u16; VALUES]>;

/// A record of the image's input.
struct Record {
    a: Vec<Tile>,
    w: Vec<Tile>,
    /// Scale and bias of each column.
    table: [[u16; 2]; SIDE],
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators").
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// What the values of a tile are like.
#[derive(Clone, Copy)]
enum Kind {
    /// Any code, those of infinity and NaN included.
    Any,
    /// Numbers near 1, whose sums are rounded.
    Near,
    /// Subnormals and the smallest normals.
    Small,
    /// The largest: sums overflow.
    Large,
    /// Mostly zeros, of both signs.
    Sparse,
    /// Few significant bits: sums are exact, and often halfway between two halves.
    Round,
}

const KINDS: [Kind; 6] = [Kind::Any, Kind::Near, Kind::Small, Kind::Large, Kind::Sparse, Kind::Round];

impl Kind {
    fn half(self, random: &mut Random) -> u16 {
        let word = random.next();
        let (bits, other) = (word as u16, word >> 16);
        match self {
            Self::Any => bits,
            Self::Near => bits & 0x87ff | 0x3800,
            Self::Small => bits & 0x87ff,
            Self::Large => bits | 0x7000,
            Self::Sparse if other & 7 == 0 => bits,
            Self::Sparse => bits & 0x8000,
            Self::Round => bits & 0x8f00 | 0x3000,
        }
    }

    fn tile(self, random: &mut Random) -> Tile {
        let mut tile: Tile = Box::new([0; VALUES]);
        tile.fill_with(|| self.half(random));
        tile
    }
}

impl Record {
    fn new(number: usize, random: &mut Random) -> Self {
        let pairs = 1 + number % PAIRS;
        let kind = |n: usize| KINDS[n % KINDS.len()];
        let kinds = [kind(number), kind(number / KINDS.len())];
        let [mut a, mut w] = kinds.map(|kind| (0..pairs).map(|_| kind.tile(random)).collect::<Vec<_>>());
        if number.is_multiple_of(5) {
            // Every second k takes back what the one before it has added, but for one column.
            for (a, w) in a.iter_mut().zip(&mut w) {
                for i in (0..VALUES).filter(|i| i % 4 >= 2) {
                    a[i] = a[i - 2] ^ 0x8000;
                }
                for i in (0..VALUES).filter(|i| i % 2 == 1 && i % 64 != 9) {
                    w[i] = w[i - 1];
                }
            }
        }
        let table = std::array::from_fn(|_| match number % 3 {
            0 => [0x3c00, 0],
            1 => [Kind::Any.half(random), Kind::Near.half(random)],
            _ => [Kind::Near.half(random), Kind::Any.half(random)],
        });
        Self { a, w, table }
    }

    fn write(&self, to: &mut Vec<u8>) {
        let start = to.len();
        let mut end = start + TILE_BYTES;
        to.push(self.a.len() as u8);
        to.resize(end, 0);
        for tiles in [&self.a, &self.w] {
            to.extend(tiles.iter().flat_map(|tile| tile.iter()).flat_map(|half| half.to_le_bytes()));
            end += PAIRS * TILE_BYTES;
            to.resize(end, 0);
        }
        to.extend(self.table.iter().flatten().flat_map(|half| half.to_le_bytes()));
        to.resize(end + TILE_BYTES, 0);
    }

    /// What is stored in row r and column n.
    fn result(&self, generation: Generation, r: usize, n: usize) -> u16 {
        let mut sum = Accumulator::EMPTY;
        for (a, w) in self.a.iter().zip(&self.w) {
            let a: [Half; SIDE] = std::array::from_fn(|k| Half::new(a[place(r, k)]));
            let w: [Half; SIDE] = std::array::from_fn(|k| Half::new(w[place(k, n)]));
            for (a, w) in a.chunks(generation.group()).zip(w.chunks(generation.group())) {
                sum.add(generation, a, w);
            }
        }
        let [scale, bias] = self.table[n].map(Half::new);
        sum.store(scale, bias)
    }
}

/// Builds the image if need be, and compares.
pub fn check(root: &Path, emulator: &Path) -> Result<()> {
    let toolchain = Toolchain::wanted(None)?;
    let image = hexagon::build(&toolchain, Arch::V73, Product::Image)?;
    let input = toolchain::output_dir(root)?.join("matrix-values");
    let unit = Unit { emulator, image: &image, input: &input };
    let recorded_tile = recorded::read(root)?;
    let mut wrong = Vec::new();
    for (cpu, generation) in RUNS {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let records: Vec<_> = (0..RECORDS).map(|number| Record::new(number, &mut random)).collect();
        let mut pairs = 0;
        for (number, (record, stored)) in records.iter().zip(unit.multiply(cpu, &records)?).enumerate() {
            pairs += record.a.len();
            compare(number, record, generation, &stored).map_err(|difference| {
                Failure::failed(
                    format!("{cpu}: the matrix unit of the emulator has another result: {difference}"),
                    "one of toolchain/qemu/patches, dsp-runtime/src/hmx and dsp-runtime/hvx-float is wrong",
                )
            })?;
        }
        println!("{cpu}: {pairs} pairs of tiles multiplied, {RECORDS} tiles stored, bit for bit");
        for stored in unit.multiply(cpu, &[recorded::operands()])? {
            wrong.extend(recorded::differences(cpu, &recorded_tile, &stored));
        }
    }
    if wrong.is_empty() {
        println!("recorded by others: {VALUES} halves of a product of tiles, on each version the same");
        return Ok(());
    }
    wrong.iter().for_each(|line| eprintln!("{line}"));
    Err(Failure::failed(
        format!("{} recorded halves are not what the matrix unit of the emulator computes", wrong.len()),
        "the lines above name them; toolchain/qemu/recorded/hmx.txt says where they come from",
    ))
}

/// The matrix unit of the emulator, behind the image.
struct Unit<'a> {
    emulator: &'a Path,
    image: &'a Path,
    /// File for what the image reads.
    input: &'a Path,
}

impl Unit<'_> {
    /// The tile that each record stores, under a version.
    fn multiply(&self, cpu: &str, records: &[Record]) -> Result<Vec<Vec<u16>>> {
        let mut input = Vec::new();
        records.iter().for_each(|record| record.write(&mut input));
        let unusable = |error: std::io::Error| {
            Failure::unusable(format!("{} ({error})", self.input.display()), "see that there is room")
        };
        fs::write(self.input, input).map_err(unusable)?;
        let mut command = Command::new(self.emulator);
        command.env("QEMU_CPU", cpu).arg(self.image).arg("matrix");
        let output = command.stdin(File::open(self.input).map_err(unusable)?).output().map_err(unusable)?;
        if !output.status.success() || output.stdout.len() != records.len() * TILE_BYTES {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::failed(
                format!("{cpu}: the program of the matrix unit ended with {}", output.status),
                format!("it said: {}", said.trim()),
            ));
        }
        let halves = |tile: &[u8]| tile.chunks_exact(2).map(|x| u16::from_le_bytes([x[0], x[1]])).collect();
        Ok(output.stdout.chunks_exact(TILE_BYTES).map(halves).collect())
    }
}

/// Place of a value in a tile: two rows side by side.
const fn place(row: usize, column: usize) -> usize {
    row / 2 * (2 * SIDE) + 2 * column + row % 2
}

fn compare(
    number: usize,
    record: &Record,
    generation: Generation,
    stored: &[u16],
) -> std::result::Result<(), String> {
    for r in 0..SIDE {
        for n in 0..SIDE {
            let got = stored[place(r, n)];
            let want = record.result(generation, r, n);
            if got != want {
                return Err(format!("record {number}, row {r}, column {n}: {got:04x}, not {want:04x}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_fourteen_tiles_and_its_result_a_product() {
        let mut random = Random(1);
        for number in 0..2 * KINDS.len() * KINDS.len() {
            let mut input = vec![0; 3];
            Record::new(number, &mut random).write(&mut input);
            assert_eq!(input.len(), 3 + 14 * TILE_BYTES);
            assert_eq!(usize::from(input[3]), 1 + number % PAIRS);
        }
        let tile = |half| -> Tile { Box::new([half; VALUES]) };
        // 64 products of 1 and 2, halved, and 3 more.
        let [a, w] = [0x3c00, 0x4000].map(|half| vec![tile(half), tile(half)]);
        let record = Record { a, w, table: [[0x3800, 0x4200]; SIDE] };
        assert_eq!(record.result(Generation::V75, 31, 0), 0x5430); // 67
    }
}
