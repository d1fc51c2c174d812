//! What moves elements: CPY, CONT, CONCAT; ARGMAX and ARGSORT.

use hexflash_abi::op::params;
use hexflash_abi::{DType, Op};
use hexflash_oracle::cases::CaseKind;
use hexflash_oracle::{Tensor, contiguous_nb};

use super::super::plan::{OpProgram, dims, plain};
use super::{Outcome, STEP, Trial};

const NONE: [u32; 0] = [];

/// ARGMAX.
pub fn argmax(trial: &mut Trial<'_>) -> Outcome {
    let a = trial.x.get("a");
    let mut p = OpProgram::new(1, 1);
    let x = p.input(a);
    let y = p.output(DType::I32, [a.ne[1] as u32, 1, 1, 1]);
    p.op(Op::Argmax, &[Some(x)], y, &NONE);
    trial.result("rows", &p, y)
}

/// ARGSORT: all indices, and the first third of them.
pub fn argsort(trial: &mut Trial<'_>, descending: bool) -> Outcome {
    let a = trial.x.get("a");
    let [n, m, b2, b3] = dims(a.ne);
    let params = params::Argsort { descending: descending.into() };
    let sorted = |p: &mut OpProgram, k: u32| {
        let x = p.input(a);
        let y = p.output(DType::I32, [k, m, b2, b3]);
        p.op(Op::Argsort, &[Some(x)], y, &params);
        y
    };
    let mut p = OpProgram::new(1, 1);
    let y = sorted(&mut p, n);
    trial.result("all", &p, y)?;
    let (mut p, k) = (OpProgram::new(1, 1), n.div_ceil(3));
    let y = sorted(&mut p, k);
    let all = trial.want.to_i32();
    let first: Vec<i32> = all.chunks_exact(n as usize).flat_map(|row| &row[..k as usize]).copied().collect();
    let want = Tensor::i32([k.into(), a.ne[1], a.ne[2], a.ne[3]], &first);
    let memory = trial.run("some", &p, &STEP)?;
    let got = p.tensor(&memory, y, 1);
    trial.verdict_against("some", &want, &got)
}

/// CPY between two layouts of the same elements. hexflash writes rows: axes are exchanged, on both sides,
/// until the destination's first axis is its dense one. A copy into another shape goes by views of a dense
/// tensor.
pub fn cpy(trial: &mut Trial<'_>) -> Outcome {
    let (src, dst) = (trial.x.get("src"), trial.x.get("dst"));
    let CaseKind::Cpy { dst_perm, .. } = trial.case.kind else { unreachable!("called for CPY only") };
    let mut p = OpProgram::new(1, 1);
    let mut x = p.input(src);
    let to = plain(dst.ty).expect("`skip` has checked the type");
    if src.ne != dst.ne {
        // The elements in order: from a dense source they are any dense shape.
        if !src.is_contiguous() {
            let dense = p.output(plain(src.ty).expect("as above"), dims(src.ne));
            p.op(Op::Cpy, &[Some(x)], dense, &NONE);
            x = dense;
        }
        let nb = contiguous_nb(src.ty, dst.ne).map(|n| n as u32);
        x = p.view(x, dims(dst.ne), nb, 0);
    }
    // Axis i of the stored destination is axis `dst_perm[i]` of the case's.
    let stored = dst_perm.map(|axis| dst.ne[axis]);
    let (ne, nb) = (p.ne(x), p.nb(x));
    let x = p.view(x, dst_perm.map(|axis| ne[axis]), dst_perm.map(|axis| nb[axis]), 0);
    let y = p.output(to, dims(stored));
    p.op(Op::Cpy, &[Some(x)], y, &NONE);
    let memory = trial.run("copy", &p, &super::STEP)?;
    let got = p.tensor(&memory, y, 1).permute(dst_perm).contiguous();
    trial.verdict("copy", &got)
}

/// CONT is CPY to a dense tensor.
pub fn cont(trial: &mut Trial<'_>) -> Outcome {
    let a = trial.x.get("a");
    let mut p = OpProgram::new(1, 1);
    let x = p.input(a);
    let y = p.output(plain(a.ty).expect("`skip` has checked the type"), dims(a.ne));
    p.op(Op::Cpy, &[Some(x)], y, &NONE);
    trial.result("copy", &p, y)
}

/// CONCAT.
pub fn concat(trial: &mut Trial<'_>, dim: usize) -> Outcome {
    let (a, b) = (trial.x.get("a"), trial.x.get("b"));
    let mut p = OpProgram::new(1, 1);
    let (x, z) = (p.input(a), p.input(b));
    let mut ne = dims(a.ne);
    ne[dim] += b.ne[dim] as u32;
    let y = p.output(DType::F32, ne);
    p.op(Op::Concat, &[Some(x), Some(z)], y, &params::Concat { axis: dim as u32 });
    trial.result("rows", &p, y)
}
