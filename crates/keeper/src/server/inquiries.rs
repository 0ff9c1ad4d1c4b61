//! Inquiries of an operator to every engine: the keeper passes them on and collects the answers.

use std::os::fd::OwnedFd;

use slipstack_channel::control::net::{
    Answer as NetAnswer, Call, EngineIdentity, Inquiry, ProgramIdentity, Query, VERSION,
};
use slipstack_channel::control::{DESCRIPTORS_MAX, Refusal, Reply, Request, Viewer, text_file};

use slipstack_channel::report::ReportTable;

use super::Server;
use super::clients::{Answer, not_permitted, refuse};
use super::pending_inquiries::{Engine, PendingInquiry};
use crate::leases::ClientId;

/// Time that an engine may take.
const ANSWER_NS: u64 = 2_000_000_000;

impl Server {
    /// Returns the immediate part of the answer; the rest follows.
    pub(super) fn take_inquiry(
        &mut self,
        token: u64,
        request: Request,
        now: u64,
    ) -> Option<Request> {
        let Request::Net(Call {
            version: VERSION,
            query: Query::Inquire(inquiry),
        }) = request
        else {
            return Some(request);
        };
        let connection = self.connections.get(&token)?;
        let asked = match (inquiry.right(), connection.viewer) {
            (Some(what), Viewer::User { .. }) => Err((Refusal::NotPermitted, not_permitted(what))),
            (_, viewer) => self.inquire((token, viewer), inquiry, now),
        };
        if let Err((refusal, message)) = asked {
            self.tally.refused += 1;
            self.reply(token, &Reply::Refused { refusal, message }, &[]);
        }
        None
    }

    /// Asks every engine; the answer follows when all have answered, or after two seconds.
    fn inquire(
        &mut self,
        (token, viewer): (u64, Viewer),
        inquiry: Inquiry,
        now: u64,
    ) -> Result<(), (Refusal, String)> {
        let Some(starts_at) = self.pending_inquiries.admit(viewer, now) else {
            let message = "too many inquiries are in progress; try again";
            return Err((Refusal::Exhausted, message.to_owned()));
        };
        let text = self.net.answer(now, &inquiry);
        let own = text_file(&text).ok();
        let clients = self.resources.state.leases.clients.iter();
        let engines = clients.filter_map(|(id, client)| {
            let slot = client.slot?;
            Some(Engine {
                client: id,
                uid: client.uid,
                identity: EngineIdentity {
                    slot,
                    pid: client.process.pid,
                    program: client.program.clone(),
                    instance: client.instance.clone(),
                    has_answered: false,
                },
                has_notice: false,
                is_at_work: false,
                answer: None,
            })
        });
        self.pending_inquiries.last_id += 1;
        let pending = PendingInquiry {
            id: self.pending_inquiries.last_id,
            token,
            viewer,
            inquiry,
            starts_at,
            until: starts_at + ANSWER_NS,
            engines: engines.collect(),
            own,
        };
        self.pending_inquiries.all.push(pending);
        self.follow_inquiries(now);
        Ok(())
    }

    /// Handles an engine that fetches its inquiry.
    pub(super) fn on_next_inquiry(&mut self, client: ClientId) -> Answer {
        for pending in &mut self.pending_inquiries.all {
            let mut engines = pending.engines.iter_mut();
            let found = engines.find(|it| it.client == client && !it.is_at_work);
            if let Some(engine) = found {
                engine.is_at_work = true;
                let (id, inquiry) = (pending.id, Box::new(pending.inquiry.clone()));
                return Ok((Reply::Inquiry { id, inquiry }, Vec::new()));
            }
        }
        Ok((Reply::Done, Vec::new()))
    }

