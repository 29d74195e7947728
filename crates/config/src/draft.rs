//! The text's top level, and what is kept of it until everything has been checked.

use toml::de::{DeTable, DeValue};

use crate::advertise::Advertise;
use crate::diagnostic::{Diagnostic, Sink};
use crate::dns64::Dns64;
use crate::dstm::{DstmClient, DstmServer, DstmTep};
use crate::keys;
use crate::keys::form::Form;
use crate::mode::{Kind, MODE};
use crate::nat44::{self, DualStack, Nat44};
use crate::proxy::Proxy;
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{self, Control, Log, Metrics, Table};
use crate::translator::Translator;
use crate::trt::Trt;
use crate::types::Config;

/// The parts of the file, with their places where checks across parts need them.
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
    /// There are translators whose mode could not be read.
    pub(crate) unread: bool,
    control: Option<keys::Read<Control>>,
    pub(crate) metrics: Option<keys::Read<Metrics>>,
    log: Option<keys::Read<Log>>,
}

/// Reads a text. What is wrong goes to `sink`; what is right is returned.
pub(crate) fn read(text: &str, sink: &mut Sink) -> Drafts {
    let (root, errors) = DeTable::parse_recoverable(text);
    // Recovery from a syntax error makes values up: what follows would only confuse.
    let broken = !errors.is_empty();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let message = format!("this is no TOML: {}", error.message());
        sink.push(Diagnostic::error(span, message));
    }
    let mut drafts = Drafts {
        translators: Vec::new(),
        nat44: Vec::new(),
        dual_stack: Vec::new(),
        dns64: None,
        advertise: Vec::new(),
        trt: Vec::new(),
        proxies: Vec::new(),
        dstm_server: None,
        dstm_tep: None,
        dstm_clients: Vec::new(),
        unread: false,
        control: None,
        metrics: None,
        log: None,
    };
    if broken {
        return drafts;
    }
    let mut top = Section::new("this file", root.get_ref(), 0..0);
    read_translators(&mut top, sink, &mut drafts);
    if let Some(dns64) = top.read(sink, "dns64", only_one) {
        drafts.dns64 = Some(keys::read("[dns64]", dns64.into_inner(), sink));
    }
    if let Some(tables) = top.read(sink, "advertise", |v| sections::tables(v, "[[advertise]]")) {
        let tables = tables.into_inner().into_iter();
        drafts.advertise = tables.map(|it| keys::read("[[advertise]]", it, sink)).collect();
    }
    if let Some(tables) = top.read(sink, "trt", |v| sections::tables(v, "[[trt]]")) {
        let tables = tables.into_inner().into_iter();
        drafts.trt = tables.map(|it| keys::read("[[trt]]", it, sink)).collect();
    }
    if let Some(tables) = top.read(sink, "proxy", |v| sections::tables(v, "[[proxy]]")) {
        let tables = tables.into_inner().into_iter();
        drafts.proxies = tables.map(|it| keys::read("[[proxy]]", it, sink)).collect();
    }
    if let Some(table) = top.read(sink, "dstm_server", only_one) {
        drafts.dstm_server = Some(keys::read("[dstm_server]", table.into_inner(), sink));
    }
    if let Some(table) = top.read(sink, "dstm_tep", only_one) {
        drafts.dstm_tep = Some(keys::read("[dstm_tep]", table.into_inner(), sink));
    }
    if let Some(tables) = top.read(sink, "dstm_client", |v| sections::tables(v, "[[dstm_client]]"))
    {
        let tables = tables.into_inner().into_iter();
        drafts.dstm_clients = tables.map(|it| keys::read("[[dstm_client]]", it, sink)).collect();
    }
    let sections =
        ["translator", "dns64", "advertise", "trt", "proxy", "dstm_server", "dstm_client"];
    if !sections.into_iter().any(|key| top.has(key)) {
        let message = "this file has neither a `translator` nor `dns64`, `advertise`, `trt`, `proxy`, `dstm_server` \
                       or `dstm_client`";
        let help = "begin a translator with a line [[translator]], a DNS64 server with [dns64], router \
                    advertisements with [[advertise]], a transport relay with [[trt]], a proxy with [[proxy]], DSTM with \
                    [dstm_server] or [[dstm_client]]";
        sink.push(Diagnostic::error(top.span(), message).help(help));
    }
    if let Some(control) = top.read(sink, "control", sections::table) {
        drafts.control = Some(keys::read("[control]", control.into_inner(), sink));
    }
    if let Some(metrics) = top.read(sink, "metrics", sections::table) {
        drafts.metrics = Some(keys::read("[metrics]", metrics.into_inner(), sink));
    }
    if let Some(log) = top.read(sink, "log", sections::table) {
        drafts.log = Some(keys::read("[log]", log.into_inner(), sink));
    }
    top.finish(sink);
    drafts
}

