use super::*;

const PREF64: &str = "2001:db8:64::/96";
const OTHER: &str = "2001:db8:65::/96";

fn pool6(text: &str) -> Pool6 {
    Pool6::new(text.parse().unwrap()).unwrap()
}

fn device(name: &str) -> Device {
    let index = 10 + u32::from(name.as_bytes()[name.len() - 1]);
    Device {
        name: name.to_owned(),
        index,
        hardware_address: vec![2, 0, 0, 0, 0, index as u8],
        up: true,
    }
}

fn hop(name: &str) -> Hop {
    Hop { device: device(name), source: None }
}

fn address(device: &str, net: &str) -> Address {
    Address { device: device.to_owned(), net: net.parse().unwrap(), deprecated: false }
}

fn advertised(pref64: &str, name: &str) -> Prefix {
    let device = Some(name.to_owned());
    Prefix { pool6: pool6(pref64), device, rank: 0, hop: Some(hop(name)) }
}

fn by_dns(pref64: &str, name: &str) -> Prefix {
    Prefix { pool6: pool6(pref64), device: None, rank: 1, hop: Some(hop(name)) }
}

fn native() -> Option<Native> {
    Some(Native { device: "eth0".to_owned(), metric: 100 })
}

/// An IPv6-only network with NAT64 on `eth0`.
fn network() -> View {
    View {
        prefixes: vec![advertised(PREF64, "eth0")],
        default: Some(hop("eth0")),
        addresses: vec![address("eth0", "2001:db8:1::2/64")],
        ..View::default()
    }
}

/// A CLAT at a time that goes on.
struct Clat {
    machine: Machine,
    now: Instant,
}

impl Clat {
    fn new() -> Clat {
        Clat::with(|_| {})
    }

    fn with(adjust: impl FnOnce(&mut Settings)) -> Clat {
        let mut settings = Settings {
            name: "clat0".to_owned(),
            uplink: None,
            v6: None,
            always: false,
            metric: 2048,
            machine: b"machine".to_vec(),
        };
        adjust(&mut settings);
        Clat { machine: Machine::new(settings), now: Instant::now() }
    }

    /// What it does `millis` later.
    fn step(&mut self, millis: u64, view: &View) -> Step {
        self.now += Duration::from_millis(millis);
        self.machine.step(view, self.now)
    }

    fn after(&mut self, millis: u64, view: &View) -> Decision {
        self.step(millis, view).decision
    }

    #[track_caller]
    fn desired(&mut self, millis: u64, view: &View) -> Desired {
        match self.after(millis, view) {
            Decision::Active(desired) => desired,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn waits(&mut self, millis: u64, view: &View) -> String {
        match self.after(millis, view) {
            Decision::Waiting(wait) => wait.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_aside(&mut self, millis: u64, view: &View) {
        let decision = self.after(millis, view);
        assert!(matches!(decision, Decision::Aside(_)), "{decision:?}");
    }
}

#[test]
fn it_starts_before_the_network() {
    let mut clat = Clat::new();
    let mut view = View::default();
    assert_eq!(clat.waits(0, &view), "no IPv6 default route");
    view.deaf = Some("eth0".to_owned());
    let said = clat.waits(0, &view);
    assert!(said.ends_with("unless net.ipv6.conf.eth0.accept_ra is 2"), "{said}");
    view.default = Some(hop("eth0"));
    let said = clat.waits(10, &view);
    assert!(said.starts_with("no prefix found on eth0: neither a router's"), "{said}");
    view.prefixes.push(advertised(PREF64, "eth0"));
    let said = clat.waits(10, &view);
    assert!(said.starts_with("eth0 has no global IPv6 address with a /64"), "{said}");
    view.addresses.push(address("eth0", "2001:db8:1::2/64"));
    let desired = clat.desired(0, &view);
    assert_eq!(desired.pref64, pool6(PREF64));
    assert_eq!(desired.uplink, device("eth0"));
    assert!("2001:db8:1::/64".parse::<Ipv6Net>().unwrap().contains(&desired.v6));
    assert!(desired.on_link);
}

#[test]
fn it_stays_through_what_does_not_concern_it() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    // Other prefixes, other addresses, other devices.
    view.prefixes.push(by_dns(OTHER, "eth0"));
    view.addresses.insert(0, address("eth1", "2001:db8:9::2/64"));
    view.addresses.insert(0, address("eth0", "2001:db8:2::2/64"));
    let step = clat.step(1000, &view);
    assert_eq!(step, Step { decision: Decision::Active(first), again: None });
}

#[test]
fn another_prefix_is_taken_at_once() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    view.prefixes = vec![advertised(OTHER, "eth0")];
    let second = clat.desired(10, &view);
    assert_eq!(second, Desired { pref64: pool6(OTHER), ..first });
}

#[test]
fn of_equal_prefixes_the_one_in_use_stays_and_an_advertised_one_beats_dns() {
    let mut clat = Clat::new();
    let mut view = network();
    view.prefixes = vec![by_dns(PREF64, "eth0")];
    assert_eq!(clat.desired(0, &view).pref64, pool6(PREF64));
    view.prefixes = vec![by_dns(OTHER, "eth0"), by_dns(PREF64, "eth0")];
    assert_eq!(clat.desired(0, &view).pref64, pool6(PREF64));
    view.prefixes.insert(0, advertised(OTHER, "eth0"));
    assert_eq!(clat.desired(0, &view).pref64, pool6(OTHER));
    // The advertisement ends, DNS says the same.
    view.prefixes.remove(0);
    assert_eq!(clat.desired(0, &view).pref64, pool6(OTHER));
}

#[test]
fn a_withdrawn_prefix_ends_it_after_a_moment() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    view.prefixes.clear();
    let step = clat.step(500, &view);
    assert_eq!(step.decision, Decision::Active(first));
    assert_eq!(step.again, Some(clat.now + LINGER));
    assert!(clat.waits(3000, &view).starts_with("no prefix found on eth0"));
}

#[test]
fn a_route_that_is_written_anew_disturbs_nothing() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    let away = View { default: None, prefixes: Vec::new(), addresses: Vec::new(), ..view.clone() };
    for _ in 0..10 {
        assert_eq!(clat.desired(2000, &away), first);
        assert_eq!(clat.step(500, &view).again, None);
    }
    // Not for ever.
    assert_eq!(clat.desired(1, &away), first);
    assert_eq!(clat.waits(3000, &away), "no IPv6 default route");
    // The same network gives the same address.
    view.addresses.push(address("eth0", "2001:db8:7::2/64"));
    assert_eq!(clat.desired(3_600_000, &view), first);
}

