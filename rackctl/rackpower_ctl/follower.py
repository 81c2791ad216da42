"""The newest status of a controller, followed in a thread over restarts and broken connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from rackpower.v1 import operator_pb2
from rackpower_ctl.errors import CtlError

RETRY_S: Final = 0.5
SILENT_S: Final = 10.0
"""A stream that brings nothing for so long is dialled anew: its peer may be gone without a word."""
CLOSE_S: Final = 5.0


class Source(Protocol):
    """What is followed: `client.Operator`, or a fake with a memory."""

    def watch(self) -> Iterator[operator_pb2.Status]:
        """Yield the status after every tick; raise `CtlError` when the stream breaks."""
        ...

    def close(self) -> None:
        """End the stream, from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest status, when it came on the follower's clock, how many came, and what is wrong since."""

    status: operator_pb2.Status | None = None
    received_s: float = 0.0
    count: int = 0
    trouble: str = ""


class Follower:
    """Follows a controller until closed; use it in a `with`.

    Args:
        dial: Returns a new connection; may raise `CtlError`.
        now_s: A clock that never goes back.
        retry_s: Pause before dialling again.
        silent_s: See `SILENT_S`.
    """

    def __init__(
        self,
        dial: Callable[[], Source],
        now_s: Callable[[], float] = time.monotonic,
        retry_s: float = RETRY_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self._dial = dial
        self._now_s = now_s
        self._retry_s = retry_s
        self._silent_s = silent_s
        self._lock = threading.Lock()
        self._seen = Seen()
        self._source: Source | None = None
        self._dialled_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="status follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._hang_up()
        self._thread.join(CLOSE_S)

    def latest(self) -> Seen:
        """Return the newest; also hangs up on a stream that went silent, so that it is dialled anew."""
        with self._lock:
            seen, dialled_s = self._seen, self._dialled_s
        if self._source is not None and self._now_s() - max(seen.received_s, dialled_s) > self._silent_s:
            self._hang_up()
        return seen

    def _follow(self) -> None:
        while not self._stopped.is_set():
            trouble = "the controller ended the stream"
            try:
                source = self._dial()
                with self._lock:
                    self._source, self._dialled_s = source, self._now_s()
                if not self._stopped.is_set():
                    for status in source.watch():
                        self._put(status)
            except CtlError as error:
                trouble = error.message
            finally:
                self._hang_up()
            with self._lock:
                self._seen = Seen(self._seen.status, self._seen.received_s, self._seen.count, trouble)
            self._stopped.wait(self._retry_s)

    def _put(self, status: operator_pb2.Status) -> None:
        with self._lock:
            self._seen = Seen(status, self._now_s(), self._seen.count + 1)

    def _hang_up(self) -> None:
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.close()
