//! The validated configuration.

use fordway_xlat::addr::Pool6;

use crate::advertise::Advertise;
use crate::cluster::Cluster;
use crate::dns64::Dns64;
use crate::dstm::{DstmClient, DstmServer, DstmTep};
use crate::nat44::{DualStack, Nat44};
use crate::nat64::Nat64;
use crate::proxy::Proxy;
use crate::sections::{Control, Log, Metrics};
use crate::translator::Translator;
use crate::trt::Trt;

/// One configuration file. Something is in it: a translator, a relay, a DNS64 server, router
/// advertisements, a proxy, or a part of DSTM.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// The translators, in the order of the file.
    pub translators: Vec<Translator>,
    /// Entries of mode `nat44`, in the order of the file.
    pub nat44: Vec<Nat44>,
    /// Entries of mode `dual-stack`, in the order of the file.
    pub dual_stack: Vec<DualStack>,
    /// `[dns64]`.
    pub dns64: Option<Dns64>,
    /// `[[advertise]]`, in the order of the file.
    pub advertise: Vec<Advertise>,
    /// `[[trt]]`, in the order of the file.
    pub trt: Vec<Trt>,
    /// `[[proxy]]`, in the order of the file.
    pub proxies: Vec<Proxy>,
    /// `[dstm_server]`.
    pub dstm_server: Option<DstmServer>,
    /// `[dstm_tep]`.
    pub dstm_tep: Option<DstmTep>,
    /// `[[dstm_client]]`, in the order of the file.
    pub dstm_clients: Vec<DstmClient>,
    /// `[cluster]`.
    pub cluster: Option<Cluster>,
    /// `[control]`.
    pub control: Control,
    /// `[metrics]`.
    pub metrics: Metrics,
    /// `[log]`.
    pub log: Log,
}

impl Config {
    /// The cluster that this gateway is in, the translator that its gateways share, and that one's stateful part.
    #[must_use]
    pub fn clustered(&self) -> Option<(&Cluster, &Translator, &Nat64)> {
        let cluster = self.cluster.as_ref()?;
        let mut stateful = self.translators.iter().filter(|it| it.nat_pt().is_none());
        stateful.find_map(|it| Some((cluster, it, it.nat64()?)))
    }

    /// The translation prefixes of the translators that stand between an IPv6-only network and IPv4, in the
    /// order of the file, each once: what DNS64 makes addresses of and hosts are told, unless the file says
    /// otherwise. A CLAT's is another gateway's.
    #[must_use]
    pub fn pool6(&self) -> Vec<Pool6> {
        let gateways = self.translators.iter().filter(|translator| translator.clat().is_none());
        let mut all: Vec<Pool6> = Vec::new();
        let relays = self.trt.iter().flat_map(|trt| &trt.pool6);
        for pool6 in gateways.flat_map(Translator::pool6).chain(relays) {
            if !all.contains(pool6) {
                all.push(*pool6);
            }
        }
        all
    }
}
