//! Ops on elements and rows that take little of a step's time, and those that choose tokens.

pub mod accept;
pub mod add_id;
pub mod argmax;
pub mod argsort;
pub mod concat;
pub mod copy_slot;
pub mod cpy;
pub mod elementwise;
pub mod glu;
pub mod layer_norm;
pub mod norm;
pub mod rows;
pub mod sum_rows;
pub mod topk_moe;
pub mod unary;
pub mod weighted_sum;
