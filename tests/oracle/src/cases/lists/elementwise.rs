//! Element by element, and row by row: binary and unary operations, GLU, norms.

use super::super::kind::{GluForm, Layout};
use super::{CaseKind, List, MODELS, WIDTHS};
use crate::ops::{Binary, Glu, Unary};
use crate::tensor::GgmlType::{F16, F32};

pub(super) fn binary(l: &mut List) {
    const ONE: [i64; 4] = [1, 1, 1, 1];
    let both = |l: &mut List, ty, ne, repeat, perm| {
        for op in [Binary::Add, Binary::Mul, Binary::Div] {
            l.up(CaseKind::Binary { op, ty, ne, repeat, perm });
        }
    };
    for ty in [F16, F32] {
        for perm in [false, true] {
            for (ne, nr) in [
                ([1, 1, 8, 1], ONE),
                ([1, 1, 1, 1], [32, 1, 1, 1]),
                ([1, 1, 320, 320], ONE),
                ([10, 5, 1, 1], ONE),
                ([10, 5, 4, 1], ONE),
                ([10, 5, 4, 3], ONE),
                ([10, 5, 4, 3], [2, 1, 1, 1]),
                ([10, 5, 4, 3], [1, 2, 1, 1]),
                ([10, 5, 4, 3], [1, 1, 2, 1]),
                ([10, 5, 4, 3], [1, 1, 1, 2]),
                ([10, 5, 4, 3], [1, 1, 2, 2]),
                ([10, 5, 4, 3], [1, 2, 2, 2]),
                ([10, 5, 4, 3], [2, 2, 2, 2]),
            ] {
                both(l, ty, ne, nr, perm);
            }
        }
        for (ne, nr) in [
            ([1, 1, 65_536, 1], [256, 1, 1, 1]),
            ([1280, 1, 1, 1], ONE),
            ([1280, 1, 1, 1], [1, 16, 16, 1]),
            ([1280, 16, 16, 1], ONE),
            ([1280, 1, 1, 1], [1, 256, 1, 1]),
            ([1, 1, 1280, 1], [16, 16, 1, 1]),
            ([16, 16, 1280, 1], ONE),
            ([1, 1, 1920, 1], [16, 16, 1, 1]),
            ([1, 1, 2560, 1], [16, 16, 1, 1]),
            ([1, 1, 1280, 1], [32, 32, 1, 1]),
            ([1, 1, 1920, 1], [32, 32, 1, 1]),
            ([1, 1, 640, 1], [32, 32, 1, 1]),
            ([5120, 1, 1, 1], [1, 256, 1, 1]),
            ([640, 1, 1, 1], ONE),
            ([64, 262_144, 1, 1], ONE),
        ] {
            both(l, ty, ne, nr, false);
        }
    }
    for op in [Binary::Add, Binary::Mul] {
        for ne in [[16, 5, 4, 3], [1, 1, 1, 1], [31, 1, 1, 1], [33, 3, 1, 1]] {
            l.edge(CaseKind::Binary { op, ty: F32, ne, repeat: ONE, perm: false });
        }
        for s in &MODELS {
            for t in WIDTHS {
                l.model(CaseKind::Binary {
                    op,
                    ty: F32,
                    ne: [s.embd, 1, 1, 1],
                    repeat: [1, t, 1, 1],
                    perm: false,
                });
                l.model(CaseKind::Binary { op, ty: F32, ne: [s.embd, t, 1, 1], repeat: ONE, perm: false });
            }
        }
    }
    for (ne, s, b) in
        [([10, 10, 10, 10], 2.0, 0.0), ([10, 10, 10, 10], 2.0, 1.0), ([100, 10, 10, 10], 2.0, 1.0)]
    {
        l.up(CaseKind::Scale { ne, s, b });
    }
    for (ne, s, b) in
        [([1, 1, 1, 1], -0.5, 0.25), ([33, 1, 1, 1], 0.0, 3.0), ([128, 16, 3, 1], 0.088_388_35, 0.0)]
    {
        l.edge(CaseKind::Scale { ne, s, b });
    }
}

