//! Fordway's configuration file.
//!
//! [`parse`] turns one TOML text into a [`Config`] of validated types, or into a [`Report`] that
//! names every error at once: file, line, column, what is wrong, what to write. Unknown keys are
//! refused. [`Config`] displays as a TOML text with every key written out, which parses back to the
//! same configuration.
//!
//! What the host decides (the path MTU, the CLAT's IPv6 address, the number of queues) is left
//! open here; [`Translator::core`] takes it as [`Resolved`] and gives the core's configuration.
#![forbid(unsafe_code)]

mod advertise;
mod check;
mod cluster;
mod core;
mod diagnostic;
mod dns64;
mod draft;
mod dstm;
mod emit;
mod engine;
mod feature;
mod findings;
mod keys;
mod mode;
mod name;
mod nat44;
mod nat64;
mod problem;
mod proxy;
mod reload;
mod schema;
mod sections;
mod settings;
mod softwire;
mod source;
mod translator;
mod trt;
mod types;
mod value;

pub use crate::core::{CoreError, Resolved};
pub use advertise::{Advertise, AdvertisedResolver, AdvertisedRoute};
pub use cluster::{CLUSTER_PORT, Cluster, ClusterGateway, ClusterLogin, ClusterStore};
pub use diagnostic::{Report, Severity};
pub use dns64::{Dns64, Dns64Forward, Dns64Policy};
pub use dstm::{
    DSTM_PORT, DstmClient, DstmClientKey, DstmPrefixKey, DstmServer, DstmTep, DstmTepPlace,
};
pub use engine::{Attach, Engine, Forwarding, Gro};
pub use feature::Feature;
pub use hickory_proto::rr::Name;
pub use keys::{Key, Reload};
pub use mode::{Clat, Mode, Pref64, Siit};
pub use name::InterfaceName;
pub use nat44::{DualStack, Forward, Nat44, Nat44Lifetimes, Nat44Quotas};
pub use nat64::{
    Dynamic4, Gateway, Gateways, LogEvent, LogTarget, Nat64, NatLog, NatPt, NatPtDns, Pool, Pool4,
    Pool4Source, Ports,
};
pub use proxy::{
    Proxy, ProxyBackend, ProxyCertificate, ProxyCheck, ProxyCheckKind, ProxyForward, ProxyMode,
    ProxyPassthrough, ProxyReverse, ProxyRoute, ProxyRule,
};
pub use sections::{Control, LOG_LEVELS, Log, LogFormat, Metrics, MetricsToken, OnSigterm};
pub use settings::{Settings, value_of};
pub use softwire::{Softwire, SoftwireClient, SoftwireEnd};
pub use tracing::level_filters::LevelFilter;
pub use translator::{Source6, Translator};
pub use trt::Trt;
pub use types::Config;

use crate::keys::Keys as _;
use fordway_xlat::nat64::{Lifetimes, Quotas};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use source::Source;

/// Lists what has keys in the file.
macro_rules! sections {
    ($($name:literal: $type:ty,)*) => {
        /// The sections of the file that this build reads, with the keys of each: what docs/configuration.md, the JSON Schema
        /// and the options of short forms are made of.
        #[must_use]
        pub fn sections() -> Vec<(&'static str, Vec<Key>)> {
            let mut sections = vec![$(($name, <$type>::keys())),*];
            sections.retain(|(name, _)| feature::left_out(name).is_none());
            sections
        }

        /// What reads each section, and writes what it has read.
        #[cfg(test)]
        fn readers() -> Vec<(&'static str, keys::Reader)> {
            vec![$(($name, keys::read_and_write::<$type>)),*]
        }
    };
}

