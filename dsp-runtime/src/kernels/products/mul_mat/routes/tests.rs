//! MUL_MAT_ID against MUL_MAT with one expert's weights at a time, bit for bit, and what it reads.

use hexflash_abi::op::Op;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, ErrorCode, Fault, TensorIndex};
use zerocopy::IntoBytes;

use super::super::has_hmx_kernel;
use super::{GATHERED, ROWS};
use crate::dma::DmaMode;
use crate::hvx::Isa;
use crate::plan::Units;
use crate::testing::{Batch, Setup, everywhere, random, setups};

const STEP: StepRegisters = StepRegisters::step(0, 1);

fn tiled() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| dtype.is_weight())
}

/// Bytes that are small numbers in every type: no half and no float among them has a large exponent.
fn bytes(seed: u64, n: usize) -> Vec<u8> {
    random(seed, n, 0.0, 256.0).iter().map(|&byte| byte as u8 & 0x3b).collect()
}

/// Weights {k, n, n_expert}, activations {k, per_token, m}, ids {used, m}.
struct Case {
    batch: Batch,
    dtype: DType,
    w: TensorIndex,
    x: TensorIndex,
    ids: TensorIndex,
    k: u32,
    n: u32,
    experts: u32,
    per_token: u32,
    used: u32,
    m: u32,
}

impl Case {
    fn new(dtype: DType, shape: [u32; 3], sides: [u32; 2], ids: &[i32]) -> Self {
        Self::with(Batch::new(1, 1), dtype.wants_q8_activations(), dtype, shape, sides, ids)
    }

    /// For the matrix unit.
    fn of_unit(dtype: DType, shape: [u32; 3], sides: [u32; 2], ids: &[i32]) -> Self {
        Self::with(Batch::new(1, 1).hmx(), false, dtype, shape, sides, ids)
    }

    fn with(
        mut batch: Batch,
        quantize: bool,
        dtype: DType,
        [k, n, experts]: [u32; 3],
        [per_token, used]: [u32; 2],
        ids: &[i32],
    ) -> Self {
        let m = ids.len() as u32 / used;
        let w = batch.tensor(dtype, [k, n, experts, 1]);
        let tiles = bytes(5, batch.read(w).len());
        batch.write(w, &tiles);
        let ne = [k, per_token, m, 1];
        let mut x = batch.f32(ne, &random(6, (k * per_token * m) as usize, -2.0, 2.0));
        if quantize {
            let q = batch.tensor(DType::Q8Act, ne);
            batch.run(setups()[0], Op::Quantize, &[x], &[q], &[0u32; 0], STEP).unwrap();
            x = q;
        }
        let ids = batch.i32([used, m, 1, 1], ids);
        Self { batch, dtype, w, x, ids, k, n, experts, per_token, used, m }
    }

    fn run(&mut self, setup: Setup) -> Result<Vec<f32>, Fault> {
        let y = self.batch.tensor(DType::F32, [self.n, self.used, self.m, 1]);
        self.batch.run(setup, Op::MulMatId, &[self.w, self.x, self.ids], &[y], &[0u32; 0], STEP)?;
        Ok(self.batch.floats(y))
    }

    /// By MUL_MAT: all rows with one expert after the other, and of each row what its expert gave.
    fn reference(&mut self, ids: &[i32]) -> Vec<f32> {
        let setup = Setup { isa: Isa::detect(), ..setups()[0] };
        let rows = self.per_token * self.m;
        let x = self.batch.view(self.x, |x| (x.ne[1], x.ne[2]) = (rows, 1));
        let products: Vec<Vec<f32>> = (0..self.experts)
            .map(|expert| {
                let w = self.batch.view(self.w, |w| {
                    w.offset += u64::from(w.nb[2] * expert);
                    w.ne[2] = 1;
                });
                let y = self.batch.tensor(DType::F32, [self.n, rows, 1, 1]);
                self.batch.run(setup, Op::MulMat, &[w, x], &[y], &[0u32; 0], STEP).unwrap();
                self.batch.floats(y)
            })
            .collect();
        let row = |(i, &id): (usize, &i32)| {
            let (slot, token) = (i % self.used as usize, i / self.used as usize);
            let row = token * self.per_token as usize + if self.per_token == 1 { 0 } else { slot };
            products[id as usize][row * self.n as usize..][..self.n as usize].to_vec()
        };
        ids.iter().enumerate().flat_map(row).collect()
    }