#[test]
fn renumbering_is_followed_when_the_old_network_is_deprecated_or_goes() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    view.addresses.push(address("eth0", "2001:db8:2::2/64"));
    assert_eq!(clat.desired(0, &view), first);
    view.addresses[0].deprecated = true;
    let second = clat.desired(0, &view);
    assert!("2001:db8:2::/64".parse::<Ipv6Net>().unwrap().contains(&second.v6));
    view.addresses.remove(0);
    assert_eq!(clat.desired(0, &view), second);
    // All deprecated: better than none.
    view.addresses[0].deprecated = true;
    assert_eq!(clat.desired(0, &view), second);
    assert_eq!(Clat::new().desired(0, &view).v6, second.v6);
    // Temporary addresses (RFC 8981) come and go in a network that stays.
    view.addresses.push(address("eth0", "2001:db8:2::abcd/64"));
    assert_eq!(clat.desired(0, &view), second);
    view.addresses.remove(0);
    assert_eq!(clat.desired(0, &view), second);
}

#[test]
fn the_network_is_the_one_of_the_kernels_own_choice_and_not_a_local_one() {
    let mut clat = Clat::new();
    let mut view = network();
    view.addresses.insert(0, address("eth0", "fd00:db8::2/64"));
    view.prefixes[0].hop =
        Some(Hop { source: Some("2001:db8:1::2".parse().unwrap()), ..hop("eth0") });
    let global = clat.desired(0, &view);
    assert_eq!(global.v6.segments()[..4], [0x2001, 0xdb8, 1, 0]);
    // The unique local one came first; it is left when a global one comes.
    let mut clat = Clat::new();
    let both = view.clone();
    view.addresses.pop();
    view.prefixes[0].hop = Some(hop("eth0"));
    assert!(clat.desired(0, &view).v6.is_unique_local());
    assert_eq!(clat.desired(0, &both), global);
}

#[test]
fn the_network_is_of_the_kind_of_the_prefix() {
    let local = "fd00:db8:64::/96";
    for pref64 in [PREF64, "64:ff9b::/96", local] {
        let mut view = network();
        view.addresses.push(address("eth0", "fd00:db8::2/64"));
        view.prefixes = vec![advertised(pref64, "eth0")];
        let mut clat = Clat::new();
        assert_eq!(clat.desired(0, &view).v6.is_unique_local(), pref64 == local, "{pref64}");
        // Another kind of prefix: so has the address.
        let other = if pref64 == local { PREF64 } else { local };
        view.prefixes = vec![advertised(other, "eth0")];
        assert_eq!(clat.desired(100, &view).v6.is_unique_local(), other == local, "{other}");
    }
}

