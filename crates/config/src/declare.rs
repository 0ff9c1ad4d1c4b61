//! Rows of the options table, and how they become fields of `Settings`.

use crate::kind::Kind;

/// Which commands offer an option on their command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `slipstack run` and `slipstack instance`.
    RunAndInstance,
    /// `slipstack run` only.
    Run,
    /// `slipstack instance` only.
    Instance,
    /// Every command, `status`, `why` and `stop` included.
    All,
    /// No command line: set by `slipstack run` for the program it starts.
    Internal,
}

/// Whether a value can be changed after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The value with which a process was started stays.
    AtStart,
    /// Running engines take a new value, which holds for new connections.
    Live,
}

/// Whether a starter passes the option's value to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Only the process that was given it.
    Process,
    /// The keeper of the device too.
    Keeper,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Long name on the command line, without the dashes, and the key in the TOML file.
    pub name: &'static str,
    pub env: &'static str,
    pub kind: Kind,
    /// In the syntax a user would type; empty = not set.
    pub default: &'static str,
    pub scope: Scope,
    pub reader: Reader,
    pub change: Change,
    /// Name of the value in `--help`.
    pub value: &'static str,
    /// One sentence for `--help`, the reference and the sample file.
    pub help: &'static str,
}

/// Writes an option's name as the end of a variable's name: `tcp-ecn` becomes `TCP_ECN`.
pub(crate) const fn variable_name<const N: usize>(name: &str) -> [u8; N] {
    let mut upper = [0; N];
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < N {
        upper[at] = match bytes[at] {
            b'-' => b'_',
            byte => byte.to_ascii_uppercase(),
        };
        at += 1;
    }
    upper
}

/// The words of a name as `str`; the names are ASCII, so that the conversion cannot fail.
pub(crate) const fn ascii(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("an option's name is not ASCII"),
    }
}

/// Declares the options: each row becomes an [`OptionSpec`] in `OPTIONS`, a field of `OPTION` with
/// the same, and a field of `Settings` of its type, which reads and writes its text by
/// [`crate::value::Value`]. A field that is an `Option` is `None` unless it was set, also where the
/// table has a default.
macro_rules! options {
    ($(
        $(#[$doc:meta])*
        $field:ident: $type:ty = $name:literal $value:literal {
            kind: $kind:expr,
            default: $default:expr,
            scope: $scope:ident, reader: $reader:ident, change: $change:ident,
            help: $help:literal,
        }
    )+) => {
        /// The rows of the table by the names of their fields in [`Settings`].
        #[derive(Debug)]
        pub struct Rows {$(
            #[doc = $help]
            pub $field: OptionSpec,
        )+}

        /// Each row by its name: code that speaks of one option names it so.
        pub const OPTION: &Rows = &Rows {$($field: OptionSpec {
            name: $name,
            env: {
                const PLAIN: &str = concat!("SLIPSTACK_", $name);
                const UPPER: [u8; PLAIN.len()] = variable_name(PLAIN);
                ascii(&UPPER)
            },
            kind: $kind,
            default: $default,
            scope: Scope::$scope,
            reader: Reader::$reader,
            change: Change::$change,
            value: $value,
            help: $help,
        }),+};

        /// All rows in their order.
        pub const OPTIONS: &[OptionSpec] = &[$(OPTION.$field),+];

        /// Settings of `run`, `instance`, `keeper` and the preload library.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {$(
            #[doc = $help]
            $(#[$doc])*
            pub $field: $type,
        )+}

        impl Settings {
            /// Types the text of every option: `set` gives the one that was set, `in_force` the
            /// default without it.
            pub(crate) fn typed<'a>(
                set: impl Fn(&OptionSpec) -> Option<&'a str>,
                in_force: impl Fn(&OptionSpec) -> Option<&'a str>,
            ) -> Result<Settings, ConfigError> {
                Ok(Settings {$($field: match <$type as Value>::HAS_DEFAULT {
                    true => typed(&OPTION.$field, in_force(&OPTION.$field))?,
                    false => typed(&OPTION.$field, set(&OPTION.$field))?,
                }),+})
            }

            /// Text of every option that is set, in the order of the table.
            fn texts(&self) -> impl Iterator<Item = (&'static OptionSpec, String)> {
                let texts = [$(self.$field.text()),+];
                OPTIONS.iter().zip(texts).filter_map(|(option, text)| Some((option, text?)))
            }
        }
    };
}
pub(crate) use options;
