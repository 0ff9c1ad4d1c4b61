//! Sending datagrams in pieces: UDP_CORK and MSG_MORE, as udp_sendmsg() and udpv6_sendmsg() do.

use std::io::IoSlice;
use std::sync::Arc;

use slipstack_channel::Envelope;

use crate::addr::{Family, Given, parse_destination};
use crate::calls::send_datagram::{Destination, check_length, tell_too_long};
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::network::Network;
use crate::process::wait::Plan;
use crate::socket::description::Description;
use crate::socket::{Begun, Dgram, payload_longest};

/// Longest piece, which udp_sendmsg() checks before anything else.
const PIECE_LONGEST: usize = 0xffff;

impl Process {
    /// Sends the first piece. `envelope`: the datagram's parameters, which are checked.
    #[cold]
    pub(super) fn begin_datagram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        bufs: &[IoSlice<'_>],
        begun: Begun,
    ) -> Outcome<usize> {
        self.prepare_to_send(socket, dgram, begun.envelope.peer)?;
        dgram.may_send()?;
        let mut place = dgram.gathering.lock();
        if place.is_some() {
            // Another thread was faster.
            return Err(Errno::EINVAL.into());
        }
        let mut begun = Box::new(begun);
        begun.append(bufs);
        let len = begun.bytes.len();
        dgram.gathering.put(&mut place, Some(begun));
        Ok(len)
    }

    /// Adds a piece after the first, whose address counts: those of the others are ignored.
    /// `Ok(None)`: the datagram has left meanwhile.
    #[cold]
    pub(super) fn send_piece(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        bufs: &[IoSlice<'_>],
        to: Option<&[u8]>,
        flags: i32,
    ) -> Outcome<Option<usize>> {
        let is_more = flags & libc::MSG_MORE != 0 || dgram.gathering.is_corked();
        if dgram.gathering.is_on_kernel() {
            dgram.gathering.set_on_kernel(is_more);
            return self.send_by_kernel(socket, dgram, flags).map(Some);
        }
        let mut place = dgram.gathering.lock();
        let Some(mut begun) = place.take() else {
            return Ok(None);
        };
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if let Err(error) = check_piece(socket, &begun, to, len) {
            dgram.gathering.put(&mut place, Some(begun));
            return Err(error.into());
        }
        let before = begun.bytes.len();
        // ip_append_data(): an error ends the datagram.
        let fits = check_whole(&self.network, dgram, &begun, before + len, is_more);
        if let Err(error) = fits {
            dgram.gathering.put(&mut place, None);
            let destination = Destination {
                addr: begun.remote,
                is_named: begun.envelope.peer.is_some(),
            };
            let segment = begun.envelope.segment.map_or(0, |size| size.get());
            let what = (destination, segment, before + len);
            tell_too_long(&self.network, socket, error, what);
            return Err(error.into());
        }
        begun.append(bufs);
        if is_more {
            dgram.gathering.put(&mut place, Some(begun));
            return Ok(Some(len));
        }
        drop(place);
        let may_wait = !socket.is_nonblocking() && flags & libc::MSG_DONTWAIT == 0;
        let sent = self.push_datagram(socket, dgram, &begun, may_wait);
        let mut place = dgram.gathering.lock();
        match sent {
            Ok(()) => dgram.gathering.put(&mut place, None),
            Err(_) => {
                begun.bytes.truncate(before);
                dgram.gathering.put(&mut place, Some(begun));
            }
        }
        sent.map(|()| Some(len))
    }

    /// UDP_CORK is off again: the gathered pieces leave; their result is not returned.
    pub(crate) fn uncork(&self, socket: &Arc<Description>, dgram: &Dgram) {
        dgram.gathering.set_on_kernel(false);
        let begun = {
            let mut place = dgram.gathering.lock();
            let begun = place.take();
            dgram.gathering.put(&mut place, None);
            begun
        };
        let Some(begun) = begun else { return };
        if check_whole(&self.network, dgram, &begun, begun.bytes.len(), false).is_ok() {
            let _ = self.push_datagram(socket, dgram, &begun, !socket.is_nonblocking());
        }
    }

    /// Errors of the socket are left to the next datagram, as when the kernel has allocated for
    /// this one.
    fn push_datagram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        begun: &Begun,
        may_wait: bool,
    ) -> Outcome<()> {
        let bufs = [IoSlice::new(&begun.bytes)];
        let push = |envelope: &Envelope| Ok(dgram.push(envelope, &bufs)?.map(|_| ()));
        if push(&begun.envelope)?.is_none() {
            if let Some((attachment, _)) = dgram.part() {
                attachment.turn(self.kernel.now_ns());
            }
            let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
            let pushed = match may_wait {
                true => self.wait(&plan, |_| push(&begun.envelope))?,
                false => push(&begun.envelope)?,
            };
            pushed.ok_or(Errno::EAGAIN)?;
        }
        if let Some((attachment, _)) = dgram.part() {
            attachment.after_push(&*self.kernel, socket.id);
        }
        Ok(())
    }
}

/// Checks a piece for errors that do not concern the others.
fn check_piece(
    socket: &Description,
    begun: &Begun,
    to: Option<&[u8]>,
    len: usize,
) -> Result<(), Errno> {
    let is_v4 = begun.remote.ip().to_canonical().is_ipv4();
    if let Some(to) = to.filter(|_| socket.family == Family::V6) {
        match parse_destination(to, socket.family)? {
            Given::Addr(to) if to.ip().to_canonical().is_ipv4() && !is_v4 => {
                return Err(Errno::EINVAL);
            }
            Given::Other => return Err(Errno::EAFNOSUPPORT),
            Given::Addr(_) | Given::Unspecified => {}
        }
    }
    if is_v4 && len > PIECE_LONGEST {
        return Err(Errno::EMSGSIZE);
    }
    Ok(())
}

fn check_whole(
    network: &Network,
    dgram: &Dgram,
    begun: &Begun,
    len: usize,
    is_more: bool,
) -> Result<(), Errno> {
    let segment = begun.envelope.segment.map_or(0, |size| size.get().into());
    if is_more && segment != 0 {
        // The total is checked when it leaves.
        return match len > payload_longest(begun.remote) {
            true => Err(Errno::EMSGSIZE),
            false => Ok(()),
        };
    }
    check_length(network, dgram, begun.remote, len, segment)
}
