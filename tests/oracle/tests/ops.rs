//! Each operation of the oracle against a naive computation, so that the oracle itself is trusted.

use hexflash_oracle::ops::{Attention, Binary, Cpu, Glu, Rope, RopeMode, Unary, dequantize, quantize};
use hexflash_oracle::{GgmlType, Tensor, nmse};

/// Numbers without a pattern that could hide an error, in [-1, 1).
fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn tensor(ne: [i64; 4], seed: u32) -> Tensor {
    Tensor::f32(ne, &noise(ne.iter().product::<i64>() as usize, seed))
}

#[track_caller]
fn close(got: &Tensor, ne: [i64; 4], want: &[f32], limit: f64) {
    assert_eq!(got.ne, ne);
    let e = nmse(want, &got.to_f32());
    assert!(e <= limit, "NMSE {e:e}, got {:?}, want {want:?}", got.to_f32());
}

fn cpu() -> Cpu {
    Cpu::new(2)
}

#[test]
fn mul_mat_broadcasts_the_weights_and_reads_strides() {
    let (k, m, n) = (37, 3, 2);
    let (a, b) = (tensor([k, m, 2, 1], 1), tensor([k, n, 4, 3], 2));
    let (x, y) = (a.to_f32(), b.to_f32());
    let mut want = Vec::new();
    for i in 0..4 * 3 {
        for col in 0..n as usize {
            for row in 0..m as usize {
                let (wa, wb) = ((i % 4 / 2 * 3 + row) * 37, (i * 2 + col) * 37);
                want.push((0..37).map(|j| x[wa + j] * y[wb + j]).sum());
            }
        }
    }
    close(&cpu().mul_mat(&a, &b).unwrap(), [m, n, 4, 3], &want, 1e-12);
    // The same numbers stored with dimensions 1 and 2 exchanged.
    let stored = a.clone().permute([0, 2, 1, 3]).contiguous().permute([0, 2, 1, 3]);
    assert!(!stored.is_contiguous());
    close(&cpu().mul_mat(&stored, &b).unwrap(), [m, n, 4, 3], &want, 1e-12);
}

#[test]
fn quantized_mul_mat_is_the_product_with_the_decoded_weights() {
    for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q6_K, GgmlType::MXFP4, GgmlType::F16]
        .into_iter()
        .chain([GgmlType::Q1_0, GgmlType::Q2_0])
    {
        let rows = noise(256 * 5, 3);
        let a = Tensor::new(ty, [256, 5, 1, 1], quantize(ty, &rows, 256));
        let b = tensor([256, 3, 1, 1], 4);
        let (x, y) = (a.to_f32(), b.to_f32());
        // Two values, or three, for all of a block say little of it.
        let most = if [GgmlType::Q1_0, GgmlType::Q2_0].contains(&ty) { 0.5 } else { 0.03 };
        assert!(nmse(&rows, &x) < most, "{ty:?} loses {}", nmse(&rows, &x));
        let dot = |i: usize| (0..256).map(|j| x[i % 5 * 256 + j] * y[i / 5 * 256 + j]).sum();
        let want: Vec<f32> = (0..15).map(dot).collect();
        close(&cpu().mul_mat(&a, &b).unwrap(), [5, 3, 1, 1], &want, 5e-4);
    }
}

#[test]
fn blocks_decode_by_the_formats_definition() {
    // Q8_0: an F16 scale, 32 signed bytes. Q4_0: an F16 scale, low nibbles are elements 0..16, minus 8.
    let mut q8 = vec![0x00, 0x38]; // 0.5
    q8.extend((0..32).map(|i| (i as i8 - 16) as u8));
    assert_eq!(dequantize(GgmlType::Q8_0, &q8), (0..32).map(|i| (i - 16) as f32 * 0.5).collect::<Vec<_>>());
    let mut q4 = vec![0x00, 0x40]; // 2.0
    q4.extend((0..16).map(|i| i | (15 - i) << 4));
    let want: Vec<f32> = (0..32).map(|i| if i < 16 { i - 8 } else { 7 - (i - 16) } as f32 * 2.0).collect();
    assert_eq!(dequantize(GgmlType::Q4_0, &q4), want);
}

