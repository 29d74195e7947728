//! Evaluates an nftables ruleset for a packet of which only some fields are known.
//!
//! The ruleset comes as `nft --json list ruleset` writes it (libnftables-json(5)). A packet is told by
//! what is known of it beforehand; a match on anything else may hold or not.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

/// Chains that jump to each other are followed so far.
const DEPTH: usize = 16;

/// What is known of a packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) v6: bool,
    pub(crate) iif: Option<String>,
    pub(crate) oif: Option<String>,
    /// `tcp`, `udp`, `icmp` or `ipv6-icmp`.
    pub(crate) l4: &'static str,
    /// `new` or `established`.
    pub(crate) state: &'static str,
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) port: Option<u16>,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Pass,
    /// This rule or policy ends it.
    Drop(String),
    /// This rule gives it another address.
    Rewrite(String),
    /// It hangs on what is not known.
    Unclear,
}

/// What a rule does with a packet.
enum Verdict<'r> {
    Accept,
    Drop,
    Rewrite,
    Jump(&'r str),
    Return,
    None,
}

/// A parsed ruleset.
pub(super) struct Ruleset {
    objects: Vec<Value>,
}

impl Ruleset {
    /// From the JSON text; `None`: it is none.
    pub(super) fn parse(text: &[u8]) -> Option<Ruleset> {
        let mut value: Value = serde_json::from_slice(text).ok()?;
        let objects = value.get_mut("nftables")?.as_array_mut()?;
        Some(Ruleset { objects: std::mem::take(objects) })
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter_map(move |object| object.get(kind))
    }

    pub(super) fn has_table(&self, family: &str, name: &str) -> bool {
        let is = |table: &Value| text(table, "family") == family && text(table, "name") == name;
        self.of_kind("table").any(is)
    }

    /// What all base chains of a kind at a hook do with the packet, one after the other.
    pub(super) fn fate(&self, kind: &str, hook: &str, flow: &Flow) -> Fate {
        let mut chains: Vec<&Value> = self
            .of_kind("chain")
            .filter(|chain| {
                text(chain, "type") == kind
                    && text(chain, "hook") == hook
                    && match text(chain, "family") {
                        "inet" => true,
                        "ip" => !flow.v6,
                        "ip6" => flow.v6,
                        _ => false,
                    }
            })
            .collect();
        chains.sort_by_key(|chain| chain.get("prio").and_then(Value::as_i64));
        let mut unclear = false;
        for chain in chains {
            match self.through(chain, flow) {
                Fate::Pass => {}
                Fate::Unclear => unclear = true,
                end => return end,
            }
        }
        if unclear { Fate::Unclear } else { Fate::Pass }
    }

    fn through(&self, chain: &Value, flow: &Flow) -> Fate {
        let mut doubt = Doubt::default();
        let name = text(chain, "name");
        let end = self.walk(chain, name, flow, &mut doubt, 0).unwrap_or_else(|| {
            match text(chain, "policy") {
                "drop" => Fate::Drop(format!("the policy of chain {}", place(chain, name))),
                _ => Fate::Pass,
            }
        });
        let other = match end {
            Fate::Drop(_) => doubt.may_pass || doubt.may_be_rewritten,
            Fate::Rewrite(_) => doubt.may_pass || doubt.may_drop,
            Fate::Pass => doubt.may_drop || doubt.may_be_rewritten,
            Fate::Unclear => true,
        };
        if other { Fate::Unclear } else { end }
    }

