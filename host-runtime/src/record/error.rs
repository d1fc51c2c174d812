//! Programs that cannot be recorded.

use hexflash_abi::op::Explained;
use hexflash_abi::{DType, Fault};

use super::site::Site;
use crate::setting::Setting;

/// A program that cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// More buffers, tensors or ops than the ABI allows.
    #[error(
        "the program needs {} buffers, {} tensors and {} ops, more than a device takes; \
         split the model over sessions{}",
        counts[0], counts[1], counts[2],
        Setting::Sessions.in_parentheses()
    )]
    TooLarge {
        /// Buffers, tensors, ops.
        counts: [usize; 3],
    },
    /// The steps between the rows or matrices of a tensor exceed 32 bits.
    #[error(
        "a {dtype} tensor of {ne:?} is larger than a program can describe; use a smaller context{} or model",
        Setting::Context.in_parentheses()
    )]
    Strides {
        /// Its type.
        dtype: DType,
        /// Its elements per axis.
        ne: [u32; 4],
    },
    /// A cache's number format does not go with the model's heads.
    #[error("{setting}: {cache} does not go with this model: {reason}; use q8_0 or f16")]
    CacheType {
        /// The setting.
        setting: Setting,
        /// The number format.
        cache: &'static str,
        /// Why.
        reason: String,
    },
    /// The device would refuse it: a bug in hexflash, or a model with dimensions that an op does not support.
    #[error("the device does not support a shape of this model: {}", reason(.site.as_ref(), .fault))]
    Invalid {
        /// The op concerned.
        site: Option<Site>,
        /// What validation found.
        fault: Fault,
    },
}

fn reason(site: Option<&Site>, fault: &Fault) -> String {
    site.map_or_else(|| Explained::new(None, *fault).to_string(), |site| site.explain(fault))
}
