//! From a description to octets.

use std::sync::LazyLock;

use super::spec::{Ext, ExtKind, Extension, PacketSpec, Patch, Payload, Quote, Sum, V4, V6};
use super::transport::{self, Segment};
use crate::checksum::{self, Endpoints};

/// A description that is no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// None or several of `v4`, `v6`, `hex`.
    #[error("give exactly one of v4, v6 and hex")]
    Header,
    /// More than one transport header.
    #[error("give at most one of tcp, udp, udplite, dccp and icmp")]
    Transport,
    /// Not hexadecimal octets.
    #[error("`{0}` is not an even number of hexadecimal digits")]
    Hex(String),
    /// Unknown letter of a TCP flag.
    #[error("`{0}` is no TCP flag; use the letters CEUAPRSF")]
    Flag(char),
    /// A slice that is not inside the transport header and payload.
    #[error("slice {0:?} is not inside the {1} octets of transport header and payload")]
    Slice([usize; 2], usize),
    /// A partial checksum of something that has no checksum field.
    #[error("this packet has no transport checksum that could be partial")]
    NoChecksum,
    /// A quotation of the input where there is none.
    #[error("`quote` needs an input packet")]
    NoQuote,
    /// An octet past the packet's end.
    #[error("patch at octet {0} is outside the packet")]
    Patch(usize),
}

/// How the transport checksum is filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Complete.
    #[default]
    Complete,
    /// The folded, not complemented sum of the pseudo-header.
    Partial,
}

/// What the description may refer to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The packet that [`Quote::Input`] quotes: as received, its checksums complete.
    pub input: Option<&'a [u8]>,
    /// The packet that [`Quote::Segment`] quotes.
    pub segment: Option<&'a [u8]>,
}

/// A packet, and where its parts lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The octets from the IP header on.
    pub bytes: Vec<u8>,
    /// Where the transport header begins.
    pub transport: usize,
    /// Where the transport checksum lies, counted from `transport`.
    pub checksum: Option<usize>,
    /// Octets of IP and transport headers.
    pub headers: usize,
}

impl PacketSpec {
    /// The packet with complete checksums.
    pub fn build(&self) -> Result<Built, BuildError> {
        self.build_with(Fill::Complete, Context::default())
    }

    /// The packet.
    pub fn build_with(&self, fill: Fill, context: Context<'_>) -> Result<Built, BuildError> {
        let mut built = match (&self.v4, &self.v6, &self.hex) {
            (Some(v4), None, None) => self.build_v4(v4, fill, context)?,
            (None, Some(v6), None) => self.build_v6(v6, fill, context)?,
            (None, None, Some(hex)) => {
                Built { bytes: parse_hex(hex)?, transport: 0, checksum: None, headers: 0 }
            }
            _ => return Err(BuildError::Header),
        };
        if let Some(cut) = self.cut {
            built.bytes.truncate(cut);
        }
        built.bytes.resize(built.bytes.len() + self.trailer, 0xee);
        for patch in &self.patch {
            apply(&mut built.bytes, patch)?;
        }
        Ok(built)
    }

    fn build_v4(&self, v4: &V4, fill: Fill, context: Context<'_>) -> Result<Built, BuildError> {
        let options = padded(parse_hex(&v4.options)?, 4);
        let header = 20 + options.len();
        let quoted = self.quoted(576 - header - 8, context)?;
        let segment =
            transport::build(self, Endpoints::V4(v4.src, v4.dst), v4.proto, fill, quoted)?;
        let (body, from, more) = self.cut_slice(&segment)?;

        let mut bytes = Vec::with_capacity(header + body.len());
        let ihl = v4.ihl.unwrap_or((header / 4) as u8);
        bytes.push(v4.version.unwrap_or(4) << 4 | ihl & 15);
        bytes.push(v4.tos);
        bytes.extend(v4.len.unwrap_or((header + body.len()) as u16).to_be_bytes());
        bytes.extend(v4.id.to_be_bytes());
        let flags = u16::from(v4.reserved) << 15
            | u16::from(v4.df) << 14
            | u16::from(more.unwrap_or(v4.mf)) << 13;
        bytes.extend((flags | ((v4.offset + from) / 8) as u16 & 0x1fff).to_be_bytes());
        bytes.push(v4.ttl);
        bytes.push(v4.proto.or(segment.protocol).unwrap_or(253));
        bytes.extend([0, 0]);
        bytes.extend(v4.src.octets());
        bytes.extend(v4.dst.octets());
        bytes.extend(options);
        let value = resolve(v4.checksum, checksum::checksum(&bytes));
        bytes[10..12].copy_from_slice(&value.to_be_bytes());
        bytes.extend(body);
        Ok(Built {
            bytes,
            transport: header,
            checksum: segment.checksum,
            headers: header + segment.header,
        })
    }

