//! The node's part: entries of pods, and routes to CLATs.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use fordway_bpf::{Pod, PodPrograms, Pods, attached_pods, pods_root, remove_empty};
use fordway_net::{IpNet, NamespaceId, Netlink, Route};

use crate::{Code, Failure, Result, run};

/// Error number of the kernel: there is no such route.
const ESRCH: i32 = 3;
/// Error number of the kernel: there is no such device.
const ENODEV: i32 = 19;
/// How often the way to a pod is looked for again, and the time between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The node that the plugin runs on: a network namespace.
#[derive(Debug)]
pub(crate) struct Node {
    /// Tells its namespace from others.
    pub(crate) name: String,
    pub(crate) inode: u64,
    folder: PathBuf,
}

impl Node {
    /// That of the calling thread.
    pub(crate) fn current() -> Result<Node> {
        let id = NamespaceId::current()?;
        let name = id.to_string();
        Ok(Node { folder: pods_root().join(&name), name, inode: id.inode })
    }

    /// The entries, if there are any.
    pub(crate) fn pods(&self) -> Result<Option<Pods>> {
        Ok(Pods::open(&self.folder)?)
    }

    /// Writes a pod's entry, if it is not there as it has to be. `make`: the pod with these programs. Entries of pods that
    /// had the same address and are gone without DEL are removed.
    pub(crate) fn enter(
        &self,
        programs: impl FnOnce(&Pods) -> Result<PodPrograms>,
        make: impl FnOnce(&PodPrograms) -> Pod,
    ) -> Result<PodPrograms> {
        let _lock = run::lock(&self.name)?;
        let pods = Pods::create(&self.folder)?;
        let programs = programs(&pods)?;
        let pod = make(&programs);
        for (other, _) in pods.list()? {
            if other == pod {
                return Ok(programs);
            }
            if clash(&other, &pod) {
                let what = format!(
                    "the pod {} with its CLAT {} and the pod {} with its CLAT {} would share an address",
                    pod.address, pod.clat, other.address, other.clat
                );
                return Err(Failure::new(Code::Configuration, what).details(
                    "pods' addresses have to differ behind clatPrefix, and to lie outside of it",
                ));
            }
            if other.key == pod.key || other.clat == pod.clat {
                pods.remove(other.key)?;
            }
        }
        if !pods.insert(&pod)? {
            let what = "there is no room for another pod";
            return Err(Failure::new(Code::Later, what)
                .details("does the runtime call DEL or GC? `fordway-cni list` shows the pods"));
        }
        Ok(programs)
    }

    /// Whether a pod's entry is as [`Node::enter`] has left it. [`Node::clean`] is over, or comes later.
    pub(crate) fn has(&self, pod: &Pod) -> Result<bool> {
        let _lock = run::lock(&self.name)?;
        let found = self.pods()?.map(|pods| pods.get(pod.key)).transpose()?.flatten();
        Ok(found.is_some_and(|(found, _)| found == *pod))
    }

    /// Removes entries and routes of pods that have no programs at a device any more: such a pod is gone, or its ADD has
    /// not come to its end. Returns these pods.
    pub(crate) fn clean(&self) -> Result<Vec<Pod>> {
        if self.pods()?.is_none() {
            return Ok(Vec::new());
        }
        // No ADD finds out that its entry is there, and attaches programs after the look at them: it needs the lock then.
        let _lock = run::lock(&self.name)?;
        let Some(pods) = self.pods()? else { return Ok(Vec::new()) };
        let mut gone: Vec<Pod> = pods.list()?.into_iter().map(|(pod, _)| pod).collect();
        let keys: Vec<u64> = gone.iter().map(|pod| pod.key).collect();
        let attached = attached_pods(&keys)?;
        gone.retain(|pod| !attached.contains(&pod.key));
        for pod in &gone {
            Node::unroute(pod.clat)?;
            pods.remove(pod.key)?;
        }
        pods.tidy()?;
        self.forget()?;
        Ok(gone)
    }

    /// Removes pods' entries, and what no pod uses any more.
    pub(crate) fn leave(&self, keys: &[u64]) -> Result<()> {
        let _lock = run::lock(&self.name)?;
        let Some(pods) = self.pods()? else { return self.forget() };
        for key in keys {
            pods.remove(*key)?;
        }
        pods.tidy()?;
        self.forget()
    }

    /// Without entries no file is left, and no folder that is empty. The lock is held.
    fn forget(&self) -> Result<()> {
        if self.pods()?.is_some() {
            return Ok(());
        }
        remove_empty(&self.folder);
        run::forget(&self.name);
        Ok(())
    }

    /// Routes the CLAT's address as the pod's own. Where the same route leads to both, as on a bridge, nothing is needed:
    /// the pod answers for both addresses.
    pub(crate) fn route(pod: Ipv6Addr, clat: Ipv6Addr) -> Result<()> {
        let mut tries = TRIES;
        while let Some(route) = wanted_route(pod, clat)? {
            match Netlink::open()?.replace_route(&route) {
                // The route led over the device of an earlier pod with this address, which the kernel is removing. Its route
                // goes with it.
                Err(error) if is_gone(&error) && tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(PAUSE);
                }
                done => return Ok(done?),
            }
        }
        Ok(())
    }

    /// Whether both addresses are routed alike.
    pub(crate) fn is_routed(pod: Ipv6Addr, clat: Ipv6Addr) -> Result<bool> {
        Ok(wanted_route(pod, clat)?.is_none())
    }

    /// Removes the route. It is no error if there is none.
    pub(crate) fn unroute(clat: Ipv6Addr) -> Result<()> {
        let mut route = Route::new(IpNet::from(IpAddr::V6(clat)), "");
        // Whatever device it leads out of.
        route.device = None;
        match Netlink::open()?.delete_route(&route) {
            Err(error) if error.errno() != Some(ESRCH) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether an address of one pod is another's. A pod with the same address of its own is an earlier one, which is gone.
fn clash(other: &Pod, pod: &Pod) -> bool {
    let same = other.clat == pod.clat && other.address != pod.address;
    same || other.clat == pod.address || other.address == pod.clat
}

/// Whether the device of a route is gone.
fn is_gone(error: &fordway_net::Error) -> bool {
    matches!(error, fordway_net::Error::NoDevice(_)) || error.errno() == Some(ENODEV)
}

fn wanted_route(pod: Ipv6Addr, clat: Ipv6Addr) -> Result<Option<Route>> {
    let mut netlink = Netlink::open()?;
    // A node that does not reach its pods carries none of their packets.
    let Some(to_pod) = netlink.next_hop(pod.into())? else { return Ok(None) };
    let to_clat = netlink.next_hop(clat.into())?;
    if to_clat.is_some_and(|it| it.device == to_pod.device && it.gateway == to_pod.gateway) {
        return Ok(None);
    }
    let mut route = Route::new(IpNet::from(IpAddr::V6(clat)), &to_pod.device);
    route.gateway = to_pod.gateway;
    Ok(Some(route))
}
