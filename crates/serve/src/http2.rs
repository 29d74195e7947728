//! Connections of HTTP/2 clients (RFC 9113), by hyper, whose tasks stay on this thread.
//!
//! Streams, answers and their content are boxed, or hyper and h2 would be compiled for each sort of them.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::spawn_here;

/// Limits of a connection.
pub type Builder = http2::Builder<Here>;

/// The content of an answer.
type Content = Pin<Box<dyn Body<Data = Bytes, Error = io::Error>>>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<Content>, Infallible>>>>;

/// What carries a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Tasks of hyper on this thread.
#[derive(Clone, Copy)]
pub struct Here;

impl<F> hyper::rt::Executor<F> for Here
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn_here(async { drop(future.await) });
    }
}

/// What is asked of a connection, and answered.
struct Answers(Box<dyn Fn(Request<Incoming>) -> Answer>);

impl Service<Request<Incoming>> for Answers {
    type Response = Response<Content>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        (self.0)(request)
    }
}

/// A connection, served as long as this is polled.
pub struct Connection(Pin<Box<dyn Serving>>);

trait Serving: Future<Output = hyper::Result<()>> {
    fn shut_down(self: Pin<&mut Self>);
}

impl Serving for http2::Connection<TokioIo<Box<dyn Stream>>, Answers, Here> {
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl Connection {
    /// Takes no more requests; those under way are answered.
    pub fn shut_down(&mut self) {
        self.0.as_mut().shut_down();
    }
}

impl Future for Connection {
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// Limits as hyper has them.
#[must_use]
pub fn builder() -> Builder {
    let mut builder = http2::Builder::new(Here);
    builder.timer(TokioTimer::new());
    builder
}

/// Serves a connection: `answer` is called for each request.
pub fn serve<F, B>(
    builder: &Builder,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    answer: impl Fn(Request<Incoming>) -> F + 'static,
) -> Connection
where
    F: Future<Output = Response<B>> + 'static,
    B: Body<Data = Bytes, Error = io::Error> + 'static,
{
    serve_boxed(
        builder,
        Box::new(stream),
        Answers(Box::new(move |request| {
            let answer = answer(request);
            Box::pin(async { Ok(answer.await.map(|content| Box::pin(content) as Content)) })
        })),
    )
}

fn serve_boxed(builder: &Builder, stream: Box<dyn Stream>, answers: Answers) -> Connection {
    Connection(Box::pin(builder.serve_connection(TokioIo::new(stream), answers)))
}
