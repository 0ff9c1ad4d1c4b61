//! Routes and rules in an option's text: a first word, then `name=value` words, separated by
//! commas. Several of them are separated by semicolons.

use core::fmt;
use core::net::IpAddr;

use slipstack_terms::RouteRefusal;

/// Linux's main table.
const MAIN: u32 = 254;
/// Before the rules for all, behind that for own addresses.
const PRIORITY: u32 = 1000;
/// Routes or rules of one option at most.
const SPECS_MAX: usize = 256;

/// Addresses that begin alike.
pub type Net = (IpAddr, u8);

/// `10.1.0.0/16,via=10.0.0.2,table=100`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    pub to: Net,
    /// `None`: the destination is a neighbour.
    pub via: Option<IpAddr>,
    pub table: u32,
    pub metric: u32,
    pub source: Option<IpAddr>,
    pub mtu: Option<u16>,
    pub refusal: Option<RouteRefusal>,
}

/// `from=10.0.0.7/32,table=100`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSpec {
    pub priority: u32,
    pub from: Option<Net>,
    pub to: Option<Net>,
    /// Value and mask of SO_MARK.
    pub mark: Option<(u32, u32)>,
    pub table: u32,
}

pub(crate) fn parse_routes(text: &str) -> Result<Vec<RouteSpec>, String> {
    each(text, parse_route)
}

pub(crate) fn parse_rules(text: &str) -> Result<Vec<RuleSpec>, String> {
    each(text, parse_rule)
}

fn each<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let specs: Option<Vec<T>> = text.split(';').map(parse).collect();
    match specs {
        Some(specs) if specs.len() <= SPECS_MAX => Ok(specs),
        Some(_) => Err(format!("at most {SPECS_MAX} of them")),
        None => Err(
            "a route such as 10.1.0.0/16,via=10.0.0.2 (table=, metric=, src=, mtu=, unreachable, \
             prohibit, blackhole), or a rule such as from=10.0.0.7/32,table=100 (to=, \
             mark=VALUE/MASK, priority=)"
                .to_owned(),
        ),
    }
}

fn parse_route(text: &str) -> Option<RouteSpec> {
    let mut words = text.split(',');
    let mut route = RouteSpec {
        to: parse_net(words.next()?)?,
        via: None,
        table: MAIN,
        metric: 0,
        source: None,
        mtu: None,
        refusal: None,
    };
    for word in words {
        match word.split_once('=') {
            Some(("via", ip)) => route.via = Some(ip.parse().ok()?),
            Some(("src", ip)) => route.source = Some(ip.parse().ok()?),
            Some(("table", id)) => route.table = id.parse().ok()?,
            Some(("metric", n)) => route.metric = n.parse().ok()?,
            Some(("mtu", n)) => route.mtu = Some(n.parse().ok().filter(|mtu| *mtu >= 576)?),
            Some(_) => return None,
            None => route.refusal = Some(RouteRefusal::find(word)?),
        }
    }
    let is_v4 = route.to.0.is_ipv4();
    let mut others = [route.via, route.source].into_iter().flatten();
    let is_sound = others.all(|ip| ip.is_ipv4() == is_v4)
        && !(route.refusal.is_some() && route.via.is_some())
        && is_table(route.table);
    is_sound.then_some(route)
}

fn parse_rule(text: &str) -> Option<RuleSpec> {
    let mut rule = RuleSpec {
        priority: PRIORITY,
        from: None,
        to: None,
        mark: None,
        table: 0,
    };
    for word in text.split(',') {
        match word.split_once('=')? {
            ("from", net) => rule.from = Some(parse_net(net)?),
            ("to", net) => rule.to = Some(parse_net(net)?),
            ("mark", mark) => rule.mark = Some(parse_mark(mark)?),
            ("table", id) => rule.table = id.parse().ok()?,
            ("priority", n) => rule.priority = n.parse().ok().filter(|n| *n > 0)?,
            _ => return None,
        }
    }
    let is_one_family = match (rule.from, rule.to) {
        (Some((from, _)), Some((to, _))) => from.is_ipv4() == to.is_ipv4(),
        (None, None) => rule.mark.is_some(),
        _ => true,
    };
    (is_one_family && is_table(rule.table)).then_some(rule)
}

/// A mark with or without the mask of the bits that matter, decimal or with 0x.
pub fn parse_mark(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

/// Zero is none, and the table of own addresses is the stack's.
fn is_table(id: u32) -> bool {
    const LOCAL: u32 = 255;
    id != 0 && id != LOCAL
}

fn parse_net(text: &str) -> Option<Net> {
    let (ip, len) = match text.split_once('/') {
        Some((ip, len)) => (ip.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?),
        None => {
            let ip = text.parse::<IpAddr>().ok()?;
            (ip, if ip.is_ipv4() { 32 } else { 128 })
        }
    };
    (len <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, len))
}

impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.to.0, self.to.1)?;
        if let Some(via) = self.via {
            write!(f, ",via={via}")?;
        }
        write!(f, ",table={},metric={}", self.table, self.metric)?;
        if let Some(source) = self.source {
            write!(f, ",src={source}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        match self.refusal {
            Some(refusal) => write!(f, ",{}", refusal.name()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RuleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priority={},table={}", self.priority, self.table)?;
        if let Some((value, mask)) = self.mark {
            write!(f, ",mark={value:#x}/{mask:#x}")?;
        }
        if let Some((ip, len)) = self.from {
            write!(f, ",from={ip}/{len}")?;
        }
        if let Some((ip, len)) = self.to {
            write!(f, ",to={ip}/{len}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_rules_are_read_and_written() {
        for text in [
            "10.1.0.0/16,via=10.0.0.2,table=100,metric=5,src=10.0.0.5,mtu=1400",
            "fd00:1::/48,via=fe80::1",
            "10.2.0.0/16,unreachable",
            "10.2.0.0/16,blackhole",
            "10.3.0.1",
        ] {
            let route = parse_route(text).unwrap();
            assert_eq!(parse_route(&route.to_string()), Some(route));
        }
        for text in [
            "from=10.0.0.7/32,table=100",
            "to=fd00::/8,priority=7,table=1",
            "mark=0x10/0xf0,table=5",
            "mark=7,table=5",
        ] {
            let rule = parse_rule(text).unwrap();
            assert_eq!(parse_rule(&rule.to_string()), Some(rule));
        }
        assert_eq!(parse_routes("10.0.0.0/8;10.1.0.1").unwrap().len(), 2);
    }

    #[test]
    fn invalid_routes_and_rules_are_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/8,via=fd00::1",
            "10.0.0.0/8,table=255",
            "10.0.0.0/8,via=10.0.0.1,unreachable",
            "10.0.0.0/8,mtu=100",
            "10.0.0.0/8,color=red",
        ] {
            assert!(parse_routes(text).is_err(), "{text}");
        }
        for text in [
            "table=100",
            "from=10.0.0.1",
            "from=10.0.0.1,to=fd00::1,table=1",
        ] {
            assert!(parse_rules(text).is_err(), "{text}");
        }
    }
}
