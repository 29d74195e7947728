use super::*;
use crate::tests::name;

#[test]
fn names_cover_themselves_and_what_is_below() {
    let names = Names::from_iter(["example.net.", "*.example.org."].map(name));
    for text in
        ["example.net.", "EXAMPLE.NET.", "a.example.net.", "a.b.*.example.net.", "x.*.example.org."]
    {
        assert!(names.cover(&name(text)), "{text}");
    }
    for text in
        ["net.", ".", "anexample.net.", "example.net.org.", "example.org.", "a.example.org."]
    {
        assert!(!names.cover(&name(text)), "{text}");
    }
    assert!(!Names::default().cover(&name("example.net.")));
    assert!(Names::from_iter([name(".")]).cover(&name("example.net.")), "the root is above all");
    assert!(
        Names::from_iter([name("example.net")]).cover(&name("a.example.net.")),
        "written without the last dot"
    );
}

#[test]
fn of_names_within_each_other_the_longest_counts() {
    let mut names = Names::from_iter([name("example.net.")]);
    names.set(name("A.example.net"), false);
    names.set(name("b.a.example.net."), true);
    for (text, is_in) in [
        ("example.net.", true),
        ("x.example.net.", true),
        ("a.example.net.", false),
        ("x.a.example.net.", false),
        ("b.a.example.net.", true),
        ("x.b.A.example.net.", true),
    ] {
        assert_eq!(names.cover(&name(text)), is_in, "{text}");
    }
}

#[test]
fn mapped_addresses_are_excluded_by_default() {
    let policy = Policy::default();
    assert!(!policy.is_usable("::ffff:192.0.2.1".parse().unwrap()));
    assert!(policy.is_usable("::fffe:ffff:192.0.2.1".parse().unwrap()));
    assert!(policy.is_usable("2001:db8::1".parse().unwrap()));
}

#[test]
fn the_longest_prefix_covers() {
    let pool6 = ["2001:db8::/32", "2001:db8:64::/96"].map(|it| it.parse().unwrap());
    let policy = Policy { pool6: pool6.into(), ..Policy::default() };
    let covering = |text: &str| policy.covering(text.parse().unwrap()).map(|it| it.to_string());
    assert_eq!(covering("2001:db8:64::1").as_deref(), Some("2001:db8:64::/96"));
    assert_eq!(covering("2001:db8:65::1").as_deref(), Some("2001:db8::/32"));
    assert_eq!(covering("64:ff9b::1").as_deref(), Some("64:ff9b::/96"));
    assert_eq!(covering("2001:2::1"), None);
}
