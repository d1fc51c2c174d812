//! FLASH_ATTN_EXT and SOFT_MAX.

use super::super::kind::Mask;
use super::{CaseKind, List, MODELS, WIDTHS};
use crate::ops::Attention;
use crate::tensor::GgmlType::{self, F16, F32, Q8_0};

pub(super) fn flash_attn(l: &mut List) {
    for d in [40, 64, 72, 80, 96, 128, 192, 256] {
        for (mask, sinks, max_bias, softcap) in variants(d) {
            for seqs in if d > 64 { &[1][..] } else { &[1, 3] } {
                for group in [1, 4, 8, 12, 16] {
                    if matches!(group, 8 | 16) && d != 192 || group == 12 && d != 128 {
                        continue;
                    }
                    for kv in if group == 1 { &[113, 512, 1024][..] } else { &[512] } {
                        for nq in [1, 3, 32, 75] {
                            for kv_ty in if d == 64 || d == 72 { &[F16, F32, Q8_0][..] } else { &[F16] } {
                                // Q8_0 rows are whole blocks.
                                if d % kv_ty.block_len() as i64 != 0 {
                                    continue;
                                }
                                let params = Attention { scale: 1.0 / (d as f32).sqrt(), max_bias, softcap };
                                let case = |perm| CaseKind::FlashAttn {
                                    dk: d,
                                    dv: d,
                                    heads: 4,
                                    group,
                                    seqs: *seqs,
                                    kv: *kv,
                                    nq,
                                    mask,
                                    sinks,
                                    params,
                                    kv_ty: *kv_ty,
                                    perm,
                                };
                                l.up(case(false));
                                if mask != Mask::None && max_bias == 0.0 && softcap == 0.0 && *kv == 512 {
                                    l.up(case(true));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    let simple = |d: i64, heads, group, kv, nq, mask, kv_ty: GgmlType| CaseKind::FlashAttn {
        dk: d,
        dv: d,
        heads,
        group,
        seqs: 1,
        kv,
        nq,
        mask,
        sinks: false,
        params: Attention { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, softcap: 0.0 },
        kv_ty,
        perm: true,
    };
    for kv_ty in [F16, F32] {
        // One key; lengths around vectors and blocks; a query that sees nothing; odd ratios of heads.
        for kv in [1, 2, 31, 32, 33, 63, 65, 127, 257] {
            l.edge(simple(64, 2, 2, kv, 1, Mask::Causal, kv_ty));
            l.edge(simple(128, 1, 3, kv.max(5), 5, Mask::Causal, kv_ty));
        }
        l.edge(simple(64, 1, 1, 1, 1, Mask::None, kv_ty));
        l.edge(simple(64, 2, 1, 40, 3, Mask::Blind, kv_ty));
        l.edge(simple(64, 3, 5, 70, 7, Mask::Causal, kv_ty));
        l.edge(simple(256, 1, 7, 100, 16, Mask::Causal, kv_ty));
        // Enough rows for a matrix unit, and few enough keys for every change: tiles that are not full, too.
        l.edge(simple(64, 1, 2, 45, 16, Mask::Causal, kv_ty));
        l.edge(simple(64, 2, 1, 70, 33, Mask::None, kv_ty));
        l.edge(simple(128, 1, 3, 50, 17, Mask::Causal, kv_ty));
        l.edge(simple(256, 1, 2, 33, 16, Mask::Causal, kv_ty));
    }
    for s in &MODELS {
        for nq in WIDTHS {
            for kv in [16, 131, 1000] {
                l.model(simple(256, s.kv_heads, s.q_heads / s.kv_heads, kv, nq, Mask::Causal, F16));
            }
        }
    }
    // gpt-oss: eight queries to a key, each with a sink.
    for nq in WIDTHS {
        for kv in [16, 131] {
            l.model(CaseKind::FlashAttn {
                dk: 64,
                dv: 64,
                heads: 8,
                group: 8,
                seqs: 1,
                kv,
                nq,
                mask: Mask::Causal,
                sinks: true,
                params: Attention { scale: 0.125, max_bias: 0.0, softcap: 0.0 },
                kv_ty: F16,
                perm: true,
            });
        }
    }
    // A block of the draft: every query sees everything.
    l.model(simple(64, 2, 2, 72, 8, Mask::None, F16));
    l.model(simple(128, 8, 4, 528, 16, Mask::None, F16));
}

/// Mask, sinks, ALiBi and soft cap, as upstream combines them for head size `d`.
fn variants(d: i64) -> Vec<(Mask, bool, f32, f32)> {
    let mut out = Vec::new();
    for (mask, max_bias) in [(Mask::Random, 0.0), (Mask::Random, 8.0), (Mask::None, 0.0)] {
        for sinks in [true, false] {
            out.push((mask, sinks, max_bias, 0.0));
            if d == 128 {
                out.push((mask, sinks, max_bias, 10.0));
            }
        }
    }
    out
}

pub(super) fn soft_max(l: &mut List) {
    let case = |ne, mask, repeat, sinks, scale, max_bias| CaseKind::SoftMax {
        ne,
        mask,
        repeat,
        sinks,
        scale,
        max_bias,
    };
    for mask in [None, Some(F32), Some(F16)] {
        for sinks in [false, true] {
            for max_bias in if mask.is_some() { &[0.0, 8.0][..] } else { &[0.0] } {
                for scale in [1.0, 0.1] {
                    for n0 in [16, 1024] {
                        for n1 in [16, 1024] {
                            let mut up = |ne, nr| l.up(case(ne, mask, nr, sinks, scale, *max_bias));
                            up([n0, n1, 1, 1], [1, 1]);
                            up([n0 - 1, n1 - 1, 1, 1], [1, 1]);
                            if mask.is_some() && n0 <= 32 && n1 <= 32 {
                                up([n0, n1, 1, 3], [3, 1]);
                                up([n0 - 1, n1 - 1, 1, 1], [2, 3]);
                            }
                        }
                    }
                }
            }
        }
    }
    for (n, mask, sinks, max_bias) in [
        (16, Some(F32), true, 0.0),
        (16, Some(F16), false, 0.0),
        (16, None, true, 0.0),
        (32, Some(F32), true, 0.0),
        (32, Some(F16), false, 0.0),
        (32, Some(F32), true, 8.0),
        (32, Some(F16), true, 8.0),
    ] {
        l.up(case([n, 2, 32, 1], mask, [1, 1], sinks, 0.1, max_bias));
    }
    for mask in [F32, F16] {
        l.up(case([200_001, 2, 3, 1], Some(mask), [1, 1], true, 0.1, 8.0));
    }
    for ne in [[200_000, 1, 1, 1], [200_000, 4, 1, 1], [643_251, 3, 1, 1]] {
        l.up(case(ne, None, [1, 1], false, 1.0, 0.0));
    }
    for n in [1, 2, 31, 33, 65] {
        l.edge(case([n, 3, 2, 1], None, [1, 1], false, 1.0, 0.0));
        l.edge(case([n, 3, 2, 1], Some(F16), [1, 1], true, 50.0, 0.0));
    }
}
