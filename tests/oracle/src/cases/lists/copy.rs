//! ARGMAX, and operations that only move elements: CPY, CONT, CONCAT, REPEAT.

use super::super::kind::Values;
use super::{ALL_TYPES, CaseKind, List};
use crate::tensor::GgmlType::{self, BF16, F16, F32, I32, IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

pub(super) fn argmax(l: &mut List) {
    for (cols, rows) in [(32, 1), (32, 513), (100, 10), (1024, 10), (1024, 12), (2000, 10), (5438, 3)] {
        l.up(CaseKind::Argmax { cols, rows, values: Values::Unique });
    }
    l.up(CaseKind::Argmax { cols: 32_000, rows: 64, values: Values::Unique });
    for cols in [1, 2, 31, 32, 33, 63, 65, 1000, 4099] {
        for values in [Values::Unique, Values::Ties, Values::Equal, Values::NegInf, Values::Last] {
            l.edge(CaseKind::Argmax { cols, rows: 3, values });
        }
    }
    for rows in [1, 8, 16] {
        l.model(CaseKind::Argmax { cols: 248_320, rows, values: Values::Unique });
        l.model(CaseKind::Argmax { cols: 248_320, rows, values: Values::Ties });
    }
}

const SAME: [usize; 4] = [0, 1, 2, 3];

fn cpy(src: GgmlType, dst: GgmlType, ne: [i64; 4], src_perm: [usize; 4], dst_perm: [usize; 4]) -> CaseKind {
    CaseKind::Cpy { src, dst, ne, dst_ne: None, src_perm, dst_perm }
}

pub(super) fn copies(l: &mut List) {
    for ty in ALL_TYPES {
        for k in 1..4 {
            let ne = [k * ty.block_len() as i64, 2, 3, 4];
            l.up(cpy(ty, ty, ne, SAME, SAME));
            l.up(cpy(ty, ty, ne, [0, 2, 1, 3], SAME));
            l.up(cpy(ty, ty, ne, [0, 3, 1, 2], [0, 2, 1, 3]));
        }
    }
    let plain = [F32, F16, BF16];
    let quantized = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL];
    for src in plain {
        for dst in plain.into_iter().chain(quantized) {
            // ggml's CPU quantizes from F32 only.
            if dst.is_quantized() && src != F32 {
                continue;
            }
            l.up(cpy(src, dst, [256, 4, 4, 4], SAME, SAME));
            l.up(cpy(src, dst, [256, 2, 3, 4], [0, 2, 1, 3], SAME));
        }
    }
    for src in ALL_TYPES {
        l.up(cpy(src, F32, [256, 4, 4, 4], SAME, SAME));
        l.up(cpy(src, F32, [256, 2, 3, 4], [0, 2, 1, 3], SAME));
    }
    for src in [F16, F32] {
        for dst in [F16, F32] {
            l.up(cpy(src, dst, [256, 2, 3, 4], [1, 0, 2, 3], SAME));
        }
    }
    for (src, dst) in [(F32, I32), (I32, F32)] {
        l.up(cpy(src, dst, [256, 2, 3, 4], SAME, SAME));
        l.up(cpy(src, dst, [256, 2, 3, 4], [1, 0, 2, 3], SAME));
    }
    for ty in [F32, I32] {
        l.up(cpy(ty, ty, [256, 1, 4, 1], [1, 2, 0, 3], SAME));
    }
    l.up(cpy(F32, F32, [2, 2_097_121, 1, 1], [1, 0, 2, 3], SAME));
    l.up(cpy(F32, F32, [2, 2, 524_281, 1], [1, 0, 2, 3], SAME));
    // The same elements in another shape.
    for ty in [F32, F16] {
        for a in [3i64, 5, 7, 32] {
            for b in [3, 5, 7, 32] {
                for c in [3, 5, 7, 32] {
                    if a == b || b == c || a == c {
                        continue;
                    }
                    let ne = [a, b, c, 3 * 5 * 7 * 32 / (a * b * c)];
                    for dst_ne in [[3, 5, 7, 32], [32, 7, 5, 3]] {
                        if ne != dst_ne {
                            let dst_ne = Some(dst_ne);
                            l.up(CaseKind::Cpy {
                                src: ty,
                                dst: ty,
                                ne,
                                dst_ne,
                                src_perm: SAME,
                                dst_perm: SAME,
                            });
                        }
                    }
                }
            }
        }
    }
    for ty in [F32, F16] {
        for n in [1, 31, 33] {
            l.edge(cpy(ty, ty, [n, 3, 1, 1], SAME, SAME));
            l.edge(cpy(ty, ty, [n, 3, 2, 1], [1, 0, 2, 3], [0, 2, 1, 3]));
        }
    }
    for ty in [F32, I32, F16, BF16] {
        for slice in [true, false] {
            for ne in [[2, 1, 1, 1], [2, 1, 3, 5], [2, 3, 5, 7], [1, 4, 4, 1], [1, 8, 17, 1], [10, 10, 10, 1]]
            {
                l.up(CaseKind::Cont { ty, ne, slice });
            }
        }
    }
    for ty in [F32, F16, BF16, I32] {
        for dim in 0..4 {
            for views in 0..4 {
                l.up(CaseKind::Concat { ty, ne: [11, 12, 13, 14], other: 7, dim, views });
            }
        }
    }
    l.edge(CaseKind::Concat { ty: F32, ne: [1, 1, 1, 1], other: 1, dim: 0, views: 0 });
    // The convolution's state before the new rows.
    l.model(CaseKind::Concat { ty: F32, ne: [3, 6144, 1, 1], other: 16, dim: 0, views: 0 });
    for n3 in [1, 3] {
        for repeat in [[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2]] {
            l.up(CaseKind::Repeat { ty: F32, ne: [10, 5, 4, n3], repeat });
        }
        l.up(CaseKind::Repeat { ty: I32, ne: [10, 5, 4, n3], repeat: [2, 1, 1, 1] });
        l.up(CaseKind::Repeat { ty: BF16, ne: [10, 5, 4, n3], repeat: [2, 1, 1, 1] });
    }
}
