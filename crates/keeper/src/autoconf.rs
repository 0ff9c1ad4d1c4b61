//! Initial stateless autoconfiguration (RFC 4862): before the first program starts, the keeper's
//! stack probes for its link-local address, solicits routers and probes for addresses of their
//! prefixes. From then on the keeper follows the advertisements ([`crate::net`]).

use std::time::Duration;

use slipstack_device::{Device, RxMeta, Slots, transmit};
use slipstack_mem::{RawSlice, now_ns};
use slipstack_stack::rng::SipKey;
use slipstack_stack::{
    ConnId, DatagramIn, Effects, Event, FrameOut, Identifiers, Instant, Payload, SlaacConfig,
    Stack, StackConfig, UdpId,
};
use tracing::warn;

use crate::conflict::wait_readable;
use crate::error::KeeperError;
use crate::network::Network;
use crate::random::random_u64;
use crate::regions::SlotWords;
use crate::slots::open_keeper_slot;

const FRAMES_MAX: usize = 256;
/// Most addresses from routers' prefixes, with the configured ones (Linux: `max_addresses` is 16).
const ADDRESSES_MAX: usize = 8;
/// Longest time of a start, whatever the link does.
const START_MAX: Duration = Duration::from_secs(6);

/// Waits until the stack has the addresses that the link gives, and returns its state for a
/// successor. Without a router there is the link-local address.
pub fn configure(
    slots: &Slots,
    words: &SlotWords,
    network: &mut Network,
    interface: &str,
) -> Result<Vec<u64>, KeeperError> {
    let configured = network.state.configured().filter(|(ip, _)| ip.is_ipv6());
    network.slaac = Some(SlaacConfig {
        identifiers: identifiers(interface),
        addresses_max: ADDRESSES_MAX.saturating_sub(configured.count()),
        image: Vec::new(),
    });
    let mut port = Port {
        device: open_keeper_slot(slots, words)?,
    };
    port.device.set_vlans(&network.state.further_links());
    let config = StackConfig {
        seed: std::array::from_fn(|_| random_u64() as u8),
        ..network.stack_config()
    };
    let mut stack = Stack::new(config, Instant(now_ns()));
    stack.announce_groups(Instant(now_ns()), &mut port);
    let end = now_ns() + START_MAX.as_nanos() as u64;
    let mut revision = 0;
    while !stack.is_settled() && now_ns() < end {
        port.turn(&mut stack);
        let (learnt, now) = stack.learnt();
        if now != revision {
            revision = now;
            network.state.learnt = Some(learnt.published());
            slots.steering().set_own(&network.state.addresses())?;
        }
    }
    let learnt = network.state.learnt.get_or_insert_default();
    if learnt.addresses.is_empty() {
        return Err(KeeperError::NoLinkLocal {
            interface: interface.to_owned(),
        });
    }
    if learnt.routers.is_empty() {
        warn!(
            interface,
            "no IPv6 router has answered; the stack waits for one"
        );
    }
    Ok(stack.slaac_image())
}

/// The keeper's slot, as far as a stack without sockets needs one.
struct Port {
    device: Box<dyn Device>,
}

impl Port {
    /// Sleeps until something comes or is due.
    fn turn(&mut self, stack: &mut Stack) {
        self.device.flush();
        let due = stack.next_deadline().map_or(u64::MAX, |at| at.0);
        wait_readable(&*self.device, due.saturating_sub(now_ns()));
        let mut frames = Vec::new();
        self.device
            .rx(FRAMES_MAX, &mut |frame: &[u8], meta: RxMeta| {
                frames.push((frame.to_vec(), meta))
            });
        let now = Instant(now_ns());
        for (frame, meta) in &frames {
            stack.on_frame(now, frame, *meta, self);
        }
        stack.on_timers(now, self);
        stack.flush(now, self);
    }
}

impl Effects for Port {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        if let (false, Payload::Inline(bytes)) = (frame.local, frame.payload) {
            let payload = [RawSlice::of(bytes), RawSlice::EMPTY];
            let _ = transmit(&mut *self.device, frame.header, payload, frame.offload);
        }
    }

    fn store(&mut self, _: ConnId, _: u64, _: &[u8]) -> bool {
        false
    }

    fn datagram(&mut self, _: UdpId, _: &DatagramIn<'_>) {}

    fn event(&mut self, _: Event) {}
}

/// RFC 7217 5.
fn identifiers(interface: &str) -> Identifiers {
    let secret = machine_secret().unwrap_or_else(|| SipKey {
        k0: random_u64(),
        k1: random_u64(),
    });
    let interface = interface
        .bytes()
        .fold(0, |hash, byte| secret.hash_words([hash, u64::from(byte)]));
    Identifiers { secret, interface }
}

/// Stays the same over restarts, and differs between machines.
fn machine_secret() -> Option<SipKey> {
    let text = std::fs::read_to_string("/etc/machine-id").ok()?;
    let number = u128::from_str_radix(text.trim(), 16).ok()?;
    Some(SipKey {
        k0: (number >> 64) as u64,
        k1: number as u64,
    })
}
