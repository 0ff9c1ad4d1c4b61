//! Routes and rules in an option's text: a first word, then `name=value` words, separated by
//! commas. Several of them are separated by semicolons.

use core::fmt;
use core::net::IpAddr;

use slipstack_terms::{CarriedRange, RouteRefusal, parse_ports, parse_protocol};

/// Linux's main table.
const MAIN: u32 = 254;
/// Before the rules for all, behind that for own addresses.
const PRIORITY: u32 = 1000;
/// Routes or rules of one option at most.
const SPECS_MAX: usize = 256;
/// The interface by which a stack's own packets come, in a rule.
pub const LOOPBACK: &str = "lo";

/// Addresses that begin alike.
pub type Net = (IpAddr, u8);

/// `10.1.0.0/16,via=10.0.0.2,table=100`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    pub to: Net,
    /// `None`: the destination is a neighbour.
    pub via: Option<IpAddr>,
    /// The interface that it leads by; `None`: the one of the gateway's network.
    pub device: Option<String>,
    pub table: u32,
    pub metric: u32,
    pub source: Option<IpAddr>,
    pub mtu: Option<u16>,
    pub refusal: Option<RouteRefusal>,
}

/// The treatment of the packets that a rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// A table has their routes.
    Table(u32),
    Unreachable,
    Prohibit,
    Blackhole,
}

/// `from=10.0.0.7/32,table=100`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSpec {
    pub priority: u32,
    pub from: Option<Net>,
    pub to: Option<Net>,
    /// Value and mask of SO_MARK.
    pub mark: Option<(u32, u32)>,
    /// The type of service, without the bits of ECN.
    pub tos: Option<u8>,
    /// The protocol and the ports.
    pub carried: CarriedRange,
    /// The interface by which packets come that are to be passed on; "lo" stands for the stack's
    /// own.
    pub input: Option<String>,
    /// The interface that the sender is bound to.
    pub output: Option<String>,
    /// The rule selects the packets that the conditions do not describe (`not`).
    pub is_not: bool,
    pub target: RuleTarget,
}

impl RuleSpec {
    /// The interfaces that it names, each with the word.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let input = self.input.iter().filter(|name| *name != LOOPBACK);
        let input = input.map(|name| ("iif", name.as_str()));
        input.chain(self.output.iter().map(|name| ("oif", name.as_str())))
    }
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
            "a route such as 10.1.0.0/16,via=10.0.0.2 (dev=, table=, metric=, src=, mtu=, \
             unreachable, prohibit, blackhole), or a rule such as from=10.0.0.7/32,table=100 \
             (not, to=, mark=VALUE/MASK, tos=, ipproto=, sport=, dport=, iif=, oif=, priority=; \
             unreachable, prohibit or blackhole instead of table=)"
                .to_owned(),
        ),
    }
}

