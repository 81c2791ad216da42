"""A daemon's settings: flags over environment over a YAML file, every mistake with its place and what to do.

Only the two daemons import this: it needs pydantic-settings, which `rackctl` does without.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource
from pydantic_settings.exceptions import SettingsError as NotJson

from rackpower_common.address import parse_address
from rackpower_common.errors import RackpowerError
from rackpower_common.policy.problems import Findings, Place, did_you_mean
from rackpower_common.policy.tree import MAX_FILE_BYTES, Tree, find, parse, plain
from rackpower_common.policy.tree import Mapping as TreeMapping
from rackpower_common.tls import TlsFiles


class SettingsError(RackpowerError):
    """Settings that cannot be used; `lines` says each mistake, with file, line and column where it has one."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class TlsSettings(BaseModel):
    """`tls:` with three PEM files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: Path
    cert: Path
    key: Path

    def files(self) -> TlsFiles:
        """Return the paths."""
        return TlsFiles(self.ca, self.cert, self.key)


@contextmanager
def refused() -> Iterator[None]:
    """Let an error of ours inside a validator reach the operator in its own words."""
    try:
        yield
    except RackpowerError as error:
        raise ValueError(str(error)) from None


def checked_address(value: str) -> str:
    """Return an address that can be parsed.

    Raises:
        ValueError: It cannot.
    """
    with refused():
        parse_address(value)
    return value


class DaemonSettings(BaseSettings):
    """What every daemon's settings share: how they are read, and where metrics may be served."""

    @field_validator("metrics", check_fields=False)
    @classmethod
    def _can_be_scraped(cls, value: str) -> str:
        if value and parse_address(checked_address(value)).path:
            raise ValueError("a unix socket cannot be scraped, write host:port")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags first, then the environment, then the file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _FileSource(settings_cls)


_file_values: dict[type[BaseSettings], dict[str, Any]] = {}


class _FileSource(InitSettingsSource):
    """The file's values, as read by `load_settings` just before."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, init_kwargs=_file_values.get(settings_cls, {}))


Settings = TypeVar("Settings", bound=DaemonSettings)


def load_settings(cls: type[Settings], file: Path | None, flags: Mapping[str, Any]) -> Settings:
    """Read a daemon's settings.

    Args:
        cls: What they are.
        file: The YAML file, None for none.
        flags: Values from the command line; None means not given.

    Raises:
        SettingsError: The file cannot be read, or something in file, environment or flags is wrong.
    """
    strangers = _unknown_variables(cls)
    if strangers:
        raise SettingsError(strangers)
    tree = _read(file) if file is not None else None
    values = plain(tree) if tree is not None else {}
    _file_values[cls] = typing.cast("dict[str, Any]", values)
    try:
        return cls(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise SettingsError(_line(cls, error_detail, tree, flags) for error_detail in error.errors()) from None
    except NotJson as error:
        raise SettingsError([_not_json(cls, str(error))]) from None
    finally:
        _file_values.pop(cls, None)


def _unknown_variables(cls: type[DaemonSettings]) -> list[str]:
    """Return a line for each variable of our prefix that is no setting: a typo there would be silent."""
    prefix, names = cls.model_config["env_prefix"], [name.upper() for name in cls.model_fields]
    lines = []
    for variable in sorted(os.environ):
        name = variable.removeprefix(prefix)
        if name != variable and name.partition("__")[0] not in names:
            hint = did_you_mean(name.partition("__")[0], names, "see `--help` for what there is")
            lines.append(f"{variable}: error: `{name}` is not a setting ({hint})")
    return lines


def _not_json(cls: type[DaemonSettings], words: str) -> str:
    """Return a line for a variable of a list or mapping that pydantic-settings cannot read; it names the field only."""
    found = re.search(r'field "(\w+)"', words)
    variable = f"{cls.model_config['env_prefix']}{found[1].upper()}" if found is not None else "environment"
    return f'{variable}: error: it is not JSON (write ["one", "two"] for a list, {{"name": {{}}}} for a mapping)'


def _read(file: Path) -> TreeMapping | None:
    findings = Findings()
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{file}: error: cannot be read: {error.strerror} (name another with --config)"]) from None
    if not content.strip():
        return None
    tree = parse(str(file), content, findings, "a settings file", "write `key: value` lines, see `--help`")
    if findings.failed:
        raise SettingsError(str(problem) for problem in findings.in_order())
    return tree


def _line(cls: type[BaseModel], detail: Mapping[str, Any], tree: Tree | None, flags: Mapping[str, Any]) -> str:
    path = tuple(detail["loc"])
    name = ".".join(str(step) for step in path)
    where = _where(cls, path, tree, flags)
    if detail["type"] == "extra_forbidden":
        hint = did_you_mean(str(path[-1]), _keys(cls, path[:-1]), "see `--help` for what there is")
        return f"{where}error: `{name}` is not a setting ({hint})"
    if detail["type"] == "missing":
        return f"{where}error: `{name}` is missing"
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{where}error: `{name}`: {message[:1].lower()}{message[1:]}" if name else f"{where}error: {message}"


def _where(cls: type[BaseModel], path: tuple[str | int, ...], tree: Tree | None, flags: Mapping[str, Any]) -> str:
    if path and flags.get(str(path[0])) is not None:
        return f"--{str(path[0]).replace('_', '-')}: "
    variable = f"{cls.model_config.get('env_prefix', '')}{str(path[0]).upper()}" if path else ""
    if variable and any(name == variable or name.startswith(f"{variable}__") for name in os.environ):
        return f"{variable}: "
    if tree is None:
        return ""
    _, place, _ = find(tree, path)
    return f"{place if path else Place(place.file)}: "


def _keys(cls: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """Return the keys that a (nested) part of the settings has."""
    model: type[BaseModel] | None = cls
    for step in path:
        field = model.model_fields.get(str(step)) if model is not None else None
        model = _model_of(field.annotation) if field is not None else None
    return list(model.model_fields) if model is not None else []


def _model_of(annotation: Any) -> type[BaseModel] | None:
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
