//! Keys that the command line (`--set`) and a controller (`fordway apply`) set in a configuration.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::Sink;
use crate::source::{Giver, Setting};

impl Giver {
    /// How to write a setting.
    fn help(self) -> &'static str {
        match self {
            Giver::CommandLine => {
                "write --set SECTION.KEY=VALUE, such as --set dns64.rate=unlimited; where a section has several tables, \
                 --set SECTION.NAME.KEY=VALUE"
            }
            Giver::Controller => {
                "name keys SECTION.KEY, such as dns64.rate; where a section has several tables, SECTION.NAME.KEY with a \
                 name that the file has"
            }
        }
    }
}

/// Sections of which there may be several tables, with the key that names each.
const LISTS: [(&str, &str); 5] = [
    ("translator", "name"),
    ("advertise", "device"),
    ("trt", "name"),
    ("proxy", "name"),
    ("dstm_client", "name"),
];

type Name<'i> = Spanned<Cow<'i, str>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// The texts of `--set SECTION.KEY=VALUE`, in the order of the command line, and keys of a controller. Each replaces a value
/// of the file.
///
/// Values are written as in the file. A value that is not TOML is text, because a shell removes quotation marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// All keys have a section in front.
    texts: Vec<String>,
    /// Those of a controller.
    applied: Vec<String>,
}

impl Settings {
    /// Settings whose keys all have a section in front.
    #[must_use]
    pub fn new(texts: &[String]) -> Settings {
        Settings { texts: texts.to_vec(), applied: Vec::new() }
    }

    /// Settings whose keys are those of `section`, unless another section stands in front.
    #[must_use]
    pub fn of(section: &str, texts: &[String]) -> Settings {
        let with_section = |text: &String| match text.split_once('=') {
            Some((key, value)) => format!("{}={value}", whole(section, key.trim())),
            None => text.clone(),
        };
        Settings { texts: texts.iter().map(with_section).collect(), applied: Vec::new() }
    }

    /// With the keys of a controller, which all have a section in front. They replace those of the command line.
    #[must_use]
    pub fn with_applied(&self, applied: Vec<String>) -> Settings {
        Settings { texts: self.texts.clone(), applied }
    }

    /// Each setting as a line of TOML. Of one key, the last counts.
    pub(crate) fn lines(&self) -> Vec<(Giver, String)> {
        let line = |text: &String| {
            let Some((key, value)) = text.split_once('=') else { return text.clone() };
            let (key, value) = (key.trim(), value.trim());
            let line = format!("{key} = {value}");
            match split(&line) {
                Some(_) => line,
                None => format!("{key} = {}", toml::Value::from(value)),
            }
        };
        let of_command = self.texts.iter().map(|text| (Giver::CommandLine, line(text)));
        let of_controller = self.applied.iter().map(|text| (Giver::Controller, line(text)));
        of_command.chain(of_controller).collect()
    }
}

/// A key with a section in front, which is `section` if it has none.
fn whole(section: &str, key: &str) -> String {
    let first = key.split('.').next().unwrap_or(key);
    let sections = crate::sections();
    let mut own = sections.iter().filter(|(name, _)| name.split('.').next() == Some(section));
    let is_key = own.any(|(_, keys)| keys.iter().any(|key| key.name == first));
    let is_section = first != key && sections.iter().any(|(name, _)| *name == first);
    if is_section && !is_key { key.to_owned() } else { format!("{section}.{key}") }
}

/// The value of a key in a whole configuration, as `--set` names keys; `None`: there is none. If a section has one table,
/// its name may be left out.
#[must_use]
pub fn value_of<'t>(table: &'t toml::Table, key: &str) -> Option<&'t toml::Value> {
    let mut names = key.split('.');
    let first = names.next()?;
    let mut value = table.get(first)?;
    if let (Some(tables), Some((_, named))) =
        (value.as_array(), LISTS.iter().find(|(section, _)| *section == first))
    {
        let called = names.clone().next();
        let is_called = |it: &&toml::Value| it.get(named).and_then(toml::Value::as_str) == called;
        value = match (tables.iter().find(is_called), &tables[..]) {
            (Some(table), _) => {
                names.next();
                table
            }
            (None, [table]) => table,
            (None, _) => return None,
        };
    }
    names.try_fold(value, |value, name| value.get(name))
}