    fn build_v6(&self, v6: &V6, fill: Fill, context: Context<'_>) -> Result<Built, BuildError> {
        let tunnelled = self.tunnelled(fill, context)?;
        let segment = match &tunnelled {
            Some(inner) => Segment {
                bytes: inner.bytes.clone(),
                protocol: Some(if inner.bytes.first().is_some_and(|it| it >> 4 == 6) {
                    41
                } else {
                    4
                }),
                checksum: inner.checksum,
                header: inner.headers,
            },
            None => {
                let quoted = self.quoted(1280 - 40 - 8, context)?;
                transport::build(self, Endpoints::V6(v6.src, v6.dst), v6.next, fill, quoted)?
            }
        };
        let (body, from, more) = self.cut_slice(&segment)?;
        let protocol = v6.next.or(segment.protocol).unwrap_or(253);

        let mut nexts: Vec<u8> = self.ext.iter().map(|ext| ext.kind.number()).collect();
        nexts.push(protocol);
        let mut chain = Vec::new();
        for (index, ext) in self.ext.iter().enumerate() {
            chain.extend(extension_header(ext, nexts[index + 1], from, more)?);
        }

        let mut bytes = Vec::with_capacity(40 + chain.len() + body.len());
        let word =
            u32::from(v6.version.unwrap_or(6)) << 28 | u32::from(v6.tc) << 20 | v6.flow & 0xf_ffff;
        bytes.extend(word.to_be_bytes());
        bytes.extend(v6.len.unwrap_or((chain.len() + body.len()) as u16).to_be_bytes());
        bytes.push(nexts[0]);
        bytes.push(v6.hop);
        bytes.extend(v6.src.octets());
        bytes.extend(v6.dst.octets());
        bytes.extend(&chain);
        bytes.extend(body);
        Ok(Built {
            bytes,
            transport: 40 + chain.len() + tunnelled.map_or(0, |inner| inner.transport),
            checksum: segment.checksum,
            headers: 40 + chain.len() + segment.header,
        })
    }

    /// The packet in a tunnel: what is given as `inner` or `quote` where there is no transport header.
    fn tunnelled(&self, fill: Fill, context: Context<'_>) -> Result<Option<Built>, BuildError> {
        let has_transport = self.tcp.is_some()
            || self.udp.is_some()
            || self.udplite.is_some()
            || self.dccp.is_some()
            || self.icmp.is_some();
        let built = match (&self.inner, self.quote) {
            _ if has_transport => return Ok(None),
            (Some(inner), _) => inner.build_with(fill, context)?,
            (None, Some(quote)) => {
                let bytes = quote.of(context)?.to_vec();
                Built { bytes, transport: 0, checksum: None, headers: 0 }
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(built))
    }

    /// What an ICMP error carries behind its header: the quoted packet of at most `room` octets (when it
    /// is the input), its padding and the extension structure. And the octets of the padded quotation.
    fn quoted(&self, room: usize, context: Context<'_>) -> Result<(Vec<u8>, usize), BuildError> {
        let mut bytes = match (&self.inner, self.quote) {
            (Some(inner), _) => inner.build_with(Fill::Complete, context)?.bytes,
            (None, Some(quote)) => {
                let source = quote.of(context)?;
                source[..source.len().min(room)].to_vec()
            }
            (None, None) => Vec::new(),
        };
        if bytes.len() < self.inner_pad {
            bytes.resize(self.inner_pad, 0);
        }
        let original = bytes.len();
        if let Some(extension) = &self.extension {
            bytes.extend(extension_structure(extension)?);
        }
        Ok((bytes, original))
    }

    /// The octets of a slice, the octet at which it begins, and whether more follow.
    fn cut_slice<'a>(
        &self,
        segment: &'a Segment,
    ) -> Result<(&'a [u8], usize, Option<bool>), BuildError> {
        let Some(slice @ [from, to]) = self.slice else {
            return Ok((&segment.bytes, 0, None));
        };
        let len = segment.bytes.len();
        let body = segment.bytes.get(from..to).ok_or(BuildError::Slice(slice, len))?;
        Ok((body, from, Some(to < len)))
    }
}

