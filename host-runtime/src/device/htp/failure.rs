//! Failures to send or to receive a message.

use super::error::HtpError;

/// The reason why a message was not sent or received.
#[derive(Debug)]
pub(super) enum TransportFailure {
    /// No room for a message, or none that came in time.
    NotYet,
    /// The way is of no use any more.
    Lost(HtpError),
}
