//! Cookies of upstream servers (RFC 7873).

use hickory_proto::op::Edns;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};

use super::fake::{Deed, Seen, respond};
use super::*;

const WWW: &str = "www.example.net.";
const SERVER: &[u8] = b"of the server";

fn cookie(message: &Message) -> Option<Vec<u8>> {
    match message.edns.as_ref()?.options().get(EdnsCode::Cookie) {
        Some(EdnsOption::Unknown(_, cookie)) => Some(cookie.clone()),
        _ => None,
    }
}

fn cookie_seen(seen: &Seen) -> Option<Vec<u8>> {
    cookie(&Message::from_vec(&seen.octets).unwrap())
}

/// The response to a query, with this cookie or without.
fn with(seen: &Seen, cookie: Option<&[u8]>, edit: impl Fn(&mut Message)) -> Deed {
    Deed::Send(respond(&seen.octets, |message| {
        edit(message);
        let mut edns = Edns::new();
        if let Some(cookie) = cookie {
            edns.options_mut().insert(EdnsOption::Unknown(10, cookie.to_vec()));
        }
        message.set_edns(edns);
    }))
}

fn own(seen: &Seen) -> Vec<u8> {
    cookie_seen(seen).map_or_else(Vec::new, |cookie| cookie[..8].to_vec())
}

fn whole(seen: &Seen) -> Vec<u8> {
    [own(seen), SERVER.to_vec()].concat()
}

async fn ask(resolver: &Arc<Resolver>, number: usize) -> Vec<u8> {
    let question = question(&format!("n{number}.example.net."));
    addresses(&resolver.lookup(&question).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_server_is_shown_the_cookie_that_it_has_given() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| vec![with(seen, Some(&whole(seen)), answer_with(1))]).await;
    let resolver = resolver(&[&fake]);
    for number in 0..3 {
        assert_eq!(ask(&resolver, number).await, [1]);
    }
    let seen = fake.seen(|seen| cookie_seen(seen).unwrap());
    assert_eq!(seen[0].len(), 8, "there is none of the server yet");
    assert_eq!(seen[1], [&seen[0][..], SERVER].concat());
    assert_eq!(seen[2], seen[1]);
    // One that is not to be shown any sees none.
    let other = Fake::start(|seen| vec![with(seen, None, answer_with(1))]).await;
    let resolver = Resolver::new(Settings { cookies: false, ..settings(&[&other]) }).unwrap();
    ask(&resolver, 0).await;
    assert_eq!(other.seen(cookie_seen), [None]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_a_foreign_cookie_is_passed_over() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        let foreign = [vec![0; 8], SERVER.to_vec()].concat();
        let short = vec![1, 2, 3];
        vec![
            with(seen, Some(&foreign), answer_with(66)),
            with(seen, Some(&short), answer_with(67)),
            with(seen, Some(&whole(seen)), answer_with(1)),
        ]
    })
    .await;
    let resolver = resolver(&[&fake]);
    assert_eq!(ask(&resolver, 0).await, [1]);
    assert_eq!(servers(&resolver)[0].mismatches, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_the_cookie_is_asked_for_by_tcp() {
    let _still = Still::begin();
    // The first answer has a cookie. By UDP a forger answers the second question first.
    let fake = Fake::start(|seen| match (seen.before, seen.tcp) {
        (1, false) => vec![with(seen, None, answer_with(66))],
        (_, true) => vec![with(seen, None, answer_with(2))],
        _ => vec![with(seen, Some(&whole(seen)), answer_with(1))],
    })
    .await;
    let resolver = resolver(&[&fake]);
    assert_eq!(ask(&resolver, 0).await, [1]);
    assert_eq!(ask(&resolver, 1).await, [2]);
    assert_eq!(servers(&resolver)[0].spoof_suspicions, 1);
    // It may have lost its cookies, and begins anew.
    assert_eq!(ask(&resolver, 2).await, [1]);
    let lens = fake.seen(|seen| (seen.tcp, cookie_seen(seen).map_or(0, |cookie| cookie.len())));
    let whole = 8 + SERVER.len();
    assert_eq!(lens, [(false, 8), (false, whole), (true, whole), (false, 8)]);
}

#[tokio::test(start_paused = true)]
async fn a_forger_does_not_make_the_resolver_forget_a_cookie() {
    let _still = Still::begin();
    // By UDP a forger answers the second question first; the server still knows cookies.
    let fake = Fake::start(|seen| match (seen.before, seen.tcp) {
        (1, false) => vec![with(seen, None, answer_with(66))],
        _ => vec![with(seen, Some(&whole(seen)), answer_with(1))],
    })
    .await;
    let resolver = resolver(&[&fake]);
    for number in 0..3 {
        assert_eq!(ask(&resolver, number).await, [1]);
    }
    let lens = fake.seen(|seen| (seen.tcp, cookie_seen(seen).map_or(0, |cookie| cookie.len())));
    let whole = 8 + SERVER.len();
    assert_eq!(lens, [(false, 8), (false, whole), (true, whole), (false, whole)]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_its_cookie_is_shown_it() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        if cookie_seen(seen).is_some_and(|cookie| cookie.len() > 8) {
            return vec![with(seen, Some(&whole(seen)), answer_with(1))];
        }
        let refuse = |message: &mut Message| {
            message.metadata.response_code = ResponseCode::BADCOOKIE;
        };
        vec![with(seen, Some(&whole(seen)), refuse)]
    })
    .await;
    let resolver = resolver(&[&fake]);
    assert_eq!(ask(&resolver, 0).await, [1]);
    assert_eq!(ask(&resolver, 1).await, [1]);
    assert_eq!(fake.seen(|seen| seen.tcp), [false; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_never_content_is_asked_by_tcp() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        if seen.tcp {
            return vec![with(seen, None, answer_with(1))];
        }
        let refuse = |message: &mut Message| {
            message.metadata.response_code = ResponseCode::BADCOOKIE;
        };
        vec![with(seen, Some(&whole(seen)), refuse)]
    })
    .await;
    let resolver = resolver(&[&fake]);
    assert_eq!(ask(&resolver, 0).await, [1]);
    assert_eq!(fake.seen(|seen| seen.tcp), [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_the_own_cookie_is_nothing() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| vec![with(seen, Some(&own(seen)), answer_with(1))]).await;
    let resolver = resolver(&[&fake]);
    resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(ask(&resolver, 1).await, [1]);
    assert_eq!(fake.seen(|seen| (seen.tcp, own(seen).len())), [(false, 8); 2]);
}
