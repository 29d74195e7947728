//! Chains of others.

use netlink_packet_core::{NLM_F_DUMP, ParseableParametrized};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Hook, HookNumber, InetHookNumber, NfTablesMessage,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};

use super::{Answer, MAKER, Netfilter, octets};
use crate::Result;

impl Netfilter {
    /// Chains that see packets which this host forwards, or the addresses of which they translate, of the family that is
    /// asked about and of `inet`: those of this program left out.
    pub(crate) fn chains_of_forwarded(&mut self) -> Result<Vec<String>> {
        let operation = "list nftables chains";
        let question = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
        let question = octets(NetfilterProtoFamily::Unspec, question, NLM_F_DUMP, 1);
        let answers = self.ask(&question, 1, operation)?;
        Ok(answers.iter().filter_map(|answer| self.forwarded(answer)).collect())
    }

    fn forwarded(&self, answer: &Answer) -> Option<String> {
        let read =
            NetfilterMessage::parse_with_param(answer.octets.as_slice(), answer.kind).ok()?;
        let family = match read.header.family {
            NetfilterProtoFamily::Inet => "inet",
            family if family == self.family => self.family_name(),
            _ => return None,
        };
        let NetfilterMessageInner::NfTables(NfTablesMessage::NewChain(chain)) = read.inner else {
            return None;
        };
        let (mut table, mut name, mut is_forwarded) = (None, None, false);
        for attribute in chain.attributes {
            match attribute {
                ChainAttribute::Table(it) => table = Some(it),
                ChainAttribute::Name(it) => name = Some(it),
                ChainAttribute::Hook(hook) => {
                    is_forwarded = hook.iter().any(|it| {
                        matches!(
                            it,
                            Hook::Number(HookNumber::Inet(
                                InetHookNumber::Forward | InetHookNumber::PostRouting
                            ))
                        )
                    });
                }
                _ => {}
            }
        }
        let (table, name) = (table?, name?);
        let ours = table.starts_with(MAKER);
        (is_forwarded && !ours).then(|| format!("chain {name} of nftables table {family} {table}"))
    }
}
