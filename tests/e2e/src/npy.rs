//! Arrays as numpy writes them: as much of the `.npy` format as the reference outputs need.

use std::path::Path;

/// A row-major array of F32.
pub struct Array {
    /// Elements per axis, the slowest first.
    pub shape: Vec<usize>,
    /// The elements.
    pub values: Vec<f32>,
}

impl Array {
    /// Reads a file of version 1 with little-endian F32 in C order.
    ///
    /// # Panics
    /// If it is not one.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.display();
        assert!(bytes.starts_with(b"\x93NUMPY\x01"), "{name} is not an npy file of version 1");
        let header_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let (header, data) = bytes[10..].split_at(header_len);
        let header = str::from_utf8(header).expect("an ASCII header");
        assert!(header.contains("'descr': '<f4'") && header.contains("'fortran_order': False"), "{header}");
        let (_, shape) = header.split_once("'shape': (").expect("a shape");
        let (shape, _) = shape.split_once(')').expect("a shape in parentheses");
        let shape: Vec<usize> = shape
            .split(',')
            .map(str::trim)
            .filter(|n| !n.is_empty())
            .map(|n| n.parse().expect("a length"))
            .collect();
        let values: Vec<f32> = data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name} is truncated");
        Self { shape, values }
    }

    /// Element `i` of the slowest axis.
    pub fn at(&self, i: usize) -> &[f32] {
        let len = self.values.len() / self.shape[0];
        &self.values[i * len..][..len]
    }
}
