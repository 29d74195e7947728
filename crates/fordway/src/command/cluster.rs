//! `fordway cluster`.

mod goal;

use std::time::{Duration, Instant};

use fordway_control::{Client, ClusterChange, Error, Request};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use fordway_daemon::runtime::event_loop;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::control::tell;
use crate::cli::{ClusterCommand, Global};
use crate::report::Render;
use goal::Goal;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(global: &Global, command: ClusterCommand) -> Result<(), Failure> {
    let client = Client::new(global.socket());
    let (change, goal, timeout) = match command {
        ClusterCommand::Status { shards, json } => {
            return status(&Client::new(global.socket_to_read()), shards, json);
        }
        ClusterCommand::Move { shard, gateway, back: _, wait, timeout } => {
            let goal = wait.then(|| Goal::Moved { shard, to: gateway.clone() });
            (ClusterChange::Move { shard, gateway }, goal, timeout.timeout)
        }
        ClusterCommand::Drain(wait) => {
            let goal = (!wait.no_wait).then_some(Goal::Drained);
            (ClusterChange::Drain, goal, wait.timeout.timeout)
        }
        ClusterCommand::Join => (ClusterChange::Join, None, Duration::ZERO),
        ClusterCommand::Leave(wait) => {
            let goal = (!wait.no_wait).then_some(Goal::Left);
            (ClusterChange::Leave, goal, wait.timeout.timeout)
        }
        ClusterCommand::Declare { gateway, yes } => {
            if !yes {
                return Err(unsure(&gateway));
            }
            (ClusterChange::Declare { gateway }, None, Duration::ZERO)
        }
    };
    tell(&client, &Request::ClusterChange { change })?;
    match goal {
        Some(goal) => wait(&client, &goal, timeout),
        None => Ok(()),
    }
}

fn status(client: &Client, shards: bool, json: bool) -> Result<(), Failure> {
    let status = client.cluster()?;
    if json {
        output::print_json(&status)?;
    } else {
        output::print(&status.render())?;
        if shards {
            output::print(&status.shards.render())?;
        }
    }
    if status.stats.state.translates() { Ok(()) } else { Err(Failure::Logged) }
}

/// That a declaration has to be meant.
fn unsure(gateway: &str) -> Failure {
    Failure::usage(
        format!(
            "declare {gateway} off only if it is off: if it still translates, two gateways may use one port at a time"
        ),
        format!("make sure of it, then: fordway cluster declare {gateway} --yes"),
    )
}

/// Waits until a goal is reached, with what is missing as it changes.
fn wait(client: &Client, goal: &Goal, timeout: Duration) -> Result<(), Failure> {
    event_loop()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())
            .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))?;
        let until = Instant::now() + timeout;
        let mut said = String::new();
        loop {
            let missing = match client.cluster() {
                Ok(status) => goal.missing(&status),
                // A daemon without its part of the cluster may end.
                Err(Error::Absent(_)) if *goal == Goal::Left => None,
                Err(error) => return Err(error.into()),
            };
            let Some(missing) = missing else {
                return output::print(&format!("{}\n", goal.reached()));
            };
            if missing != said {
                output::complain(&missing);
                said = missing;
            }
            if Instant::now() >= until {
                return Err(Failure::failed(format!("not done in time: {said}"))
                    .hint(format!("it goes on in the daemon; {}", goal.advice())));
            }
            pause(&mut interrupt, goal).await?;
        }
    })
}

/// A moment, unless somebody interrupts it.
async fn pause(interrupt: &mut Signal, goal: &Goal) -> Result<(), Failure> {
    tokio::select! {
        _ = interrupt.recv() => Err(Failure::failed("interrupted; it goes on in the daemon")
            .hint(goal.advice())),
        () = tokio::time::sleep(LOOK) => Ok(()),
    }
}
