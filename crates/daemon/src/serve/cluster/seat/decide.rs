//! Whether what an operator wants can be done, and by which command of the member.

use fordway_cluster::{Command, GatewayStatus, Member, Phase, Role, Shard, Status};
use fordway_clusterd::Overview;
use fordway_control::ClusterChange;

use super::Gateways;
use crate::failure::Failure;

/// The command, and what to say of it.
pub(super) fn command(
    change: &ClusterChange,
    overview: &Overview,
    gateways: &Gateways,
) -> Result<(Command, String), Failure> {
    let name = gateways.name(gateways.me);
    let (command, text) = match change {
        ClusterChange::Move { shard, gateway } => {
            return wish(*shard, gateway.as_deref(), overview, gateways);
        }
        ClusterChange::Declare { gateway } => return declare(gateway, overview, gateways),
        ClusterChange::Drain => {
            (Command::Drain, format!("{name} drains: its shards move to other gateways"))
        }
        ClusterChange::Join => {
            (Command::Join, format!("{name} joins: shards move to it as placement says"))
        }
        ClusterChange::Leave => {
            (Command::Leave, format!("{name} leaves: its shards move away, then its lease ends"))
        }
    };
    let when = if overview.is_store_open { "" } else { ", as soon as the store is there again" };
    Ok((command, format!("{text}{when}")))
}

/// What needs the store now, as the member does not try again.
fn reaches_store(overview: &Overview) -> Result<(), Failure> {
    if overview.phase != Phase::Member {
        return Err(Failure::failed("this gateway holds no lease")
            .hint("fordway cluster status says what it waits for"));
    }
    if !overview.is_store_open {
        let why = overview.store_error.clone().unwrap_or_else(|| "it is not open".to_owned());
        return Err(Failure::failed(format!("the store can't be reached: {why}"))
            .hint("ownership does not change meanwhile, and translation goes on"));
    }
    Ok(())
}

fn wish(
    number: u16,
    gateway: Option<&str>,
    overview: &Overview,
    gateways: &Gateways,
) -> Result<(Command, String), Failure> {
    let to = gateway.map(|name| gateways.named(name)).transpose()?;
    let Some(shard) = overview.shards.iter().find(|it| it.shard == Shard(number)) else {
        let last = overview.shards.len().saturating_sub(1);
        return Err(Failure::failed(format!("there is no shard {number}, only 0 to {last}")));
    };
    match (shard.role, shard.owner) {
        (Role::Owner, _) => {}
        (Role::Moving, _) => {
            return Err(Failure::failed(format!("shard {number} is moving already"))
                .hint("fordway cluster status --shards shows its next owner, which can move it"));
        }
        (_, Some((owner, _))) if owner != gateways.me => {
            let owner = gateways.name(owner);
            let text =
                format!("shard {number} is owned by {owner}, and only its owner can move it");
            return Err(Failure::failed(text).hint(format!("run this command on {owner}")));
        }
        _ => return Err(Failure::failed(format!("nobody translates shard {number} now"))),
    }
    reaches_store(overview)?;
    let is_active = |to| find(overview, to).is_some_and(|it| it.status == Status::Active);
    let text = match to {
        None => format!("shard {number} goes where placement wants it"),
        Some(to) if to == gateways.me => format!("shard {number} stays here"),
        Some(to) if is_active(to) => format!("shard {number} moves to {}", gateways.name(to)),
        Some(to) => {
            let name = gateways.name(to);
            format!("shard {number} moves to {name} when that gateway is active, which it is not")
        }
    };
    Ok((Command::Wish(Shard(number), to), text))
}

fn declare(
    name: &str,
    overview: &Overview,
    gateways: &Gateways,
) -> Result<(Command, String), Failure> {
    let member = gateways.named(name)?;
    if member == gateways.me {
        return Err(Failure::failed(format!("{name} is this gateway, which runs"))
            .hint("fordway cluster leave gives its shards away and ends its lease"));
    }
    match find(overview, member).map(|it| it.status) {
        None => Err(Failure::failed(format!("{name} has never joined: it has no lease to end"))),
        Some(Status::Ended) => Err(Failure::failed(format!("the lease of {name} has ended"))),
        Some(Status::Active | Status::Draining) => {
            reaches_store(overview)?;
            let text = format!("{name} counts as off: its lease ends unless it is renewed");
            Ok((Command::Declare(member), text))
        }
    }
}

fn find(overview: &Overview, member: Member) -> Option<&GatewayStatus> {
    overview.gateways.iter().find(|it| it.member == member)
}
