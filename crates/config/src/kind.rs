//! The types an option can have, and how each is written.

use core::net::IpAddr;

use slipstack_terms::Spin;

use crate::cidr::{Cidr, parse_address, parse_cidr};
use crate::interface::check_interface;
use crate::{interface, routing, sysctl, vlan};

/// The type of an option: how its text is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// true or false; on the command line the bare option.
    Flag,
    Count {
        min: u32,
        max: u32,
    },
    /// IP addresses, at most one of each family, separated by commas.
    Addresses,
    /// IP addresses with their prefix lengths, separated by commas.
    Cidrs,
    /// Routes, separated by semicolons.
    Routes,
    /// Rules that choose among their tables, likewise.
    Rules,
    /// VLANs with the stack's addresses in them, likewise.
    Vlans,
    /// Interfaces with the stack's addresses on them, likewise.
    Interfaces,
    /// sysctls with their values, separated by semicolons.
    Sysctls,
    /// ipfw commands, or the path of a file of them.
    Filter,
    /// Linux interface name: 1 to 15 bytes, no slash, no white space.
    Interface,
    /// Name of an instance: letters, digits, `-`, `_`, `.`; at most 32.
    Name,
    /// Different names of instances, separated by commas.
    Names,
    /// Descriptor numbers, separated by commas.
    Numbers,
    /// Shares of engines, separated by commas.
    Shares,
    /// Networks with the number of an engine each, separated by commas.
    Rows,
    Path,
    /// Kind of a device, with an argument behind a colon where it takes one.
    Device,
    /// `adaptive` or microseconds.
    Spin,
    /// Cores such as `0,2-3`.
    Cores,
    /// Ports such as `80,8000-8999`.
    Ports,
    Choice(&'static [&'static str]),
}

/// Ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl core::fmt::Display for PortRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Core numbers in ascending order.
pub type CoreList = Vec<usize>;

impl Kind {
    /// Returns the separator of a value that may be given several times; `None` if it is given
    /// once.
    #[must_use]
    pub fn separator(self) -> Option<&'static str> {
        match self {
            Kind::Addresses | Kind::Cidrs => Some(","),
            Kind::Routes | Kind::Rules | Kind::Vlans | Kind::Interfaces | Kind::Sysctls => {
                Some(";")
            }
            _ => None,
        }
    }

    /// Returns the defect of `text`, as the end of a sentence ("… must be …").
    ///
    /// # Errors
    /// The requirement that the text does not meet.
    pub fn check(self, text: &str) -> Result<(), String> {
        match self {
            Kind::Flag => parse_flag(text).map(drop),
            Kind::Count { min, max } => parse_count(text, min, max).map(drop),
            Kind::Addresses => parse_addresses(text).map(drop),
            Kind::Cidrs => parse_cidrs(text).map(drop),
            Kind::Routes => routing::parse_routes(text).map(drop),
            Kind::Rules => routing::parse_rules(text).map(drop),
            Kind::Vlans => vlan::parse_vlans(text).map(drop),
            Kind::Interfaces => interface::parse_interfaces(text).map(drop),
            Kind::Sysctls => sysctl::parse_settings(text).map(drop),
            Kind::Interface => check_interface(text),
            Kind::Name => check_name(text),
            Kind::Names => parse_names(text).map(drop),
            Kind::Numbers => parse_numbers(text).map(drop),
            Kind::Shares => parse_shares(text).map(drop),
            Kind::Rows => crate::spread::parse_rows(text).map(drop),
            Kind::Path => check_path(text),
            Kind::Filter => check_filter(text),
            Kind::Device => check_device(text),
            Kind::Spin => parse_spin(text).map(drop),
            Kind::Cores => parse_cores(text).map(drop),
            Kind::Ports => parse_ports(text).map(drop),
            Kind::Choice(choices) => {
                if choices.contains(&text) {
                    Ok(())
                } else {
                    Err(format!("one of {}", choices.join(", ")))
                }
            }
        }
    }
}

/// Reads ports such as `80,8000-8999`: at most 128 ranges.
///
/// # Errors
/// The required form of the text, as the end of a sentence.
pub fn parse_ports(text: &str) -> Result<Vec<PortRange>, String> {
    const RANGES_MAX: usize = 128;
    let must = || "ports from 1 to 65535 such as 80,8000-8999, at most 128 ranges".to_owned();
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port != 0);
        let (first, last) = (port(first)?, port(last)?);
        (first <= last).then_some(PortRange { first, last })
    };
    let ranges: Option<Vec<PortRange>> = text.split(',').map(range).collect();
    let ranges = ranges.filter(|ranges| ranges.len() <= RANGES_MAX);
    ranges.ok_or_else(must)
}

