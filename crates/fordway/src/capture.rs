//! Capture files: pcap and pcapng, in and out.

mod frame;
mod read;
mod write;

pub(crate) use frame::Frame;
pub(crate) use read::Reader;
pub(crate) use write::Writer;
