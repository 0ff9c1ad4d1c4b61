//! The packet filter as the keeper publishes it, between its words and the stack's.

use std::net::IpAddr;

use slipstack_channel::control::net::{
    FilterAction, FilterDirection, FilterEnd, FilterPart, FilterRule, NetworkState, UnreachCode,
};
use slipstack_stack::filter::{self, Action, Direction, End, Part, Unreach};

/// Rules in the stack's words, with the stack's own addresses in the place of "me".
pub fn stack_filter(rules: &[FilterRule], network: &NetworkState) -> Vec<filter::FilterRule> {
    let own: Vec<(IpAddr, u8)> = network
        .addresses()
        .iter()
        .map(|(ip, _)| host(*ip))
        .collect();
    let of = |rule: &FilterRule| filter::FilterRule {
        id: rule.id,
        number: rule.number,
        action: action(rule.action),
        protocol: rule.protocol,
        is_v6: rule.is_v6,
        from: end(&rule.from, &own),
        to: end(&rule.to, &own),
        direction: rule.direction.map(|direction| match direction {
            FilterDirection::In => Direction::In,
            FilterDirection::Out => Direction::Out,
        }),
        vlan: rule.vlan,
        part: rule.part.map(|part| match part {
            FilterPart::Established => Part::Established,
            FilterPart::Setup => Part::Setup,
        }),
    };
    rules.iter().map(of).collect()
}

fn host(ip: IpAddr) -> (IpAddr, u8) {
    (ip, if ip.is_ipv4() { 32 } else { 128 })
}

fn end(told: &FilterEnd, own: &[(IpAddr, u8)]) -> End {
    let mut nets = told.nets.clone();
    if told.is_me {
        nets.extend(own);
        // A stack without addresses is nobody; an empty list would be everybody.
        if nets.is_empty() {
            nets.push(host(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)));
        }
    }
    End {
        nets,
        is_not: told.is_not,
        ports: told.ports.clone(),
        is_not_ports: told.is_not_ports,
    }
}

fn action(told: FilterAction) -> Action {
    match told {
        FilterAction::Allow => Action::Allow,
        FilterAction::Deny => Action::Deny,
        FilterAction::Count => Action::Count,
        FilterAction::SkipTo(number) => Action::SkipTo(number),
        FilterAction::Reset => Action::Reset,
        FilterAction::Unreach(code) => Action::Unreach(match code {
            UnreachCode::Net => Unreach::Net,
            UnreachCode::Host => Unreach::Host,
            UnreachCode::Port => Unreach::Port,
            UnreachCode::Prohibited => Unreach::Prohibited,
        }),
    }
}
