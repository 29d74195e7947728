//! The subcommands, one file each.

mod bench;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
mod control;
mod desired;
mod discover;
mod doctor;
#[cfg(feature = "dstm")]
mod dstm;
mod explain;
mod export;
mod generate;
mod import;
mod pcap;
mod run;
mod stats;
mod status;
mod tables;
mod takeover;
mod top;
mod trace;

use fordway_daemon::failure::Failure;

use crate::cli::{Cli, Command};

/// Does what the command line asks for.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let Cli { global, command } = cli;
    match command {
        Command::Run(args) => run::file(&global, &args),
        Command::Reload(args) => control::reload(&global, &args),
        Command::LogLevel { level } => control::log_level(&global, level),
        Command::Measure(args) => control::measure(&global, &args),
        Command::Down(args) => control::down(&global, &args),
        Command::Leave => control::leave(&global),
        Command::Takeover(args) => takeover::run(&global, &args),
        Command::Trace(args) => trace::run(&global, &args),
        Command::Bench(args) => bench::run(&args),
        Command::Clat(args) => run::options(&global, args.load()?, args.print_config()),
        Command::Siit(args) => run::options(&global, args.load()?, args.print_config()),
        Command::Nat64(args) => run::options(&global, args.load()?, args.print_config()),
        Command::Softwire(args) => run::options(&global, args.load()?, args.print_config()),
        #[cfg(feature = "nat-pt")]
        Command::NatPt(args) => run::options(&global, args.load()?, args.print_config()),
        #[cfg(feature = "nat44")]
        Command::Nat44(args) => run::options(&global, args.load()?, args.print_config()),
        Command::DualStack(args) => run::options(&global, args.load()?, args.print_config()),
        Command::Dns64(args) => run::options(&global, args.load()?, args.print_config()),
        Command::Trt(args) => run::options(&global, args.load()?, args.print_config()),
        Command::Proxy(args) => run::options(&global, args.load()?, args.print_config()),
        #[cfg(feature = "dstm")]
        Command::Dstm(command) => dstm::run(&global, command),
        Command::Check(args) => check::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Discover(args) => discover::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Doctor(args) => doctor::run(&global, &args),
        Command::Status(args) => status::run(&global, &args),
        Command::Stats(args) => stats::run(&global, &args),
        Command::Top(args) => top::run(&global, &args),
        Command::Bib(args) => tables::bib(&global, args),
        Command::Sessions(args) => tables::sessions(&global, args),
        Command::Subscribers(args) => tables::subscribers(&global, args),
        Command::Dns64Cache(args) => tables::dns64_cache(&global, args),
        Command::Drain(args) => tables::drain(&global, &args),
        #[cfg(feature = "cluster")]
        Command::Cluster(args) => cluster::run(&global, args.command),
        Command::Apply(args) => desired::apply(&global, &args),
        Command::Get(args) => desired::get(&global, &args),
        Command::Watch(args) => desired::watch(&global, &args),
        Command::Schema { of } => generate::schema(of),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::manual(&dir),
    }
}
