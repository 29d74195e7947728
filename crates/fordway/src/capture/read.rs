//! Reads captures in pcap and pcapng format.

use std::error::Error;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::time::Duration;

use fordway_daemon::failure::Failure;
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// First octets of a pcapng file: the type of the Section Header Block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A capture that is being read.
pub(crate) struct Reader {
    name: String,
    format: Format,
}

type Input = io::Chain<Cursor<Vec<u8>>, Box<dyn Read>>;

enum Format {
    Pcap(Box<PcapReader<Input>>),
    PcapNg(Box<PcapNgReader<Input>>),
}

/// One captured frame.
pub(crate) struct Captured {
    /// What kind of frame.
    pub(crate) link: DataLink,
    /// When, since 1970.
    pub(crate) time: Duration,
    /// The octets that were captured.
    pub(crate) bytes: Vec<u8>,
    /// The octets that there were.
    pub(crate) original_len: u32,
}

impl Reader {
    /// Opens a file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Reader, Failure> {
        let name = path.display().to_string();
        let failed =
            |error: &dyn std::fmt::Display| Failure::failed(format!("cannot read {name}: {error}"));
        let mut input: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).map_err(|error| failed(&error))?)
        };
        let mut magic = Vec::new();
        input.by_ref().take(4).read_to_end(&mut magic).map_err(|error| failed(&error))?;
        let is_pcapng = magic == PCAPNG;
        let input = Cursor::new(magic).chain(input);
        let not_a_capture = |error: &dyn std::fmt::Display| {
            failed(&format!("{error}")).hint("a capture in pcap or pcapng format is wanted")
        };
        let format = if is_pcapng {
            let reader = PcapNgReader::new(input).map_err(|error| not_a_capture(&error))?;
            Format::PcapNg(Box::new(reader))
        } else {
            let reader = PcapReader::new(input).map_err(|error| not_a_capture(&error))?;
            Format::Pcap(Box::new(reader))
        };
        Ok(Reader { name, format })
    }

    /// The next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Captured>, Failure> {
        let result = match &mut self.format {
            Format::Pcap(reader) => next_pcap(reader),
            Format::PcapNg(reader) => next_pcapng(reader),
        };
        result.map_err(|error| Failure::failed(format!("cannot read {}: {error}", self.name)))
    }
}

fn next_pcap(reader: &mut PcapReader<Input>) -> Result<Option<Captured>, Box<dyn Error>> {
    let link = reader.header().datalink;
    match reader.next_packet() {
        None => Ok(None),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(packet)) => Ok(Some(Captured {
            link,
            time: packet.timestamp(),
            original_len: packet.orig_len(),
            bytes: packet.into_data().into_owned(),
        })),
    }
}

fn next_pcapng(reader: &mut PcapNgReader<Input>) -> Result<Option<Captured>, Box<dyn Error>> {
    loop {
        let (block, state) = match reader.next_block() {
            None => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(read)) => read,
        };
        let (interface, time, original_len, data) = match block {
            Block::EnhancedPacket(packet) => {
                (packet.interface_id, packet.timestamp, packet.original_len, packet.data)
            }
            Block::Packet(packet) => {
                (packet.interface_id.into(), packet.timestamp, packet.original_len, packet.data)
            }
            Block::SimplePacket(packet) => (0, Duration::ZERO, packet.original_len, packet.data),
            _ => continue,
        };
        let interface = state.interfaces().get(interface as usize);
        let link = interface.ok_or("a packet of an interface that the file does not describe")?;
        return Ok(Some(Captured {
            link: link.linktype,
            time,
            original_len,
            bytes: data.into_owned(),
        }));
    }
}
