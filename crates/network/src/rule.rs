//! Rules that choose the routing table of a packet.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipstack_terms::{Carried, CarriedRange};

use crate::state::contains;

/// The result of a rule for the packets that it selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleAction {
    /// The table is looked up; if it has no route, the next rule decides.
    #[default]
    Lookup,
    /// The network is unreachable.
    Unreachable,
    /// Communication is prohibited.
    Prohibit,
    /// Packets vanish.
    Blackhole,
}

/// Origin of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleInput {
    /// From this stack itself: `iif lo`.
    Own,
    /// From a link, to be passed on.
    Link(u16),
}

/// A configured rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleEntry {
    pub priority: u32,
    pub from: Option<(IpAddr, u8)>,
    pub to: Option<(IpAddr, u8)>,
    /// Value and mask of the sender's mark (SO_MARK).
    #[serde(default)]
    pub mark: Option<(u32, u32)>,
    /// The type of service, without the bits of ECN.
    #[serde(default)]
    pub tos: Option<u8>,
    /// The protocol and the ports.
    #[serde(default)]
    pub carried: CarriedRange,
    #[serde(default)]
    pub input: Option<RuleInput>,
    /// The link that the sender is bound to (SO_BINDTODEVICE).
    #[serde(default)]
    pub output: Option<u16>,
    /// The rule selects the packets that the conditions do not describe.
    #[serde(default)]
    pub is_not: bool,
    #[serde(default)]
    pub action: RuleAction,
    /// One that names no network is of this family.
    #[serde(default)]
    pub is_family_v6: bool,
    /// 0 unless the action is a look-up.
    pub table: u32,
}

/// The properties of a packet that rules select by.
#[derive(Clone, Copy, Debug)]
pub struct RuleQuery {
    pub from: Option<IpAddr>,
    pub to: IpAddr,
    pub mark: u32,
    pub tos: u8,
    pub carried: Carried,
    pub input: RuleInput,
    /// The link that it has to leave by.
    pub output: Option<u16>,
}

impl RuleEntry {
    /// Returns whether it is of IPv6.
    pub fn is_v6(&self) -> bool {
        let net = self.from.or(self.to);
        net.map_or(self.is_family_v6, |(ip, _)| ip.is_ipv6())
    }

    /// Returns whether it selects a packet.
    pub fn applies(&self, query: &RuleQuery) -> bool {
        let has = |net: Option<(IpAddr, u8)>, ip: Option<IpAddr>| {
            net.is_none_or(|net| ip.is_some_and(|ip| contains(net, ip)))
        };
        let is_described = has(self.from, query.from)
            && has(self.to, Some(query.to))
            && self
                .mark
                .is_none_or(|(value, mask)| query.mark & mask == value & mask)
            && self.tos.is_none_or(|tos| tos == query.tos)
            && self.carried.contains(query.carried)
            && self.input.is_none_or(|input| input == query.input)
            && self.output.is_none_or(|link| query.output == Some(link));
        self.is_v6() == query.to.is_ipv6() && is_described != self.is_not
    }

    /// Returns whether it is the rule that `wanted` describes: what that does not name is of no
    /// account.
    pub fn is_meant_by(&self, wanted: &RuleEntry) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, own: &Option<T>) -> bool {
            wanted.is_none() || wanted == own
        }
        let names_family = wanted.mark.is_some()
            || wanted.tos.is_some()
            || !wanted.carried.is_all()
            || wanted.input.is_some()
            || wanted.output.is_some()
            || wanted.is_not
            || wanted.action != RuleAction::Lookup;
        is(&wanted.from, &self.from)
            && is(&wanted.to, &self.to)
            && is(&wanted.mark, &self.mark)
            && is(&wanted.tos, &self.tos)
            && is(&wanted.carried.protocol, &self.carried.protocol)
            && is(&wanted.carried.source_ports, &self.carried.source_ports)
            && is(
                &wanted.carried.destination_ports,
                &self.carried.destination_ports,
            )
            && is(&wanted.input, &self.input)
            && is(&wanted.output, &self.output)
            && (!wanted.is_not || self.is_not)
            && [RuleAction::Lookup, self.action].contains(&wanted.action)
            && (!names_family || self.is_v6() == wanted.is_v6())
            && [0, self.priority].contains(&wanted.priority)
            && [0, self.table].contains(&wanted.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> RuleQuery {
        RuleQuery {
            from: Some(IpAddr::from([10, 1, 0, 5])),
            to: IpAddr::from([10, 9, 0, 1]),
            mark: 0x15,
            tos: 0x10,
            carried: Carried {
                protocol: 6,
                source_port: 0,
                destination_port: 80,
            },
            input: RuleInput::Link(20),
            output: None,
        }
    }

    #[test]
    fn a_rule_matches_if_all_its_conditions_do() {
        let from = |ip: [u8; 4], len| Some((IpAddr::from(ip), len));
        let rule = RuleEntry {
            from: from([10, 1, 0, 0], 16),
            mark: Some((0x5, 0xf)),
            tos: Some(0x10),
            input: Some(RuleInput::Link(20)),
            ..RuleEntry::default()
        };
        assert!(rule.applies(&query()));
        let other = |change: fn(&mut RuleEntry)| {
            let mut other = rule.clone();
            change(&mut other);
            other.applies(&query())
        };
        assert!(!other(
            |it| it.from = Some((IpAddr::from([10, 2, 0, 0]), 16))
        ));
        assert!(!other(|it| it.mark = Some((0x4, 0xf))));
        assert!(!other(|it| it.tos = Some(0x08)));
        assert!(!other(|it| it.input = Some(RuleInput::Own)));
        assert!(
            !other(|it| it.output = Some(0)),
            "its sender is bound to no link"
        );
        assert!(other(|it| it.carried.protocol = Some(6)));
        assert!(!other(|it| it.carried.protocol = Some(17)));
        assert!(!other(|it| it.carried.source_ports = Some((1, 9))));
        assert!(!other(|it| it.is_not = true));
        assert!(other(|it| (it.is_not, it.tos) = (true, Some(0x08))));
    }

    #[test]
    fn a_deletion_matches_rules_by_the_fields_that_it_names() {
        let rule = RuleEntry {
            priority: 100,
            tos: Some(0x10),
            action: RuleAction::Prohibit,
            ..RuleEntry::default()
        };
        let wanted = |priority, tos, action| RuleEntry {
            priority,
            tos,
            action,
            ..RuleEntry::default()
        };
        assert!(rule.is_meant_by(&wanted(100, None, RuleAction::Lookup)));
        assert!(rule.is_meant_by(&wanted(0, Some(0x10), RuleAction::Prohibit)));
        assert!(!rule.is_meant_by(&wanted(100, Some(0x08), RuleAction::Lookup)));
        assert!(!rule.is_meant_by(&wanted(100, None, RuleAction::Blackhole)));
        let v6 = RuleEntry {
            is_family_v6: true,
            ..wanted(0, Some(0x10), RuleAction::Lookup)
        };
        assert!(!rule.is_meant_by(&v6));
    }
}
