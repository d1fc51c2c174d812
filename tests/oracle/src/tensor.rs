//! Tensors as ggml describes them: a type, four extents, byte strides, and bytes.
//!
//! Shapes are in ggml's order throughout: `ne[0]` is the innermost, contiguous dimension.

use half::{bf16, f16};

/// Why a tensor or an operation was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A view reaches past the end of its data.
    #[error("tensor of {ty:?} {ne:?} needs {needed} bytes, its data has {got}")]
    Extent {
        /// Element type.
        ty: GgmlType,
        /// Extents.
        ne: [i64; 4],
        /// Bytes up to the end of the last row.
        needed: usize,
        /// Bytes there are.
        got: usize,
    },
    /// Extents below one, rows that are not whole blocks, strides smaller than an element or not a multiple
    /// of one.
    #[error("malformed tensor of {ty:?} {ne:?}: {why}")]
    Malformed {
        /// Element type.
        ty: GgmlType,
        /// Extents.
        ne: [i64; 4],
        /// The rule that is broken.
        why: &'static str,
    },
    /// Arguments that do not fit together, where ggml itself does not check.
    #[error("{op}: {why}")]
    Shape {
        /// Name of the operation.
        op: &'static str,
        /// The rule that is broken.
        why: String,
    },
    /// ggml reported a failure while computing.
    #[error("ggml status {0}")]
    Compute(i32),
}

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $label:literal, $len:literal, $bytes:literal;)*) => {
        /// Element types, with ggml's numbers: `ty as u32` is the `ggml_type`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "ggml's own spelling")]
        #[repr(u32)]
        pub enum GgmlType { $($(#[$doc])* $name = $id,)* }

        impl GgmlType {
            /// All types known here.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Elements in a block (1 for plain types).
            pub const fn block_len(self) -> usize {
                match self { $(Self::$name => $len,)* }
            }

            /// Bytes in a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$name => $bytes,)* }
            }

            /// ggml's name, as it appears in case names.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// The type with this ggml number.
            pub const fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$name),)* _ => None }
            }
        }
    };
}

types! {
    /// IEEE single.
    F32 = 0, "f32", 1, 4;
    /// IEEE half.
    F16 = 1, "f16", 1, 2;
    /// 4 bit, scale.
    Q4_0 = 2, "q4_0", 32, 18;
    /// 4 bit, scale and minimum.
    Q4_1 = 3, "q4_1", 32, 20;
    /// 5 bit, scale.
    Q5_0 = 6, "q5_0", 32, 22;
    /// 5 bit, scale and minimum.
    Q5_1 = 7, "q5_1", 32, 24;
    /// 8 bit, scale.
    Q8_0 = 8, "q8_0", 32, 34;
    /// 2 bit in super-blocks.
    Q2_K = 10, "q2_K", 256, 84;
    /// 3 bit in super-blocks.
    Q3_K = 11, "q3_K", 256, 110;
    /// 4 bit in super-blocks.
    Q4_K = 12, "q4_K", 256, 144;
    /// 5 bit in super-blocks.
    Q5_K = 13, "q5_K", 256, 176;
    /// 6 bit in super-blocks.
    Q6_K = 14, "q6_K", 256, 210;
    /// 4 bit, non-linear code book.
    IQ4_NL = 20, "iq4_nl", 32, 18;
    /// 4 bit, non-linear code book, in super-blocks.
    IQ4_XS = 23, "iq4_xs", 256, 136;
    /// Indices, positions, token ids.
    I32 = 26, "i32", 1, 4;
    /// Row indices of SET_ROWS.
    I64 = 27, "i64", 1, 8;
    /// Upper half of a single.
    BF16 = 30, "bf16", 1, 2;
    /// 4 bit floats with a shared exponent (gpt-oss).
    MXFP4 = 39, "mxfp4", 32, 17;
    /// A bit, with a scale.
    Q1_0 = 41, "q1_0", 128, 18;
    /// 2 bit, scale.
    Q2_0 = 42, "q2_0", 64, 18;
}

impl GgmlType {
    /// Whether elements come in blocks.
    pub const fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `n` elements, which must be whole blocks.
    pub const fn row_bytes(self, n: usize) -> usize {
        n / self.block_len() * self.block_bytes()
    }
}

/// Strides and start of a tensor inside its data, both in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Stride of each dimension; `nb[0]` is the distance of blocks in a row.
    pub nb: [usize; 4],
    /// Where element 0 starts.
    pub offset: usize,
}

/// A tensor that owns its bytes. Without a view it is contiguous.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub ty: GgmlType,
    /// Extents, innermost first.
    pub ne: [i64; 4],
    /// Where it lies in `data`, if it is not simply all of it in order.
    pub view: Option<View>,
    /// The bytes, little-endian.
    pub data: Vec<u8>,
}

