//! The IPv6 address of a pod's CLAT.
//!
//! The pod's own address can't be used: an answer from the translation prefix to an IPv6 application of the pod, and one to
//! an IPv4 application, would differ in nothing. The CLAT therefore has an address of its own. It follows from the pod's,
//! which the cluster keeps unique, so that nothing has to be allocated.

use std::net::Ipv6Addr;

use fordway_net::Ipv6Net;

use crate::{Code, Failure, Result};

/// What bits 64 to 79 are combined with.
const MARK: u128 = 0xc1a7 << 48;

/// The longest network in which addresses with the mark lie, as well.
const NETWORK: u8 = 64;

/// The CLAT's address of a pod with the address `pod` (and the length of its network): the pod's last bits behind
/// `prefix`; without one, the pod's address with bits 64 to 79 changed.
pub(crate) fn derive(pod: Ipv6Net, prefix: Option<Ipv6Net>) -> Result<Ipv6Addr> {
    let address = pod.addr().to_bits();
    if let Some(prefix) = prefix {
        let suffix = u128::MAX.checked_shr(u32::from(prefix.prefix_len())).unwrap_or(0);
        let clat = Ipv6Addr::from_bits(prefix.network().to_bits() | (address & suffix));
        if clat == pod.addr() {
            let what = format!("clatPrefix {prefix} contains the pod's own address {clat}");
            return Err(Failure::new(Code::Configuration, what)
                .details("name a prefix that no pod's address is in"));
        }
        return Ok(clat);
    }
    if pod.prefix_len() > NETWORK {
        let what = format!(
            "no address for a CLAT follows from {pod}: its network is smaller than a /{NETWORK}"
        );
        return Err(Failure::new(Code::Configuration, what)
            .details("set clatPrefix, a prefix that is routed to the node and whose last bits are those of pods' addresses"));
    }
    Ok(Ipv6Addr::from_bits(address ^ MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pod: &str, prefix: Option<&str>) -> Result<String> {
        let prefix = prefix.map(|prefix| prefix.parse().unwrap());
        derive(pod.parse().unwrap(), prefix).map(|address| address.to_string())
    }

    #[test]
    fn the_network_is_the_pods_and_the_address_is_not() {
        assert_eq!(text("2001:db8:0:5::1a/64", None).unwrap(), "2001:db8:0:5:c1a7::1a");
        assert_eq!(text("2001:db8:0:5:1::1a/56", None).unwrap(), "2001:db8:0:5:c1a6::1a");
    }

    #[test]
    fn a_prefix_takes_the_pods_last_bits() {
        let found = text("2001:db8:42:5::1a/128", Some("2001:db8:43::/48"));
        assert_eq!(found.unwrap(), "2001:db8:43:5::1a");
        let found = text("2001:db8:42:5::1:1a/112", Some("2001:db8:43:9::/112"));
        assert_eq!(found.unwrap(), "2001:db8:43:9::1a");
    }

    #[test]
    fn what_can_not_work_is_refused() {
        assert_eq!(text("2001:db8::1a/120", None).unwrap_err().code, Code::Configuration);
        let own = text("2001:db8::1a/64", Some("2001:db8::/64"));
        assert_eq!(own.unwrap_err().code, Code::Configuration);
    }
}
