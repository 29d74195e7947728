//! What the checks of several sections look for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::Range;

use fordway_xlat::addr::Pool6;
use toml::Spanned;

use crate::diagnostic::Sink;

/// Says that a key has no effect.
pub(crate) fn no_effect(span: Range<usize>, message: impl Into<String>, sink: &mut Sink) {
    sink.warn(span, message, "leave it out");
}

/// Each item that equals an earlier one by its key, behind the first of those.
pub(crate) fn twice<'a, T, K: Hash + Eq>(
    items: &'a [Spanned<T>],
    key: impl Fn(&'a T) -> K,
) -> impl Iterator<Item = (&'a Spanned<T>, &'a Spanned<T>)> {
    let mut first = HashMap::new();
    items.iter().filter_map(move |item| match first.entry(key(item.get_ref())) {
        Entry::Occupied(earlier) => Some((*earlier.get(), item)),
        Entry::Vacant(place) => {
            place.insert(item);
            None
        }
    })
}

/// Each item that clashes with an earlier one, behind the first of those.
pub(crate) fn clashing<T>(
    items: &[Spanned<T>],
    clash: impl Fn(&T, &T) -> bool,
) -> impl Iterator<Item = (&Spanned<T>, &Spanned<T>)> {
    items.iter().enumerate().filter_map(move |(at, item)| {
        let mut earlier = items[..at].iter();
        Some((earlier.find(|earlier| clash(earlier.get_ref(), item.get_ref()))?, item))
    })
}

pub(crate) fn duplicates<T: Hash + Eq + Display>(key: &str, items: &[Spanned<T>], sink: &mut Sink) {
    for (first, second) in twice(items, |item| item) {
        let message = format!("`{key}`: {} is listed twice", second.get_ref());
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here first");
    }
}

/// RFC 6052 section 2.1: the Well-Known Prefix has 96 bits. What contains it is most likely a slip of the pen.
pub(crate) fn well_known_prefix(prefixes: &[Spanned<Pool6>], sink: &mut Sink) {
    let well_known = Pool6::WELL_KNOWN.net();
    for pool6 in prefixes {
        let net = pool6.get_ref().net();
        if net == well_known || !net.contains(&well_known) {
            continue;
        }
        let message =
            format!("{net} is not the Well-Known Prefix, which has 96 bits (RFC 6052 section 2.1)");
        let help = format!("write \"{well_known}\", or a prefix of the network's own");
        sink.warn(pool6.span(), message, help);
    }
}
