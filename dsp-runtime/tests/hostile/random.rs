//! Choices: at random but reproducible, or out of the bytes that a fuzzer gives.

/// Where choices come from.
pub struct Random(Source);

enum Source {
    /// The state of a generator.
    Seed(u64),
    /// Bytes left, last one first: each choice takes as many as it needs, and is the first one when there are
    /// none.
    Bytes(Vec<u8>),
}

impl Random {
    /// xorshift64*, seeded through splitmix64.
    pub fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(Source::Seed((z ^ (z >> 31)) | 1))
    }

    /// Choices out of `bytes`.
    #[allow(dead_code, reason = "for the fuzz targets, which share this file")]
    pub fn chosen(bytes: &[u8]) -> Self {
        Self(Source::Bytes(bytes.iter().rev().copied().collect()))
    }

    /// Whether there is no choice left.
    #[allow(dead_code, reason = "for the fuzz targets, which share this file")]
    pub fn is_spent(&self) -> bool {
        matches!(&self.0, Source::Bytes(bytes) if bytes.is_empty())
    }

    /// `bits` random bits, or whole bytes that have as many at least.
    fn bits(&mut self, bits: u32) -> u64 {
        match &mut self.0 {
            Source::Seed(state) => {
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (64 - bits)
            }
            Source::Bytes(bytes) => {
                let n = bits.div_ceil(8) as usize;
                (0..n).fold(0, |word, _| word << 8 | u64::from(bytes.pop().unwrap_or(0)))
            }
        }
    }

    pub fn next(&mut self) -> u64 {
        self.bits(64)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        if matches!(self.0, Source::Seed(_)) {
            return ((self.bits(32) * n as u64) >> 32) as usize;
        }
        let bits = usize::BITS - (n - 1).leading_zeros();
        (self.bits(bits) % n as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A word on which rules change their mind, or any.
    pub fn telling(&mut self) -> u64 {
        const EDGES: [u64; 28] = [
            0,
            1,
            2,
            3,
            4,
            5,
            7,
            8,
            16,
            31,
            32,
            33,
            40,
            64,
            127,
            128,
            129,
            256,
            4095,
            4096,
            4097,
            0xffff,
            1 << 16,
            i32::MAX as u64,
            1 << 31,
            u32::MAX as u64 - 127,
            u32::MAX as u64,
            u64::MAX,
        ];
        match self.below(6) {
            0 => self.next(),
            1 => self.below(1 << 17) as u64,
            _ => self.pick(&EDGES),
        }
    }

    /// The bits of a float, often an awkward one.
    pub fn float(&mut self) -> u32 {
        const AWKWARD: [f32; 10] = [
            0.0,
            -0.0,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
            1e-45,
            -1e-38,
            65536.0,
        ];
        match self.below(24) {
            0 => self.next() as u32,
            1 => self.pick(&AWKWARD).to_bits(),
            _ => (self.below(1 << 16) as f32 / 16384.0 - 2.0).to_bits(),
        }
    }
}
