//! From a query to its response: what `fordway_dns64` wants to know is asked of the upstream servers.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use fordway_dns64::{self as dns64, Outcome, Question, Response, Step, begin};
use futures_util::FutureExt;
use hickory_proto::op::Message;
use tokio::task::JoinHandle;

use super::shared::Active;
use fordway_resolver::{Answer, LookupError, Resolver};
use fordway_serve::Network;
use fordway_serve::clock;

type Found = Result<Arc<Answer>, LookupError>;

/// A question that was asked before it was needed (RFC 6147 section 5.1.8).
type Ahead = (Question, JoinHandle<Found>);

/// The response to a query, and until when the answers it was made of may be used.
pub(super) async fn resolve(
    active: &Active,
    client: IpAddr,
    query: &Message,
) -> (Response, Option<Instant>) {
    let (_, policy) = active.settings.policies.of(client);
    let network = Some(Network::of(client, active.settings.limits.client_len));
    let mut until: Option<Instant> = None;
    let mut ahead: Option<Ahead> = None;
    let mut step = begin(policy, query);
    loop {
        let pending = match step {
            Step::Done(response) => return (response, until),
            Step::Ask(pending) => pending,
        };
        let found = match ahead.take() {
            Some((question, found)) if question == *pending.question() => {
                // It ends without an answer only if the runtime does.
                found.await.unwrap_or(Err(LookupError::Unreachable))
            }
            _ => match pending.ahead() {
                None => active.resolver.lookup_for(network, pending.question()).await,
                Some(next) => {
                    let resolver = &active.resolver;
                    let found;
                    (found, ahead) = ask_both(resolver, network, pending.question(), next).await;
                    found
                }
            },
        };
        if let Ok(answer) = &found {
            until = Some(until.map_or(answer.expires, |until| until.min(answer.expires)));
        }
        step = pending.resume(outcome(&found));
    }
}

/// Sends two questions at once, and returns the answer to the first.
///
/// The second is not asked if the first is in the cache. Once it is asked, it goes on whether it is needed or not: its
/// answer is cached for the client's own query, which mostly asks for A records as well.
async fn ask_both(
    resolver: &Arc<Resolver>,
    client: Option<Network>,
    question: &Question,
    next: Question,
) -> (Found, Option<Ahead>) {
    let mut first = pin!(resolver.lookup_for(client, question));
    if let Some(found) = (&mut first).now_or_never() {
        return (found, None);
    }
    let (resolver, asked) = (Arc::clone(resolver), next.clone());
    let second = tokio::spawn(async move { resolver.lookup_for(client, &asked).await });
    (first.await, Some((next, second)))
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
