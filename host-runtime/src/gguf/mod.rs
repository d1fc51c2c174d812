//! gguf (to be written).
