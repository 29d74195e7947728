//! A namespace's set-up as text, to be compared before and after.

use super::netns::Netns;

/// Everything that the daemon may change, as lines. What the kernel does by itself is left out:
/// multicast routes, path MTUs it learned, and on a TUN interface that had a carrier once, its state,
/// its own link-local address and the mode that it was made by.
pub(crate) fn snapshot(netns: &Netns) -> Vec<String> {
    netns.settle();
    let text = [
        netns.ip_batch("-4", &["rule", "route", "neigh show proxy"]),
        netns.ip_batch("-6", &["rule", "route show table all", "neigh show proxy"]),
        netns.ip_batch("-o", &["addr", "link"]),
        netns.settings(&[
            "forwarding",
            "proxy_ndp",
            "proxy_delay",
            "accept_ra",
            "rp_filter",
            "addr_gen",
        ]),
    ]
    .concat();
    let by_itself = |line: &str| {
        let of_tun = line.contains("clat0") || line.contains("siit0");
        line.contains("multicast ff00")
            || line.contains("anycast")
            || of_tun && (line.contains("fe80:") || line.contains("addr_gen_mode"))
    };
    let lines = text.lines().filter(|line| !by_itself(line));
    lines
        .map(|line| {
            let state = [
                "linkdown ",
                "NO-CARRIER,",
                ",LOWER_UP",
                "state UNKNOWN ",
                "state DOWN ",
                "state UP ",
                // An address that came a moment ago; it may have come between two looks.
                "tentative ",
            ];
            let line = state.iter().fold(line.to_owned(), |line, state| line.replace(state, ""));
            let line = without_lifetimes(&line);
            // The first time up sets a queueing discipline.
            line.replace("qdisc noop", "qdisc mq").trim().to_owned()
        })
        .collect()
}

/// Lifetimes that a router has told run down; how much is left of them is no setting.
fn without_lifetimes(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 1..words.len() {
        let is_time = ["expires", "valid_lft", "preferred_lft"].contains(&words[at - 1]);
        if is_time && words[at].ends_with("sec") {
            words[at] = "soon";
        }
    }
    words.join(" ")
}

/// Two snapshots must be equal; shows only the lines that differ.
#[track_caller]
pub(crate) fn assert_same(now: &[String], before: &[String]) {
    let more: Vec<_> = now.iter().filter(|line| !before.contains(line)).collect();
    let less: Vec<_> = before.iter().filter(|line| !now.contains(line)).collect();
    assert!(more.is_empty() && less.is_empty(), "more: {more:#?}\nless: {less:#?}");
}
