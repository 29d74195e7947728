//! Chains of other programs.

use netlink_packet_core::NLM_F_DUMP;

use super::message::{Message, attributes_in, read_text};
use super::{
    MAKER, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_TABLE, NFTA_HOOK_HOOKNUM, Netfilter,
};
use crate::Result;

impl Netfilter {
    /// Base chains at one of the hooks (`NF_INET_*`): those of the current family and of `inet`, without this program's.
    pub(crate) fn chains_at(&mut self, hooks: &[i32]) -> Result<Vec<String>> {
        let question = Message::new(libc::NFPROTO_UNSPEC, libc::NFT_MSG_GETCHAIN, &[]);
        let answers = self.ask(question, NLM_F_DUMP, "list nftables chains")?;
        Ok(answers.iter().filter_map(|answer| self.chain_at(answer, hooks)).collect())
    }

    fn chain_at(&self, chain: &Message, hooks: &[i32]) -> Option<String> {
        let family = match chain.family() {
            libc::NFPROTO_INET => "inet",
            family if family == self.family => self.family_name(),
            _ => return None,
        };
        let is_at = |(kind, value): (u16, Vec<u8>)| {
            let number = value.try_into().map(i32::from_be_bytes);
            kind == NFTA_HOOK_HOOKNUM && number.is_ok_and(|number| hooks.contains(&number))
        };
        let table = read_text(&chain.attribute(NFTA_CHAIN_TABLE)?)?;
        let name = read_text(&chain.attribute(NFTA_CHAIN_NAME)?)?;
        let hook = chain.attribute(NFTA_CHAIN_HOOK)?;
        (attributes_in(&hook).any(is_at) && !table.starts_with(MAKER))
            .then(|| format!("chain {name} of nftables table {family} {table}"))
    }
}
