"""The schema that editors use is the one that the models make."""

from __future__ import annotations

from pathlib import Path

from rackpower_common.policy.schema import main, schema_text
from support.tree import ROOT

COMMITTED = ROOT / "policies" / "rackpower-policy.schema.json"


def test_the_committed_schema_is_what_the_models_say() -> None:
    """Renew it with `python -m rackpower_common.policy.schema`."""
    assert COMMITTED.read_text(encoding="utf-8") == schema_text()


def test_the_schema_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    """The command writes the named file, and says so with its exit code when it cannot."""
    assert main([str(tmp_path / "schema.json")]) == 0
    assert (tmp_path / "schema.json").read_text(encoding="utf-8") == schema_text()
    assert main([str(tmp_path / "none" / "schema.json")]) == 1
