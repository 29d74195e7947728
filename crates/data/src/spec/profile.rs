//! The size of a run, and what it is where a file does not say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The size of a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// One line for `list`.
    pub about: String,
    /// Lengths of a TCP flow; more than one is a factor.
    #[schemars(length(min = 1), inner(range(min = 1, max = 3600)))]
    pub durations_s: Vec<u64>,
    /// Octets after which a TCP flow ends, in place of its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000_000))]
    pub flow_octets: Option<u64>,
    /// Spacing of the throughput series.
    #[schemars(range(min = 0.001, max = 60.0))]
    pub interval_s: f64,
    /// Echo requests per deployment.
    #[schemars(range(min = 1))]
    pub ping_count: u32,
    /// Spacing of the echo requests.
    #[schemars(range(min = 0.001, max = 60.0))]
    pub ping_interval_s: f64,
    /// Seconds of datagrams at a steady rate.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub probe_s: f64,
    /// Datagrams per second of that rate.
    #[serde(default = "probe_rate")]
    #[schemars(range(min = 1))]
    pub probe_rate: u32,
    /// Seconds of small packets at the greatest rate.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub packets_s: f64,
    /// Pairs of hosts that small frames run between.
    #[serde(default = "host_pairs")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 131_072)))]
    pub host_pairs: Vec<u64>,
    /// Sizes of the frames of an IMIX, in the order in which they are sent (RFC 6985): octets of an Ethernet frame that carries
    /// IPv4, with its check sequence. An IPv6 packet with the same payload has 20 more, and must fit into 1,500.
    #[serde(default = "imix")]
    #[schemars(length(min = 1, max = 64), inner(range(min = 64, max = 1498)))]
    pub imix: Vec<u64>,
    /// Datagrams per second at which the processor time of one is measured: few enough for every mechanism.
    #[serde(default = "paced_rate")]
    #[schemars(range(min = 1))]
    pub paced_rate: u32,
    /// New flows of one measurement.
    #[serde(default = "new_flows")]
    #[schemars(range(min = 1))]
    pub new_flows: u32,
    /// Sessions of a table that is recycled, and of which parts are held.
    #[serde(default = "table_entries")]
    #[schemars(range(min = 4096, max = 16_777_216))]
    pub table_entries: u32,
    /// Seconds in which nothing moves before new flows and sessions under way count as lost.
    #[serde(default = "flow_patience_s")]
    #[schemars(range(min = 0.001, max = 60.0))]
    pub flow_patience_s: f64,
    /// Sessions to hold.
    #[serde(default = "held_sessions")]
    #[schemars(range(min = 1))]
    pub held_sessions: u32,
    /// Seconds of a trial of questions that has to pass without loss.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub dns_trial_s: f64,
    /// Seconds of the shorter trials that lead there.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub dns_search_s: f64,
    /// The search ends when its bounds are this close: 0.01 is 1 %.
    #[serde(default = "dns_precision")]
    #[schemars(range(min = 0.0001, max = 0.3))]
    pub dns_precision: f64,
    /// Seconds after which an answer comes too late; without it a fifteenth of the trial, from 0.04 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.001, max = 60.0))]
    pub dns_limit_s: Option<f64>,
    /// Questions per second above which the search does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub dns_rate_max: Option<u32>,
    /// Seconds of questions at the greatest rate.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub dns_s: f64,
    /// Names whose answers a server is made to know.
    #[serde(default = "dns_known")]
    #[schemars(range(min = 1))]
    pub dns_known: u32,
    /// Sessions of one measurement.
    #[serde(default = "sessions")]
    #[schemars(range(min = 1))]
    pub sessions: u32,
    /// Pages of one measurement.
    #[serde(default = "pages")]
    #[schemars(range(min = 1))]
    pub pages: u32,
    /// Seconds of objects by HTTP.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub http_s: f64,
    /// Simultaneous connections at which round trips by HTTP are timed.
    #[serde(default = "http_connections")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 10000)))]
    pub http_connections: Vec<u64>,
    /// Requests of each of these connections, one after the other.
    #[serde(default = "http_requests")]
    #[schemars(range(min = 1))]
    pub http_requests: u32,
    /// Requests of one `ab`.
    #[serde(default = "ab_requests")]
    #[schemars(length(min = 1), inner(range(min = 1)))]
    pub ab_requests: Vec<u64>,
    /// Its simultaneous connections.
    #[serde(default = "ab_connections")]
    #[schemars(length(min = 1), inner(range(min = 1)))]
    pub ab_connections: Vec<u64>,
    /// Octets of the objects of transactions that each have a connection of their own (RFC 9411 section 7.2).
    #[serde(default = "single_objects")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 104_857_600)))]
    pub single_objects: Vec<u64>,
    /// Octets of the objects of transactions of which ten share a connection (RFC 9411 section 7.3).
    #[serde(default = "kept_objects")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 104_857_600)))]
    pub kept_objects: Vec<u64>,
    /// Connections with transactions that are open at the same time (RFC 9411 section 7.5).
    #[serde(default = "web_connections")]
    #[schemars(range(min = 10, max = 60_000))]
    pub web_connections: u32,
    /// Seconds of the ramp-up phase of RFC 9411, which count for nothing.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.1, max = 600.0))]
    pub ramp_s: f64,
    /// Seconds of the sustain phase of RFC 9411, in which all is measured.
    #[serde(default = "sustain_s")]
    #[schemars(range(min = 0.4, max = 3600.0))]
    pub sustain_s: f64,
    /// Background packets per second, one way, beside a TCP flow.
    #[serde(default = "simplex_rates")]
    #[schemars(length(min = 1), inner(range(max = 1_000_000)))]
    pub simplex_rates: Vec<u64>,
    /// Background flows per host, both ways, beside a TCP flow.
    #[serde(default = "duplex_flows")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 10000)))]
    pub duplex_flows: Vec<u64>,
    /// Datagrams per second of each of these flows.
    #[serde(default = "flow_rate")]
    #[schemars(range(min = 1))]
    pub flow_rate: u32,
    /// TCP flows at once, in the client's direction or in each.
    #[serde(default = "tcp_streams")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 128)))]
    pub tcp_streams: Vec<u64>,
    /// Octets of payload of a background datagram.
    #[serde(default = "background_octets")]
    #[schemars(range(min = 1, max = 1400))]
    pub background_octets: u32,
    /// Connections whose first packets are timed.
    #[serde(default = "begun")]
    #[schemars(range(min = 1))]
    pub begun: u32,
    /// Sizes of the frames of RFC 8219, octets with the check sequence on the side where they are larger. Over IPv6 a frame has at
    /// least 84 octets.
    #[serde(default = "frame_sizes")]
    #[schemars(length(min = 1), inner(range(min = 64, max = 3840)))]
    pub frame_sizes: Vec<u64>,
    /// Sizes of the frames of bursts, overloads and resets (RFC 8219 sections 7.5 to 7.7).
    #[serde(default = "disturbed_sizes")]
    #[schemars(length(min = 1), inner(range(min = 64, max = 3840)))]
    pub disturbed_sizes: Vec<u64>,
    /// Native IPv6 beside what is translated, in per cent of the frames (RFC 8219 section 5.3: 0, 10, 50, 90).
    #[serde(default = "native_shares")]
    #[schemars(length(min = 1), inner(range(max = 100)))]
    pub native_shares: Vec<u64>,
    /// Networks of hosts on the client's side that frames take turns over.
    #[serde(default = "networks")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 256)))]
    pub networks: Vec<u64>,
    /// Offered rates of the frame loss rate, in per cent of the highest (RFC 8219 section 7.4).
    #[serde(default = "loss_shares")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 100)))]
    pub loss_shares: Vec<u64>,
    /// Network flows at once, of which the throughput is held against that of one (RFC 8219 section 10).
    #[serde(default = "overload_flows")]
    #[schemars(length(min = 1), inner(range(min = 2, max = 256)))]
    pub overload_flows: Vec<u64>,
    /// Seconds from the start of one of these flows to that of the next, where they start one after the other (RFC 8219 section
    /// 10.2.2).
    #[serde(default = "flow_start_s")]
    #[schemars(range(min = 0.001, max = 60.0))]
    pub flow_start_s: f64,
    /// Connections of the tables of RFC 9693: a multiple of 20,000, or fewer; others are rounded up.
    #[serde(default = "table_connections")]
    #[schemars(length(min = 1), inner(range(min = 1000, max = 100_000_000)))]
    pub table_connections: Vec<u64>,
    /// Connections that every table of RFC 9693 surely holds: where the search for its capacity begins.
    #[serde(default = "safe_connections")]
    #[schemars(range(min = 1000, max = 100_000_000))]
    pub safe_connections: u64,
    /// TCP connections through a gateway that dies.
    #[serde(default = "pulses")]
    #[schemars(range(min = 1, max = 5000))]
    pub pulses: u32,
    /// Which lengths and repetitions the tests of RFC 8219 and RFC 9693 have: `quick`, `standard` or `strict` (the RFCs' own).
    #[serde(default)]
    pub lengths: Lengths,
    /// These lengths are multiplied by this, but for those of resets, which depend on how long a mechanism takes to start.
    #[serde(default = "one_second")]
    #[schemars(range(min = 0.01, max = 1.0))]
    pub length_share: f64,
    /// What sends the frames of these tests: `best`, `program` or `socket`.
    #[serde(default)]
    pub sender: Sender,
    /// Fewest blocks.
    #[schemars(range(min = 1))]
    pub blocks_min: u32,
    /// Most blocks.
    #[schemars(range(min = 1))]
    pub blocks_max: u32,
    /// Wall time that the blocks should fill, when `blocks_min` and `blocks_max` differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<u64>,
}

