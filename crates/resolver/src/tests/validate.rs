//! Signatures, from a trust anchor of one's own.

use std::io::Write;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use fordway_dns64::Security;
use hickory_proto::op::ResponseCode;
use tempfile::NamedTempFile;

use super::super::TrustAnchors;
use super::fake::Fake;
use super::signed::Tree;
use super::*;

struct World {
    fake: Fake,
    resolver: Arc<Resolver>,
    _anchors: NamedTempFile,
}

impl World {
    async fn new(tree: Tree) -> Self {
        let anchor = tree.root_key();
        Self::trusting(tree, &anchor).await
    }

    async fn trusting(tree: Tree, anchor: &str) -> Self {
        Self::answering(anchor, move |message| tree.answer(message)).await
    }

    async fn answering(
        anchor: &str,
        answer: impl Fn(&mut Message) + Send + Sync + 'static,
    ) -> Self {
        let mut anchors = NamedTempFile::new().unwrap();
        anchors.write_all(anchor.as_bytes()).unwrap();
        let fake = Fake::answering(answer).await;
        let validate = Some(TrustAnchors::File(anchors.path().to_owned()));
        let resolver = Resolver::new(Settings { validate, ..settings(&[&fake]) }).unwrap();
        Self { fake, resolver, _anchors: anchors }
    }

    async fn ask(&self, owner: &str, kind: RecordType) -> Arc<Answer> {
        self.resolver.lookup(&key::question(name(owner), kind)).await.unwrap()
    }

    async fn security(&self, owner: &str, kind: RecordType) -> Security {
        self.ask(owner, kind).await.security
    }
}

const WWW: &str = "www.example.net.";

#[tokio::test(start_paused = true)]
async fn what_is_signed_is_secure() {
    let _still = Still::begin();
    let world = World::new(Tree::new()).await;
    let answer = world.ask(WWW, RecordType::A).await;
    assert_eq!((answer.security, addresses(&answer)), (Security::Secure, vec![1]));
    assert_eq!(
        world.security(WWW, RecordType::AAAA).await,
        Security::Secure,
        "and so is its absence"
    );
    assert_eq!(world.resolver.stats().secure, 2);
    let all_unchecked = world.fake.seen(|seen| {
        let message = Message::from_vec(&seen.octets).unwrap();
        message.metadata.checking_disabled && message.edns.unwrap().flags().dnssec_ok
    });
    assert!(all_unchecked.into_iter().all(|unchecked| unchecked));
}

#[tokio::test(start_paused = true)]
async fn signatures_go_to_those_who_ask_for_them() {
    let _still = Still::begin();
    let world = World::new(Tree::new()).await;
    let kinds = |answer: &Answer| {
        let message = &answer.message;
        let records = message.answers.iter().chain(&message.authorities);
        records.map(Record::record_type).collect::<Vec<_>>()
    };
    let plain = key::question(name(WWW), RecordType::AAAA);
    let signed = Question { dnssec_ok: true, ..plain.clone() };
    let answer = world.resolver.lookup(&plain).await.unwrap();
    assert_eq!(kinds(&answer), [RecordType::SOA]);
    let queries = world.fake.count();
    let answer = world.resolver.lookup(&signed).await.unwrap();
    let kinds = kinds(&answer);
    assert!(kinds.contains(&RecordType::NSEC) && kinds.contains(&RecordType::RRSIG), "{kinds:?}");
    assert_eq!(world.fake.count(), queries, "nothing had to be asked again");
    assert_eq!(answer.security, Security::Secure);
}