#[test]
fn rows_are_taken_and_put() {
    let a = tensor([4, 5, 2, 1], 5);
    let (x, ids) = (a.to_f32(), [4, 0, 4, 1, 3, 3]);
    let got = cpu().get_rows(&a, &Tensor::i32([3, 2, 1, 1], &ids)).unwrap();
    let row = |i: usize| x[(i / 3 * 5 + ids[i] as usize) * 4..][..4].to_vec();
    close(&got, [4, 3, 2, 1], &(0..6).flat_map(row).collect::<Vec<_>>(), 0.0);

    // One list of indices for both slices of dimension 2.
    let b = tensor([4, 2, 2, 1], 6);
    let (y, mut want) = (b.to_f32(), x.clone());
    for slice in 0..2 {
        for (i, to) in [3, 1].iter().enumerate() {
            want[(slice * 5 + to) * 4..][..4].copy_from_slice(&y[(slice * 2 + i) * 4..][..4]);
        }
    }
    close(&cpu().set_rows(&a, &b, &Tensor::i64([2, 1, 1, 1], &[3, 1])).unwrap(), a.ne, &want, 0.0);
    close(&cpu().set_rows(&a, &b, &Tensor::i32([2, 1, 1, 1], &[3, 1])).unwrap(), a.ne, &want, 0.0);
}

#[test]
fn elementwise_operations() {
    let (a, b) = (tensor([6, 2, 2, 1], 7), tensor([3, 1, 2, 1], 8));
    let (x, y) = (a.to_f32(), b.to_f32());
    let other = |i: usize| y[i / 12 * 3 + i % 3];
    let both = |f: fn(f32, f32) -> f32| (0..24).map(|i| f(x[i], other(i))).collect::<Vec<_>>();
    close(&cpu().add(&a, &b).unwrap(), a.ne, &both(|p, q| p + q), 0.0);
    close(&cpu().mul(&a, &b).unwrap(), a.ne, &both(|p, q| p * q), 0.0);
    close(&cpu().binary(Binary::Sub, &a, &b).unwrap(), a.ne, &both(|p, q| p - q), 0.0);
    close(&cpu().binary(Binary::Div, &a, &b).unwrap(), a.ne, &both(|p, q| p / q), 1e-13);
    close(
        &cpu().scale(&a, -2.5, 0.75).unwrap(),
        a.ne,
        &x.iter().map(|v| v * -2.5 + 0.75).collect::<Vec<_>>(),
        1e-13,
    );

    let wide = Tensor::f32([24, 1, 1, 1], &x.iter().map(|v| v * 30.0).collect::<Vec<_>>());
    let each = |f: fn(f64) -> f64| wide.to_f32().iter().map(|&v| f(v.into()) as f32).collect::<Vec<_>>();
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    for (op, f) in [
        (Unary::Silu, (|v| v / (1.0 + (-v).exp())) as fn(f64) -> f64),
        (Unary::Sigmoid, |v| 1.0 / (1.0 + (-v).exp())),
        (Unary::Softplus, |v| if v > 20.0 { v } else { v.exp().ln_1p() }),
        (Unary::Exp, f64::exp),
        (Unary::Neg, |v| -v),
        (Unary::Abs, f64::abs),
        (Unary::Sgn, f64::signum),
        (Unary::Step, |v| f64::from(u8::from(v > 0.0))),
        (Unary::Tanh, f64::tanh),
        (Unary::Elu, |v| if v > 0.0 { v } else { v.exp_m1() }),
        (Unary::Relu, |v| v.max(0.0)),
        (Unary::HardSwish, |v| v * ((v + 3.0) / 6.0).clamp(0.0, 1.0)),
        (Unary::HardSigmoid, |v| ((v + 3.0) / 6.0).clamp(0.0, 1.0)),
        (Unary::Expm1, f64::exp_m1),
        (Unary::Floor, f64::floor),
        (Unary::Ceil, f64::ceil),
        (Unary::Round, f64::round),
        (Unary::Trunc, f64::trunc),
        (Unary::Sin, f64::sin),
        (Unary::Cos, f64::cos),
        (Unary::LeakyRelu, |v| if v > 0.0 { v } else { f64::from(Unary::SLOPE) * v }),
        (Unary::Clamp, |v| v.clamp(-0.5, 0.5)),
    ] {
        close(&cpu().unary(op, &wide).unwrap(), wide.ne, &each(f), 1e-12);
    }

    let silu = |v: f32| (f64::from(v) * sigmoid(v.into())) as f32;
    let half = |swap: bool| -> Vec<f32> {
        let (g, u) = if swap { (3, 0) } else { (0, 3) };
        x.chunks(6).flat_map(|r| (0..3).map(|i| silu(r[g + i]) * r[u + i]).collect::<Vec<_>>()).collect()
    };
    close(&cpu().glu(Glu::Swiglu, &a, false).unwrap(), [3, 2, 2, 1], &half(false), 1e-12);
    close(&cpu().glu(Glu::Swiglu, &a, true).unwrap(), [3, 2, 2, 1], &half(true), 1e-12);
    let c = tensor(a.ne, 9);
    let split: Vec<f32> = x.iter().zip(c.to_f32()).map(|(g, u)| silu(*g) * u).collect();
    close(&cpu().glu_split(Glu::Swiglu, &a, &c).unwrap(), a.ne, &split, 1e-12);
    // gpt-oss: the gate is capped from above, the other side from both.
    let oai = x.iter().zip(c.to_f32()).map(|(g, u)| {
        let g = f64::from(g.min(0.5));
        (g * sigmoid(1.702 * g) * (1.0 + f64::from(u.clamp(-0.5, 0.5)))) as f32
    });
    let op = Glu::SwigluOai { alpha: 1.702, limit: 0.5 };
    close(&cpu().glu_split(op, &a, &c).unwrap(), a.ne, &oai.collect::<Vec<_>>(), 1e-12);
    assert!(cpu().glu(op, &a, false).is_err());
    // The table of F16 has half a unit in its last place.
    let gelu = |v: f32| {
        let v = f64::from(v);
        0.5 * v * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (v + 0.044_715 * v.powi(3))).tanh())
    };
    let split: Vec<f32> = x.iter().zip(c.to_f32()).map(|(g, u)| gelu(*g) as f32 * u).collect();
    close(&cpu().glu_split(Glu::Geglu, &a, &c).unwrap(), a.ne, &split, 1e-6);
}

