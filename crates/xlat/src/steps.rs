//! Steps that a packet takes on other ways through a gateway, too: what is no translation, and yet must judge, cut
//! and answer packets as translation does (softwires).

pub use crate::addr::classify::{illegal_v4, illegal_v6};
pub use crate::reply::{Errors, answer};
pub use crate::stop::Stop;
pub use crate::transport::{Segment, check_offload, clamp_mss, segment_header_len};
pub use crate::v4_to_v6::validate as validate_v4;
