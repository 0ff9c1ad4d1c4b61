//! Invariants of a connection between two calls; simulations check them often.

use super::Tcp;
use super::connection::Connection;
use super::in_flight::InFlight;
use super::phase::Phase;

/// Records of a flight up to which it is audited at each segment. The simulator's own audits see
/// longer ones too.
const RECORDS_OFTEN: usize = 1024;

impl Tcp {
    /// The first thing that does not hold, with the connection's index.
    pub fn audit(&self) -> Result<(), (u32, &'static str)> {
        let mut orphans = 0;
        for (index, conn) in self.conns.iter() {
            orphans += u32::from(conn.is_orphan);
            audit_one(conn).map_err(|what| (index, what))?;
        }
        if orphans != self.orphans {
            return Err((u32::MAX, "orphans are miscounted"));
        }
        Ok(())
    }
}

/// The first invariant of a connection that does not hold.
fn audit_one(conn: &Connection) -> Result<(), &'static str> {
    audit_send(conn)?;
    audit_receive(conn)
}

/// As [`audit_one`], of what costs little enough at each segment.
pub(super) fn audit_often(conn: &Connection) -> Result<(), &'static str> {
    match conn.flight.as_deref() {
        Some(flight) if flight.board.len() > RECORDS_OFTEN => audit_receive(conn),
        _ => audit_one(conn),
    }
}

/// RFC 9293 3.3.1: SND.UNA =< SND.NXT, and nothing is sent that was not written.
fn audit_send(conn: &Connection) -> Result<(), &'static str> {
    let snd = &conn.snd;
    if snd.una > snd.nxt {
        return Err("SND.UNA is beyond SND.NXT");
    }
    if conn.phase.is_synchronized() && snd.nxt > snd.written + u64::from(snd.is_fin_sent) {
        return Err("SND.NXT is beyond what was written");
    }
    match conn.flight.as_deref() {
        Some(flight) => audit_flight(conn, flight),
        None if conn.phase.is_synchronized() && snd.una != snd.nxt => {
            Err("nothing is known of what is in flight")
        }
        None => Ok(()),
    }
}

/// The records cover SND.UNA to SND.NXT without a gap, and their sums are right.
fn audit_flight(conn: &Connection, flight: &InFlight) -> Result<(), &'static str> {
    let board = &flight.board;
    let (mut sacked, mut lost) = (0, 0);
    let mut end = None;
    for record in board.records() {
        if record.start >= record.end || end.is_some_and(|end| end != record.start) {
            return Err("the scoreboard has a gap");
        }
        end = Some(record.end);
        sacked += if record.is_sacked {
            record.end - record.start
        } else {
            0
        };
        lost += if record.is_lost {
            record.end - record.start
        } else {
            0
        };
    }
    let start = board.records().next().map(|record| record.start);
    // A SYN-ACK that was sent again has no record before the data that followed the first one (RFC
    // 7413).
    let has_syn = conn.phase == Phase::SynReceived;
    let una = conn.snd.una;
    if start.is_some_and(|start| start != una && !(has_syn && start == una + 1)) {
        return Err("the scoreboard does not begin at SND.UNA");
    }
    if end.is_some_and(|end| end != conn.snd.nxt) {
        return Err("the scoreboard does not end at SND.NXT");
    }
    if end.is_none() && conn.phase.is_synchronized() && conn.snd.una != conn.snd.nxt {
        return Err("the scoreboard lacks what is in flight");
    }
    if !board.finds_all_lost() {
        return Err("a loss will never be found");
    }
    if (sacked, lost) != (board.sacked_bytes(), board.lost_bytes()) {
        return Err("the scoreboard's sums are wrong");
    }
    Ok(())
}

fn audit_receive(conn: &Connection) -> Result<(), &'static str> {
    let rcv = &conn.rcv;
    if rcv.nxt > rcv.edge {
        return Err("RCV.NXT is beyond the window");
    }
    if rcv.acked > rcv.nxt {
        return Err("more was acknowledged than came");
    }
    if conn.phase.is_synchronized() && rcv.consumed > rcv.nxt {
        return Err("more was read than came");
    }
    Ok(())
}
