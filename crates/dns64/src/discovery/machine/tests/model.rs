//! The machine against naive models: a list of everything that was said, looked through each time.

use proptest::prelude::*;

use super::*;

const PREFIXES: [&str; 3] = ["2001:db8:a::/96", "2001:db8:b::/64", "64:ff9b::/96"];

/// What happens in a network with two links and two routers.
#[derive(Clone, Debug)]
enum Happening {
    Wait(u64),
    Advertisement { device: u32, router: u16, options: Vec<(usize, u64)> },
    Link { device: u32, up: bool, flapped: bool, route: Option<u32> },
    Remove { device: u32 },
    Resumed,
}

fn happening() -> impl Strategy<Value = Happening> {
    let lifetime = prop_oneof![Just(0u64), Just(8), Just(16), Just(64), Just(600)];
    let options = prop::collection::vec((0..PREFIXES.len(), lifetime), 0..4);
    let route = prop_oneof![Just(None), (1u32..4).prop_map(Some)];
    prop_oneof![
        4 => prop_oneof![0u64..30, Just(100), Just(1000)].prop_map(Happening::Wait),
        6 => (1u32..3, 1u16..3, options).prop_map(|(device, router, options)| {
            Happening::Advertisement { device, router, options }
        }),
        2 => (1u32..3, any::<bool>(), any::<bool>(), route).prop_map(
            |(device, up, flapped, route)| Happening::Link { device, up, flapped, route }
        ),
        1 => (1u32..3).prop_map(|device| Happening::Remove { device }),
        1 => Just(Happening::Resumed),
    ]
}

/// One thing that was said: by whom, when, and for how long.
#[derive(Clone, Debug)]
struct Word {
    device: u32,
    router: u16,
    prefix: usize,
    at: Time,
    lifetime: Duration,
}

/// Everything that was ever said and happened.
#[derive(Default)]
struct Model {
    words: Vec<Word>,
    /// When a link came up, went down, or was taken away.
    ups: Vec<(u32, Time)>,
    downs: Vec<(u32, Time)>,
    removals: Vec<(u32, Time, usize)>,
    links: Vec<Link>,
}

impl Model {
    /// The prefixes of a device at `now`, first those said since it came up last.
    fn of(&self, device: u32, now: Time) -> Vec<usize> {
        let last = |times: &[(u32, Time)]| {
            times.iter().filter(|(one, _)| *one == device).map(|(_, at)| *at).max()
        };
        let up = last(&self.ups).unwrap_or_default();
        let down = last(&self.downs);
        let is_down = self.links.iter().any(|link| link.device.index == device && !link.up);
        if is_down && down.is_some_and(|at| now >= at + secs(10)) {
            return Vec::new();
        }
        let removed = self.removals.iter().filter(|(one, ..)| *one == device).map(|(.., at)| *at);
        let first = removed.max().unwrap_or(0);
        let mut order: Vec<(u16, usize)> = Vec::new();
        let mut alive: Vec<(u16, usize, Time)> = Vec::new();
        for word in self.words.iter().skip(first) {
            if word.device != device {
                continue;
            }
            let key = (word.router, word.prefix);
            // What had ended before it was said again begins at the end of the order.
            let ended = |one: &(u16, usize, Time)| !self.lives(one, device, word.at);
            order.retain(|known| {
                let gone = alive.iter().any(|one| (one.0, one.1) == *known && ended(one));
                !gone
            });
            alive.retain(|one| !ended(one) && (one.0, one.1) != key);
            if word.lifetime.is_zero() {
                order.retain(|known| *known != key);
                continue;
            }
            if !order.contains(&key) {
                order.push(key);
            }
            alive.push((word.router, word.prefix, word.at));
        }
        let mut prefixes = Vec::new();
        for recent in [true, false] {
            for key in &order {
                let word = alive.iter().find(|one| (one.0, one.1) == *key);
                let Some(word) = word.filter(|one| self.lives(one, device, now)) else {
                    continue;
                };
                // Said in the present life of the link?
                let is_recent = word.2 >= up;
                if is_recent == recent && !prefixes.contains(&key.1) {
                    prefixes.push(key.1);
                }
            }
        }
        prefixes
    }

