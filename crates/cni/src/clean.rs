//! Removes what pods that are gone have left on the node, where no runtime calls DEL or GC any more.

use std::fmt;

use crate::node::Node;
use crate::{Code, Failure, Result};

/// What was removed, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// Pods that were gone: their entries and routes are removed.
    pub removed: usize,
    /// Pods that have a CLAT still.
    pub left: usize,
}

/// Removes entries and routes of pods of this node that are gone, and all files with the last one.
///
/// # Errors
///
/// The kernel refuses, for instance without the privilege, or pods are not seen from here. What is left then is found by the
/// next call.
pub fn clean() -> Result<Cleaned> {
    if !fordway_bpf::has_bpffs() {
        let what = "there is no BPF file system at /sys/fs/bpf, so entries of pods are not seen";
        return Err(Failure::new(Code::Io, what).details("a container needs the host's"));
    }
    let node = Node::current()?;
    let removed = node.clean()?.len();
    let left = node.pods()?.map(|pods| pods.list()).transpose()?.map_or(0, |pods| pods.len());
    Ok(Cleaned { removed, left })
}

impl fmt::Display for Cleaned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods = |number| if number == 1 { "pod" } else { "pods" };
        let Cleaned { removed, left } = *self;
        if removed > 0 {
            writeln!(f, "removed what {removed} {} had left", pods(removed))?;
        }
        match left {
            0 => write!(f, "no pod of this node has a CLAT, and nothing is left"),
            1 => write!(f, "1 pod has a CLAT until it ends"),
            _ => write!(f, "{left} pods have a CLAT until they end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_in_sentences() {
        let text = |removed, left| Cleaned { removed, left }.to_string();
        assert_eq!(text(0, 0), "no pod of this node has a CLAT, and nothing is left");
        assert_eq!(text(1, 1), "removed what 1 pod had left\n1 pod has a CLAT until it ends");
        assert_eq!(text(2, 3), "removed what 2 pods had left\n3 pods have a CLAT until they end");
    }
}
