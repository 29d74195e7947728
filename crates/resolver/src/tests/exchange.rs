//! What is accepted as an answer, and what a server is forgiven.

use std::collections::HashSet;

use hickory_proto::op::ResponseCode;

use super::fake::{Deed, Fake, Nobody, Seen, name_seen, respond};
use super::*;

fn good(seen: &Seen) -> Deed {
    Deed::Send(respond(&seen.octets, answer_with(1)))
}

/// A response as a forger makes it who does not know everything.
fn forged(seen: &Seen, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut octets = respond(&seen.octets, answer_with(66));
    change(&mut octets);
    octets
}

#[tokio::test(start_paused = true)]
async fn a_server_is_asked_and_answers() {
    let _still = Still::begin();
    let fake = Fake::answering(answer_with(1)).await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.Example.net.")).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    assert_eq!(answer.message.queries[0].name().to_ascii(), "www.example.net.");
    assert_eq!(answer.message.answers[0].name.to_ascii(), "www.example.net.", "not in mixed case");
    assert!(answer.message.edns.is_none());
    let stats = resolver.stats();
    assert_eq!((stats.lookups, stats.cache_misses, stats.failures), (1, 1, 0));
    let server = &stats.servers[0];
    assert_eq!((server.queries, server.answers, server.errors), (1, 1, 0));
    assert_eq!(server.server, fake.address.to_string());
    assert!(server.alive && server.rtt_us > 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_answer_the_question_is_passed_over() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        vec![
            Deed::Send(forged(seen, |octets| octets[0] ^= 0x55)),
            Deed::Send(forged(seen, |octets| octets[2] ^= 0x80)),
            Deed::Send(respond(&seen.octets, |message| {
                message.queries[0].set_name(name("other.example.net."));
                message.answers.push(address("other.example.net.", 66));
            })),
            Deed::Send(respond(&seen.octets, |message| message.queries.clear())),
            good(seen),
        ]
    })
    .await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    let server = &resolver.stats().servers[0];
    assert_eq!((server.mismatches, server.queries, server.spoof_suspicions), (4, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_datagram_from_elsewhere_never_arrives() {
    let _still = Still::begin();
    let fake =
        Fake::start(|seen| vec![Deed::SendFromElsewhere(forged(seen, |_| ())), good(seen)]).await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    assert_eq!(resolver.stats().servers[0].mismatches, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_is_passed_over() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        let whole = respond(&seen.octets, answer_with(66));
        // An OPT record with a cookie follows.
        let question_end = seen.octets.len() - 11 - 12;
        // An owner name that points to itself, and one that points to the next.
        let pointing_to = |target: usize| {
            let mut octets = whole.clone();
            let pointer = 0xc000 | u16::try_from(target).unwrap();
            octets.splice(question_end..question_end + 2, pointer.to_be_bytes());
            octets
        };
        let mut many_records = whole.clone();
        many_records[7] = 200;
        let deeds = vec![
            b"garbage".to_vec(),
            Vec::new(),
            whole[..whole.len() - 13].to_vec(),
            pointing_to(question_end),
            pointing_to(question_end + 2),
            many_records,
        ];
        deeds.into_iter().map(Deed::Send).chain([good(seen)]).collect()
    })
    .await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    assert_eq!(resolver.stats().servers[0].malformed, 6);
}

#[tokio::test(start_paused = true)]
async fn many_datagrams_that_do_not_answer_lead_to_tcp() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        if seen.tcp {
            return vec![good(seen)];
        }
        let guess =
            |id: u8| Deed::Send(forged(seen, |octets| octets[1] = octets[1].wrapping_add(id)));
        (1..=20).map(guess).collect()
    })
    .await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    let server = &resolver.stats().servers[0];
    assert_eq!((server.spoof_suspicions, server.connections, server.queries), (1, 1, 2));
    assert_eq!(server.mismatches, 8);
}

