//! TLS 1.2 and 1.3 at the server's side, by rustls.
//!
//! Records are decrypted from the receive ring and encrypted into the send ring: a session keeps no
//! output of its own, so that a peer that does not read holds nothing but its ring. The handshake,
//! of which a signature by RSA takes most of a millisecond, is a worker's.

mod handshake;
mod keys;
mod session;
mod transport;

pub use handshake::{Handed, Shaken};
pub use keys::{HTTP11, Keys};
pub use session::{Broken, Session};
pub use transport::{Lent, Transport};
