//! Ops that keep a state from token to token.

pub mod gated_delta_net;
pub mod ssm_conv;
