"""Requests by time: from a trace file in the Azure CSV format, or made up by a seed.

A file has the columns TIMESTAMP, ContextTokens, GeneratedTokens, plain or gzip. A rack larger than the one that was
traced gets the same requests faster, and over and over.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rackpower_common.errors import RackpowerError

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MAX_REQUESTS: Final = 2_000_000
MAX_TOKENS: Final = 10_000_000
"""Of one request; more is a slip."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Of a trace once unpacked: more than `MAX_REQUESTS` lines, and few enough to be held."""
LEAST_OUTPUT_TOKENS: Final = 1.0
"""A request's mean; a rack that is to queue on less would have to take in requests without end."""
_GZIP_MARK: Final = b"\x1f\x8b"
_TIME_FORMAT: Final = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d{1,12})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_HINT: Final = "the first line must be TIMESTAMP,ContextTokens,GeneratedTokens"
_BLOCK: Final = 256


class TraceError(RackpowerError):
    """A trace file that cannot be used; the message names file and line."""


class Request(NamedTuple):
    """One request: when it arrives, in seconds from the start, and its tokens."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A finite list of requests, by arrival from 0 s, and how long it is before it may begin again."""

    requests: tuple[Request, ...]
    length_s: float

    @property
    def output_tokens_per_s(self) -> float:
        """Return the mean rate at which it asks for tokens."""
        return sum(request.output_tokens for request in self.requests) / self.length_s

    def repeated(self, speed: float) -> Iterator[Request]:
        """Return its requests for ever, `speed` times as fast as they were traced."""
        offset_s = 0.0
        while True:
            for request in self.requests:
                yield Request((offset_s + request.arrival_s) / speed, request.prompt_tokens, request.output_tokens)
            offset_s += self.length_s


@dataclass(frozen=True, slots=True)
class Mix:
    """A made-up load: Poisson arrivals with log-normal lengths.

    Means and spreads are those of the Azure conversation trace of 2023 (first 30 minutes); `…_sigma` is the standard
    deviation of the logarithm.
    """

    prompt_mean: float = 1243.0
    prompt_sigma: float = 0.97
    output_mean: float = 217.0
    output_sigma: float = 0.9

    def requests(self, seed: int, requests_per_s: float) -> Iterator[Request]:
        """Return made-up requests for ever; the same seed gives the same."""
        rng = np.random.default_rng([seed, 2])
        arrival_s = 0.0
        while True:
            gaps_s = rng.exponential(1.0 / requests_per_s, _BLOCK)
            prompts = self._lengths(rng, self.prompt_mean, self.prompt_sigma)
            outputs = self._lengths(rng, self.output_mean, self.output_sigma)
            for gap_s, prompt, output in zip(gaps_s.tolist(), prompts, outputs, strict=True):
                arrival_s += gap_s
                yield Request(arrival_s, prompt, output)

    @staticmethod
    def _lengths(rng: np.random.Generator, mean: float, sigma: float) -> list[int]:
        drawn = rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, _BLOCK)
        return [max(1, min(MAX_TOKENS, round(tokens))) for tokens in drawn.tolist()]


def load_trace(path: Path, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES) -> Trace:
    """Read a trace file.

    Args:
        path: A CSV file with `COLUMNS`, plain or gzip; rows need not be in order.
        max_requests: More are refused.
        max_bytes: Of text, once unpacked; more are refused.

    Returns:
        Its requests, the first at 0 s.

    Raises:
        TraceError: It cannot be read, has no or other columns, a broken row, no requests, too many, or it asks for
            no tokens.
    """
    lines = iter(enumerate(_text(path, max_bytes).splitlines(), start=1))
    _, first = next(lines, (1, ""))
    columns = [column.strip() for column in first.lstrip("\ufeff").split(",")]
    if not first.strip():
        raise TraceError(f"{path}:1: the file is empty", _HINT)
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        raise TraceError(f"{path}:1: column {missing[0]} is missing", _HINT)
    places = [columns.index(column) for column in COLUMNS]
    rows: list[tuple[float, int, int]] = []
    for number, line in lines:
        if not line.strip():
            continue
        if len(rows) >= max_requests:
            raise TraceError(f"{path}:{number}: more than {max_requests:,} requests", "take a part of the trace")
        rows.append(_row(path, number, line, places, len(columns)))
    if not rows:
        raise TraceError(f"{path}: there are columns but no requests", "the file must have at least one row")
    if sum(output for _, _, output in rows) < LEAST_OUTPUT_TOKENS * len(rows):
        raise TraceError(f"{path}: its requests ask for less than one token each", f"look at the column {COLUMNS[2]}")
    rows.sort(key=lambda row: row[0])
    return _trace(rows)


def with_burst(requests: Iterator[Request], output_tokens: float) -> Iterator[Request]:
    """Let the first requests, worth `output_tokens`, arrive together at 0 s, and all later ones so much earlier.

    A rack that is to be compared under load should not spend its first seconds filling its queues.
    """
    earlier_s = 0.0
    left = output_tokens
    for request in requests:
        if left > 0:
            left -= request.output_tokens
            earlier_s = request.arrival_s
        yield request._replace(arrival_s=request.arrival_s - earlier_s)


def _trace(rows: list[tuple[float, int, int]]) -> Trace:
    """Return rows from 0 s on; the pause before the trace begins again is its mean gap."""
    begin_s = rows[0][0]
    span_s = rows[-1][0] - begin_s
    gap_s = span_s / (len(rows) - 1) if span_s > 0 else 1.0
    requests = tuple(Request(time_s - begin_s, prompt, output) for time_s, prompt, output in rows)
    return Trace(requests, span_s + gap_s)


def _text(path: Path, max_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if content.startswith(_GZIP_MARK):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(max_bytes + 1)
        if len(content) > max_bytes:
            raise TraceError(f"{path}: larger than {max_bytes:,} bytes", "take a part of the trace")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text at byte {error.start}", "give a CSV file, plain or gzip") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: the gzip file is damaged: {error}", "fetch it again") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}", "check the path") from None


def _row(path: Path, number: int, line: str, places: list[int], columns: int) -> tuple[float, int, int]:
    fields = line.split(",")
    if len(fields) != columns:
        raise TraceError(
            f"{path}:{number}: {len(fields)} fields where the header has {columns}", "mend or remove the line"
        )
    time_text, prompt_text, output_text = (fields[place].strip() for place in places)
    return (
        _seconds(path, number, time_text),
        _tokens(path, number, COLUMNS[1], prompt_text),
        _tokens(path, number, COLUMNS[2], output_text),
    )


def _seconds(path: Path, number: int, text: str) -> float:
    """Return a time stamp in seconds, UTC where no zone is told; Azure's have seven decimals, Python reads six."""
    found = _TIME_FORMAT.fullmatch(text)
    head, decimals, zone = found.groups() if found is not None else ("", None, None)
    try:
        whole = datetime.fromisoformat(f"{head}{zone or '+00:00'}").timestamp()
    except ValueError:
        hint = "write it like 2023-11-16 18:17:03.9799600"
        raise TraceError(f"{path}:{number}: `{text[:40]}` is not a time", hint) from None
    return whole + float(f"0{decimals or ''}")


def _tokens(path: Path, number: int, column: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > MAX_TOKENS:
        hint = f"a whole number from 0 to {MAX_TOKENS:,} is expected"
        raise TraceError(f"{path}:{number}: {column} `{text[:40]}` is not a number of tokens", hint)
    return int(text)
