"""The journal: what was saved is remembered, all else is a lost journal, and one agent owns the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackpower_agent.journal import SIZE_LIMIT_BYTES, Journal, JournalError, decode, encode, is_dying
from rackpower_agent.lease.memory import GpuRecord, JournalImage, Memory, WriteRecord
from rackpower_common.model.identity import GpuId, Term

IMAGE = JournalImage(
    "boot-1",
    Term(3, "c0ffee"),
    (
        GpuRecord(GpuId("GPU-0"), Term(3, "c0ffee"), 9, 11, 9, 500, 300, 115.25, (WriteRecord(700, 100.5),)),
        GpuRecord(GpuId("GPU-1"), None, 0, 0, 0, None, None, None),
    ),
)

HOLDER = """
import sys
from pathlib import Path
from rackpower_agent.journal import Journal
Journal(Path(sys.argv[1])).open()
print("mine", flush=True)
sys.stdin.read()
"""


def remembered(folder: Path) -> Memory:
    """Return what an agent that starts now remembers."""
    journal = Journal(folder)
    try:
        return journal.open()
    finally:
        journal.close()


def test_what_was_saved_is_remembered(tmp_path: Path) -> None:
    """Terms, sequences, grants, lease ends and writes come back as they were."""
    journal = Journal(tmp_path / "state")
    assert journal.open().image is None
    journal.save(IMAGE)
    journal.close()
    assert remembered(tmp_path / "state") == Memory(IMAGE)


def test_a_first_start_has_no_memory_and_says_so(tmp_path: Path) -> None:
    """A missing file is a lost journal, in words that an operator understands."""
    memory = remembered(tmp_path / "state")
    assert (memory.image, memory.former_writer_alive) == (None, False)
    assert memory.detail == f"there is no {tmp_path}/state/lease.json"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "torn or was changed"),
        (b"{}", "torn or was changed"),
        (encode(IMAGE)[:-1], "torn or was changed"),
        (encode(IMAGE).replace(b'"cap_w":500', b'"cap_w":900'), "torn or was changed"),
        (b"x" * (SIZE_LIMIT_BYTES + 1), "more than 1048576 bytes"),
    ],
)
def test_a_damaged_journal_is_a_lost_one(tmp_path: Path, content: bytes, words: str) -> None:
    """Torn, changed and endless files are told and forgotten."""
    (tmp_path / "lease.json").write_bytes(content)
    memory = remembered(tmp_path)
    assert memory.image is None
    assert words in memory.detail


def sealed(**changes: object) -> bytes:
    """Return a journal with a right checksum and other values in its first GPU, or beside it."""
    values = json.loads(encode(IMAGE).splitlines()[0])
    for key, value in changes.items():
        (values if key in values else values["gpus"][0])[key] = value
    return seal(json.dumps(values).encode())


def seal(line: bytes) -> bytes:
    """Return a line with its checksum."""
    import zlib

    return b"%s\n%08x\n" % (line, zlib.crc32(line))


@pytest.mark.parametrize(
    "content",
    [
        sealed(format=2),
        sealed(boot_id=""),
        sealed(term={"number": 1}),
        sealed(gpus=7),
        sealed(deadline_s=float("nan")),
        sealed(deadline_s=float("inf")),
        sealed(deadline_s="soon"),
        sealed(deadline_s=10**400),
        sealed(cap_w=-1),
        sealed(cap_w=True),
        sealed(sequence=1 << 63),
        sealed(writes=[{"cap_w": 1, "issued_s": None}]),
        seal(b"[" * 100_000),
        seal(b"null"),
        seal(b"\xff"),
    ],
)
def test_a_journal_that_nobody_of_us_wrote_is_refused(content: bytes) -> None:
    """Also with a right checksum: above all, no lease without an end."""
    with pytest.raises(ValueError, match=r".+"):
        decode(content)


def test_a_save_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    """A reader finds the old journal or the new one; a half-written one beside it is not looked at."""
    journal = Journal(tmp_path)
    journal.open()
    journal.save(IMAGE)
    (tmp_path / "lease.new").write_bytes(b"half of")
    journal.close()
    assert remembered(tmp_path).image == IMAGE


def test_a_folder_belongs_to_one_agent(tmp_path: Path) -> None:
    """A second agent is told who has it, and what to do."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(JournalError) as refused:
            Journal(tmp_path).open()
        other.stdin.close()
    assert str(refused.value) == (
        f"{tmp_path} belongs to process {other.pid} (one agent a node: stop the other one first)"
    )
    assert remembered(tmp_path).former_writer_alive is False


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """The words name the folder, the cause and the setting."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError) as refused:
        Journal(tmp_path / "file" / "state").open()
    assert str(refused.value) == (
        f"cannot use {tmp_path}/file/state: Not a directory (check state_dir and its permissions)"
    )


@pytest.mark.parametrize(
    ("status", "dying"),
    [
        ("State:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", False),
        ("State:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n", True),
        ("State:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n", True),
        ("State:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n", False),
        ("State:\tZ (zombie)\n", True),
    ],
)
def test_a_killed_process_in_the_kernel_is_dying(tmp_path: Path, status: str, dying: bool) -> None:
    """SIGKILL pending, or a zombie: its driver call may yet take effect, nothing else will come. SIGTERM is no end."""
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "status").write_text(status)
    assert is_dying(41, tmp_path) is dying


def test_a_process_that_is_gone_is_dying_and_we_are_not() -> None:
    """The look-up works on the real /proc."""
    assert is_dying(os.getpid()) is False
    with subprocess.Popen(["/bin/true"]) as gone:
        pass
    assert is_dying(gone.pid) is True