    fn word(&self, (router, prefix, at): &(u16, usize, Time), device: u32) -> &Word {
        let is_it = |word: &&Word| {
            (word.device, word.router, word.prefix, word.at) == (device, *router, *prefix, *at)
        };
        self.words.iter().rfind(is_it).expect("it was said")
    }

    /// Whether something that was said is still so at `now`.
    fn lives(&self, one: &(u16, usize, Time), device: u32, now: Time) -> bool {
        let word = self.word(one, device);
        if now >= word.at + word.lifetime {
            return false;
        }
        // Ten seconds of a link that is down, or twelve after one came up, are the end of it.
        let mine = |times: &[(u32, Time)]| -> Vec<Time> {
            times.iter().filter(|(one, _)| *one == device).map(|(_, at)| *at).collect()
        };
        let (ups, downs) = (mine(&self.ups), mine(&self.downs));
        let over = ups.iter().any(|up| {
            // Of several in succession only the last counts: the time begins anew.
            let next = ups.iter().filter(|other| *other > up).min();
            let end = *up + secs(12);
            *up > word.at && now >= end && next.is_none_or(|next| *next >= end)
        });
        let unplugged = downs.iter().any(|down| {
            let next = ups.iter().filter(|up| *up >= down).min();
            let end = *down + secs(10);
            *down >= word.at && now >= end && next.is_none_or(|next| *next >= end)
        });
        !over && !unplugged
    }

