//! Listeners on an engine: started there, and moved from one to another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{CloseMode, SockId, Transport};

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::socket::Listener;
use crate::socket::description::Description;
use crate::socket::options::push_options;

/// Moves a listener whose address others may share from its engine to `home`. Connections that wait
/// there move too, half-open ones included.
pub(super) fn move_listener(
    socket: &Arc<Description>,
    listener: &Listener,
    home: &Arc<Attachment>,
) {
    let mut stack = listener.stack();
    let is_there = |(attachment, _): &(Arc<Attachment>, _)| Arc::ptr_eq(attachment, home);
    if stack.as_ref().is_none_or(is_there) {
        return;
    }
    let Ok(realized) = listen_on_stack(Arc::clone(home), socket, listener) else {
        return;
    };
    let old = stack.replace(realized);
    listener.on_move();
    drop(stack);
    if let Some((attachment, sock)) = old {
        attachment.close(sock, CloseMode::Orderly);
        attachment.commands();
    }
}

pub(crate) fn listen_on_stack(
    attachment: Arc<Attachment>,
    socket: &Arc<Description>,
    listener: &Listener,
) -> Result<(Arc<Attachment>, SockId), Errno> {
    let sock = attachment.open(Transport::Tcp)?;
    attachment.name(sock, socket);
    // The SYN-ACK depends on them: MSS, window, TTL.
    let options = socket.cold.lock().options.clone();
    push_options(&attachment, sock, &options);
    let backlog = u32::try_from(listener.backlog.load(Ordering::Relaxed)).unwrap_or(0);
    // The kernel's listener, if there is one, has settled conflicts; workers of one server share
    // the port.
    let may_share = !socket.is_alone() || socket.shares_port();
    let outcome = attachment
        .bind(sock, listener.addr, socket.is_v6_only(), may_share)
        .and_then(|_| attachment.listen(sock, backlog));
    match outcome {
        Ok(()) => Ok((attachment, sock)),
        Err(error) => {
            attachment.close(sock, CloseMode::Abort);
            Err(error)
        }
    }
}
