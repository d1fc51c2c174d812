//! ROPE.

use super::super::kind::Layout;
use super::{CaseKind, List, MODELS, WIDTHS};
use crate::ops::{Rope, RopeMode};
use crate::tensor::GgmlType::{self, F16, F32};

/// Upstream's parameters.
fn upstream(mode: RopeMode, n_dims: i32, fs: f32, ef: f32, af: f32) -> Rope {
    let sections = if mode.is_multi() { [n_dims / 3, n_dims / 3, n_dims / 3, 0] } else { [0; 4] };
    Rope {
        sections,
        freq_scale: fs,
        ext_factor: ef,
        attn_factor: af,
        beta_fast: 1.0,
        beta_slow: 1.0,
        ..Rope::plain(mode, n_dims, 10_000.0)
    }
}

pub(super) fn rope(l: &mut List) {
    use RopeMode::{Imrope, Mrope, Neox, Norm};
    let case = |ty: GgmlType, ne: [i64; 4], rope: Rope, factors: bool, layout: Layout| CaseKind::Rope {
        ty,
        ne,
        rope,
        factors,
        layout,
        max_pos: 512,
    };
    let mut all = true;
    for fs in [1.0, 1.4245] {
        for ef in [0.0, 0.7465] {
            for af in [1.0, 1.4245] {
                for ty in [F32, F16] {
                    for ff in [false, true] {
                        for layout in [Layout::Dense, Layout::Padded] {
                            let mut up = |ne, n_dims, mode| {
                                l.up(case(ty, ne, upstream(mode, n_dims, fs, ef, af), ff, layout));
                            };
                            up([128, 32, 2, 1], 128, Norm);
                            up([64, 128, 2, 1], 64, Neox);
                            if !all {
                                continue;
                            }
                            for heads in [40, 52, 64] {
                                up([128, heads, 2, 1], 128, Norm);
                            }
                            for heads in [1, 71, 8] {
                                up([64, heads, 2, 1], 64, Neox);
                            }
                            for mode in [Norm, Neox] {
                                up([80, 32, 2, 1], 20, mode);
                                up([80, 32, 2, 1], 32, mode);
                                up([80, 32, 4, 1], 32, mode);
                                up([16, 16, 8192, 1], 16, mode);
                            }
                            for mode in [Mrope, Imrope] {
                                up([128, 12, 2, 1], 128, mode);
                                up([128, 28, 2, 1], 128, mode);
                                up([128, 12, 2, 1], 20, mode);
                                up([128, 28, 2, 1], 32, mode);
                            }
                            up([128, 16, 2, 1], 128, Imrope);
                            up([16, 16, 8192, 1], 16, Imrope);
                        }
                        for mode in [Norm, Neox, Mrope, Imrope] {
                            l.up(case(
                                ty,
                                [36, 16, 2457, 1],
                                upstream(mode, 36, fs, ef, af),
                                ff,
                                Layout::SecondHalf,
                            ));
                        }
                    }
                    all = false;
                }
            }
        }
    }
    for mode in [Norm, Neox, Mrope, Imrope] {
        // Two dimensions, one head, one token; nearly all copied; far positions; YaRN with usual parameters.
        let far = |ne, rope| CaseKind::Rope {
            ty: F32,
            ne,
            rope,
            factors: false,
            layout: Layout::Dense,
            max_pos: 262_144,
        };
        let sections = |s| Rope { sections: s, ..Rope::plain(mode, 2, 10_000.0) };
        l.edge(case(F32, [2, 1, 1, 1], sections([1, 0, 0, 0]), false, Layout::Dense));
        l.edge(case(F32, [66, 3, 5, 1], sections([1, 0, 0, 0]), false, Layout::Dense));
        let base = Rope { sections: [11, 11, 10, 0], ..Rope::plain(mode, 64, 1e7) };
        l.edge(far([64, 2, 33, 1], base));
        l.edge(case(F32, [64, 2, 7, 2], base, true, Layout::Dense));
        let yarn = Rope { n_ctx_orig: 4096, freq_scale: 0.25, ext_factor: 1.0, ..base };
        l.edge(far([128, 2, 9, 1], yarn));
    }
    for s in &MODELS {
        for t in WIDTHS {
            for heads in [s.q_heads, s.kv_heads] {
                let rope = Rope { sections: [11, 11, 10, 0], ..Rope::plain(Imrope, 64, 1e7) };
                l.model(CaseKind::Rope {
                    ty: F32,
                    ne: [256, heads, t, 1],
                    rope,
                    factors: false,
                    layout: Layout::Dense,
                    max_pos: 4096,
                });
            }
        }
    }
    // The draft of the test models: NEOX angles over all 64 dimensions.
    l.model(case(F32, [64, 4, 8, 1], Rope::plain(Neox, 64, 1e7), false, Layout::Dense));
}
