//! Features and drivers of devices, by the `ethtool` interface of the kernel (`linux/ethtool.h`).

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// Commands, and the set of strings that names features.
const GET_DRIVER_INFO: u32 = 3;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const FEATURES: u32 = 4;

/// 32-bit words of a name.
const NAME_WORDS: usize = 8;

/// More features than any kernel has: it writes all names that it knows.
const MOST: usize = 1024;

/// Whether a feature is on at a device; `None`: the kernel does not know the feature.
pub(crate) fn feature(device: &str, name: &str) -> io::Result<Option<bool>> {
    // struct ethtool_sset_info: command, reserved, mask of 64 bits, a count for each bit.
    let mut counts = [GET_STRING_COUNTS, 0, 0, 0, 0];
    let mask = (1u64 << FEATURES).to_ne_bytes();
    for (word, octets) in counts[2..4].iter_mut().zip(mask.chunks_exact(4)) {
        *word = octets.try_into().map_or(0, u32::from_ne_bytes);
    }
    ask(device, &mut counts)?;
    let count = counts[4] as usize;
    if count > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // struct ethtool_gstrings: command, set, count, names.
    let mut strings = vec![0u32; 3 + MOST * NAME_WORDS];
    strings[..3].copy_from_slice(&[GET_STRINGS, FEATURES, count as u32]);
    ask(device, &mut strings)?;
    let mut names = strings[3..].chunks_exact(NAME_WORDS).take(count);
    let is_it = |words: &[u32]| {
        let octets = words.iter().flat_map(|word| word.to_ne_bytes());
        octets.take_while(|octet| *octet != 0).eq(name.bytes())
    };
    let Some(index) = names.position(is_it) else { return Ok(None) };
    // struct ethtool_gfeatures: command, count of blocks of 32 features: available, requested, active, never changed.
    let blocks = count.div_ceil(32);
    let mut features = vec![0u32; 2 + blocks * 4];
    features[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
    ask(device, &mut features)?;
    Ok(Some(features[2 + index / 32 * 4 + 2] >> (index % 32) & 1 == 1))
}

/// The name of a device's driver.
pub(crate) fn driver(device: &str) -> io::Result<String> {
    // struct ethtool_drvinfo: command, then names of 32 octets, the driver's first; 196 octets in all.
    let mut info = [0u32; 49];
    info[0] = GET_DRIVER_INFO;
    ask(device, &mut info)?;
    let octets = info[1..1 + NAME_WORDS].iter().flat_map(|word| word.to_ne_bytes());
    let name: Vec<u8> = octets.take_while(|octet| *octet != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// Makes a request. It has to be as long as the kernel takes its command to be.
fn ask(device: &str, request: &mut [u32]) -> io::Result<()> {
    // SAFETY: all octets zero is a value of this struct of integers and unions of integers and pointers.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays zero.
    let room = interface.ifr_name.len() - 1;
    if device.len() > room {
        return Err(io::ErrorKind::NotFound.into());
    }
    for (to, from) in interface.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    interface.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    // A socket of any family takes the request.
    let socket = UnixDatagram::unbound()?;
    // SAFETY: the request names a device and points to a command whose struct, with all that the kernel writes behind
    // it, lies in `request`: one count for one bit of the mask, at most MOST names, as many blocks as were asked for.
    // Both outlive the call.
    super::done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut interface) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_loopback_device_has_no_driver_to_speak_of() {
        // The kernel refuses, or names none of those that send redirected frames.
        assert!(super::driver("lo").map_or(true, |driver| driver != "i40e"));
        assert!(super::driver("no-such-device").is_err());
    }
}
