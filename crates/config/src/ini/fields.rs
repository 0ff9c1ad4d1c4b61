//! How the texts of keys are read.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest list of ports, cores or VLANs.
const LIST_LEN_MAX: usize = 4096;

/// A whole number, decimal.
pub(super) fn number(text: &str, min: u32, max: u32) -> Result<u32, String> {
    crate::kind::parse_count(text, min, max)
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    number(text, 0, 1)
        .map(|number| number == 1)
        .map_err(|_| "0 or 1".to_owned())
}

/// Cores of a hexadecimal mask, in ascending order.
pub(super) fn mask(text: &str) -> Result<Vec<usize>, String> {
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
pub(super) fn list(text: &str, max: u32) -> Result<Vec<u32>, String> {
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

pub(super) fn v4(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| "an IPv4 address".to_owned())
}

pub(super) fn v6(text: &str) -> Result<Ipv6Addr, String> {
    text.parse().map_err(|_| "an IPv6 address".to_owned())
}

/// The length of a netmask's prefix.
pub(super) fn netmask(text: &str) -> Result<u8, String> {
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
pub(super) fn addresses<A: Into<IpAddr>>(
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
pub(super) fn networks(text: &str) -> Result<Vec<(Ipv4Addr, u8)>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_lists_name_cores_and_ports() {
        assert_eq!(mask("f00").unwrap(), [8, 9, 10, 11]);
        assert_eq!(mask("0x5").unwrap(), [0, 2]);
        assert!(mask("0").is_err() && mask("g").is_err() && mask("").is_err());
        assert_eq!(list("4-6, 1,2", 4095).unwrap(), [1, 2, 4, 5, 6]);
        assert!(list("3-1", 9).is_err() && list("x", 9).is_err());
    }

    #[test]
    fn networks_have_contiguous_masks() {
        assert_eq!(netmask("255.255.255.0").unwrap(), 24);
        assert!(netmask("255.0.255.0").is_err());
        assert_eq!(
            networks("10.0.0.0 255.0.0.0;10.1.0.0 255.255.0.0").unwrap(),
            [
                (Ipv4Addr::new(10, 0, 0, 0), 8),
                (Ipv4Addr::new(10, 1, 0, 0), 16)
            ]
        );
        assert!(networks("10.0.0.0/8").is_err());
    }
}
