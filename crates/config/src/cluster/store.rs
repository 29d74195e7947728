//! `[cluster.store]`: where leases and owners of shards are kept.

use std::path::PathBuf;

use serde_json::json;

use super::Parsed;
use crate::diagnostic::Sink;
use crate::keys::common::file;
use crate::keys::form::{Given, Plain, some, text};
use crate::keys::{Key, Keys, Section, Written, keys};
use crate::problem::{Problem, Value};
use crate::proxy::server;
use crate::value;

/// NATS's own.
const PORT: u16 = 4222;

const SERVERS: &str = "write servers = [\"tls://nats1.example:4222\"]";
const BUCKET_HELP: &str =
    "write a name of letters, digits, '-' and '_', such as bucket = \"fordway\"";
const USER_HELP: &str = "write a user's name such as user = \"fordway\"";
const PASSWORD_HELP: &str =
    "write the path of the file, such as password_file = \"/etc/fordway/nats.password\"";
const REPLICAS_HELP: &str = "write 3, or 5";

const SERVER: Plain<String> = text(
    url,
    ("`tls://HOST:PORT` or `nats://HOST:PORT`", "`tls://HOST:PORT` or `nats://HOST:PORT`", "URL"),
);
const BUCKET: Plain<String> = text(bucket, ("letters, digits, `-` and `_`", "", "NAME"));
const USER: Plain<String> = text(user, ("name", "names", "NAME"));
const REPLICAS: Plain<usize> = Plain {
    read: replicas,
    write: |number| toml::Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX)),
    named: ("1, 3, 5", "", "NUMBER"),
    schema: || json!({"enum": [1, 3, 5]}),
};

keys! {
    /// `[cluster.store]`: where leases and owners of shards are kept, a key-value bucket of NATS JetStream.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ClusterStore, reload(Restart) {
        /// Servers, of which the gateway connects to one. With `tls://`, and to all servers with `authority` or `certificate`, it
        /// speaks TLS alone. The port is 4222 unless written
        servers: Vec<String> = some(SERVER, SERVERS), needed(Vec::new(), SERVERS);
        /// Name of the bucket. The first gateway makes it
        bucket: String = BUCKET, or("fordway".to_owned());
        /// Servers that keep each value. With 1, the store is gone when its server is
        replicas: usize = REPLICAS, or(3);
        /// How the gateway shows who it is.
        login: ClusterLogin, flat();
        /// The gateway's certificate for the servers, in PEM
        certificate: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/cluster.pem"))), or(None);
        /// Its key, in PEM
        key: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/cluster-certificate.key"))), or(None);
        /// Certificates of the authorities that have signed those of the servers, in PEM
        authority: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/cluster-authority.pem"))),
            or(None, "the system's");
    }
}

impl ClusterStore {
    /// The gateway's certificate and its key.
    #[must_use]
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certificate.as_ref().zip(self.key.as_ref())
    }

    /// Whether TLS alone is spoken to a server.
    pub(super) fn is_encrypted(&self, server: &str) -> bool {
        self.authority.is_some() || self.certificate.is_some() || server.starts_with(TLS)
    }
}

/// How a gateway shows servers of the store who it is, beside its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterLogin {
    /// It does not.
    #[default]
    None,
    /// A file of NATS credentials: a JWT, and the seed of its NKey.
    Credentials(PathBuf),
    /// A file with the seed of an NKey.
    Nkey(PathBuf),
    /// A user, and a file with the password.
    Password(String, PathBuf),
}

keys! {
    /// The keys of all ways.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Ways {
        /// File of NATS credentials (a JWT and the seed of its NKey). At most one of this key, `nkey_file` and `user` is there
        credentials_file: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/nats.creds"))), or(None);
        /// File with the seed of an NKey
        nkey_file: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/nats.nkey"))), or(None);
        /// A user of the servers
        user: Option<String> = Given(USER), or(None);
        /// File with the password of `user`
        password_file: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/nats.password"))), or(None);
    }
}

