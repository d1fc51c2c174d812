//! Every operation of every back end against [`Portable`].

mod math;

use half::f16;

use super::operations::{Bits, Operations, agree};
use super::portable::Portable;
use super::{BYTES, Hvx, Isa, LANES, WithHvx};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u32
    }

    fn bits(&mut self) -> Bits {
        core::array::from_fn(|_| self.word())
    }

    fn pick(&mut self, from: &[u32]) -> Bits {
        core::array::from_fn(|_| from[self.word() as usize % from.len()])
    }
}

/// Floats at the borders of everything, both signs: NaNs (quiet, signalling, with payloads) included.
fn edges() -> Vec<u32> {
    let values = [0.0, f32::MIN_POSITIVE, 0.5, 1.0, 1.000_000_1, 1.5, 2.5, 3.0, 65504.0, 65536.0, 1e30];
    let mut bits: Vec<u32> = values.map(f32::to_bits).into();
    bits.extend([1, 2, 0x007f_ffff, 0x3eff_ffff, 0x4a80_0001, 0x4b00_0001, 0x7f7f_ffff, 0x7f80_0000]);
    bits.extend([0x7f80_0001, 0x7fa5_5a5a, 0x7fc0_0000, 0x7fff_ffff]);
    bits.iter().flat_map(|&b| [b, b | 1 << 31]).collect()
}

/// Floats that `to_int` is defined for: where rounding ties, and around the powers of two where its method
/// may change.
fn roundable(random: &mut Random) -> Vec<u32> {
    let mut values = vec![2_147_483_520.0, 2_147_483_392.0, 16_777_215.0, 16_777_218.0, 0.499_999_97];
    for power in [0, 1, 8, 20, 21, 22, 23, 24] {
        let whole = (1_u32 << power) as f32;
        values
            .extend([-1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5].map(|d| whole + d));
    }
    values.extend(
        (0..400).map(|_| f32::from_bits(random.word() & 0x7fff_ffff)).filter(|x| *x < 2_147_483_648.0),
    );
    values.iter().flat_map(|x: &f32| [x.to_bits(), (-x).to_bits()]).chain([1, 0x8000_0001]).collect()
}

fn out_f<H: Hvx>(v: H::F) -> Bits {
    let mut bits = [0; LANES];
    // SAFETY: `bits` is an array of 32 words, which are 128 bytes.
    unsafe { H::store(bits.as_mut_ptr().cast(), v) };
    bits
}

#[test]
fn operations_match_portable() {
    let mut random = Random(1);
    let edges = edges();
    let roundable = roundable(&mut random);
    let extremes =
        [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xff00_ff00, 0x00ff_00ff, 0x8080_8080, 0x7f7f_7f7f];
    let mut cases = Vec::new();
    // Every pair of edges, for the comparisons.
    let pairs: Vec<_> = edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))).collect();
    for (n, pairs) in pairs.chunks(LANES).enumerate() {
        let lane = |k: usize| pairs[k.min(pairs.len() - 1)];
        let [x, y] = [core::array::from_fn(|k| lane(k).0), core::array::from_fn(|k| lane(k).1)];
        let roundable = core::array::from_fn(|k| roundable[(n * LANES + k) % roundable.len()]);
        let words = [random.pick(&extremes), random.pick(&extremes)];
        cases.push(Operations { floats: [x, y, random.pick(&edges), random.pick(&edges)], roundable, words });
    }
    for _ in 0..3000 {
        let floats = core::array::from_fn(|_| random.bits());
        let words = [random.bits(), random.bits()];
        cases.push(Operations { floats, roundable: random.pick(&roundable), words });
    }
    for case in &cases {
        let want = case.with::<Portable>();
        for isa in Isa::available() {
            let got = isa.run(case);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                for lane in 0..LANES {
                    let (op, arithmetic) = (want.op, want.arithmetic);
                    let (got, want) = (got.bits[lane], want.bits[lane]);
                    let (x, y) = (case.floats[0][lane], case.floats[1][lane]);
                    let (i, j) = (case.words[0][lane], case.words[1][lane]);
                    assert!(
                        agree(want, got, arithmetic),
                        "{isa:?} {op} lane {lane}: {got:08x}, not {want:08x}, of {x:08x} {y:08x}, {i:08x} \
                         {j:08x}"
                    );
                }
            }
        }
    }
}

/// Of each lane's integer.
struct ByHalves([i32; LANES]);

impl WithHvx for ByHalves {
    type Output = Bits;

    #[inline(always)]
    fn with<H: Hvx>(self) -> Bits {
        // SAFETY: the array is 32 words, which are 128 bytes; an unaligned read takes any address.
        let x = H::words(unsafe { H::load_b(self.0.as_ptr().cast()) });
        out_f::<H>(super::math::to_float_by_halves::<H>(x))
    }
}

