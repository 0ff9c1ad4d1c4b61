//! Connections without a listener: their engine has released them, and no engine serves their port.
//!
//! While a program means to listen on the port they wait here, as in the backlog of the socket that
//! the program still holds. They are stored as the messages in which engines sent them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use slipstack_channel::{InboxMessage, Passed, PassingHead};
use slipstack_device::{Flow, Transport};
use slipstack_stack::{ConnectionImage, HalfOpenImage};

/// Connections that wait at most, and their messages; a further one is refused.
const FLOWS_MAX: usize = 1024;
const MESSAGES_MAX: usize = 16_384;
/// Bytes of all parked connections at most: their sum when each is as long as engines make them.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Interval of checks whether a program still intends to listen.
const ASK_NS: u64 = 100_000_000;

/// The messages of one connection, and its place in the order of arrival.
#[derive(Debug, Default)]
struct Messages {
    number: u64,
    /// As in [`PassingHead`].
    link: u16,
    queue: VecDeque<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Parked {
    flows: HashMap<Flow, Messages>,
    /// Number of the next flow.
    next: u64,
    messages: usize,
    bytes: usize,
    asked_ns: u64,
}

impl Parked {
    /// Keeps a message. Returns `None` if there is no room for its connection.
    pub(super) fn add(&mut self, head: &PassingHead, passed: Passed<'_>) -> Option<Flow> {
        let message = InboxMessage::Passing(*head, passed).to_vec();
        let flow = Flow {
            proto: Transport::Tcp,
            local: head.local,
            remote: head.remote,
        };
        let is_new = !self.flows.contains_key(&flow);
        let is_full = self.messages >= MESSAGES_MAX || self.bytes + message.len() > BYTES_MAX;
        // Anybody's SYNs make half-open ones: they leave room for open connections.
        let most = match passed {
            Passed::HalfOpen(_) => FLOWS_MAX / 2,
            Passed::Open { .. } | Passed::Ended { .. } | Passed::Bytes(_) => FLOWS_MAX,
        };
        if is_full || (is_new && self.flows.len() >= most) {
            return None;
        }
        self.messages += 1;
        self.bytes += message.len();
        let entry = self.flows.entry(flow).or_insert_with(|| {
            self.next += 1;
            Messages {
                number: self.next,
                link: head.link,
                queue: VecDeque::new(),
            }
        });
        entry.queue.push_back(message);
        Some(flow)
    }

    /// Returns whether another connection with all its bytes can come.
    pub(super) fn has_room(&self) -> bool {
        let is_full = self.messages + MESSAGES_MAX / 4 > MESSAGES_MAX
            || self.bytes + BYTES_MAX / 4 > BYTES_MAX;
        !is_full && self.flows.len() < FLOWS_MAX
    }

    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.flows.contains_key(flow)
    }

    pub(super) fn link_of(&self, flow: &Flow) -> u16 {
        self.flows.get(flow).map_or(0, |messages| messages.link)
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The ports of all connections.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.flows.keys().map(|flow| flow.local.port())
    }

    /// The connections of a port, in the order of arrival.
    pub(super) fn on_port(&self, port: u16) -> Vec<Flow> {
        let is_there = |(flow, _): &(&Flow, &Messages)| flow.local.port() == port;
        let mut flows: Vec<(u64, Flow)> = self
            .flows
            .iter()
            .filter(is_there)
            .map(|(flow, messages)| (messages.number, *flow))
            .collect();
        flows.sort_unstable_by_key(|(number, _)| *number);
        flows.into_iter().map(|(_, flow)| flow).collect()
    }

