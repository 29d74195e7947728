//! The description of each key: what the reader, the writer, the JSON Schema and the tables of docs/configuration.md are
//! made of.
//!
//! [`keys!`] defines the struct of a section and its keys at once. The comment over a field is what the documents and the
//! schema say of its key.

pub(crate) mod common;
pub(crate) mod form;
mod place;
mod section;
#[cfg(test)]
mod tests;
mod written;

use serde_json::{Map, Value as Json, json};
use toml::de::DeTable;

pub(crate) use place::{Place, Places, Read};
pub(crate) use section::Section;
#[cfg(test)]
pub(crate) use tests::{Reader, read_and_write};
pub(crate) use written::Written;

use crate::diagnostic::Sink;
use crate::value::Table;
use form::Form;

/// What is told of a key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// What it may be, in words: `` `"1s"` to `"5m"` ``.
    pub values: String,
    /// What holds without it, in words; `(needed)` if there has to be one.
    pub default: String,
    /// What it means, in Markdown.
    pub meaning: String,
    /// JSON Schema of its values.
    pub schema: Json,
    /// What stands for a value in the usage of an option: `PREFIX`.
    pub placeholder: &'static str,
    /// Whether `fordway reload` applies a changed value.
    pub reload: Reload,
}

/// Whether `fordway reload` applies a changed value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reload {
    /// It does.
    #[default]
    Yes,
    /// It does, but for these changes.
    But(&'static str),
    /// Only after `fordway down NAME`.
    Down,
    /// The daemon has to be restarted.
    Restart,
}

impl Reload {
    /// In words, for tables of keys and for the JSON Schema.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Reload::Yes => "yes".to_owned(),
            Reload::But(changes) => format!("yes, but {changes} after `down`"),
            Reload::Down => "after `down`".to_owned(),
            Reload::Restart => "restart".to_owned(),
        }
    }
}

/// What has keys in the file.
pub(crate) trait Keys: Sized {
    /// Reads all keys. What is wrong goes to `sink` and counts as absent; `false` if a key is missing that has to be
    /// there, which then has a value without a meaning.
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Self, bool);

    /// Writes every key.
    fn write(&self, to: &mut Written);

    /// The keys, in the order in which they are written.
    fn keys() -> Vec<Key>;
}

/// The default of keys that have none.
pub(crate) const NEEDED: &str = "(needed)";

impl Key {
    /// Whether a table without it is refused.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.default == NEEDED
    }

    pub(crate) fn new<T, F: Form<Value = T>>(
        name: &'static str,
        form: &F,
        default: String,
        doc: &str,
    ) -> Key {
        Key {
            name,
            values: form.values(),
            default,
            meaning: joined(doc),
            schema: form.schema(),
            placeholder: form.placeholder(),
            reload: Reload::Yes,
        }
    }

    pub(crate) fn reload(self, reload: Reload) -> Key {
        Key { reload, ..self }
    }

    pub(crate) fn usual<F: Form>(
        name: &'static str,
        form: &F,
        default: &F::Value,
        doc: &str,
    ) -> Key {
        Key::new(name, form, shown(form.write(default)), doc)
    }

    /// Tables with keys of their own.
    pub(crate) fn tables<T: Keys>(name: &'static str, title: &str, doc: &str) -> Key {
        let schema = json!({"type": "array", "items": table_schema(&T::keys())});
        Key { values: format!("tables `{title}`"), schema, ..Key::table::<T>(name, doc) }
    }

    /// A table with keys of its own.
    pub(crate) fn table<T: Keys>(name: &'static str, doc: &str) -> Key {
        let (values, default) = ("a table".to_owned(), shown(None));
        let (meaning, schema) = (joined(doc), table_schema(&T::keys()));
        Key { name, values, default, meaning, schema, placeholder: "TABLE", reload: Reload::Yes }
    }
}

/// JSON Schema of a table with these keys.
pub(crate) fn table_schema(keys: &[Key]) -> Json {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = key.schema.clone();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), key.meaning.clone().into());
            schema.insert("x-reload".to_owned(), key.reload.words().into());
        }
        properties.insert(key.name.to_owned(), schema);
    }
    let required = keys.iter().filter(|key| key.is_needed()).map(|key| key.name);
    let required: Vec<&str> = required.collect();
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// A comment of several lines as one.
fn joined(doc: &str) -> String {
    let lines: Vec<&str> = doc.lines().map(str::trim).collect();
    lines.join(" ")
}

/// A default, in words.
fn shown(default: Option<toml::Value>) -> String {
    default.map_or_else(|| "(none)".to_owned(), |value| format!("`{value}`"))
}

/// Reads a table that has these keys and no other.
pub(crate) fn read<T: Keys>(title: &'static str, table: Table<'_, '_>, sink: &mut Sink) -> Read<T> {
    read_after(title, table, sink, |_, _| {})
}

