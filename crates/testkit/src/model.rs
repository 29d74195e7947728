//! A naive model of stateful NAT64, written from RFC 6146: plain lists, searched from end to end.
//!
//! The [`Model`] is told of every packet, of time and of what the operator does, and says what must come
//! of it and what the tables must hold then. It shares nothing with the core but what an operator sets.
//! What the core is free to choose (which address and port of the pool a host gets, RFC 6056) the model
//! is told, and checks against the rules of RFC 6146 sections 3.5.1.1 and 3.5.2.3.
//!
//! Time goes in whole seconds: a lifetime is over as soon as more seconds have gone by than it has.
//!
//! | module | content |
//! |---|---|
//! | `packet` | packets as tuples |
//! | `tcp` | the state machine of RFC 6146 section 3.5.2.2 |
//! | `table` | BIB, sessions, subscribers |
//! | `filter` | RFC 6146 section 3.5: what a packet does to them |
//! | `quota` | how much a subscriber may use |
//! | `allocate` | whether a choice of address and port was a good one |
//! | `sweep` | what time does to them |
//! | `drive` | random packets, on the model and on the core |

mod allocate;
mod drive;
mod filter;
mod packet;
mod quota;
mod sweep;
mod table;
mod tcp;

pub use drive::{Random, Tally, World};
pub use filter::{Model, Outcome, Peek, StoredSyn};
pub use packet::{Datagram, End4, End6, Quoted4, Quoted6, Transport};
pub use sweep::{Swept, Told};
pub use table::{Bib, Rules, Session, Subscriber};
pub use tcp::State as TcpState;
