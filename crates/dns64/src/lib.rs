//! DNS64, the DNS ALG of NAT-PT, Neighbour Discovery messages, and the discovery of translation prefixes, without any
//! input or output.
#![forbid(unsafe_code)]

#[cfg(feature = "nat-pt")]
pub mod alg;
pub mod discovery;

mod chain;
pub mod ede;
mod exchange;
pub mod ndp;
mod policies;
mod policy;
mod rebinding;
mod request;
mod resolve;
mod response;
mod reverse;
mod special;
mod synthesis;
#[cfg(test)]
mod tests;
mod well_known;

pub use chain::{covered, dname_target};
pub use ede::Ede;
pub use exchange::{Answer, Failure, Outcome, Question, Security};
pub use policies::{Policies, PoliciesError};
pub use policy::{MAPPED, Names, Policy, Range, Rebinding, Reverse};
pub use request::{Rejected, parse, udp_limit};
pub use resolve::{Pending, Step, begin};
pub use response::{Kind, Response};
