//! Attention, and the ops that prepare it or stand for it in graphs without FLASH_ATTN_EXT.

pub mod flash_attn;
pub mod rope;
pub mod soft_max;
