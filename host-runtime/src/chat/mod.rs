//! chat (to be written).
