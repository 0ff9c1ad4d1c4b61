//! Connections of killed programs that other programs of the instance may go on with: they wait
//! here until one of these asks for them, as in the keeper.

use std::os::fd::OwnedFd;

use slipstack_channel::control::{LeftFile, Refusal, Reply, WantedLeft, read_exactly, text_file};
use slipstack_engine::{ClientId, Engine, Instant, UserState};
use slipstack_mem::Region;
use slipstack_mem::process::{explained, has_ended};

use super::clients::{Answer, Session, refuse};
use super::reception::ControlServer;
use crate::door::random_u64;

/// Time for which a connection waits for its user.
const WAIT_NS: u64 = 2_000_000_000;
/// Interval at which it is looked whether the users live.
const LOOK_NS: u64 = 50_000_000;

/// Bytes at most that come with a program: more than a pair holds.
const UNREAD_MAX: u32 = 1 << 20;

/// A killed program.
struct Left {
    until: u64,
    client: ClientId,
    channel: Region,
    /// Number that processes know which have connections of it.
    heirs: u64,
}

/// All killed programs that have left such connections.
#[derive(Default)]
pub(super) struct AllLeft {
    all: Vec<Left>,
    looked_at: u64,
}

impl AllLeft {
    pub(super) fn add(&mut self, now: Instant, client: ClientId, channel: Region, heirs: u64) {
        self.all.push(Left {
            until: now.0 + WAIT_NS,
            client,
            channel,
            heirs,
        });
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (!self.all.is_empty()).then_some(Instant(self.looked_at + LOOK_NS))
    }

    /// Ends connections that wait no longer, if it is time to look.
    pub(super) fn end_over_due(&mut self, engine: &mut Engine, now: Instant) {
        if self.next_deadline().is_none_or(|due| now < due) {
            return;
        }
        self.looked_at = now.0;
        self.all.retain(|left| {
            let state = |user| match state_of(user) {
                UserState::MayCome if left.until <= now.0 => UserState::Late,
                state => state,
            };
            engine.is_left(left.client, &left.channel) && engine.end_lent(now, left.client, state)
        });
    }
}

/// The state of a process that may go on with a connection, if that is known.
pub(super) fn state_of(user: Option<u32>) -> UserState {
    match user.is_some_and(has_ended) {
        true => UserState::Ended,
        false => UserState::MayCome,
    }
}

/// Returns the bytes of a file that is to have as many. `None`: it has not, or they are too many.
fn read_unread(file: OwnedFd, count: u32) -> Option<Vec<u8>> {
    let may_be = count <= UNREAD_MAX;
    may_be
        .then(|| read_exactly(file, u64::from(count)).ok())
        .flatten()
}

impl ControlServer {
    /// `unread`: a file with the bytes that come with the program; `None`: it asks only whether the
    /// connection is there.
    pub(super) fn on_take_left(
        &mut self,
        token: u64,
        wanted: &WantedLeft,
        unread: Option<OwnedFd>,
        engine: &mut Engine,
    ) -> Answer {
        let (ends, has) = ((wanted.local, wanted.remote), wanted.has);
        let asker = self.sessions.get(&token).and_then(Session::pid);
        let Some((client, is_alive)) = engine.find_user(ends) else {
            return refuse(Refusal::Unknown, "no such connection waits");
        };
        let is_left = |left: &Left| {
            left.client == client
                && left.heirs == wanted.heirs
                && engine.is_left(client, &left.channel)
        };
        if !self.left.all.iter().any(is_left) {
            return match is_alive {
                true => refuse(Refusal::Busy, "the owner of the connection lives"),
                false => refuse(Refusal::Unknown, "no such connection waits"),
            };
        }
        let user = asker.unwrap_or(0);
        let Some(mut told) = engine.look_at_lent(client, ends, user) else {
            return refuse(Refusal::Unknown, "another process uses the connection");
        };
        if let Some(unread) = unread {
            let Some(unread) = read_unread(unread, has.unread) else {
                return refuse(Refusal::Failed, "these are not its unread bytes");
            };
            let key = u128::from(random_u64()) << 64 | u128::from(random_u64());
            let offered = engine.offer_lent((client, key), ends, has, unread);
            let cannot = || (Refusal::Failed, String::from("the connection cannot move"));
            told.unsent = offered.ok_or_else(cannot)?;
            told.head = key.to_le_bytes().to_vec();
        }
        let file = text_file(&LeftFile::to_bytes(&told));
        let file = file.map_err(|error| (Refusal::Failed, explained(&error)))?;
        Ok((Reply::Done, vec![file]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_bytes_are_as_many_as_was_said_and_no_more_than_a_pair_holds() {
        let file = |len: u32| text_file(&vec![7; len as usize]).unwrap();
        for (len, said, is_taken) in [
            (0, 0, true),
            (5, 5, true),
            (5, 4, false),
            (4, 5, false),
            (UNREAD_MAX, UNREAD_MAX, true),
            (UNREAD_MAX + 1, UNREAD_MAX + 1, false),
        ] {
            let read = read_unread(file(len), said);
            assert_eq!(read.is_some(), is_taken, "{len} {said}");
            assert!(read.is_none_or(|it| it == vec![7; len as usize]));
        }
    }
}
