//! Sites by name, for TLS that passes unread.

use std::collections::HashMap;

use super::rules::Destination;
use super::settings::Route;

/// Where names lead: to a number of a route.
#[derive(Debug, Default)]
pub(super) struct Routes {
    names: HashMap<String, usize>,
    below: HashMap<String, usize>,
}

impl Routes {
    pub(super) fn new(routes: &[Route]) -> Routes {
        let mut all = Routes::default();
        for (number, route) in routes.iter().enumerate() {
            for name in &route.names {
                let (map, name) = match name {
                    Destination::Name(name) => (&mut all.names, name),
                    Destination::Below(name) => (&mut all.below, name),
                    Destination::Net(_) => continue,
                };
                map.entry(name.clone()).or_insert(number);
            }
        }
        all
    }

    /// The route of a name in lower case: its own, else that of the longest name that it is below.
    pub(super) fn of(&self, name: &str) -> Option<usize> {
        if let Some(own) = self.names.get(name) {
            return Some(*own);
        }
        let mut rest = name;
        while let Some((_, behind)) = rest.split_once('.') {
            if let Some(route) = self.below.get(behind) {
                return Some(*route);
            }
            rest = behind;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_decides() {
        let route = |names: &[Destination]| Route { names: names.to_vec(), upstream: Vec::new() };
        let name = |name: &str| Destination::Name(name.to_owned());
        let below = |name: &str| Destination::Below(name.to_owned());
        let routes = Routes::new(&[
            route(&[below("example.net"), name("example.org")]),
            route(&[name("www.example.net")]),
            route(&[below("b.example.net"), name("example.org")]),
        ]);
        for (name, expected) in [
            ("www.example.net", Some(1)),
            ("a.example.net", Some(0)),
            ("a.b.example.net", Some(2)),
            ("b.example.net", Some(0)),
            ("example.org", Some(0)),
            ("example.net", None),
            ("www.example.org", None),
            ("net", None),
            ("", None),
        ] {
            assert_eq!(routes.of(name), expected, "{name}");
        }
    }
}
