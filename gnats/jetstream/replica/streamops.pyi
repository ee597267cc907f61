"""Entries of a stream's Raft group, in nats-server's layouts."""

StreamMsg = tuple[bytes, bytes, bytes, bytes, int, int, bool, tuple[bytes, int, bool] | None]

def read_stream_msg(data: bytes) -> StreamMsg: ...
def write_stream_msg(
    subject: bytes,
    reply: bytes,
    hdr: bytes,
    msg: bytes,
    seq: int,
    ts: int,
    sourced: bool = False,
    batch: tuple[bytes, int, bool] | None = None,
) -> bytes: ...