/// Lengths and repetitions of the tests of RFC 8219 and RFC 9693.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lengths {
    /// A few seconds for each value.
    #[default]
    Quick,
    /// Tens of seconds.
    Standard,
    /// Those of the RFCs.
    Strict,
}

/// What sends the frames of the tests of RFC 8219 and RFC 9693.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sender {
    /// The program, and sockets where the kernel or a device refuses it.
    #[default]
    Best,
    /// A program that the kernel repeats over live frames (Linux 5.18); without it there is no value.
    Program,
    /// Sockets of AF_XDP.
    Socket,
}

impl std::fmt::Display for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Best => "best",
            Self::Program => "program",
            Self::Socket => "socket",
        })
    }
}

impl std::str::FromStr for Sender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Best, Self::Program, Self::Socket];
        all.into_iter()
            .find(|sender| sender.to_string() == text)
            .ok_or_else(|| format!("{text}: best, program or socket"))
    }
}

impl Profile {
    /// The procedures' own profile. A deployment is one repetition; blocks are the others.
    pub fn rfc(&self) -> fordway_procedures::profile::Profile {
        use fordway_procedures::profile::Profile as Own;
        let mut own = match self.lengths {
            Lengths::Quick => Own::quick(),
            Lengths::Standard => Own::standard(),
            Lengths::Strict => Own::strict(),
        };
        let octets = |all: &[u64]| all.iter().filter_map(|it| u16::try_from(*it).ok()).collect();
        own.sizes = octets(&self.frame_sizes);
        own.networks = octets(&self.networks);
        own.mixes =
            self.native_shares.iter().map(|native| 100 - (*native).min(100) as u8).collect();
        own.flows = self.overload_flows.iter().max().copied().unwrap_or(1) as u32;
        own.throughput.repetitions = 1;
        own.latency.repetitions = 1;
        own.variation.repetitions = 1;
        own.back_to_back.repetitions = 1;
        own.recovery.repetitions = 1;
        own.reset.repetitions = 1;
        own.stateful.repetitions = 1;
        let share = self.length_share;
        for seconds in [
            &mut own.waits.learning,
            &mut own.waits.residual,
            &mut own.waits.settle,
            &mut own.throughput.short_s,
            &mut own.throughput.full_s,
            &mut own.latency.seconds,
            &mut own.latency.tags_after_s,
            &mut own.variation.seconds,
            &mut own.frame_loss_rate.seconds,
            &mut own.back_to_back.limit_s,
            &mut own.recovery.overload_s,
            &mut own.recovery.relief_s,
        ] {
            *seconds *= share;
        }
        for goal in &mut own.goals {
            goal.final_s *= share;
            goal.initial_s *= share;
            goal.sum_s *= share;
        }
        own
    }
}

