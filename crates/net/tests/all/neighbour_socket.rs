//! What a link's neighbours say, heard and sent without an address.

use crate::common::{in_namespace, ip, veth};
use fordway_net::{NeighbourReceiver, NeighbourSocket, Netlink};
use fordway_testhost::poll;

/// The next packet: its interface, its sender and its length.
fn heard(receiver: &NeighbourReceiver, buffer: &mut [u8]) -> (u32, [u8; 6], usize) {
    poll("a packet", || {
        receiver.receive(buffer).unwrap().map(|heard| (heard.index, heard.sender, heard.len))
    })
}

#[test]
fn it_hears_neighbours_on_one_link_as_long_as_it_is_told_to() {
    in_namespace(|| {
        veth();
        let mut netlink = Netlink::open().unwrap();
        let (here, there) = (netlink.link("veth0").unwrap(), netlink.link("veth1").unwrap());
        let group = [0x33, 0x33, 0xff, 0, 0, 1];
        let mut socket = NeighbourSocket::open().unwrap();
        let receiver = socket.receiver().unwrap();
        socket.listen(here.index, &[group]).unwrap();
        let sender = NeighbourSocket::open().unwrap();
        // A neighbor solicitation, and something else before it that is passed over.
        let mut packet = [0; 64];
        packet[0] = 0x60;
        packet[5] = 24;
        packet[6..8].copy_from_slice(&[58, 255]);
        packet[40] = 136;
        for (place, value) in [(6, 17), (7, 64), (40, 128)] {
            let mut other = packet;
            other[place] = value;
            sender.send(&other, there.index, group).unwrap();
        }
        sender.send(&packet, there.index, group).unwrap();
        let mut buffer = [0; 256];
        // The kernel's own talk at the start is heard too.
        loop {
            let (index, from, len) = heard(&receiver, &mut buffer);
            assert_eq!(index, here.index);
            if buffer[..len] == packet {
                assert_eq!(from.as_slice(), there.hardware_address);
                break;
            }
            assert!([135, 136].contains(&buffer[40]) && buffer[6..8] == [58, 255]);
        }
        socket.silence();
        sender.send(&packet, there.index, group).unwrap();
        socket.listen(there.index, &[]).unwrap();
        sender.send(&packet, here.index, group).unwrap();
        // The first thing that is not the kernel's own is from the other link.
        loop {
            let (index, _, len) = heard(&receiver, &mut buffer);
            assert_eq!(index, there.index);
            if buffer[..len] == packet {
                break;
            }
        }
        ip("link del veth0");
        assert_eq!(socket.listen(here.index, &[]).unwrap_err().errno(), Some(libc_enodev()));
    });
}

/// `ENODEV`.
fn libc_enodev() -> i32 {
    rustix::io::Errno::NODEV.raw_os_error()
}
