//! `psid`, `psid_len` and `psid_offset`: which ports of a shared address.

use fordway_softwire::PortSet;
use toml::Spanned;

use crate::diagnostic::Sink;
use crate::keys::form::{Form, Integer, integer};
use crate::keys::{Key, Keys, Section, Written};

const PSID: Integer<u16> = integer(0..=65_535, "");
const BITS: Integer<u8> = integer(0..=16, "bits");

impl Keys for Option<PortSet> {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<PortSet>, bool) {
        let given = ["psid", "psid_len", "psid_offset"].map(|key| section.has(key));
        let psid = section.read(sink, "psid", |v| PSID.read(v));
        let len = section.read(sink, "psid_len", |v| BITS.read(v));
        let offset = section.read(sink, "psid_offset", |v| BITS.read(v));
        if given != [psid.is_some(), len.is_some(), offset.is_some()] {
            return (None, false);
        }
        match (psid, len) {
            (None, None) if offset.is_none() => (None, true),
            (Some(psid), Some(len)) => {
                let span = psid.span();
                let offset = offset.map_or(0, Spanned::into_inner);
                match PortSet::new(offset, len.into_inner(), psid.into_inner()) {
                    Ok(ports) => (Some(ports), true),
                    Err(error) => {
                        let help = "a PSID of 4 bits, 0 to 15, divides an address among 16 clients; psid_len and \
                                    psid_offset are at most 16 together";
                        sink.error(span, format!("`psid`: {error}"), help);
                        (None, false)
                    }
                }
            }
            _ => {
                let message = "a shared address needs both `psid` and `psid_len`";
                let help =
                    "write psid = 3 and psid_len = 4 for the fourth of 16 parts, or leave both out";
                sink.error(section.span(), message, help);
                (None, false)
            }
        }
    }

    fn write(&self, to: &mut Written) {
        let Some(ports) = self else { return };
        to.put_some("psid", PSID.write(&ports.psid()));
        to.put_some("psid_len", BITS.write(&ports.psid_len()));
        to.put_some("psid_offset", BITS.write(&ports.offset_bits()));
    }

    fn keys() -> Vec<Key> {
        let whole = || "(whole address)".to_owned();
        vec![
            Key::new("psid", &PSID, whole(), "The number of the part of a shared address"),
            Key::new(
                "psid_len",
                &BITS,
                whole(),
                "Bits of `psid`: 4 divide an address among 16 clients",
            ),
            Key::usual("psid_offset", &BITS, &0, "Bits in front of them (RFC 7597 section 5.1)"),
        ]
    }
}
