//! From a query to its response: what `fordway_dns64` wants to know is asked of the upstream servers.

use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use fordway_dns64::{self as dns64, Failure, Outcome, Question, Response, Step, begin};
use futures_util::future::{Either, select};
use hickory_proto::op::Message;

use super::network::Network;
use super::shared::Active;
use super::upstream::{Answer, LookupError, Resolver};
use crate::clock;

type Found = Result<Arc<Answer>, LookupError>;

/// What was asked before it was needed (RFC 6147 section 5.1.8).
enum Ahead<'a> {
    UnderWay(Pin<Box<dyn Future<Output = Found> + 'a>>),
    Done(Found),
}

/// The response to a query, and until when the answers it was made of may be used.
pub(super) async fn resolve(
    active: &Active,
    client: IpAddr,
    query: &Message,
) -> (Response, Option<Instant>) {
    let (_, policy) = active.settings.policies.of(client);
    let network = Some(Network::of(client, active.settings.limits.client_len));
    let mut until: Option<Instant> = None;
    let mut ahead: Option<(Question, Ahead<'_>)> = None;
    let mut step = begin(policy, query);
    loop {
        let pending = match step {
            Step::Done(response) => return (response, until),
            Step::Ask(pending) => pending,
        };
        let found = match ahead.take() {
            Some((question, Ahead::Done(found))) if question == *pending.question() => found,
            Some((question, Ahead::UnderWay(found))) if question == *pending.question() => {
                found.await
            }
            _ => match pending.ahead() {
                None => active.resolver.lookup_for(network, pending.question()).await,
                Some(next) => {
                    let (found, rest) =
                        ask_both(&active.resolver, network, pending.question(), &next).await;
                    ahead = Some((next, rest));
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

/// Asks two questions at once, and comes back with the answer to the first.
async fn ask_both<'a>(
    resolver: &'a Resolver,
    client: Option<Network>,
    question: &Question,
    next: &Question,
) -> (Found, Ahead<'a>) {
    let first = pin!(resolver.lookup_for(client, question));
    let next = next.clone();
    let second: Pin<Box<dyn Future<Output = Found> + 'a>> =
        Box::pin(async move { resolver.lookup_for(client, &next).await });
    match select(first, second).await {
        Either::Left((found, second)) => (found, Ahead::UnderWay(second)),
        Either::Right((second, first)) => (first.await, Ahead::Done(second)),
    }
}

/// What came of a question, in the words of `fordway_dns64`.
fn outcome(found: &Found) -> Outcome<'_> {
    match found {
        Ok(answer) => Outcome::Answer(dns64::Answer {
            message: &answer.message,
            age: answer.age(clock::now()),
            security: answer.security,
        }),
        Err(error) => Outcome::Failed(match error {
            LookupError::Timeout => Failure::Timeout,
            LookupError::Unreachable => Failure::Unreachable,
            LookupError::Unusable => Failure::Malformed,
            LookupError::Busy => Failure::Overload,
        }),
    }
}
