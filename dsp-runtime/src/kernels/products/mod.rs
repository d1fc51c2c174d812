//! Products of weights and activations, and the int8 form of activations.

pub mod mul_mat;
pub mod quantize;
