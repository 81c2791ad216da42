"""Where the controller is and how we prove who we are: flags before environment before the context file.

Kept light: every command imports this, only those that talk import gRPC.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from rackpower_ctl.errors import UsageError

DEFAULT_CONTROLLER: Final = "unix:/run/rackpower/operator.sock"
MAX_CONTEXT_BYTES: Final = 64 * 1024
ENVIRONMENT: Final = {
    "controller": "RACKCTL_CONTROLLER",
    "ca": "RACKCTL_CA",
    "cert": "RACKCTL_CERT",
    "key": "RACKCTL_KEY",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was said in one place; None where nothing was."""

    controller: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """A controller and our certificate for it.

    `tls` holds the paths of the authority, our certificate and our key, or is None for plain text.
    """

    controller: str
    tls: tuple[Path, Path, Path] | None = None


def context_path(environment: Mapping[str, str]) -> Path:
    """Return where the context file is looked for."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "rackpower" / "ctl.yaml"


def resolve(flags: Wanted, environment: Mapping[str, str]) -> Connection:
    """Return the connection that flags, environment and context file ask for, in this order.

    Raises:
        UsageError: They contradict themselves, or the context file cannot be used.
    """
    from_environment = Wanted(**{key: environment.get(name) or None for key, name in ENVIRONMENT.items()})
    chosen = _over(flags, from_environment)
    if None in (chosen.controller, chosen.ca, chosen.cert, chosen.key):
        chosen = _over(chosen, read_context(context_path(environment)))
    controller = chosen.controller or DEFAULT_CONTROLLER
    files = {"ca": chosen.ca, "cert": chosen.cert, "key": chosen.key}
    missing = [name for name, path in files.items() if not path]
    if len(missing) == len(files) or controller.startswith("unix:"):
        return Connection(controller)
    if missing:
        raise UsageError(
            f"mutual TLS needs an authority, a certificate and a key; missing: {', '.join(missing)}",
            f"give --{' --'.join(missing)} as well, or none of --ca, --cert and --key",
        )
    ca, cert, key = (Path(path or "").expanduser() for path in files.values())
    return Connection(controller, (ca, cert, key))


def read_context(path: Path) -> Wanted:
    """Return what the context file says; nothing when there is none. Paths in it are relative to its folder.

    Raises:
        UsageError: It cannot be read, is no mapping of text, or has a key that we do not know.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONTEXT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Wanted()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check its permissions") from error
    known = [field.name for field in fields(Wanted)]
    hint = f"it may hold {', '.join(known)}, each on a line like `controller: rack-1.example:7443`"
    if len(content) > MAX_CONTEXT_BYTES:
        raise UsageError(f"{path} has more than {MAX_CONTEXT_BYTES} bytes", hint)
    values = _mapping(path, content, hint)
    unknown = [key for key in values if key not in known]
    if unknown:
        raise UsageError(f"{path}: `{unknown[0]}` is not known", hint)
    relative = {
        key: str(path.parent / Path(value).expanduser()) for key, value in values.items() if key != "controller"
    }
    return Wanted(**(values | relative))


def _mapping(path: Path, content: bytes, hint: str) -> dict[str, str]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        loaded = YAML(typ="safe", pure=True).load(content.decode())
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise UsageError(
            f"{where}: not YAML: {getattr(error, 'problem', None) or 'it cannot be read'}", hint
        ) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path}: not YAML in UTF-8: {error}", hint) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in loaded.items()
    ):
        raise UsageError(f"{path}: not a list of names and texts", hint)
    return loaded


def _over(first: Wanted, second: Wanted) -> Wanted:
    return Wanted(**{field.name: getattr(first, field.name) or getattr(second, field.name) for field in fields(Wanted)})


def environment() -> Mapping[str, str]:
    """Return this process's environment."""
    return os.environ