pub(super) fn unary(l: &mut List) {
    let ops = [Unary::Silu, Unary::Sigmoid, Unary::Softplus, Unary::Exp, Unary::Neg];
    for ty in [F16, F32] {
        for layout in [Layout::Dense, Layout::Padded] {
            for op in ops {
                for ne in [[128, 2, 2, 2], [5, 7, 11, 13]] {
                    l.up(CaseKind::Unary { op, ty, ne, layout, min: -150.0, max: 150.0 });
                }
            }
        }
    }
    // Over upstream's range the large values hide every error at the small ones.
    for op in ops {
        for (min, max) in [(-8.0, 8.0), (-1e-3, 1e-3), (-100.0, -10.0), (19.9, 20.1)] {
            let (ty, layout) = (F32, Layout::Dense);
            l.edge(CaseKind::Unary { op, ty, ne: [257, 3, 1, 1], layout, min, max });
        }
        l.edge(CaseKind::Unary { op, ty: F32, ne: [1, 1, 1, 1], layout: Layout::Dense, min: -1.0, max: 1.0 });
    }
    for s in &MODELS {
        for t in WIDTHS {
            let (ty, layout) = (F32, Layout::Dense);
            l.model(CaseKind::Unary {
                op: Unary::Silu,
                ty,
                ne: [s.channels(), t, 1, 1],
                layout,
                min: -8.0,
                max: 8.0,
            });
        }
    }
}

/// Functions of graphs of ggml alone.
pub(super) fn functions(l: &mut List) {
    use Unary::*;
    let ops = [
        Abs,
        Sgn,
        Step,
        Tanh,
        Elu,
        Relu,
        Gelu,
        GeluQuick,
        GeluErf,
        HardSwish,
        HardSigmoid,
        Expm1,
        Floor,
        Ceil,
        Round,
        Trunc,
    ];
    for op in ops {
        for layout in [Layout::Dense, Layout::Padded] {
            for ne in [[128, 2, 2, 2], [5, 7, 11, 13]] {
                l.up(CaseKind::Unary { op, ty: F32, ne, layout, min: -150.0, max: 150.0 });
            }
        }
        // Over that range large values hide every error at small ones.
        let (ne, layout) = ([257, 3, 1, 1], Layout::Dense);
        for (min, max) in [(-4.0, 4.0), (-1e-3, 1e-3)] {
            l.edge(CaseKind::Unary { op, ty: F32, ne, layout, min, max });
        }
    }
    for (op, min, max) in [
        (Sqrt, 50.0, 100.0),
        (Sqrt, 0.0, 1e-3),
        (Log, 1.0, 10.0),
        (Log, 1e-6, 1e-3),
        (Sin, -6.5, 6.5),
        (Sin, -1e4, 1e4),
        (Cos, -6.5, 6.5),
        (Cos, -1e4, 1e4),
        (LeakyRelu, -150.0, 150.0),
        (Clamp, -1.0, 1.0),
    ] {
        for ne in [[10, 5, 4, 3], [257, 3, 1, 1]] {
            l.edge(CaseKind::Unary { op, ty: F32, ne, layout: Layout::Dense, min, max });
        }
    }
}

/// NORM, SUM_ROWS, ARGSORT.
pub(super) fn reductions(l: &mut List) {
    for eps in [0.0, 1e-6, 1e-4, 1e-1, 10.0] {
        for n in [64, 1025] {
            for layout in [Layout::Dense, Layout::Padded] {
                l.up(CaseKind::Norm { ne: [n, 5, 4, 3], eps, layout, amplitude: 1.0 });
            }
        }
    }
    for amplitude in [1e-6, 300.0] {
        for n in [2, 31, 33, 128] {
            l.edge(CaseKind::Norm { ne: [n, 3, 1, 1], eps: 1e-6, layout: Layout::Dense, amplitude });
        }
    }
    for layout in [Layout::Dense, Layout::Padded] {
        for n in [1, 10, 33, 1024] {
            l.edge(CaseKind::SumRows { ne: [n, 5, 4, 3], layout });
        }
    }
    for descending in [false, true] {
        for ne in [
            [16, 10, 10, 10],
            [60, 10, 10, 10],
            [1023, 2, 1, 3],
            [1024, 2, 1, 3],
            [2047, 2, 1, 3],
            [1, 3, 1, 1],
        ] {
            l.up(CaseKind::Argsort { ne, descending });
        }
    }
}

