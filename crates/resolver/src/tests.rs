//! Lookups against servers that behave well and badly, on loopback. Time stands still, or passes as a test says.

mod cache;
mod clean;
mod cookies;
mod exchange;
mod fake;
mod garble;
mod https;
mod race;
mod routes;
mod signed;
mod speed;
mod stale;
mod stream;
mod tls;
mod validate;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fordway_dns64::Question;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::task::JoinHandle;

use super::{Answer, Asker, LookupError, Resolver, Selection, Server, ServerStats, Settings, key};
use fake::Fake;
use fordway_testhost::still::{Still, until};

/// The resolution of timers.
const MS: Duration = Duration::from_millis(1);

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn question(text: &str) -> Question {
    key::question(name(text), RecordType::A)
}

fn address(owner: &str, last: u8) -> Record {
    Record::from_rdata(name(owner), 300, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
}

fn alias(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(target))))
}

fn soa(zone: &str) -> Record {
    let data = SOA::new(name("ns.example.net."), name("who.example.net."), 1, 2, 3, 4, 60);
    Record::from_rdata(name(zone), 300, RData::SOA(data))
}

fn settings(servers: &[&Fake]) -> Settings {
    Settings::new(servers.iter().map(|fake| Server::udp(fake.address)).collect())
}

fn resolver(servers: &[&Fake]) -> Arc<Resolver> {
    Resolver::new(settings(servers)).unwrap()
}

/// A lookup that goes on beside the test.
fn look_up(
    resolver: &Arc<Resolver>,
    question: Question,
) -> JoinHandle<Result<Arc<Answer>, LookupError>> {
    let resolver = Arc::clone(resolver);
    tokio::spawn(async move { resolver.lookup(&question).await })
}

/// What the resolver counts of its servers.
fn servers(resolver: &Resolver) -> Vec<ServerStats> {
    resolver.stats().servers
}

/// The last octets of the addresses in an answer.
fn addresses(answer: &Answer) -> Vec<u8> {
    let data = answer.message.answers.iter().map(|record| &record.data);
    data.filter_map(|data| match data {
        RData::A(A(address)) => Some(address.octets()[3]),
        _ => None,
    })
    .collect()
}

/// Answers every question with one address.
fn answer_with(last: u8) -> impl Fn(&mut Message) + Send + Sync + Clone + 'static {
    move |message| {
        let owner = message.queries[0].name().to_ascii();
        message.answers.push(address(&owner, last));
    }
}

/// Answers every question with an error.
fn fail_with(code: ResponseCode) -> impl Fn(&mut Message) + Send + Sync + Clone + 'static {
    move |message| message.metadata.response_code = code
}
