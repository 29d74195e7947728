//! named.conf: DNS64.

use std::net::SocketAddr;

use fordway_config::{Dns64, Dns64Policy};
use fordway_resolver::{Protocol, Server};
use fordway_xlat::addr::Pool6;
use ipnet::{Ipv4Net, Ipv6Net};

use super::{Plan, Text, joined};

pub(super) fn write(plan: &Plan, dns64: &Dns64) -> String {
    let mut text = Text::new("//", "bind");
    text.block("acl \"clients\" {", "};", |text| clients(plan, dns64, text));
    text.block("options {", "};", |text| {
        text.line("directory \"/var/cache/bind\";");
        listen(dns64, text);
        text.line("recursion yes;");
        text.line("allow-query { clients; };");
        text.line("allow-recursion { clients; };");
        text.line("forward only;");
        forwarders(&dns64.upstream, text);
        let validation = if dns64.validate { "auto" } else { "no" };
        if dns64.trust_anchor.is_some() {
            text.line("// The trust anchor of fordway's file belongs into trust-anchors { }.");
        }
        text.line(format!("dnssec-validation {validation};"));
        text.line(format!("max-cache-size {};", dns64.cache));
        text.line(format!("max-udp-size {};", dns64.udp_size));
        text.line(format!("tcp-clients {};", dns64.limits.connections));
        if let Some(rate) = dns64.rate.filter(|rate| *rate <= 1000) {
            text.line(format!("rate-limit {{ responses-per-second {rate}; }};"));
        } else if let Some(rate) = dns64.rate {
            text.line(format!("// {rate} answers per second are more than rate-limit takes."));
        }
        let insecure = dns64.forwards.iter().filter(|it| dns64.validate && !it.validate);
        let insecure = joined(insecure.flat_map(|it| &it.domains).map(quoted), " ");
        if !insecure.is_empty() {
            text.line(format!("validate-except {{ {insecure} }};"));
        }
        prefixes(plan, dns64, text);
        impossible(dns64, text);
    });
    for forward in &dns64.forwards {
        for domain in &forward.domains {
            text.block(format!("zone \"{}\" {{", super::name(domain)), "};", |text| {
                text.line("type forward;");
                text.line("forward only;");
                forwarders(&forward.upstream, text);
            });
        }
    }
    text.lines
}

fn clients(plan: &Plan, dns64: &Dns64, text: &mut Text) {
    match &dns64.allow {
        Some(nets) => nets.iter().for_each(|net| text.line(format!("{net};"))),
        None => {
            text.line("localhost;");
            text.line("localnets;");
            for prefix in plan.devices.iter().flat_map(super::known_prefixes) {
                text.line(format!("{prefix};"));
            }
        }
    }
}

fn listen(dns64: &Dns64, text: &mut Text) {
    for (word, v6) in [("listen-on-v6", true), ("listen-on", false)] {
        let own: Vec<&SocketAddr> = dns64.listen.iter().filter(|it| it.is_ipv6() == v6).collect();
        if own.is_empty() {
            text.line(format!("{word} {{ none; }};"));
        }
        for address in own {
            let ip = address.ip();
            let host = if ip.is_unspecified() { "any".to_owned() } else { ip.to_string() };
            text.line(format!("{word} port {} {{ {host}; }};", address.port()));
        }
    }
}

fn quoted(name: &fordway_config::Name) -> String {
    format!("\"{}\";", super::name(name))
}

fn forwarders(upstream: &[Server], text: &mut Text) {
    text.block("forwarders {", "};", |text| {
        for upstream in upstream {
            let (ip, port) = (upstream.address.ip(), upstream.address.port());
            match upstream.protocol {
                Protocol::Udp if port == 53 => text.line(format!("{ip};")),
                Protocol::Udp => text.line(format!("{ip} port {port};")),
                _ => text.line(format!("// Not possible with every BIND 9: {upstream}")),
            }
        }
    });
}

fn prefixes(plan: &Plan, dns64: &Dns64, text: &mut Text) {
    let apart: Vec<String> =
        dns64.policies.iter().flat_map(|it| &it.clients).map(|net| format!("!{net};")).collect();
    let rest = joined(apart.iter().map(String::as_str).chain(["any;"]), " ");
    for pool6 in &plan.pool6 {
        prefix(*pool6, &rest, &dns64.exclude, &dns64.exclude_a, text);
    }
    for policy in dns64.policies.iter().filter(|it| it.enable) {
        let Dns64Policy { clients, pool6, exclude, exclude_a, .. } = policy;
        let pool6 = pool6.as_ref().unwrap_or(&plan.pool6);
        let exclude = exclude.as_ref().unwrap_or(&dns64.exclude);
        let exclude_a = exclude_a.as_ref().unwrap_or(&dns64.exclude_a);
        let clients = joined(clients.iter().map(|net| format!("{net};")), " ");
        for pool6 in pool6 {
            prefix(*pool6, &clients, exclude, exclude_a, text);
        }
    }
}

fn prefix(
    pool6: Pool6,
    clients: &str,
    exclude: &[Ipv6Net],
    exclude_a: &[Ipv4Net],
    text: &mut Text,
) {
    text.block(format!("dns64 {} {{", pool6.net()), "};", |text| {
        text.line(format!("clients {{ {clients} }};"));
        if !exclude_a.is_empty() {
            let not = joined(exclude_a.iter().map(|net| format!("!{net};")), " ");
            text.line(format!("mapped {{ {not} any; }};"));
        }
        let exclude = joined(exclude.iter().map(|net| format!("{net};")), " ");
        // Its own default is ::ffff:0.0.0.0/96; nothing at all is "none".
        text.line(format!(
            "exclude {{ {} }};",
            if exclude.is_empty() { "none;" } else { &exclude }
        ));
    });
}

fn impossible(dns64: &Dns64, text: &mut Text) {
    let mut lacks = |what: String| text.line(format!("// Not possible with BIND: {what}."));
    let names = dns64.policies.iter().flat_map(|it| it.exempt.iter().flatten());
    let exempt = joined(dns64.exempt.iter().chain(names).map(super::name), ", ");
    if !exempt.is_empty() {
        lacks(format!("exempt = {exempt}"));
    }
    for forward in dns64.forwards.iter().filter(|it| it.synthesise == Some(false)) {
        lacks(format!(
            "no synthesis for {}",
            joined(forward.domains.iter().map(super::name), ", ")
        ));
    }
    if !dns64.ranges.is_empty() || dns64.policies.iter().any(|it| it.ranges.is_some()) {
        lacks("prefixes by IPv4 network (ranges)".to_owned());
    }
    if dns64.ca.is_some() {
        lacks("CA certificates for forwarders".to_owned());
    }
}