#[test]
fn another_device_takes_over() {
    let mut clat = Clat::new();
    let mut view = network();
    let wired = clat.desired(0, &view);
    view.addresses.push(address("wlan1", "2001:db8:8::2/64"));
    view.default = Some(hop("wlan1"));
    view.prefixes = vec![Prefix { hop: Some(hop("wlan1")), ..advertised(PREF64, "eth0") }];
    // What eth0's router says does not hold for wlan1.
    assert_eq!(clat.desired(100, &view), wired);
    view.prefixes = vec![advertised(OTHER, "wlan1")];
    let wireless = clat.desired(100, &view);
    assert_eq!((wireless.pref64, wireless.uplink.name.as_str()), (pool6(OTHER), "wlan1"));
    assert_eq!(wireless.v6.segments()[..4], [0x2001, 0xdb8, 8, 0]);
}

#[test]
fn a_device_that_comes_back_under_its_name_is_another() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    let mut back = hop("eth0");
    back.device.index += 100;
    view.default = Some(back.clone());
    view.prefixes[0].hop = Some(back.clone());
    let second = clat.desired(0, &view);
    assert_eq!(second, Desired { uplink: back.device, ..first });
}

#[test]
fn a_prefix_with_a_route_of_its_own_needs_no_default_route() {
    let mut clat = Clat::new();
    let view = View { default: None, prefixes: vec![by_dns(PREF64, "eth0")], ..network() };
    assert_eq!(clat.desired(0, &view).uplink.name, "eth0");
}

#[test]
fn a_configured_uplink_is_waited_for() {
    let mut clat = Clat::with(|settings| settings.uplink = Some("wwan0".to_owned()));
    let mut view = network();
    assert_eq!(clat.waits(0, &view), "there is no device wwan0");
    view.uplink = Some(Device { up: false, ..device("wwan0") });
    assert_eq!(clat.waits(0, &view), "wwan0 is down");
    view.uplink = Some(device("wwan0"));
    assert!(clat.waits(0, &view).starts_with("no prefix found on wwan0"));
    view.prefixes = vec![by_dns(PREF64, "eth0")];
    let said = clat.waits(0, &view);
    assert_eq!(said, "the route to 2001:db8:64::/96 leads out of eth0, not of wwan0");
    view.prefixes = vec![by_dns(PREF64, "wwan0")];
    view.addresses.push(address("wwan0", "2001:db8:3::2/64"));
    assert_eq!(clat.desired(0, &view).uplink.name, "wwan0");
}

#[test]
fn without_neighbours_nobody_else_can_have_the_address() {
    let mut clat = Clat::new();
    let mut view = network();
    let mut modem = hop("ppp0");
    modem.device.hardware_address.clear();
    view.prefixes = vec![Prefix { hop: Some(modem), ..advertised(PREF64, "ppp0") }];
    view.addresses = vec![address("ppp0", "2001:db8:4::1/64")];
    assert!(!clat.desired(0, &view).on_link);
    // A single address is no network.
    view.addresses = vec![address("ppp0", "2001:db8:4::1/128")];
    assert!(Clat::new().waits(0, &view).contains("ppp0 has no global IPv6 address with a /64"));
}

#[test]
fn a_configured_address_is_used_as_it_is() {
    let v6: Ipv6Addr = "2001:db8:ff::464".parse().unwrap();
    let mut clat = Clat::with(|settings| settings.v6 = Some(v6));
    let mut view = network();
    // A delegated prefix: nobody on the link asks for it.
    let desired = clat.desired(0, &view);
    assert_eq!((desired.v6, desired.on_link), (v6, false));
    view.addresses.push(address("eth0", "2001:db8:ff::2/64"));
    assert!(clat.desired(0, &view).on_link);
    // Given up at once, not after a while.
    view.addresses.push(address("lo", "2001:db8:ff::464/128"));
    assert_eq!(
        clat.waits(0, &view),
        "the CLAT's IPv6 address 2001:db8:ff::464 is the host's own, on lo"
    );
    view.addresses.pop();
    assert_eq!(clat.desired(0, &view).v6, v6);
    clat.machine.is_taken(v6, clat.now);
    assert_eq!(clat.waits(0, &view), "another host on the link has the address 2001:db8:ff::464");
    // It is tried again later.
    assert_eq!(clat.desired(600_000, &view).v6, v6);
}

