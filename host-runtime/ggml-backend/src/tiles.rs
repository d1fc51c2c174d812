//! Weights in tiles: put there when the host writes them, and given back as they were.
//!
//! The bytes that the host wrote are not kept, which would take the memory of every model twice. Tiles hold
//! all bits of ggml's blocks, each at a place of its own. Where a bit lies is found by asking: a block with
//! one bit set, packed, differs from a packed block of zeros in the bits that depend on it ([`Inverse`]). So
//! there is one description of the layouts, the code that packs, and a test that what comes back is what was
//! packed.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use hexflash::device::SharedMemory;
use hexflash::gguf::GgmlType;
use hexflash::weights::tiles::{pack_strip, tile_dtype};
use hexflash_abi::DType;
use hexflash_abi::dtype::{TILE_ROWS, TileGroup};

use crate::runtime::lock;
use crate::translate::TileJob;

/// The group of a type's tiles.
fn group_of(ty: GgmlType) -> Option<TileGroup> {
    tile_dtype(ty).and_then(DType::tile_group)
}

/// Packs the matrices of a job.
pub fn pack(job: &TileJob, from: &SharedMemory, to: &SharedMemory) {
    let Some(group) = group_of(job.ty) else { return };
    let [k, n, r2, r3] = job.ne.map(|n| n as usize);
    let row = k / job.ty.block_len() as usize * job.ty.block_bytes() as usize;
    let mut rows = vec![0; row * TILE_ROWS];
    let mut strip = vec![0; group.strip_bytes(k)];
    let mut at = job.at as usize;
    for i in 0..r2 * r3 {
        let matrix = job.from.offset + (i % r2) as u64 * job.nb[2] + (i / r2) as u64 * job.nb[3];
        for first in (0..n).step_by(TILE_ROWS) {
            let count = TILE_ROWS.min(n - first);
            for (r, bytes) in rows.chunks_exact_mut(row).take(count).enumerate() {
                from.read((matrix + (first + r) as u64 * job.nb[1]) as usize, bytes);
            }
            let rows: Vec<&[u8]> = rows.chunks_exact(row).take(count).collect();
            // What is not finite stays so, and so do products with it, as in ggml.
            pack_strip(job.ty, k, &rows, &mut strip);
            to.write(at, &strip);
            at += strip.len();
        }
    }
}

/// A tensor in a buffer of tiles.
#[derive(Clone, Copy, Debug)]
pub struct Tiled {
    /// Its type.
    pub ty: GgmlType,
    /// Elements of a row.
    pub k: usize,
    /// Rows of a matrix.
    pub n: usize,
    /// Its first byte in the buffer.
    pub at: usize,
}

impl Tiled {
    /// Bytes of a row as ggml has it.
    pub fn row_bytes(&self) -> usize {
        self.k / self.ty.block_len() as usize * self.ty.block_bytes() as usize
    }

    /// Reads `out.len()` bytes from byte `offset` of the tensor as ggml has it.
    pub fn read(&self, memory: &SharedMemory, offset: usize, out: &mut [u8]) {
        let Some(mut strip) = Strip::of(self) else { return };
        let mut done = 0;
        while done < out.len() {
            let part = self.part(offset + done, out.len() - done);
            strip.load(memory, self, &part);
            let bytes = part.bytes.len();
            out[done..][..bytes].copy_from_slice(&strip.rows[part.bytes]);
            done += bytes;
        }
    }

    /// Writes bytes from byte `offset` of the tensor as ggml has it.
    pub fn write(&self, memory: &SharedMemory, offset: usize, data: &[u8]) {
        let Some(mut strip) = Strip::of(self) else { return };
        let row = self.row_bytes();
        let mut done = 0;
        while done < data.len() {
            let part = self.part(offset + done, data.len() - done);
            let bytes = part.bytes.len();
            if bytes < part.rows * row {
                strip.load(memory, self, &part);
            }
            strip.rows[part.bytes.clone()].copy_from_slice(&data[done..][..bytes]);
            let rows: Vec<&[u8]> = strip.rows.chunks_exact(row).take(part.rows).collect();
            // What is not finite stays so, and so do products with it, as in ggml.
            pack_strip(self.ty, self.k, &rows, &mut strip.tiles);
            memory.write(self.at + part.strip * strip.tiles.len(), &strip.tiles);
            done += bytes;
        }
    }

    /// What of at most `bytes` bytes from byte `position` on is in one strip.
    fn part(&self, position: usize, bytes: usize) -> Part {
        let row = self.row_bytes();
        let (matrix, line) = (position / row / self.n, position / row % self.n);
        let first = line / TILE_ROWS * TILE_ROWS;
        let rows = TILE_ROWS.min(self.n - first);
        let from = position - (matrix * self.n + first) * row;
        let to = (rows * row).min(from + bytes);
        Part { strip: matrix * self.n.div_ceil(TILE_ROWS) + line / TILE_ROWS, rows, bytes: from..to }
    }
}

/// A part of a tensor within a strip.
struct Part {
    /// Number of the strip.
    strip: usize,
    /// Rows of the strip.
    rows: usize,
    /// Bytes of these rows.
    bytes: Range<usize>,
}

/// A strip in both forms.
struct Strip {
    inverse: Arc<Inverse>,
    tiles: Vec<u8>,
    rows: Vec<u8>,
}

