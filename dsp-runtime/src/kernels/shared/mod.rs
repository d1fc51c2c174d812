//! Parts of kernels that several families need.

pub mod alibi;
pub mod damage;
pub mod lanes;
pub mod largest;
pub mod map;
pub mod matrix_rows;
pub mod pieces;
pub mod row_scale;
