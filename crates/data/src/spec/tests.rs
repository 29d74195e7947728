use super::*;

#[test]
fn built_in_experiments_parse_and_name_each_other() {
    let all = Experiment::built_in().unwrap();
    assert_eq!(all.len(), 23);
    for experiment in all {
        for profile in ["quick", "standard", "strict"] {
            experiment.profile(profile).unwrap();
        }
        assert!(experiment.mechanisms.iter().any(|m| m.same_as.is_some()), "no A/A pair");
        let stateful = |m: &&MechanismSpec| {
            matches!(m.kind, Kind::Nat64 | Kind::Nat44 | Kind::Xlat464)
                || m.kind.carries() != Carries::Packets
        };
        for arm in experiment.mechanisms.iter().filter(stateful) {
            // Nothing can be sent to a client that has not sent first.
            let from_outside = |m: &Metric| {
                matches!(
                    m.load(),
                    Some(
                        Load::Frames(Way::Down)
                            | Load::Pairs(Way::Down)
                            | Load::Imix(Way::Down)
                            | Load::Datagrams(Way::Down)
                            | Load::Paced(Way::Down)
                    )
                )
            };
            let own = if arm.metrics.is_empty() { &experiment.metrics } else { &arm.metrics };
            assert!(!own.iter().any(from_outside), "{}", arm.name);
        }
    }
}

#[test]
fn unknown_keys_and_names_are_refused() {
    let good = Experiment::text("nat64").unwrap();
    assert!(Experiment::parse(&format!("colour = 1\n{good}")).is_err());
    let bad = good.replace("sentinel = \"native-v6\"", "sentinel = \"nothing\"");
    assert!(matches!(Experiment::parse(&bad), Err(DataError::Experiment(_))));
}

#[test]
fn an_arm_that_cannot_be_is_refused_with_what_to_write() {
    let with = |arm: &str, change: (&str, &str)| {
        let mut spec = Experiment::find("interop-mechanisms").unwrap();
        let text = toml::to_string(spec.mechanism(arm).unwrap()).unwrap();
        let changed: MechanismSpec = toml::from_str(&text.replace(change.0, change.1)).unwrap();
        spec.mechanisms.retain(|m| m.name != arm);
        spec.mechanisms.push(changed);
        Experiment::parse(&toml::to_string(&spec).unwrap()).map(drop)
    };
    let error = |arm, change| with(arm, change).unwrap_err().to_string();
    assert!(with("trt-fordway", ("", "")).is_ok());
    let said = error("trt-fordway", ("hops = 1", "hops = 2"));
    assert!(said.contains("TRT stands in the one box"), "{said}");
    let said = error("trt-fordway", ("\"initiation\"", "\"rtt\""));
    assert!(said.contains("rtt is nothing that TRT carries"), "{said}");
    let said = error("trt-fordway", ("simplex_", "duplex_"));
    assert!(said.contains("from the server to the client, which TRT has not"), "{said}");
    let said = error("proxy-fordway", ("\"initiation\"]", "\"tcp_throughput_up\"]"));
    assert!(said.contains("tcp_throughput_up is nothing that Proxy carries"), "{said}");
    let said = error("clat-fordway-kernel", ("hops = 1", "hops = 1\nalg = [\"ftp\"]"));
    assert!(said.contains("leave alg out"), "{said}");
    let said = error(
        "clat-fordway-kernel",
        ("hops = 1", "hops = 1\nentries = { table = \"eam\", count = 1 }"),
    );
    assert!(said.contains("only SIIT by fordway has such a table"), "{said}");
    let siit = |count: u32| {
        let entries = format!("hops = 1\nentries = {{ table = \"eam\", count = {count} }}");
        with("siit-fordway-kernel", ("hops = 1", &entries)).map_err(|error| error.to_string())
    };
    assert_eq!([1, 1024, 131_072].map(siit), [const { Ok(()) }; 3]);
    assert!(siit(3).unwrap_err().contains("write a power of two"));
    assert!(siit(0).is_err() && siit(262_144).is_err());
}

#[test]
fn a_standby_is_refused_where_none_is_known() {
    let with = |arm: &str, change: (&str, &str)| {
        let mut spec = Experiment::find("failover").unwrap();
        let arm = spec.mechanisms.iter_mut().find(|m| m.name == arm).unwrap();
        let text = toml::to_string(arm).unwrap();
        *arm = toml::from_str(&text.replace(change.0, change.1)).unwrap();
        let parsed = Experiment::parse(&toml::to_string(&spec).unwrap());
        parsed.map_or_else(|error| error.to_string().contains("has a standby"), |_| false)
    };
    let told = ("takes-over", "told");
    assert!(with("nat64-jool", told) && with("nat44-conntrackd", told));
    assert!(!with("nat64-user", told), "a cluster is also told alone");
    assert!(with("nat64-jool", ("\"jool\"", "\"tayga\"")));
    assert!(with("nat64-jool", ("\"nat64\"", "\"siit\"")));
    for arm in ["nat64-jool", "nat44-conntrackd", "nat64-user"] {
        assert!(!with(arm, ("", "")), "{arm}");
    }
}

#[test]
fn a_run_that_names_nothing_known_is_refused() {
    let run = "[run]\nprofile = \"quick\"\nseed = 1\nblocks = 1\ndurations_s = [1]\n\
               clocksources = []\noffloads = true\nmechanisms = [\"native-v6\"]\n\
               replay = \"\"\n[run.skipped]\n[run.versions]\n";
    let with = |from: &str, to: &str| {
        Experiment::parse(&format!("{}{}", BUILT_IN[1], run.replace(from, to)))
    };
    assert!(with("", "").is_ok());
    assert!(with("\"quick\"", "\"huge\"").is_err());
    assert!(with("[\"native-v6\"]", "[\"native-v5\"]").is_err());
    assert!(with("blocks = 1", "blocks = 0").is_err());
    assert!(with("durations_s = [1]", "durations_s = []").is_err());
}

#[test]
fn a_sender_is_the_same_word_in_a_file_and_on_a_command_line() {
    for sender in [Sender::Best, Sender::Program, Sender::Socket] {
        let word = sender.to_string();
        assert_eq!(word.parse(), Ok(sender));
        assert_eq!(serde_json::to_value(sender).unwrap(), word);
    }
    assert!("sockets".parse::<Sender>().is_err());
}
