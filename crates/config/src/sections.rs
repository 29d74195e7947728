//! `[control]`, `[metrics]` and `[log]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tracing::level_filters::LevelFilter;

use crate::DEFAULT_SOCKET;
use crate::keys::common::{SOCKET, file};
use crate::keys::form::{Choice, Given, Plain, list, text, time};
use crate::keys::{keys, usual};
use crate::value;

keys! {
    /// `[control]`: the socket of `fordway status` and all other commands.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Control, reload(Restart) {
        /// Unix socket by which `fordway status` and all other commands reach the daemon, for root alone. `--socket` comes
        /// before it
        socket: PathBuf = file(value::path), or(PathBuf::from(DEFAULT_SOCKET));
        /// Group, by its name or number, whose members may read: status, counters, tables and leases, by a second socket
        /// beside `socket` ([rights](api.md#rights))
        read_group: Option<String> = Given(GROUP), or(None, "`\"fordway\"` if the host has this group");
        /// Time that a client has for its request
        timeout: Duration = time(100, 60_000), or(Duration::from_secs(5));
        /// What SIGTERM does: everything is taken down, or kernel engines stay for the next start, as after [`fordway
        /// leave`](operations.md#restarts). `"leave"` is for supervisors that have one signal for stopping and for
        /// restarting, such as container runtimes
        on_sigterm: OnSigterm = SIGTERM, or(OnSigterm::Down);
    }
}

const GROUP: Plain<String> = text(value::group, ("name or number of a group", "groups", "GROUP"));

impl Default for Control {
    fn default() -> Control {
        usual()
    }
}

/// What SIGTERM does, besides ending the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSigterm {
    /// Takes everything down.
    #[default]
    Down,
    /// Leaves kernel engines, with their sessions and their set-up, for the next start.
    Leave,
}

const SIGTERM: Choice<OnSigterm> =
    Choice(&[("down", OnSigterm::Down), ("leave", OnSigterm::Leave)]);

keys! {
    /// `[metrics]`: the HTTP endpoint for Prometheus.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Metrics, reload(Restart) {
        /// HTTP endpoint for Prometheus, at `/metrics`, and for [health](api.md#health). Off without an address. One beyond
        /// loopback needs `token_file`
        listen: Vec<SocketAddr> = list(SOCKET, "write a list such as [\"[::1]:9464\"]"), or(Vec::new());
        /// Certificate and those that vouch for it, in PEM: clients speak TLS. It is read again at each reload,
        /// and when its file or that of its key changes
        certificate: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/metrics.pem"))), or(None);
        /// Key of the certificate, in PEM
        key: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/metrics.key"))), or(None);
        /// File with a token, which clients show for `/metrics` (`Authorization: Bearer`, RFC 6750), of 16 characters or
        /// more. It is read again at each reload. `"none"`: everybody who reaches an address may read
        token_file: Option<MetricsToken> = Given(TOKEN), or(None);
    }
}

impl Metrics {
    /// Certificate and key, if clients speak TLS.
    #[must_use]
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certificate.as_ref().zip(self.key.as_ref())
    }
}

/// What readers of metrics have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsToken {
    /// Nothing, wherever the endpoint listens.
    None,
    /// The token in this file.
    File(PathBuf),
}

const TOKEN: Plain<MetricsToken> = Plain {
    read: |v| match v.get_ref().as_str() {
        Some("none") => Ok(MetricsToken::None),
        _ => value::file(v, "/etc/fordway/metrics.token").map(MetricsToken::File),
    },
    write: |token| match token {
        MetricsToken::None => "none".into(),
        MetricsToken::File(file) => file.to_string_lossy().into_owned().into(),
    },
    named: ("`\"none\"`, absolute path", "", "FILE"),
    schema: || json!({"anyOf": [{"type": "string", "pattern": "^/"}, {"const": "none"}]}),
};

keys! {
    /// `[log]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Log, reload(Restart) {
        /// Least severity that is written to standard error. `debug` shows each change to the host. `--log-level` comes
        /// before it
        level: LevelFilter = Choice(LOG_LEVELS), or(LevelFilter::INFO);
        /// Form of a line
        format: LogFormat = FORMAT, or(LogFormat::Text);
    }
}

impl Default for Log {
    fn default() -> Log {
        usual()
    }
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The words of `level`, and of `--log-level`.
pub const LOG_LEVELS: &[(&str, LevelFilter)] = &[
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

const FORMAT: Choice<LogFormat> = Choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
