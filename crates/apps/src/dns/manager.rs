//! Zone maintenance, done by one engine for all: it queries primaries, installs zones and notifies
//! secondaries of changes (RFC 1034 4.3.5, RFC 1996).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::mailbox::ZoneMessage;
use super::message::opcode;
use super::policy::{Peer, Policy};
use super::transfer::Incoming;
use super::tsig::Session;
use super::types::{CLASS_IN, SOA};
use super::zone::Zones;

const SECOND_NS: u64 = 1_000_000_000;
/// Transfers under way at a time; further ones wait.
const TRANSFERS_MAX: usize = 16;
/// Number of NOTIFY messages to a secondary, and seconds until the first repetition.
const TELLS_MAX: u32 = 5;
const TELL_AGAIN: u64 = 2;
/// Seconds between queries to a primary without an SOA record: at first, and at most.
const RETRY_MIN: u64 = 2;
const RETRY_MAX: u64 = 300;
/// Limits of the timers in SOA records, in seconds.
const TIMER_MIN: u32 = 1;
const TIMER_MAX: u32 = 2_419_200;

/// A zone that comes from elsewhere.
#[derive(Debug)]
pub struct Secondary {
    pub apex: Vec<u8>,
    policy: Arc<Policy>,
    pub tag: u64,
    is_under_way: bool,
    /// A primary has announced another change meanwhile.
    is_to_ask_again: bool,
    ask_at: u64,
    /// Time at which the contents are too old to be served; `None`: there are none.
    expires_at: Option<u64>,
    failures: u32,
}

/// A secondary server to be notified of a change.
#[derive(Debug)]
struct Notice {
    apex: Vec<u8>,
    peer: Peer,
    id: u16,
    tells: u32,
    tell_at: u64,
}

/// A task that is due.
#[derive(Debug)]
pub enum Task {
    /// Open a connection to a primary, with this tag.
    Connect(SocketAddr, u64),
    /// Send a datagram.
    Tell(SocketAddr, Vec<u8>),
    /// The zone with this apex is too old.
    Expire(Vec<u8>),
    Log(String),
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub struct Manager {
    version: Option<u64>,
    secondaries: Vec<Secondary>,
    notices: Vec<Notice>,
    /// Serial numbers of which secondaries were notified.
    notified: HashMap<Vec<u8>, u32>,
    next_tag: u64,
    next_id: u16,
}

impl Manager {
    /// `seed`: of the ids of queries.
    pub fn new(seed: u64) -> Manager {
        Manager {
            next_id: seed as u16,
            ..Manager::default()
        }
    }

    /// Returns whether there is anything to look after.
    pub fn is_idle(&self) -> bool {
        self.secondaries.is_empty() && self.notices.is_empty()
    }

    /// Does due work.
    pub fn turn(
        &mut self,
        version: u64,
        zones: &Zones,
        messages: Vec<ZoneMessage>,
        now: u64,
    ) -> Vec<Task> {
        let mut tasks = Vec::new();
        if self.version != Some(version) {
            self.version = Some(version);
            self.follow(zones, now);
        }
        for message in messages {
            self.read(message, zones, now, &mut tasks);
        }
        self.tell(zones, now, &mut tasks);
        let under_way = self.secondaries.iter().filter(|it| it.is_under_way);
        let mut room = TRANSFERS_MAX.saturating_sub(under_way.count());
        for secondary in &mut self.secondaries {
            if secondary.expires_at.is_some_and(|at| at <= now) {
                secondary.expires_at = None;
                tasks.push(Task::Expire(secondary.apex.clone()));
            }
            let is_due = !secondary.is_under_way && secondary.ask_at <= now;
            if is_due && room > 0 {
                room -= 1;
                secondary.is_under_way = true;
                secondary.is_to_ask_again = false;
                let addr = secondary.primary().addr;
                tasks.push(Task::Connect(addr, secondary.tag));
            }
        }
        tasks
    }

    /// Follows a change of the zones: which there are, and which have changed.
    fn follow(&mut self, zones: &Zones, now: u64) {
        self.secondaries.retain(|secondary| {
            let served = zones.at(&secondary.apex);
            served.is_some_and(|served| !served.policy.primaries.is_empty())
        });
        for (apex, served) in zones.iter() {
            if !served.policy.primaries.is_empty() {
                self.follow_secondary(apex, &served.policy, zones, now);
            }
            let Some(zone) = &served.zone else { continue };
            let notified = self.notified.insert(apex.to_vec(), zone.soa.serial);
            if notified == Some(zone.soa.serial) {
                continue;
            }
            self.notices.retain(|notice| notice.apex != apex);
            for peer in &served.policy.notify {
                self.next_id = self.next_id.wrapping_add(0x9e37);
                self.notices.push(Notice {
                    apex: apex.to_vec(),
                    peer: peer.clone(),
                    id: self.next_id,
                    tells: 0,
                    tell_at: now,
                });
            }
        }
        self.notified.retain(|apex, _| zones.at(apex).is_some());
    }