    /// `None`: the chain came to its end. `of`: any object of the table.
    fn walk(
        &self,
        of: &Value,
        name: &str,
        flow: &Flow,
        doubt: &mut Doubt,
        depth: usize,
    ) -> Option<Fate> {
        if depth > DEPTH {
            return Some(Fate::Unclear);
        }
        let same = |rule: &&Value| {
            text(rule, "family") == text(of, "family")
                && text(rule, "table") == text(of, "table")
                && text(rule, "chain") == name
        };
        for rule in self.of_kind("rule").filter(same) {
            let Some(expressions) = rule.get("expr").and_then(Value::as_array) else { continue };
            let applies = self.applies(of, expressions, flow);
            let verdict = expressions.iter().find_map(verdict).unwrap_or(Verdict::None);
            match (applies, verdict) {
                (Some(false), _) | (_, Verdict::None) => {}
                (Some(true), Verdict::Return) => return None,
                (Some(true), Verdict::Accept) => return Some(Fate::Pass),
                (Some(true), Verdict::Drop) => return Some(Fate::Drop(describe(rule))),
                (Some(true), Verdict::Rewrite) => return Some(Fate::Rewrite(describe(rule))),
                (Some(true), Verdict::Jump(target)) => {
                    if let Some(fate) = self.walk(of, target, flow, doubt, depth + 1) {
                        return Some(fate);
                    }
                }
                (None, Verdict::Accept) => doubt.may_pass = true,
                (None, Verdict::Drop) => doubt.may_drop = true,
                (None, Verdict::Rewrite) => doubt.may_be_rewritten = true,
                (None, Verdict::Jump(_) | Verdict::Return) => return Some(Fate::Unclear),
            }
        }
        None
    }

    /// Whether all matches of a rule hold; `None`: not known.
    fn applies(&self, of: &Value, expressions: &[Value], flow: &Flow) -> Option<bool> {
        let mut known = true;
        for expression in expressions {
            let holds = match expression.get("match") {
                Some(one) => self.holds(of, one, flow),
                // A limit that is reached holds no more; quotas and lookups alike.
                None if ["limit", "quota", "fib", "vmap"]
                    .iter()
                    .any(|it| expression.get(it).is_some()) =>
                {
                    None
                }
                None => Some(true),
            };
            match holds {
                Some(false) => return Some(false),
                Some(true) => {}
                None => known = false,
            }
        }
        known.then_some(true)
    }

    fn holds(&self, of: &Value, one: &Value, flow: &Flow) -> Option<bool> {
        let left = one.get("left")?;
        let right = one.get("right")?;
        let same = match left.get("meta").map(|meta| text(meta, "key")) {
            Some("iifname" | "iif") => self.contains(of, right, &Known::Word(flow.iif.as_deref()?)),
            Some("oifname" | "oif") => self.contains(of, right, &Known::Word(flow.oif.as_deref()?)),
            Some("l4proto") => self.contains(of, right, &Known::Word(flow.l4)),
            Some("nfproto") => {
                self.contains(of, right, &Known::Word(if flow.v6 { "ipv6" } else { "ipv4" }))
            }
            Some(_) => None,
            None if left.get("ct").is_some_and(|ct| text(ct, "key") == "state") => {
                self.contains(of, right, &Known::Word(flow.state))
            }
            None => self.payload(of, left.get("payload")?, right, flow),
        }?;
        Some(same != (text(one, "op") == "!="))
    }

    fn payload(&self, of: &Value, left: &Value, right: &Value, flow: &Flow) -> Option<bool> {
        let protocol = text(left, "protocol");
        match (protocol, text(left, "field")) {
            ("ip", _) if flow.v6 => Some(false),
            ("ip6", _) if !flow.v6 => Some(false),
            ("ip" | "ip6", "saddr") => self.contains(of, right, &Known::Address(flow.source?)),
            ("ip" | "ip6", "daddr") => self.contains(of, right, &Known::Address(flow.destination?)),
            ("ip" | "ip6", "protocol" | "nexthdr") => {
                self.contains(of, right, &Known::Word(flow.l4))
            }
            ("tcp" | "udp", _) if protocol != flow.l4 => Some(false),
            ("icmp", _) if flow.l4 != "icmp" => Some(false),
            ("icmpv6", _) if flow.l4 != "ipv6-icmp" => Some(false),
            ("tcp" | "udp" | "th", "dport") => self.contains(of, right, &Known::Port(flow.port?)),
            _ => None,
        }
    }

