//! The resolver against servers that others have written: Unbound by every transport, and zones that BIND has signed.

mod signed;
mod transports;
mod world;
