"""The JSON schema of policy files, for editors: `python -m rackpower_common.policy.schema FILE` writes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from rackpower_common.policy.spec import PolicySpec

FILE: Final = Path("policies/rackpower-policy.schema.json")
"""Where the repository keeps it."""


_WRITTEN_ALIKE: Final = frozenset({"boolean", "integer", "number"})


def schema_text() -> str:
    """Return the schema as JSON text; the same models give the same bytes."""
    schema = PolicySpec.model_json_schema(by_alias=True, mode="validation")
    _refine(schema)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": FILE.name} | schema
    schema["title"] = "rackpower policy"
    # A policy may be split over files: each needs only the version.
    schema["required"] = ["version"]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _refine(schema: object) -> None:
    """Take out what a file may not hold though pydantic could: `null`, and titles that only repeat the key."""
    if isinstance(schema, list):
        for item in schema:
            _refine(item)
    if not isinstance(schema, dict):
        return
    if "default" in schema and not (_WRITTEN_ALIKE & {schema.get("type")} or isinstance(schema["default"], str)):
        del schema["default"]  # the compiled value, not what a person would write
    if isinstance(schema.get("title"), str):
        del schema["title"]
    options = schema.get("anyOf")
    if isinstance(options, list):
        left = [option for option in options if option != {"type": "null"} and option is not None]
        unique = [option for index, option in enumerate(left) if option not in left[:index]]
        schema["anyOf"] = unique
        if len(unique) == 1:
            del schema["anyOf"]
            schema.update({key: value for key, value in unique[0].items() if key not in schema})
    for value in schema.values():
        _refine(value)


def main(arguments: list[str]) -> int:
    """Write the schema to the file that is named, by default the repository's; return an exit code."""
    path = Path(arguments[0]) if arguments else FILE
    try:
        path.write_text(schema_text(), encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{path} cannot be written: {error.strerror}; run this in the repository's root\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
