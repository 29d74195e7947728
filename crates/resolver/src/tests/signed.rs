//! A small signed tree of zones, and a server that answers from it as a resolver does.
//!
//! The root is signed; `example.net` is signed, `example.org` provably is not.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use fordway_dns64::dname_target;
use hickory_proto::dnssec::crypto::Ed25519SigningKey;
use hickory_proto::dnssec::rdata::sig::SigInput;
use hickory_proto::dnssec::rdata::{DNSKEY, DNSSECRData, DS, NSEC, RRSIG};
use hickory_proto::dnssec::{DigestType, SigningKey, TBS};
use hickory_proto::rr::rdata::NS;
use hickory_proto::rr::{DNSClass, SerialNumber};

use super::*;

/// The zones.
pub(super) struct Tree {
    zones: Vec<Zone>,
    /// Owners whose signatures are not right, and such without.
    pub(super) spoiled: Vec<Name>,
    pub(super) unsigned: Vec<Name>,
}

struct Zone {
    apex: Name,
    key: Option<Key>,
    records: BTreeMap<(Name, RecordType), Vec<Record>>,
}

struct Key {
    signing: Ed25519SigningKey,
    public: DNSKEY,
}

impl Tree {
    /// The tree, with a few names for every case.
    pub(super) fn new() -> Self {
        let mut root = Zone::new(".", true);
        let mut net = Zone::new("example.net.", true);
        let mut org = Zone::new("example.org.", false);
        for (apex, key) in [("example.net.", net.key.as_ref()), ("example.org.", None)] {
            root.add(Record::from_rdata(name(apex), 300, RData::NS(NS(name("ns.example.net.")))));
            if let Some(key) = key {
                let ds = key.digest(&name(apex));
                root.add(Record::from_rdata(name(apex), 300, RData::DNSSEC(DNSSECRData::DS(ds))));
            }
        }
        net.add(address("www.example.net.", 1));
        net.add(address("www.new.example.net.", 2));
        net.add(alias("near.example.net.", "www.example.net."));
        net.add(alias("far.example.net.", "www.example.org."));
        net.add(alias("there.example.net.", "back.example.net."));
        net.add(alias("back.example.net.", "there.example.net."));
        net.add(super::clean::dname("old.example.net.", "new.example.net."));
        org.add(address("www.example.org.", 3));
        org.add(alias("near.example.org.", "www.example.net."));
        Self { zones: vec![root, net, org], spoiled: Vec::new(), unsigned: Vec::new() }
    }

    /// The root's key as a record of a zone file.
    pub(super) fn root_key(&self) -> String {
        let key = &self.zones[0].key.as_ref().unwrap().public;
        format!(". 300 IN DNSKEY {key}\n")
    }

    /// The digest of the root's key as a record of a zone file.
    pub(super) fn root_digest(&self) -> String {
        let digest = self.zones[0].key.as_ref().unwrap().digest(&Name::root());
        format!(". 300 IN DS {digest}\n")
    }

    /// Answers a query.
    pub(super) fn answer(&self, message: &mut Message) {
        let query = message.queries[0].clone();
        let mut owner = query.name().to_lowercase();
        for _ in 0..8 {
            let zone = self.zone(&owner, query.query_type());
            if let Some(dname) = zone.dname(&owner) {
                message.answers.extend(self.signed(zone, vec![dname.clone()]));
                let target = dname_target(&dname, &owner).unwrap();
                message.answers.push(alias(&owner.to_ascii(), &target.to_ascii()));
                owner = target;
                continue;
            }
            let at = |kind| zone.records.get(&(owner.clone(), kind)).cloned();
            if let Some(records) = at(query.query_type()) {
                message.answers.extend(self.signed(zone, records));
                return;
            }
            let Some(records) = at(RecordType::CNAME) else {
                message.authorities.extend(self.signed(zone, vec![zone.soa()]));
                if zone.key.is_some() {
                    message.authorities.extend(self.signed(zone, vec![zone.nsec(&owner)]));
                }
                return;
            };
            let RData::CNAME(target) = &records[0].data else { unreachable!() };
            owner = target.0.clone();
            message.answers.extend(self.signed(zone, records));
        }
    }

