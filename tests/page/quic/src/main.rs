//! Echo over QUIC by quinn, as the page of programs starts it: every stream that a client opens
//! comes back.
//!
//! ```text
//! slipstack-quic-echo server ADDR:PORT CERT KEY
//! slipstack-quic-echo client ADDR:PORT CERT BYTES REBINDS
//!                                       is echoed; its socket is replaced REBINDS times meanwhile
//! slipstack-quic-echo rate ADDR:PORT CERT SECONDS      prints echoes of 64 bytes a second
//! ```

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::pem::PemObject;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "usage: server ADDR:PORT CERT KEY | client ADDR:PORT CERT BYTES REBINDS | \
                     rate ADDR:PORT CERT SECONDS";
/// The name in the server's certificate.
const NAME: &str = "page.test";
/// Streams of the client that measures, at a time.
const STREAMS: usize = 16;
const SMALL: usize = 64;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 16;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match words[..] {
            ["server", at, cert, key] => serve(at.parse()?, cert, key).await,
            ["client", to, cert, len, rebinds] => {
                let client = Client::new(cert)?;
                client
                    .exchange(to.parse()?, len.parse()?, rebinds.parse()?)
                    .await
            }
            ["rate", to, cert, seconds] => {
                let client = Client::new(cert)?;
                client
                    .measure(to.parse()?, Duration::from_secs(seconds.parse()?))
                    .await
            }
            _ => Err(USAGE.into()),
        }
    })
}

async fn serve(at: SocketAddr, cert: &str, key: &str) -> Result<()> {
    let certs = vec![CertificateDer::from_pem_file(cert)?];
    let config = ServerConfig::with_single_cert(certs, PrivateKeyDer::from_pem_file(key)?)?;
    let endpoint = Endpoint::server(config, at)?;
    println!("ready");
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(serve_one(incoming));
    }
    Ok(())
}

async fn serve_one(incoming: Incoming) -> Result<()> {
    let connection = incoming.await?;
    loop {
        let (send, receive) = connection.accept_bi().await?;
        tokio::spawn(echo(send, receive));
    }
}

async fn echo(mut send: SendStream, mut receive: RecvStream) -> Result<()> {
    tokio::io::copy(&mut receive, &mut send).await?;
    send.finish()?;
    Ok(())
}

struct Client {
    endpoint: Endpoint,
}

impl Client {
    /// `cert`: a file with the certificate that the server must have.
    fn new(cert: &str) -> Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(cert)?)?;
        let mut endpoint = Endpoint::client(([0, 0, 0, 0], 0).into())?;
        endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
        Ok(Client { endpoint })
    }

    async fn connect(&self, to: SocketAddr) -> Result<Connection> {
        Ok(self.endpoint.connect(to, NAME)?.await?)
    }

    /// Sends `len` bytes, whose echo must be equal. After each share of it the client's socket is
    /// closed and replaced, so that its port changes.
    async fn exchange(&self, to: SocketAddr, len: usize, rebinds: usize) -> Result<()> {
        let sent: Arc<[u8]> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
        let connection = self.connect(to).await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        let all = sent.clone();
        let sending = tokio::spawn(async move {
            send.write_all(&all).await?;
            send.finish()?;
            Result::Ok(())
        });
        let (mut got, mut piece) = (Vec::with_capacity(len), vec![0; PIECE]);
        let mut rebound = 0;
        while let Some(count) = receive.read(&mut piece).await? {
            got.extend_from_slice(&piece[..count]);
            if rebound < rebinds && got.len() > len / (rebinds + 1) * (rebound + 1) {
                self.endpoint.rebind(UdpSocket::bind(("0.0.0.0", 0))?)?;
                rebound += 1;
            }
        }
        sending.await??;
        if got[..] != sent[..] {
            return Err(format!("{} of {len} bytes came back, or others", got.len()).into());
        }
        println!("{len} bytes echoed, {rebound} times from another port");
        connection.close(0u32.into(), b"");
        self.endpoint.wait_idle().await;
        Ok(())
    }

    async fn measure(&self, to: SocketAddr, time: Duration) -> Result<()> {
        let connection = self.connect(to).await?;
        let (begun, mut asking) = (Instant::now(), JoinSet::new());
        for _ in 0..STREAMS {
            asking.spawn(ask_until(connection.clone(), begun + time));
        }
        let mut count = 0;
        while let Some(one) = asking.join_next().await {
            count += one??;
        }
        println!("{:.1}", f64::from(count) / begun.elapsed().as_secs_f64());
        connection.close(0u32.into(), b"");
        self.endpoint.wait_idle().await;
        Ok(())
    }
}

/// Returns how often the echo of a small stream came until `end`.
async fn ask_until(connection: Connection, end: Instant) -> Result<u32> {
    let mut count = 0;
    while Instant::now() < end {
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&[7; SMALL]).await?;
        send.finish()?;
        if receive.read_to_end(SMALL).await? != [7; SMALL] {
            return Err("the echo of a small stream differs".into());
        }
        count += 1;
    }
    Ok(count)
}
