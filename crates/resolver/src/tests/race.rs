//! Which server is asked, and what happens when it does not answer.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::NS;

use super::super::health::{FIRST_PROBE, UNKNOWN_WAIT};
use super::super::race::LAST_APART;
use super::fake::{Deed, Fake, Nobody, respond};
use super::*;

const WWW: &str = "www.example.net.";

#[tokio::test(start_paused = true)]
async fn the_next_server_is_asked_when_the_first_is_silent() {
    let still = Still::begin();
    let (silent, good) = (Fake::silent().await, Fake::answering(answer_with(2)).await);
    let resolver = resolver(&[&silent, &good]);
    let answer = look_up(&resolver, question(WWW));
    until("the first is asked", || silent.count() == 1).await;
    still.pass(UNKNOWN_WAIT - MS).await;
    assert_eq!(servers(&resolver)[1].queries, 0);
    // The try itself has more time: it is not its end that leads to the other.
    still.pass(MS).await;
    assert_eq!(addresses(&answer.await.unwrap().unwrap()), [2]);
    assert_eq!((silent.count(), good.count()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_gets_lost_is_asked_again() {
    let still = Still::begin();
    let fake = Fake::start(|seen| match seen.before {
        0 => Vec::new(),
        _ => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
    });
    let fake = fake.await;
    let answer = look_up(&resolver(&[&fake]), question(WWW));
    until("it is asked", || fake.count() == 1).await;
    still.pass(UNKNOWN_WAIT).await;
    assert_eq!(addresses(&answer.await.unwrap().unwrap()), [1]);
    let ports = fake.seen(|seen| seen.from.port());
    assert_eq!(ports.len(), 2);
    assert_ne!(ports[0], ports[1], "with a port and an identifier of its own");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_is_still_taken() {
    let still = Still::begin();
    // The first server answers when the second has been asked, and the second never.
    let first = Fake::start(|seen| match seen.before {
        0 => Vec::new(),
        _ => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
    });
    let (first, second) = (first.await, Fake::silent().await);
    let resolver = resolver(&[&first, &second]);
    let answer = look_up(&resolver, question(WWW));
    until("the first is asked", || first.count() == 1).await;
    still.pass(UNKNOWN_WAIT).await;
    until("the second is asked", || second.count() == 1).await;
    still.pass(LAST_APART - MS).await;
    assert_eq!(servers(&resolver)[0].queries, 1);
    still.pass(MS).await;
    assert_eq!(addresses(&answer.await.unwrap().unwrap()), [1]);
    assert_eq!((first.count(), second.count()), (2, 1), "first, second, first");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_or_refuses_leads_to_the_next() {
    let _still = Still::begin();
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

#[tokio::test(start_paused = true)]
async fn a_server_that_points_to_others_leads_to_the_next() {
    let _still = Still::begin();
    let lame = Fake::answering(|message| {
        message.metadata.recursion_available = false;
        let data = RData::NS(NS(name("ns.example.net.")));
        message.authorities.push(Record::from_rdata(name("net."), 300, data));
    });
    let (lame, good) = (lame.await, Fake::answering(answer_with(2)).await);
    let resolver = resolver(&[&lame, &good]);
    assert_eq!(addresses(&resolver.lookup(&question(WWW)).await.unwrap()), [2]);
}

#[tokio::test(start_paused = true)]
async fn what_all_servers_say_is_the_answer() {
    let _still = Still::begin();
    let refusing = Fake::answering(fail_with(ResponseCode::Refused)).await;
    let failing = Fake::answering(fail_with(ResponseCode::ServFail)).await;
    let resolver = resolver(&[&failing, &refusing]);
    let answer = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(answer.message.response_code, ResponseCode::ServFail, "says more than a refusal");
    assert_eq!((failing.count(), refusing.count()), (1, 1), "nobody is asked twice");
}

#[tokio::test(start_paused = true)]
async fn no_such_name_is_an_answer() {
    let _still = Still::begin();
    let first = Fake::answering(fail_with(ResponseCode::NXDomain)).await;
    let second = Fake::answering(answer_with(2)).await;
    let answer = resolver(&[&first, &second]).lookup(&question(WWW)).await.unwrap();
    assert_eq!(answer.message.response_code, ResponseCode::NXDomain);
    assert_eq!(second.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn silence_everywhere_ends() {
    let still = Still::begin();
    let fake = Fake::silent().await;
    let resolver = resolver(&[&fake]);
    let Settings { timeout, deadline, attempts, .. } = *resolver.settings();
    assert!(attempts == 3 && timeout > UNKNOWN_WAIT + LAST_APART && deadline > 2 * timeout);
    let answer = look_up(&resolver, question(WWW));
    for (asked, wait) in [(1, UNKNOWN_WAIT), (2, LAST_APART)] {
        until("it is asked", || fake.count() == asked).await;
        still.pass(wait - MS).await;
        assert_eq!(servers(&resolver)[0].queries, asked as u64);
        still.pass(MS).await;
    }
    until("it is asked", || fake.count() == attempts).await;
    still.pass(timeout - MS).await;
    assert!(!answer.is_finished(), "the last try has its time, too");
    still.pass(MS).await;
    assert_eq!(answer.await.unwrap().unwrap_err(), LookupError::Timeout);
    assert_eq!(fake.count(), 3, "attempts");
    assert_eq!(servers(&resolver)[0].timeouts, 3);
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_is_left_alone_until_it_answers_again() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let still = Still::begin();
    let alive = Arc::new(AtomicBool::new(false));
    let first = {
        let alive = Arc::clone(&alive);
        Fake::start(move |seen| match alive.load(Ordering::Relaxed) {
            true => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
            false => Vec::new(),
        })
    };
    let (first, second) = (first.await, Fake::answering(answer_with(2)).await);
    let resolver = resolver(&[&first, &second]);
    let mut asked = 0;
    let mut next = || {
        asked += 1;
        look_up(&resolver, question(&format!("n{asked}.example.net.")))
    };
    for silent in 1..=3 {
        assert!(servers(&resolver)[0].alive);
        let answer = next();
        until("the first is asked", || first.count() == silent).await;
        still.pass(UNKNOWN_WAIT).await;
        assert_eq!(addresses(&answer.await.unwrap().unwrap()), [2]);
    }
    assert!(!servers(&resolver)[0].alive, "three in a row");
    for _ in 0..20 {
        assert_eq!(addresses(&next().await.unwrap().unwrap()), [2]);
    }
    alive.store(true, Ordering::Relaxed);
    still.pass(FIRST_PROBE - MS).await;
    assert_eq!(addresses(&next().await.unwrap().unwrap()), [2]);
    assert_eq!(servers(&resolver)[0].queries, 3);

    still.pass(MS).await;
    assert_eq!(addresses(&next().await.unwrap().unwrap()), [2], "nobody waits for a probe");
    until("it is noticed that it answers again", || servers(&resolver)[0].alive).await;
    assert_eq!(servers(&resolver)[0].queries, 4);
}

#[tokio::test(start_paused = true)]
async fn all_dead_servers_are_asked_all_the_same() {
    let _still = Still::begin();
    let nobody = [Nobody::new(), Nobody::new()];
    let servers = nobody.iter().map(|nobody| Server::udp(nobody.address)).collect();
    let resolver = Resolver::new(Settings::new(servers)).unwrap();
    for number in 0..5 {
        let question = question(&format!("n{number}.example.net."));
        assert_eq!(resolver.lookup(&question).await.unwrap_err(), LookupError::Unreachable);
    }
    let servers = super::servers(&resolver);
    assert!(servers.iter().all(|server| !server.alive && server.unreachable >= 5), "{servers:?}");
}
