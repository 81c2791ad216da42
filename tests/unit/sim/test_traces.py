"""Trace files: what is read, what is refused and in which words; and the loads that are made of them."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest

from rackpower_sim.traces import Mix, Request, Trace, TraceError, load_trace, with_burst
from support.sim_racks import TRACE_HEADER, write_trace

ROW = "2023-11-16 18:17:03.9799600,4808,10"
GOOD = f"{TRACE_HEADER}\n{ROW}\n2023-11-16 18:17:04.0799600,3180,8\n2023-11-16 18:17:05.9799600,110,27\n"


def written(folder: Path, content: str | bytes, name: str = "trace.csv") -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_trace_is_read_from_its_first_request_on(tmp_path: Path) -> None:
    """Seven decimals and all; the pause before it begins again is the mean gap."""
    trace = load_trace(written(tmp_path, GOOD))
    arrivals_s = [request.arrival_s for request in trace.requests]
    assert arrivals_s == pytest.approx([0.0, 0.1, 2.0], abs=1e-6)
    assert [request[1:] for request in trace.requests] == [(4808, 10), (3180, 8), (110, 27)]
    assert trace.length_s == pytest.approx(3.0, abs=1e-6)
    assert trace.output_tokens_per_s == pytest.approx(15.0, abs=1e-5)


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(GOOD.encode()),
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        GOOD + "\n\n",
        "\n".join([TRACE_HEADER, *reversed(GOOD.splitlines()[1:])]),
        GOOD.replace("00,", "00+00:00,"),
        GOOD.replace("00,", "00Z,"),
        GOOD.replace("16 18", "16T18"),
    ],
    ids=["gzip", "crlf", "bom", "empty lines", "unsorted", "zone", "Z", "T"],
)
def test_the_same_trace_in_other_dress(tmp_path: Path, content: str | bytes) -> None:
    """Plain or gzip, whatever the file is called."""
    assert load_trace(written(tmp_path, content)) == load_trace(written(tmp_path, GOOD, "plain.csv"))


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """Other columns and another order do no harm."""
    path = written(tmp_path, "GeneratedTokens,Model,TIMESTAMP,ContextTokens\n7,m,2024-05-10 00:00:00,30\n")
    assert load_trace(path).requests == (Request(0.0, 30, 7),)


def test_a_time_zone_counts(tmp_path: Path) -> None:
    """An hour's difference is an hour's difference."""
    rows = "2024-05-10 01:00:00+01:00,1,1\n2024-05-10 00:00:30+00:00,1,1\n"
    trace = load_trace(written(tmp_path, f"{TRACE_HEADER}\n{rows}"))
    assert [request.arrival_s for request in trace.requests] == [0.0, 30.0]


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        ("", ":1", "empty"),
        ("time,in,out\n", ":1", "TIMESTAMP is missing"),
        ("TIMESTAMP,ContextTokens\n", ":1", "GeneratedTokens is missing"),
        (f"{TRACE_HEADER}\n", "", "no requests"),
        (f"{TRACE_HEADER}\n{ROW}\n{ROW},5\n", ":3", "4 fields where the header has 3"),
        (f"{TRACE_HEADER}\n{ROW[:-3]}\n", ":2", "2 fields"),
        (f"{TRACE_HEADER}\nyesterday,1,1\n", ":2", "`yesterday` is not a time"),
        (f"{TRACE_HEADER}\n2023-13-16 18:17:03,1,1\n", ":2", "is not a time"),
        (f"{TRACE_HEADER}\n2023-11-16 18:17:03.1e5,1,1\n", ":2", "is not a time"),
        (f"{TRACE_HEADER}\n2023-11-16 18:17:03.1_0,1,1\n", ":2", "is not a time"),
        (f"{TRACE_HEADER}\n{ROW[:-2]}-5\n", ":2", "GeneratedTokens `-5`"),
        (f"{TRACE_HEADER}\n{ROW[:-2]}1.5\n", ":2", "GeneratedTokens `1.5`"),
        (f"{TRACE_HEADER}\n{ROW[:-2]}nan\n", ":2", "GeneratedTokens `nan`"),
        (f"{TRACE_HEADER}\n{ROW[:-2]}\n", ":2", "GeneratedTokens ``"),
        (f"{TRACE_HEADER}\n{ROW[:-2]}99999999\n", ":2", "GeneratedTokens `99999999`"),
        (f"{TRACE_HEADER}\n{ROW[:-2]}٣\n", ":2", "is not a number of tokens"),
        (f"{TRACE_HEADER}\n2023-11-16 18:17:03,5,0\n", "", "less than one token each"),
        (b"\xff\xfe\x00", "", "not UTF-8 text at byte 0"),
        (gzip.compress(GOOD.encode())[:-12], "", "the gzip file is damaged"),
        (b"\x1f\x8bnothing", "", "the gzip file is damaged"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, content: str | bytes, where: str, what: str) -> None:
    """The file, the line, what it says there; and what to do about it."""
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert caught.value.message.startswith(f"{path}{where}: ")
    assert what in caught.value.message
    assert caught.value.hint


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Missing, or a folder."""
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        load_trace(tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_trace_has_limits(tmp_path: Path, pack: type[bytes]) -> None:
    """Requests, and bytes once unpacked: a small gzip file may hold a large one."""
    path = written(tmp_path, pack(GOOD.encode()))
    assert len(load_trace(path, max_requests=3, max_bytes=len(GOOD)).requests) == 3
    with pytest.raises(TraceError, match=r":4: more than 2 requests"):
        load_trace(path, max_requests=2)
    with pytest.raises(TraceError, match="larger than 99 bytes"):
        load_trace(path, max_bytes=99)


def test_a_trace_repeats_and_speeds_up() -> None:
    """The same requests for ever, their times shortened and their lengths as they were."""
    trace = Trace((Request(0.0, 1, 5), Request(2.0, 2, 6)), 4.0)
    taken = list(itertools.islice(trace.repeated(2.0), 5))
    assert [request.arrival_s for request in taken] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [request.output_tokens for request in taken] == [5, 6, 5, 6, 5]


def test_requests_that_came_all_at_once_still_have_a_length(tmp_path: Path) -> None:
    """A second each, so that their rate is a number."""
    trace = load_trace(written(tmp_path, f"{TRACE_HEADER}\n{ROW}\n{ROW}\n"))
    assert (trace.length_s, trace.output_tokens_per_s) == (1.0, 20.0)


def test_a_burst_fills_the_queues_at_once() -> None:
    """The first tokens come at 0 s; what follows keeps its gaps."""
    rows = [Request(float(second), 0, 10) for second in range(6)]
    taken = list(with_burst(iter(rows), 25.0))
    assert [request.arrival_s for request in taken] == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]


