//! TLS 1.2 and 1.3 for servers, by rustls.
//!
//! Records are decrypted from the receive ring and encrypted into the send ring: a session keeps no
//! output buffer, so that a peer that does not read occupies only its ring. The handshake runs on a
//! worker, because one RSA signature takes most of a millisecond.

mod handshake;
mod keys;
mod session;
mod transport;

pub use handshake::{Handed, HandshakeResult};
pub use keys::{HTTP11, Keys};
pub use session::{Broken, Session};
pub use transport::{Lent, Transport};
