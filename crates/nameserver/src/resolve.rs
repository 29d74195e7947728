//! From a query to its response: what `fordway_dns64` wants to know is asked of the upstream servers.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_dns64::{self as dns64, Outcome, Question, Response, Step, begin};
use futures_util::FutureExt;
use hickory_proto::op::Message;
use tokio::task::JoinHandle;

use super::shared::Active;
use fordway_resolver::{Answer, Asker, LookupError, Resolver};
use fordway_serve::Network;
use fordway_serve::clock;

type Found = Result<Arc<Answer>, LookupError>;

/// A question before it is needed (RFC 6147 section 5.1.8).
type Ahead = (Question, Later);

/// Its answer.
enum Later {
    Known(Found),
    Asked(JoinHandle<Found>),
}

impl Later {
    async fn found(self) -> Found {
        match self {
            Later::Known(found) => found,
            // It ends without an answer only if the runtime does.
            Later::Asked(found) => found.await.unwrap_or(Err(LookupError::Unreachable)),
        }
    }
}

/// The response to a query, and until when the answers it was made of may be used.
pub(super) type Made = (Response, Option<Instant>);

/// The response to a query, if all that it takes is here. So the client's own question for A records is answered of what
/// was fetched for a synthesis, and a synthesis of what came for a client.
pub(super) fn at_once(active: &Active, client: IpAddr, query: &Message) -> Option<Made> {
    let (_, policy) = active.settings.policies.of(client);
    let mut until = None;
    let mut step = begin(policy, query);
    loop {
        let pending = match step {
            Step::Done(response) => return Some((response, until)),
            Step::Ask(pending) => pending,
        };
        let found = active.resolver.known(pending.question(), Asker::default())?;
        until = sooner(until, &found);
        step = pending.resume(outcome(&found));
    }
}

/// The response to a query, of answers that hold for `ahead` still.
pub(super) async fn resolve(
    active: &Active,
    client: IpAddr,
    query: &Message,
    ahead: Duration,
) -> Made {
    let (_, policy) = active.settings.policies.of(client);
    let network = Network::of(client, active.settings.limits.client_len);
    let asker = Asker { client: Some(network), ahead };
    let mut until: Option<Instant> = None;
    let mut early: Option<Ahead> = None;
    let mut step = begin(policy, query);
    loop {
        let pending = match step {
            Step::Done(response) => return (response, until),
            Step::Ask(pending) => pending,
        };
        let found = match early.take() {
            Some((question, later)) if question == *pending.question() => later.found().await,
            _ => match pending.ahead() {
                None => active.resolver.lookup_for(asker, pending.question()).await,
                Some(next) => {
                    let resolver = &active.resolver;
                    let found;
                    (found, early) = ask_both(resolver, asker, pending.question(), next).await;
                    found
                }
            },
        };
        until = sooner(until, &found);
        step = pending.resume(outcome(&found));
    }
}

/// The sooner of a moment and that until which an answer may be used.
fn sooner(until: Option<Instant>, found: &Found) -> Option<Instant> {
    let expires = found.as_ref().ok().map(|answer| answer.expires);
    until.into_iter().chain(expires).min()
}

/// Sends two questions at once, and returns the answer to the first.
///
/// The second is not asked if its answer is in the cache, nor if that to the first has come there meanwhile. Once it is
/// asked, it goes on whether it is needed or not: its answer is cached for the client's own query, which mostly asks for A
/// records as well.
async fn ask_both(
    resolver: &Arc<Resolver>,
    asker: Asker,
    question: &Question,
    next: Question,
) -> (Found, Option<Ahead>) {
    let mut first = pin!(resolver.ask(asker, question));
    if let Some(found) = (&mut first).now_or_never() {
        return (found, None);
    }
    let later = match resolver.known(&next, asker) {
        Some(found) => Later::Known(found),
        None => {
            let (resolver, asked) = (Arc::clone(resolver), next.clone());
            Later::Asked(tokio::spawn(async move { resolver.ask(asker, &asked).await }))
        }
    };
    (first.await, Some((next, later)))
}

/// The outcome of a question, as `fordway_dns64` takes it.
fn outcome(found: &Found) -> Outcome<'_> {
    match found {
        Ok(answer) => Outcome::Answer(dns64::Answer {
            message: &answer.message,
            age: answer.age(clock::now()),
            security: answer.security,
        }),
        Err(error) => Outcome::Failed((*error).into()),
    }
}
