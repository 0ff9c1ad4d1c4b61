//! Options of `ip` before the object.

use serde_json::Value;

use crate::failure::Failure;
use crate::output::print;

/// Layouts of interfaces and addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Lines,
    /// `-o`
    One,
    /// `-br`
    Brief,
}

/// Options before the object.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) is_json: bool,
    /// JSON in lines that people read.
    pub(super) is_pretty: bool,
    pub(super) form: Form,
    /// Packets and bytes of each interface.
    pub(super) has_statistics: bool,
    /// Only this family: IPv6, or IPv4.
    pub(super) is_v6: Option<bool>,
    pub(super) engine: u32,
}

impl Options {
    pub(super) const NONE: Options = Options {
        is_json: false,
        is_pretty: false,
        form: Form::Lines,
        has_statistics: false,
        is_v6: None,
        engine: 0,
    };

    pub(super) fn wants(&self, is_v6: bool) -> bool {
        self.is_v6.is_none_or(|only| only == is_v6)
    }

    /// Prints a list as JSON or as lines.
    pub(super) fn show(&self, json: Vec<Value>, text: &str) -> Result<(), Failure> {
        if self.is_json {
            let json = Value::Array(json);
            return print(&match self.is_pretty {
                true => format!("{json:#}\n"),
                false => format!("{json}\n"),
            });
        }
        print(text)
    }
}
