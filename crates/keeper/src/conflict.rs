//! Does somebody on the link have our address already? (RFC 5227 2.1.1, with shorter waits.)

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_device::{Device, RxMeta, Slots, TxOffload};
use slipstack_mem::{Descriptor, RawSlice, now_ns};
use slipstack_wire::arp::{ArpOperation, ArpPacket, PACKET_LEN};
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};

use crate::error::KeeperError;
use crate::regions::SlotWords;
use crate::world::{Network, open_keeper_slot};

/// Probes and how long each waits for an answer.
// DEVIATION(RFC 5227 1.1): three probes 1 to 2 s apart would delay every start by seconds; on the
// links this runs on an owner answers within milliseconds.
const PROBES: usize = 2;
const WAIT: Duration = Duration::from_millis(100);
const FRAMES_MAX: usize = 256;

/// Asks the link for our address; an answer is an error.
pub fn probe(
    slots: &Slots,
    words: &SlotWords,
    network: &Network,
    interface: &str,
) -> Result<(), KeeperError> {
    let mut device = open_keeper_slot(slots, words)?;
    let wanted = network.addresses.iter().filter_map(|&(ip, _)| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    for address in wanted {
        if let Some(mac) = find_owner(&mut *device, network.mac, address) {
            return Err(KeeperError::AddressTaken {
                address: address.into(),
                mac,
                interface: interface.to_owned(),
            });
        }
    }
    Ok(())
}

/// The station that answers for an address.
fn find_owner(device: &mut dyn Device, mac: [u8; 6], address: Ipv4Addr) -> Option<[u8; 6]> {
    let mut owner = None;
    for _ in 0..PROBES {
        let frame = probe_frame(mac, address);
        let _ = device.tx(&frame, [RawSlice::EMPTY; 2], TxOffload::default());
        device.flush();
        let end = now_ns() + WAIT.as_nanos() as u64;
        while owner.is_none() && now_ns() < end {
            wait_readable(device, end.saturating_sub(now_ns()));
            device.rx(FRAMES_MAX, &mut |frame: &[u8], _: RxMeta| {
                owner = owner.or_else(|| claimant(frame, mac, address));
            });
        }
    }
    owner
}

fn probe_frame(mac: [u8; 6], address: Ipv4Addr) -> [u8; ethernet::HEADER_LEN + PACKET_LEN] {
    let mut frame = [0; ethernet::HEADER_LEN + PACKET_LEN];
    EthernetHeader {
        dst: ethernet::BROADCAST,
        src: mac,
        ethertype: EtherType::ARP,
    }
    .emit(&mut frame);
    ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: mac,
        sender_ip: Ipv4Addr::UNSPECIFIED,
        target_mac: [0; 6],
        target_ip: address,
    }
    .emit(&mut frame[ethernet::HEADER_LEN..]);
    frame
}

fn claimant(frame: &[u8], mac: [u8; 6], address: Ipv4Addr) -> Option<[u8; 6]> {
    let (header, payload) = EthernetHeader::parse(frame)?;
    if header.ethertype != EtherType::ARP {
        return None;
    }
    let packet = ArpPacket::parse(payload)?;
    (packet.sender_ip == address && packet.sender_mac != mac).then_some(packet.sender_mac)
}

fn wait_readable(device: &dyn Device, wait_ns: u64) {
    if device.has_rx() {
        return;
    }
    let Some(fd) = Descriptor::new(device.poll_fd()) else {
        return;
    };
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: wait_ns.min(999_999_999) as _,
    };
    let _ = poll(
        &mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)],
        Some(&timeout),
    );
}
