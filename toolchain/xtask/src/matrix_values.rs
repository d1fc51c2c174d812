//! Products of tiles: the emulator's matrix unit, through the layer that kernels use, against
//! [`hexflash_hvx_float::matrix`], bit for bit.
//!
//! The image for v73 multiplies random tiles and tiles of edge values (`IMAGE matrix`), under each version.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use hexflash_hvx_float::matrix::{Accumulator, Generation, Half, SIDE, VALUES};

use crate::failure::{Failure, Result};
use crate::hexagon::{self, Arch, Product};

/// Versions, and how they sum. The unit's words are the same for all, so that one image does.
const RUNS: [(&str, Generation); 4] =
    [("v73", Generation::V73), ("v75", Generation::V75), ("v79", Generation::V75), ("v81", Generation::V75)];
/// Records for each version, of 1 to 4 pairs of tiles.
const RECORDS: usize = 400;
const PAIRS: usize = 4;
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
            let a: [Half; SIDE] = std::array::from_fn(|k| Half::new(a[r / 2 * 64 + 2 * k + r % 2]));
            let w: [Half; SIDE] = std::array::from_fn(|k| Half::new(w[k / 2 * 64 + 2 * n + k % 2]));
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
    let toolchain = hexagon::toolchain(None)?;
    let file = hexagon::output_dir(root)?.join("matrix-values");
    let unusable = |error: std::io::Error| {
        Failure::unusable(format!("{} ({error})", file.display()), "see that there is room")
    };
    let image = hexagon::build(&toolchain, Arch::V73, Product::Image)?;
    for (cpu, generation) in RUNS {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let records: Vec<_> = (0..RECORDS).map(|number| Record::new(number, &mut random)).collect();
        let mut input = Vec::new();
        records.iter().for_each(|record| record.write(&mut input));
        fs::write(&file, input).map_err(unusable)?;
        let mut command = Command::new(emulator);
        command.env("QEMU_CPU", cpu).arg(&image).arg("matrix").stdin(File::open(&file).map_err(unusable)?);
        let output = command.output().map_err(unusable)?;
        if !output.status.success() || output.stdout.len() != RECORDS * TILE_BYTES {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::failed(
                format!("{cpu}: the program of the matrix unit ended with {}", output.status),
                format!("it said: {}", said.trim()),
            ));
        }
        let mut pairs = 0;
        for (number, (record, stored)) in
            records.iter().zip(output.stdout.chunks_exact(TILE_BYTES)).enumerate()
        {
            pairs += record.a.len();
            compare(number, record, generation, stored).map_err(|difference| {
                Failure::failed(
                    format!("{cpu}: the matrix unit of the emulator has another result: {difference}"),
                    "one of toolchain/qemu/patches, dsp-runtime/src/hmx and dsp-runtime/hvx-float is wrong",
                )
            })?;
        }
        println!("{cpu}: {pairs} pairs of tiles multiplied, {RECORDS} tiles stored, bit for bit");
    }
    Ok(())
}

fn compare(
    number: usize,
    record: &Record,
    generation: Generation,
    stored: &[u8],
) -> std::result::Result<(), String> {
    for r in 0..SIDE {
        for n in 0..SIDE {
            let at = 2 * (r / 2 * 64 + 2 * n + r % 2);
            let got = u16::from_le_bytes([stored[at], stored[at + 1]]);
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
    fn a_record_is_ten_tiles_and_its_result_a_product() {
        let mut random = Random(1);
        for number in 0..2 * KINDS.len() * KINDS.len() {
            let mut input = vec![0; 3];
            Record::new(number, &mut random).write(&mut input);
            assert_eq!(input.len(), 3 + 10 * TILE_BYTES);
            assert_eq!(usize::from(input[3]), 1 + number % PAIRS);
        }
        let tile = |half| -> Tile { Box::new([half; VALUES]) };
        // 64 products of 1 and 2, halved, and 3 more.
        let [a, w] = [0x3c00, 0x4000].map(|half| vec![tile(half), tile(half)]);
        let record = Record { a, w, table: [[0x3800, 0x4200]; SIDE] };
        assert_eq!(record.result(Generation::V75, 31, 0), 0x5430); // 67
    }
}
