"""The controller's settings: `/etc/rackpower/controller.yaml`, `RACKPOWER_CONTROLLER_…`, flags."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from rackpower_common.address import parse_address, require_tls
from rackpower_common.settings import DaemonSettings, TlsSettings, checked_address, refused
from rackpower_controller.store.address import parse_address as parse_store

DEFAULT_FILE = Path("/etc/rackpower/controller.yaml")


class ControllerSettings(DaemonSettings):
    """What a controller needs to know.

    `agents` is where agents dial, `operators` where operators do (any number), `metrics` where Prometheus scrapes,
    empty for nowhere. `policy` are files and folders. `advertise` is what another controller sends agents to,
    empty for `agents`.
    """

    model_config = SettingsConfigDict(
        env_prefix="RACKPOWER_CONTROLLER_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    policy: tuple[Path, ...]
    curves: Path | None = None
    store: str = "embedded:/var/lib/rackpower/store"
    agents: str = "127.0.0.1:7410"
    advertise: str = ""
    operators: tuple[str, ...] = ("unix:/run/rackpower/operator.sock",)
    metrics: str = "127.0.0.1:9831"
    tls: TlsSettings | None = None
    log_format: Literal["auto", "json", "pretty"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("policy", "operators", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str | Path) else value

    @field_validator("policy")
    @classmethod
    def _is_something(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        if not value:
            raise ValueError("name at least one file or folder")
        return value

    @field_validator("agents")
    @classmethod
    def _is_address(cls, value: str) -> str:
        return checked_address(value)

    @field_validator("advertise")
    @classmethod
    def _is_address_or_none(cls, value: str) -> str:
        return checked_address(value) if value else value

    @field_validator("operators")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(checked_address(one) for one in value)

    @field_validator("store")
    @classmethod
    def _is_store(cls, value: str) -> str:
        with refused():
            parse_store(value)
        return value

    @model_validator(mode="after")
    def _nothing_plain_beyond_this_machine(self) -> ControllerSettings:
        with refused():
            require_tls(parse_address(self.agents), secured=self.tls is not None, what="the port for agents")
            for address in self.operators:
                require_tls(parse_address(address), secured=self.tls is not None, what="the port for operators")
        return self
