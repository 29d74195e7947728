//! What a build leaves out is refused, and not described. These tests hold in every build.

use fordway_config::{Feature, parse, schema, sections};

/// A file for each section and mode of a feature, and where the feature is asked for.
const FILES: [(Feature, &str, &str); 6] = [
    (
        Feature::NatPt,
        "[[translator]]\nname = 'natpt0'\nmode = 'nat-pt'\npool6 = ['2001:db8:64::/96']\naddresses = ['192.0.2.64/26']\n",
        "fordway.toml:3:1",
    ),
    (
        Feature::Nat44,
        "[[translator]]\nname = 'nat44'\nmode = 'nat44'\nclients = ['198.51.100.0/24']\nuplink = 'eth0'\n",
        "fordway.toml:3:1",
    ),
    (
        Feature::Dstm,
        "[[dstm_client]]\nname = 'dstm0'\nserver = ['2001:db8:f::1']\nkey_file = '/etc/fordway/dstm.key'\n",
        "fordway.toml:1:3",
    ),
    (
        Feature::Dstm,
        "[dstm_server]\nlisten = ['2001:db8:f::1']\npool = ['192.0.2.0/28']\ntep_address = '2001:db8:f::2'\n\
         tep_control = '2001:db8:f::2'\ntep_key_file = '/etc/fordway/tep.key'\n\
         client = [{ id = 'laptop', key_file = '/etc/fordway/laptop.key' }]\n",
        "fordway.toml:1:2",
    ),
    (
        Feature::Dstm,
        "[dstm_tep]\nlisten = '2001:db8:f::2'\ntep = 'tep0'\nkey_file = '/etc/fordway/tep.key'\n\
         [[translator]]\nname = 'tep0'\nmode = 'softwire'\nrole = 'tep'\nlocal = '2001:db8:f::2'\n",
        "fordway.toml:1:2",
    ),
    (
        Feature::Cluster,
        "[cluster]\nkey_file = '/etc/fordway/cluster.key'\ncertificate = '/etc/fordway/a.pem'\nkey = '/etc/fordway/a.key'\n\
         authority = '/etc/fordway/ca.pem'\nstore = { servers = ['tls://nats1.example'] }\n\
         gateway = [{ number = 1, name = 'gw1.example', address = '2001:db8::1' }]\n\
         [[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = 'user'\npool6 = ['64:ff9b::/96']\npool4 = ['192.0.2.1']\n",
        "fordway.toml:1:2",
    ),
];

#[test]
fn a_section_is_read_or_refused_with_its_place() {
    for (feature, text, place) in FILES {
        match parse("fordway.toml", text) {
            Ok(_) => assert!(feature.is_built_in(), "{text}"),
            Err(report) => {
                let said = report.render(false);
                assert!(!feature.is_built_in(), "{said}");
                let refused = format!("this program was built without {}", feature.name());
                assert!(said.contains(&refused) && said.contains(place), "{said}");
                assert_eq!(said.matches("error").count(), 1, "{said}");
            }
        }
    }
}

#[test]
fn what_is_left_out_is_not_described() {
    let schema = schema().to_string();
    let described = [
        (Feature::NatPt, "translator.nat-pt", "[\"nat-pt\"]"),
        (Feature::Dstm, "dstm_client", "\"dstm_client\":"),
        (Feature::Nat44, "translator.nat44", "[\"nat44\"]"),
        (Feature::Cluster, "cluster.store", "\"cluster\":"),
    ];
    for (feature, section, in_schema) in described {
        let has = sections().iter().any(|(name, _)| *name == section);
        assert_eq!(has, feature.is_built_in(), "{section}");
        assert_eq!(schema.contains(in_schema), feature.is_built_in(), "{in_schema}");
    }
}

#[test]
fn other_modes_are_read_in_every_build() {
    for mode in [
        "mode = 'dual-stack'\ndevices = ['lan0', 'wan0']",
        "mode = 'siit'\npool6 = ['64:ff9b::/96']",
    ] {
        let text = format!("[[translator]]\nname = 'one'\n{mode}\n");
        assert!(parse("fordway.toml", &text).is_ok(), "{text}");
    }
}
