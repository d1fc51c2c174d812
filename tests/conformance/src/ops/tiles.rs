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