    /// Sends the messages of a flow off, until one is not taken.
    pub(super) fn send(&mut self, flow: &Flow, mut take: impl FnMut(&InboxMessage<'_>) -> bool) {
        let Some(messages) = self.flows.get_mut(flow) else {
            return;
        };
        let mut is_taken =
            |bytes: &[u8]| InboxMessage::parse(bytes).is_ok_and(|message| take(&message));
        while let Some(message) = messages.queue.front().filter(|message| is_taken(message)) {
            self.messages -= 1;
            self.bytes -= message.len();
            messages.queue.pop_front();
        }
        if messages.queue.is_empty() {
            self.flows.remove(flow);
        }
    }

    /// Returns the ports to check now, if that is due.
    pub(super) fn ports_to_ask(&mut self, now: u64) -> Vec<u16> {
        if self.flows.is_empty() || now < self.asked_ns + ASK_NS {
            return Vec::new();
        }
        self.asked_ns = now;
        let mut ports: Vec<u16> = self.flows.keys().map(|flow| flow.local.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        (!self.flows.is_empty()).then_some(self.asked_ns + ASK_NS)
    }

    /// Gives up the connections of a port whose address `is_closed`, and returns them, to be reset.
    pub(super) fn give_up(
        &mut self,
        port: u16,
        mut is_closed: impl FnMut(SocketAddr, u16) -> bool,
    ) -> Vec<Untaken> {
        let mut all = Vec::new();
        for flow in self.on_port(port) {
            if !is_closed(flow.local, self.link_of(&flow)) {
                continue;
            }
            let messages = self.flows.remove(&flow).unwrap_or_default().queue;
            self.messages -= messages.len();
            self.bytes -= messages.iter().map(Vec::len).sum::<usize>();
            let messages = messages.iter().map(|bytes| InboxMessage::parse(bytes));
            all.extend(messages.filter_map(|message| match message {
                Ok(InboxMessage::Passing(head, passed)) => Untaken::of(&head, passed),
                _ => None,
            }));
        }
        all
    }
}

/// A connection that no program takes.
#[derive(Debug)]
pub(super) enum Untaken {
    Open(Box<ConnectionImage>),
    /// With the link of its listener, as in [`PassingHead`]. The engine that was killed may have
    /// taken the peer's ACK, so that the peer waits as that of an open one.
    HalfOpen(HalfOpenImage, u16),
}

impl Untaken {
    /// Returns the connection that this first message describes.
    pub(super) fn of(head: &PassingHead, passed: Passed<'_>) -> Option<Untaken> {
        Some(match passed {
            Passed::Open { image, .. } => {
                let image = ConnectionImage::from_bytes(image.try_into().ok()?);
                Untaken::Open(Box::new(image))
            }
            Passed::HalfOpen(image) => {
                let image = HalfOpenImage::from_bytes(image.try_into().ok()?);
                Untaken::HalfOpen(image, head.link)
            }
            Passed::Ended { .. } | Passed::Bytes(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use slipstack_channel::UrgentAhead;

    use super::*;

    fn head(port: u16) -> PassingHead {
        PassingHead {
            hops: 0,
            link: 0,
            tag: 1,
            local: "10.0.0.1:80".parse().unwrap(),
            remote: std::net::SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    #[test]
    fn messages_leave_in_their_order_and_stay_when_there_is_no_room() {
        let mut parked = Parked::default();
        let flow = parked.add(&head(1), Passed::Bytes(b"a")).unwrap();
        assert_eq!(parked.add(&head(1), Passed::Bytes(b"b")), Some(flow));
        let mut sent = Vec::new();
        parked.send(&flow, |message| {
            sent.push(message.to_vec().pop());
            sent.len() < 2
        });
        assert!(parked.has(&flow));
        parked.send(&flow, |message| {
            sent.push(message.to_vec().pop());
            true
        });
        assert_eq!(sent, [Some(b'a'), Some(b'b'), Some(b'b')]);
        assert_eq!((parked.len(), parked.messages, parked.bytes), (0, 0, 0));
    }

    #[test]
    fn connections_are_reset_when_no_listener_is_expected_any_more() {
        let mut parked = Parked::default();
        let open = Passed::Open {
            len: 0,
            has_fin: false,
            urgent: UrgentAhead::default(),
            image: &[0; ConnectionImage::LEN],
        };
        parked.add(&head(1), open).unwrap();
        let half_open = Passed::HalfOpen(&[0; HalfOpenImage::LEN]);
        let of_link = PassingHead { link: 3, ..head(2) };
        parked.add(&of_link, half_open).unwrap();
        assert_eq!(parked.ports_to_ask(ASK_NS), [80]);
        assert!(parked.ports_to_ask(ASK_NS + 1).is_empty());
        assert!(parked.give_up(80, |_, _| false).is_empty());
        let given_up = parked.give_up(80, |_, _| true);
        let is_pair = matches!(given_up[..], [Untaken::Open(_), Untaken::HalfOpen(_, 3)]);
        assert!(is_pair, "{given_up:?}");
        assert_eq!((parked.len(), parked.messages, parked.bytes), (0, 0, 0));
    }

    #[test]
    fn parked_messages_are_bounded() {
        let mut parked = Parked::default();
        for port in 1..=FLOWS_MAX as u16 {
            assert!(parked.add(&head(port), Passed::Bytes(b"")).is_some());
        }
        assert_eq!(parked.add(&head(60_000), Passed::Bytes(b"")), None);
        assert!(parked.add(&head(1), Passed::Bytes(b"")).is_some());
    }

    #[test]
    fn half_open_connections_leave_room_for_open_ones() {
        let mut parked = Parked::default();
        let half_open = Passed::HalfOpen(&[0; 80]);
        let taken = (1..=FLOWS_MAX as u16)
            .take_while(|port| parked.add(&head(*port), half_open).is_some())
            .count();
        assert_eq!(taken, FLOWS_MAX / 2);
        assert!(parked.add(&head(60_000), Passed::Bytes(b"")).is_some());
    }

    #[test]
    fn long_messages_have_no_more_room_than_short_ones() {
        let mut parked = Parked::default();
        let long = Passed::Bytes(&[0; 60_000]);
        let taken = (0..MESSAGES_MAX).take_while(|_| parked.add(&head(1), long).is_some());
        let len = InboxMessage::Passing(head(1), long).to_vec().len();
        assert_eq!(taken.count(), BYTES_MAX / len);
        parked.give_up(80, |_, _| true);
        assert_eq!((parked.messages, parked.bytes), (0, 0));
    }
}
