//! What the ALG has done.

fordway_xlat::events! {
    /// What is counted, each in messages.
    DnsCounter,
    /// How often each has happened.
    DnsCounters:
    Queries, "queries", "Questions for addresses of the client's family, and for names of addresses.";
    ToA, "aaaa_to_a", "Answers with AAAA records that have become A records.";
    ToAaaa, "a_to_aaaa", "Answers with A records that have become AAAA records.";
    Pointers, "ptr", "Answers with names of addresses.";
    Exhausted, "exhausted", "Answers that were SERVFAIL for want of an address.";
    ClientLimit, "client_limit", "Bindings that were refused because their client has caused too many.";
    Dnssec, "dnssec", "Questions of clients that validate by themselves, which pass unchanged.";
    NotAllowed, "not_allowed", "Questions of IPv4 clients that are not on the list, which pass unchanged.";
    Malformed, "malformed", "Messages that could not be read, which pass unchanged.";
    TooMany, "too_many", "Questions for which there was no room, which pass unchanged.";
}
