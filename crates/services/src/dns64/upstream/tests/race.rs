//! Which server is asked, and what happens when it does not answer.

use std::time::Instant;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::NS;

use super::super::{LookupError, ServerStats};
use super::fake::{Deed, Fake, respond};
use super::*;

const WWW: &str = "www.example.net.";

fn servers(resolver: &Resolver) -> Vec<ServerStats> {
    resolver.stats().servers
}

#[tokio::test]
async fn the_next_server_is_asked_when_the_first_is_silent() {
    let (silent, good) = (Fake::silent().await, Fake::answering(answer_with(2)).await);
    let resolver = resolver(&[&silent, &good]);
    // The try has much longer than the test, so it is not its end that leads to the other.
    let answer = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(addresses(&answer), [2]);
    assert_eq!((silent.count(), good.count()), (1, 1));
}

#[tokio::test]
async fn a_question_that_gets_lost_is_asked_again() {
    let fake = Fake::start(|seen| match seen.before {
        0 => Vec::new(),
        _ => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
    });
    let fake = fake.await;
    let answer = resolver(&[&fake]).lookup(&question(WWW)).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    let ports = fake.seen(|seen| seen.from.port());
    assert_ne!(ports[0], ports[1], "with a port and an identifier of its own");
}

#[tokio::test]
async fn an_answer_that_is_late_is_still_taken() {
    // The first server answers when the second is asked, and the second never.
    let first = Fake::start(|seen| match seen.before {
        0 => Vec::new(),
        _ => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
    });
    let (first, second) = (first.await, Fake::silent().await);
    let resolver = resolver(&[&first, &second]);
    let answer = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    assert_eq!((first.count(), second.count()), (2, 1), "first, second, first");
}

#[tokio::test]
async fn a_server_that_fails_or_refuses_leads_to_the_next() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
        let bad = Fake::answering(fail_with(code)).await;
        let good = Fake::answering(answer_with(2)).await;
        let resolver = resolver(&[&bad, &good]);
        let answer = resolver.lookup(&question(WWW)).await.unwrap();
        assert_eq!(addresses(&answer), [2], "{code}");
        assert_eq!(servers(&resolver)[0].errors, 1);
        assert_eq!(servers(&resolver)[1].answers, 1);
    }
}

#[tokio::test]
async fn a_server_that_points_to_others_leads_to_the_next() {
    let lame = Fake::answering(|message| {
        message.metadata.recursion_available = false;
        let data = RData::NS(NS(name("ns.example.net.")));
        message.authorities.push(Record::from_rdata(name("net."), 300, data));
    });
    let (lame, good) = (lame.await, Fake::answering(answer_with(2)).await);
    let resolver = resolver(&[&lame, &good]);
    assert_eq!(addresses(&resolver.lookup(&question(WWW)).await.unwrap()), [2]);
}

#[tokio::test]
async fn what_all_servers_say_is_the_answer() {
    let refusing = Fake::answering(fail_with(ResponseCode::Refused)).await;
    let failing = Fake::answering(fail_with(ResponseCode::ServFail)).await;
    let resolver = resolver(&[&failing, &refusing]);
    let answer = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(answer.message.response_code, ResponseCode::ServFail, "says more than a refusal");
    assert_eq!((failing.count(), refusing.count()), (1, 1), "nobody is asked twice");
}

#[tokio::test]
async fn no_such_name_is_an_answer() {
    let first = Fake::answering(fail_with(ResponseCode::NXDomain)).await;
    let second = Fake::answering(answer_with(2)).await;
    let answer = resolver(&[&first, &second]).lookup(&question(WWW)).await.unwrap();
    assert_eq!(answer.message.response_code, ResponseCode::NXDomain);
    assert_eq!(second.count(), 0);
}

#[tokio::test]
async fn silence_everywhere_ends() {
    let fake = Fake::silent().await;
    let short = Duration::from_millis(30);
    let settings = Settings { timeout: short, deadline: 4 * short, ..settings(&[&fake]) };
    let resolver = Resolver::new(settings).unwrap();
    let error = resolver.lookup(&question(WWW)).await.unwrap_err();
    assert_eq!(error, LookupError::Timeout);
    assert_eq!(fake.count(), 3, "attempts");
    assert!(servers(&resolver)[0].timeouts >= 1);
}

#[tokio::test]
async fn a_dead_server_is_left_alone_until_it_answers_again() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let alive = Arc::new(AtomicBool::new(false));
    let first = {
        let alive = Arc::clone(&alive);
        Fake::start(move |seen| match alive.load(Ordering::Relaxed) {
            true => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
            false => Vec::new(),
        })
    };
    let (first, second) = (first.await, Fake::answering(answer_with(2)).await);
    let settings = Settings { timeout: Duration::from_millis(500), ..settings(&[&first, &second]) };
    let resolver = Resolver::new(settings).unwrap();
    let mut asked = 0;
    let mut next = || {
        asked += 1;
        question(&format!("n{asked}.example.net."))
    };
    while servers(&resolver)[0].alive {
        assert_eq!(addresses(&resolver.lookup(&next()).await.unwrap()), [2]);
    }
    let queries = first.count();
    // Three in a row, or a few more where a machine is so slow that the second server seems to be.
    assert!((3..10).contains(&queries), "{queries}");
    for _ in 0..20 {
        assert_eq!(addresses(&resolver.lookup(&next()).await.unwrap()), [2]);
    }
    assert!(first.count() <= queries + 5, "but for a probe each second");

    alive.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + LONG;
    while !servers(&resolver)[0].alive {
        assert!(Instant::now() < deadline, "nobody has noticed that it answers again");
        resolver.lookup(&next()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn all_dead_servers_are_asked_all_the_same() {
    let fakes = [Fake::silent().await, Fake::silent().await];
    let settings = settings(&[&fakes[0], &fakes[1]]);
    for fake in fakes {
        fake.stop().await;
    }
    let resolver = Resolver::new(settings).unwrap();
    for number in 0..5 {
        let question = question(&format!("n{number}.example.net."));
        assert_eq!(resolver.lookup(&question).await.unwrap_err(), LookupError::Unreachable);
    }
    let servers = servers(&resolver);
    assert!(servers.iter().all(|server| !server.alive && server.unreachable >= 5), "{servers:?}");
}
