//! Plain forwarding by the kernel: the baseline, and the positive control, which is the same path with a known cost.

use fordway_load::SINK_PORT;

use fordway_data::spec::Kind;

use super::{Availability, Context, Deployed, Mechanism};
use crate::backend::must;
use crate::error::Result;

/// Nothing but the topology itself.
pub(super) struct Native;

/// Drops so many of a hundred small datagrams where they arrive, before the lab's own rule counts them (priority raw):
/// whatever else they cost, they have cost it by then. Without a cost the rule is evaluated as often, and drops none.
fn injected(per_cent: u8) -> String {
    let (below, verdict) = if per_cent == 0 { (1, "accept") } else { (per_cent, "drop") };
    format!(
        "table inet fordway-lab-control {{\n\
         \x20 chain early {{\n\
         \x20   type filter hook prerouting priority raw - 10; policy accept;\n\
         \x20   udp dport {SINK_PORT} numgen inc mod 100 < {below} {verdict}\n\
         \x20 }}\n\
         }}\n"
    )
}

impl Mechanism for Native {
    fn availability(&self, _kind: Kind) -> Availability {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Availability::Ready { version: format!("Linux {}", release.trim()), program: None }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let Some(per_cent) = context.spec.cost_percent else { return Ok(Deployed::default()) };
        let config = injected(per_cent);
        let file = context.backend.deploy(&format!("{}.nft", context.name), config.as_bytes())?;
        for place in [&context.network.app, &context.network.server] {
            must(context.backend, place, &["nft", "-f", &file.display().to_string()])?;
        }
        Ok(Deployed { config, ..Deployed::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_of_nothing_has_the_same_rule_and_drops_none() {
        assert!(injected(3).contains("udp dport 9 numgen inc mod 100 < 3 drop"));
        assert!(injected(0).contains("udp dport 9 numgen inc mod 100 < 1 accept"));
    }
}
