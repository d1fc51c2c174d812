//! MUL_MAT, MUL_MAT_ID, QUANTIZE, GET_ROWS, SET_ROWS.

use hexflash_abi::dtype::{ActivationRow, TILE_K};
use hexflash_abi::{DType, Op};
use hexflash_dsp::kernels::products::mul_mat::has_hmx_kernel;
use hexflash_oracle::{GgmlType, Tensor};

use super::super::plan::{OpProgram, T, dims, plain};
use super::super::tiles::{pack, tiled};
use super::{Outcome, STEP, Trial};

const NONE: [u32; 0] = [];

/// Pairs of matrix tiles above which a product is not computed by the matrix unit, too. Weights of a whole
/// layer have more.
const MOST_TILES: u64 = 1 << 12;

/// Results below which it is not either: ggml rounds activations to int8 where the unit does not, and of a
/// few sums, which may nearly cancel, that rounding can be more than the tolerance.
const LEAST_RESULTS: u64 = 32;

/// Weights of a case as tiles.
fn weights(plan: &mut OpProgram, a: &Tensor) -> T {
    let dtype = tiled(a.ty).expect("`skip` has checked the type");
    plan.packed(dtype, dims(a.ne), &pack(a))
}

/// Activations as products with weights of `a` read them in an exact program: int8 through QUANTIZE where
/// these want that. In programs of the class `fast` they stay as they are, for the matrix unit.
fn activations(p: &mut OpProgram, a: &Tensor, b: &Tensor) -> T {
    let x = p.input(b);
    let x = p.f32_rows(x);
    if p.is_fast() || !tiled(a.ty).is_some_and(DType::wants_q8_activations) {
        return x;
    }
    let q = p.output(DType::Q8Act, p.ne(x));
    p.op(Op::Quantize, &[Some(x)], q, &NONE);
    q
}

/// The result of a product of `a` and `b`, with the experts that `ids` name if there are any.
fn product(
    trial: &mut Trial<'_>,
    way: &'static str,
    mut p: OpProgram,
    [a, b]: [&Tensor; 2],
    ids: Option<&Tensor>,
) -> Outcome {
    let w = weights(&mut p, a);
    let x = activations(&mut p, a, b);
    let (n, [_, m, b2, b3]) = (a.ne[1] as u32, dims(b.ne));
    let y = match ids {
        None => {
            let y = p.output(DType::F32, [n, m, b2, b3]);
            p.op(Op::MulMat, &[Some(w), Some(x)], y, &NONE);
            y
        }
        Some(ids) => {
            let [n_used, m, ..] = dims(ids.ne);
            let ids = p.input(ids);
            let y = p.output(DType::F32, [n, n_used, m, 1]);
            p.op(Op::MulMatId, &[Some(w), Some(x), Some(ids)], y, &NONE);
            y
        }
    };
    trial.result(way, &p, y)
}

/// A product by the exact kernel, and by that of the matrix unit where the device lends one: with matrices of
/// `operands[0]`, of so many batches of `rows` rows.
fn both_ways(
    trial: &mut Trial<'_>,
    operands: [&Tensor; 2],
    ids: Option<&Tensor>,
    rows: u32,
    batches: u32,
) -> Outcome {
    if !trial.only_matrix_unit {
        product(trial, "tiles", OpProgram::new(1, 1), operands, ids)?;
    }
    if by_unit(trial, operands[0], rows.into(), batches.into()) {
        product(trial, "matrix unit", OpProgram::new(1, 1).fast(), operands, ids)?;
    }
    Ok(())
}

/// Tiled weights.
pub fn mul_mat(trial: &mut Trial<'_>) -> Outcome {
    let (a, b) = (trial.x.get("a"), trial.x.get("b"));
    let [_, m, b2, b3] = dims(b.ne);
    both_ways(trial, [a, b], None, m, b2 * b3)
}

/// Whether products of so many batches of `rows` rows with matrices of `a` are computed by the matrix unit,
/// too.
fn by_unit(trial: &Trial<'_>, a: &Tensor, rows: u64, batches: u64) -> bool {
    let [k, n, ..] = dims(a.ne);
    let tiles: u64 = [k.into(), n.into(), rows].map(|n: u64| n.div_ceil(32)).iter().product();
    let results = u64::from(n) * rows * batches;
    trial.takes_matrix_unit(tiles * batches, MOST_TILES)
        && tiled(a.ty).is_some_and(has_hmx_kernel)
        && results >= LEAST_RESULTS
}

