//! Requests and responses on the wire: four bytes of length, most significant first, then the
//! bytes.
//!
//! Invariant: a length above the limit is refused before anything is read, memory grows only
//! with what has really arrived, and a request that does not arrive in time is given up. What is wrong with a request is
//! handed on as one, because libp2p tells nobody of a stream that fails before a request was read, and whoever sent it is
//! to be named. What the bytes mean is the caller's business: they are canonical
//! CBOR already, and libp2p's own CBOR codec would wrap them a second time.

use std::io::{self, ErrorKind};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;
use libp2p::request_response::Codec;

use crate::network::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};

/// Name and version of the protocol, negotiated per stream.
pub(crate) const PROTOCOL: &str = "/fairmesh/sync/4";

/// A frame announced more bytes than its kind may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {bytes} bytes, more than the limit of {bytes_max}")]
pub(crate) struct Oversize {
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
}

impl Oversize {
    /// The oversize in an error of [`SyncCodec`], if that is what it was.
    pub(crate) fn in_error(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// A request as it was read from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestFrame {
    Whole(Vec<u8>),
    Oversize(Oversize),
    /// The peer did not send all of it within [`SyncCodec::request_max`].
    Late,
}

/// The codec of [`PROTOCOL`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyncCodec {
    /// How long a request may take to arrive.
    pub(crate) request_max: Duration,
}

impl Codec for SyncCodec {
    type Protocol = StreamProtocol;
    type Request = RequestFrame;
    type Response = Vec<u8>;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<RequestFrame>
    where
        T: AsyncRead + Unpin + Send,
    {
        let read = tokio::time::timeout(self.request_max, read_frame(io, REQUEST_BYTES_MAX));
        match read.await {
            Ok(Ok(bytes)) => Ok(RequestFrame::Whole(bytes)),
            Ok(Err(error)) => {
                Oversize::in_error(&error).map_or(Err(error), |of| Ok(RequestFrame::Oversize(of)))
            }
            Err(_) => Ok(RequestFrame::Late),
        }
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Vec<u8>>
    where
        T: AsyncRead + Unpin + Send,
    {
        read_frame(io, RESPONSE_BYTES_MAX).await
    }

    async fn write_request<T>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        request: RequestFrame,
    ) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        match request {
            RequestFrame::Whole(bytes) => write_frame(io, &bytes, REQUEST_BYTES_MAX).await,
            RequestFrame::Oversize(_) | RequestFrame::Late => unreachable!("nobody asks for that"),
        }
    }

    async fn write_response<T>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        bytes: Vec<u8>,
    ) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        write_frame(io, &bytes, RESPONSE_BYTES_MAX).await
    }
}

async fn read_frame(io: &mut (impl AsyncRead + Unpin), bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    io.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length);
    let bytes = checked(usize::try_from(length).unwrap_or(usize::MAX), bytes_max)?;
    let mut frame = Vec::new();
    let read = io.take(u64::from(length)).read_to_end(&mut frame).await?;
    if read < bytes {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

async fn write_frame(
    io: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    bytes_max: usize,
) -> io::Result<()> {
    let length = checked(bytes.len(), bytes_max)?;
    let length = u32::try_from(length).expect("the limits are below 4 GiB");
    io.write_all(&length.to_be_bytes()).await?;
    io.write_all(bytes).await
}

fn checked(bytes: usize, bytes_max: usize) -> io::Result<usize> {
    if bytes > bytes_max {
        let oversize = Oversize { bytes, bytes_max };
        return Err(io::Error::new(ErrorKind::InvalidData, oversize));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::io::Cursor;

    use super::*;

    #[test]
    fn frames_round_trip_even_empty_ones() {
        for bytes in [vec![], vec![1, 2, 3], vec![9; 100_000]] {
            let mut wire = Vec::new();
            block_on(write_frame(&mut wire, &bytes, REQUEST_BYTES_MAX)).unwrap();
            let read = block_on(read_frame(&mut Cursor::new(wire), REQUEST_BYTES_MAX));
            assert_eq!(read.unwrap(), bytes);
        }
    }

    #[test]
    fn an_oversize_frame_is_named_and_not_read() {
        let mut wire = Cursor::new([&u32::MAX.to_be_bytes()[..], &[0; 64]].concat());
        let error = block_on(read_frame(&mut wire, RESPONSE_BYTES_MAX)).unwrap_err();
        let expected = Oversize {
            bytes: u32::MAX as usize,
            bytes_max: RESPONSE_BYTES_MAX,
        };
        assert_eq!(Oversize::in_error(&error), Some(expected));
        assert_eq!(wire.position(), 4);
    }

    #[test]
    fn a_cut_frame_is_an_end_of_file() {
        for wire in [&[][..], &[0, 0], &[0, 0, 0, 9, 1, 2]] {
            let error = block_on(read_frame(&mut Cursor::new(wire), 100)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }
}