    pub(super) fn on_inquiry_answer(
        &mut self,
        client: ClientId,
        id: u64,
        fds: Vec<OwnedFd>,
        now: u64,
    ) -> Answer {
        let Some(answer) = fds.into_iter().next() else {
            return refuse(Refusal::BadRequest, "the answer has no file");
        };
        let pending = self.pending_inquiries.all.iter_mut().find(|it| it.id == id);
        let engine = pending.and_then(|pending| {
            let mut engines = pending.engines.iter_mut();
            engines.find(|it| it.client == client)
        });
        // A late answer is ignored.
        if let Some(engine) = engine {
            engine.answer = Some(answer);
        }
        self.follow_inquiries(now);
        Ok((Reply::Done, Vec::new()))
    }

    /// Notifies remaining engines, and sends answers that are complete or overdue.
    pub(super) fn follow_inquiries(&mut self, now: u64) {
        let (net, leases) = (&self.net, &self.resources.state.leases);
        for pending in &mut self.pending_inquiries.all {
            let is_there = |it: &Engine| leases.clients.find(it.client).is_some();
            pending.engines.retain(is_there);
            let has_begun = pending.starts_at <= now;
            let unnotified = pending.engines.iter_mut();
            for engine in unnotified.filter(|it| has_begun && !it.has_notice) {
                engine.has_notice = net.notify_inquiry(engine.identity.slot);
            }
        }
        let is_over = |it: &PendingInquiry| {
            now >= it.until || it.engines.iter().all(|engine| engine.answer.is_some())
        };
        let (over, left) = std::mem::take(&mut self.pending_inquiries.all)
            .into_iter()
            .partition::<Vec<_>, _>(is_over);
        self.pending_inquiries.all = left;
        for pending in over {
            self.answer_pending(pending);
        }
    }

    fn answer_pending(&mut self, pending: PendingInquiry) {
        let keeper = EngineIdentity {
            slot: 0,
            pid: std::process::id(),
            program: "keeper".to_owned(),
            instance: None,
            has_answered: pending.own.is_some(),
        };
        let mut identity = vec![keeper];
        let mut files: Vec<OwnedFd> = pending.own.into_iter().collect();
        let is_of_sockets = matches!(pending.inquiry, Inquiry::Sockets { .. });
        for engine in pending.engines {
            let is_shown = engine.identity.instance.is_some() || pending.viewer.may_see(engine.uid);
            let identified = match is_of_sockets && !is_shown {
                true => EngineIdentity {
                    pid: 0,
                    program: String::new(),
                    ..engine.identity
                },
                false => engine.identity,
            };
            identity.push(EngineIdentity {
                has_answered: engine.answer.is_some(),
                ..identified
            });
            files.extend(engine.answer);
        }
        let reply = Reply::Net(Box::new(NetAnswer::Engines(identity)));
        self.reply(pending.token, &reply, &files);
    }

    pub(super) fn on_report(&mut self, client: ClientId, fds: Vec<OwnedFd>) -> Answer {
        match fds.into_iter().next().map(ReportTable::open) {
            Some(Ok(report)) => {
                self.reports.insert(client, report);
                self.done()
            }
            _ => refuse(Refusal::BadRequest, "the report is not a sealed region"),
        }
    }

    /// The tables in which the viewer's programs describe their sockets, as many as one message
    /// takes.
    pub(super) fn programs(&self, from: usize, viewer: Viewer) -> Answer {
        let clients = self.resources.state.leases.clients.iter();
        let seen = clients.filter(|(_, client)| viewer.may_see(client.uid));
        let identity = seen.filter_map(|(id, client)| {
            let table = self.reports.get(&id)?;
            let identity = ProgramIdentity {
                pid: client.process.pid,
                program: client.program.clone(),
                instance: client.instance.clone(),
            };
            Some((identity, table.fd().try_clone_to_owned().ok()?))
        });
        let mut left = identity.skip(from);
        let (programs, tables) = left.by_ref().take(DESCRIPTORS_MAX).unzip();
        let is_cut = left.next().is_some();
        let answer = NetAnswer::Programs { programs, is_cut };
        Ok((Reply::Net(Box::new(answer)), tables))
    }
}
