//! A transport relay.

use crate::counter::counters;

counters! {
    /// Numbers since the relay started, of all threads together.
    pub struct Stats;
    /// The counters of one thread.
    pub struct Counters of Counter;
    /// TCP connections of clients that there are now.
    connections: u64,
    /// UDP sessions that there are now.
    sessions: u64,
    /// TCP connections of clients that were accepted.
    tcp_accepted,
    /// Of these, those that the server took, too.
    tcp_established,
    /// Connections and datagrams of clients that may not use the relay.
    refused_client,
    /// To addresses that are no server's.
    refused_address,
    /// To addresses that are not global, in 64:ff9b::/96.
    refused_private,
    /// To addresses of this host.
    refused_own,
    /// To destinations that the configuration refuses.
    refused_listed,
    /// Beyond the number of connections or sessions.
    limited_total,
    /// Beyond the number of those of one client network.
    limited_client,
    /// Connections that servers refused.
    failed_refused,
    /// Connections to servers that can't be reached.
    failed_unreachable,
    /// Connections that servers did not answer in time.
    failed_timeout,
    /// Connections and sessions for which this host had no port, descriptor or memory left.
    failed_resources,
    /// Connections that failed for another reason.
    failed_other,
    /// Connections that clients reset while the server was asked.
    tcp_abandoned,
    /// Connections that both sides ended.
    tcp_finished,
    /// Connections that were reset by the client, or where it was lost.
    tcp_reset_client,
    /// Connections that were reset by the server, or where it was lost.
    tcp_reset_server,
    /// Connections that were idle for too long.
    tcp_idle,
    /// Octets of TCP from clients to servers.
    tcp_octets_up,
    /// Octets of TCP from servers to clients.
    tcp_octets_down,
    /// Urgent octets that were met.
    tcp_urgent,
    /// UDP sessions that were opened.
    udp_opened,
    /// UDP sessions that were idle for too long.
    udp_idle,
    /// Datagrams from clients to servers.
    udp_datagrams_up,
    /// Datagrams from servers to clients.
    udp_datagrams_down,
    /// Octets in these from clients.
    udp_octets_up,
    /// Octets in these from servers.
    udp_octets_down,
    /// Datagrams to clients from whom no session leads.
    udp_unsolicited,
    /// Datagrams that the system did not take, or did not say where to.
    udp_unsent,
    /// Datagrams of clients too long for the way to the server.
    udp_too_big,
    /// ICMPv6 errors sent to clients.
    icmp_sent,
    /// ICMPv6 errors not sent, beyond the rate or because the system did not take them.
    icmp_limited,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_up() {
        let (one, other) = (Counters::default(), Counters::default());
        one.tcp_accepted.add(2);
        other.tcp_accepted.add(3);
        other.icmp_sent.add(1);
        let mut stats = Stats::default();
        one.add_to(&mut stats);
        other.add_to(&mut stats);
        assert_eq!(stats, Stats { tcp_accepted: 5, icmp_sent: 1, ..Stats::default() });
    }
}