impl Strip {
    /// Room for a strip of a tensor; `None` for types without tiles, which such buffers do not hold.
    fn of(tensor: &Tiled) -> Option<Self> {
        let group = group_of(tensor.ty)?;
        let tiles = vec![0; group.strip_bytes(tensor.k)];
        Some(Self { inverse: Inverse::of(tensor.ty)?, tiles, rows: vec![0; tensor.row_bytes() * TILE_ROWS] })
    }

    /// Brings the strip that a part is in.
    fn load(&mut self, memory: &SharedMemory, tensor: &Tiled, part: &Part) {
        memory.read(tensor.at + part.strip * self.tiles.len(), &mut self.tiles);
        let rows = self.rows.chunks_exact_mut(tensor.row_bytes()).take(part.rows);
        rows.enumerate().for_each(|(r, row)| self.inverse.unpack(&self.tiles, r, row));
    }
}

/// Where the bits of a type's blocks lie in tiles.
struct Inverse {
    group: TileGroup,
    /// Bytes of a row in a group.
    bytes: usize,
    /// By bit of these bytes: the number of a bit of the group, in lane 0, and what it is where the bit is 0.
    places: Vec<(usize, bool)>,
}

/// Bits of a lane in a vector.
const LANE_BITS: usize = 32;

impl Inverse {
    /// The inverse of a type's packing, made once; `None` for types without tiles.
    fn of(ty: GgmlType) -> Option<Arc<Self>> {
        static KNOWN: Mutex<Vec<(GgmlType, Arc<Inverse>)>> = Mutex::new(Vec::new());
        let mut known = lock(&KNOWN);
        if let Some((_, inverse)) = known.iter().find(|(other, _)| *other == ty) {
            return Some(Arc::clone(inverse));
        }
        let inverse = Arc::new(Self::find(ty, group_of(ty)?));
        known.push((ty, Arc::clone(&inverse)));
        Some(inverse)
    }

    fn find(ty: GgmlType, group: TileGroup) -> Self {
        let bytes = group.k / ty.block_len() as usize * ty.block_bytes() as usize;
        let packed = |row: &[u8]| {
            let mut strip = vec![0; group.bytes];
            pack_strip(ty, group.k, &[row], &mut strip);
            strip
        };
        let mut row = vec![0; bytes];
        let zero = packed(&row);
        let places = (0..8 * bytes).map(|bit| {
            row[bit / 8] = 1 << (bit % 8);
            let one = packed(&row);
            row[bit / 8] = 0;
            // Where no bit depends on it (a test sees to that), the first one is as good as any.
            let byte = zero.iter().zip(&one).position(|(a, b)| a != b).unwrap_or(0);
            let place = 8 * byte + ((zero[byte] ^ one[byte]).trailing_zeros() as usize).min(7);
            (place, zero[place / 8] >> (place % 8) & 1 == 1)
        });
        Self { group, bytes, places: places.collect() }
    }

    /// Row `r` of a strip, as ggml has it.
    fn unpack(&self, strip: &[u8], r: usize, row: &mut [u8]) {
        for (part, group) in row.chunks_mut(self.bytes).zip(strip.chunks_exact(self.group.bytes)) {
            for (byte, places) in part.iter_mut().zip(self.places.chunks_exact(8)) {
                *byte = places.iter().rev().fold(0, |byte, &(place, zero)| {
                    let place = place + r * LANE_BITS;
                    byte << 1 | u8::from((group[place / 8] >> (place % 8) & 1 == 1) != zero)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hexflash::device::{DeviceOptions, open};
    use hexflash::weights::tiles::TILED;

    use super::*;

    /// Bytes that repeat nowhere.
    fn random(n: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn weights_come_back_as_they_were_written() {
        let mut device = open("inproc", &DeviceOptions::default()).unwrap();
        for (i, &ty) in TILED.iter().enumerate() {
            // A whole strip and a part of one; whole groups and a part of one, where blocks are shorter.
            let (k, n, matrices, at) = (256 + ty.block_len() as usize, 43, 2, 256);
            let tensor = Tiled { ty, k, n, at };
            let group = group_of(ty).unwrap();
            let bytes = matrices * group.matrix_bytes(k, n);
            let buffer = device.allocate((at + bytes) as u64).unwrap();
            let mut wanted = random(matrices * n * tensor.row_bytes(), i as u64);
            tensor.write(&buffer.memory, 0, &wanted);
            let mut found = vec![0; wanted.len()];
            tensor.read(&buffer.memory, 0, &mut found);
            assert!(found == wanted, "{ty}");
            // Parts that begin and end anywhere.
            for (offset, len) in [(3, 5), (tensor.row_bytes() * 31 + 1, tensor.row_bytes() * 20)] {
                let part = random(len, offset as u64);
                tensor.write(&buffer.memory, offset, &part);
                wanted[offset..][..len].copy_from_slice(&part);
                let mut some = vec![0; len];
                tensor.read(&buffer.memory, offset, &mut some);
                assert!(some == part, "{ty}");
            }
            tensor.read(&buffer.memory, 0, &mut found);
            assert!(found == wanted, "{ty}");
            device.free(buffer).unwrap();
        }
    }
}
