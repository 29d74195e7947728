//! Application level gateways: `alg` and what belongs to each.

use std::sync::Arc;

use fordway_xlat::alg::Alg;
use fordway_xlat::alg::ftp::{self, Ftp};

use crate::diagnostic::Sink;
use crate::findings::{clashing, twice};
use crate::keys::form::{Choice, integer, list};
use crate::keys::{Places, keys, usual};

/// Ports of servers of one protocol; programs in the kernel know 8 in all.
const MAX_PORTS: usize = 4;

/// An application level gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// FTP (RFC 6384).
    Ftp,
}

const GATEWAY: Choice<Gateway> = Choice(&[("ftp", Gateway::Ftp)]);
const PORTS: &str = "write a list of 1 to 4 ports such as ftp_ports = [21, 2121]";

keys! {
    /// The gateways of a translator.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Gateways {
        /// Application level gateways (ALGs). [alg.md](alg.md) describes them
        on("alg"): Vec<Gateway> = list(GATEWAY, "write a list such as alg = [\"ftp\"]"), or(Vec::new());
        /// Ports of FTP servers, of `alg = ["ftp"]`; 4 at most
        ftp_ports: Vec<u16> = list(integer(1..=65_535, ""), PORTS), or(vec![ftp::PORT]),
            if(on.contains(&Gateway::Ftp));
    }
}

impl Default for Gateways {
    fn default() -> Gateways {
        usual()
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

/// Holds `alg` and `ftp_ports` against each other.
pub(super) fn check(at: &Places, gateways: &Gateways, sink: &mut Sink) {
    let on = at.each("alg", &gateways.on);
    for (_, item) in clashing(&on, |one, other| one == other) {
        sink.error(item.span(), "`alg`: the same gateway twice", "leave one of them out");
    }
    let Some(span) = at.key("ftp_ports") else { return };
    let number = gateways.ftp_ports.len();
    if number == 0 || number > MAX_PORTS {
        sink.error(span.clone(), format!("`ftp_ports`: {number} ports"), PORTS);
    }
    if !gateways.on.contains(&Gateway::Ftp) {
        sink.error(span, "`ftp_ports`: no ALG watches them", "write alg = [\"ftp\"], too");
    }
    for (first, port) in twice(&at.each("ftp_ports", &gateways.ftp_ports), |port| port) {
        let message = format!("`ftp_ports`: port {} twice", port.get_ref());
        sink.error(port.span(), message, "leave one of them out")
            .beside(first.span(), "the first time");
    }
}
