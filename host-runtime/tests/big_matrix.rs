//! A matrix of more than 4 GiB on `inproc`: its first row, its last one, and the one that lies 4 GiB behind
//! the first.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

#[path = "common/program.rs"]
mod program;

use std::ptr::NonNull;
use std::sync::Arc;

use hexflash::device::{self, DeviceOptions, Memory, Source};
use hexflash::record::{Recorder, packed_bytes};
use hexflash_abi::program::TensorFlags;
use hexflash_abi::{DType, Op};
use zerocopy::IntoBytes;

/// An embedding of 248,320 tokens in F32.
const NE: [u32; 4] = [5120, 248_320, 1, 1];

/// Zeros, of which only the pages that were written take memory.
struct Matrix {
    map: memmap2::MmapMut,
    base: NonNull<u8>,
}

// SAFETY: the pointer belongs to the map, which is Send and Sync; after `matrix` nobody writes.
unsafe impl Send for Matrix {}
// SAFETY: nothing is written through a shared reference.
unsafe impl Sync for Matrix {}

// SAFETY: an anonymous map is page-aligned, readable, does not move, and lives as long as the value.
unsafe impl Memory for Matrix {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn writable(&self) -> bool {
        false
    }
}

/// The matrix as weights, which a device of this process uses in place.
struct Weights(Arc<Matrix>);

impl Source for Weights {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn in_memory(&self) -> std::io::Result<Arc<dyn Memory>> {
        Ok(self.0.clone())
    }

    fn copy_to(&self, out: &mut [u8]) -> std::io::Result<()> {
        out.copy_from_slice(&self.0.map);
        Ok(())
    }
}

/// The matrix, with some values (row, column, value).
fn matrix(values: &[(usize, usize, f32)]) -> Matrix {
    let bytes = packed_bytes(DType::F32x32, NE).unwrap();
    assert!(bytes > u64::from(u32::MAX));
    let mut map = memmap2::MmapMut::map_anon(bytes as usize).unwrap();
    let strip = DType::F32x32.tile_group().unwrap().strip_bytes(NE[0] as usize);
    for &(row, column, value) in values {
        // Per column a vector of 32 rows.
        let at = row / 32 * strip + column * 128 + row % 32 * 4;
        map[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let base = NonNull::from(&mut map[..]).cast();
    Matrix { map, base }
}

#[test]
fn the_rows_of_a_matrix_of_five_gib() {
    let last = NE[1] - 1;
    let values = [(0, 0, 1.5), (0, 5119, 2.5), (last as usize, 7, 3.5), (last as usize, 5119, 4.5)];
    // The row that begins 2^32 bytes behind the first one is another one.
    let strip = DType::F32x32.tile_group().unwrap().strip_bytes(NE[0] as usize) as u64;
    let wrapped = u32::try_from((1u64 << 32) / strip).unwrap() * 32;

    let mut device =
        device::open("inproc", &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap();
    let weights = device.import(Arc::new(Weights(Arc::new(matrix(&values))))).unwrap();
    let (width, at) = (4 * u64::from(NE[0]), 128);
    let data = device.allocate(at + 3 * width).unwrap();
    let mut rec = Recorder::new(1, 1);
    let table = rec.tensor(weights.id, 0, DType::F32x32, NE, TensorFlags::CONST);
    let ids = rec.tensor(data.id, 0, DType::I32, [3, 1, 1, 1], TensorFlags::HOST_WRITES);
    let rows = rec.tensor(data.id, at, DType::F32, [NE[0], 3, 1, 1], TensorFlags::HOST_READS);
    rec.op(Op::GetRows, &[table, ids], rows);
    data.memory.write(0, [0, last, wrapped].as_bytes());
    program::run(&mut *device, rec, &weights, &data);

    let mut found = vec![0f32; 3 * NE[0] as usize];
    data.memory.read(at as usize, found.as_mut_bytes());
    let mut expected = vec![0f32; found.len()];
    for (row, column, value) in values {
        expected[if row == 0 { column } else { NE[0] as usize + column }] = value;
    }
    assert!(found == expected, "other rows");
}
