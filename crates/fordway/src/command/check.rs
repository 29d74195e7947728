//! `fordway check`.

mod host;

use fordway_config::{LoadError, Loaded, Report, Severity, load_with};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use serde::Serialize;

use crate::cli::CheckArgs;

/// `--json`.
#[derive(Default, Serialize)]
struct Checked<'a> {
    valid: bool,
    messages: Vec<Line<'a>>,
    translators: Vec<Entry>,
    /// Where a DNS64 server listens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dns64: Vec<String>,
    /// Devices with router advertisements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advertise: Vec<String>,
    /// Transport relays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trt: Vec<String>,
    /// Proxies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    proxies: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dstm: Vec<String>,
    /// What of the file does not fit this host as it is now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    severity: &'static str,
    line: usize,
    column: usize,
    message: &'a str,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    mode: &'static str,
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    match load_with(args.file.path(), &args.set.settings()) {
        Ok(loaded) => valid(args, &loaded),
        Err(LoadError::Invalid(report)) if args.json => {
            let messages = lines(&report);
            output::print_json(&Checked { messages, ..Checked::default() })?;
            Err(Failure::Reported)
        }
        Err(error) => Err(error.into()),
    }
}

fn valid(args: &CheckArgs, loaded: &Loaded) -> Result<(), Failure> {
    let config = &loaded.config;
    let entry = |translator: &fordway_config::Translator| Entry {
        name: translator.name.to_string(),
        mode: translator.mode_name(),
    };
    let of_kernel = config.nat44.iter().map(|it| (&it.name, "nat44"));
    let of_kernel = of_kernel.chain(config.dual_stack.iter().map(|it| (&it.name, "dual-stack")));
    let of_kernel = of_kernel.map(|(name, mode)| Entry { name: name.to_string(), mode });
    let dns64 = config.dns64.iter().flat_map(|dns64| &dns64.listen);
    let checked = Checked {
        valid: true,
        messages: lines(&loaded.warnings),
        translators: config.translators.iter().map(entry).chain(of_kernel).collect(),
        dns64: dns64.map(ToString::to_string).collect(),
        advertise: config.advertise.iter().map(|it| it.device.to_string()).collect(),
        trt: config.trt.iter().map(|it| it.name.to_string()).collect(),
        proxies: config.proxies.iter().map(|it| it.name.to_string()).collect(),
        dstm: dstm(config),
        host: host::doubts(config),
    };
    if args.json {
        return output::print_json(&checked);
    }
    print_warnings(&loaded.warnings);
    for doubt in &checked.host {
        let warning = output::WARNING;
        output::complain(&format!("{warning}warning{warning:#}: {doubt}"));
    }
    if args.print_config {
        return output::print(&config.to_string());
    }
    let good = output::GOOD;
    let origin = loaded.warnings.origin();
    output::print(&format!("{origin}: {good}valid{good:#}; {}\n", checked.parts().join(", ")))
}

impl Checked<'_> {
    /// What there is, for people.
    fn parts(&self) -> Vec<String> {
        let translators = self.translators.iter();
        let translators = translators.map(|entry| format!("{} ({})", entry.name, entry.mode));
        let dns64 = (!self.dns64.is_empty()).then(|| format!("dns64 ({})", self.dns64.join(" ")));
        let advertise = self.advertise.iter();
        let advertise = advertise.map(|device| format!("{device} (router advertisements)"));
        let trt = self.trt.iter().map(|name| format!("{name} (transport relay)"));
        let proxies = self.proxies.iter().map(|name| format!("{name} (HTTP proxy)"));
        let dstm = self.dstm.iter().cloned();
        translators.chain(dns64).chain(advertise).chain(trt).chain(proxies).chain(dstm).collect()
    }
}

/// The parts of DSTM that there are.
fn dstm(config: &fordway_config::Config) -> Vec<String> {
    let server = config.dstm_server.iter().map(|_| "dstm-server".to_owned());
    let tep = config.dstm_tep.iter().map(|_| "dstm-tep".to_owned());
    let clients = config.dstm_clients.iter().map(|it| format!("{} (DSTM client)", it.name));
    server.chain(tep).chain(clients).collect()
}

fn lines(report: &Report) -> Vec<Line<'_>> {
    report
        .lines()
        .map(|(severity, line, column, message)| Line {
            severity: match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            line,
            column,
            message,
        })
        .collect()
}

/// Writes warnings to standard error.
pub(crate) fn print_warnings(warnings: &Report) {
    if !warnings.is_empty() {
        fordway_daemon::output::complain(&warnings.render(true));
    }
}
