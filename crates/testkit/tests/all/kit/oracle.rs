use fordway_testkit::fuzz;
use fordway_testkit::oracle::{check, translate};
use fordway_testkit::packet::PacketSpec;
use fordway_xlat::{Offload, State};

#[test]
fn pieces_that_do_not_join_up_are_seen() {
    let spec: PacketSpec = toml::from_str(
        "v4 = { src = \"192.0.2.1\", dst = \"198.51.100.2\" }\nudp = {}\npayload = 4000",
    )
    .unwrap();
    let input = spec.build().unwrap().bytes;
    let translator = fuzz::translator(0);
    let whole = translate(translator, &mut State::new(1), &input, Offload::default());
    assert!(whole.packets.len() > 2, "{whole:?}");
    let judge = |change: fn(&mut Vec<Vec<u8>>)| {
        let mut outcome = whole.clone();
        change(&mut outcome.packets);
        check(translator.config(), &input, Offload::default(), &outcome)
    };
    assert_eq!(judge(|_| {}), Ok(()));
    assert!(judge(|packets| drop(packets.remove(1))).is_err(), "a hole");
    assert!(judge(|packets| drop(packets.pop())).is_err(), "no end");
    assert!(judge(|packets| packets.swap(0, 1)).is_err(), "another order");
    assert!(judge(|packets| packets[1][47] ^= 1).is_err(), "two identifications");
}
