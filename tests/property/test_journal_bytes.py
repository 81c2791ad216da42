"""Whatever bytes a disk brings back, the journal is the one that was saved or a lost one, never an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rackpower_agent.journal import Journal, decode, encode
from rackpower_agent.lease.memory import GpuRecord, JournalImage, WriteRecord
from rackpower_common.model.identity import GpuId, Term

WHOLE = st.integers(0, (1 << 63) - 1)
TIMES = st.floats(0, 1e9, allow_nan=False)
NAMES = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
TERMS = st.none() | st.builds(Term, WHOLE, NAMES)
WRITES = st.lists(st.builds(WriteRecord, WHOLE, TIMES), max_size=3).map(tuple)
RECORDS = st.builds(
    GpuRecord,
    NAMES.map(GpuId), TERMS, WHOLE, WHOLE, WHOLE, st.none() | WHOLE, st.none() | WHOLE, st.none() | TIMES, WRITES,
)  # fmt: skip
IMAGES = st.builds(JournalImage, NAMES, TERMS, st.lists(RECORDS, max_size=4).map(tuple))


@given(IMAGES)
def test_every_image_comes_back_as_it_was(image: JournalImage) -> None:
    """Encoding and decoding is the identity."""
    assert decode(encode(image)) == image


@given(IMAGES, st.data())
def test_a_torn_journal_is_a_lost_one(image: JournalImage, data: st.DataObject) -> None:
    """A file that ends early, at any byte, is told as torn."""
    content = encode(image)
    assert is_lost(content[: data.draw(st.integers(0, len(content) - 1))])


@given(IMAGES, st.data())
def test_a_changed_byte_makes_a_lost_journal(image: JournalImage, data: st.DataObject) -> None:
    """No single changed byte gives other caps, sequences or lease ends."""
    content = bytearray(encode(image))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    assert is_lost(bytes(content))


@given(st.binary(max_size=300))
def test_any_bytes_start_an_agent(content: bytes) -> None:
    """An agent starts from whatever it finds."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "lease.json").write_bytes(content)
        journal = Journal(Path(folder))
        memory = journal.open()
        journal.close()
    assert memory.image is None
    assert memory.detail


def is_lost(content: bytes) -> bool:
    """Return whether decoding refuses, with the one error that a lost journal has."""
    try:
        decode(content)
    except ValueError:
        return True
    return False