fn one_second() -> f64 {
    1.0
}

fn pulses() -> u32 {
    200
}

fn probe_rate() -> u32 {
    10_000
}

fn host_pairs() -> Vec<u64> {
    vec![1, 1000, 100_000]
}

/// The simple IMIX, 7 : 4 : 1, with the largest frame that needs no fragmentation in either family.
fn imix() -> Vec<u64> {
    vec![64, 594, 64, 64, 594, 64, 64, 594, 64, 64, 594, 1498]
}

fn paced_rate() -> u32 {
    20_000
}

fn flow_patience_s() -> f64 {
    0.05
}

fn dns_precision() -> f64 {
    0.01
}

fn dns_known() -> u32 {
    2000
}

fn sessions() -> u32 {
    200
}

fn pages() -> u32 {
    30
}

fn http_connections() -> Vec<u64> {
    vec![1, 10, 100]
}

fn http_requests() -> u32 {
    1000
}

fn ab_requests() -> Vec<u64> {
    vec![1000, 2000, 3000]
}

fn ab_connections() -> Vec<u64> {
    vec![10, 100, 200, 300]
}

fn single_objects() -> Vec<u64> {
    [1, 2, 4, 16, 64].map(|kib| kib * 1024).into()
}

fn kept_objects() -> Vec<u64> {
    [1, 16, 64, 256].map(|kib| kib * 1024).into()
}

