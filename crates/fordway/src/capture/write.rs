//! Writes captures in pcap and pcapng format.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use fordway_daemon::failure::Failure;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapTsResolution, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::{DataLink, Endianness};

/// Longest frame that may be in the file, in octets.
const SNAPLEN: u32 = 262_144;

/// A capture that is being written.
pub(crate) struct Writer {
    name: String,
    file: Option<BufWriter<File>>,
    next_gen: bool,
    format: Option<Format>,
}

enum Format {
    Pcap {
        writer: PcapWriter<BufWriter<File>>,
        link: DataLink,
    },
    /// With the link types of the interfaces described so far.
    PcapNg {
        writer: PcapNgWriter<BufWriter<File>>,
        links: Vec<DataLink>,
    },
}

impl Writer {
    /// Creates a file; pcapng if its name says so, else pcap.
    pub(crate) fn create(path: &Path) -> Result<Writer, Failure> {
        let name = path.display().to_string();
        let file = File::create(path)
            .map_err(|error| Failure::failed(format!("cannot write {name}: {error}")))?;
        let next_gen = path.extension().is_some_and(|extension| extension == "pcapng");
        Ok(Writer { name, file: Some(BufWriter::new(file)), next_gen, format: None })
    }

    /// Writes one frame.
    pub(crate) fn write(
        &mut self,
        link: DataLink,
        time: Duration,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let link = output_link(link);
        self.write_frame(link, time, bytes)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", self.name)))
    }

    /// Writes what is left, and a file header where there was no frame at all.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let finished = self.begin(DataLink::RAW).and_then(|format| match format {
            Format::Pcap { writer, .. } => Ok(writer.flush()?),
            Format::PcapNg { writer, .. } => Ok(writer.get_mut().flush()?),
        });
        finished.map_err(|error| Failure::failed(format!("cannot write {}: {error}", self.name)))
    }

    fn write_frame(
        &mut self,
        link: DataLink,
        time: Duration,
        bytes: &[u8],
    ) -> Result<(), Box<dyn Error>> {
        let len = u32::try_from(bytes.len())?;
        match self.begin(link)? {
            Format::Pcap { writer, link: first } => {
                if *first != link {
                    return Err("the capture has several link types, which pcap cannot hold; \
                                give the output a name that ends in .pcapng"
                        .into());
                }
                let packet = PcapPacket::new(time, len, bytes)?;
                writer.write_packet(&packet)?;
            }
            Format::PcapNg { writer, links } => {
                let interface = interface(writer, links, link)?;
                let block = EnhancedPacketBlock {
                    interface_id: interface,
                    timestamp: time,
                    original_len: len,
                    data: bytes.into(),
                    options: Vec::new(),
                };
                writer.write_pcapng_block(block)?;
            }
        }
        Ok(())
    }

    /// The file with its header, which names the link type of the first frame.
    fn begin(&mut self, link: DataLink) -> Result<&mut Format, Box<dyn Error>> {
        let format = match (self.format.take(), self.file.take()) {
            (Some(format), _) => format,
            (None, None) => return Err("the file is closed".into()),
            (None, Some(file)) if self.next_gen => {
                let writer = PcapNgWriter::new(file)?;
                Format::PcapNg { writer, links: Vec::new() }
            }
            (None, Some(file)) => {
                let header = PcapHeader {
                    version_major: 2,
                    version_minor: 4,
                    ts_correction: 0,
                    ts_accuracy: 0,
                    snaplen: SNAPLEN,
                    datalink: link,
                    ts_resolution: PcapTsResolution::NanoSecond,
                    endianness: Endianness::native(),
                };
                let writer = PcapWriter::with_header(file, header)?;
                Format::Pcap { writer, link }
            }
        };
        Ok(self.format.insert(format))
    }
}

/// The number of the interface that stands for a link type.
fn interface(
    writer: &mut PcapNgWriter<BufWriter<File>>,
    links: &mut Vec<DataLink>,
    link: DataLink,
) -> Result<u32, Box<dyn Error>> {
    let index = match links.iter().position(|known| *known == link) {
        Some(index) => index,
        None => {
            let mut block = InterfaceDescriptionBlock::new(link, SNAPLEN);
            let resolution = InterfaceTsResolution::NANO;
            block.options.push(InterfaceDescriptionOption::IfTsResol(resolution));
            writer.write_pcapng_block(block)?;
            links.push(link);
            links.len() - 1
        }
    };
    Ok(u32::try_from(index)?)
}

/// Translation changes the IP version, so a link type that names one becomes the one for both.
fn output_link(link: DataLink) -> DataLink {
    match link {
        DataLink::IPV4 | DataLink::IPV6 => DataLink::RAW,
        other => other,
    }
}