#[test]
fn norms() {
    let (a, w) = (tensor([7, 3, 1, 1], 10), tensor([7, 1, 1, 1], 11));
    let x = a.to_f32();
    let sums: Vec<f64> = x.chunks(7).map(|r| r.iter().map(|v| f64::from(*v).powi(2)).sum()).collect();
    let rms = |i: usize| (f64::from(x[i]) / (sums[i / 7] / 7.0 + 0.1).sqrt()) as f32;
    close(&cpu().rms_norm(&a, 0.1).unwrap(), a.ne, &(0..21).map(rms).collect::<Vec<_>>(), 1e-12);
    let by: Vec<f32> = (0..21).map(|i| rms(i) * w.to_f32()[i % 7]).collect();
    close(&cpu().rms_norm_mul(&a, &w, 0.1).unwrap(), a.ne, &by, 1e-12);
    // L2_NORM: eps is a floor of the norm, not a term under the root.
    for eps in [1e-6, 1.5] {
        let l2 = |i: usize| (f64::from(x[i]) / sums[i / 7].sqrt().max(eps)) as f32;
        close(&cpu().l2_norm(&a, eps as f32).unwrap(), a.ne, &(0..21).map(l2).collect::<Vec<_>>(), 1e-12);
    }
}

/// Which position row turns pair `i` of `n / 2`.
fn section(mode: RopeMode, s: [i32; 4], i: usize) -> usize {
    let total: i32 = s.iter().sum();
    let i = i as i32 % total.max(1);
    match mode {
        RopeMode::Mrope => (0..3).find(|&r| i < s[..=r].iter().sum()).unwrap_or(3),
        RopeMode::Imrope if i % 3 == 1 && i < 3 * s[1] => 1,
        RopeMode::Imrope if i % 3 == 2 && i < 3 * s[2] => 2,
        RopeMode::Imrope if i % 3 == 0 && i < 3 * s[0] => 0,
        RopeMode::Imrope => 3,
        _ => 0,
    }
}