fn web_connections() -> u32 {
    10_000
}

fn sustain_s() -> f64 {
    3.0
}

fn simplex_rates() -> Vec<u64> {
    (0..=6).map(|thousand| thousand * 1000).collect()
}

fn duplex_flows() -> Vec<u64> {
    (1..=10).map(|ten| ten * 10).collect()
}

fn flow_rate() -> u32 {
    100
}

fn tcp_streams() -> Vec<u64> {
    vec![1, 4, 16]
}

fn background_octets() -> u32 {
    512
}

fn frame_sizes() -> Vec<u64> {
    vec![64, 128, 256, 512, 768, 1024, 1280, 1518]
}

fn disturbed_sizes() -> Vec<u64> {
    vec![64]
}

fn native_shares() -> Vec<u64> {
    vec![0]
}

fn networks() -> Vec<u64> {
    vec![1]
}

fn loss_shares() -> Vec<u64> {
    (1..=10).rev().map(|ten| 10 * ten).collect()
}

fn overload_flows() -> Vec<u64> {
    vec![4, 16, 64, 256]
}

fn flow_start_s() -> f64 {
    0.01
}

fn safe_connections() -> u64 {
    50_000
}

fn table_connections() -> Vec<u64> {
    vec![100_000]
}

fn begun() -> u32 {
    100
}

fn new_flows() -> u32 {
    262_144
}

fn table_entries() -> u32 {
    524_288
}

fn held_sessions() -> u32 {
    1_000_000
}
