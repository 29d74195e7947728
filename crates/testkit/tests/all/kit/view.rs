use fordway_testkit::packet::PacketSpec;
use fordway_testkit::view::View;

fn built(text: &str) -> Vec<u8> {
    toml::from_str::<PacketSpec>(text).unwrap().build().unwrap().bytes
}

#[test]
fn reads_what_the_builder_wrote() {
    let bytes = built(
        r#"v6 = { src = "2001:db8::1", dst = "2001:db8::2", tc = 0xab, hop = 9 }
           ext = [{ kind = "dstopts" }, { kind = "fragment", id = 0x12345678 }]
           udp = {}
           payload = 100
           slice = [0, 64]"#,
    );
    let view = View::of(&bytes).unwrap();
    assert_eq!((view.class, view.hop, view.protocol, view.transport), (0xab, 9, 17, 56));
    assert_eq!((view.offset, view.more, view.identification), (0, true, 0x1234_5678));
    assert_eq!(view.length, bytes.len());
}

#[test]
fn deviation_is_zero_exactly_when_the_checksum_is_right() {
    for transport in ["udp = {CSUM}", "tcp = {CSUM}", "icmp = { type = 8 CSUM}", "dccp = {CSUM}"] {
        for (checksum, right) in [("", true), (r#"checksum = "bad""#, false)] {
            let comma = if transport.contains("type") && !checksum.is_empty() { "," } else { "" };
            let transport = transport.replace("CSUM", &format!("{comma}{checksum}"));
            let text = format!(
                "v4 = {{ src = \"192.0.2.1\", dst = \"192.0.2.2\" }}\n{transport}\npayload = 33"
            );
            let bytes = built(&text);
            let deviation = View::of(&bytes).unwrap().deviation().unwrap();
            assert_eq!(deviation == 0, right, "{text}");
        }
    }
}
