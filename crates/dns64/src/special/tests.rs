use crate::tests::{World, check, policy, query};
use crate::{Kind, Names, Policy};

const SOA: &str = "! ipv4only.arpa. 600 SOA ipv4only.arpa. nobody.invalid. 1 3600 1200 604800 600";

#[test]
fn a_is_known() {
    let response = check(
        &policy(),
        "A ipv4only.arpa.",
        &[],
        "NOERROR AA\nipv4only.arpa. 3600 A 192.0.0.170\nipv4only.arpa. 3600 A 192.0.0.171",
    );
    assert_eq!((response.kind, response.lifetime), (Kind::Local, 3600));
}

#[test]
fn aaaa_is_a_pair_for_each_prefix_in_order() {
    let pool6 = ["64:ff9b::/96", "2001:db8:122:344::/64"].map(|it| it.parse().unwrap());
    let policy = Policy { pool6: pool6.into(), ..Policy::default() };
    check(
        &policy,
        "AAAA ipv4only.arpa.",
        &[],
        "NOERROR AA\nipv4only.arpa. 600 AAAA 64:ff9b::c000:aa\nipv4only.arpa. 600 AAAA 64:ff9b::c000:ab\n\
         ipv4only.arpa. 600 AAAA 2001:db8:122:344:c0:0:aa00:0\n\
         ipv4only.arpa. 600 AAAA 2001:db8:122:344:c0:0:ab00:0",
    );
}

#[test]
fn the_well_known_prefix_is_told_although_the_addresses_are_not_global() {
    check(
        &Policy::default(),
        "AAAA ipv4only.arpa.",
        &[],
        "NOERROR AA\nipv4only.arpa. 600 AAAA 64:ff9b::c000:aa\nipv4only.arpa. 600 AAAA 64:ff9b::c000:ab",
    );
}

#[test]
fn synthetic_addresses_say_so_to_those_who_understand() {
    let addresses =
        "ipv4only.arpa. 600 AAAA 64:ff9b::c000:aa\nipv4only.arpa. 600 AAAA 64:ff9b::c000:ab";
    let (policy, asked) = (Policy::default(), "AAAA ipv4only.arpa. edns");
    check(&policy, asked, &[], &format!("NOERROR AA ede=29\n{addresses}"));
    // What is fixed, and what is not there, is not synthesised.
    for asked in ["MX ipv4only.arpa. edns", "AAAA x.ipv4only.arpa. edns", "A ipv4only.arpa. edns"] {
        let world = World::new(&[]);
        let response = world.resolve(&policy, &query(asked));
        assert_eq!(crate::ede::Ede::of(&response.message), [], "{asked}");
    }
}

#[test]
fn all_other_types_are_empty() {
    for kind in ["MX", "NS", "SOA", "TXT", "ANY", "CNAME", "HTTPS", "TYPE65280"] {
        let asked = format!("{kind} ipv4only.arpa.");
        check(&policy(), &asked, &[], &format!("NOERROR AA\n{SOA}"));
    }
}

#[test]
fn names_below_do_not_exist() {
    for asked in ["A x.ipv4only.arpa.", "AAAA a.b.ipv4only.arpa.", "DS x.ipv4only.arpa."] {
        let response = check(&policy(), asked, &[], &format!("NXDOMAIN AA\n{SOA}"));
        assert_eq!(response.lifetime, 600);
    }
}

#[test]
fn ds_is_resolved_the_usual_way() {
    let soa = "! arpa. 300 SOA ns.example.net. admin.example.net. 1 3600 600 86400 60";
    let text = format!("NOERROR\n{soa}");
    check(&policy(), "DS ipv4only.arpa.", &[("DS ipv4only.arpa.", &text)], &text);
}

#[test]
fn nothing_changes_the_answer() {
    let names = Names::from_iter([crate::tests::name("arpa.")]);
    let policy =
        Policy { exempt: names, exclude_a: vec!["192.0.0.0/24".parse().unwrap()], ..policy() };
    for (asked, flag) in [
        ("AAAA IPv4only.ARPA.", ""),
        ("AAAA ipv4only.arpa. do", ""),
        ("AAAA ipv4only.arpa. do cd", " CD"),
        ("AAAA ipv4only.arpa. cd", " CD"),
        ("AAAA ipv4only.arpa. nord", ""),
    ] {
        let owner = asked.split(' ').nth(1).unwrap();
        let why = if asked.contains(" do") { " ede=29" } else { "" };
        let expected = format!(
            "NOERROR AA{flag}{why}\n{owner} 600 AAAA 2001:db8:64::c000:aa\n{owner} 600 AAAA 2001:db8:64::c000:ab"
        );
        check(&policy, asked, &[], &expected);
    }
}

#[test]
fn the_reverse_names_in_in_addr_arpa_are_left_alone() {
    let asked = "PTR 170.0.0.192.in-addr.arpa.";
    let text = "NOERROR\n170.0.0.192.in-addr.arpa. 300 PTR ipv4only.arpa.";
    check(&policy(), asked, &[(asked, text)], text);
}

#[test]
fn no_prefix_for_all_addresses_is_no_prefix_to_tell() {
    let range = crate::Range {
        v4: "198.51.100.0/24".parse().unwrap(),
        pool6: vec!["2001:db8:a::/96".parse().unwrap()],
    };
    let policy = Policy { ranges: vec![range], ..Policy::default() };
    check(&policy, "AAAA ipv4only.arpa.", &[], &format!("NOERROR AA\n{SOA}"));
}

#[test]
fn the_letters_of_the_question_are_those_of_the_answer() {
    let response = World::new(&[]).resolve(&policy(), &query("A IPV4only.arpa."));
    assert_eq!(response.message.answers[0].name.to_ascii(), "IPV4only.arpa.");
}
