//! Hands connections of killed programs to other processes that use them, or ends them.

use std::os::fd::OwnedFd;

use slipstack_channel::PassedOn;
use slipstack_channel::control::{LeftFile, Refusal, Reply, UNSENT_MAX, WantedLeft, text_file};
use slipstack_device::{Flow, Transport};
use slipstack_mem::process::explained;
use tracing::info;

use crate::leases::ClientId;
use crate::net::Net;

use super::Server;
use super::clients::{Answer, refuse};
use super::lent::Lent;

impl Server {
    pub(super) fn on_take_left(&mut self, client: ClientId, wanted: &WantedLeft) -> Answer {
        let WantedLeft { local, remote, .. } = *wanted;
        let flow = Flow {
            proto: Transport::Tcp,
            local,
            remote,
        };
        let asker = self.resources.state.leases.clients.find(client);
        let user = asker.map(|client| client.process.pid);
        let Some(at) = self.lent.find(&flow, wanted.heirs, user) else {
            let is_owned = self.living_flows().iter().any(|(it, _)| *it == flow);
            return match is_owned {
                true => refuse(Refusal::Busy, "the owner of the connection lives"),
                false => refuse(Refusal::Unknown, "no such connection waits"),
            };
        };
        if wanted.is_question {
            if self.lent.unsent(at) > UNSENT_MAX {
                return refuse(
                    Refusal::Unknown,
                    "the connection has too many bytes to send",
                );
            }
            let told = self.lent.told(at);
            let file = in_file(&told).map_err(|why| (Refusal::Failed, why))?;
            return Ok((Reply::Done, vec![file]));
        }
        let lent = self.lent.take(at);
        match passed(&lent, wanted.has) {
            Ok(file) => {
                info!(%local, %remote, client = client.0, "a lent connection goes on");
                Ok((Reply::Done, vec![file]))
            }
            Err(why) => {
                self.tally.resets += 1;
                self.net.reset([flow], slipstack_mem::now_ns());
                refuse(Refusal::Failed, why)
            }
        }
    }

    /// Ends connections that nobody has asked for.
    pub(super) fn end_lent(&mut self, now: u64) {
        let due = self.lent.take_over_due(now);
        self.end_those(due, now);
    }

    /// Ends all that wait: another process becomes the keeper.
    pub(super) fn end_all_lent(&mut self) {
        let all = self.lent.take_all();
        self.end_those(all, slipstack_mem::now_ns());
    }

    fn end_those(&mut self, those: Vec<Lent>, now: u64) {
        for lent in those {
            let flow = lent.flow();
            let Lent {
                entry,
                left,
                region,
                key,
                ..
            } = lent;
            match self.net.adopt_killed((&entry, left), &region, key, now) {
                Some(_) => {
                    self.tally.handovers += 1;
                    // It has forgotten the region with its program.
                    if let Some(standby) = &self.standby {
                        standby.note_region(key, &region);
                    }
                    self.keep_handover(key, region);
                    if let Some(standby) = &self.standby {
                        standby.note_forget(key);
                    }
                }
                None => {
                    self.tally.resets += 1;
                    self.net.reset([flow], now);
                }
            }
        }
    }
}

fn passed(lent: &Lent, has: PassedOn) -> Result<OwnedFd, String> {
    let file = Net::left_file((&lent.entry, &lent.left), &lent.region, has);
    let file = file.ok_or("the connection's state is not sound")?;
    in_file(&file)
}

fn in_file(left: &LeftFile) -> Result<OwnedFd, String> {
    text_file(&left.to_bytes()).map_err(|error| explained(&error))
}
