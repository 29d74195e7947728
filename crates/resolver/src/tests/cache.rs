//! Answers that are kept, and questions that are asked once.

use std::thread;

use hickory_proto::op::ResponseCode;
use tokio::sync::Semaphore;

use super::fake::{Deed, Fake, name_seen, respond};
use super::*;
use fordway_serve::{ClientLen, Network};

const WWW: &str = "www.example.net.";

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept() {
    let _still = Still::begin();
    let fake = Fake::answering(answer_with(1)).await;
    let resolver = resolver(&[&fake]);
    let first = resolver.lookup(&question(WWW)).await.unwrap();
    let second = resolver.lookup(&question("WWW.EXAMPLE.NET")).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(fake.count(), 1);
    let stats = resolver.stats();
    assert_eq!((stats.cache_hits, stats.cache_misses, stats.cache_entries), (1, 1, 1));
    assert!(stats.cache_octets > 0);
    assert_eq!(first.remaining(first.fetched).as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn other_bits_are_other_questions() {
    let _still = Still::begin();
    let fake = Fake::answering(answer_with(1)).await;
    let resolver = resolver(&[&fake]);
    let plain = question(WWW);
    let signed = Question { dnssec_ok: true, ..plain.clone() };
    let unchecked = Question { checking_disabled: true, ..plain.clone() };
    for question in [&plain, &signed, &unchecked] {
        resolver.lookup(question).await.unwrap();
        resolver.lookup(question).await.unwrap();
    }
    let bits = fake.seen(|seen| {
        let message = Message::from_vec(&seen.octets).unwrap();
        (message.edns.unwrap().flags().dnssec_ok, message.metadata.checking_disabled)
    });
    assert_eq!(bits, [(false, false), (true, false), (false, true)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_flushed_is_asked_for_again() {
    let _still = Still::begin();
    let gate = Arc::new(Semaphore::new(3));
    let fake = gated(Arc::clone(&gate)).await;
    let resolver = resolver(&[&fake]);
    let names = [WWW, "ftp.example.net.", "www.example.org."];
    for name in names {
        resolver.lookup(&question(name)).await.unwrap();
    }
    let of = |text, below| Selection::new(&name(text), below);
    let kept = |of: &Selection| {
        let mut kept: Vec<_> = resolver.kept(of).map(|it| it.question.name.to_ascii()).collect();
        kept.sort();
        kept
    };
    assert_eq!(kept(&of("example.net.", true)), ["ftp.example.net.", WWW]);
    assert_eq!(kept(&of("example.net.", false)), [""; 0]);
    assert_eq!(kept(&Selection::all()).len(), 3);
    assert_eq!(resolver.flush(&of("Example.NET.", true)), 2);
    assert_eq!(kept(&Selection::all()), ["www.example.org."]);
    // An answer to a question that was under way does not come into the cache.
    let under_way = look_up(&resolver, question(WWW));
    until("the question comes", || fake.count() == 4).await;
    assert_eq!(resolver.flush(&Selection::all()), 1);
    gate.add_permits(1);
    under_way.await.unwrap().unwrap();
    assert_eq!(kept(&Selection::all()), [""; 0]);
    gate.add_permits(1);
    resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(kept(&Selection::all()), [WWW]);
    assert_eq!(fake.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_this_once_is_not_kept() {
    let _still = Still::begin();
    let fake = Fake::answering(|message| {
        answer_with(1)(message);
        message.answers[0].ttl = 0;
    })
    .await;
    let resolver = resolver(&[&fake]);
    for _ in 0..2 {
        resolver.lookup(&question(WWW)).await.unwrap();
    }
    assert_eq!((fake.count(), resolver.stats().cache_entries), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn ttls_are_bounded_and_grow_old() {
    let _still = Still::begin();
    let fake = Fake::answering(|message| {
        for (ttl, last) in [(5_000_000, 1), (u32::MAX, 2), (100, 3)] {
            answer_with(last)(message);
            message.answers.last_mut().unwrap().ttl = ttl;
        }
    })
    .await;
    let answer = resolver(&[&fake]).lookup(&question(WWW)).await.unwrap();
    let ttls =
        |message: &Message| message.answers.iter().map(|record| record.ttl).collect::<Vec<_>>();
    assert_eq!(ttls(&answer.message), [86_400, 0, 100]);
    let later = answer.fetched + Duration::from_millis(60_900);
    assert_eq!(answer.age(later), 60);
    assert_eq!(ttls(&answer.message_at(later)), [86_340, 0, 40]);
    assert_eq!(answer.remaining(later), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_remembered_as_its_soa_says() {
    let _still = Still::begin();
    let fake = Fake::answering(|message| {
        message.metadata.response_code = ResponseCode::NXDomain;
        message.authorities.push(soa("example.net."));
    })
    .await;
    let resolver = resolver(&[&fake]);
    for _ in 0..2 {
        let answer = resolver.lookup(&question(WWW)).await.unwrap();
        assert_eq!(answer.message.response_code, ResponseCode::NXDomain);
        assert_eq!(answer.remaining(answer.fetched).as_secs(), 60);
    }
    assert_eq!(fake.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_remembered_for_a_moment() {
    let still = Still::begin();
    let fake = Fake::answering(fail_with(ResponseCode::ServFail)).await;
    let resolver = resolver(&[&fake]);
    for _ in 0..3 {
        let answer = resolver.lookup(&question(WWW)).await.unwrap();
        assert_eq!(answer.message.response_code, ResponseCode::ServFail);
    }
    assert_eq!(fake.count(), 1);
    // RFC 9520 section 3.2; each failure in a row is kept twice as long as the one before.
    let mut asked = 1;
    for kept in [1, 2, 4].map(Duration::from_secs) {
        still.pass(kept - MS).await;
        resolver.lookup(&question(WWW)).await.unwrap();
        assert_eq!(fake.count(), asked);
        still.pass(MS).await;
        resolver.lookup(&question(WWW)).await.unwrap();
        asked += 1;
        assert_eq!(fake.count(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_by_octets() {
    let _still = Still::begin();
    let fake = Fake::answering(|message| {
        let owner = message.queries[0].name().to_ascii();
        message.answers.extend((0..10).map(|last| address(&owner, last)));
    })
    .await;
    let bound = 256 << 10;
    let settings = Settings { cache_octets: bound, ..settings(&[&fake]) };
    let resolver = Resolver::new(settings).unwrap();
    for number in 0..400 {
        resolver.lookup(&question(&format!("n{number}.example.net."))).await.unwrap();
    }
    let stats = resolver.stats();
    assert!(stats.cache_octets <= bound as u64, "{stats:?}");
    assert!(stats.cache_entries > 10 && stats.cache_evictions > 0, "{stats:?}");
    assert!(stats.cache_entries + stats.cache_evictions <= 400, "{stats:?}");
}

/// A server that answers each question when a test lets it.
async fn gated(gate: Arc<Semaphore>) -> Fake {
    Fake::start(move |seen| {
        vec![Deed::Hold(Arc::clone(&gate), respond(&seen.octets, answer_with(1)))]
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_once_for_all_who_ask() {
    let _still = Still::begin();
    let fake = Fake::answering(answer_with(1)).await;
    let resolver = resolver(&[&fake]);
    let question = question(WWW);
    let lookups = (0..20).map(|_| resolver.lookup(&question));
    for answer in futures_util::future::join_all(lookups).await {
        assert_eq!(addresses(&answer.unwrap()), [1]);
    }
    let stats = resolver.stats();
    assert_eq!((fake.count(), stats.merged, stats.in_flight), (1, 19, 0));
}

#[test]
fn threads_share_questions_and_answers() {
    const THREADS: usize = 4;
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let own = runtime();
    let gate = Arc::new(Semaphore::new(0));
    let fake = own.block_on(gated(Arc::clone(&gate)));
    let resolver = resolver(&[&fake]);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let resolver = Arc::clone(&resolver);
            thread::spawn(move || {
                runtime().block_on(async {
                    let _still = Still::begin();
                    addresses(&resolver.lookup(&question(WWW)).await.unwrap())
                })
            })
        })
        .collect();
    own.block_on(async {
        let _still = Still::begin();
        let others = THREADS as u64 - 1;
        until("the others wait for the one that asks", || resolver.stats().merged == others).await;
        gate.add_permits(1);
        until("all have the answer", || threads.iter().all(thread::JoinHandle::is_finished)).await;
    });
    for thread in threads {
        assert_eq!(thread.join().unwrap(), [1]);
    }
    let stats = resolver.stats();
    assert_eq!((stats.servers[0].answers, stats.merged), (1, THREADS as u64 - 1));
    assert_eq!(fake.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_asker_goes_away_another_asks() {
    let _still = Still::begin();
    let gate = Arc::new(Semaphore::new(0));
    let fake = gated(Arc::clone(&gate)).await;
    let resolver = resolver(&[&fake]);
    let question = question(WWW);
    let mut first = Box::pin(resolver.lookup(&question));
    let mut second = Box::pin(resolver.lookup(&question));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    gate.add_permits(10);
    assert_eq!(addresses(&second.await.unwrap()), [1]);
    assert_eq!(resolver.stats().merged, 1);
}

/// A server that answers but for what is below `dead`.
async fn with_a_dead_zone() -> Fake {
    Fake::start(|seen| match name_seen(seen).to_ascii_lowercase().ends_with("dead.example.") {
        true => Vec::new(),
        false => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
    })
    .await
}

fn of_client(number: u128) -> Option<Network> {
    let address = std::net::Ipv6Addr::from(0x2001_0db8 << 96 | number << 72);
    Some(Network::of(address.into(), ClientLen::default()))
}

#[tokio::test(start_paused = true)]
async fn neither_a_dead_zone_nor_one_client_takes_all_places() {
    let _still = Still::begin();
    let fake = with_a_dead_zone().await;
    for one_client in [true, false] {
        let settings = Settings { in_flight: 60, ..settings(&[&fake]) };
        let resolver = Resolver::new(settings).unwrap();
        let questions: Vec<_> =
            (0..200).map(|number| question(&format!("r{number}.dead.example."))).collect();
        let client = |number| of_client(if one_client { 0 } else { number });
        let mut under_way: Vec<_> = questions
            .iter()
            .zip(0..)
            .map(|(question, number)| {
                Box::pin(resolver.lookup_for(Asker::of(client(number)), question))
            })
            .collect();
        let mut refused = 0;
        for lookup in &mut under_way {
            match futures_util::poll!(lookup) {
                std::task::Poll::Pending => {}
                std::task::Poll::Ready(outcome) => {
                    assert_eq!(outcome.unwrap_err(), LookupError::Busy, "at once");
                    refused += 1;
                }
            }
        }
        let held = if one_client { 20 } else { 30 };
        assert_eq!((200 - refused, resolver.stats().in_flight), (held, held), "{one_client}");
        // Somebody else, and about another zone the same, notices nothing of it.
        for number in 0..100 {
            let asked = question(&format!("www{number}.alive{one_client}.example."));
            let answer = resolver.lookup_for(Asker::of(of_client(1000)), &asked).await.unwrap();
            assert_eq!(addresses(&answer), [1]);
        }
        drop(under_way);
        assert_eq!(resolver.stats().in_flight, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn questions_under_way_are_bounded() {
    let _still = Still::begin();
    let fake = Fake::silent().await;
    let settings = Settings { in_flight: 2, ..settings(&[&fake]) };
    let resolver = Resolver::new(settings).unwrap();
    let [a, b, c] = ["www.a.net.", "www.b.org.", "www.c.com."].map(question);
    let mut under_way = [Box::pin(resolver.lookup(&a)), Box::pin(resolver.lookup(&b))];
    for lookup in &mut under_way {
        assert!(futures_util::poll!(lookup).is_pending());
    }
    assert_eq!(resolver.lookup(&c).await.unwrap_err(), LookupError::Busy);
    let stats = resolver.stats();
    assert_eq!((stats.in_flight, stats.busy), (2, 1));
    drop(under_way);
    assert_eq!(resolver.stats().in_flight, 0);
    let mut lookup = Box::pin(resolver.lookup(&c));
    assert!(futures_util::poll!(&mut lookup).is_pending(), "and is not remembered as busy");
}
