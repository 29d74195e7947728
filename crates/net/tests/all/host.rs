//! Namespaces and sysctls.

use crate::common::{can_test, in_namespace, ip};
use fordway_net::privilege::{self, Capability};
use fordway_net::{Error, Host, Ipv6State, NamespaceId, NetNs, Netlink, SysctlKey, sysctl};
use fordway_testhost::is_root;

/// A namespace with a name of its own, deleted at the end.
struct Named(String);

impl Named {
    fn new() -> Self {
        let nonce = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        let name = format!("fwtest-{}", &nonce[..13]);
        ip(&format!("netns add {name}"));
        Self(name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.0));
    }
}

#[test]
fn work_runs_inside_and_the_caller_stays_outside() {
    if !can_test() {
        return;
    }
    let named = Named::new();
    let here = NamespaceId::current().unwrap();
    let namespace = NetNs::open(&named.0).unwrap();
    let (there, links) = namespace
        .run(|| {
            let links = Netlink::open().unwrap().links().unwrap();
            (NamespaceId::current().unwrap(), links)
        })
        .unwrap();
    assert_ne!(there, here);
    assert!(there.cookie.is_some() && there.cookie != here.cookie);
    assert_eq!(links.len(), 1);
    assert_eq!(NamespaceId::current().unwrap(), here);
    let current = NetNs::current().unwrap();
    assert_eq!(current.run(|| NamespaceId::current().unwrap()).unwrap(), here);

    let path = format!("/run/netns/{}", named.0);
    let by_path = NetNs::open(&path).unwrap();
    assert_eq!(by_path.run(|| NamespaceId::current().unwrap()).unwrap(), there);
}

#[test]
fn what_is_no_namespace_is_refused() {
    let error = NetNs::open("no-such-namespace").unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
    assert!(error.to_string().contains("/run/netns/no-such-namespace"));
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_str().unwrap(), "/proc/self/ns/uts"] {
        let error = NetNs::open(path).unwrap().run(|| ()).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL), "{path}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn panics_come_through() {
    let here = NetNs::current().unwrap();
    let caught = std::panic::catch_unwind(|| here.run(|| std::panic::resume_unwind(Box::new(46))));
    assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 46);
}

#[test]
fn settings_are_read_and_written() {
    in_namespace(|| {
        let forwarding = SysctlKey::forwarding_v6();
        for value in ["1", "0"] {
            sysctl::write(&forwarding, value).unwrap();
            assert_eq!(sysctl::read(&forwarding).unwrap(), value);
        }
        let range: SysctlKey = "net.ipv4.ip_local_port_range".parse().unwrap();
        sysctl::write(&range, "2000 3000").unwrap();
        assert_eq!(sysctl::read(&range).unwrap(), "2000 3000");

        let nothing = SysctlKey::conf_v4("nothing", "rp_filter").unwrap();
        for error in
            [sysctl::read(&nothing).unwrap_err(), sysctl::write(&nothing, "1").unwrap_err()]
        {
            assert_eq!(error.errno(), Some(libc::ENOENT));
            assert!(error.to_string().contains("net.ipv4.conf.nothing.rp_filter"));
            assert!(error.hint().is_some());
        }
        let error = sysctl::write(&forwarding, "many").unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().contains("set to many"), "{error}");
    });
}

#[test]
fn the_host_is_looked_at() {
    in_namespace(|| {
        let host = Host::probe();
        assert!(host.tun.is_ok());
        let disable = SysctlKey::conf_v6("default", "disable_ipv6").unwrap();
        sysctl::write(&disable, "0").unwrap();
        assert_eq!(Ipv6State::probe(), Ipv6State::Enabled);
        sysctl::write(&disable, "1").unwrap();
        assert_eq!(Ipv6State::probe(), Ipv6State::DisabledBySysctl);
    });
}

#[test]
fn a_process_with_threads_does_not_drop_privileges() {
    if !is_root() {
        return;
    }
    // The test harness runs this beside its own thread.
    assert!(privilege::has(Capability::CAP_NET_ADMIN).unwrap());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| privilege::drop_all_but(&[]).unwrap_err());
        let error = thread.join().unwrap();
        assert!(matches!(error, Error::Privilege { .. }), "{error}");
    });
    assert!(privilege::has(Capability::CAP_NET_ADMIN).unwrap());
}