impl Tensor {
    /// A contiguous tensor over `data`.
    pub fn new(ty: GgmlType, ne: [i64; 4], data: Vec<u8>) -> Self {
        Self { ty, ne, view: None, data }
    }

    /// A contiguous F32 tensor.
    pub fn f32(ne: [i64; 4], values: &[f32]) -> Self {
        Self::new(GgmlType::F32, ne, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A contiguous F16 tensor, rounded from F32.
    pub fn f16(ne: [i64; 4], values: &[f32]) -> Self {
        Self::new(GgmlType::F16, ne, values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect())
    }

    /// A contiguous I32 tensor.
    pub fn i32(ne: [i64; 4], values: &[i32]) -> Self {
        Self::new(GgmlType::I32, ne, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A contiguous I64 tensor.
    pub fn i64(ne: [i64; 4], values: &[i64]) -> Self {
        Self::new(GgmlType::I64, ne, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A contiguous tensor of zero bytes.
    pub fn zeros(ty: GgmlType, ne: [i64; 4]) -> Self {
        let rows = (ne[1] * ne[2] * ne[3]) as usize;
        Self::new(ty, ne, vec![0; rows * ty.row_bytes(ne[0] as usize)])
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.ne.iter().product::<i64>() as usize
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Byte strides.
    pub fn nb(&self) -> [usize; 4] {
        self.view.map_or_else(|| contiguous_nb(self.ty, self.ne), |v| v.nb)
    }

    /// Byte offset of element 0 in `data`.
    pub fn offset(&self) -> usize {
        self.view.map_or(0, |v| v.offset)
    }

    /// Whether the bytes are in order, without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.nb() == contiguous_nb(self.ty, self.ne) && self.offset() == 0
    }

    /// As `ggml_permute`: dimension `i` of this tensor becomes dimension `axes[i]`. No bytes move.
    pub fn permute(self, axes: [usize; 4]) -> Self {
        let (nb, offset) = (self.nb(), self.offset());
        let (mut ne2, mut nb2) = ([0; 4], [0; 4]);
        for i in 0..4 {
            ne2[axes[i]] = self.ne[i];
            nb2[axes[i]] = nb[i];
        }
        Self { ne: ne2, view: Some(View { nb: nb2, offset }), ..self }
    }

    /// As `ggml_view_4d`: other extents over the same data, with the same strides unless given.
    pub fn slice(self, ne: [i64; 4], nb: Option<[usize; 4]>, offset: usize) -> Self {
        let view = View { nb: nb.unwrap_or_else(|| self.nb()), offset: self.offset() + offset };
        Self { ne, view: Some(view), ..self }
    }

    /// The same elements in order, without gaps.
    pub fn contiguous(&self) -> Self {
        if self.is_contiguous() && self.data.len() == self.ty.row_bytes(self.len()) {
            return Self { view: None, ..self.clone() };
        }
        let mut data = Vec::with_capacity(self.ty.row_bytes(self.len()));
        let (nb, size) = (self.nb(), self.ty.block_bytes());
        let blocks = self.ne[0] as usize / self.ty.block_len();
        self.for_rows(|row| {
            for b in 0..blocks {
                let at = row + b * nb[0];
                data.extend_from_slice(&self.data[at..at + size]);
            }
        });
        Self::new(self.ty, self.ne, data)
    }

    /// Calls `f` with the byte offset of each row, in order.
    fn for_rows(&self, mut f: impl FnMut(usize)) {
        let nb = self.nb();
        for i3 in 0..self.ne[3] as usize {
            for i2 in 0..self.ne[2] as usize {
                for i1 in 0..self.ne[1] as usize {
                    f(self.offset() + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]);
                }
            }
        }
    }

    /// All elements in order as F32 (integers are converted, quantized blocks decoded by ggml).
    pub fn to_f32(&self) -> Vec<f32> {
        let c = self.contiguous();
        match self.ty {
            GgmlType::F32 => words(&c.data).map(f32::from_le_bytes).collect(),
            GgmlType::F16 => words(&c.data).map(|b| f16::from_le_bytes(b).to_f32()).collect(),
            GgmlType::BF16 => words(&c.data).map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
            GgmlType::I32 => words(&c.data).map(|b| i32::from_le_bytes(b) as f32).collect(),
            GgmlType::I64 => words(&c.data).map(|b| i64::from_le_bytes(b) as f32).collect(),
            _ => crate::ops::dequantize(self.ty, &c.data),
        }
    }

    /// All elements of an I32 tensor in order.
    ///
    /// # Panics
    /// If the type is another.
    pub fn to_i32(&self) -> Vec<i32> {
        assert_eq!(self.ty, GgmlType::I32, "to_i32 of another type");
        words(&self.contiguous().data).map(i32::from_le_bytes).collect()
    }

    /// Checks that extents and strides make sense and stay inside the data.
    pub fn check(&self) -> Result<(), Error> {
        let malformed = |why| Err(Error::Malformed { ty: self.ty, ne: self.ne, why });
        let nb = self.nb();
        if self.ne.iter().any(|&n| n < 1) {
            return malformed("an extent is below 1");
        }
        if !(self.ne[0] as usize).is_multiple_of(self.ty.block_len()) {
            return malformed("rows are not whole blocks");
        }
        let unit = if self.ty.is_quantized() { 1 } else { self.ty.block_bytes() };
        if nb.iter().chain([&self.offset()]).any(|n| !n.is_multiple_of(unit)) {
            return malformed("a stride or the offset is not a multiple of the element's size");
        }
        let blocks = [self.ne[0] as usize / self.ty.block_len(), self.ne[1] as usize, self.ne[2] as usize];
        let last = blocks
            .iter()
            .chain(&[self.ne[3] as usize])
            .zip(&nb)
            .try_fold(self.offset(), |at, (n, s)| s.checked_mul(n - 1).and_then(|d| at.checked_add(d)));
        match last.and_then(|at| at.checked_add(self.ty.block_bytes())) {
            Some(needed) if needed <= self.data.len() => Ok(()),
            needed => Err(Error::Extent {
                ty: self.ty,
                ne: self.ne,
                needed: needed.unwrap_or(usize::MAX),
                got: self.data.len(),
            }),
        }
    }
}

fn words<const N: usize>(data: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    data.as_chunks::<N>().0.iter().copied()
}

/// Strides of a tensor without gaps.
pub fn contiguous_nb(ty: GgmlType, ne: [i64; 4]) -> [usize; 4] {
    let nb1 = ty.row_bytes(ne[0] as usize);
    let nb2 = nb1 * ne[1] as usize;
    [ty.block_bytes(), nb1, nb2, nb2 * ne[2] as usize]
}

/// Normalised mean squared error, test-backend-ops' metric: sum of (a-b)^2 over sum of a^2, `a` the
/// reference.
///
/// Equal infinities count as equal. Anything else that is not finite, and a length that differs, gives
/// infinity; a reference of zeros gives 0 for zeros and infinity for anything else.
pub fn nmse(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let (mut err, mut norm) = (0.0f64, 0.0f64);
    for (&x, &y) in a.iter().zip(b) {
        if x.is_infinite() && x == y {
            continue;
        }
        if !x.is_finite() || !y.is_finite() {
            return f64::INFINITY;
        }
        let d = f64::from(x) - f64::from(y);
        err += d * d;
        norm += f64::from(x) * f64::from(x);
    }
    if err == 0.0 { 0.0 } else { err / norm }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permute_moves_extents_and_strides_only() {
        let t = Tensor::f32([2, 3, 1, 1], &[0., 1., 2., 3., 4., 5.]).permute([1, 0, 2, 3]);
        assert_eq!((t.ne, t.nb()), ([3, 2, 1, 1], [8, 4, 24, 24]));
        assert_eq!(t.to_f32(), [0., 2., 4., 1., 3., 5.]);
        // ggml's direction: dimension i goes to axes[i].
        assert_eq!(Tensor::zeros(GgmlType::F32, [2, 3, 5, 7]).permute([0, 2, 3, 1]).ne, [2, 7, 3, 5]);
    }

    #[test]
    fn a_view_past_the_end_is_refused() {
        let t = Tensor::zeros(GgmlType::F32, [4, 2, 1, 1]);
        assert!(t.clone().slice([4, 1, 1, 1], None, 16).check().is_ok());
        assert!(matches!(
            t.clone().slice([4, 2, 1, 1], None, 16).check(),
            Err(Error::Extent { needed: 48, .. })
        ));
        assert!(matches!(t.slice([4, 1, 1, 1], None, 3).check(), Err(Error::Malformed { .. })));
        assert!(matches!(Tensor::zeros(GgmlType::Q8_0, [40, 1, 1, 1]).check(), Err(Error::Malformed { .. })));
    }

    #[test]
    fn nmse_is_strict_about_what_is_not_finite() {
        assert_eq!(nmse(&[1., f32::NEG_INFINITY], &[1., f32::NEG_INFINITY]), 0.0);
        assert_eq!(nmse(&[1., f32::INFINITY], &[1., f32::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(nmse(&[f32::NAN], &[f32::NAN]), f64::INFINITY);
        assert_eq!(nmse(&[0.0], &[1e-9]), f64::INFINITY);
        assert_eq!(nmse(&[3., 4.], &[3., 4.5]), 0.25 / 25.0);
    }
}