    /// Bytes of one expert's weights.
    fn expert_bytes(&self) -> u64 {
        self.dtype.tile_group().unwrap().matrix_bytes(self.k as usize, self.n as usize) as u64
    }
}

/// Ids below `experts`, none twice in a token.
fn ids(seed: u64, experts: u32, used: u32, m: u32) -> Vec<i32> {
    let mut all = Vec::new();
    for t in 0..m {
        let keys = random(seed + u64::from(t), experts as usize, 0.0, 1.0);
        let mut order: Vec<i32> = (0..experts as i32).collect();
        order.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
        all.extend(&order[..used as usize]);
    }
    all
}

/// Most go to one expert, and none to the last.
fn uneven_ids(experts: u32, used: u32, m: u32) -> Vec<i32> {
    let mut ids = ids(1, experts - 1, used, m);
    ids.chunks_exact_mut(used as usize).step_by(2).for_each(|token| token[0] = 0);
    ids
}

/// Bits as bytes, so that NaN would compare too. No result is NaN or zero throughout.
fn bits(values: &[f32]) -> Vec<u32> {
    assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|&v| v != 0.0));
    values.iter().map(|v| v.to_bits()).collect()
}

/// How a case is made: [`Case::new`] or [`Case::of_unit`].
type Make = fn(DType, [u32; 3], [u32; 2], &[i32]) -> Case;

fn each_row_is_that_of_its_expert(types: impl Iterator<Item = DType>, case: Make) {
    for dtype in types {
        for (shape, sides, m) in [
            ([256, 40, 1], [1, 1], 3),
            ([256, 64, 6], [1, 2], 1),
            ([256, 33, 6], [3, 3], 5),
            ([512, 70, 4], [4, 4], 9),
        ] {
            let ids = ids(m.into(), shape[2], sides[1], m);
            let expected = case(dtype, shape, sides, &ids).reference(&ids);
            let actual = everywhere(|setup| case(dtype, shape, sides, &ids).run(setup).unwrap());
            assert_eq!(bits(&actual), bits(&expected), "{dtype} {shape:?} {sides:?} m={m}");
        }
    }
}

#[test]
fn each_row_is_the_product_with_its_expert() {
    each_row_is_that_of_its_expert(tiled(), Case::new);
}

/// More rows of an expert than one pass takes, more than are gathered at once, and experts of no token.
#[test]
fn many_tokens_and_uneven_experts() {
    for (used, m, experts) in [(1, 2 * ROWS as u32 + 3, 3), (2, GATHERED as u32 / 2 + 5, 4), (7, 160, 9)] {
        let ids = uneven_ids(experts, used, m);
        for dtype in [DType::F16x32, DType::Q8_0x32] {
            let (shape, sides) = ([256, 40, experts], [1, used]);
            let expected = Case::new(dtype, shape, sides, &ids).reference(&ids);
            for setup in setups() {
                let actual = Case::new(dtype, shape, sides, &ids).run(setup).unwrap();
                assert_eq!(bits(&actual), bits(&expected), "{dtype} used={used} {setup:?}");
            }
        }
    }
}