pub(crate) fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" | "" => Ok(false),
        _ => Err("true or false".into()),
    }
}

pub(crate) fn parse_count(text: &str, min: u32, max: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(count) if (min..=max).contains(&count) => Ok(count),
        _ => Err(format!("a number from {min} to {max}")),
    }
}

/// Addresses of one option at most: F-Stack's 64 of each family beside the interface's own, twice
/// over.
const ADDRESSES_MAX: usize = 256;

pub(crate) fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let addresses = list(text, parse_address)?;
    let is_twice = |is_v4: bool| addresses.iter().filter(|ip| ip.is_ipv4() == is_v4).count() > 1;
    if is_twice(true) || is_twice(false) {
        return Err("at most one address of each family".into());
    }
    Ok(addresses)
}

pub(crate) fn parse_cidrs(text: &str) -> Result<Vec<Cidr>, String> {
    list(text, parse_cidr)
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let values: Vec<T> = text.split(',').map(parse).collect::<Result<_, _>>()?;
    if values.len() > ADDRESSES_MAX {
        return Err(format!("at most {ADDRESSES_MAX} addresses"));
    }
    Ok(values)
}

pub(crate) fn parse_spin(text: &str) -> Result<Spin, String> {
    if text == "adaptive" {
        return Ok(Spin::Adaptive);
    }
    parse_count(text, 0, 100_000)
        .map(Spin::FixedUs)
        .map_err(|_| "`adaptive` or a number of microseconds from 0 to 100000".into())
}

/// Parses a list of cores such as `0,2-3`.
///
/// # Errors
/// The requirement that the text does not meet.
pub fn parse_cores(text: &str) -> Result<CoreList, String> {
    const CORE_MAX: usize = 1023;
    let syntax = || format!("a list of cores such as 0 or 0,2-3, each at most {CORE_MAX}");
    let mut is_listed = [false; CORE_MAX + 1];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| syntax())?;
        let last: usize = last.parse().map_err(|_| syntax())?;
        if first > last || last > CORE_MAX {
            return Err(syntax());
        }
        is_listed[first..=last].fill(true);
    }
    Ok((0..=CORE_MAX).filter(|core| is_listed[*core]).collect())
}

fn check_name(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=32).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_plain) {
        Ok(())
    } else {
        Err("a name of 1 to 32 letters, digits, `-`, `_` or `.`".into())
    }
}

/// Which kinds there are the keeper knows.
fn check_device(text: &str) -> Result<(), String> {
    if text == "auto" {
        return Ok(());
    }
    match slipstack_device::find(text) {
        Ok((_, argument)) if argument.is_none_or(|it| !it.is_empty() && !it.contains('\0')) => {
            Ok(())
        }
        _ => Err(format!("auto, {}", slipstack_device::usage())),
    }
}

/// Instances that one program can be spread over.
const NAMES_MAX: usize = 64;

pub(crate) fn parse_names(text: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',') {
        check_name(name)?;
        if names.iter().any(|other| other == name) {
            return Err("names that differ".into());
        }
        names.push(name.to_owned());
    }
    if names.len() > NAMES_MAX {
        return Err(format!("at most {NAMES_MAX} names"));
    }
    Ok(names)
}

pub(crate) fn parse_numbers(text: &str) -> Result<Vec<i32>, String> {
    const NUMBER_MAX: u32 = 1_048_576;
    let parse = |number: &str| {
        let number = parse_count(number, 0, NUMBER_MAX)?;
        i32::try_from(number).map_err(|error| error.to_string())
    };
    list(text, parse)
}

pub(crate) fn parse_shares(text: &str) -> Result<Vec<u16>, String> {
    const SHARE_MAX: u32 = 100;
    let parse = |number: &str| {
        let number = parse_count(number, 1, SHARE_MAX)?;
        u16::try_from(number).map_err(|error| error.to_string())
    };
    list(text, parse)
}

fn check_filter(text: &str) -> Result<(), String> {
    match text.contains('\0') || text.trim().is_empty() {
        true => Err("ipfw commands, or the path of a file of them".into()),
        false => Ok(()),
    }
}

fn check_path(text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains('\0') {
        Err("a path".into())
    } else {
        Ok(())
    }
}
