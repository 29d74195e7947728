//! On which processors a thread may run.
//!
//! A queue's thread that stays where it is keeps packets in order behind it (the kernel queues what it sends per
//! processor) and finds its buffer in that processor's cache.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors on which the calling thread may run, by number, ascending.
///
/// Errors: the host has more processors than the set holds (1024).
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Lets the calling thread, and the threads it makes from now on, run on these processors only.
///
/// Errors: `EINVAL` if none of them exists or is allowed to the process.
pub fn set_processors(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &processor in processors.iter().filter(|&&processor| processor < CpuSet::MAX_CPU) {
        set.set(processor);
    }
    sched_setaffinity(None, &set)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let allowed = allowed_processors().unwrap();
        let last = *allowed.last().unwrap();
        std::thread::spawn(move || {
            set_processors(&[last]).unwrap();
            assert_eq!(allowed_processors().unwrap(), [last]);
            let child = std::thread::spawn(|| allowed_processors().unwrap());
            assert_eq!(child.join().unwrap(), [last]);
            assert!(set_processors(&[]).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(allowed_processors().unwrap(), allowed);
    }
}