/// Pieces of strips, and several strips to a piece.
#[test]
fn results_do_not_depend_on_pieces() {
    let ids = ids(3, 8, 4, 5);
    for dtype in tiled() {
        let shape = [1024, 200, 8];
        let expected = Case::new(dtype, shape, [1, 4], &ids).reference(&ids);
        let group = dtype.tile_group().unwrap().bytes;
        let sums = super::super::SUMS;
        for vtcm_bytes in [sums + 2 * group, sums + 6 * group, 1 << 20, 8 << 20] {
            for (workers, dma) in [(1, DmaMode::AtWait), (1, DmaMode::OutOfOrder), (3, DmaMode::AtWait)] {
                let vtcm_bytes = vtcm_bytes * workers;
                let units = Units::NONE;
                let setup = Setup { isa: Isa::detect(), workers, dma, vtcm_bytes, units };
                let actual = Case::new(dtype, shape, [1, 4], &ids).run(setup).unwrap();
                assert_eq!(bits(&actual), bits(&expected), "{dtype} {setup:?}");
            }
        }
    }
}

/// The weights of each expert that some token uses cross once, and those of the others never.
#[test]
fn only_experts_that_are_used_are_read_and_each_once() {
    for dtype in tiled() {
        for (used, tokens) in [
            (2, vec![vec![4, 1]]),
            (2, vec![vec![4, 1], vec![1, 6], vec![4, 6]]),
            (1, vec![vec![5]; ROWS]),
            (8, vec![(0..8).collect(), (0..8).rev().collect()]),
        ] {
            let ids = tokens.concat();
            let mut union = ids.clone();
            union.sort_unstable();
            union.dedup();
            for setup in setups() {
                let mut case = Case::new(dtype, [512, 72, 8], [1, used], &ids);
                case.run(setup).unwrap();
                let expected = union.len() as u64 * case.expert_bytes();
                assert_eq!(case.batch.moved, expected, "{dtype} {ids:?} {setup:?}");
            }
        }
    }
    // Each pass of 64 rows reads them again.
    let mut case = Case::new(DType::F16x32, [256, 40, 2], [1, 1], &[1; ROWS + 1]);
    case.run(setups()[0]).unwrap();
    assert_eq!(case.batch.moved, 2 * case.expert_bytes());
}

/// An expert twice in a token is read once, and each of its rows gets its product.
#[test]
fn an_expert_may_come_twice() {
    let ids = [3, 3, 0, 3];
    let expected = Case::new(DType::Q4_0x32, [256, 40, 4], [2, 2], &ids).reference(&ids);
    for setup in setups() {
        let mut case = Case::new(DType::Q4_0x32, [256, 40, 4], [2, 2], &ids);
        assert_eq!(bits(&case.run(setup).unwrap()), bits(&expected));
        assert_eq!(case.batch.moved, 2 * case.expert_bytes());
    }
}

#[test]
fn ids_of_no_expert_are_refused_by_their_number() {
    for id in [6, -1, i32::MIN, i32::MAX, 1 << 16] {
        for at in [0, 3, 7] {
            let mut ids = vec![5, 0, 1, 2, 3, 4, 5, 0];
            ids[at] = id;
            for setup in setups() {
                let fault = Case::new(DType::F16x32, [64, 40, 6], [1, 2], &ids).run(setup).unwrap_err();
                assert_eq!(fault, Fault::new(ErrorCode::BadRowIndex, id as u32));
            }
        }
    }
}

/// As with MUL_MAT: a scale of activations that is no number is reported with its row.
#[test]
fn activations_that_are_no_numbers_are_reported() {
    let mut case = Case::new(DType::Q8_0x32, [256, 40, 4], [2, 2], &[0, 1, 2, 3, 0, 2]);
    let mut values = random(6, 256 * 6, -2.0, 2.0);
    values[256 * 3 + 40] = f32::NAN;
    let x = case.batch.f32([256, 2, 3, 1], &values);
    case.batch.run(setups()[0], Op::Quantize, &[x], &[case.x], &[0u32; 0], STEP).unwrap();
    for setup in setups() {
        assert_eq!(case.run(setup), Err(Fault::new(ErrorCode::NotFinite, 3)), "{setup:?}");
    }
}

