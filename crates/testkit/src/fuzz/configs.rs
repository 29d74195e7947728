//! A few configurations that together switch everything on and off.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use fordway_xlat::Translator;

use crate::vector::ConfigSpec;

/// The configurations, as in vectors. Append-only: corpora refer to them by number.
pub const CONFIGS: [&str; 8] = [
    // What most vectors have.
    r#"pool6 = ["2001:db8:64::/96"]
       eam = [["198.51.100.0/24", "2001:db8:1::/120"]]
       icmp_source4 = "203.0.113.254"
       icmp_source6 = "2001:db8:fe::1""#,
    // Small MTUs, no hop, MSS clamp.
    r#"pool6 = ["2001:db8:64::/96"]
       eam = [["198.51.100.0/24", "2001:db8:1::/120"]]
       icmp_source4 = "203.0.113.254"
       icmp_source6 = "2001:db8:fe::1"
       mtu4 = 576
       mtu6 = 1280
       decrement_hop_limit = false
       mss_clamp = true"#,
    // RFC 7757 figure 1, with hairpinning.
    r#"pool6 = ["64:ff9b::/96"]
       allow_private = true
       eam = [["192.0.2.1", "2001:db8:aaaa::"], ["192.0.2.2", "2001:db8:bbbb::b"],
              ["192.0.2.16/28", "2001:db8:cccc::/124"], ["192.0.2.128/26", "2001:db8:dddd::/64"],
              ["192.0.2.192/29", "2001:db8:eeee:8::/62"], ["192.0.2.224/31", "64:ff9b::/127"]]
       icmp_source4 = "198.51.100.1"
       icmp_source6 = "2001:db8::1"
       mtu6 = 1500
       mtu4 = 1480"#,
    // The Well-Known Prefix, strict.
    r#"pool6 = ["64:ff9b::/96"]
       eam = [["198.51.100.0/24", "2001:db8:1::/120"]]
       icmp_source6 = "2001:db8:fe::1"
       udp_checksum_zero = "drop"
       traffic_class = 0"#,
    // Only a short prefix: everything is IPv4-translatable.
    r#"pool6 = ["2001:db8::/32", "2001:db8:122:344::/64"]
       icmp_source6 = "2001:2:0:fe::1"
       udp_checksum_zero = "pass"
       lowest_ipv6_mtu = 1500"#,
    // CLAT.
    r#"pool6 = ["2001:db8:64::/96"]
       eam = [["192.0.0.1", "2001:db8:1::c1a7"]]
       ipv4_translatable = false
       mss_clamp = true
       mtu6 = 1500
       mtu4 = 1480"#,
    // All addresses by one mapping, no errors.
    r#"eam = [["0.0.0.0/0", "2001:db8:ff00::/40"]]
       hairpin = false
       icmp_errors = "off""#,
    // Passes what is not its own.
    r#"pool6 = ["64:ff9b:1::/48"]
       eam = [["198.51.100.0/24", "2001:db8:1::/120"]]
       pass_unmatched = true
       icmp_source4 = "none""#,
];

/// Source and destination of the IPv6 errors that [`icmp_error`](super::icmp_error) makes.
pub(super) const ICMP_ENDS: (Ipv6Addr, Ipv6Addr) = (
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x99),
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc000, 0x201),
);

static TRANSLATORS: LazyLock<Vec<Translator>> = LazyLock::new(|| {
    let translator = |text: &&str| {
        let spec: ConfigSpec = toml::from_str(text).expect("a configuration of this file");
        let config = spec.config().expect("a configuration of this file");
        Translator::new(config).expect("a configuration of this file")
    };
    CONFIGS.iter().map(translator).collect()
});

/// The translator of the configuration with this number, counted round.
pub fn translator(number: u8) -> &'static Translator {
    &TRANSLATORS[usize::from(number) % CONFIGS.len()]
}
