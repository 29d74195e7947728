//! Answers that are kept, and questions that are asked once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hickory_proto::op::ResponseCode;
use tokio::sync::Semaphore;

use super::super::LookupError;
use super::fake::{Deed, Fake, respond};
use super::*;

const WWW: &str = "www.example.net.";

#[tokio::test]
async fn an_answer_is_kept() {
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

#[tokio::test]
async fn other_bits_are_other_questions() {
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

#[tokio::test]
async fn an_answer_for_this_once_is_not_kept() {
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

#[tokio::test]
async fn ttls_are_bounded_and_grow_old() {
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

#[tokio::test]
async fn what_is_not_there_is_remembered_as_its_soa_says() {
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

#[tokio::test]
async fn a_failure_is_remembered_for_a_moment() {
    let fake = Fake::answering(fail_with(ResponseCode::ServFail)).await;
    let resolver = resolver(&[&fake]);
    for _ in 0..3 {
        let answer = resolver.lookup(&question(WWW)).await.unwrap();
        assert_eq!(answer.message.response_code, ResponseCode::ServFail);
    }
    assert_eq!(fake.count(), 1);
    let deadline = Instant::now() + LONG;
    while fake.count() == 1 {
        assert!(Instant::now() < deadline, "the failure is never forgotten");
        resolver.lookup(&question(WWW)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_cache_is_bounded_by_octets() {
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

/// A server that answers what it has been asked when a test lets it.
async fn gated(gate: Arc<Semaphore>) -> Fake {
    let asked = Arc::new(Mutex::new(()));
    Fake::start(move |seen| {
        let _whole = asked.lock().unwrap();
        // Without a permit the question stays unanswered; it is asked again.
        match gate.try_acquire() {
            Ok(permit) => {
                permit.forget();
                vec![Deed::Send(respond(&seen.octets, answer_with(1)))]
            }
            Err(_) => Vec::new(),
        }
    })
    .await
}

#[tokio::test]
async fn a_question_is_asked_once_for_all_who_ask() {
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
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let own = runtime();
    let gate = Arc::new(Semaphore::new(0));
    let fake = own.block_on(gated(Arc::clone(&gate)));
    // Patience is short against the time that threads need to start.
    let resolver = Resolver::new(Settings { attempts: 100, ..settings(&[&fake]) }).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (resolver, done) = (Arc::clone(&resolver), Arc::clone(&done));
            std::thread::spawn(move || {
                let answer = runtime().block_on(resolver.lookup(&question(WWW)));
                done.fetch_add(1, Ordering::Relaxed);
                addresses(&answer.unwrap())
            })
        })
        .collect();
    let deadline = Instant::now() + LONG;
    own.block_on(async {
        while done.load(Ordering::Relaxed) < THREADS {
            assert!(Instant::now() < deadline, "{:?}", resolver.stats());
            let stats = resolver.stats();
            if stats.merged == THREADS as u64 - 1 && gate.available_permits() == 0 {
                gate.add_permits(1);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    for thread in threads {
        assert_eq!(thread.join().unwrap(), [1]);
    }
    let stats = resolver.stats();
    assert_eq!((stats.servers[0].answers, stats.merged), (1, THREADS as u64 - 1));
}

#[tokio::test]
async fn when_the_asker_goes_away_another_asks() {
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

#[tokio::test]
async fn questions_under_way_are_bounded() {
    let fake = Fake::silent().await;
    let settings = Settings { in_flight: 2, ..settings(&[&fake]) };
    let resolver = Resolver::new(settings).unwrap();
    let [a, b, c] = ["a.example.net.", "b.example.net.", "c.example.net."].map(question);
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
