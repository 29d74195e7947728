//! Answers that have expired, and servers that fail (RFC 8767).

use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use fordway_dns64::{Ede, Security};
use hickory_proto::op::Edns;

use super::fake::{Deed, respond};
use super::signed::Tree;
use super::*;
use crate::TrustAnchors;

const WWW: &str = "www.example.net.";
const SECOND: Duration = Duration::from_secs(1);

/// What the server does.
const GOOD: u8 = 0;
const FAILS: u8 = 1;
const SILENT: u8 = 2;
const BOGUS: u8 = 3;
const GONE: u8 = 4;
const CHANGED: u8 = 5;

/// A server whose moods a test sets.
async fn moody() -> (Fake, Arc<AtomicU8>) {
    let mood = Arc::<AtomicU8>::default();
    let now = Arc::clone(&mood);
    let fake = Fake::start(move |seen| {
        let mood = now.load(Ordering::SeqCst);
        if mood == SILENT {
            return Vec::new();
        }
        vec![Deed::Send(respond(&seen.octets, move |message| match mood {
            GOOD => answer_with(1)(message),
            CHANGED => answer_with(2)(message),
            GONE => {
                message.metadata.response_code = ResponseCode::NXDomain;
                message.authorities.push(soa("example.net."));
            }
            BOGUS => {
                message.metadata.response_code = ResponseCode::ServFail;
                Ede::new(6, "").insert(message.edns.get_or_insert_with(Edns::new));
            }
            _ => message.metadata.response_code = ResponseCode::ServFail,
        }))]
    });
    (fake.await, mood)
}

fn patient(fake: &Fake) -> Arc<Resolver> {
    let stale = Duration::from_secs(3600);
    Resolver::new(Settings { stale, ..settings(&[fake]) }).unwrap()
}