#[test]
fn a_taken_address_gives_way_to_the_next_which_stays() {
    let mut clat = Clat::new();
    let view = network();
    let mut seen = vec![clat.desired(0, &view).v6];
    for _ in 0..3 {
        clat.machine.is_taken(*seen.last().unwrap(), clat.now);
        let next = clat.desired(0, &view).v6;
        assert!(!seen.contains(&next), "{next}");
        seen.push(next);
    }
    let last = clat.desired(0, &view).v6;
    // Not back to an earlier one that might be free meanwhile.
    assert_eq!(clat.desired(900_000, &view).v6, last);
    for v6 in seen {
        clat.machine.is_taken(v6, clat.now);
    }
    assert!(clat.waits(0, &view).starts_with("another host on the link has the address"));
}

#[test]
fn an_address_of_the_hosts_own_is_not_taken() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view).v6;
    view.addresses.push(address("eth0", &format!("{first}/128")));
    assert_ne!(clat.desired(0, &view).v6, first);
}

#[test]
fn native_ipv4_from_the_beginning_leaves_it_aside() {
    let mut clat = Clat::new();
    let mut view = View { native: native(), ..network() };
    clat.is_aside(0, &view);
    view.native = None;
    let step = clat.step(1000, &view);
    assert!(matches!(step.decision, Decision::Aside(_)));
    assert_eq!(step.again, Some(clat.now + RETURN));
    clat.desired(1000, &view);
}

#[test]
fn native_ipv4_that_stays_sends_it_aside_and_that_goes_brings_it_back() {
    let mut clat = Clat::new();
    let mut view = network();
    let first = clat.desired(0, &view);
    view.native = native();
    let step = clat.step(0, &view);
    assert_eq!(step.decision, Decision::Active(first.clone()));
    assert_eq!(step.again, Some(clat.now + SETTLE));
    // Gone again: nothing has happened.
    view.native = None;
    assert_eq!(clat.step(1900, &view).again, None);
    view.native = native();
    clat.desired(100, &view);
    clat.desired(1999, &view);
    clat.is_aside(1, &view);
    view.native = None;
    clat.is_aside(0, &view);
    assert_eq!(clat.desired(1000, &view), first);
}

#[test]
fn native_ipv4_that_comes_and_goes_is_waited_for_longer_and_longer() {
    let mut clat = Clat::new();
    let mut view = network();
    clat.desired(0, &view);
    let mut delays = Vec::new();
    for _ in 0..9 {
        view.native = native();
        clat.desired(0, &view);
        clat.is_aside(2000, &view);
        view.native = None;
        let step = clat.step(0, &view);
        let again = step.again.unwrap();
        delays.push((again - clat.now).as_secs());
        clat.now = again;
        clat.desired(0, &view);
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    // Forgotten after some quiet.
    view.native = native();
    clat.desired(300_000, &view);
    clat.is_aside(2000, &view);
    view.native = None;
    let again = clat.step(0, &view).again.unwrap();
    assert_eq!(again - clat.now, RETURN);
}

#[test]
fn always_means_always_and_a_worse_route_is_none() {
    let mut clat = Clat::with(|settings| settings.always = true);
    let mut view = View { native: native(), ..network() };
    clat.desired(0, &view);
    clat.desired(10_000, &view);
    // A network manager found that this one leads nowhere.
    view.native = Some(Native { device: "eth0".to_owned(), metric: 20_100 });
    let mut clat = Clat::new();
    clat.desired(0, &view);
    clat.desired(10_000, &view);
    // Equal metrics can't both be in force.
    view.native = Some(Native { device: "eth0".to_owned(), metric: 2048 });
    clat.desired(0, &view);
    clat.is_aside(2000, &view);
}

#[test]
fn another_configuration_is_taken_up_where_it_stands() {
    let mut clat = Clat::new();
    let view = View { native: native(), ..network() };
    clat.is_aside(0, &view);
    let settings = Settings { always: true, ..clat.machine.settings.clone() };
    clat.machine.configure(settings);
    clat.is_aside(0, &view);
    clat.desired(1000, &view);
}

#[test]
fn whatever_happens_a_time_is_never_in_the_past() {
    // Every combination of what may change, in an order that meets most neighbours.
    let mut clat = Clat::new();
    let mut state = 1u32;
    for _ in 0..20_000 {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let mut view = network();
        if state & 1 == 0 {
            view.native = native();
        }
        if state & 2 == 0 {
            view.prefixes.clear();
        }
        if state & 4 == 0 {
            view.default = None;
            view.prefixes.iter_mut().for_each(|prefix| prefix.hop = None);
        }
        if state & 8 == 0 {
            view.addresses.clear();
        }
        let step = clat.step(u64::from(state >> 20), &view);
        assert!(step.again.is_none_or(|again| again > clat.now), "{step:?}");
        if let Decision::Active(desired) = &step.decision {
            assert!(!view.addresses.iter().any(|own| own.net.addr() == desired.v6));
        }
    }
}
