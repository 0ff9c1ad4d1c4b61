//! Parsers of the keys' values.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest list of ports, cores or VLANs.
const LIST_LEN_MAX: usize = 4096;

/// A whole number, decimal.
pub(crate) fn number(text: &str, min: u32, max: u32) -> Result<u32, String> {
    crate::kind::parse_count(text, min, max)
}

pub(crate) fn switch(text: &str) -> Result<bool, String> {
    number(text, 0, 1)
        .map(|number| number == 1)
        .map_err(|_| "0 or 1".to_owned())
}

/// Cores of a hexadecimal mask, in ascending order.
pub(crate) fn mask(text: &str) -> Result<Vec<usize>, String> {
    let must = || "a hexadecimal mask of cores such as f00".to_owned();
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let mut cores = Vec::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let digit = digit.to_digit(16).ok_or_else(must)?;
        cores.extend(
            (0..4)
                .filter(|bit| digit >> bit & 1 == 1)
                .map(|bit| place * 4 + bit),
        );
    }
    if cores.is_empty() || cores.iter().any(|core| *core > 1023) {
        return Err(must());
    }
    Ok(cores)
}

/// A list such as `1,4-6`, in ascending order and without repetitions.
pub(crate) fn list(text: &str, max: u32) -> Result<Vec<u32>, String> {
    let must = || format!("a list such as 0,2-3 of numbers up to {max}");
    let mut numbers = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = number(first.trim(), 0, max).map_err(|_| must())?;
        let last = number(last.trim(), first, max).map_err(|_| must())?;
        numbers.extend(first..=last);
        if numbers.len() > LIST_LEN_MAX {
            return Err(must());
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

pub(crate) fn v4(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| "an IPv4 address".to_owned())
}

pub(crate) fn v6(text: &str) -> Result<Ipv6Addr, String> {
    text.parse().map_err(|_| "an IPv6 address".to_owned())
}

/// The length of a netmask's prefix.
pub(crate) fn netmask(text: &str) -> Result<u8, String> {
    let must = || "a netmask such as 255.255.255.0".to_owned();
    let bits = v4(text).map_err(|_| must())?.to_bits();
    let len = bits.leading_ones();
    if bits.count_ones() == len {
        Ok(len as u8)
    } else {
        Err(must())
    }
}

/// Addresses separated by semicolons.
pub(crate) fn addresses<A: Into<IpAddr>>(
    text: &str,
    parse: fn(&str) -> Result<A, String>,
) -> Result<Vec<IpAddr>, String> {
    let words = text
        .split(';')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words.map(|word| parse(word).map(Into::into)).collect()
}

/// Networks as `address mask;address mask`.
pub(crate) fn networks(text: &str) -> Result<Vec<(Ipv4Addr, u8)>, String> {
    let must = || "networks such as 10.0.0.0 255.255.255.0;10.1.0.0 255.255.0.0".to_owned();
    let words = text
        .split(';')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    let network = |word: &str| {
        let (address, mask) = word.split_once(' ').ok_or_else(must)?;
        let len = netmask(mask.trim()).map_err(|_| must())?;
        Ok((v4(address).map_err(|_| must())?, len))
    };
    words.map(network).collect()
}
