"""The agent's settings: `/etc/rackpower/agent.yaml`, `RACKPOWER_AGENT_…`, flags."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from rackpower_common.address import parse_address, require_tls
from rackpower_common.settings import DaemonSettings, TlsSettings, checked_address, refused

DEFAULT_FILE = Path("/etc/rackpower/agent.yaml")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Plugins = dict[str, dict[str, str]]
"""Entry point names with their options."""


class AgentSettings(DaemonSettings):
    """What an agent needs to know.

    `node` is the node's name as in the policy, by default the host's. `controllers` are tried in turn. `devices`,
    `workloads` and `meter` name backends with their options; nothing is loaded that is not named.
    """

    model_config = SettingsConfigDict(
        env_prefix="RACKPOWER_AGENT_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    node: str = Field(default_factory=lambda: socket.gethostname().partition(".")[0], min_length=1, max_length=256)
    controllers: tuple[str, ...] = Field(default=(), max_length=16)
    devices: Plugins = Field(default_factory=dict, validate_default=True)
    workloads: Plugins = Field(default_factory=dict)
    meter: Plugins = Field(default_factory=dict)
    state_dir: Path = Path("/var/lib/rackpower-agent")
    boot_id_file: Path = BOOT_ID
    metrics: str = "127.0.0.1:9830"
    tls: TlsSettings | None = None
    log_format: Literal["auto", "json", "pretty"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("controllers", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("controllers")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(checked_address(one) for one in value)

    @field_validator("devices", "workloads", "meter", mode="before")
    @classmethod
    def _options_are_text(cls, value: object) -> object:
        """Take `sim:` without options and numbers as options."""
        if not isinstance(value, dict):
            return value
        return {
            name: {key: str(option) for key, option in options.items()} if isinstance(options, dict) else options or {}
            for name, options in value.items()
        }

    @field_validator("devices")
    @classmethod
    def _some_devices(cls, value: Plugins) -> Plugins:
        if not value:
            raise ValueError("name at least one backend, such as nvidia or amd")
        return value

    @field_validator("meter")
    @classmethod
    def _one_meter(cls, value: Plugins) -> Plugins:
        if len(value) > 1:
            raise ValueError("a node has one meter")
        return value

    @model_validator(mode="after")
    def _nothing_plain_beyond_this_machine(self) -> AgentSettings:
        with refused():
            for address in self.controllers:
                require_tls(parse_address(address), secured=self.tls is not None, what="the controller")
        return self