#[tokio::test(start_paused = true)]
async fn what_need_not_be_signed_is_insecure() {
    let _still = Still::begin();
    let world = World::new(Tree::new()).await;
    let answer = world.ask("www.example.org.", RecordType::A).await;
    assert_eq!((answer.security, addresses(&answer)), (Security::Insecure, vec![3]));
    assert_eq!(world.security("www.example.org.", RecordType::AAAA).await, Security::Insecure);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_signature_is_bogus_but_may_be_had_with_cd() {
    let _still = Still::begin();
    let mut tree = Tree::new();
    tree.spoiled.push(name(WWW));
    let world = World::new(tree).await;
    for kind in [RecordType::A, RecordType::AAAA] {
        assert_eq!(world.security(WWW, kind).await, Security::Bogus, "{kind}");
    }
    let question = question(WWW);
    let unchecked = Question { checking_disabled: true, ..question };
    let answer = world.resolver.lookup(&unchecked).await.unwrap();
    assert_eq!((answer.security, addresses(&answer)), (Security::Unchecked, vec![1]));
    assert_eq!(world.resolver.stats().bogus, 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_signature_is_bogus() {
    let _still = Still::begin();
    let mut tree = Tree::new();
    tree.unsigned.push(name(WWW));
    let world = World::new(tree).await;
    for kind in [RecordType::A, RecordType::AAAA] {
        assert_eq!(world.security(WWW, kind).await, Security::Bogus, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_is_as_secure_as_its_weakest_link() {
    let _still = Still::begin();
    let world = World::new(Tree::new()).await;
    for (owner, last, security) in [
        ("near.example.net.", 1, Security::Secure),
        ("far.example.net.", 3, Security::Insecure),
        ("near.example.org.", 1, Security::Insecure),
        ("www.old.example.net.", 2, Security::Secure),
    ] {
        let answer = world.ask(owner, RecordType::A).await;
        assert_eq!((answer.security, addresses(&answer)), (security, vec![last]), "{owner}");
        // What synthesis rests on: the name is an alias, and there is no AAAA at its end.
        let answer = world.ask(owner, RecordType::AAAA).await;
        assert_eq!(answer.security, security, "{owner} AAAA");
        let is_alias = |record: &Record| record.record_type() == RecordType::CNAME;
        assert!(answer.message.answers.iter().any(is_alias), "{owner} AAAA");
        assert_eq!(answer.message.response_code, ResponseCode::NoError);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_link_spoils_the_chain() {
    let _still = Still::begin();
    let mut tree = Tree::new();
    tree.spoiled.push(name("near.example.net."));
    let world = World::new(tree).await;
    assert_eq!(world.security("near.example.net.", RecordType::A).await, Security::Bogus);
    assert_eq!(world.security(WWW, RecordType::A).await, Security::Secure);
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_bites_its_tail_ends() {
    let _still = Still::begin();
    let world = World::new(Tree::new()).await;
    let question = question("there.example.net.");
    assert_eq!(world.resolver.lookup(&question).await.unwrap_err(), LookupError::Unusable);
    assert_eq!(world.resolver.stats().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_digest_is_an_anchor_as_well() {
    let _still = Still::begin();
    let tree = Tree::new();
    let anchor = tree.root_digest();
    let world = World::trusting(tree, &anchor).await;
    assert_eq!(world.security(WWW, RecordType::A).await, Security::Secure);
}

#[tokio::test(start_paused = true)]
async fn with_another_anchor_nothing_is_secure() {
    let _still = Still::begin();
    let other = Tree::new();
    let world = World::trusting(Tree::new(), &other.root_key()).await;
    assert_eq!(world.security(WWW, RecordType::A).await, Security::Bogus);
    let world = World::trusting(Tree::new(), &other.root_digest()).await;
    let error = world.resolver.lookup(&question(WWW)).await.unwrap_err();
    assert_eq!(error, LookupError::Unusable);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_asked_for_again_is_no_answer() {
    let _still = Still::begin();
    let tree = Tree::new();
    let anchor = tree.root_key();
    let asked = AtomicUsize::new(0);
    let world = World::answering(&anchor, move |message| {
        let query = &message.queries[0];
        if query.name() != &name(WWW) || query.query_type() != RecordType::A {
            tree.answer(message);
        } else if asked.fetch_add(1, Relaxed) == 0 {
            // A forger's, and for this moment alone.
            let mut forged = address(WWW, 66);
            forged.ttl = 0;
            message.answers.push(forged);
        } else {
            message.metadata.response_code = ResponseCode::ServFail;
        }
    });
    let found = world.await.resolver.lookup(&question(WWW)).await;
    assert_eq!(found.unwrap_err(), LookupError::Unusable);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_no_forger() {
    let _still = Still::begin();
    let fake = Fake::answering(fail_with(ResponseCode::ServFail)).await;
    let validate = Some(TrustAnchors::BuiltIn);
    let resolver = Resolver::new(Settings { validate, ..settings(&[&fake]) }).unwrap();
    let answer = resolver.lookup(&question(WWW)).await.unwrap();
    assert_eq!(answer.message.response_code, ResponseCode::ServFail);
    assert_eq!(answer.security, Security::Unchecked);
}