/// What v68 and v69 have no instruction for.
#[test]
fn integers_become_floats_by_halves() {
    let mut random = Random(3);
    let mut values = vec![0, 1, -1, i32::MIN, i32::MAX, 0xffff, 0x1_0000, -0xffff, -0x1_0000, -0x1_0001];
    for power in 0..31 {
        let one = 1i32 << power;
        values.extend((-3..=3).flat_map(|d| [one, -one, i32::MAX - one].map(|x| x.wrapping_add(d))));
    }
    // Halves of an ulp, where ties go to even, and beside them.
    values.extend((0..64).flat_map(|k| [-1, 0, 1].map(|d| (1 << 30) + 32 * k + d)));
    // Few and many significant bits.
    values.extend((0..20_000).map(|_| (random.word() as i32) >> (random.word() % 31)));
    values.resize(values.len().next_multiple_of(LANES), 0);
    for chunk in values.chunks_exact(LANES) {
        let chunk: [i32; LANES] = chunk.try_into().unwrap();
        let want = chunk.map(|x| (x as f32).to_bits());
        for isa in Isa::available() {
            assert_eq!(isa.run(ByHalves(chunk)), want, "{isa:?} {chunk:?}");
        }
    }
}

#[test]
fn to_int_rounds_ties_to_even() {
    let mut random = Random(2);
    let values = roundable(&mut random);
    for chunk in values.chunks_exact(LANES) {
        let roundable = chunk.try_into().unwrap();
        let case = Operations { floats: [[0; LANES]; 4], roundable, words: [[0; LANES]; 2] };
        for isa in Isa::available() {
            let got = isa.run(&case).into_iter().find(|outcome| outcome.op == "to_int").unwrap().bits;
            let want = roundable.map(|x| f32::from_bits(x).round_ties_even() as i32 as u32);
            assert_eq!(got, want, "{isa:?}");
        }
    }
}

struct WidenF16<'a>(&'a [u16; BYTES / 2]);

impl WithHvx for WidenF16<'_> {
    type Output = (Bits, Bits);

    #[inline(always)]
    fn with<H: Hvx>(self) -> Self::Output {
        // SAFETY: `self.0` is an array of 64 halves, which are 128 bytes.
        let (low, high) = H::widen_f16(unsafe { H::load_b(self.0.as_ptr().cast()) });
        (out_f::<H>(low), out_f::<H>(high))
    }
}

#[test]
fn widen_f16_is_exact_for_every_f16() {
    for first in (0..=u16::MAX).step_by(BYTES / 2) {
        let halves = core::array::from_fn(|i| first + i as u16);
        for isa in Isa::available() {
            let got = isa.run(WidenF16(&halves));
            for lane in 0..LANES {
                for (bits, got) in [(halves[2 * lane], got.0[lane]), (halves[2 * lane + 1], got.1[lane])] {
                    let want = f16::from_bits(bits).to_f32().to_bits();
                    assert!(agree(want, got, true), "{isa:?} {bits:04x}: {got:08x}, not {want:08x}");
                }
            }
        }
    }
}

struct Partial<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl WithHvx for Partial<'_> {
    type Output = Bits;

    #[inline(always)]
    fn with<H: Hvx>(self) -> Bits {
        // SAFETY: `from` and `to` are slices of 1 to 32 floats, and as many are loaded and stored.
        unsafe {
            let v = H::load_n(self.from.as_ptr(), self.from.len());
            H::store_n(self.to.as_mut_ptr(), v, self.to.len());
            out_f::<H>(v)
        }
    }
}

#[test]
fn partial_loads_and_stores_keep_to_their_floats() {
    const CANARY: f32 = -7.5;
    let numbers: Vec<f32> = (1..=3 * LANES).map(|i| i as f32).collect();
    for isa in Isa::available() {
        for n in 1..=LANES {
            for at in [LANES, LANES + 1, 2 * LANES - n] {
                let mut memory = [CANARY; 3 * LANES];
                let from = &numbers[at..at + n];
                let loaded = isa.run(Partial { from, to: &mut memory[at..at + n] }).map(f32::from_bits);
                assert_eq!(loaded[..n], *from, "{isa:?} {n}");
                assert!(loaded[n..].iter().all(|x| x.to_bits() == 0), "{isa:?} {n}: {loaded:?}");
                for (i, &x) in memory.iter().enumerate() {
                    let want = if (at..at + n).contains(&i) { numbers[i] } else { CANARY };
                    assert_eq!(x, want, "{isa:?} {n} at {at}: float {i}");
                }
            }
        }
    }
}

#[test]
fn run_dispatches_to_the_back_end_that_it_names() {
    struct Name;
    impl WithHvx for Name {
        type Output = &'static str;
        #[inline(always)]
        fn with<H: Hvx>(self) -> &'static str {
            core::any::type_name::<H>()
        }
    }
    assert!(Isa::detect() == Isa::Portable || Isa::available().count() > 1);
    for isa in Isa::available() {
        let want = match isa {
            Isa::Portable => "::Portable",
            #[cfg(vectors_avx2)]
            Isa::Avx2(_) => "::Avx2",
            #[cfg(vectors_avx512)]
            Isa::Avx512(_) => "::Avx512",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "::Neon",
        };
        assert!(isa.run(Name).ends_with(want), "{isa:?} runs {}", isa.run(Name));
    }
}
