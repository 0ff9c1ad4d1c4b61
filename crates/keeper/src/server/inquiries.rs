//! Inquiries of an operator to every engine: the keeper passes them on and collects the answers.

use std::os::fd::OwnedFd;

use slipstack_channel::control::net::{
    Answer as NetAnswer, Call, EngineIdentity, Inquiry, ProgramIdentity, Query, VERSION,
};
use slipstack_channel::control::{DESCRIPTORS_MAX, Refusal, Reply, Request, text_file};

use slipstack_channel::report::ReportTable;

use super::Server;
use super::clients::{Answer, refuse};
use super::pending_inquiries::{Engine, PendingInquiry};
use crate::leases::ClientId;

/// Time that an engine may take.
const ANSWER_NS: u64 = 2_000_000_000;
/// Inquiries under way.
const INQUIRIES_MAX: usize = 64;

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
        let connection = self.connections.get(&token);
        let is_trusted = connection.is_some_and(|it| it.is_trusted);
        let is_drop = matches!(inquiry, Inquiry::Drop { .. });
        let asked = match (is_trusted, is_drop && !self.may_change(token)) {
            (true, false) => self.inquire(token, inquiry, now),
            (false, _) => Err((
                Refusal::NotPermitted,
                "only root may ask this keeper; run the command as root".to_owned(),
            )),
            (true, true) => Err((
                Refusal::NotPermitted,
                "Operation not permitted: only root and the owner of the device may close \
                 connections"
                    .to_owned(),
            )),
        };
        if let Err((refusal, message)) = asked {
            self.tally.refused += 1;
            self.reply(token, &Reply::Refused { refusal, message }, &[]);
        }
        None
    }

    /// Asks every engine; the answer follows when all have answered, or after two seconds.
    pub(super) fn inquire(
        &mut self,
        token: u64,
        inquiry: Inquiry,
        now: u64,
    ) -> Result<(), (Refusal, String)> {
        if self.pending_inquiries.all.len() >= INQUIRIES_MAX {
            let message = "too many inquiries are in progress; try again";
            return Err((Refusal::Exhausted, message.to_owned()));
        }
        let text = self.net.answer(now, &inquiry);
        let own = text_file(&text).ok();
        let clients = self.resources.state.leases.clients.iter();
        let engines = clients.filter_map(|(id, client)| {
            let slot = client.slot?;
            Some(Engine {
                client: id,
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
            inquiry,
            until: now + ANSWER_NS,
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
            for engine in pending.engines.iter_mut().filter(|it| !it.has_notice) {
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
        for engine in pending.engines {
            identity.push(EngineIdentity {
                has_answered: engine.answer.is_some(),
                ..engine.identity
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

    /// The tables in which programs describe their sockets, as many as one message takes.
    pub(super) fn programs(&self, from: usize) -> Answer {
        let clients = self.resources.state.leases.clients.iter();
        let identity = clients.filter_map(|(id, client)| {
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
