//! Conversion of the packet filter from the keeper's published form to the stack's.

use std::net::IpAddr;
use std::sync::Arc;

use slipstack_channel::control::net::{
    FilterEnd, FilterReceived, FilterRule, FilterState, FilterTerm, FilterTest, NetworkState,
};
use slipstack_stack::filter::{self, Addresses, End, Numbers, Table, Term, Test};
use slipstack_stack::{FilterRules, Stack};

/// The sources of a stack's filter. It is compiled when they change, and not with every change of
/// the network.
#[derive(Debug, Default)]
pub struct HeldFilter {
    /// [`NetworkState::filter`] with which it holds.
    revision: u64,
    rules: Vec<FilterRule>,
    disabled_sets: u32,
    tables: Vec<HeldTable>,
    /// The stack's own addresses for which it is compiled; `None`: it is not.
    own: Option<Vec<IpAddr>>,
}

#[derive(Debug)]
struct HeldTable {
    name: String,
    revision: u64,
    table: Arc<Table>,
}

impl HeldFilter {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn rules(&self) -> &[FilterRule] {
        &self.rules
    }

    /// The revisions of the tables that are here.
    pub fn known(&self) -> Vec<u64> {
        self.tables.iter().map(|table| table.revision).collect()
    }

    /// Stores the received filter.
    pub fn take(&mut self, revision: u64, arrived: FilterReceived) {
        let before = std::mem::take(&mut self.tables);
        let tables = arrived.tables.into_iter().map(|received| {
            let known = before
                .iter()
                .find(|it| it.revision == received.head.revision);
            let table = match (received.entries, known) {
                (Some(entries), _) => Arc::new(Table::new(&entries)),
                (None, Some(known)) => known.table.clone(),
                (None, None) => Arc::default(),
            };
            HeldTable {
                name: received.head.name,
                revision: received.head.revision,
                table,
            }
        });
        *self = HeldFilter {
            revision,
            rules: arrived.rules,
            disabled_sets: arrived.disabled_sets,
            tables: tables.collect(),
            own: None,
        };
    }

    /// Takes the filter from a caller that has the whole of it.
    pub fn take_state(&mut self, revision: u64, state: &FilterState) {
        let known = self.known();
        let (arrived, bytes) = state.tell(Some(&known));
        if let Some(arrived) = arrived.join(state.rules.clone(), &bytes) {
            self.take(revision, arrived);
        }
    }

    /// Makes the stack go by it, if it does not yet.
    pub fn apply(&mut self, stack: &mut Stack, network: &NetworkState) {
        let addresses = network.addresses();
        let own: Vec<IpAddr> = addresses.iter().map(|(ip, _)| *ip).collect();
        if self.own.as_ref() == Some(&own) {
            return;
        }
        let words = Words {
            own: own.iter().map(|ip| host(*ip)).collect(),
            tables: self
                .tables
                .iter()
                .map(|table| table.name.as_str())
                .collect(),
        };
        let is_enabled = |rule: &FilterRule| self.disabled_sets >> rule.set & 1 == 0;
        let rules = self.rules.iter();
        stack.set_filter(FilterRules {
            rules: rules
                .map(|rule| words.rule(rule, is_enabled(rule)))
                .collect(),
            tables: self
                .tables
                .iter()
                .map(|table| table.table.clone())
                .collect(),
        });
        self.own = Some(own);
    }
}

/// The stack's own addresses in the place of "me", and places in that of tables' names.
struct Words<'a> {
    own: Vec<(IpAddr, u8)>,
    tables: Vec<&'a str>,
}

impl Words<'_> {
    fn rule(&self, configured: &FilterRule, is_enabled: bool) -> filter::FilterRule {
        let clauses = configured.clauses.iter();
        let mut clauses: Vec<Vec<Term>> = clauses
            .map(|any| any.iter().map(|term| self.term(term)).collect())
            .collect();
        let from = self.end(&configured.from, &mut clauses, Test::Source);
        let to = self.end(&configured.to, &mut clauses, Test::Destination);
        filter::FilterRule {
            id: configured.id,
            number: configured.number,
            is_enabled,
            action: configured.action,
            protocol: configured.protocol,
            is_v6: configured.is_v6,
            from,
            to,
            direction: configured.direction,
            link: configured.link,
            part: configured.part,
            clauses,
            state: configured.keep,
            log: configured.log,
        }
    }

    /// One end of a rule; with tables its addresses are a clause of their own.
    fn end(
        &self,
        configured: &FilterEnd,
        clauses: &mut Vec<Vec<Term>>,
        test: fn(Addresses) -> Test,
    ) -> End {
        let mut end = End {
            ports: configured.ports.clone(),
            is_not_ports: configured.is_not_ports,
            ..End::default()
        };
        let addresses = self.addresses(configured);
        if configured.tables.is_empty() {
            (end.nets, end.is_not) = (addresses.nets, configured.is_not);
            return end;
        }
        clauses.push(vec![Term {
            is_not: configured.is_not,
            test: test(addresses),
        }]);
        end
    }

    fn addresses(&self, configured: &FilterEnd) -> Addresses {
        let mut nets = configured.nets.clone();
        let is_meant = |ip: &IpAddr| configured.is_me || (configured.is_me6 && ip.is_ipv6());
        nets.extend(self.own.iter().filter(|(ip, _)| is_meant(ip)));
        // A stack without such addresses matches nothing; an empty list would match everything.
        if nets.is_empty() && (configured.is_me || configured.is_me6) {
            nets.push(host(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)));
        }
        let place = |name: &str| self.tables.iter().position(|known| *known == name);
        // One that is not there has no prefixes.
        let tables = configured.tables.iter().map(|(name, value)| {
            let place = place(name).unwrap_or(usize::MAX);
            (place, *value)
        });
        Addresses {
            nets,
            tables: tables.collect(),
        }
    }

    fn term(&self, configured: &FilterTerm) -> Term {
        let test = match &configured.test {
            FilterTest::Protocol(number) => Test::Protocol(*number),
            FilterTest::V6(is_v6) => Test::V6(*is_v6),
            FilterTest::Source(end) => Test::Source(self.addresses(end)),
            FilterTest::Destination(end) => Test::Destination(self.addresses(end)),
            FilterTest::SourcePort(ports) => Test::SourcePort(ports.clone()),
            FilterTest::DestinationPort(ports) => Test::DestinationPort(ports.clone()),
            FilterTest::Direction(configured) => Test::Direction(*configured),
            FilterTest::Via(vlan) => Test::Link(*vlan),
            FilterTest::Part(configured) => Test::Part(*configured),
            FilterTest::TcpFlags { set, clear } => Test::Flags {
                set: *set,
                clear: *clear,
            },
            FilterTest::IcmpTypes(types) => Test::IcmpType(Numbers::of(types)),
            FilterTest::Icmp6Types(types) => Test::Icmp6Type(Numbers::of(types)),
            FilterTest::Fragment => Test::Fragment,
            FilterTest::Ttl(ranges) => Test::Ttl(ranges.clone()),
            FilterTest::Len(ranges) => Test::Len(ranges.clone()),
        };
        Term {
            is_not: configured.is_not,
            test,
        }
    }
}

fn host(ip: IpAddr) -> (IpAddr, u8) {
    (ip, if ip.is_ipv4() { 32 } else { 128 })
}
