//! GATED_DELTA_NET: the recurrence, and every layout convention that a port can get wrong.

use hexflash_oracle::ops::{Cpu, DeltaNet};
use hexflash_oracle::{Tensor, nmse};

const S: usize = 4;

fn noise(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (f64::from((i + 1) * (seed * 7919 + 104_729) % 10_007) / 5003.5 - 1.0) as f32)
        .collect()
}

struct Net {
    hk: usize,
    hv: usize,
    t: usize,
    b: usize,
    kda: bool,
}

/// Outputs `[B][T][Hv][S]`, and the states after each token, each `[B][Hv][S rows j][S columns i]`.
fn naive(n: &Net, x: &[Vec<f32>; 6]) -> Naive {
    let [q, k, v, g, beta, state] = x;
    let (mut s, mut out, mut planes) = (state.clone(), vec![0f32; S * n.hv * n.t * n.b], Vec::new());
    for t in 0..n.t {
        for (b, h) in (0..n.b).flat_map(|b| (0..n.hv).map(move |h| (b, h))) {
            // Key heads are tiled over value heads: h mod Hk, not h / (Hv / Hk).
            let key = ((b * n.t + t) * n.hk + h % n.hk) * S;
            let val = (b * n.t + t) * n.hv + h;
            let m = &mut s[(b * n.hv + h) * S * S..][..S * S];
            for j in 0..S {
                for i in 0..S {
                    m[j * S + i] *= if n.kda { g[val * S + i] } else { g[val] }.exp();
                }
                let seen: f32 = (0..S).map(|i| m[j * S + i] * k[key + i]).sum();
                let delta = beta[val] * (v[val * S + j] - seen);
                for i in 0..S {
                    m[j * S + i] += delta * k[key + i];
                }
                let y: f32 = (0..S).map(|i| m[j * S + i] * q[key + i]).sum();
                out[val * S + j] = y / (S as f32).sqrt();
            }
        }
        planes.push(s.clone());
    }
    (out, planes)
}

type Naive = (Vec<f32>, Vec<Vec<f32>>);

fn run(n: &Net, snapshots: i64) -> (Vec<f32>, Naive) {
    let gate = if n.kda { S } else { 1 };
    let ne = [
        [S, n.hk, n.t, n.b],
        [S, n.hk, n.t, n.b],
        [S, n.hv, n.t, n.b],
        [gate, n.hv, n.t, n.b],
        [1, n.hv, n.t, n.b],
        [S, S, n.hv, n.b],
    ];
    let mut x: [Vec<f32>; 6] = std::array::from_fn(|i| noise(ne[i].iter().product(), i as u32 + 1));
    x[3].iter_mut().for_each(|v| *v = -v.abs());
    x[4].iter_mut().for_each(|v| *v = v.abs());
    let t: [Tensor; 6] = std::array::from_fn(|i| Tensor::f32(ne[i].map(|n| n as i64), &x[i]));
    let [q, k, v, g, beta, state] = &t;
    let net = DeltaNet { q, k, v, g, beta, state };
    let got = Cpu::new(2).gated_delta_net(&net, snapshots).unwrap();
    let rows = n.t * n.b + snapshots as usize * S * n.b;
    assert_eq!(got.ne, [(S * n.hv) as i64, rows as i64, 1, 1]);
    (got.to_f32(), naive(n, &x))
}

#[test]
fn outputs_then_one_state_plane() {
    for n in [
        Net { hk: 1, hv: 1, t: 1, b: 1, kda: false },
        Net { hk: 2, hv: 6, t: 3, b: 2, kda: false },
        Net { hk: 2, hv: 4, t: 5, b: 1, kda: true },
    ] {
        let (got, (out, planes)) = run(&n, 1);
        let want = [out, planes[n.t - 1].clone()].concat();
        assert!(nmse(&want, &got) < 1e-11, "{}", nmse(&want, &got));
    }
}

#[test]
fn plane_s_is_the_state_s_tokens_back() {
    let n = Net { hk: 2, hv: 4, t: 5, b: 2, kda: false };
    let (got, (out, planes)) = run(&n, 3);
    let want = [out, planes[4].clone(), planes[3].clone(), planes[2].clone()].concat();
    assert!(nmse(&want, &got) < 1e-11);
}

#[test]
fn planes_beyond_the_tokens_are_not_written() {
    let n = Net { hk: 1, hv: 2, t: 2, b: 1, kda: false };
    let (got, (out, planes)) = run(&n, 4);
    let want = [out, planes[1].clone(), planes[0].clone()].concat();
    let (written, rest) = got.split_at(want.len());
    assert!(nmse(&want, written) < 1e-11);
    assert!(rest.iter().all(|v| *v == 0.0), "the oracle hands out zeros there");
}

#[test]
fn a_states_row_is_a_value_and_its_contiguous_index_a_key() {
    // One token, no decay, empty state, beta 1: S = v k^T. Key e_1, value e_2: the one element is row 2,
    // column 1.
    let unit =
        |i: usize, ne| Tensor::f32(ne, &(0..S).map(|j| f32::from(u8::from(i == j))).collect::<Vec<_>>());
    let (k, v) = (unit(1, [S as i64, 1, 1, 1]), unit(2, [S as i64, 1, 1, 1]));
    let (zero, one) = (Tensor::f32([1, 1, 1, 1], &[0.0]), Tensor::f32([1, 1, 1, 1], &[1.0]));
    let state = Tensor::f32([S as i64, S as i64, 1, 1], &[0.0; S * S]);
    let net = DeltaNet { q: &k, k: &k, v: &v, g: &zero, beta: &one, state: &state };
    let got = Cpu::new(1).gated_delta_net(&net, 1).unwrap().to_f32();
    let mut want = vec![0f32; S + S * S];
    want[2] = 1.0 / (S as f32).sqrt();
    want[S + 2 * S + 1] = 1.0;
    assert_eq!(got, want);
}