fn parse_route(text: &str) -> Option<RouteSpec> {
    let mut words = text.split(',');
    let mut route = RouteSpec {
        to: parse_net(words.next()?)?,
        via: None,
        device: None,
        table: MAIN,
        metric: 0,
        source: None,
        mtu: None,
        refusal: None,
    };
    for word in words {
        match word.split_once('=') {
            Some(("via", ip)) => route.via = Some(ip.parse().ok()?),
            Some(("dev", name)) => route.device = Some(interface(name)?),
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
        && !(route.refusal.is_some() && (route.via.is_some() || route.device.is_some()))
        && is_table(route.table);
    is_sound.then_some(route)
}

fn parse_rule(text: &str) -> Option<RuleSpec> {
    let mut rule = RuleSpec {
        priority: PRIORITY,
        from: None,
        to: None,
        mark: None,
        tos: None,
        carried: CarriedRange::ALL,
        input: None,
        output: None,
        is_not: false,
        target: RuleTarget::Table(0),
    };
    let mut targets = 0;
    for word in text.split(',') {
        let target = match word.split_once('=') {
            Some(("table", id)) => Some(RuleTarget::Table(id.parse().ok()?)),
            Some((name, value)) => {
                parse_condition(&mut rule, name, value)?;
                None
            }
            None if word == "not" => {
                rule.is_not = true;
                None
            }
            None => Some(match word {
                "unreachable" => RuleTarget::Unreachable,
                "prohibit" => RuleTarget::Prohibit,
                "blackhole" => RuleTarget::Blackhole,
                _ => return None,
            }),
        };
        if let Some(target) = target {
            rule.target = target;
            targets += 1;
        }
    }
    let has_other = rule.mark.is_some() || rule.tos.is_some() || !rule.carried.is_all();
    let has_other = has_other || rule.input.is_some() || rule.output.is_some();
    let is_one_family = match (rule.from, rule.to) {
        (Some((from, _)), Some((to, _))) => from.is_ipv4() == to.is_ipv4(),
        (None, None) => has_other,
        _ => true,
    };
    let is_sound = match rule.target {
        RuleTarget::Table(id) => is_table(id),
        _ => true,
    };
    (is_one_family && is_sound && targets == 1).then_some(rule)
}

fn parse_condition(rule: &mut RuleSpec, name: &str, value: &str) -> Option<()> {
    match name {
        "from" => rule.from = Some(parse_net(value)?),
        "to" => rule.to = Some(parse_net(value)?),
        "mark" => rule.mark = Some(parse_mark(value)?),
        "tos" => rule.tos = Some(parse_tos(value)?),
        "ipproto" => rule.carried.protocol = Some(parse_protocol(value)?),
        "sport" => rule.carried.source_ports = Some(parse_ports(value)?),
        "dport" => rule.carried.destination_ports = Some(parse_ports(value)?),
        "iif" => rule.input = Some(interface(value)?),
        "oif" => rule.output = Some(interface(value)?),
        "priority" => rule.priority = value.parse().ok().filter(|n| *n > 0)?,
        _ => return None,
    }
    Some(())
}

/// The name of an interface, also of a VLAN, which may be longer than the kernel's.
fn interface(name: &str) -> Option<String> {
    const LEN_MAX: usize = 31;
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '=');
    let is_name = (1..=LEN_MAX).contains(&name.len()) && name.chars().all(is_plain);
    is_name.then(|| name.to_owned())
}

/// Hexadecimal, as `ip rule` takes it, with or without 0x; the bits of ECN are no part of it.
fn parse_tos(text: &str) -> Option<u8> {
    const ECN: u8 = 3;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let tos = u8::from_str_radix(digits, 16).ok();
    tos.filter(|tos| *tos != 0 && tos & ECN == 0)
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
        if let Some(device) = &self.device {
            write!(f, ",dev={device}")?;
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
        write!(f, "priority={}", self.priority)?;
        match self.target {
            RuleTarget::Table(id) => write!(f, ",table={id}")?,
            RuleTarget::Unreachable => f.write_str(",unreachable")?,
            RuleTarget::Prohibit => f.write_str(",prohibit")?,
            RuleTarget::Blackhole => f.write_str(",blackhole")?,
        }
        if self.is_not {
            f.write_str(",not")?;
        }
        if let Some(tos) = self.tos {
            write!(f, ",tos={tos:#x}")?;
        }
        for (word, value) in self.carried.words() {
            write!(f, ",{word}={value}")?;
        }
        if let Some(name) = &self.input {
            write!(f, ",iif={name}")?;
        }
        if let Some(name) = &self.output {
            write!(f, ",oif={name}")?;
        }
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
            "10.4.0.0/16,dev=eth1.10",
        ] {
            let route = parse_route(text).unwrap();
            assert_eq!(parse_route(&route.to_string()).as_ref(), Some(&route));
        }
        for text in [
            "from=10.0.0.7/32,table=100",
            "to=fd00::/8,priority=7,table=1",
            "mark=0x10/0xf0,table=5",
            "mark=7,table=5",
            "not,from=10.0.0.0/8,prohibit",
            "tos=10,iif=eth1.10,table=9",
            "iif=lo,oif=eth2,unreachable,priority=5",
            "to=fd00::/8,blackhole",
            "ipproto=tcp,dport=80,table=7",
            "from=10.0.0.7/32,ipproto=47,table=7",
            "ipproto=udp,sport=53,dport=1024-65535,prohibit",
        ] {
            let rule = parse_rule(text).unwrap();
            assert_eq!(parse_rule(&rule.to_string()).as_ref(), Some(&rule));
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
            "10.0.0.0/8,dev=eth1,unreachable",
            "10.0.0.0/8,dev=a/b",
        ] {
            assert!(parse_routes(text).is_err(), "{text}");
        }
        for text in [
            "table=100",
            "from=10.0.0.1",
            "from=10.0.0.1,to=fd00::1,table=1",
            "from=10.0.0.1,table=1,unreachable",
            "from=10.0.0.1,tos=11,table=1",
            "not,table=1",
            "ipproto=ip,table=1",
            "dport=0,table=1",
            "dport=9-8,table=1",
            "from=10.0.0.1,blackholed",
        ] {
            assert!(parse_rules(text).is_err(), "{text}");
        }
    }
}
