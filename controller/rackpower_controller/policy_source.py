"""Policy files on disk: read, bent to measured curves, and watched; acted upon once unchanged for a second."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from watchfiles import awatch

from rackpower_common.policy import LoadedPolicy, PolicyError, Severity, judge, load, load_files
from rackpower_common.policy.curves import CurveShape, load_curves, shapes_for, usable, with_curves

QUIET_S = 1.0
"""Files are read once they have not changed for so long: an editor or a checkout writes several."""

log = structlog.get_logger("rackpower.policy")

POLL_S = 2.0
"""Where the system tells of no changes (network file systems), files are looked at so often."""


class PolicySource:
    """The files that an operator edits.

    Args:
        paths: Files and folders.
        curves: A CSV file of measured curves that bends the classes' curves, None for none.
        quiet_s: How long files must not have changed, in seconds.
        poll_s: How often files are looked at where the system tells of no changes, in seconds.
    """

    def __init__(
        self, paths: Sequence[Path], curves: Path | None, *, quiet_s: float = QUIET_S, poll_s: float = POLL_S
    ) -> None:
        self.paths = tuple(paths)
        self._curves = curves
        self._quiet_s = quiet_s
        self._poll_s = poll_s
        self._shapes: tuple[CurveShape, ...] = ()
        self._touched = asyncio.Event()
        self._asked = False
        self._read_digest = ""

    def open(self) -> None:
        """Read the curves.

        Raises:
            PolicyError: The file is missing, or wrong; each problem names its line.
        """
        self._shapes = usable(load_curves(self._curves)) if self._curves is not None else ()

    def read(self) -> LoadedPolicy:
        """Read and check the files as they are.

        Raises:
            PolicyError: The policy is wrong; nothing changed.
        """
        self._read_digest = self.digest()
        return self.bend(load(self.paths))

    def read_first(self) -> LoadedPolicy:
        """Read and check the files as they are, with nothing in force before them.

        Raises:
            PolicyError: The policy is wrong, or its wishes do not fit its limits.
        """
        loaded = self.read()
        problems = [problem for problem in judge(loaded, None) if problem.severity is Severity.ERROR]
        if problems:
            raise PolicyError(problems)
        return loaded

    def parse(self, files: Sequence[tuple[str, bytes]], author: str) -> LoadedPolicy:
        """Check files that came from elsewhere.

        Raises:
            PolicyError: The policy is wrong.
        """
        return self.bend(load_files(files, author))

    def bend(self, loaded: LoadedPolicy) -> LoadedPolicy:
        """Return a policy with the measured curves."""
        if not self._shapes:
            return loaded
        policy = with_curves(loaded.policy, shapes_for(loaded.policy.classes, self._shapes))
        return LoadedPolicy(policy, loaded.problems, loaded.files, loaded.places, loaded.author)

    def digest(self) -> str:
        """Return a digest of the files' bytes and names, also of files that are wrong; empty when unreadable."""
        digest = hashlib.sha256()
        try:
            for path in self.paths:
                for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                    if file.is_file():
                        digest.update(file.name.encode() + b"\0" + file.read_bytes())
        except OSError:
            return ""
        return digest.hexdigest()

    def reload(self) -> None:
        """Read the files again even if nothing says that they changed (SIGHUP)."""
        self._asked = True
        self._touched.set()

    async def run(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Call `changed` whenever the files changed and have been quiet since, or were asked for anew; for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._follow(changed))

    async def _follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        while True:
            asked = await self._sign_of_change()
            if asked or self.digest() != self._read_digest:
                self._read_digest = await self._quiet()
                await changed()

    async def _watch(self) -> None:
        """Wake the follower at once where the system tells of changes; where it does not, it looks by itself."""
        folders = {path if path.is_dir() else path.parent for path in self.paths}
        told = ""
        while True:
            try:
                async for _ in awatch(*folders, debounce=200, step=50, recursive=False):
                    self._touched.set()
                    told = ""
            except (OSError, RuntimeError) as error:
                if str(error) != told:
                    log.warning("cannot watch the policy's folder, looking now and then", reason=str(error))
                    told = str(error)
            await asyncio.sleep(self._poll_s)

    async def _sign_of_change(self) -> bool:
        """Wait for a sign of change, or for the next look; returns whether a reload was asked for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll_s):
                await self._touched.wait()
        self._touched.clear()
        asked, self._asked = self._asked, False
        return asked

    async def _quiet(self) -> str:
        """Return the digest once it has stayed the same for a while."""
        seen = self.digest()
        while True:
            await asyncio.sleep(self._quiet_s)
            again = self.digest()
            if again == seen:
                return seen
            seen = again
