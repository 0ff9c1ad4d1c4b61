//! Rows of `--spread-table`: which engine gets what comes from a network.

use core::fmt;

use crate::cidr::Cidr;
use crate::kind::parse_count;

/// Senders and the number of the engine that gets their flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadRow {
    pub network: Cidr,
    pub engine: u16,
}

impl fmt::Display for SpreadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.network, self.engine)
    }
}

pub(crate) fn parse_rows(text: &str) -> Result<Vec<SpreadRow>, String> {
    const ENGINE_MAX: u32 = 126;
    let must = || {
        format!(
            "up to {} networks with the number of an engine, such as 10.1.0.0/16=0,fd00::/8=1",
            slipstack_device::ROWS_MAX
        )
    };
    let row = |word: &str| {
        let (network, engine) = word.trim().split_once('=')?;
        let (address, prefix_len) = network.split_once('/')?;
        let address: core::net::IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Some(SpreadRow {
            network: Cidr {
                address,
                prefix_len: parse_count(prefix_len, 0, bits).ok()? as u8,
            },
            engine: parse_count(engine, 0, ENGINE_MAX).ok()? as u16,
        })
    };
    let rows: Option<Vec<SpreadRow>> = text.split(',').map(row).collect();
    rows.filter(|rows| rows.len() <= slipstack_device::ROWS_MAX)
        .ok_or_else(must)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_spread_table_round_trip() {
        let text = "10.1.0.0/16=0,fd00::/8=1,0.0.0.0/0=2";
        let rows = parse_rows(text).unwrap();
        let texts: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(texts.join(","), text);
        for wrong in [
            "",
            "10.1.0.0=1",
            "10.1.0.0/33=1",
            "10.1.0.0/16=127",
            "::/129=0",
            "x/8=1",
        ] {
            assert!(parse_rows(wrong).is_err(), "{wrong}");
        }
        let many = vec!["10.0.0.0/8=1"; slipstack_device::ROWS_MAX + 1].join(",");
        assert!(parse_rows(&many).is_err());
    }
}
