"""Golden files: output compared byte for byte with a committed file; `RENEW_GOLDEN=1 pytest …` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
RENEW: Final = os.environ.get("RENEW_GOLDEN", "") == "1"


def check_golden(path: Path, text: str) -> None:
    """Compare text with a golden file, or write the file when goldens are being renewed.

    Args:
        path: The golden file, below `GOLDEN`.
        text: What was produced now.

    Raises:
        AssertionError: They differ, or the file is missing.
    """
    if RENEW:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    advice = "run RENEW_GOLDEN=1 pytest on this file, read the diff and commit it"
    assert path.is_file(), f"{path.name} is missing: {advice}"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: {advice}"