pub(super) fn glu(l: &mut List) {
    for op in [Glu::Swiglu, Glu::Geglu] {
        for form in [GluForm::Fused, GluForm::Swapped, GluForm::Split] {
            for ty in [F16, F32] {
                for layout in [Layout::Dense, Layout::Padded] {
                    l.up(CaseKind::Glu { op, ty, ne: [128, 2, 2, 2], form, layout });
                    // Fused halves of an odd row: ggml takes floor(n / 2) and leaves the last element out.
                    l.up(CaseKind::Glu { op, ty, ne: [5, 7, 11, 13], form, layout });
                }
            }
            for ne in [[2, 1, 1, 1], [62, 3, 1, 1], [66, 1, 1, 1]] {
                l.edge(CaseKind::Glu { op, ty: F32, ne, form, layout: Layout::Dense });
            }
        }
        for s in &MODELS {
            for t in WIDTHS {
                let (ty, layout) = (F32, Layout::Dense);
                l.model(CaseKind::Glu { op, ty, ne: [s.ff, t, 1, 1], form: GluForm::Split, layout });
            }
        }
    }
    let oai = |alpha, limit, ne, layout| {
        let op = Glu::SwigluOai { alpha, limit };
        CaseKind::Glu { op, ty: F32, ne, form: GluForm::Split, layout }
    };
    for layout in [Layout::Dense, Layout::Padded] {
        for ne in [[128, 2, 2, 2], [5, 7, 11, 13]] {
            for alpha in [0.5, 1.702] {
                for limit in [2.0, 7.0] {
                    l.up(oai(alpha, limit, ne, layout));
                }
            }
        }
    }
    for ne in [[1, 1, 1, 1], [31, 3, 1, 1], [33, 1, 1, 1]] {
        l.edge(oai(1.702, 7.0, ne, Layout::Dense));
        l.edge(oai(1.702, 1000.0, ne, Layout::Dense));
    }
    // gpt-oss, whose experts are 2880 wide: four to a token.
    for t in WIDTHS {
        l.model(oai(1.702, 7.0, [2880, 4, t, 1], Layout::Dense));
    }
}

pub(super) fn add_id(l: &mut List) {
    let case = |n, used, t, experts| CaseKind::AddId { n, used, t, experts };
    for experts in [4, 8] {
        for used in [1, 2, 4] {
            for n in [32, 129] {
                for t in [1, 32, 129] {
                    l.up(case(n, used, t, experts));
                }
            }
        }
    }
    for (n, used, t, experts) in [(1, 1, 1, 1), (31, 2, 3, 2), (33, 5, 1, 5), (64, 3, 7, 512)] {
        l.edge(case(n, used, t, experts));
    }
    // gpt-oss 20B and 120B.
    for experts in [32, 128] {
        for t in WIDTHS {
            l.model(case(2880, 4, t, experts));
        }
    }
}

pub(super) fn norms(l: &mut List) {
    let rms = |ne, eps, layout| CaseKind::RmsNorm { ne, eps, weight: false, layout, amplitude: 1.0 };
    let rms_mul =
        |ne, eps| CaseKind::RmsNorm { ne, eps, weight: true, layout: Layout::Dense, amplitude: 10.0 };
    let l2 = |ne, eps, layout| CaseKind::L2Norm { ne, eps, layout, amplitude: 1.0 };
    for eps in [0.0, 1e-6, 1e-4, 1e-1, 10.0] {
        for n in [64, 1025] {
            for layout in [Layout::Dense, Layout::Padded] {
                l.up(rms([n, 5, 4, 3], eps, layout));
                l.up(l2([n, 5, 4, 3], eps, layout));
            }
        }
    }
    for eps in [0.0, 1e-6, 1e-4, 1e-1, 1.0] {
        for n in [64, 1025] {
            l.up(rms_mul([n, 5, 4, 3], eps));
        }
    }
    for n in [1, 511, 1025, 8192, 33 * 512] {
        l.up(rms_mul([n, 1, 1, 1], 1e-6));
    }
    // Rows so small that eps decides, and so large that a square overflows half precision.
    for amplitude in [1e-6, 1e-3, 300.0] {
        for n in [1, 31, 33, 128] {
            let (ne, eps, layout) = ([n, 3, 1, 1], 1e-6, Layout::Dense);
            l.edge(CaseKind::RmsNorm { ne, eps, weight: false, layout, amplitude });
            l.edge(CaseKind::L2Norm { ne, eps, layout, amplitude });
        }
    }
    for s in &MODELS {
        for t in WIDTHS {
            l.model(rms_mul([s.embd, t, 1, 1], 1e-6));
            l.model(rms_mul([256, s.q_heads, t, 1], 1e-6));
            l.model(rms_mul([128, s.k_heads * s.v_per_k, t, 1], 1e-6));
            l.model(l2([128, s.k_heads, t, 1], 1e-6, Layout::Dense));
        }
    }
}
