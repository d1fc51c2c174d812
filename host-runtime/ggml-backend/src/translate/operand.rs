//! Operands: ggml's tensors as the op table describes tensors.

use hexflash::gguf::GgmlType;
use hexflash::record::{self, Recorder};
use hexflash_abi::DType;

use super::{Place, Places, Refusal};
use crate::abi::Tensor;

/// A tensor of plain elements, or of rows of blocks, in the device's memory. Strides of axes of length 1,
/// which nothing steps along, are set to fixed values, so that equal operands compare equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub place: Place,
    pub dtype: DType,
    pub ne: [u32; 4],
    pub nb: [u32; 4],
}

/// An operand as it was recorded, and where it lies if it is not scratch memory.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    pub tensor: record::Tensor,
    pub at: Option<Operand>,
}

impl Value {
    pub fn dtype(self, recorder: &Recorder) -> DType {
        recorder.dtype(self.tensor)
    }
}

/// The type of ggml with a number.
pub fn type_of(tensor: &Tensor) -> Option<GgmlType> {
    GgmlType::from_id(u32::try_from(tensor.ty).ok()?)
}

/// Lengths of axes as the ABI has them.
pub fn lengths(tensor: &Tensor) -> Result<[u32; 4], Refusal> {
    let short = tensor.ne.iter().all(|&n| (1..=i64::from(i32::MAX)).contains(&n));
    if short { Ok(tensor.ne.map(|n| n as u32)) } else { Err(Refusal("an axis of 2^31 elements")) }
}

impl Operand {
    /// A tensor of floats or 32-bit integers.
    pub fn of(tensor: &Tensor, places: &dyn Places) -> Result<Self, Refusal> {
        let dtype = match type_of(tensor) {
            Some(GgmlType::F32) => DType::F32,
            Some(GgmlType::F16) => DType::F16,
            Some(GgmlType::I32) => DType::I32,
            _ => return Err(Refusal("the type of an operand")),
        };
        Self::with_type(tensor, dtype, places)
    }

    /// A tensor of floats or 32-bit integers, or rows of Q8_0 as they are.
    pub fn of_rows(tensor: &Tensor, places: &dyn Places) -> Result<Self, Refusal> {
        if type_of(tensor) == Some(GgmlType::Q8_0) {
            let operand = Self::with_type(tensor, DType::Q8_0, places)?;
            return if operand.has_rows() { Ok(operand) } else { Err(Refusal("blocks that are apart")) };
        }
        Self::of(tensor, places)
    }

    /// Integers: of 64 bits, their low halves, which are all there is to a number of rows.
    pub fn of_integers(tensor: &Tensor, places: &dyn Places) -> Result<Self, Refusal> {
        match type_of(tensor) {
            Some(GgmlType::I32 | GgmlType::I64) => Self::with_type(tensor, DType::I32, places),
            _ => Err(Refusal("row numbers that are no integers")),
        }
    }

    fn with_type(tensor: &Tensor, dtype: DType, places: &dyn Places) -> Result<Self, Refusal> {
        let place = places.place(tensor).ok_or(Refusal("memory of another device"))?;
        if place.tiled {
            return Err(Refusal("weights in tiles"));
        }
        let ne = lengths(tensor)?;
        let mut nb = [0; 4];
        for axis in (0..4).filter(|&axis| ne[axis] > 1) {
            nb[axis] = u32::try_from(tensor.nb[axis]).map_err(|_| Refusal("a stride of 4 GiB"))?;
        }
        Ok(Self { place, dtype, ne, nb }.view(0, ne, nb))
    }

    /// Bytes from the first to one past the last.
    pub fn bytes(&self) -> u64 {
        let steps = |axis: usize| self.units(axis).saturating_sub(1);
        (0..4).map(|axis| steps(axis) * u64::from(self.nb[axis])).sum::<u64>() + self.size()
    }

    /// Bytes of an element, or a block.
    fn size(&self) -> u64 {
        self.dtype.row_block().map_or(0, |block| block.bytes as u64)
    }

    /// Elements along an axis, or blocks along the first one.
    fn units(&self, axis: usize) -> u64 {
        let n = self.ne[axis];
        self.dtype.row_block().filter(|_| axis == 0).map_or(n.into(), |block| block.count(n as usize) as u64)
    }

    /// Whether a row of `n` values is whole blocks of a type.
    pub fn is_whole(dtype: DType, n: u32) -> bool {
        dtype.row_block().is_some_and(|block| (n as usize).is_multiple_of(block.values))
    }

    /// Whether the elements of a row are adjacent.
    pub fn has_rows(&self) -> bool {
        u64::from(self.nb[0]) == self.size()
    }

    /// Whether there are no gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut next = self.size();
        (0..4).all(|axis| {
            let fits = self.ne[axis] == 1 || u64::from(self.nb[axis]) == next;
            next *= self.units(axis);
            fits
        })
    }

    /// An axis along which elements are adjacent.
    pub fn dense_axis(&self) -> Option<usize> {
        if self.has_rows() {
            return Some(0);
        }
        (1..4).find(|&axis| self.ne[axis] > 1 && u64::from(self.nb[axis]) == self.size())
    }

    /// Whether the bytes from the first to the last of both meet.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.place.offset, other.place.offset);
        self.place.buffer == other.place.buffer && a < b + other.bytes() && b < a + self.bytes()
    }

    /// Another view, `bytes` further on.
    pub fn view(&self, bytes: u64, ne: [u32; 4], mut nb: [u32; 4]) -> Self {
        let fixed = [self.size() as u32, 0, 0, 0];
        for axis in (0..4).filter(|&axis| ne[axis] == 1) {
            nb[axis] = fixed[axis];
        }
        Self { place: Place { offset: self.place.offset + bytes, ..self.place }, ne, nb, ..*self }
    }

    /// The same elements in order, as another shape without gaps; this one has none.
    pub fn reshaped(&self, ne: [u32; 4]) -> Result<Self, Refusal> {
        if !Self::is_whole(self.dtype, ne[0]) {
            return Err(Refusal("rows of parts of blocks"));
        }
        let packed = record::packed(self.dtype, ne).map_err(|_| Refusal("a stride of 4 GiB"))?;
        Ok(self.view(0, ne, packed.nb))
    }

    /// With axes in another order: axis i is axis `order[i]` of this.
    pub fn permuted(&self, order: [usize; 4]) -> Self {
        self.view(0, order.map(|i| self.ne[i]), order.map(|i| self.nb[i]))
    }
}
