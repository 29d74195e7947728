//! How much of a processor a lookup takes. It asserts nothing about time; run it by hand, optimised:
//!
//! `cargo test --release -p fordway-resolver --lib tests::speed -- --ignored --nocapture`

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, future};
use nix::time::{ClockId, clock_gettime};

use super::*;

/// How many different names are asked for.
const NAMES: usize = 50_000;
/// How many lookups are under way at once.
const AT_ONCE: usize = 200;

#[test]
#[ignore = "measures, and asserts nothing about time"]
fn lookups_per_second() {
    let server = serve();
    let settings = Settings { cache_octets: 256 << 20, ..Settings::new(vec![Server::udp(server)]) };
    let resolver = Resolver::new(settings).unwrap();
    let questions: Vec<Question> =
        (0..NAMES).map(|number| question(&format!("n{number}.example.net."))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for pass in ["uncached", "cached"] {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let answered = runtime.block_on(look_up_all(&resolver, &questions));
        let (wall, cpu) = (wall.elapsed(), cpu_time() - cpu);
        assert_eq!(answered, NAMES);
        let each = cpu.as_secs_f64() / NAMES as f64;
        let per_second = NAMES as f64 / wall.as_secs_f64();
        println!(
            "{pass}: {per_second:.0} lookups/s; {:.2} us of a processor each, so at most {:.0}/s",
            each * 1e6,
            1.0 / each
        );
    }
    let stats = resolver.stats();
    println!("{stats:?}");
    assert_eq!(stats.cache_hits, NAMES as u64);
}

async fn look_up_all(resolver: &Arc<Resolver>, questions: &[Question]) -> usize {
    let mut under_way = FuturesUnordered::new();
    let mut answered = 0;
    for question in questions {
        if under_way.len() == AT_ONCE {
            answered += usize::from(under_way.next().await == Some(true));
        }
        under_way.push(async { resolver.lookup(question).await.is_ok() });
    }
    answered + under_way.filter(|answered| future::ready(*answered)).count().await
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// A server in a thread that does as little as it can: one address for every question.
fn serve() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut octets = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut octets) {
            // The OPT record of 11 octets makes room for the address.
            let end = len - 11;
            octets[2] |= 0x80;
            octets[3] |= 0x80;
            octets[7] = 1;
            octets[11] = 0;
            let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1];
            octets[end..end + record.len()].copy_from_slice(&record);
            let _ = socket.send_to(&octets[..end + record.len()], from);
        }
    });
    address
}