/// A matrix of tiles for each expert.
pub fn mul_mat_id(trial: &mut Trial<'_>) -> Outcome {
    let (experts, b, ids) = (trial.x.get("as"), trial.x.get("b"), trial.x.get("ids"));
    let [n_used, m, ..] = dims(ids.ne);
    // At worst, each row has an expert of its own, and so a matrix tile.
    both_ways(trial, [experts, b], Some(ids), 1, n_used * m)
}

/// The int8 values times their scales; and minus the sums per 16 of them, and the sums per 32 times the
/// scale, which must be exact.
pub fn quantize(trial: &mut Trial<'_>) -> Outcome {
    const WAY: &str = "decoded";
    let a = trial.x.get("a");
    let mut p = OpProgram::new(1, 1);
    let x = p.input(a);
    let y = p.output(DType::Q8Act, dims(a.ne));
    p.op(Op::Quantize, &[Some(x)], y, &NONE);
    let memory = trial.run(WAY, &p, &STEP)?;
    let k = a.ne[0] as usize;
    let layout = ActivationRow::new(k);
    let mut values = Vec::new();
    let (mut sums, mut expected_sums, mut scaled, mut expected_scaled) = (vec![], vec![], vec![], vec![]);
    for row in p.bytes(&memory, y).chunks_exact(layout.bytes()) {
        let quants = &row[..layout.padded_k];
        let (scales, ends) = row[layout.scales()..].split_at(layout.negative_sums() - layout.scales());
        let scale = |i: usize| f32::from_le_bytes(scales.as_chunks::<4>().0[i]);
        values.extend((0..k).map(|i| f32::from(quants[i] as i8) * scale(i / TILE_K)));
        sums.extend_from_slice(&ends[..layout.padded_k / 8]);
        let sum = |part: &[u8; 16]| part.iter().map(|&q| i32::from(q as i8)).sum::<i32>();
        let parts = quants.as_chunks::<16>().0;
        expected_sums.extend(parts.iter().flat_map(|part| (-sum(part) as i16).to_le_bytes()));
        scaled.extend_from_slice(&row[layout.scaled_sums()..][..layout.padded_k / 8]);
        let blocks = parts.as_chunks::<2>().0.iter().enumerate();
        expected_scaled
            .extend(blocks.flat_map(|(i, [a, b])| (scale(i) * (sum(a) + sum(b)) as f32).to_le_bytes()));
    }
    trial.same_bytes(WAY, "the negative sums of the values", &expected_sums, &sums)?;
    trial.same_bytes(WAY, "the scaled sums of the values", &expected_scaled, &scaled)?;
    trial.verdict(WAY, &Tensor::f32(a.ne, &values))
}

/// From tiles, and from plain rows where the type has them.
pub fn get_rows(trial: &mut Trial<'_>) -> Outcome {
    let (a, rows) = (trial.x.get("a"), trial.x.get("rows"));
    for (way, table_in_rows) in [("tiles", false), ("rows", true)] {
        if table_in_rows && plain(a.ty).is_none() {
            continue;
        }
        let mut p = OpProgram::new(1, 1);
        let table = if table_in_rows { p.input(a) } else { weights(&mut p, a) };
        let ids = p.input(rows);
        let [r, b1, b2, _] = dims(rows.ne);
        let y = p.output(DType::F32, [a.ne[0] as u32, r, b1, b2]);
        p.op(Op::GetRows, &[Some(table), Some(ids)], y, &NONE);
        trial.result(way, &p, y)?;
    }
    Ok(())
}

/// Indices as I32, as the host writes them; the rest of the table must stay.
pub fn set_rows(trial: &mut Trial<'_>) -> Outcome {
    let (dst, src, rows) = (trial.x.get("dst"), trial.x.get("src"), trial.x.get("rows"));
    let mut p = OpProgram::new(1, 1);
    let x = p.input(src);
    let ids = if rows.ty == GgmlType::I64 {
        let narrow: Vec<i32> = rows.to_f32().iter().map(|&v| v as i32).collect();
        p.input(&Tensor::i32(rows.ne, &narrow))
    } else {
        p.input(rows)
    };
    let dtype = plain(dst.ty).expect("`skip` has checked the type");
    let y = p.state(dtype, dims(dst.ne), &dst.contiguous().data);
    p.op(Op::SetRows, &[Some(x), Some(ids)], y, &NONE);
    trial.result("rows", &p, y)
}