const WAYS: [&[&str]; 3] = [&["credentials_file"], &["nkey_file"], &["user", "password_file"]];

impl Keys for ClusterLogin {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (ClusterLogin, bool) {
        let is_there = |way: &&[&str]| way.iter().any(|key| section.has(key));
        let there: Vec<_> = WAYS.into_iter().filter(is_there).collect();
        if let [first, second, ..] = there[..] {
            for key in second {
                let why = format!("`{}` says who the gateway is already", first[0]);
                section.refuse(sink, key, &why, "leave one of the two out");
            }
        }
        if there == [WAYS[2]] {
            section.need(sink, "user", USER_HELP);
            section.need(sink, "password_file", PASSWORD_HELP);
        }
        let (ways, complete) = Ways::read(section, sink);
        let login = match ways {
            Ways { credentials_file: Some(file), .. } => ClusterLogin::Credentials(file),
            Ways { nkey_file: Some(file), .. } => ClusterLogin::Nkey(file),
            Ways { user: Some(user), password_file: Some(file), .. } => {
                ClusterLogin::Password(user, file)
            }
            _ => ClusterLogin::None,
        };
        (login, complete)
    }

    fn write(&self, to: &mut Written) {
        let ways = match self.clone() {
            ClusterLogin::None => Ways::default(),
            ClusterLogin::Credentials(file) => {
                Ways { credentials_file: Some(file), ..Ways::default() }
            }
            ClusterLogin::Nkey(file) => Ways { nkey_file: Some(file), ..Ways::default() },
            ClusterLogin::Password(user, file) => {
                Ways { user: Some(user), password_file: Some(file), ..Ways::default() }
            }
        };
        ways.write(to);
    }

    fn keys() -> Vec<Key> {
        Ways::keys()
    }
}

const TLS: &str = "tls://";

/// The URL of a server, with its port.
fn url(v: &Value<'_>) -> Parsed<String> {
    let wrong = |message: String| Problem::new(v.span(), message, SERVERS).into();
    let text = value::string(v, "a server's URL", SERVERS)?;
    let schemes = [TLS, "nats://"];
    let Some(scheme) = schemes.into_iter().find(|scheme| text.starts_with(scheme)) else {
        return Err(wrong(format!("\"{text}\" begins neither with tls:// nor with nats://")));
    };
    let host = &text[scheme.len()..];
    if host.contains('@') {
        let message = "who the gateway is does not stand in a URL, which others may see";
        let help = "write user and password_file, or nkey_file, or credentials_file";
        return Err(Problem::new(v.span(), message, help).into());
    }
    server::parse(host, PORT).map(|host| format!("{scheme}{host}")).map_err(wrong)
}

fn bucket(v: &Value<'_>) -> Parsed<String> {
    let name = value::string(v, "a name", BUCKET_HELP)?;
    let is_good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    match (1..=64).contains(&name.len()) && name.bytes().all(is_good) {
        true => Ok(name.to_owned()),
        false => {
            Err(Problem::new(v.span(), format!("{name:?} is no bucket's name"), BUCKET_HELP).into())
        }
    }
}

fn user(v: &Value<'_>) -> Parsed<String> {
    let name = value::string(v, "a name", USER_HELP)?;
    match name.is_empty() {
        false => Ok(name.to_owned()),
        true => Err(Problem::new(v.span(), "the name is empty", USER_HELP).into()),
    }
}

fn replicas(v: &Value<'_>) -> Parsed<usize> {
    match value::integer(v, 1..=5, "")? {
        even @ (2 | 4) => {
            let message = format!("{even} servers survive no more losses than {} do", even - 1);
            Err(Problem::new(v.span(), message, REPLICAS_HELP).into())
        }
        // The range lies within the type.
        number => Ok(number as usize),
    }
}