    fn follow_secondary(&mut self, apex: &[u8], policy: &Arc<Policy>, zones: &Zones, now: u64) {
        let mut known = self.secondaries.iter_mut();
        if let Some(secondary) = known.find(|secondary| secondary.apex == apex) {
            secondary.policy = Arc::clone(policy);
            return;
        }
        let zone = zones.at(apex).and_then(|served| served.zone.as_ref());
        self.next_tag += 1;
        self.secondaries.push(Secondary {
            apex: apex.to_vec(),
            policy: Arc::clone(policy),
            tag: self.next_tag,
            is_under_way: false,
            is_to_ask_again: false,
            ask_at: now,
            expires_at: zone.map(|zone| now + seconds(zone.soa.expire)),
            failures: 0,
        });
    }

    fn read(&mut self, message: ZoneMessage, zones: &Zones, now: u64, tasks: &mut Vec<Task>) {
        match message {
            ZoneMessage::Heard(id, apex) => {
                self.notices
                    .retain(|notice| notice.id != id || notice.apex != apex);
            }
            ZoneMessage::Changed(apex) => {
                let mut known = self.secondaries.iter_mut();
                if let Some(secondary) = known.find(|secondary| secondary.apex == apex) {
                    secondary.is_to_ask_again = secondary.is_under_way;
                    secondary.ask_at = now;
                }
            }
            ZoneMessage::Installed(apex, outcome) => {
                let tag = self.secondaries.iter().find(|it| it.apex == apex);
                if let Some(tag) = tag.map(|it| it.tag) {
                    tasks.extend(self.finish(tag, outcome.map(Some), zones, now));
                }
            }
        }
    }

    /// Returns the beginning of a transfer.
    pub fn begin(&mut self, tag: u64, zones: &Zones) -> Option<Incoming> {
        let secondary = self.secondaries.iter().find(|it| it.tag == tag)?;
        let base = zones.at(&secondary.apex)?.zone.clone();
        let key = secondary.primary().key.as_ref();
        let key = match key {
            Some(name) => Some(Arc::clone(zones.keys.get(name)?)),
            None => None,
        };
        self.next_id = self.next_id.wrapping_add(0x9e37);
        Some(Incoming::new(
            secondary.apex.clone(),
            base,
            key,
            self.next_id,
        ))
    }

    /// A transfer has ended: with a new version, with none (`None`), or without success.
    pub fn finish(
        &mut self,
        tag: u64,
        outcome: Result<Option<u32>, String>,
        zones: &Zones,
        now: u64,
    ) -> Option<Task> {
        let mut known = self.secondaries.iter_mut();
        let secondary = known.find(|it| it.tag == tag && it.is_under_way)?;
        secondary.is_under_way = false;
        let served = zones.at(&secondary.apex)?;
        let soa = served.zone.as_ref().map(|zone| zone.soa);
        let (origin, primary) = (&served.policy.origin, secondary.primary().addr);
        let (wait, task) = match outcome {
            Ok(serial) => {
                secondary.failures = 0;
                secondary.expires_at = soa.map(|soa| now + seconds(soa.expire));
                let log = serial.map(|serial| {
                    Task::Log(format!("zone {origin}: serial {serial} from {primary}"))
                });
                (soa.map_or(RETRY_MIN, |soa| bounded(soa.refresh)), log)
            }
            Err(why) => {
                let backoff = RETRY_MIN << secondary.failures.min(8);
                secondary.failures += 1;
                let log = format!("zone {origin}: no transfer from {primary}: {why}");
                let wait = soa.map_or(backoff.min(RETRY_MAX), |soa| bounded(soa.retry));
                (wait, Some(Task::Log(log)))
            }
        };
        secondary.ask_at = match secondary.is_to_ask_again {
            true => now,
            false => now + wait * SECOND_NS,
        };
        task
    }

    /// Tells secondaries that have not answered.
    fn tell(&mut self, zones: &Zones, now: u64, tasks: &mut Vec<Task>) {
        self.notices.retain_mut(|notice| {
            if notice.tell_at > now {
                return true;
            }
            if notice.tells >= TELLS_MAX {
                let zone = super::name::text(&notice.apex);
                let log = format!("zone {zone}: {} does not answer NOTIFY", notice.peer.addr);
                tasks.push(Task::Log(log));
                return false;
            }
            notice.tell_at = now + (TELL_AGAIN << notice.tells) * SECOND_NS;
            notice.tells += 1;
            tasks.push(Task::Tell(notice.peer.addr, notice.message(zones)));
            true
        });
    }
}

impl Secondary {
    /// Returns the current primary: after a failure the next one.
    fn primary(&self) -> &Peer {
        let primaries = &self.policy.primaries;
        &primaries[self.failures as usize % primaries.len()]
    }
}

impl Notice {
    fn message(&self, zones: &Zones) -> Vec<u8> {
        let id = self.id.to_be_bytes();
        let flags = opcode::NOTIFY << 3 | 4;
        let mut message = vec![id[0], id[1], flags, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&self.apex);
        message.extend_from_slice(&SOA.to_be_bytes());
        message.extend_from_slice(&CLASS_IN.to_be_bytes());
        let key = self.peer.key.as_ref().and_then(|name| zones.keys.get(name));
        if let Some(key) = key {
            Session::request(Arc::clone(key), &mut message, super::responder::unix_now());
        }
        message
    }
}

fn bounded(seconds: u32) -> u64 {
    seconds.clamp(TIMER_MIN, TIMER_MAX).into()
}

fn seconds(seconds: u32) -> u64 {
    u64::from(seconds) * SECOND_NS
}