#[test]
fn rope_modes() {
    let (d, n) = (20usize, 16usize);
    let a = tensor([d as i64, 2, 3, 1], 12);
    let factors = Tensor::f32([8, 1, 1, 1], &noise(8, 13).iter().map(|v| 1.0 + 0.1 * v).collect::<Vec<_>>());
    let positions = [5, 70, 2, 9, 11, 31, 40, 3, 200, 1, 6, 17];
    for mode in [RopeMode::Norm, RopeMode::Neox, RopeMode::Mrope, RopeMode::Imrope] {
        for ff in [None, Some(&factors)] {
            let sections = if mode.is_multi() { [3, 3, 2, 0] } else { [0; 4] };
            let p = Rope { sections, attn_factor: 1.25, freq_scale: 0.5, ..Rope::plain(mode, n as i32, 1e4) };
            let rows = if mode.is_multi() { 4 } else { 1 };
            let pos = Tensor::i32([3 * rows, 1, 1, 1], &positions[..3 * rows as usize]);
            let (x, mut want) = (a.to_f32(), a.to_f32());
            for (row, t) in (0..6).map(|r| (r, r / 2)) {
                for i in 0..n / 2 {
                    let position = positions[section(mode, sections, i) * 3 + t];
                    let factor = ff.map_or(1.0, |f| f.to_f32()[i]);
                    let angle = 0.5 * f64::from(position) * 1e4f64.powf(-2.0 * i as f64 / n as f64)
                        / f64::from(factor);
                    let (s, c) = angle.sin_cos();
                    let (i, j) = if mode == RopeMode::Norm { (2 * i, 2 * i + 1) } else { (i, i + n / 2) };
                    let (u, v) = (f64::from(x[row * d + i]), f64::from(x[row * d + j]));
                    want[row * d + i] = ((u * c - v * s) * 1.25) as f32;
                    want[row * d + j] = ((u * s + v * c) * 1.25) as f32;
                }
            }
            let got = cpu().rope(&a, &pos, ff, &p).unwrap();
            close(&got, a.ne, &want, 1e-10);
        }
    }
}