    /// Whether a value of the ruleset is or contains what is known.
    fn contains(&self, of: &Value, right: &Value, known: &Known<'_>) -> Option<bool> {
        match right {
            Value::String(name) if name.starts_with('@') => {
                let set = self.of_kind("set").find(|set| {
                    text(set, "family") == text(of, "family")
                        && text(set, "table") == text(of, "table")
                        && text(set, "name") == &name[1..]
                });
                self.any(of, set?.get("elem").and_then(Value::as_array), known)
            }
            Value::String(word) => known.is_word(word),
            Value::Number(number) => match known {
                Known::Port(port) => Some(number.as_u64() == Some(u64::from(*port))),
                _ => None,
            },
            Value::Array(list) => self.any(of, Some(list), known),
            Value::Object(object) => {
                if let Some(list) = object.get("set") {
                    return self.any(of, list.as_array(), known);
                }
                if let Some(element) = object.get("elem") {
                    return self.contains(of, element.get("val")?, known);
                }
                if let Some(prefix) = object.get("prefix") {
                    let net = format!("{}/{}", text(prefix, "addr"), prefix.get("len")?);
                    return known.is_in(net.parse().ok()?);
                }
                let range = object.get("range")?.as_array()?;
                known.is_between(range.first()?, range.get(1)?)
            }
            _ => None,
        }
    }

    fn any(&self, of: &Value, list: Option<&Vec<Value>>, known: &Known<'_>) -> Option<bool> {
        let mut clear = true;
        for one in list.map_or(&[][..], Vec::as_slice) {
            match self.contains(of, one, known) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => clear = false,
            }
        }
        clear.then_some(false)
    }
}

/// What rules may have done that the packet has passed by, for all that is known.
#[derive(Default)]
struct Doubt {
    may_pass: bool,
    may_drop: bool,
    may_be_rewritten: bool,
}

/// One thing that is known of a packet.
enum Known<'a> {
    Word(&'a str),
    Address(IpAddr),
    Port(u16),
}

impl Known<'_> {
    fn is_word(&self, word: &str) -> Option<bool> {
        match self {
            // Names of interfaces may end with a wildcard.
            Known::Word(known) => Some(match word.strip_suffix('*') {
                Some(front) => known.starts_with(front),
                None => *known == word,
            }),
            Known::Address(address) => Some(word.parse::<IpAddr>().ok()? == *address),
            Known::Port(_) => None,
        }
    }

    fn is_in(&self, net: IpNet) -> Option<bool> {
        match self {
            Known::Address(address) => Some(net.contains(address)),
            _ => None,
        }
    }

    fn is_between(&self, low: &Value, high: &Value) -> Option<bool> {
        match self {
            Known::Port(port) => {
                let port = u64::from(*port);
                Some((low.as_u64()?..=high.as_u64()?).contains(&port))
            }
            Known::Address(address) => {
                let read = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
                Some((read(low)?..=read(high)?).contains(address))
            }
            Known::Word(_) => None,
        }
    }
}

fn verdict(expression: &Value) -> Option<Verdict<'_>> {
    let object = expression.as_object()?;
    let is = |name: &str| object.contains_key(name);
    if is("accept") {
        return Some(Verdict::Accept);
    }
    if is("drop") || is("reject") {
        return Some(Verdict::Drop);
    }
    if ["masquerade", "snat", "dnat", "redirect"].into_iter().any(is) {
        return Some(Verdict::Rewrite);
    }
    if is("return") {
        return Some(Verdict::Return);
    }
    let target = object.get("jump").or_else(|| object.get("goto"))?;
    Some(Verdict::Jump(text(target, "target")))
}

/// A rule so that its owner finds it.
fn describe(rule: &Value) -> String {
    let handle = rule.get("handle").and_then(Value::as_u64).unwrap_or(0);
    format!("rule {handle} of chain {}", place(rule, text(rule, "chain")))
}

fn place(of: &Value, chain: &str) -> String {
    format!("{} {} {chain}", text(of, "family"), text(of, "table"))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
