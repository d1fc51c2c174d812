//! Tensors of ggml's types in tiles, packed by the same code that packs a model's weights.

use hexflash::gguf;
use hexflash::weights::tiles::{pack_strip, tile_dtype};
use hexflash_abi::DType;
use hexflash_abi::dtype::TILE_ROWS;
use hexflash_oracle::{GgmlType, Tensor};

/// The tiled type for weights of `ty`, if there is one.
pub fn tiled(ty: GgmlType) -> Option<DType> {
    tile_dtype(gguf::GgmlType::from_id(ty as u32)?)
}

/// The bytes of `t`, made contiguous, as matrices of tiles.
///
/// # Panics
/// If there is no tiled form.
pub fn pack(t: &Tensor) -> Vec<u8> {
    let ty = gguf::GgmlType::from_id(t.ty as u32).expect("the adapter has checked the type");
    let group = tile_dtype(ty).and_then(DType::tile_group).expect("the adapter has checked the type");
    let (k, n) = (t.ne[0] as usize, t.ne[1] as usize);
    let row = t.ty.row_bytes(k);
    let c = t.contiguous();
    let mut out = vec![0; (t.ne[2] * t.ne[3]) as usize * group.matrix_bytes(k, n)];
    let matrices = c.data.chunks_exact(row * n).zip(out.chunks_exact_mut(group.matrix_bytes(k, n)));
    for (matrix, tiles) in matrices {
        let strips = tiles.chunks_exact_mut(group.strip_bytes(k));
        for (rows, strip) in matrix.chunks(row * TILE_ROWS).zip(strips) {
            let rows: Vec<&[u8]> = rows.chunks_exact(row).collect();
            pack_strip(ty, k, &rows, strip);
        }
    }
    out
}

/// Bytes of a Q8_0 block of ggml: an f16 scale, then codes.
const BLOCK: usize = 34;

/// The bytes of `t` {width, positions, heads, entries}, of Q8_0 blocks, as a `Q8_0_CACHE` of keys or of
/// values; what there is no position for is zero.
pub fn pack_q8_0_cache(t: &Tensor, keys: bool) -> Vec<u8> {
    let (d, n) = (t.ne[0] as usize, t.ne[1] as usize);
    let group = DType::Q8_0Cache.tile_group().expect("it is tiled");
    let mut out = vec![0; (t.ne[2] * t.ne[3]) as usize * group.matrix_bytes(d, n)];
    for (row, blocks) in t.data.chunks_exact(d / 32 * BLOCK).enumerate() {
        let (head, position) = (row / n, row % n);
        let r = position % TILE_ROWS;
        let strip = head * group.matrix_bytes(d, n) + position / TILE_ROWS * group.strip_bytes(d);
        for (tile, block) in blocks.chunks_exact(BLOCK).enumerate() {
            let group = strip + tile / 2 * group.bytes;
            out[group + 2048 + 4 * r + 2 * (tile % 2)..][..2].copy_from_slice(&block[..2]);
            for (i, &code) in block[2..].iter().enumerate() {
                // The lane, and the number along the other axis.
                let (lane, j) = if keys { (r, i) } else { (i, r) };
                out[group + 1024 * (tile % 2) + j / 4 * 128 + 4 * lane + j % 4] = code;
            }
        }
    }
    out
}