    /// The zone that a name lies in; a DS lies above the cut (RFC 4035 section 3.1.4.1).
    fn zone(&self, owner: &Name, kind: RecordType) -> &Zone {
        let holds = |zone: &&Zone| {
            zone.apex.zone_of(owner)
                && !(kind == RecordType::DS && zone.apex == *owner && !owner.is_root())
        };
        self.zones.iter().filter(holds).max_by_key(|zone| zone.apex.num_labels()).unwrap()
    }

    /// Records with the signature that belongs to them.
    fn signed(&self, zone: &Zone, mut records: Vec<Record>) -> Vec<Record> {
        let Some(key) = &zone.key else { return records };
        let owner = records[0].name.clone();
        if self.unsigned.contains(&owner) {
            return records;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32;
        let input = SigInput {
            type_covered: records[0].record_type(),
            algorithm: key.signing.algorithm(),
            num_labels: owner.num_labels(),
            original_ttl: records[0].ttl,
            sig_expiration: SerialNumber::new(now + 3600),
            sig_inception: SerialNumber::new(now - 3600),
            key_tag: key.public.calculate_key_tag().unwrap(),
            signer_name: zone.apex.clone(),
        };
        let signed = TBS::from_input(&owner, DNSClass::IN, &input, records.iter()).unwrap();
        let mut signature = key.signing.sign(&signed).unwrap();
        if self.spoiled.contains(&owner) {
            signature[7] ^= 1;
        }
        let signature = RData::DNSSEC(DNSSECRData::RRSIG(RRSIG::from_sig(input, signature)));
        records.push(Record::from_rdata(owner, 300, signature));
        records
    }
}

impl Zone {
    fn new(apex: &str, signed: bool) -> Self {
        let mut zone = Self { apex: name(apex), key: None, records: BTreeMap::new() };
        zone.add(zone.soa());
        zone.add(Record::from_rdata(name(apex), 300, RData::NS(NS(name("ns.example.net.")))));
        if signed {
            let key = Key::new();
            let public = RData::DNSSEC(DNSSECRData::DNSKEY(key.public.clone()));
            zone.add(Record::from_rdata(name(apex), 300, public));
            zone.key = Some(key);
        }
        zone
    }

    fn add(&mut self, record: Record) {
        let place = (record.name.clone(), record.record_type());
        self.records.entry(place).or_default().push(record);
    }

    fn soa(&self) -> Record {
        soa(&self.apex.to_ascii())
    }

    /// Says what is at a name, and nothing about its neighbours (RFC 4470).
    fn nsec(&self, owner: &Name) -> Record {
        let kinds = self.records.keys().filter(|(at, _)| at == owner).map(|(_, kind)| *kind);
        let next = owner.prepend_label(&b"\x00"[..]).unwrap();
        let data = NSEC::new_cover_self(next, kinds);
        Record::from_rdata(owner.clone(), 60, RData::DNSSEC(DNSSECRData::NSEC(data)))
    }

    fn dname(&self, owner: &Name) -> Option<Record> {
        let mut records = self.records.values().flatten();
        records.find(|record| dname_target(record, owner).is_some()).cloned()
    }
}

impl Key {
    fn new() -> Self {
        let secret = Ed25519SigningKey::generate_pkcs8().unwrap();
        let signing = Ed25519SigningKey::from_pkcs8(&secret).unwrap();
        let public = DNSKEY::from_key(&signing.to_public_key().unwrap());
        Self { signing, public }
    }

    fn digest(&self, apex: &Name) -> DS {
        DS::from_key(self.public.public_key(), apex, DigestType::SHA256).unwrap()
    }
}
