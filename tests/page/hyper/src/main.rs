//! An HTTP server by hyper and tokio with two threads, as the page of programs starts it: what is
//! posted comes back, and everything else is answered with a few bytes.
//!
//! ```text
//! slipstack-hyper-echo ADDR:PORT
//! ```

use std::convert::Infallible;
use std::error::Error;

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Answer = Response<BoxBody<Bytes, hyper::Error>>;

const SMALL: &[u8] = b"hello from hyper\n";

fn main() -> Result<()> {
    let at = std::env::args().nth(1).ok_or("usage: ADDR:PORT")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(serve(&at))
}

async fn serve(at: &str) -> Result<()> {
    let listener = TcpListener::bind(at).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve_one(stream));
    }
}

async fn serve_one(stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(answer);
    http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn answer(request: Request<Incoming>) -> std::result::Result<Answer, Infallible> {
    let body = if request.method() == Method::POST {
        request.into_body().boxed()
    } else {
        Full::new(Bytes::from_static(SMALL))
            .map_err(|never| match never {})
            .boxed()
    };
    Ok(Response::new(body))
}
