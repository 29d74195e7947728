//! The text's top level, and what is kept of it until everything has been checked.

use toml::de::{DeTable, DeValue};

use crate::advertise::Advertise;
use crate::cluster::Cluster;
use crate::diagnostic::{Diagnostic, Sink};
use crate::dns64::Dns64;
use crate::dstm::{DstmClient, DstmServer, DstmTep};
use crate::feature::left_out;
use crate::keys::form::Form;
use crate::keys::{self, Keys, Section};
use crate::mode::{Kind, MODE};
use crate::nat44::{self, DualStack, Nat44};
use crate::problem::{Problem, Problems, Value};
use crate::proxy::Proxy;
use crate::sections::{Control, Log, Metrics};
use crate::settings;
use crate::source::Source;
use crate::translator::Translator;
use crate::trt::Trt;
use crate::types::Config;
use crate::value::{self, Table};

/// The parts of the file, with their places where checks across parts need them.
#[derive(Default)]
pub(crate) struct Drafts {
    pub(crate) translators: Vec<keys::Read<Translator>>,
    pub(crate) nat44: Vec<keys::Read<Nat44>>,
    pub(crate) dual_stack: Vec<keys::Read<DualStack>>,
    pub(crate) dns64: Option<keys::Read<Dns64>>,
    pub(crate) advertise: Vec<keys::Read<Advertise>>,
    pub(crate) trt: Vec<keys::Read<Trt>>,
    pub(crate) proxies: Vec<keys::Read<Proxy>>,
    pub(crate) dstm_server: Option<keys::Read<DstmServer>>,
    pub(crate) dstm_tep: Option<keys::Read<DstmTep>>,
    pub(crate) dstm_clients: Vec<keys::Read<DstmClient>>,
    pub(crate) cluster: Option<keys::Read<Cluster>>,
    /// There are translators whose mode could not be read.
    pub(crate) unread: bool,
    control: Option<keys::Read<Control>>,
    pub(crate) metrics: Option<keys::Read<Metrics>>,
    log: Option<keys::Read<Log>>,
}

/// Reads a text and its settings. What is wrong goes to `sink`; what is right is returned.
pub(crate) fn read(source: &Source, sink: &mut Sink) -> Drafts {
    let (mut root, errors) = DeTable::parse_recoverable(&source.text);
    let mut drafts = Drafts::default();
    // Recovery from a syntax error invents values; messages about them would only confuse.
    if !errors.is_empty() {
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let message = format!("this is no TOML: {}", error.message());
            sink.push(Diagnostic::error(span, message));
        }
        return drafts;
    }
    settings::apply(root.get_mut(), &source.settings, sink);
    let mut top = Section::new("this file", root.get_ref(), 0..0);
    read_translators(&mut top, sink, &mut drafts);
    drafts.dns64 = one(&mut top, sink, "dns64", "[dns64]");
    drafts.advertise = several(&mut top, sink, "advertise", "[[advertise]]");
    drafts.trt = several(&mut top, sink, "trt", "[[trt]]");
    drafts.proxies = several(&mut top, sink, "proxy", "[[proxy]]");
    drafts.dstm_server = one(&mut top, sink, "dstm_server", "[dstm_server]");
    drafts.dstm_tep = one(&mut top, sink, "dstm_tep", "[dstm_tep]");
    drafts.dstm_clients = several(&mut top, sink, "dstm_client", "[[dstm_client]]");
    let sections =
        ["translator", "dns64", "advertise", "trt", "proxy", "dstm_server", "dstm_client"];
    if !sections.into_iter().any(|key| top.has(key)) {
        let message = "this file has neither a `translator` nor `dns64`, `advertise`, `trt`, `proxy`, `dstm_server` \
                       or `dstm_client`";
        let help = "begin a translator with a line [[translator]], a DNS64 server with [dns64], router \
                    advertisements with [[advertise]], a transport relay with [[trt]], a proxy with [[proxy]], DSTM with \
                    [dstm_server] or [[dstm_client]]";
        sink.error(top.span(), message, help);
    }
    drafts.cluster = one(&mut top, sink, "cluster", "[cluster]");
    drafts.control = one(&mut top, sink, "control", "[control]");
    drafts.metrics = one(&mut top, sink, "metrics", "[metrics]");
    drafts.log = one(&mut top, sink, "log", "[log]");
    top.finish(sink);
    drafts
}