#[test]
fn rope_yarn_mixes_by_dimension() {
    let (n, base, scale) = (64usize, 1e4f64, 0.25f64);
    let a = tensor([64, 1, 1, 1], 14);
    let p =
        Rope { n_ctx_orig: 1024, freq_scale: 0.25, ext_factor: 1.0, ..Rope::plain(RopeMode::Neox, 64, 1e4) };
    let corr = |beta: f64| n as f64 * (1024.0 / (beta * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
    let (lo, hi) = (corr(32.0).floor().max(0.0), corr(1.0).ceil().min(n as f64 - 1.0));
    let (x, magnitude) = (a.to_f32(), 1.0 + 0.1 * (1.0 / scale).ln());
    let mut want = x.clone();
    for i in 0..n / 2 {
        let ramp = 1.0 - ((i as f64 - lo) / (hi - lo).max(0.001)).clamp(0.0, 1.0);
        let extra = 777.0 * base.powf(-2.0 * i as f64 / n as f64);
        let (s, c) = (scale * extra * (1.0 - ramp) + extra * ramp).sin_cos();
        let (u, v) = (f64::from(x[i]), f64::from(x[i + 32]));
        want[i] = ((u * c - v * s) * magnitude) as f32;
        want[i + 32] = ((u * s + v * c) * magnitude) as f32;
    }
    let pos = Tensor::i32([1, 1, 1, 1], &[777]);
    close(&cpu().rope(&a, &pos, None, &p).unwrap(), a.ne, &want, 1e-8);
}

#[test]
fn ssm_conv_slides_over_time() {
    let (taps, c, t) = (4usize, 3usize, 5usize);
    let (x, w) = (tensor([8, 3, 2, 1], 15), tensor([4, 3, 1, 1], 16));
    let (xs, ws) = (x.to_f32(), w.to_f32());
    let mut want = Vec::new();
    for b in 0..2 {
        for i in 0..t {
            for ch in 0..c {
                want.push((0..taps).map(|j| xs[(b * c + ch) * 8 + i + j] * ws[ch * taps + j]).sum());
            }
        }
    }
    close(&cpu().ssm_conv(&x, &w).unwrap(), [3, 5, 2, 1], &want, 1e-12);
}

#[test]
fn attention_with_mask_sinks_bias_and_cap() {
    let (d, nq, kv, heads, hkv) = (32usize, 3usize, 5usize, 4usize, 2usize);
    let (q, k, v) = (tensor([32, 3, 4, 1], 17), tensor([32, 5, 2, 1], 18), tensor([32, 5, 2, 1], 19));
    let mut m = noise(nq * kv, 20);
    m[4] = f32::NEG_INFINITY;
    m[kv..2 * kv].fill(f32::NEG_INFINITY);
    let (mask, sinks) = (Tensor::f16([5, 3, 1, 1], &m), tensor([4, 1, 1, 1], 21));
    let (qs, ks, vs, ms, ss) = (q.to_f32(), k.to_f32(), v.to_f32(), mask.to_f32(), sinks.to_f32());
    for (with_sinks, max_bias, softcap) in
        [(false, 0.0, 0.0), (true, 0.0, 0.0), (false, 8.0, 0.0), (true, 0.0, 2.0)]
    {
        let mut want = vec![0f32; d * heads * nq];
        for (i, h) in (0..nq).flat_map(|i| (0..heads).map(move |h| (i, h))) {
            let slope = if max_bias > 0.0 { 2f64.powf(-max_bias / 4.0 * (h + 1) as f64) } else { 1.0 };
            let at = h / (heads / hkv);
            let logit = |j: usize| {
                let dot: f32 = (0..d).map(|e| qs[(h * nq + i) * d + e] * ks[(at * kv + j) * d + e]).sum();
                let x = 0.3 * f64::from(dot);
                let x = if softcap > 0.0 { softcap * (x / softcap).tanh() } else { x };
                x + slope * f64::from(ms[i * kv + j])
            };
            let e: Vec<f64> = (0..kv).map(|j| logit(j).exp()).collect();
            let sum = e.iter().sum::<f64>() + if with_sinks { f64::from(ss[h]).exp() } else { 0.0 };
            for c in 0..d {
                let y: f64 = (0..kv).map(|j| e[j] * f64::from(vs[(at * kv + j) * d + c])).sum();
                // The result has heads before queries. A query that sees nothing gives zero.
                want[(i * heads + h) * d + c] = if sum == 0.0 { 0.0 } else { (y / sum) as f32 };
            }
        }
        let p = Attention { scale: 0.3, max_bias: max_bias as f32, softcap: softcap as f32 };
        let s = with_sinks.then_some(&sinks);
        close(&cpu().flash_attn_ext([&q, &k, &v], Some(&mask), s, &p).unwrap(), [32, 4, 3, 1], &want, 1e-10);
    }
}

#[test]
fn soft_max_with_mask_and_sinks() {
    let (a, mask, sinks) = (tensor([5, 2, 3, 1], 22), tensor([5, 2, 1, 1], 23), tensor([3, 1, 1, 1], 24));
    let (x, m, s) = (a.to_f32(), mask.to_f32(), sinks.to_f32());
    for with_sinks in [false, true] {
        let mut want = Vec::new();
        for r in 0..6 {
            let e: Vec<f64> =
                (0..5).map(|i| (2.0 * f64::from(x[r * 5 + i]) + f64::from(m[r % 2 * 5 + i])).exp()).collect();
            let sum = e.iter().sum::<f64>() + if with_sinks { f64::from(s[r / 2]).exp() } else { 0.0 };
            want.extend(e.iter().map(|v| (v / sum) as f32));
        }
        let got = cpu().soft_max_ext(&a, Some(&mask), with_sinks.then_some(&sinks), 2.0, 0.0).unwrap();
        close(&got, a.ne, &want, 1e-11);
    }
}

#[test]
fn argmax_of_ggml_takes_the_last_of_equal_maxima() {
    // The trap: samplers (and hexflash) take the first. `Case::expected` corrects it; the raw operation does
    // not.
    let a = Tensor::f32([4, 4, 1, 1], &[1., 7., 7., 0., 3., 2., 1., 0., 5., 5., 5., 5., -1., -1., -3., -1.]);
    assert_eq!(cpu().argmax(&a).unwrap().to_i32(), [2, 0, 3, 3]);
    let inf = Tensor::f32([3, 1, 1, 1], &[f32::NEG_INFINITY; 3]);
    assert_eq!(cpu().argmax(&inf).unwrap().to_i32(), [2]);
}

#[test]
fn copies_convert_and_reorder() {
    let a = tensor([4, 3, 2, 1], 25);
    let x = a.to_f32();
    let t = a.clone().permute([1, 0, 2, 3]);
    let want: Vec<f32> = (0..24).map(|i| x[i / 12 * 12 + i % 3 * 4 + i % 12 / 3]).collect();
    close(&cpu().cont(&t).unwrap(), [3, 4, 2, 1], &want, 0.0);
    let half = cpu().cast(&a, GgmlType::F16).unwrap();
    assert_eq!((half.ty, &half), (GgmlType::F16, &Tensor::f16(a.ne, &x)), "rounded to nearest even");
    close(&cpu().cast(&half, GgmlType::F32).unwrap(), a.ne, &half.to_f32(), 0.0);
    // Into another shape, and into a permuted destination: element order is what counts.
    close(&cpu().cpy(&t, &Tensor::zeros(GgmlType::F32, [2, 12, 1, 1])).unwrap(), [2, 12, 1, 1], &want, 0.0);
    let to = Tensor::zeros(GgmlType::F32, [4, 3, 2, 1]).permute([1, 0, 2, 3]);
    close(&cpu().cpy(&t, &to).unwrap(), [3, 4, 2, 1], &want, 0.0);

    let b = tensor([4, 1, 2, 1], 26);
    let y = b.to_f32();
    let joined: Vec<f32> = (0..2).flat_map(|i| [&x[i * 12..][..12], &y[i * 4..][..4]].concat()).collect();
    close(&cpu().concat(&a, &b, 1).unwrap(), [4, 4, 2, 1], &joined, 0.0);
    let twice: Vec<f32> = x.chunks(12).flat_map(|m| [m, m].concat()).collect();
    close(&cpu().repeat(&a, [4, 6, 2, 1]).unwrap(), [4, 6, 2, 1], &twice, 0.0);
}

#[test]
fn experts_by_id() {
    let (w, b) = (tensor([8, 3, 4, 1], 27), tensor([8, 1, 2, 1], 28));
    let ids = [3, 0, 1, 3];
    let (x, y) = (w.to_f32(), b.to_f32());
    let want: Vec<f32> = (0..4 * 3)
        .map(|i| (0..8).map(|j| x[(ids[i / 3] as usize * 3 + i % 3) * 8 + j] * y[i / 6 * 8 + j]).sum())
        .collect();
    let ids = Tensor::i32([2, 2, 1, 1], &ids);
    let got = cpu().mul_mat_id(&w, &b, &ids).unwrap();
    close(&got, [3, 2, 2, 1], &want, 1e-12);
    let bias = tensor([3, 4, 1, 1], 29);
    let z = bias.to_f32();
    let plus: Vec<f32> =
        want.iter().enumerate().map(|(i, v)| v + z[ids.to_i32()[i / 3] as usize * 3 + i % 3]).collect();
    close(&cpu().add_id(&got, &bias, &ids).unwrap(), [3, 2, 2, 1], &plus, 1e-12);
}
