//! A request of an HTTP/2 client, and where its response goes.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::super::chunked::Field;
use super::super::conn::{Conn, Stream, Watch};
use super::super::exchange::{Client, Pinned};
use super::super::fields::may_trail;
use super::super::reason::{Answer, Reason};
use super::super::relay::{Broken, Origin, Passed, Relay, Sink};
use super::super::response::{Content, Response};
use super::super::settings::Limits;
use super::body::{Body, Content as Sent, Queue};
use super::lines;
use super::requests::Request as UnderWay;

/// The client's side of one stream.
pub(in super::super) struct Http2 {
    upload: Upload,
    /// Where hyper waits for the response, until it has begun.
    tell: Option<oneshot::Sender<http::Response<Body>>>,
    download: Download,
    under_way: Rc<UnderWay>,
    /// The stream, once CONNECT is accepted.
    tunnel: Option<Conn>,
    watch: Watch,
    /// Time in which a stream begins that CONNECT has asked for.
    header_time: Duration,
}

/// The content of a request.
struct Upload {
    request: Option<http::Request<Incoming>>,
    trailer: Vec<Field>,
    /// No octets wait here: frames go to the [`Relay`] at once.
    none: BytesMut,
}

/// Where the content of the response goes, if there is any.
struct Download(Option<Queue>);

impl Http2 {
    pub(super) fn new(
        request: http::Request<Incoming>,
        tell: oneshot::Sender<http::Response<Body>>,
        under_way: Rc<UnderWay>,
        header_time: Duration,
    ) -> Http2 {
        let upload = Upload { request: Some(request), trailer: Vec::new(), none: BytesMut::new() };
        Http2 {
            upload,
            tell: Some(tell),
            download: Download(None),
            under_way,
            tunnel: None,
            watch: Watch::new(Instant::now() + header_time),
            header_time,
        }
    }

    /// Begins the response.
    fn tell(&mut self, response: http::response::Builder, content: Sent) -> Result<(), Reason> {
        let body = Body::of(content, &self.under_way);
        let response = response.body(body).map_err(|_| Reason::BadResponse)?;
        if let Some(tell) = self.tell.take() {
            // A client that has gone gets no answer.
            let _gone = tell.send(response);
        }
        Ok(())
    }
}

impl Client for Http2 {
    /// A server that waits for content has no more time to begin its response than one that has it all.
    fn upload_time(limits: &Limits) -> Duration {
        limits.idle_time.min(limits.response_time)
    }

    fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// Streams of a connection may be of several users.
    fn pinned(&mut self) -> Option<&mut Option<Pinned>> {
        None
    }

    fn poll_up(&mut self, cx: &mut Context<'_>, up: &mut Relay, server: &mut Conn) -> Passed {
        up.poll(cx, &mut self.upload, server)
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, down: &mut Relay, server: &mut Conn) -> Passed {
        down.poll(cx, server, &mut self.download)
    }

    /// hyper drops the receiver when the client resets the stream. Once the response has begun, its [`Queue`] tells.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        self.tell.as_mut().is_some_and(|tell| tell.poll_closed(cx).is_ready())
    }

    /// hyper has no way to forward interim responses.
    async fn interim(&mut self, _: &Response<'_>, _: u8) -> Result<(), ()> {
        Ok(())
    }

    fn begin(
        &mut self,
        response: &Response<'_>,
        _: u8,
        _: bool,
        date: &str,
    ) -> Result<(Relay, bool), Reason> {
        let builder = response.http2(date).ok_or(Reason::BadResponse)?;
        let content = match response.content {
            Content::None => Sent::default(),
            _ => Sent::Pieces(self.download.0.insert(Queue::default()).clone()),
        };
        self.tell(builder, content)?;
        Ok((Relay::response(BytesMut::new(), response.content, false), false))
    }

    async fn answer(&mut self, answer: Answer, _: bool, head: bool) -> Result<u64, ()> {
        let builder = answer.http2();
        let page = Bytes::from(if head { String::new() } else { answer.page });
        let octets = page.len() as u64;
        let content = Sent::Whole(Some(page).filter(|page| !page.is_empty()));
        self.tell(builder, content).map_err(drop).map(|()| octets)
    }

    async fn establish(&mut self) -> Result<(), ()> {
        let upgrading = hyper::upgrade::on(self.upload.request.take().ok_or(())?);
        self.tell(http::Response::builder(), Sent::default()).map_err(drop)?;
        let upgraded = timeout(self.header_time, upgrading).await.map_err(drop)?.map_err(drop)?;
        self.tunnel = Some(Conn::new(Stream::Http2(Box::new(TokioIo::new(upgraded)))));
        Ok(())
    }

    fn tunnel(&mut self) -> Option<(&mut Conn, &mut Watch)> {
        self.tunnel.as_mut().map(|conn| (conn, &mut self.watch))
    }
}

impl Origin for Upload {
    fn buf(&mut self) -> &mut BytesMut {
        &mut self.none
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, up: &mut Relay) -> Passed {
        let Some(request) = &mut self.request else { return Poll::Ready(Err(Broken::From)) };
        let Some(frame) = ready!(Pin::new(request.body_mut()).poll_frame(cx)) else {
            up.finish(&self.trailer);
            return Poll::Ready(Ok(()));
        };
        up.moved = true;
        match frame.map_err(|_| Broken::Coding)?.into_data() {
            Ok(piece) => up.add(&piece)?,
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let kept = lines(&trailers).filter(|(name, _)| may_trail(name));
                self.trailer.extend(kept.map(|(name, value)| (name.to_vec(), value.to_vec())));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Sink for Download {
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Relay,
        from: &mut BytesMut,
    ) -> Poll<Result<bool, Broken>> {
        let Some(queue) = &self.0 else { return Poll::Ready(Ok(false)) };
        ready!(queue.poll_room(cx))?;
        let Some(piece) = down.piece(from)? else { return Poll::Ready(Ok(false)) };
        down.octets += piece.len() as u64;
        queue.put(Frame::data(piece.freeze()));
        Poll::Ready(Ok(true))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>, down: &mut Relay) -> Passed {
        let Some(queue) = self.0.as_ref().filter(|_| down.has_taken_all()) else {
            return Poll::Ready(Ok(()));
        };
        let mut trailers = http::HeaderMap::new();
        for (name, value) in down.trailer()? {
            let name = http::HeaderName::from_bytes(&name).map_err(|_| Broken::Coding)?;
            let value = http::HeaderValue::from_bytes(&value).map_err(|_| Broken::Coding)?;
            trailers.append(name, value);
        }
        queue.end(trailers);
        Poll::Ready(Ok(()))
    }
}
