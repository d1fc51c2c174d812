//! Tiles mean what the blocks meant that they were packed from.

mod common;

use common::{TYPES, dequantize, random_rows, tile_value};
use hexflash::gguf::GgmlType;
use hexflash::weights::tiles::{TILED, pack_strip, tile_dtype, to_f32};
use hexflash_abi::DType;

/// Packs `n` rows of `k`, over memory that is dirty.
fn pack(ggml_type: GgmlType, k: usize, n: usize, data: &[u8]) -> Vec<u8> {
    let group = tile_dtype(ggml_type).and_then(DType::tile_group).unwrap();
    let mut strips = vec![0xa5; group.matrix_bytes(k, n)];
    let rows: Vec<&[u8]> = data.chunks_exact(data.len() / n).collect();
    for (rows, strip) in rows.chunks(32).zip(strips.chunks_exact_mut(group.strip_bytes(k))) {
        pack_strip(ggml_type, k, rows, strip);
    }
    strips
}

#[test]
fn every_value_survives() {
    for ggml_type in TYPES {
        let dtype = tile_dtype(ggml_type).unwrap();
        let lengths = match ggml_type.block_len() {
            1 => vec![1, 2, 3, 31, 32, 33, 64, 97],
            32 => vec![32, 64, 96, 128, 160, 256, 288],
            _ => vec![256, 512, 768],
        };
        for k in lengths {
            for n in [1, 8, 31, 32, 33, 64, 100] {
                let data = random_rows(ggml_type, k, n, (k * 1000 + n) as u64);
                let expected = dequantize(ggml_type, &data);
                let strips = pack(ggml_type, k, n, &data);
                for (i, e) in expected.into_iter().enumerate() {
                    let value = tile_value(dtype, &strips, k, i / k, i % k);
                    assert_eq!(
                        value.to_bits(),
                        e.to_bits(),
                        "{ggml_type} k={k} n={n} row {} k {}",
                        i / k,
                        i % k
                    );
                }
            }
        }
    }
}

#[test]
fn missing_rows_and_k_are_zero_bytes() {
    for ggml_type in TYPES {
        let dtype = tile_dtype(ggml_type).unwrap();
        let group = dtype.tile_group().unwrap();
        // A block short of a group, but for types whose block is the group.
        let block = ggml_type.block_len() as usize;
        let k = if block == group.k { group.k } else { 2 * group.k - block };
        let n = 5;
        let strips = pack(ggml_type, k, n, &random_rows(ggml_type, k, n, 7));
        for row in n..32 {
            for vector in strips.chunks_exact(128) {
                assert_eq!(vector[4 * row..][..4], [0; 4], "{ggml_type} row {row}");
            }
        }
        for k in k..group.count(k) * group.k {
            for row in 0..n {
                let value = tile_value(dtype, &strips, k, row, k);
                assert_eq!(value, 0.0, "{ggml_type} row {row} k {k}");
            }
        }
    }
}

#[test]
fn special_values_keep_their_bits() {
    let values = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::NAN];
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let strips = pack(GgmlType::F32, values.len(), 1, &data);
    // The upper halves of the same bytes are bf16 values.
    let halves: Vec<u8> = data.chunks(4).flat_map(|b| [b[2], b[3]]).collect();
    let widened = pack(GgmlType::BF16, values.len(), 1, &halves);
    for (k, v) in values.iter().enumerate() {
        assert_eq!(tile_value(DType::F32x32, &strips, 8, 0, k).to_bits(), v.to_bits());
        let wide = tile_value(DType::F32x32, &widened, 8, 0, k);
        assert_eq!(wide.to_bits(), v.to_bits() & 0xffff_0000);
    }
}

#[test]
fn plain_conversion_is_exact() {
    for ggml_type in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
        let data = random_rows(ggml_type, 100, 1, 3);
        let mut out = [[0; 4]; 100];
        to_f32(ggml_type, &data, &mut out);
        assert_eq!(out.map(f32::from_le_bytes).to_vec(), dequantize(ggml_type, &data));
    }
}

#[test]
fn the_list_of_types_is_the_function() {
    for &t in GgmlType::ALL {
        assert_eq!(tile_dtype(t).is_some(), TILED.contains(&t), "{t}");
    }
}