/// A section of which there is one.
fn only_one<'t, 'i>(value: &'t Value<'i>) -> Result<Table<'t, 'i>, Problems> {
    match value.get_ref() {
        DeValue::Array(_) => {
            let message = "there is one, which may listen on several addresses";
            Err(Problem::new(value.span(), message, "write it with one bracket").into())
        }
        _ => sections::table(value),
    }
}

fn read_translators(top: &mut Section<'_, '_>, sink: &mut Sink, drafts: &mut Drafts) {
    let help = "begin a translator with a line [[translator]]";
    let tables = top.read(sink, "translator", |value| match value.get_ref() {
        DeValue::Array(items) => Problems::collect(items.iter().map(sections::table)),
        _ => Err(Problem::new(
            value.span(),
            "there may be several translators, so this is a list",
            "write [[translator]], with two brackets",
        )
        .into()),
    });
    let Some(tables) = tables else { return };
    if tables.get_ref().is_empty() {
        let message = "the list of translators is empty";
        sink.push(Diagnostic::error(tables.span(), message).help(help));
    }
    for (table, span) in tables.into_inner() {
        // Without a mode its keys mean nothing.
        let mut section = Section::new("[[translator]]", table, span.clone());
        let help = "write mode = \"siit\", \"clat\", \"nat64\", \"softwire\", \"nat-pt\", \"nat44\" or \"dual-stack\"";
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
        let translators: Option<Vec<_>> =
            self.translators.into_iter().map(keys::Read::finish).collect();
        let nat44: Option<Vec<_>> = self.nat44.into_iter().map(keys::Read::finish).collect();
        let dual_stack = self.dual_stack.into_iter().map(keys::Read::finish);
        let dual_stack: Option<Vec<_>> = dual_stack.collect();
        let advertise = self.advertise.into_iter().map(keys::Read::finish);
        let advertise: Option<Vec<_>> = advertise.collect();
        let trt: Option<Vec<_>> = self.trt.into_iter().map(keys::Read::finish).collect();
        let proxies: Option<Vec<_>> = self.proxies.into_iter().map(keys::Read::finish).collect();
        let dns64 = match self.dns64 {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let dstm_clients = self.dstm_clients.into_iter().map(keys::Read::finish);
        let dstm_clients: Option<Vec<_>> = dstm_clients.collect();
        let dstm_server = match self.dstm_server {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let dstm_tep = match self.dstm_tep {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        Some(Config {
            translators: translators?,
            nat44: nat44?,
            dual_stack: dual_stack?,
            dns64,
            advertise: advertise?,
            trt: trt?,
            proxies: proxies?,
            dstm_server,
            dstm_tep,
            dstm_clients: dstm_clients?,
            control: self.control.map(|read| read.value).unwrap_or_default(),
            metrics: self.metrics.map(|read| read.value).unwrap_or_default(),
            log: self.log.map(|read| read.value).unwrap_or_default(),
        })
    }
}
