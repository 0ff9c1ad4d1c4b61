//! Conversion of an option's type from and to its text.

use core::net::IpAddr;
use std::path::PathBuf;

use slipstack_terms::{
    Congestion, EcnMode, Listed, LogLevel, ShareAction, Spin, SpreadRule, XdpMode,
};

use crate::cidr::Cidr;
use crate::declare::OptionSpec;
use crate::error::ConfigError;
use crate::interface::{self, InterfaceSpec};
use crate::kind::{self, CoreList, PortRange};
use crate::routing::{self, RouteSpec, RuleSpec};
use crate::spread::{self, SpreadRow};
use crate::sysctl::{self, SysctlSetting};
use crate::vlan::{self, VlanSpec};

/// A type that an option can have.
pub(crate) trait Value: Sized {
    /// A value that is not set is the table's default.
    const HAS_DEFAULT: bool = true;

    /// Parses a user's text; the error is the end of a sentence ("… must be …").
    fn parse(text: &str) -> Result<Self, String>;

    /// Returns the value of an option that is not set and has no default.
    fn absent() -> Self;

    /// Returns the text that [`Value::parse`] reads as this value, or `None` if it is absent.
    fn text(&self) -> Option<String>;
}

/// Returns the typed value of an option. Its text has been checked, except for a default.
pub(crate) fn typed<T: Value>(option: &OptionSpec, text: Option<&str>) -> Result<T, ConfigError> {
    let Some(text) = text else {
        return Ok(T::absent());
    };
    T::parse(text).map_err(|must| {
        ConfigError::Combination(format!("--{} must be {must}: '{text}'", option.name))
    })
}

impl<T: Value> Value for Option<T> {
    const HAS_DEFAULT: bool = false;

    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }

    fn absent() -> Self {
        None
    }

    fn text(&self) -> Option<String> {
        self.as_ref().and_then(T::text)
    }
}

impl Value for bool {
    fn parse(text: &str) -> Result<Self, String> {
        kind::parse_flag(text)
    }

    fn absent() -> Self {
        false
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn absent() -> Self {
        String::new()
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn absent() -> Self {
        PathBuf::new()
    }

    fn text(&self) -> Option<String> {
        self.to_str().map(str::to_owned)
    }
}

/// Implements [`Value`] for numbers, whose range the option's kind has checked.
macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("a number up to {}", <$type>::MAX))
            }

            fn absent() -> Self {
                0
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )+};
}
numbers!(u8, u16, u32, i32);

/// Implements [`Value`] for lists with a separator, by the parser of the whole.
macro_rules! lists {
    ($($type:ty: $parse:path, $separator:literal;)+) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Result<Self, String> {
                $parse(text)
            }

            fn absent() -> Self {
                Vec::new()
            }

            fn text(&self) -> Option<String> {
                let texts: Vec<String> = self.iter().map(ToString::to_string).collect();
                (!texts.is_empty()).then(|| texts.join($separator))
            }
        }
    )+};
}
lists! {
    Vec<Cidr>: kind::parse_cidrs, ",";
    Vec<IpAddr>: kind::parse_addresses, ",";
    Vec<RouteSpec>: routing::parse_routes, ";";
    Vec<RuleSpec>: routing::parse_rules, ";";
    Vec<VlanSpec>: vlan::parse_vlans, ";";
    Vec<InterfaceSpec>: interface::parse_interfaces, ";";
    Vec<SysctlSetting>: sysctl::parse_settings, ";";
    CoreList: kind::parse_cores, ",";
    Vec<PortRange>: kind::parse_ports, ",";
    Vec<String>: kind::parse_names, ",";
    Vec<i32>: kind::parse_numbers, ",";
    Vec<u16>: kind::parse_shares, ",";
    Vec<SpreadRow>: spread::parse_rows, ",";
}

impl Value for Spin {
    fn parse(text: &str) -> Result<Self, String> {
        kind::parse_spin(text)
    }

    fn absent() -> Self {
        Spin::default()
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Spin::Adaptive => "adaptive".to_owned(),
            Spin::FixedUs(us) => us.to_string(),
        })
    }
}

/// Implements [`Value`] for enumerations with a name for each variant.
macro_rules! choices {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Result<Self, String> {
                <$type>::from_name(text)
                    .ok_or_else(|| format!("one of {}", <$type>::NAMES.join(", ")))
            }

            fn absent() -> Self {
                Self::default()
            }

            fn text(&self) -> Option<String> {
                Some(self.name().to_owned())
            }
        }
    )+};
}
choices!(
    Congestion,
    EcnMode,
    Listed,
    LogLevel,
    ShareAction,
    SpreadRule,
    XdpMode
);
