//! Tiles mean what the blocks meant that they were packed from.

mod common;

use common::{dequantize, power_of_two, random_rows, tile_value};
use hexflash::gguf::GgmlType;
use hexflash::weights::tiles::{TILED, pack_strip, tile_dtype, to_f32};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, Op};
use hexflash_dsp::testing::{Batch, setups};

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
    for &ggml_type in TILED {
        let dtype = tile_dtype(ggml_type).unwrap();
        let lengths = match ggml_type.block_len() {
            1 => vec![1, 2, 3, 31, 32, 33, 64, 97],
            32 => vec![32, 64, 96, 128, 160, 256, 288],
            64 => vec![64, 128, 192, 256, 320],
            128 => vec![128, 256, 384, 640],
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

/// What GET_ROWS makes of packed rows is, to the bit, what ggml makes of the blocks.
#[test]
fn rows_come_out_of_tiles_as_they_went_in() {
    for &ggml_type in TILED {
        let (k, n) = (512, 40);
        let data = random_rows(ggml_type, k, n, 9);
        let expected: Vec<u32> = dequantize(ggml_type, &data).into_iter().map(f32::to_bits).collect();
        let tiles = pack(ggml_type, k, n, &data);
        let ids: Vec<i32> = (0..n as i32).collect();
        for setup in setups() {
            let mut batch = Batch::new(1, 1);
            let table = batch.tensor(tile_dtype(ggml_type).unwrap(), [k as u32, n as u32, 1, 1]);
            batch.write(table, &tiles);
            let ids = batch.i32([n as u32, 1, 1, 1], &ids);
            let y = batch.tensor(DType::F32, [k as u32, n as u32, 1, 1]);
            let step = StepRegisters::step(0, 1);
            batch.run(setup, Op::GetRows, &[table, ids], &[y], &[0u32; 0], step).unwrap();
            let rows: Vec<u32> = batch.floats(y).into_iter().map(f32::to_bits).collect();
            assert!(rows == expected, "{ggml_type} {setup:?}");
        }
    }
}

#[test]
fn missing_rows_and_k_are_zero_bytes() {
    for &ggml_type in TILED {
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
        let last = &strips[strips.len() - group.bytes..];
        let missing = group.count(k) * group.k - k;
        let Some(parts) = dtype.quant_group() else {
            let bytes = group.bytes / group.k * missing;
            assert!(last[group.bytes - bytes..].iter().all(|&byte| byte == 0), "{ggml_type}");
            continue;
        };
        for tile in parts.tiles - missing / 32..parts.tiles {
            let quants = &last[128 * parts.quants_at(tile)..][..128 * parts.quants];
            assert!(quants.iter().all(|&byte| byte == 0), "{ggml_type} {tile}");
            // As many bytes of a word as a tile has of it; of those that tiles share, none.
            for (at, vectors) in [(parts.scales_at(), parts.scales), (parts.mins_at(), parts.mins)] {
                let byte = 4 * vectors * tile / parts.tiles;
                for word in last[128 * at..][..128 * vectors].chunks_exact(4).skip(byte / 4 * 32) {
                    assert!(word[byte % 4..].iter().all(|&byte| byte == 0), "{ggml_type} {tile}");
                }
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
    let narrow = pack(GgmlType::BF16, values.len(), 1, &halves);
    for (k, v) in values.iter().enumerate() {
        assert_eq!(tile_value(DType::F32x32, &strips, 8, 0, k).to_bits(), v.to_bits());
        let narrow = tile_value(DType::BF16x32, &narrow, 8, 0, k);
        assert_eq!(narrow.to_bits(), v.to_bits() & 0xffff_0000);
    }
}

/// Every exponent with every quant: the numbers of the OCP's E2M1, whose powers of two go down to subnormals.
#[test]
fn every_value_of_mxfp4_survives() {
    const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let block = |e: u8| std::iter::once(e).chain((0..16).map(|i| i << 4 | (15 - i))).collect::<Vec<_>>();
    let data: Vec<u8> = (0..=254).flat_map(block).collect();
    let k = 255 * 32;
    let strips = pack(GgmlType::MXFP4, k, 1, &data);
    for (i, expected) in dequantize(GgmlType::MXFP4, &data).into_iter().enumerate() {
        let value = tile_value(DType::MXFP4x32, &strips, k, 0, i);
        assert_eq!(value.to_bits(), expected.to_bits(), "value {i}");
        let q = if i % 32 < 16 { 15 - i % 32 } else { i % 16 };
        // 2^(e - 127) does not hold e = 0 as an f32 of which halves are taken.
        let size = f64::from(E2M1[q % 8]) * 2f64.powi((i / 32) as i32 - 127);
        assert_eq!(f64::from(value).abs(), f64::from(size as f32), "value {i}");
        assert_eq!(value < 0.0, q > 8, "value {i}");
    }
    assert_eq!(power_of_two(-149).to_bits(), 1);
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
