//! unbound.conf: DNS64.

use std::net::{Ipv4Addr, SocketAddr};

use fordway_config::Dns64;
use fordway_resolver::{Protocol, Server};
use ipnet::Ipv6Net;

use super::{Plan, Text, joined};

pub(super) fn write(plan: &Plan, dns64: &Dns64) -> String {
    let mut text = Text::new("#", "unbound");
    text.block("server:", "", |text| {
        listen(dns64, text);
        access(plan, dns64, text);
        let validator = if dns64.validate { "validator " } else { "" };
        text.line(format!("module-config: \"dns64 {validator}iterator\""));
        if let (true, Some(file)) = (dns64.validate, &dns64.trust_anchor) {
            text.line(format!("trust-anchor-file: \"{}\"", file.display()));
        } else if dns64.validate {
            text.line("# The root's keys: the line that the package brings, such as");
            text.line("# auto-trust-anchor-file: \"/var/lib/unbound/root.key\"");
        }
        for forward in dns64.forwards.iter().filter(|it| dns64.validate && !it.validate) {
            for domain in &forward.domains {
                text.line(format!("domain-insecure: \"{}\"", super::name(domain)));
            }
        }
        prefixes(plan, text);
        text.line(format!("num-threads: {}", dns64.threads.unwrap_or(1)));
        if dns64.threads.is_none() {
            text.line("# fordway has one thread for each processor.");
        }
        // Two caches: of messages, and of records, which should be twice as large.
        text.line(format!("msg-cache-size: {}", dns64.cache / 3));
        text.line(format!("rrset-cache-size: {}", dns64.cache / 3 * 2));
        text.line(format!("max-udp-size: {}", dns64.udp_size));
        text.line(format!("incoming-num-tcp: {}", dns64.limits.connections));
        text.line(format!("tcp-idle-timeout: {}", dns64.limits.idle.as_millis()));
        if let Some(ca) = &dns64.ca {
            text.line(format!("tls-cert-bundle: \"{}\"", ca.display()));
        }
        impossible(dns64, text);
    });
    forward(".", &dns64.upstream, &mut text);
    for own in &dns64.forwards {
        own.domains
            .iter()
            .for_each(|domain| forward(&super::name(domain), &own.upstream, &mut text));
    }
    text.lines
}

fn listen(dns64: &Dns64, text: &mut Text) {
    for address in &dns64.listen {
        text.line(format!("interface: {}", at_port(*address, 53)));
        if address.ip().is_unspecified() {
            text.line("interface-automatic: yes");
        }
    }
}

fn access(plan: &Plan, dns64: &Dns64, text: &mut Text) {
    match &dns64.allow {
        Some(nets) => {
            for net in nets {
                text.line(format!("access-control: {net} allow"));
            }
        }
        None => {
            text.line("# fordway lets the networks of this host ask; name them here.");
            for prefix in plan.devices.iter().flat_map(super::known_prefixes) {
                text.line(format!("access-control: {prefix} allow"));
            }
        }
    }
}

fn prefixes(plan: &Plan, text: &mut Text) {
    let mut prefixes = plan.pool6.iter();
    if let Some(first) = prefixes.next() {
        text.line(format!("dns64-prefix: {}", first.net()));
    }
    for other in prefixes {
        text.line(format!("# Not possible with unbound: a second prefix, {}.", other.net()));
    }
}

fn impossible(dns64: &Dns64, text: &mut Text) {
    let mut lacks = |what: String| text.line(format!("# Not possible with unbound: {what}."));
    let usual = Ipv6Net::new_assert(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 96);
    if dns64.exclude != [usual] {
        lacks(format!("exclude = {}", joined(&dns64.exclude, ", ")));
    }
    if !dns64.exclude_a.is_empty() {
        lacks(format!("exclude_a = {}", joined(&dns64.exclude_a, ", ")));
    }
    if !dns64.exempt.is_empty() {
        lacks(format!("exempt = {}", joined(dns64.exempt.iter().map(super::name), ", ")));
    }
    if !dns64.ranges.is_empty() {
        lacks("prefixes by IPv4 network (ranges)".to_owned());
    }
    for forward in dns64.forwards.iter().filter(|it| it.synthesise == Some(false)) {
        lacks(format!(
            "no synthesis for {}",
            joined(forward.domains.iter().map(super::name), ", ")
        ));
    }
    for policy in &dns64.policies {
        lacks(format!("a policy of its own for {}", joined(&policy.clients, ", ")));
    }
    if let Some(rate) = dns64.rate {
        lacks(format!(
            "{rate} answers per second to a client network; ip-ratelimit counts by address"
        ));
    }
}

fn forward(zone: &str, upstream: &[Server], text: &mut Text) {
    // One way for all servers of a zone: that of the first that it knows.
    let known = |it: &&Server| !matches!(it.protocol, Protocol::Https { .. });
    let way = upstream.iter().find(known).map(|it| std::mem::discriminant(&it.protocol));
    text.line("");
    text.block("forward-zone:", "", |text| {
        text.line(format!("name: \"{zone}\""));
        match upstream.iter().find(known).map(|it| &it.protocol) {
            Some(Protocol::Tls { .. }) => text.line("forward-tls-upstream: yes"),
            Some(Protocol::Tcp) => text.line("forward-tcp-upstream: yes"),
            _ => {}
        }
        for upstream in upstream {
            if way != Some(std::mem::discriminant(&upstream.protocol)) {
                text.line(format!("# Not possible with unbound beside the others: {upstream}."));
                continue;
            }
            let name = match &upstream.protocol {
                Protocol::Tls { name: Some(name) } => format!("#{name}"),
                _ => String::new(),
            };
            text.line(format!("forward-addr: {}{name}", at_port(upstream.address, 53)));
        }
    });
}

/// An address, with its port where that is not the usual one.
fn at_port(address: SocketAddr, usual: u16) -> String {
    match address.port() {
        port if port == usual => address.ip().to_string(),
        port => format!("{}@{port}", address.ip()),
    }
}