/// Puts settings into the tables of a file.
pub(crate) fn apply<'i>(root: &mut DeTable<'i>, settings: &'i [Setting], sink: &mut Sink) {
    for Setting { giver, line } in settings {
        let placed = match split(line) {
            Some((names, value)) => place_in(root, names, value),
            None => Err("this is no key with a value".to_owned()),
        };
        if let Err(message) = placed {
            let place = line.len() - line.trim_start().len()..line.len();
            sink.error(place, message, giver.help());
        }
    }
}

/// The parts of the key of a line and its value. `None`: it is not TOML, or more than one key.
fn split(line: &str) -> Option<(Vec<Name<'_>>, Value<'_>)> {
    let (key, _) = line.split_once(" = ")?;
    // A value that is a table could be taken for parts of the key.
    let alone = format!("{} = 0", key.trim_start());
    let depth = descend(DeTable::parse(&alone).ok()?.into_inner(), usize::MAX)?.0.len();
    descend(DeTable::parse(line).ok()?.into_inner(), depth)
}

/// The names of tables within tables, so many at most, and what stands in the last one.
fn descend(mut table: DeTable<'_>, depth: usize) -> Option<(Vec<Name<'_>>, Value<'_>)> {
    let mut names = Vec::new();
    loop {
        let mut entries = table.into_iter();
        let (Some((name, value)), None) = (entries.next(), entries.next()) else { return None };
        names.push(name);
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(inner) if names.len() < depth => table = inner,
            value => return Some((names, Spanned::new(span, value))),
        }
    }
}