impl Quote {
    fn of<'a>(self, context: Context<'a>) -> Result<&'a [u8], BuildError> {
        let source = match self {
            Quote::Input => context.input,
            Quote::Segment => context.segment,
        };
        source.ok_or(BuildError::NoQuote)
    }
}

/// Octets of the running pattern from octet 0 on. It repeats only after 64 KiB, so that octets that
/// moved are seen.
pub fn pattern(len: usize) -> Vec<u8> {
    static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..1usize << 16).map(|at| (at.wrapping_mul(7) ^ at >> 8) as u8).collect()
    });
    let mut octets = WHOLE[..len.min(WHOLE.len())].to_vec();
    while octets.len() < len {
        let rest = len - octets.len();
        octets.extend(&WHOLE[..rest.min(WHOLE.len())]);
    }
    octets
}

/// Octets written in hexadecimal, with any white space.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, BuildError> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let error = || BuildError::Hex(text.to_owned());
    if !digits.len().is_multiple_of(2) {
        return Err(error());
    }
    digits
        .chunks(2)
        .map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(error)
}

pub(super) fn payload(payload: &Payload) -> Result<Vec<u8>, BuildError> {
    match payload {
        Payload::Pattern(len) => Ok(pattern(*len)),
        Payload::Hex(hex) => parse_hex(hex),
    }
}

/// The checksum to write when `value` is the true one.
pub(super) fn resolve(sum: Option<Sum>, value: u16) -> u16 {
    match sum {
        None => value,
        Some(Sum::Value(value)) => value,
        Some(Sum::Word(_)) => checksum::add(value, 0x1111),
    }
}

pub(super) fn padded(mut bytes: Vec<u8>, unit: usize) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(unit), 0);
    bytes
}

fn apply(bytes: &mut [u8], patch: &Patch) -> Result<(), BuildError> {
    let octets = parse_hex(&patch.hex)?;
    let field = bytes.get_mut(patch.at..patch.at + octets.len());
    field.ok_or(BuildError::Patch(patch.at))?.copy_from_slice(&octets);
    Ok(())
}

fn extension_header(
    ext: &Ext,
    next: u8,
    from: usize,
    more: Option<bool>,
) -> Result<Vec<u8>, BuildError> {
    let body = parse_hex(&ext.body)?;
    let mut bytes = vec![next, 0];
    match ext.kind {
        ExtKind::Fragment => {
            let offset = (ext.offset + from) as u16 & 0xfff8;
            bytes.extend((offset | u16::from(more.unwrap_or(ext.more))).to_be_bytes());
            bytes.extend(ext.id.to_be_bytes());
            return Ok(bytes);
        }
        ExtKind::Routing => {
            bytes.extend([ext.routing_type, ext.segments_left]);
            bytes.extend(body);
            // RFC 8200 section 4.4: 32 reserved bits, then whole addresses.
            bytes = padded(bytes, 8);
        }
        ExtKind::HopOpts | ExtKind::DstOpts => {
            bytes.extend(body);
            match bytes.len().next_multiple_of(8) - bytes.len() {
                0 => {}
                1 => bytes.push(0),
                n => {
                    bytes.extend([1, n as u8 - 2]);
                    bytes.resize(bytes.len() + n - 2, 0);
                }
            }
        }
        _ => {
            bytes.extend(body);
            bytes = padded(bytes, 8);
        }
    }
    bytes[1] = ext.len.unwrap_or(match ext.kind {
        // RFC 4302 section 2.2: in 32-bit words, minus 2.
        ExtKind::Auth => (bytes.len() / 4 - 2) as u8,
        _ => (bytes.len() / 8 - 1) as u8,
    });
    Ok(bytes)
}

fn extension_structure(extension: &Extension) -> Result<Vec<u8>, BuildError> {
    let data = padded(parse_hex(&extension.data)?, 4);
    let mut bytes = vec![0x20, 0, 0, 0];
    bytes.extend((data.len() as u16 + 4).to_be_bytes());
    bytes.extend([extension.class, extension.ctype]);
    bytes.extend(data);
    let value = checksum::checksum(&bytes);
    bytes[2..4].copy_from_slice(&value.to_be_bytes());
    bytes.truncate(extension.cut.unwrap_or(bytes.len()));
    Ok(bytes)
}
