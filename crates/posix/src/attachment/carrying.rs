//! Connections that move to another process.

use slipstack_channel::{Command, Placement, SockId};

use crate::attachment::Attachment;

impl Attachment {
    /// The device's slot of an engine in this process.
    pub(crate) fn slot(&self) -> Option<u16> {
        self.driver.slot()
    }

    /// Moves a connection to another engine, or another channel, of this process, as a socket that
    /// was opened there. Returns false if it stays here.
    pub(crate) fn carry_to(&self, sock: SockId, to: &Attachment, as_sock: SockId) -> bool {
        match self.driver.placement() {
            Placement::InProcess => self.driver.carry_to(sock, &*to.driver, as_sock),
            Placement::Instance => self.offer_to(sock, to, as_sock).is_some(),
        }
    }

    /// Offers a connection to another engine; the caller keeps all threads from the connection
    /// meanwhile.
    fn offer_to(&self, sock: SockId, to: &Attachment, as_sock: SockId) -> Option<()> {
        let key = random_key()?;
        let upto = None;
        self.ask(Command::Offer { sock, key, upto }).ok()?;
        let sock = as_sock;
        to.ask(Command::Claim { sock, key }).ok().map(drop)
    }

    /// Removes a connection for [`Attachment::carry_in`] of the process that uses it, which has a
    /// copy of the sent bytes before `upto`: it stays, or cannot be had there, if a thread has
    /// written more.
    pub(crate) fn carry_out(&self, sock: SockId, upto: u64) -> Option<Vec<u8>> {
        match self.driver.placement() {
            Placement::InProcess => self.driver.carry_out(sock, upto),
            Placement::Instance => {
                let key = random_key()?;
                let upto = Some(upto);
                self.ask(Command::Offer { sock, key, upto }).ok()?;
                Some(key.to_le_bytes().to_vec())
            }
        }
    }

    /// Takes it in, as a socket that was opened here or that it has left. `false`: it cannot be
    /// had.
    pub(crate) fn carry_in(&self, sock: SockId, connection: &[u8]) -> bool {
        let is_here = match (self.driver.placement(), connection.try_into()) {
            (Placement::InProcess, _) => self.driver.carry_in(sock, connection),
            (Placement::Instance, Ok(key)) => {
                let key = u128::from_le_bytes(key);
                self.ask(Command::Claim { sock, key }).is_ok()
            }
            (Placement::Instance, Err(_)) => false,
        };
        self.pump();
        is_here
    }

    /// Records that the connection is on the engine of that slot now.
    pub(crate) fn carried(&self, connection: &[u8], slot: u16) {
        self.driver.carried(connection, slot);
    }
}

/// Returns an unpredictable key.
fn random_key() -> Option<u128> {
    let mut bytes = [0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::rand::getrandom(&mut bytes, flags) {
        Ok(16) => Some(u128::from_le_bytes(bytes)),
        _ => None,
    }
}