/// Puts a value where its key says, or says why there is no such place.
fn place_in<'i>(
    root: &mut DeTable<'i>,
    names: Vec<Name<'i>>,
    value: Value<'i>,
) -> Result<(), String> {
    let mut names = names.into_iter().peekable();
    let mut table = root;
    while let Some(name) = names.next() {
        let text = name.get_ref().clone();
        let (span, is_last) = (name.span(), names.peek().is_none());
        if is_last {
            table.remove(text.as_ref());
            table.insert(name, value);
            return Ok(());
        }
        let list = LISTS.iter().find(|(section, _)| *section == text);
        if !table.contains_key(text.as_ref()) {
            if list.is_some() {
                return Err(format!("there is no [[{text}]] that this could be set in"));
            }
            table.insert(name, Spanned::new(span, DeValue::Table(DeTable::new())));
        }
        let Some(inner) = table.get_mut(text.as_ref()) else { break };
        table = match (inner.get_mut(), list) {
            (DeValue::Table(inner), _) => inner,
            (DeValue::Array(tables), Some((_, key))) => {
                let wanted = names.peek().map(|name| name.get_ref().clone());
                let is_called = |it: &Value<'_>| {
                    let name = it.get_ref().as_table().and_then(|it| it.get(*key));
                    name.and_then(|it| it.get_ref().as_str()) == wanted.as_deref()
                };
                let at = tables.iter().position(is_called);
                if at.is_some() {
                    names.next();
                } else if tables.len() > 1 {
                    let wanted = wanted.unwrap_or_default();
                    let none = format!("none has the {key} \"{wanted}\"");
                    return Err(format!("there are several [[{text}]], and {none}"));
                }
                let one = tables.get_mut(at.unwrap_or(0)).map(Spanned::get_mut);
                let Some(DeValue::Table(inner)) = one else { break };
                inner
            }
            _ => break,
        };
    }
    Err("what stands in front of the last dot is no table".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Report, parse_with};

    const TWO: &str = "[[translator]]\nname = 'a'\nmode = 'siit'\npool6 = ['64:ff9b::/96']\n\
                       [[translator]]\nname = 'b'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\n";

    fn with(texts: &[&str]) -> Result<crate::Loaded, Report> {
        let texts: Vec<String> = texts.iter().map(|it| (*it).to_owned()).collect();
        parse_with("file", TWO, &Settings::new(&texts))
    }

    #[test]
    fn a_setting_replaces_one_value() {
        let config = with(&[
            "translator.b.mtu=1400",
            "log.level=debug",
            "translator.a.traffic_class = 7",
            "translator.a.pool6=[\"64:ff9b::/96\", \"2001:db8:65::/96\"]",
            "control.timeout=9s",
        ]);
        let config = config.unwrap_or_else(|report| panic!("{report}")).config;
        let [a, b] = &config.translators[..] else { panic!("{config}") };
        assert_eq!((a.mtu, b.mtu), (None, Some(1400)));
        assert_eq!(a.pool6().len(), 2);
        assert_eq!(a.traffic_class, fordway_xlat::TrafficClass::Set(7));
        assert_eq!(config.log.level, crate::LevelFilter::DEBUG);
        assert_eq!(config.control.timeout.as_secs(), 9);
    }

    #[test]
    fn values_are_found_by_their_keys() {
        let texts = ["translator.b.mtu=1400".to_owned()];
        let settings = Settings::new(&["translator.b.mtu=1300".to_owned()]);
        let settings = settings.with_applied(texts.to_vec());
        let table = parse_with("file", TWO, &settings).unwrap().config.to_toml();
        assert_eq!(value_of(&table, "translator.b.mtu"), Some(&1400.into()));
        assert_eq!(value_of(&table, "log.level"), Some(&"info".into()));
        for missing in ["translator.c.mtu", "translator.b.colour", "translator", "dns64.rate", "x"]
        {
            let found = value_of(&table, missing);
            assert!(found.is_none(), "{missing}: {found:?}");
        }
        assert_eq!(value_of(&table, "translator.mtu"), None, "which of the two?");
        let one = TWO.split_at(TWO.rfind("[[").unwrap()).0;
        let settings = Settings::default().with_applied(vec!["translator.mtu=1400".to_owned()]);
        let table = parse_with("file", one, &settings).unwrap().config.to_toml();
        for key in ["translator.mtu", "translator.a.mtu"] {
            assert_eq!(value_of(&table, key), Some(&1400.into()), "{key}");
        }
    }

    #[test]
    fn the_last_setting_of_a_key_counts() {
        let config = with(&["log.format=json", "log={level=\"warn\"}", "log.level=off"]).unwrap();
        assert_eq!(config.config.log.format, crate::LogFormat::Text);
        assert_eq!(config.config.log.level, crate::LevelFilter::OFF);
    }

    #[test]
    fn errors_name_the_setting() {
        for (text, expected) in [
            ("translator.b.mtu=100", "error: `mtu`: "),
            ("translator.mtu=1400", "error: there are several [[translator]]"),
            ("trt.udp=false", "error: there is no [[trt]]"),
            ("log.colour=red", "error: unknown key `colour` in [log]"),
            ("log", "error: this is no key with a value"),
            ("log.level.more=1", "error: `level`: "),
            ("a b=1", "error: this is no key with a value"),
        ] {
            let said = with(&[text]).unwrap_err().render(false);
            assert!(said.starts_with(expected), "{said}");
            assert!(said.contains(" --> --set:1:"), "{said}");
        }
    }

    #[test]
    fn errors_say_who_has_set_a_key() {
        let of_command = Settings::new(&["log.level=debug".to_owned()]);
        let applied = ["translator.c.mtu=1400", "translator.b.mtu=100"].map(str::to_owned);
        let said = parse_with("file", TWO, &of_command.with_applied(applied.to_vec())).unwrap_err();
        let said = said.render(false);
        assert!(said.contains("none has the name \"c\"\n --> keys of a controller:1:1"), "{said}");
        assert!(said.contains("name keys SECTION.KEY") && !said.contains("--set"), "{said}");
        assert!(said.contains(" --> keys of a controller:2:20"), "{said}");
    }

    #[test]
    fn a_short_form_may_leave_its_section_out() {
        let settings = |texts: &[&str]| -> Vec<String> {
            let texts: Vec<String> = texts.iter().map(|it| (*it).to_owned()).collect();
            // A controller's keys are whole.
            let applied = vec!["log.level=\"info\"".to_owned()];
            let settings = Settings::of("translator", &texts).with_applied(applied);
            settings.lines().into_iter().map(|(_, line)| line).collect()
        };
        let texts = ["mtu=1400", "quotas.sessions=5", "control.timeout=9s", "log.to=x", "alg=[]"];
        let expected = [
            "translator.mtu = 1400",
            "translator.quotas.sessions = 5",
            "control.timeout = \"9s\"",
            "translator.log.to = \"x\"",
            "translator.alg = []",
            "log.level = \"info\"",
        ];
        assert_eq!(settings(&texts), expected);
    }
}