/// Refuses a key whose value asks for what this build does not have. `section`: as the reference calls it.
fn is_left_out(
    table: &mut Section<'_, '_>,
    sink: &mut Sink,
    key: &'static str,
    section: &str,
) -> bool {
    let feature = left_out(section);
    if let Some(feature) = feature {
        table.refuse(sink, key, &feature.refusal(), &feature.help());
    }
    feature.is_some()
}

/// Reads a section of which there is one.
fn one<T: Keys>(
    top: &mut Section<'_, '_>,
    sink: &mut Sink,
    key: &'static str,
    title: &'static str,
) -> Option<keys::Read<T>> {
    if is_left_out(top, sink, key, key) {
        return None;
    }
    let table = top.read(sink, key, only_one)?;
    Some(keys::read(title, table.into_inner(), sink))
}

/// Reads a section of which there may be several.
fn several<T: Keys>(
    top: &mut Section<'_, '_>,
    sink: &mut Sink,
    key: &'static str,
    title: &'static str,
) -> Vec<keys::Read<T>> {
    if is_left_out(top, sink, key, key) {
        return Vec::new();
    }
    let tables = top.read(sink, key, |v| value::tables(v, title));
    let tables = tables.map(toml::Spanned::into_inner).unwrap_or_default();
    tables.into_iter().map(|table| keys::read(title, table, sink)).collect()
}

/// A section of which there is one.
fn only_one<'t, 'i>(value: &'t Value<'i>) -> Result<Table<'t, 'i>, Problems> {
    match value.get_ref() {
        DeValue::Array(_) => {
            let message = "there is one, which may listen on several addresses";
            Err(Problem::new(value.span(), message, "write it with one bracket").into())
        }
        _ => value::table(value),
    }
}

fn read_translators(top: &mut Section<'_, '_>, sink: &mut Sink, drafts: &mut Drafts) {
    let help = "begin a translator with a line [[translator]]";
    let tables = top.read(sink, "translator", |value| match value.get_ref() {
        DeValue::Array(items) => Problems::collect(items.iter().map(value::table)),
        _ => Err(Problem::new(
            value.span(),
            "there may be several translators, so this is a list",
            "write [[translator]], with two brackets",
        )
        .into()),
    });
    let Some(tables) = tables else { return };
    if tables.get_ref().is_empty() {
        sink.error(tables.span(), "the list of translators is empty", help);
    }
    for (table, span) in tables.into_inner() {
        // Without a mode its keys mean nothing.
        let mut section = Section::new("[[translator]]", table, span.clone());
        let help = "write mode = \"siit\", \"clat\", \"nat64\", \"softwire\", \"nat-pt\", \"nat44\" or \"dual-stack\"";
        let mode = section.word("mode").unwrap_or_default();
        if is_left_out(&mut section, sink, "mode", &format!("translator.{mode}")) {
            drafts.unread = true;
            continue;
        }
        let Some(kind) = section.require(sink, "mode", help, |v| MODE.read(v)) else {
            drafts.unread = true;
            continue;
        };
        // What the kernel does by itself is no translator to the rest of the program.
        let table = (table, span);
        match kind.into_inner() {
            Kind::Nat44 => drafts.nat44.push(nat44::nat44(table, sink)),
            Kind::DualStack => drafts.dual_stack.push(nat44::dual_stack(table, sink)),
            _ => drafts.translators.push(keys::read("[[translator]]", table, sink)),
        }
    }
}

impl Drafts {
    /// The configuration. `None` when a part is incomplete; then that has been reported.
    pub(crate) fn finish(self) -> Option<Config> {
        Some(Config {
            translators: all(self.translators)?,
            nat44: all(self.nat44)?,
            dual_stack: all(self.dual_stack)?,
            dns64: all(self.dns64)?.pop(),
            advertise: all(self.advertise)?,
            trt: all(self.trt)?,
            proxies: all(self.proxies)?,
            dstm_server: all(self.dstm_server)?.pop(),
            dstm_tep: all(self.dstm_tep)?.pop(),
            dstm_clients: all(self.dstm_clients)?,
            cluster: all(self.cluster)?.pop(),
            control: self.control.map(|read| read.value).unwrap_or_default(),
            metrics: self.metrics.map(|read| read.value).unwrap_or_default(),
            log: self.log.map(|read| read.value).unwrap_or_default(),
        })
    }
}

/// What tables say, if all of them are complete.
fn all<T>(tables: impl IntoIterator<Item = keys::Read<T>>) -> Option<Vec<T>> {
    tables.into_iter().map(keys::Read::finish).collect()
}
