//! Application level gateways: `alg` and what belongs to each.

use std::collections::HashMap;
use std::sync::Arc;

use fordway_xlat::alg::Alg;
use fordway_xlat::alg::ftp::{self, Ftp};

use crate::diagnostic::{Diagnostic, Sink};
use crate::section::Section;
use crate::value;

/// Ports of servers of one protocol; programs in the kernel know 8 in all.
const MAX_PORTS: usize = 4;

/// An application level gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// FTP (RFC 6384).
    Ftp,
}

pub(crate) const GATEWAYS: [(&str, Gateway); 1] = [("ftp", Gateway::Ftp)];

/// The gateways of a translator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateways {
    /// Those that are on, in the order of the file.
    pub on: Vec<Gateway>,
    /// Ports of FTP servers.
    pub ftp_ports: Vec<u16>,
}

impl Default for Gateways {
    fn default() -> Gateways {
        Gateways { on: Vec::new(), ftp_ports: vec![ftp::PORT] }
    }
}

impl Gateways {
    /// The core's.
    pub(crate) fn core(&self) -> Vec<Arc<dyn Alg>> {
        let of = |gateway: &Gateway| match gateway {
            Gateway::Ftp => Arc::new(Ftp::new(self.ftp_ports.clone())) as Arc<dyn Alg>,
        };
        self.on.iter().map(of).collect()
    }
}

pub(crate) fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> Gateways {
    let mut gateways = Gateways::default();
    let help = "write a list such as alg = [\"ftp\"]";
    let on = section.read(sink, "alg", |v| value::list(v, help, |v| value::choice(v, &GATEWAYS)));
    for item in on.map(toml::Spanned::into_inner).unwrap_or_default() {
        if gateways.on.contains(item.get_ref()) {
            let message = "`alg`: the same gateway twice";
            sink.push(Diagnostic::error(item.span(), message).help("leave one of them out"));
        } else {
            gateways.on.push(*item.get_ref());
        }
    }
    let help = "write a list of 1 to 4 ports such as ftp_ports = [21, 2121]";
    let port = |v: &_| Ok(value::integer(v, 1..=65_535, "")? as u16);
    let Some(ports) = section.read(sink, "ftp_ports", |v| value::list(v, help, port)) else {
        return gateways;
    };
    let number = ports.get_ref().len();
    if number == 0 || number > MAX_PORTS {
        let message = format!("`ftp_ports`: {number} ports");
        sink.push(Diagnostic::error(ports.span(), message).help(help));
    }
    if !gateways.on.contains(&Gateway::Ftp) {
        let message = "`ftp_ports`: nobody watches them";
        sink.push(Diagnostic::error(ports.span(), message).help("write alg = [\"ftp\"], too"));
    }
    let mut seen = HashMap::new();
    for port in ports.get_ref() {
        if let Some(first) = seen.insert(*port.get_ref(), port.span()) {
            let message = format!("`ftp_ports`: port {} twice", port.get_ref());
            let twice = Diagnostic::error(port.span(), message).related(first, "the first time");
            sink.push(twice.help("leave one of them out"));
        }
    }
    gateways.ftp_ports = ports.into_inner().into_iter().map(toml::Spanned::into_inner).collect();
    gateways
}
