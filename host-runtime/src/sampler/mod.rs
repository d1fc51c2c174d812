//! sampler (to be written).
