//! Receiving datagrams: from the stack's part of a socket or the kernel's, whichever has one.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::attachment::Datagram;
use crate::calls::receive::{Limit, bytes};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::network::Network;
use crate::process::wait::Plan;
use crate::process::wait::polled;
use crate::process::{Process, Received};
use crate::socket::ancillary::{RequestedControl, Setting, Writer};
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::is_readable;
use crate::socket::{Dgram, QueuedMessage, SHUT_READ, Side};

impl Process {
    pub(super) fn recv_dgram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        Limit { flags, end_ns }: Limit,
    ) -> Outcome<Received> {
        if dgram.side() == Side::Kernel {
            return self.recv_from_kernel(socket, flags);
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return self.recv_returned(socket, dgram, (bufs, control));
        }
        self.realize(socket);
        let has_kernel = socket.has_kernel() && dgram.side() == Side::Both;
        let is_nonblocking = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let kernel = socket.kernel_number().filter(|_| has_kernel);
        let is_peek = flags & libc::MSG_PEEK != 0;
        if has_kernel
            && dgram
                .turns
                .are_kernels(&*self.kernel, || is_readable(kernel))
        {
            dgram.turns.note_read(is_peek, true);
            return Err(if is_nonblocking {
                Divert::Kernel
            } else {
                Divert::KernelFirst
            });
        }
        self.bring_errors(dgram);
        let mut look = || -> Result<Option<Received>, Errno> {
            let found = self.look_for_datagram(socket, dgram, (bufs, &mut *control), flags)?;
            // __skb_wait_for_more_packets(): only a call that would wait gets the error.
            let is_over = dgram.is_shut_for_reading() && !is_nonblocking;
            Ok(found.or_else(|| is_over.then(|| bytes(0))))
        };
        if let Some(received) = look()? {
            return Ok(received);
        }
        if is_nonblocking {
            self.turn_for(dgram);
            return match look()? {
                Some(received) => Ok(received),
                None if has_kernel => {
                    dgram.turns.note_read(is_peek && is_readable(kernel), true);
                    Err(Divert::Kernel)
                }
                None => Err(Errno::EAGAIN.into()),
            };
        }
        let fd = polled(kernel, libc::POLLIN);
        let timeout_ns = &socket.recv_timeout_ns;
        let plan = Plan::of_call(&*self.kernel, socket, timeout_ns, fd.as_slice());
        let plan = Plan {
            deadline_ns: end_ns.or(plan.deadline_ns),
            ..plan
        };
        let outcome = self.wait(&plan, |kernel_look| {
            if let Some(received) = look()? {
                return Ok(Some(received));
            }
            if kernel_look.is_due() && is_readable(kernel) {
                dgram.turns.note_read(is_peek, true);
                return Err(Divert::KernelFirst);
            }
            Ok(None)
        })?;
        outcome.ok_or(Errno::EAGAIN.into())
    }

    fn look_for_datagram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
    ) -> Result<Option<Received>, Errno> {
        let is_peek = flags & libc::MSG_PEEK != 0;
        let offset = socket.peek_from();
        let found = match offset.filter(|_| is_peek) {
            Some(skip) => dgram.peek_at(bufs, skip)?,
            None => dgram.recv(bufs, is_peek)?.map(|it| (it, 0)),
        };
        let Some((it, skipped)) = found else {
            return Ok(None);
        };
        dgram.turns.note_read(is_peek, false);
        let mut received = self.answer(socket, dgram.requested(), &it, control, flags);
        if offset.is_some() {
            socket.move_peek_offset(is_peek, received.len);
        }
        // udp_recvmsg(): a call that has asked for more than is left does not learn that the front
        // is missing.
        let asked = || bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if skipped > 0 && asked() > it.full_len - skipped {
            received.flags &= !libc::MSG_TRUNC;
        }
        Ok(Some(received))
    }

    /// Drives the engine of a socket that has nothing, for a call that does not wait.
    fn turn_for(&self, dgram: &Dgram) {
        dgram.come_back();
        let part = dgram.part().map(|(attachment, _)| attachment);
        let Some(attachment) = part.or_else(|| self.engines.first()) else {
            return;
        };
        if !attachment.let_answers_leave(&*self.kernel) {
            self.turn_if_idle(&attachment);
        }
    }

    /// The kernel processes received packets while a program makes no call: an error that has
    /// arrived before a call belongs to that call.
    pub(crate) fn bring_errors(&self, dgram: &Dgram) {
        if let Some(attachment) = dgram.hears_errors_of() {
            self.turn_if_idle(&attachment);
        }
    }

    /// MSG_ERRQUEUE: never waits.
    fn recv_returned(
        &self,
        socket: &Description,
        dgram: &Dgram,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
    ) -> Outcome<Received> {
        self.bring_errors(dgram);
        if let Some(queued) = recv_queued(&self.network, socket, control) {
            return Ok(queued);
        }
        let Some((it, len)) = dgram.take_returned(bufs) else {
            return Err(if socket.has_kernel() && dgram.side() == Side::Both {
                Divert::Kernel
            } else {
                Errno::EAGAIN.into()
            });
        };
        let mut writer = Writer::new(control);
        if it.is_local() {
            let (to, mtu) = (it.to, it.info);
            writer.put_queued(&QueuedMessage::TooLong { to, mtu }, socket.family);
        } else {
            writer.put_returned(dgram.requested(), &it, self.setting(socket));
        }
        let (control_len, is_control_cut) = writer.finish();
        let flag = |is_on: bool, flag: i32| if is_on { flag } else { 0 };
        Ok(Received {
            len,
            flags: libc::MSG_ERRQUEUE
                | flag(it.len > len, libc::MSG_TRUNC)
                | flag(is_control_cut, libc::MSG_CTRUNC),
            from: Some(self.network.shown(it.to, socket.family)),
            control_len,
        })
    }

    /// The kernel's socket never blocks, so the waiting is ours.
    fn recv_from_kernel(&self, socket: &Arc<Description>, flags: i32) -> Outcome<Received> {
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Divert::Kernel);
        }
        let number = socket.kernel_number();
        let fd = polled(number, libc::POLLIN);
        let plan = Plan::of_call(
            &*self.kernel,
            socket,
            &socket.recv_timeout_ns,
            fd.as_slice(),
        );
        let outcome = self.wait(&plan, |kernel_look| {
            Ok((kernel_look.is_due() && is_readable(number)).then_some(()))
        })?;
        match outcome {
            Some(()) => Err(Divert::KernelFirst),
            None => Err(Errno::EAGAIN.into()),
        }
    }

    pub(super) fn recv_unbound(
        &self,
        socket: &Arc<Description>,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
    ) -> Outcome<Received> {
        if self.note_bound_elsewhere(socket)
            && let Some(Decided::Dgram(it)) = socket.decided()
        {
            let limit = Limit {
                flags,
                end_ns: None,
            };
            return self.recv_dgram(socket, it, (bufs, control), limit);
        }
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Errno::EAGAIN.into());
        }
        let plan = Plan::of_call(&*self.kernel, socket, &socket.recv_timeout_ns, &[]);
        let decided = self.wait(&plan, |_| {
            if socket.has_left() {
                return Err(Divert::Kernel);
            }
            let is_over = socket.early_shut.load(Ordering::Relaxed) & SHUT_READ != 0;
            Ok(socket.decided().map(Some).or(is_over.then_some(None)))
        })?;
        match decided.ok_or(Errno::EAGAIN)? {
            None => Ok(bytes(0)),
            Some(Decided::Dgram(it)) => {
                let end_ns = plan.deadline_ns;
                self.recv_dgram(socket, it, (bufs, control), Limit { flags, end_ns })
            }
            Some(_) => Err(Errno::EINVAL.into()),
        }
    }

    fn setting(&self, socket: &Description) -> Setting {
        Setting {
            family: socket.family,
            interface: self.network.stack_interface(),
            now_ns: self.kernel.now_ns(),
        }
    }

    pub(crate) fn answer(
        &self,
        socket: &Description,
        requested: RequestedControl,
        it: &Datagram,
        control: &mut [u8],
        flags: i32,
    ) -> Received {
        let mut writer = Writer::new(control);
        if requested != RequestedControl::default() {
            let setting = Setting {
                interface: self.network.interface_of(it.envelope.link),
                ..self.setting(socket)
            };
            writer.put_all(requested, &it.envelope, setting);
        }
        let (control_len, is_control_cut) = writer.finish();
        let flag = |is_on: bool, flag: i32| if is_on { flag } else { 0 };
        Received {
            len: if flags & libc::MSG_TRUNC != 0 {
                it.full_len
            } else {
                it.len
            },
            flags: flag(it.full_len > it.len, libc::MSG_TRUNC)
                | flag(is_control_cut, libc::MSG_CTRUNC),
            from: Some(self.network.shown(it.from, socket.family)),
            control_len,
        }
    }
}

/// MSG_ERRQUEUE for local entries.
pub(crate) fn recv_queued(
    network: &Network,
    socket: &Description,
    control: &mut [u8],
) -> Option<Received> {
    let message = socket.error_queue.pop()?;
    let mut writer = Writer::new(control);
    writer.put_queued(&message, socket.family);
    let (control_len, is_control_cut) = writer.finish();
    let from = match message {
        QueuedMessage::TooLong { to, .. } => Some(to),
        QueuedMessage::Copied { .. } | QueuedMessage::Left { .. } => None,
    };
    Some(Received {
        len: 0,
        flags: libc::MSG_ERRQUEUE | if is_control_cut { libc::MSG_CTRUNC } else { 0 },
        from: from.map(|to| network.shown(to, socket.family)),
        control_len,
    })
}