#[tokio::test(start_paused = true)]
async fn what_is_truncated_is_asked_for_by_tcp() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        let edit = |message: &mut Message| {
            message.metadata.truncation = !seen.tcp;
            let owner = message.queries[0].name().to_ascii();
            let records = if seen.tcp { 200 } else { 1 };
            message.answers.extend((0..records).map(|last| address(&owner, last)));
        };
        vec![Deed::Send(respond(&seen.octets, edit))]
    })
    .await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(addresses(&answer).len(), 200);
    assert!(!answer.message.metadata.truncation);
    assert_eq!(resolver.stats().servers[0].truncated, 1);
    assert_eq!(fake.seen(|seen| seen.tcp), [false, true]);
}

/// Servers that write names in lower case, as some do.
fn lower(seen: &Seen) -> Vec<u8> {
    respond(&seen.octets, |message| {
        let lower = message.queries[0].name().to_lowercase();
        message.queries[0].set_name(lower);
        answer_with(1)(message);
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_loses_the_case_is_found_out_once() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| vec![Deed::Send(lower(seen))]).await;
    let resolver = resolver(&[&fake]);
    let long = "a-name-with-letters-enough-to-be-mixed";
    for number in 0..3 {
        let answer = resolver.lookup(&question(&format!("{long}{number}.example.net."))).await;
        assert_eq!(addresses(&answer.unwrap()), [1]);
    }
    let server = &resolver.stats().servers[0];
    assert_eq!((server.case_mismatches, server.spoof_suspicions), (1, 0));
    assert_eq!(fake.seen(|seen| seen.tcp), [false, true, false, false]);
    let names = fake.seen(name_seen);
    assert!(names[0].contains(|letter: char| letter.is_ascii_uppercase()), "{}", names[0]);
    assert_eq!(names[2..], [1, 2].map(|number| format!("{long}{number}.example.net.")));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_loses_the_case_and_has_no_tcp_is_forgiven() {
    let _still = Still::begin();
    let fake =
        Fake::start(
            |seen| if seen.tcp { vec![Deed::Close] } else { vec![Deed::Send(lower(seen))] },
        );
    let fake = fake.await;
    let resolver = resolver(&[&fake]);
    let name = "a-name-with-letters-enough-to-be-mixed.example.net.";
    let answer = resolver.lookup(&question(name)).await.unwrap();
    assert_eq!(addresses(&answer), [1]);
    assert_eq!(fake.seen(name_seen).last().unwrap(), name);
}

#[tokio::test(start_paused = true)]
async fn a_forger_who_does_not_know_the_case_is_found_out() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        if seen.tcp {
            return vec![good(seen)];
        }
        vec![Deed::Send(forged(seen, |octets| octets[13] ^= 0x20))]
    })
    .await;
    let resolver = resolver(&[&fake]);
    let answer = resolver.lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(addresses(&answer), [1], "not the forger's");
    let server = &resolver.stats().servers[0];
    assert_eq!((server.case_mismatches, server.spoof_suspicions), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_edns_is_asked_without() {
    let _still = Still::begin();
    let fake = Fake::answering(|message| {
        if message.edns.take().is_some() {
            message.queries.clear();
            message.metadata.response_code = ResponseCode::FormErr;
        } else {
            answer_with(1)(message);
        }
    })
    .await;
    let resolver = resolver(&[&fake]);
    for name in ["a.example.net.", "b.example.net."] {
        let answer = resolver.lookup(&question(name)).await.unwrap();
        assert_eq!(addresses(&answer), [1]);
    }
    let with_edns = |seen: &Seen| Message::from_vec(&seen.octets).unwrap().edns.is_some();
    // By TCP as well, since anybody could have sent an error that does not say what it answers.
    assert_eq!(fake.seen(with_edns), [true, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn an_error_without_its_question_is_nobodys() {
    let _still = Still::begin();
    for code in [ResponseCode::NXDomain, ResponseCode::FormErr, ResponseCode::Refused] {
        let fake = Fake::start(move |seen| {
            if seen.tcp {
                return vec![good(seen)];
            }
            let bare = respond(&seen.octets, |message| {
                message.queries.clear();
                message.edns = None;
                message.metadata.response_code = code;
            });
            vec![Deed::Send(bare)]
        })
        .await;
        let resolver = resolver(&[&fake]);
        for name in ["a.example.net.", "b.example.net."] {
            let answer = resolver.lookup(&question(name)).await.unwrap();
            assert_eq!(addresses(&answer), [1], "{code}");
        }
        let with_edns = |seen: &Seen| Message::from_vec(&seen.octets).unwrap().edns.is_some();
        assert_eq!(fake.seen(with_edns), [true; 4], "{code}");
        assert_eq!(resolver.stats().servers[0].mismatches, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_with_neither_edns_nor_tcp_is_asked_without() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| {
        let bare = |message: &mut Message| {
            message.queries.clear();
            message.metadata.response_code = ResponseCode::FormErr;
        };
        let answer = |message: &mut Message| match message.edns.take() {
            Some(_) => bare(message),
            None => answer_with(1)(message),
        };
        vec![if seen.tcp { Deed::Close } else { Deed::Send(respond(&seen.octets, answer)) }]
    })
    .await;
    let resolver = resolver(&[&fake]);
    for name in ["a.example.net.", "b.example.net."] {
        let answer = resolver.lookup(&question(name)).await.unwrap();
        assert_eq!(addresses(&answer), [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn ports_and_identifiers_change() {
    let _still = Still::begin();
    let fake = Fake::answering(answer_with(1)).await;
    let resolver = resolver(&[&fake]);
    for number in 0..100 {
        resolver.lookup(&question(&format!("n{number}.example.net."))).await.unwrap();
    }
    // Seven sockets, of which two may have had one port after the other. How many questions a socket serves is tested
    // where it is decided, in `udp`.
    let ports: HashSet<u16> = fake.seen(|seen| seen.from.port()).into_iter().collect();
    assert!((6..=7).contains(&ports.len()), "{ports:?}");
    let ids: HashSet<[u8; 2]> =
        fake.seen(|seen| [seen.octets[0], seen.octets[1]]).into_iter().collect();
    assert!(ids.len() > 90, "{} identifiers in 100 queries", ids.len());
}

#[tokio::test(start_paused = true)]
async fn questions_at_one_time_go_by_ports_of_their_own() {
    let _still = Still::begin();
    let fake = Fake::answering(answer_with(1)).await;
    let resolver = resolver(&[&fake]);
    let questions: Vec<_> = (0..50).map(|n| question(&format!("n{n}.example.net."))).collect();
    let lookups = questions.iter().map(|question| resolver.lookup(question));
    for answer in futures_util::future::join_all(lookups).await {
        assert_eq!(addresses(&answer.unwrap()), [1]);
    }
    let ports: HashSet<u16> = fake.seen(|seen| seen.from.port()).into_iter().collect();
    assert_eq!(ports.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn nobody_there_is_known_at_once() {
    let _still = Still::begin();
    let nobody = Nobody::new();
    let resolver = Resolver::new(Settings::new(vec![Server::udp(nobody.address)])).unwrap();
    let error = resolver.lookup(&question("www.example.net.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unreachable);
    assert!(resolver.stats().servers[0].unreachable > 0);
    assert_eq!(resolver.stats().failures, 1);
}

#[tokio::test(start_paused = true)]
async fn extended_errors_are_kept_and_other_options_are_not() {
    let _still = Still::begin();
    use hickory_proto::op::Edns;
    use hickory_proto::rr::rdata::opt::EdnsOption;

    let fake = Fake::answering(|message| {
        let edns = message.edns.get_or_insert_with(Edns::new);
        edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, 6]));
        edns.options_mut().insert(EdnsOption::Unknown(10, vec![0; 24]));
        message.metadata.response_code = ResponseCode::ServFail;
    })
    .await;
    let answer = resolver(&[&fake]).lookup(&question("www.example.net.")).await.unwrap();
    assert_eq!(answer.message.response_code, ResponseCode::ServFail);
    let edns = answer.message.edns.clone().unwrap();
    let codes: Vec<u16> = edns.options().as_ref().iter().map(|(code, _)| (*code).into()).collect();
    assert_eq!(codes, [15]);
}
