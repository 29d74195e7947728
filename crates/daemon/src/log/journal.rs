//! The journal of systemd, in its own protocol: each entry has its severity, and its fields beside the text.
//!
//! An entry is one datagram of fields: a name, a line feed, the value's length (8 octets, little endian), the value,
//! a line feed. The journal adds the time, the process and the unit.

use std::fmt::{Debug, Write};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const SOCKET: &str = "/run/systemd/journal/socket";

/// Fields of events are called `FORDWAY_` and their name in capitals.
const PREFIX: &str = "FORDWAY_";

/// Writes events to the journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// `None`: standard error does not lead to the journal.
    pub(super) fn open() -> Option<Journal> {
        let told = std::env::var("JOURNAL_STREAM").ok()?;
        let own = rustix::fs::fstat(io::stderr()).ok()?;
        (told == format!("{}:{}", own.st_dev, own.st_ino))
            .then(|| Journal::at(Path::new(SOCKET)))?
    }

    fn at(path: &Path) -> Option<Journal> {
        path.exists().then_some(())?;
        Some(Journal { socket: UnixDatagram::unbound().ok()?, path: path.to_owned() })
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut entry = Entry::default();
        event.record(&mut entry);
        // Not connected: a journal that is restarted has the same name.
        let octets = entry.octets(*event.metadata().level(), event.metadata().target());
        if self.socket.send_to(&octets, &self.path).is_err() {
            // It is too long for a datagram. Standard error leads to the journal as well.
            let _ = io::Write::write_all(&mut io::stderr(), (entry.text() + "\n").as_bytes());
        }
    }
}

#[derive(Default)]
struct Entry {
    message: String,
    /// The fields as they stand in the text.
    words: String,
    fields: Vec<(String, String)>,
}

impl Entry {
    fn text(&self) -> String {
        format!("{}{}", self.message, self.words)
    }

    fn octets(&self, level: Level, target: &str) -> Vec<u8> {
        let priority = match level {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            _ => "7",
        };
        let mut octets = Vec::new();
        let mut put = |name: &str, value: &str| {
            octets.extend_from_slice(name.as_bytes());
            octets.push(b'\n');
            octets.extend_from_slice(&(value.len() as u64).to_le_bytes());
            octets.extend_from_slice(value.as_bytes());
            octets.push(b'\n');
        };
        put("PRIORITY", priority);
        put("SYSLOG_IDENTIFIER", "fordway");
        put("TARGET", target);
        put("MESSAGE", &self.text());
        for (name, value) in &self.fields {
            put(name, value);
        }
        octets
    }

    fn add(&mut self, name: &str, value: String, word: &dyn Debug) {
        if name == "message" {
            self.message = value;
            return;
        }
        // Writing into a text does not fail.
        let _ = write!(self.words, " {name}={word:?}");
        self.fields.push((format!("{PREFIX}{}", name.to_ascii_uppercase()), value));
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value.to_owned(), &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field.name(), format!("{value:?}"), value);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// The fields of an entry.
    fn read(mut octets: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !octets.is_empty() {
            let end = octets.iter().position(|&octet| octet == b'\n').unwrap();
            let name = String::from_utf8(octets[..end].to_vec()).unwrap();
            let (len, rest) = octets[end + 1..].split_at(8);
            let len = usize::try_from(u64::from_le_bytes(len.try_into().unwrap())).unwrap();
            fields.push((name, String::from_utf8(rest[..len].to_vec()).unwrap()));
            assert_eq!(rest[len], b'\n');
            octets = &rest[len + 1..];
        }
        fields
    }

    #[test]
    fn an_entry_has_its_severity_and_its_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(Journal::at(&path).is_none());
        let journal = UnixDatagram::bind(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal::at(&path).unwrap());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(server = %"2001:db8::53", zone = "a b", count = 3, "two\nlines");
            tracing::error!("plain");
        });
        let mut buffer = [0; 4096];
        let mut next = || {
            let len = journal.recv(&mut buffer).unwrap();
            read(&buffer[..len])
        };
        let warning = next();
        let value = |name: &str| {
            let field = warning.iter().find(|(known, _)| known == name);
            field.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("{name}"))
        };
        assert_eq!(value("PRIORITY"), "4");
        assert_eq!(value("SYSLOG_IDENTIFIER"), "fordway");
        assert_eq!(value("MESSAGE"), "two\nlines server=2001:db8::53 zone=\"a b\" count=3");
        assert_eq!(value("FORDWAY_SERVER"), "2001:db8::53");
        assert_eq!(value("FORDWAY_ZONE"), "a b");
        assert_eq!(value("FORDWAY_COUNT"), "3");
        assert!(next().contains(&("PRIORITY".to_owned(), "3".to_owned())));
    }
}
