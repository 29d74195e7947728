//! What softwires share with translation: checks, segment sizes, ICMP errors, the hash.

pub use crate::addr::classify::{illegal_v4, illegal_v6};
pub use crate::hash::mix;
pub use crate::offload::segment_header_len;
pub use crate::reply::{Errors, answer};
pub use crate::stop::Stop;
pub use crate::transport::{Segment, check_offload, clamp_mss};
pub use crate::v4_to_v6::validate as validate_v4;
