//! Trust anchors from a file in zone format (RFC 1035 section 5): keys (DNSKEY) or digests of keys (DS).

use std::fs;
use std::path::Path;

use hickory_proto::dnssec::rdata::{DNSKEY, DS};
use hickory_proto::dnssec::{Algorithm, DigestType, TrustAnchors as Keys};
use hickory_proto::rr::{LowerName, Name};

use super::error::Error;
use super::settings::TrustAnchors;

/// Where trust begins.
#[derive(Clone)]
pub(super) struct Anchors {
    /// Keys.
    pub(super) keys: Keys,
    /// Digests, for which the keys are still to be asked for.
    pub(super) digests: Vec<(Name, DS)>,
}

impl Anchors {
    /// Reads them.
    pub(super) fn new(anchors: &TrustAnchors) -> Result<Self, Error> {
        let path = match anchors {
            TrustAnchors::BuiltIn => {
                return Ok(Self { keys: Keys::default(), digests: Vec::new() });
            }
            TrustAnchors::File(path) => path,
        };
        let text = fs::read_to_string(path)
            .map_err(|source| Error::File { path: path.clone(), source })?;
        parse(&text, path)
    }

    /// Adds a key if it fits a digest; returns whether it does.
    pub(super) fn add_if_vouched(&mut self, zone: &Name, key: &DNSKEY) -> bool {
        let covers = |(owner, digest): &(Name, DS)| {
            owner == zone && digest.covers(zone, key).unwrap_or(false)
        };
        let vouched = key.zone_key() && !key.revoke() && self.digests.iter().any(covers);
        if vouched {
            self.keys.insert_with_name(key.public_key(), LowerName::new(zone));
        }
        vouched
    }
}

fn parse(text: &str, path: &Path) -> Result<Anchors, Error> {
    let mut anchors = Anchors { keys: Keys::empty(), digests: Vec::new() };
    let mut key_records = String::new();
    for (line, record) in records(text) {
        let wrong = |reason: &str| Error::TrustAnchor {
            path: path.to_owned(),
            line,
            reason: reason.into(),
        };
        let fields: Vec<&str> = record.split_whitespace().collect();
        let is_type =
            |field: &&str| ["DS", "DNSKEY"].contains(&field.to_ascii_uppercase().as_str());
        let kind = fields.iter().skip(1).position(is_type).map(|place| place + 1);
        let Some(kind) = kind else {
            return Err(wrong("neither DNSKEY nor DS"));
        };
        if fields[kind].eq_ignore_ascii_case("DS") {
            let mut owner = Name::from_ascii(fields[0]).map_err(|_| wrong("no name"))?;
            owner.set_fqdn(true);
            let digest = digest(&fields[kind + 1..])
                .ok_or_else(|| wrong("a DS has key tag, algorithm, digest type and digest"))?;
            anchors.digests.push((owner, digest));
        } else {
            // One at a time, to know which line it is about.
            record.parse::<Keys>().map_err(|error| wrong(&error.to_string()))?;
            key_records.push_str(&record);
            key_records.push('\n');
        }
    }
    let whole = |reason: String| Error::TrustAnchor { path: path.to_owned(), line: 0, reason };
    if !key_records.is_empty() {
        anchors.keys = key_records.parse().map_err(|error| whole(format!("{error}")))?;
    }
    if key_records.is_empty() && anchors.digests.is_empty() {
        return Err(whole("no DNSKEY and no DS in it".to_owned()));
    }
    Ok(anchors)
}

/// The records, each in one line without comments, with the number of the line that it begins at.
fn records(text: &str) -> Vec<(usize, String)> {
    let mut records = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut depth = 0_usize;
    for (number, line) in text.lines().enumerate() {
        let line = line.split(';').next().unwrap_or_default();
        let (_, record) = open.get_or_insert_with(|| (number + 1, String::new()));
        for character in line.chars() {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                other => record.push(other),
            }
        }
        record.push(' ');
        if depth == 0 {
            records.extend(open.take());
        }
    }
    records.extend(open);
    records.retain(|(_, record)| !record.trim().is_empty() && !record.starts_with('$'));
    records
}

fn digest(fields: &[&str]) -> Option<DS> {
    let [tag, algorithm, digest_type, digest @ ..] = fields else { return None };
    let hex: Vec<u8> = digest.concat().into_bytes();
    let nibble =
        |octet: u8| char::from(octet).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let octet = |pair: &[u8]| match pair {
        [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
        _ => None,
    };
    let digest: Vec<u8> = hex.chunks(2).map(octet).collect::<Option<_>>()?;
    let algorithm = Algorithm::from_u8(algorithm.parse().ok()?);
    let digest_type = DigestType::from(digest_type.parse::<u8>().ok()?);
    let tag = tag.parse().ok()?;
    (!digest.is_empty()).then(|| DS::new(tag, algorithm, digest_type, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AwEAAaz/tAm8yTn4Mfeh5eyI96WSVexTBAvkMgJzkKTOiW1vkIbzxeF3+/4RgWOq7HrxRixHlFlExOLAJr5emLvN\
         7SWXgnLh4+B5xQlNVz8Og8kvArMtNROxVQuCaSnIDdD5LKyWbRd2n9WGe2R8PzgCmr3EgVLrjyBxWezF0jLHwVN8\
         efS3rCj/EWgvIWgb9tarpVUDK/b58Da+sqqls3eNbuv7pr+eoZG+SrDK6nWeL3c6H5Apxz7LjVc1uTIdsIXxuOLY\
         A4/ilBmSVIzuDWfdRUfhHdY6+cn8HFRm+2hM8AnXGXws9555KrUB5qihylGa8subX2Nn6UwNR1AkUTV74bU=";

    fn parsed(text: &str) -> Result<Anchors, Error> {
        parse(text, Path::new("anchors"))
    }

    #[test]
    fn keys_and_digests_are_read_as_zones_have_them() {
        let text = format!(
            "; a comment\n$ORIGIN .\n. 172800 IN DNSKEY 257 3 8 {KEY} ;; state=2\n\n\
             example.net. IN DS (\n  20326 8 2 ; SHA-256\n  E06D44B80B8F1D39A95C0B0D7C65D084\n  58E880409BBC683457104237C7F8EC8D )\n\
             . DS 1 8 1 00ff\n"
        );
        let anchors = parsed(&text).unwrap();
        assert_eq!(anchors.keys.len(), 1);
        let [(owner, digest), (root, other)] = &anchors.digests[..] else { panic!("two digests") };
        assert_eq!((owner.to_ascii().as_str(), digest.digest().len()), ("example.net.", 32));
        assert_eq!(digest.digest()[..2], [0xe0, 0x6d]);
        assert!(root.is_root());
        assert_eq!(other.digest(), [0, 0xff]);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let line = |text: &str| match parsed(text) {
            Err(Error::TrustAnchor { line, reason, .. }) => (line, reason),
            other => panic!("{:?}", other.map(|anchors| anchors.digests)),
        };
        assert_eq!(line("\n. IN A 192.0.2.1\n").0, 2);
        assert_eq!(line(". DS 20326 8 2 xy\n").0, 1);
        assert_eq!(line(". DS 20326 8 2 abc\n").0, 1);
        assert_eq!(line("\n\n. DNSKEY 257 3 8 !!!\n").0, 3);
        assert_eq!(line("; nothing\n").0, 0);
    }
}