def test_made_up_requests_have_the_mix_and_the_seed() -> None:
    """Means within a few percent over 40,000; the same seed gives the same."""
    mix = Mix()
    taken = list(itertools.islice(mix.requests(7, 50.0), 40_000))
    arrivals_s = np.array([request.arrival_s for request in taken])
    assert (np.diff(arrivals_s) >= 0).all()
    assert len(taken) / arrivals_s[-1] == pytest.approx(50.0, rel=0.03)
    assert np.mean([request.output_tokens for request in taken]) == pytest.approx(mix.output_mean, rel=0.03)
    assert np.mean([request.prompt_tokens for request in taken]) == pytest.approx(mix.prompt_mean, rel=0.03)
    assert taken[:100] == list(itertools.islice(mix.requests(7, 50.0), 100))
    assert taken[:100] != list(itertools.islice(mix.requests(8, 50.0), 100))


def test_a_written_trace_is_read_back(tmp_path: Path) -> None:
    """The builder of these tests writes what the loader reads."""
    trace = load_trace(write_trace(tmp_path / "made.csv", count=50))
    made = list(itertools.islice(Mix().requests(1, 5.0), 50))
    assert [request.output_tokens for request in trace.requests] == [request.output_tokens for request in made]
    assert trace.requests[-1].arrival_s == pytest.approx(made[-1].arrival_s - made[0].arrival_s, abs=1e-5)
