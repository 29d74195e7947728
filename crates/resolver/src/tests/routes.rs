//! Names that have servers of their own.

use std::io::Write;

use fordway_dns64::Security;

use super::signed::Tree;
use super::*;
use crate::{Domain, TrustAnchors};

fn forwarding(usual: &Fake, own: &[(&str, &Fake)]) -> Settings {
    let domain = |(domain, fake): &(&str, &Fake)| Domain {
        names: vec![name(domain)],
        servers: vec![Server::udp(fake.address)],
        validate: true,
    };
    Settings { domains: own.iter().map(domain).collect(), ..settings(&[usual]) }
}

async fn ask(resolver: &Arc<Resolver>, text: &str) -> Arc<Answer> {
    resolver.lookup(&question(text)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_longest_domain_has_a_name() {
    let _still = Still::begin();
    let [usual, corp, lab] = [
        Fake::answering(answer_with(1)).await,
        Fake::answering(answer_with(2)).await,
        Fake::answering(answer_with(3)).await,
    ];
    let own = [("Corp.Example.", &corp), ("lab.corp.example.", &lab)];
    let resolver = Resolver::new(forwarding(&usual, &own)).unwrap();
    for (owner, last) in [
        ("www.example.net.", 1),
        ("example.", 1),
        ("xcorp.example.", 1),
        ("corp.example.", 2),
        ("WWW.Corp.Example.", 2),
        ("xlab.corp.example.", 2),
        ("lab.corp.example.", 3),
        ("a.b.lab.corp.example.", 3),
    ] {
        assert_eq!(addresses(&*ask(&resolver, owner).await), [last], "{owner}");
    }
    // The parent's servers know the DS record of a zone.
    let ds = |owner| key::question(name(owner), RecordType::DS);
    resolver.lookup(&ds("corp.example.")).await.unwrap();
    assert_eq!([usual.count(), corp.count(), lab.count()], [4, 3, 2]);
    resolver.lookup(&ds("lab.corp.example.")).await.unwrap();
    assert_eq!([usual.count(), corp.count(), lab.count()], [4, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_several_domains_is_one_server() {
    let _still = Still::begin();
    let usual = Fake::answering(answer_with(1)).await;
    let resolver = Resolver::new(forwarding(&usual, &[("corp.example.", &usual)])).unwrap();
    ask(&resolver, "www.corp.example.").await;
    ask(&resolver, "www.example.net.").await;
    let servers = servers(&resolver);
    assert_eq!(servers.len(), 1);
    assert_eq!(servers[0].queries, 2);
}

#[tokio::test(start_paused = true)]
async fn an_alias_is_followed_at_the_servers_of_its_target() {
    let _still = Still::begin();
    // Each has wrong answers for names of the other.
    let usual = Fake::answering(|message| {
        let owner = message.queries[0].name().to_ascii();
        if owner.eq_ignore_ascii_case("www.example.net.") {
            message.answers.push(alias("www.example.net.", "host.corp.example."));
            message.metadata.response_code = ResponseCode::NXDomain;
            message.authorities.push(soa("example."));
        } else {
            message.answers.push(address(&owner, 1));
        }
    })
    .await;
    let corp = Fake::answering(|message| {
        let owner = message.queries[0].name().to_ascii();
        if owner.eq_ignore_ascii_case("cloud.corp.example.") {
            message.answers.push(alias("cloud.corp.example.", "cloud2.corp.example."));
            message.answers.push(alias("cloud2.corp.example.", "cloud.example.net."));
            message.answers.push(address("cloud.example.net.", 66));
        } else {
            message.answers.push(address(&owner, 2));
        }
    })
    .await;
    let resolver = Resolver::new(forwarding(&usual, &[("corp.example.", &corp)])).unwrap();
    let inwards = ask(&resolver, "www.example.net.").await;
    assert_eq!(inwards.message.response_code, ResponseCode::NoError);
    assert_eq!((inwards.message.answers.len(), addresses(&inwards)), (2, vec![2]));
    assert!(inwards.message.authorities.is_empty());
    let outwards = ask(&resolver, "cloud.corp.example.").await;
    assert_eq!((outwards.message.answers.len(), addresses(&outwards)), (3, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn behind_an_alias_of_servers_that_are_not_validated_others_are() {
    let _still = Still::begin();
    let mut tree = Tree::new();
    tree.spoiled.push(name("www.new.example.net."));
    let mut anchors = tempfile::NamedTempFile::new().unwrap();
    anchors.write_all(tree.root_key().as_bytes()).unwrap();
    let usual = Fake::answering(move |message| tree.answer(message)).await;
    let corp = Fake::answering(|message| {
        let owner = message.queries[0].name().to_ascii().to_lowercase();
        match owner.as_str() {
            "good.corp.example." => message.answers.push(alias(&owner, "www.example.net.")),
            "bad.corp.example." => message.answers.push(alias(&owner, "www.new.example.net.")),
            "far.corp.example." => message.answers.push(alias(&owner, "far.example.net.")),
            _ => {}
        }
        message.answers.push(address(&owner, 66));
    })
    .await;
    let mut settings = forwarding(&usual, &[("corp.example.", &corp)]);
    settings.domains[0].validate = false;
    settings.validate = Some(TrustAnchors::File(anchors.path().to_owned()));
    let resolver = Resolver::new(settings).unwrap();
    let own = ask(&resolver, "host.corp.example.").await;
    assert_eq!((own.security, addresses(&own)), (Security::Unchecked, vec![66]));
    let good = ask(&resolver, "good.corp.example.").await;
    assert_eq!((good.security, addresses(&good)), (Security::Unchecked, vec![1]));
    let kinds: Vec<_> = good.message.answers.iter().map(Record::record_type).collect();
    assert_eq!(kinds, [RecordType::CNAME, RecordType::A], "no signatures");
    let far = ask(&resolver, "far.corp.example.").await;
    assert_eq!((far.security, addresses(&far)), (Security::Unchecked, vec![3]));
    let bad = ask(&resolver, "bad.corp.example.").await;
    assert_eq!(bad.security, Security::Bogus);
    assert_eq!(resolver.stats().bogus, 1);
    // A client that validates itself gets the answer as it is.
    let unchecked = Question { checking_disabled: true, ..question("bad.corp.example.") };
    let unchecked = resolver.lookup(&unchecked).await.unwrap();
    assert_eq!((unchecked.security, addresses(&unchecked)), (Security::Unchecked, vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_chain_may_have_as_many_crossings_as_are_followed() {
    let _still = Still::begin();
    // From n8, which is a name of `usual`, to n0 by eight crossings; n9 has one more.
    let answer = |message: &mut Message| {
        let owner = message.queries[0].name().to_ascii().to_lowercase();
        let number: u8 = owner[1..2].parse().unwrap();
        let zone =
            |number: u8| if number.is_multiple_of(2) { "example.net." } else { "corp.example." };
        message.answers.push(match number {
            0 => address(&owner, 1),
            _ => alias(&owner, &format!("n{}.{}", number - 1, zone(number - 1))),
        });
    };
    let [usual, corp] = [Fake::answering(answer).await, Fake::answering(answer).await];
    let resolver = Resolver::new(forwarding(&usual, &[("corp.example.", &corp)])).unwrap();
    assert_eq!(addresses(&*ask(&resolver, "n8.example.net.").await), [1]);
    let error = resolver.lookup(&question("n9.corp.example.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unusable);
}

#[tokio::test(start_paused = true)]
async fn aliases_to_and_fro_end() {
    let _still = Still::begin();
    let to = |target: &'static str| {
        move |message: &mut Message| {
            let owner = message.queries[0].name().to_ascii();
            message.answers.push(alias(&owner, target));
        }
    };
    let usual = Fake::answering(to("a.corp.example.")).await;
    let corp = Fake::answering(to("a.example.net.")).await;
    let resolver = Resolver::new(forwarding(&usual, &[("corp.example.", &corp)])).unwrap();
    let error = resolver.lookup(&question("a.example.net.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unusable);
    assert!(usual.count() + corp.count() < 12);
}