sections! {
    "translator": Translator,
    "translator.siit": Siit,
    "translator.clat": Clat,
    "translator.nat64": Nat64,
    "translator.nat64.port_blocks": nat64::pool::Blocks,
    "translator.nat64.lifetimes": Lifetimes,
    "translator.nat64.quotas": Quotas,
    "translator.pool": nat64::pool::SomePool,
    "translator.log": NatLog,
    "translator.nat-pt": NatPt,
    "translator.softwire": Softwire,
    "translator.tep": softwire::ends::Tep,
    "translator.bindings": softwire::ends::Bound,
    "translator.client": softwire::ends::Client,
    "translator.nat44": Nat44,
    "translator.nat44.lifetimes": Nat44Lifetimes,
    "translator.nat44.quotas": Nat44Quotas,
    "translator.dual-stack": DualStack,
    "dns64": Dns64,
    "dns64.forward": Dns64Forward,
    "dns64.policy": Dns64Policy,
    "advertise": Advertise,
    "advertise.route": AdvertisedRoute,
    "advertise.dnr": AdvertisedResolver,
    "trt": Trt,
    "proxy": Proxy,
    "proxy.forward": ProxyForward,
    "proxy.reverse": ProxyReverse,
    "proxy.passthrough": ProxyPassthrough,
    "proxy.route": ProxyRoute,
    "proxy.check": ProxyCheck,
    "proxy.tls": ProxyCertificate,
    "proxy.rule": ProxyRule,
    "dstm_server": DstmServer,
    "dstm_server.client": DstmClientKey,
    "dstm_server.prefix": DstmPrefixKey,
    "dstm_tep": DstmTep,
    "dstm_client": DstmClient,
    "cluster": Cluster,
    "cluster.store": ClusterStore,
    "cluster.gateway": ClusterGateway,
    "control": Control,
    "metrics": Metrics,
    "log": Log,
}

/// JSON Schema of the file, for editors and orchestration. What goes together across keys it does not say: that is for
/// [`parse`].
#[must_use]
pub fn schema() -> serde_json::Value {
    schema::file()
}

/// Where the daemon listens for `fordway status` unless `[control] socket` says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/fordway/control.sock";

/// Default of `metric`: higher than any that a host's own default routes usually have, so that
/// native IPv4 wins where there is some.
pub const DEFAULT_METRIC: u32 = 2048;

/// Default of `queue_length`. The kernel's own default of 500 is full after 50 ms without a turn of the processor at
/// 10,000 packets per second, or when 50 connections send their first ten segments at once.
pub const QUEUE_LENGTH: u32 = 4096;

/// Octets that a file may have: room for about 300000 mappings.
const MAX_FILE: u64 = 16 << 20;

/// A configuration, and what deserves a second look in it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings; [`Report::is_empty`] when there are none.
    pub warnings: Report,
}

/// Why a configuration file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is wrong; displays as a text of several lines.
    #[error("{0}")]
    Invalid(Report),
}

/// Reads and parses a file. `-` is standard input.
///
/// # Errors
///
/// [`LoadError::Read`] and [`LoadError::Invalid`].
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    load_with(path, &Settings::default())
}

/// Reads and parses a file with settings that replace values of it.
///
/// # Errors
///
/// [`LoadError::Read`] and [`LoadError::Invalid`].
pub fn load_with(path: &Path, settings: &Settings) -> Result<Loaded, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let (origin, text) = if path == Path::new("-") {
        ("<stdin>".to_owned(), read(io::stdin()).map_err(failed)?)
    } else {
        (path.display().to_string(), File::open(path).and_then(read).map_err(failed)?)
    };
    parse_with(&origin, &text, settings).map_err(LoadError::Invalid)
}

/// Reads a text of at most [`MAX_FILE`] octets: a device that never ends must not eat all memory.
fn read(source: impl Read) -> io::Result<String> {
    let mut octets = Vec::new();
    source.take(MAX_FILE + 1).read_to_end(&mut octets)?;
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
    if octets.len() as u64 > MAX_FILE {
        return Err(invalid("it has more than 16 MiB, so it is no configuration file"));
    }
    String::from_utf8(octets).map_err(|_| invalid("it is no text (UTF-8)"))
}

/// Parses a text. `origin` is the name that errors show, usually the file's.
///
/// # Errors
///
/// A [`Report`] of all that is wrong, in the order of the text; never empty.
pub fn parse(origin: &str, text: &str) -> Result<Loaded, Report> {
    parse_with(origin, text, &Settings::default())
}

/// Parses a text with settings that replace values of it.
///
/// # Errors
///
/// A [`Report`] as that of [`parse`]; what is wrong with a setting comes last.
pub fn parse_with(origin: &str, text: &str, settings: &Settings) -> Result<Loaded, Report> {
    let mut sink = diagnostic::Sink::default();
    let source = Source::new(origin, text, &settings.lines());
    let drafts = draft::read(&source, &mut sink);
    check::across(&drafts, &mut sink);
    let report = sink.into_report(source);
    match drafts.finish() {
        Some(config) if !report.has_errors() => Ok(Loaded { config, warnings: report }),
        _ => Err(report),
    }
}
