//! Extended DNS errors (RFC 8914): why a response is what it is.

use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::rdata::opt::EdnsOption;

/// The number of the EDNS option.
const OPTION: u16 = 15;

/// How much of a text from upstream is passed on, in octets.
const MAX_TEXT: usize = 80;

/// An extended DNS error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ede {
    /// INFO-CODE.
    pub code: u16,
    /// EXTRA-TEXT, UTF-8.
    pub text: String,
}

impl Ede {
    /// Other.
    pub const OTHER: u16 = 0;
    /// Stale Answer.
    pub const STALE_ANSWER: u16 = 3;
    /// DNSSEC Indeterminate, the first of those that speak of validation.
    pub const DNSSEC_INDETERMINATE: u16 = 5;
    /// DNSSEC Bogus.
    pub const DNSSEC_BOGUS: u16 = 6;
    /// NSEC Missing, the last of those that speak of validation.
    pub const NSEC_MISSING: u16 = 12;
    /// Blocked: by whoever runs the server.
    pub const BLOCKED: u16 = 15;
    /// Prohibited.
    pub const PROHIBITED: u16 = 18;
    /// Stale NXDOMAIN Answer.
    pub const STALE_NXDOMAIN: u16 = 19;
    /// Not Authoritative: RD is clear, and the data is not ours.
    pub const NOT_AUTHORITATIVE: u16 = 20;
    /// Not Supported.
    pub const NOT_SUPPORTED: u16 = 21;
    /// No Reachable Authority.
    pub const NO_REACHABLE_AUTHORITY: u16 = 22;
    /// Network Error.
    pub const NETWORK_ERROR: u16 = 23;
    /// Invalid Data.
    pub const INVALID_DATA: u16 = 24;
    /// Synthesized.
    pub const SYNTHESIZED: u16 = 29;
    /// Invalid Query Type.
    pub const INVALID_QUERY_TYPE: u16 = 30;

    /// An error of this code.
    pub fn new(code: u16, text: &str) -> Ede {
        Ede { code, text: text.to_owned() }
    }

    /// Whether it says that data did not validate.
    pub fn is_dnssec(&self) -> bool {
        (Ede::DNSSEC_INDETERMINATE..=Ede::NSEC_MISSING).contains(&self.code)
    }

    /// Whether it says that the answer is older than it should be.
    pub fn is_stale(&self) -> bool {
        [Ede::STALE_ANSWER, Ede::STALE_NXDOMAIN].contains(&self.code)
    }

    /// Those that a message carries.
    pub fn of(message: &Message) -> Vec<Ede> {
        let options = message.edns.iter().flat_map(|edns| &edns.options().options);
        options.filter_map(|(_, option)| Ede::read(option)).collect()
    }

    /// Adds it to what a message says about itself.
    pub fn insert(&self, edns: &mut Edns) {
        let mut octets = self.code.to_be_bytes().to_vec();
        octets.extend_from_slice(self.text.as_bytes());
        edns.options_mut().insert(EdnsOption::Unknown(OPTION, octets));
    }

    fn read(option: &EdnsOption) -> Option<Ede> {
        let EdnsOption::Unknown(OPTION, octets) = option else {
            return None;
        };
        let (code, text) = octets.split_first_chunk()?;
        let text = &text[..text.len().min(MAX_TEXT)];
        // RFC 8914 section 2: some end the text with a null octet. A text that is no UTF-8 is none.
        let text = std::str::from_utf8(text).unwrap_or_default().trim_end_matches('\0');
        Some(Ede { code: u16::from_be_bytes(*code), text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(octets: &[u8]) -> Vec<Ede> {
        let mut message = Message::response(1, hickory_proto::op::OpCode::Query);
        let mut edns = Edns::new();
        edns.options_mut().insert(EdnsOption::Unknown(OPTION, octets.to_vec()));
        message.set_edns(edns);
        Ede::of(&Message::from_vec(&message.to_vec().unwrap()).unwrap())
    }

    #[test]
    fn read_from_what_others_write() {
        assert_eq!(carried(&[0, 22]), [Ede::new(22, "")]);
        assert_eq!(carried(b"\x00\x06expired\0"), [Ede::new(6, "expired")]);
        assert_eq!(carried(b"\x00\x06\xff\xfe"), [Ede::new(6, "")]);
        assert_eq!(carried(&[0]), []);
        assert_eq!(carried(&[]), []);
        let long = [&[0, 0][..], &[b'x'; 4000]].concat();
        assert_eq!(carried(&long)[0].text.len(), MAX_TEXT);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut message = Message::response(1, hickory_proto::op::OpCode::Query);
        let mut edns = Edns::new();
        let both = [Ede::new(Ede::SYNTHESIZED, ""), Ede::new(Ede::OTHER, "weil")];
        both.iter().for_each(|ede| ede.insert(&mut edns));
        message.set_edns(edns);
        assert_eq!(Ede::of(&Message::from_vec(&message.to_vec().unwrap()).unwrap()), both);
    }

    #[test]
    fn validation_has_codes_of_its_own() {
        let dnssec: Vec<u16> = (0..40).filter(|code| Ede::new(*code, "").is_dnssec()).collect();
        assert_eq!(dnssec, [5, 6, 7, 8, 9, 10, 11, 12]);
    }
}