/// The same; `first` may refuse keys.
pub(crate) fn read_after<T: Keys>(
    title: &'static str,
    (table, span): Table<'_, '_>,
    sink: &mut Sink,
    first: impl FnOnce(&mut Section<'_, '_>, &mut Sink),
) -> Read<T> {
    let mut section = Section::new(title, table, span);
    first(&mut section, sink);
    let (value, complete) = T::read(&mut section, sink);
    Read { value, complete, at: section.finish(sink) }
}

/// What a table without a key says.
pub(crate) fn usual<T: Keys>() -> T {
    let (nothing, mut sink) = (DeTable::new(), Sink::default());
    T::read(&mut Section::new("", &nothing, 0..0), &mut sink).0
}

/// A table with all keys.
pub(crate) fn write<T: Keys>(value: &T) -> Written {
    let mut written = Written::default();
    value.write(&mut written);
    written
}

/// Defines a section: a struct, and of each field the key, its form, and what holds without it.
///
/// ```text
/// /// What it means.
/// field("key"): Type = form, or(default);                the key is called as the field unless it is said
/// field: Type = form, or(default, "in words");           `default` may name fields above
/// field: Type = form, needed(blank, "what to write");    `blank` stands for it where it is missing
/// field: Type = form, needed(blank, "help", "in words");  the same, needed only in some cases
/// field: Vec<T>, tables("[[section.key]]");              tables with keys of their own
/// field: Vec<T>, tables("what to write", "one");         the same; `one` is what messages call one of them
/// field: T, table("key", default);                       a table
/// field: T, flat();                                      whose keys are in this table
/// field: Type = form, or(default), if(condition);        written only then
/// field: Type = form, or(default), read(|v| ...);        read in another way than the form does
/// field: Type = form, or(default), only(condition, "why", "help", value);   else refused, and this value
/// field: Type = form, or(default), reload(Down);         a reload refuses another value ([`Reload`])
/// ```
///
/// With `struct Type, reload(Restart)`, a reload changes no key of it.
///
/// With `impl Type`, the keys of a type that stands elsewhere: each has a place in it, and its default there.
///
/// ```text
/// /// What it means.
/// "key" (place.in.it) = form;
/// "key" (place) = form, then(|it| ...);                  what follows from it; `reload(Down)` as above
/// ```
macro_rules! keys {
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(, reload($all:ident))? {
        $($(#[doc = $doc:literal])* $field:ident $(($key:literal))? : $type:ty $(= $form:expr)?,
            $kind:ident($($args:tt)*) $(, if($written:expr))? $(, read($read:expr))?
            $(, only($only:expr, $why:expr, $help:expr, $else:expr))? $(, reload($($reload:tt)+))?;)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $doc])* $vis $field: $type,)*
        }

        #[allow(
            unused_variables,
            unused_mut,
            clippy::vec_init_then_push,
            reason = "a default may name fields above; nothing may be needed; keys are put in one by one"
        )]
        impl $crate::keys::Keys for $name {
            fn read(
                section: &mut $crate::keys::Section<'_, '_>,
                sink: &mut $crate::diagnostic::Sink,
            ) -> (Self, bool) {
                let mut complete = true;
                $(let $field: $type = $crate::keys::keys!(@only (section, sink)
                    ($crate::keys::keys!(@name $field $($key)?)) ($($only, $why, $help, $else)?)
                    ($crate::keys::keys!(@read (section, sink, complete)
                        ($crate::keys::keys!(@name $field $($key)?)) ($($form)?) ($($read)?) $kind($($args)*))));)*
                ($name { $($field),* }, complete)
            }

            fn write(&self, to: &mut $crate::keys::Written) {
                let $name { $($field),* } = self;
                $(if true $(&& $written)? $(&& $only)? {
                    $crate::keys::keys!(@write (to, $field)
                        ($crate::keys::keys!(@name $field $($key)?)) ($($form)?) $kind);
                })*
            }

            fn keys() -> Vec<$crate::keys::Key> {
                let mut keys = Vec::new();
                $(let first = keys.len();
                $crate::keys::keys!(@key (keys, $type) ($crate::keys::keys!(@name $field $($key)?))
                    (concat!($($doc, "\n"),*)) ($($form)?) $kind($($args)*));
                $(keys[first..].iter_mut().for_each(|key| key.reload = $crate::keys::Reload::$($reload)+);)?)*
                $(keys.iter_mut().for_each(|key| key.reload = $crate::keys::Reload::$all);)?
                keys
            }
        }
    };

    (impl $type:ty {
        $($(#[doc = $doc:literal])* $key:literal ($($place:tt)+) = $form:expr
            $(, then($then:expr))? $(, reload($reload:ident))?;)*
    }) => {
        impl $crate::keys::Keys for $type {
            fn read(
                section: &mut $crate::keys::Section<'_, '_>,
                sink: &mut $crate::diagnostic::Sink,
            ) -> (Self, bool) {
                let mut it = <$type>::default();
                $(if let Some(value) = $crate::keys::keys!(@value (section, sink) ($key) ($form) ()) {
                    it.$($place)+ = value;
                    $(
                        let then: fn(&mut $type) = $then;
                        then(&mut it);
                    )?
                })*
                (it, true)
            }

            fn write(&self, to: &mut $crate::keys::Written) {
                $(to.put_some($key, $crate::keys::form::Form::write(&$form, &self.$($place)+));)*
            }

            fn keys() -> Vec<$crate::keys::Key> {
                let it = <$type>::default();
                vec![$($crate::keys::Key::usual($key, &$form, &it.$($place)+, concat!($($doc, "\n"),*))
                    $(.reload($crate::keys::Reload::$reload))?),*]
            }
        }
    };

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };

    (@only ($section:ident, $sink:ident) ($key:expr) () ($read:expr)) => { $read };
    (@only ($section:ident, $sink:ident) ($key:expr) ($only:expr, $why:expr, $help:expr, $else:expr) ($read:expr)) => {
        if $only {
            $read
        } else {
            $section.refuse($sink, $key, $why, $help);
            $else
        }
    };

    (@read ($section:ident, $sink:ident, $complete:ident) ($key:expr) ($form:expr) ($($read:expr)?)
        or($default:expr $(, $words:literal)?)) => {
        $crate::keys::keys!(@value ($section, $sink) ($key) ($form) ($($read)?)).unwrap_or_else(|| $default)
    };
    (@read ($section:ident, $sink:ident, $complete:ident) ($key:expr) ($form:expr) ($($read:expr)?)
        needed($blank:expr, $help:expr $(, $words:literal)?)) => {{
        $section.need($sink, $key, $help);
        $crate::keys::keys!(@value ($section, $sink) ($key) ($form) ($($read)?)).unwrap_or_else(|| {
            $complete = false;
            $blank
        })
    }};
    (@read ($section:ident, $sink:ident, $complete:ident) ($key:expr) () () tables($title:literal $(, $one:literal)?)) => {{
        let (tables, whole) = $section.tables($sink, $key, $title, [$title $(, $one)?]);
        $complete &= whole;
        tables
    }};
    (@read ($section:ident, $sink:ident, $complete:ident) ($key:expr) () () table($title:literal, $default:expr)) => {{
        let (table, whole) = $section.table($sink, $key, $title);
        $complete &= whole;
        table.unwrap_or_else(|| $default)
    }};
    (@read ($section:ident, $sink:ident, $complete:ident) ($key:expr) () () flat()) => {{
        let (value, whole) = $crate::keys::Keys::read($section, $sink);
        $complete &= whole;
        value
    }};

    (@value ($section:ident, $sink:ident) ($key:expr) ($form:expr) ()) => {
        $section.read($sink, $key, |v| $crate::keys::form::Form::read(&$form, v)).map(toml::Spanned::into_inner)
    };
    (@value ($section:ident, $sink:ident) ($key:expr) ($form:expr) ($read:expr)) => {
        $section.read($sink, $key, $read).map(toml::Spanned::into_inner)
    };

    (@write ($to:ident, $field:ident) ($key:expr) () tables) => {
        $to.tables($key, $field.iter().map($crate::keys::write))
    };
    (@write ($to:ident, $field:ident) ($key:expr) () table) => { $to.table($key, $crate::keys::write($field)) };
    (@write ($to:ident, $field:ident) ($key:expr) () flat) => { $crate::keys::Keys::write($field, $to) };
    (@write ($to:ident, $field:ident) ($key:expr) ($form:expr) $kind:ident) => {
        $to.put_some($key, $crate::keys::form::Form::write(&$form, $field))
    };

    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) ($form:expr) or($default:expr)) => {{
        let default: $type = $default;
        $keys.push($crate::keys::Key::usual($key, &$form, &default, $doc));
    }};
    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) ($form:expr) or($default:expr, $words:literal)) => {
        $keys.push($crate::keys::Key::new::<$type, _>($key, &$form, $words.to_owned(), $doc))
    };
    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) ($form:expr) needed($blank:expr, $help:expr)) => {
        $keys.push($crate::keys::Key::new::<$type, _>($key, &$form, $crate::keys::NEEDED.to_owned(), $doc))
    };
    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) ($form:expr) needed($blank:expr, $help:expr, $words:literal)) => {
        $keys.push($crate::keys::Key::new::<$type, _>($key, &$form, $words.to_owned(), $doc))
    };
    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) () tables($title:literal $(, $one:literal)?)) => {
        $keys.push($crate::keys::Key::tables::<<$type as IntoIterator>::Item>($key, $title, $doc))
    };
    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) () table($title:literal, $default:expr)) => {
        $keys.push($crate::keys::Key::table::<$type>($key, $doc))
    };
    (@key ($keys:ident, $type:ty) ($key:expr) ($doc:expr) () flat()) => {
        $keys.extend(<$type as $crate::keys::Keys>::keys())
    };
}

pub(crate) use keys;