    fn expected(&self, now: Time) -> Vec<String> {
        let mut links: Vec<&Link> =
            self.links.iter().filter(|link| link.default_route.is_some()).collect();
        links.sort_by_key(|link| (link.default_route, link.device.index));
        let of = |link: &Link| self.of(link.device.index, now);
        let prefixes = links.into_iter().flat_map(of);
        prefixes.map(|prefix| PREFIXES[prefix].to_owned()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn machine_and_model_agree_about_advertisements(
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut host = Host::new(Settings { dns: false, ..Settings::default() });
        let mut model = Model::default();
        for happening in happenings {
            // No two things at the same moment.
            host.pass(Duration::from_millis(1));
            let now = host.now;
            match happening.clone() {
                Happening::Wait(seconds) => host.pass(secs(seconds)),
                Happening::Advertisement { device, router: from, options } => {
                    let up = model.links.iter().any(|one| one.device.index == device && one.up);
                    if up {
                        // Of one option several times, the last one counts.
                        for (at, (prefix, lifetime)) in options.iter().enumerate() {
                            let lifetime = secs(*lifetime);
                            let at = now + Duration::from_nanos(at as u64);
                            model.words.push(Word {
                                device, router: from, prefix: *prefix, at, lifetime,
                            });
                        }
                    }
                    let pref64: Vec<(&str, u64)> =
                        options.iter().map(|(prefix, life)| (PREFIXES[*prefix], *life)).collect();
                    host.advertise(device, from, &pref64, &[]);
                    host.pass(Duration::from_micros(1));
                }
                Happening::Link { device, up, flapped, route } => {
                    let old = model.links.iter().find(|one| one.device.index == device).cloned();
                    let mut new = link(device, up);
                    new.default_route = route;
                    match old.as_ref().map(|old| old.up) {
                        Some(true) if !up => model.downs.push((device, now)),
                        Some(true) if flapped => model.ups.push((device, now)),
                        None | Some(false) if up => model.ups.push((device, now)),
                        _ => {}
                    }
                    model.links.retain(|one| one.device.index != device);
                    model.links.push(new.clone());
                    let mut links = model.links.clone();
                    links.last_mut().unwrap().was_down = flapped && old.is_some();
                    host.handle(Event::Links(links));
                }
                Happening::Remove { device } => {
                    model.links.retain(|one| one.device.index != device);
                    model.removals.push((device, now, model.words.len()));
                    host.handle(Event::Links(model.links.clone()));
                }
                Happening::Resumed => {
                    for link in model.links.iter().filter(|link| link.up) {
                        model.ups.push((link.device.index, now));
                    }
                    host.handle(Event::Resumed);
                }
            }
            prop_assert_eq!(host.prefixes(), model.expected(host.now), "after {:?}", happening);
        }
    }
}

/// What a resolver says at some time.
#[derive(Clone, Debug, PartialEq)]
enum Voice {
    Prefixes(usize, u32),
    Nothing,
    Silence,
}

fn voice() -> impl Strategy<Value = Voice> {
    let ttl = prop_oneof![Just(0u32), Just(30), Just(60), Just(300), Just(3600)];
    prop_oneof![
        (0..PREFIXES.len(), ttl).prop_map(|(prefix, ttl)| Voice::Prefixes(prefix, ttl)),
        Just(Voice::Nothing),
        Just(Voice::Silence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Resolvers that change their mind at any time: what is used is what the one that told it said at
    /// last, and nobody is asked while he has said that there is nothing.
    #[test]
    fn machine_and_model_agree_about_resolvers(
        voices in prop::collection::vec((prop::collection::vec(voice(), 2), 1u64..4000), 1..20),
    ) {
        let mut host = Host::new(Settings { advertisements: false, ..Settings::default() });
        let servers = ["[2001:db8::1]:53", "[2001:db8::2]:53"].map(resolver);
        host.handle(Event::Links(vec![link(1, true)]));
        host.handle(Event::Resolvers(servers.to_vec()));
        // Who told what, until when; and until when each has said that there is nothing.
        let mut told: Option<(usize, usize, Time)> = None;
        let mut nothing = [Time::ZERO; 2];
        let mut answered = 0;
        for (voices, seconds) in voices {
            let until = host.now + secs(seconds);
            loop {
                while answered < host.asked.len() {
                    let (at, ask) = host.asked[answered].clone();
                    answered += 1;
                    prop_assert_eq!(answered, host.asked.len(), "one question at a time");
                    let who = servers.iter().position(|one| *one == ask.server).unwrap();
                    prop_assert!(at >= nothing[who], "asked although there is nothing");
                    match voices[who] {
                        Voice::Prefixes(prefix, ttl) => {
                            told = Some((who, prefix, host.now + secs(ttl.max(60).into())));
                            let address = pool6(PREFIXES[prefix]).embed([192, 0, 0, 170].into());
                            host.answer(ttl, &[&address.to_string()]);
                        }
                        Voice::Nothing => {
                            told.take_if(|(one, ..)| *one == who);
                            // Without an SOA record there is no time to live: a minute.
                            nothing[who] = host.now + secs(60);
                            host.answer(0, &[]);
                        }
                        Voice::Silence => {
                            host.now += secs(2);
                            host.fail();
                        }
                    }
                }
                let stale = |until: Time| until + secs(3600);
                let expected: Vec<String> = told
                    .filter(|(.., until)| host.now < stale(*until))
                    .map(|(_, prefix, _)| PREFIXES[prefix].to_owned())
                    .into_iter()
                    .collect();
                prop_assert_eq!(host.prefixes(), expected);
                let used = host.discovery.found(host.now).prefixes;
                if let (Some(prefix), Some((.., until))) = (used.first(), told) {
                    prop_assert_eq!(prefix.stale, host.now >= until);
                }
                match host.discovery.deadline(host.now) {
                    Some(next) if next <= until => {
                        host.now = next;
                        host.poll();
                    }
                    _ => break,
                }
            }
            host.now = host.now.max(until);
            host.poll();
        }
        // At least once in five minutes, and not all the time.
        let bound = 40 + (host.now - secs(1000)).as_secs() / 10;
        prop_assert!((host.asked.len() as u64) < bound, "{} questions", host.asked.len());
    }
}
