//! The procedures of RFC 8219 (IPv6 transition technologies) and RFC 9693 (stateful NATxy gateways), with those of RFC 2544,
//! RFC 6201 and RFC 9004 that they use, and MLRsearch (RFC 9971).
//!
//! Nothing here sends a frame, reads a clock or draws a number without a seed. A procedure decides which trial comes next
//! and what its counts mean; a [`Tester`] runs the trial. One file holds one benchmark, under the name of its RFC.
//!
//! Units: frames/s in each direction, seconds, octets with the Ethernet FCS; delays in ns where frames are counted, in ms
//! where results are reported.

#![forbid(unsafe_code)]

pub mod back_to_back;
pub mod bisect;
pub mod distribution;
pub mod error;
pub mod frame;
pub mod frame_loss_rate;
pub mod latency;
pub mod mlrsearch;
pub mod overload;
pub mod plan;
pub mod profile;
pub mod recovery;
pub mod reset;
pub mod search;
pub mod session;
pub mod stateful;
pub mod suite;
pub mod summary;
pub mod tester;
pub mod throughput;
pub mod traffic;
pub mod variation;

pub use error::Ended;
pub use session::Session;
pub use tester::Tester;
