"""The server's HTTP connections: none can take what the others need.

A connection whose request has not come whole is one of few: where there are more, the
one that has waited longest is closed. So clients that send slowly, or nothing, take one
another's places. One that has sent its request is no longer among them, however long
the answer takes. One that is answered before its request has come whole is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import h11
import uvicorn
from predict_requests import ARRIVAL
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_HEADERS = 16 << 10  # bytes
MOST_READ = 512  # connections whose requests have not come whole
ROOM = 0.1  # seconds that one that has just come has at least, however many there are
KEEP_ALIVE = 65.0  # seconds that a connection may wait for its next request
AT_ONCE = 16 << 10  # bytes of one connection that are read before others have a turn
SETTLE = 1.0  # seconds in which the last answers are sent


class Connection(H11Protocol):
    """An HTTP connection that is closed if it keeps the server waiting.

    Args:
        reading: Those whose requests have not come whole, in the order of their coming.
        longest: Seconds that an answer and its sending may take.
        **uvicorn: What uvicorn gives to its protocols.
    """

    def __init__(
        self, reading: dict[Connection, None], longest: float, **uvicorn: Any
    ) -> None:
        super().__init__(**uvicorn)
        self.reading, self.longest = reading, longest
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has come."""
        super().connection_made(transport)
        transport.max_size = AT_ONCE
        self._wait(2 * ARRIVAL)  # after which a request is refused that has begun

    def data_received(self, data: bytes) -> None:
        """A client has sent something."""
        if self._is_over():
            return
        super().data_received(data)
        if not self._is_reading():
            self._wait(self.longest, is_reading=False)

    def on_response_complete(self) -> None:
        """An answer is sent, and the next request may have been read already."""
        super().on_response_complete()
        if self._is_over():
            self.transport.write_eof()
            self._wait(SETTLE)  # in which the client can read the answer
        else:
            self._wait(KEEP_ALIVE, self._is_reading())

    def connection_lost(self, exc: Exception | None) -> None:
        """A client has gone."""
        super().connection_lost(exc)
        self._wait(None, is_reading=False)

    def _is_over(self) -> bool:
        """Whether all is said before all is read, so that the rest is of no use."""
        is_answered = self.conn.our_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        return is_answered and self.conn.their_state is h11.SEND_BODY

    def _is_reading(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _wait(self, seconds: float | None, is_reading: bool = True) -> None:
        """Sets when the connection is closed, and whether it may be before."""
        if self.timer is not None:
            self.timer.cancel()
        self.reading.pop(self, None)
        if seconds is not None and not self.transport.is_closing():
            self.timer = self.loop.call_later(seconds, self.transport.abort)
            if is_reading:
                self.reading[self] = None
        if len(self.reading) > MOST_READ:
            # Not now: many may have come at once, and what they sent is read after.
            self.loop.call_later(ROOM, self._make_room)

    def _make_room(self) -> None:
        """Closes those that have waited longest, if there are too many."""
        while len(self.reading) > MOST_READ:
            oldest = next(iter(self.reading))
            del self.reading[oldest]
            oldest.transport.abort()


def http_server(app: Any, host: str, port: int, longest: float) -> uvicorn.Server:
    """Makes a server of HTTP, whose `serve` runs it until it `should_exit`.

    Args:
        app: What answers, as ASGI has it.
        host: Where it listens.
        port: The port.
        longest: Seconds that an answer and its sending may take.
    """
    config = uvicorn.Config(
        app,
        host,
        port,
        http=functools.partial(Connection, {}, longest),
        h11_max_incomplete_event_size=MOST_HEADERS,
        timeout_keep_alive=int(KEEP_ALIVE),
        timeout_graceful_shutdown=int(SETTLE),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # server.py has its own handlers
    return server