fn codes(answer: &Answer) -> Vec<u16> {
    Ede::of(&answer.message).iter().map(|ede| ede.code).collect()
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_given_when_servers_fail() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = patient(&fake);
    resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(300 * SECOND).await;
    mood.store(FAILS, Ordering::SeqCst);
    let stale = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((addresses(&stale), codes(&stale)), (vec![1], vec![3]));
    assert_eq!((stale.message.answers[0].ttl, stale.security), (30, Security::Unchecked));
    assert_eq!(fake.count(), 2);
    // For 30 s nobody is asked.
    mood.store(CHANGED, Ordering::SeqCst);
    still.pass(30 * SECOND - MS).await;
    assert_eq!(addresses(&resolver.lookup(&question(WWW)).await.unwrap()), [1]);
    assert_eq!((fake.count(), resolver.stats().stale), (2, 2));
    still.pass(MS).await;
    let fresh = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((addresses(&fresh), codes(&fresh)), (vec![2], vec![]));
    assert_eq!(fake.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn not_for_longer_than_is_configured() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = patient(&fake);
    resolver.lookup(&question(WWW)).await.unwrap();
    mood.store(FAILS, Ordering::SeqCst);
    still.pass(300 * SECOND + 3600 * SECOND - MS).await;
    assert_eq!(addresses(&resolver.lookup(&question(WWW)).await.unwrap()), [1]);
    still.pass(MS).await;
    let failed = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(failed.message.response_code, ResponseCode::ServFail);
}

#[tokio::test(start_paused = true)]
async fn servers_that_take_too_long_are_not_waited_for() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = patient(&fake);
    resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(300 * SECOND).await;
    mood.store(SILENT, Ordering::SeqCst);
    let waits = look_up(&resolver, question(WWW));
    until("the server is asked", || fake.count() == 2).await;
    still.pass(Duration::from_millis(1799)).await;
    assert!(!waits.is_finished());
    still.pass(MS).await;
    assert_eq!(addresses(&waits.await.unwrap().unwrap()), [1]);
    // Others do not wait, though the question goes on.
    let asked = fake.count();
    assert_eq!(addresses(&resolver.lookup(&question(WWW)).await.unwrap()), [1]);
    assert_eq!((fake.count(), resolver.stats().in_flight), (asked, 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_kept() {
    let still = Still::begin();
    let gate = Arc::new(tokio::sync::Semaphore::new(1));
    let (held, times) = (Arc::clone(&gate), AtomicU8::new(0));
    let fake = Fake::start(move |seen| {
        let last = times.fetch_add(1, Ordering::SeqCst) + 1;
        vec![Deed::Hold(Arc::clone(&held), respond(&seen.octets, answer_with(last)))]
    })
    .await;
    let stale = Duration::from_secs(3600);
    let settings = Settings {
        stale,
        attempts: 1,
        timeout: 10 * SECOND,
        deadline: 10 * SECOND,
        ..settings(&[&fake])
    };
    let resolver = Resolver::new(settings).unwrap();
    resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(300 * SECOND).await;
    let waits = look_up(&resolver, question(WWW));
    until("the server is asked", || fake.count() == 2).await;
    still.pass(Duration::from_millis(1800)).await;
    assert_eq!(addresses(&waits.await.unwrap().unwrap()), [1]);
    gate.add_permits(1);
    until("the answer is there", || resolver.stats().in_flight == 0).await;
    let fresh = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((addresses(&fresh), codes(&fresh), fake.count()), (vec![2], vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_gone_is_gone_and_may_be_stale_too() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = patient(&fake);
    resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(300 * SECOND).await;
    mood.store(GONE, Ordering::SeqCst);
    let gone = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(gone.message.response_code, ResponseCode::NXDomain);
    still.pass(60 * SECOND).await;
    mood.store(FAILS, Ordering::SeqCst);
    let stale = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((stale.message.response_code, codes(&stale)), (ResponseCode::NXDomain, vec![19]));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_validate_brings_no_old_data_back() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = patient(&fake);
    resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(300 * SECOND).await;
    mood.store(BOGUS, Ordering::SeqCst);
    let bogus = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((bogus.message.response_code, codes(&bogus)), (ResponseCode::ServFail, vec![6]));
}

/// A validating resolver, and a server of a signed tree: good, with errors, or with signatures that are not right.
async fn signed() -> (Fake, Arc<AtomicU8>, Arc<Resolver>, tempfile::NamedTempFile) {
    let mood = Arc::<AtomicU8>::default();
    let (now, tree) = (Arc::clone(&mood), std::sync::Mutex::new(Tree::new()));
    let mut anchors = tempfile::NamedTempFile::new().unwrap();
    anchors.write_all(tree.lock().unwrap().root_key().as_bytes()).unwrap();
    let fake = Fake::answering(move |message| match now.load(Ordering::SeqCst) {
        FAILS => message.metadata.response_code = ResponseCode::ServFail,
        mood => {
            let mut tree = tree.lock().unwrap();
            tree.spoiled = if mood == BOGUS { vec![name(WWW)] } else { Vec::new() };
            tree.answer(message);
        }
    })
    .await;
    let stale = Duration::from_secs(3600);
    let validate = Some(TrustAnchors::File(anchors.path().to_owned()));
    let resolver = Resolver::new(Settings { stale, validate, ..settings(&[&fake]) }).unwrap();
    (fake, mood, resolver, anchors)
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_not_secure_and_bogus_data_has_none() {
    let still = Still::begin();
    let (_fake, mood, resolver, _anchors) = signed().await;
    let secure = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((addresses(&secure), secure.security), (vec![1], Security::Secure));
    still.pass(300 * SECOND).await;
    mood.store(FAILS, Ordering::SeqCst);
    let stale = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((addresses(&stale), codes(&stale)), (vec![1], vec![3]));
    assert_eq!(stale.security, Security::Unchecked);
    assert!(!stale.message.metadata.authentic_data);
    still.pass(30 * SECOND).await;
    mood.store(BOGUS, Ordering::SeqCst);
    let bogus = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!((bogus.security, resolver.stats().bogus), (Security::Bogus, 1));
    // Nor is the old answer given once servers fail again.
    mood.store(FAILS, Ordering::SeqCst);
    still.pass(60 * SECOND).await;
    let failed = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(failed.security, Security::Bogus);
    assert!(codes(&failed).iter().all(|code| *code != 3), "not a stale answer");
}

#[tokio::test(start_paused = true)]
async fn failures_are_cached_beside_what_has_expired() {
    let still = Still::begin();
    let (fake, mood, resolver, _anchors) = signed().await;
    let text = Question { record_type: RecordType::TXT, ..question(WWW) };
    for asked in [question(WWW), text.clone()] {
        resolver.lookup(&asked).await.unwrap();
    }
    still.pass(300 * SECOND).await;
    mood.store(FAILS, Ordering::SeqCst);
    resolver.lookup(&question(WWW)).await.unwrap();
    let asked = fake.count();
    // The question with CD is the validator's own, and has just failed.
    let own = Question { checking_disabled: true, dnssec_ok: true, ..question(WWW) };
    let stale = resolver.lookup(&own).await.unwrap();
    assert_eq!((addresses(&stale), fake.count()), (vec![1], asked));
    let signed = Question { dnssec_ok: true, ..question(WWW) };
    let stale = resolver.lookup(&signed).await.unwrap();
    assert_eq!((addresses(&stale), fake.count()), (vec![1], asked));
    // Another question has not failed yet.
    resolver.lookup(&Question { dnssec_ok: true, ..text }).await.unwrap();
    assert!(fake.count() > asked);
}

#[tokio::test(start_paused = true)]
async fn by_default_what_has_expired_is_of_no_use() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = resolver(&[&fake]);
    resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(300 * SECOND).await;
    mood.store(FAILS, Ordering::SeqCst);
    let failed = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(failed.message.response_code, ResponseCode::ServFail);
}

#[tokio::test(start_paused = true)]
async fn what_expires_soon_is_asked_for_ahead_and_stays_if_servers_fail() {
    let still = Still::begin();
    let (fake, mood) = moody().await;
    let resolver = resolver(&[&fake]);
    let first = resolver.lookup(&question(WWW)).await.unwrap();
    still.pass(290 * SECOND).await;
    let ahead = |seconds: u32| Asker { client: None, ahead: seconds * SECOND };
    resolver.lookup_for(ahead(9), &question(WWW)).await.unwrap();
    assert_eq!(fake.count(), 1, "it holds for so long");
    mood.store(FAILS, Ordering::SeqCst);
    resolver.lookup_for(ahead(10), &question(WWW)).await.unwrap();
    assert_eq!(fake.count(), 2);
    let kept = resolver.lookup(&question(WWW)).await.unwrap();
    assert!(Arc::ptr_eq(&first, &kept));
    mood.store(CHANGED, Ordering::SeqCst);
    resolver.lookup_for(ahead(10), &question(WWW)).await.unwrap();
    assert_eq!(addresses(&resolver.lookup(&question(WWW)).await.unwrap()), [2]);
    assert_eq!(fake.count(), 3);
}