/// A step of fewer tokens routes these alone, whatever the ids of the others are.
#[test]
fn a_step_reads_the_ids_of_its_own_tokens() {
    let ids = [1, 0, 2, 1, 99, -5, 0, 77];
    let mut case = Case::new(DType::F16x32, [64, 40, 3], [1, 2], &ids);
    let expected = case.reference(&ids[..4]);
    let mut batch = Batch::new(4, 8);
    let w = batch.tensor(DType::F16x32, [64, 40, 3, 1]);
    batch.write(w, case.batch.read(case.w));
    let x = batch.f32([64, 1, 4, 1], &case.batch.floats(case.x));
    let x = batch.view(x, |x| x.token_axis = 2);
    let ids = batch.i32([2, 4, 1, 1], &ids);
    let ids = batch.view(ids, |ids| ids.token_axis = 1);
    let y = batch.f32([40, 2, 4, 1], &[7.0; 320]);
    let y = batch.view(y, |y| y.token_axis = 2);
    let step = StepRegisters::step(0, 2);
    batch.run(setups()[0], Op::MulMatId, &[w, x, ids], &[y], &[0u32; 0], step).unwrap();
    assert_eq!(bits(&batch.floats(y)[..160]), bits(&expected));
    assert_eq!(batch.floats(y)[160..], [7.0; 160]);
}

/// Weights that the matrix unit multiplies.
fn of_unit() -> impl Iterator<Item = DType> {
    tiled().filter(|&dtype| has_hmx_kernel(dtype))
}

#[test]
fn each_row_is_the_product_with_its_expert_by_the_matrix_unit() {
    each_row_is_that_of_its_expert(of_unit(), Case::of_unit);
}

/// More rows of an expert than a share has, than VTCM holds, and than are gathered at once; the unit reads
/// the weights of an expert once for all rows that are in VTCM together.
#[test]
fn many_tokens_and_uneven_experts_by_the_matrix_unit() {
    for (used, m, experts) in [(1, 2 * ROWS as u32 + 3, 3), (2, GATHERED as u32 / 2 + 5, 4)] {
        let ids = uneven_ids(experts, used, m);
        let (shape, sides) = ([96, 40, experts], [1, used]);
        for dtype in [DType::F16x32, DType::Q8_0x32] {
            let expected = Case::of_unit(dtype, shape, sides, &ids).reference(&ids);
            let large = Setup { vtcm_bytes: 8 << 20, ..setups()[0] };
            let mut case = Case::of_unit(dtype, shape, sides, &ids);
            let fault = case.run(Setup { vtcm_bytes: 4096, ..large }).unwrap_err();
            assert_eq!(fault.code, ErrorCode::VtcmTooSmall);
            for vtcm_bytes in [fault.detail as usize + 128, 128 << 10, 8 << 20] {
                for workers in [1, 3] {
                    let setup = Setup { vtcm_bytes, workers, ..large };
                    let actual = Case::of_unit(dtype, shape, sides, &ids).run(setup).unwrap();
                    assert_eq!(bits(&actual), bits(&expected), "{dtype} used={used} {setup:?}");
                }
            }
        }
    }
    let mut case = Case::of_unit(DType::Q4_0x32, [96, 40, 4], [1, 1], &[1; ROWS + 1]);
    case.run(setups()[0]).unwrap();
    assert_eq!(case.batch.moved, case.expert_bytes());
}

/// What the unit would take for numbers, and ids of no expert.
#[test]
fn the_matrix_unit_takes_no_row_that_is_not_finite_and_no_foreign_id() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut case = Case::of_unit(DType::Q4_0x32, [96, 40, 4], [2, 2], &[0, 1, 2, 3, 0, 2]);
        let mut values = random(6, 96 * 6, -2.0, 2.0);
        values[96 * 3 + 40] = bad;
        case.batch.write(case.x, values.as_bytes());
        for setup in setups() {
            assert_eq!(case.run(setup).unwrap_err().code, ErrorCode::NotFinite, "{setup:?}");
        }
    }
    let fault =
        Case::of_unit(DType::F16x32, [64, 40, 6], [1, 2], &[5, 0, 6, 2]).run(setups()[0]).unwrap_err();
    assert_eq!(fault, Fault::new(ErrorCode::BadRowIndex, 6));
}
