//! A program of tokio's multi-threaded runtime, as the tests start it: sockets join an epoll set in
//! which another of its threads already waits.
//!
//! ```text
//! slipstack-tokio-echo server ADDR:PORT                   echoes connections and datagrams
//! slipstack-tokio-echo client ADDR:PORT CONNECTIONS BYTES  is echoed, over all of them at once
//! slipstack-tokio-echo datagrams ADDR:PORT COUNT          sends each when the last was answered
//! ```

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};

/// After this time without work all threads of the runtime wait.
const SETTLED: Duration = Duration::from_millis(100);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .build()?;
    match words[..] {
        ["server", at] => serve(&runtime, parse(at)?),
        ["client", to, count, bytes] => ask(&runtime, parse(to)?, parse(count)?, parse(bytes)?),
        ["datagrams", to, count] => exchange(&runtime, parse(to)?, parse(count)?),
        _ => Err(Error::other(
            "usage: server ADDR:PORT | client ADDR:PORT COUNT BYTES | datagrams ADDR:PORT COUNT",
        )),
    }
}

fn parse<T: std::str::FromStr>(word: &str) -> Result<T> {
    word.parse()
        .map_err(|_| Error::other(format!("{word} is not understood")))
}

fn serve(runtime: &Runtime, at: SocketAddr) -> Result<()> {
    thread::sleep(SETTLED);
    runtime.block_on(async {
        let datagrams = UdpSocket::bind(at).await?;
        tokio::spawn(echo_datagrams(datagrams));
        let listener = TcpListener::bind(at).await?;
        loop {
            let (connection, _) = listener.accept().await?;
            tokio::spawn(echo(connection));
        }
    })
}

async fn echo(mut connection: TcpStream) -> Result<()> {
    let (mut from, mut to) = connection.split();
    copy(&mut from, &mut to).await?;
    to.shutdown().await
}

async fn echo_datagrams(socket: UdpSocket) -> Result<()> {
    let mut text = [0; 2048];
    loop {
        let (len, peer) = socket.recv_from(&mut text).await?;
        socket.send_to(&text[..len], peer).await?;
    }
}

fn ask(runtime: &Runtime, to: SocketAddr, count: usize, bytes: usize) -> Result<()> {
    thread::sleep(SETTLED);
    runtime.block_on(async {
        let asking: Vec<_> = (0..count)
            .map(|at| tokio::spawn(ask_one(to, at, bytes)))
            .collect();
        for one in asking {
            one.await.map_err(Error::other)??;
        }
        println!("{count} echoed");
        Ok(())
    })
}

fn exchange(runtime: &Runtime, to: SocketAddr, count: usize) -> Result<()> {
    runtime.block_on(async {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect(to).await?;
        for number in 0..count {
            socket.send(&number.to_be_bytes()).await?;
            let mut answer = [0; 64];
            let len = socket.recv(&mut answer).await?;
            if answer[..len] != number.to_be_bytes() {
                return Err(Error::other(format!("the answer to {number} is another's")));
            }
        }
        println!("{count} answered");
        Ok(())
    })
}

async fn ask_one(to: SocketAddr, at: usize, bytes: usize) -> Result<()> {
    let sent: Vec<u8> = (0..bytes).map(|byte| (byte * 31 + at) as u8).collect();
    let mut got = Vec::with_capacity(bytes);
    let connection = TcpStream::connect(to).await?;
    let (mut from, mut to) = connection.into_split();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        to.write_all(&sent).await?;
        to.shutdown().await
    });
    from.read_to_end(&mut got).await?;
    sending.await.map_err(Error::other)??;
    match got == expected {
        true => Ok(()),
        false => Err(Error::other("what came back is something else")),
    }
}
