"""What may stand in a policy file, as pydantic models: the one source of the loader's checks and the JSON schema.

Unknown keys are refused, nothing is converted silently, and quantities carry their units. What needs more than one
value to judge (references, cycles, shares) is checked in the compile step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from rackpower_common.errors import RackpowerError
from rackpower_common.quantity import (
    QuantityError,
    ceil_w,
    floor_w,
    format_share,
    parse_duration,
    parse_percent,
    parse_power,
    quoted,
)

VERSION: Final = 1
MAX_GPUS_PER_NODE: Final = 64
"""What one report carries."""
DEFAULT_HEADROOM: Final = Fraction(3, 100)

_POWER: Final = r"^\s*[0-9]*\.?[0-9]+\s*(W|kW|MW)\s*$"
_PERCENT: Final = r"^\s*[0-9]*\.?[0-9]+\s*%\s*$"
_DURATION: Final = r"^\s*[0-9]*\.?[0-9]+\s*(ms|s|m|min|h)\s*$"


@dataclass(frozen=True, slots=True)
class Headroom:
    """Headroom as written: a share of the limit, or watts."""

    share: Fraction | None = None
    power_w: int | None = None

    def of(self, limit_w: int) -> int:
        """Return watts kept free below `limit_w`, rounded up."""
        return self.power_w if self.power_w is not None else math.ceil(limit_w * (self.share or Fraction(0)))


def _refuse(error: RackpowerError) -> PydanticCustomError:
    return PydanticCustomError("quantity", "{text}", {"text": error.message, "hint": error.hint})


def _text(value: object) -> str:
    """Return a scalar as text; what is no scalar cannot be a quantity."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        kind = {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value), str(value).lower())
        raise QuantityError(
            f"a quantity is expected here, not {kind}", "write a number and a unit, `450 W` for instance"
        )
    return value if isinstance(value, str) else str(value)


def _quantity(parse: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that reads a quantity and says what is wrong with it in our words."""

    def read(value: object) -> object:
        try:
            return parse(_text(value))
        except QuantityError as error:
            raise _refuse(error) from None

    return BeforeValidator(read)


def _read_headroom(text: str) -> Headroom:
    if text.strip().endswith("%"):
        return Headroom(share=parse_percent(text))
    try:
        return Headroom(power_w=ceil_w(parse_power(text)))
    except QuantityError as error:
        if "no unit" not in error.message:
            raise
        share = text.strip() if Fraction(text) >= 1 else f"{float(text) * 100:g}"
        raise QuantityError(error.message, f"write `{share}%`, or `{text.strip()} W` where watts are meant") from None


def _read_share(text: str) -> Fraction:
    """Read `50%`, `0.5` or `1/3`; 0 < share ≤ 1."""
    stripped = text.strip()
    if stripped.endswith("%"):
        share = parse_percent(stripped)
    else:
        try:
            share = Fraction(stripped)
        except (ValueError, ZeroDivisionError):
            raise QuantityError(f"{quoted(text)} is not a share", "write `50%`, `0.5` or `1/3`") from None
    if not 0 < share <= 1:
        raise QuantityError(f"a share of {quoted(text)} is not above 0 and at most 1", "write `50%`, `0.5` or `1/3`")
    return share


def _read_efficiency(text: str) -> Fraction:
    share = _read_share(text)
    if share < Fraction(1, 2):
        raise QuantityError(f"an efficiency of {format_share(share)} is below 50 %", "write output over input, `94%`")
    return share


def _read_tracking_error(text: str) -> float:
    share = parse_percent(text)
    if share > Fraction(1, 5):
        raise QuantityError(f"a tracking error of {format_share(share)} is above 20 %", "2 % is usual")
    return float(share)


def _read_fallback(text: str) -> int | str:
    return "auto" if text.strip() == "auto" else floor_w(parse_power(text))


def _as_feeds(value: object) -> object:
    """Allow `feeds: pdu-1`, one mapping, or a list of either."""
    items = value if isinstance(value, list) else [value]
    return [{"domain": item} if isinstance(item, str) else item for item in items]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, (dict, str)) else value


def _or_single(*also: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Tell the JSON schema that one item may stand for its list."""

    def extend(schema: dict[str, Any]) -> None:
        options = schema.pop("anyOf", None) or [{key: schema.pop(key) for key in _ARRAY if key in schema}]
        array = next(option for option in options if option.get("type") == "array")
        schema["anyOf"] = [*also, array["items"], array | {"items": {"anyOf": [*also, array["items"]]}}]

    return extend


_ARRAY: Final = ("type", "items", "minItems")


def _pattern(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


LimitW = Annotated[int, _quantity(lambda text: floor_w(parse_power(text))), _pattern(_POWER, "60 kW")]
DrawW = Annotated[int, _quantity(lambda text: ceil_w(parse_power(text))), _pattern(_POWER, "450 W")]
Seconds = Annotated[float, _quantity(lambda text: float(parse_duration(text))), _pattern(_DURATION, "10s")]
TrackingError = Annotated[float, _quantity(_read_tracking_error), _pattern(_PERCENT, "2%")]
HeadroomSpec = Annotated[
    Headroom,
    _quantity(_read_headroom),
    WithJsonSchema({"type": "string", "pattern": f"({_POWER})|({_PERCENT})", "examples": ["3%", "500 W"]}),
]
_SHARE_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": rf"({_PERCENT})|^\s*[0-9]+\s*/\s*[0-9]+\s*$"},
    ],
    "examples": ["50%"],
}
Share = Annotated[Fraction, _quantity(_read_share), WithJsonSchema(_SHARE_SCHEMA)]
Efficiency = Annotated[Fraction, _quantity(_read_efficiency), WithJsonSchema(_SHARE_SCHEMA | {"examples": ["94%"]})]
Loss = Annotated[float, Field(ge=1, le=2)]
Fallback = Annotated[
    int | Literal["auto"],
    _quantity(_read_fallback),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "string", "pattern": _POWER}], "examples": ["auto"]}),
]


class Spec(BaseModel):
    """The house rules of every model: no unknown keys, no silent conversion, no NaN."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )


class CurveSpec(Spec):
    """Tokens per second by watts: r(P) = peak · (1 − b(1 − P/Pn)^c) below Pn, flat above."""

    natural_draw: DrawW | None = Field(None, description="Pn: what the GPU draws uncapped under this load.")
    b: float | None = Field(None, ge=0, le=1000, description="How much is lost far below Pn, 0 or more.")
    c: float | None = Field(None, ge=1, le=50, description="How late the loss sets in, 1 or more.")
    peak_tokens_per_second: float | None = Field(None, gt=0, le=1e9, description="Tokens per second at Pn and above.")
    lowest: DrawW | None = Field(None, description="Lowest watt at which the curve was seen; default is `min_cap`.")


class ClassSpec(Spec):
    """A kind of GPU. A built-in class of the same name gives what is left out."""

    models: Annotated[list[str], BeforeValidator(_as_list)] | None = Field(
        None,
        min_length=1,
        description="Patterns (`*`, `?`) for the model names that drivers tell; case is ignored.",
        json_schema_extra=_or_single(),
    )
    min_cap: DrawW | None = Field(None, description="Smallest cap; the device's own is used where it is higher.")
    max_cap: LimitW | None = Field(None, description="Largest cap; the device's own is used where it is lower.")
    default_cap: LimitW | None = Field(None, description="Cap after a driver load; default is `max_cap`.")
    largest_draw: DrawW | None = Field(None, description="What an unheld GPU may draw; default is `max_cap`.")
    idle: DrawW | None = Field(None, description="Draw with weights resident and no request.")
    curve: CurveSpec | None = Field(None, description="Tokens per second by watts.")
    fallback: Fallback | None = Field(None, description="Cap without a controller: `auto`, or watts.")


class DomainSpec(Spec):
    """A point of the power tree: load = loss × (Σ load of its children + its own overhead)."""

    parent: str | None = Field(None, description="Domain above this one; none for a root.")
    kind: str = Field("domain", min_length=1, max_length=40, description="site, row, rack, pdu, feed, ... for people.")
    limit: LimitW = Field(description="What it may draw at its input.")
    headroom: HeadroomSpec = Field(
        Headroom(share=DEFAULT_HEADROOM), description="Kept free below the limit, a share of it or watts; default 3%."
    )
    overhead: DrawW = Field(
        0, description="Its own draw beside its children (switches, pumps, fans) at the output; default 0 W."
    )
    loss: Loss | None = Field(None, description="Input over output of its conversion, 1 or more.")
    psu_efficiency: Efficiency | None = Field(None, description="The same as output over input, `97%` for instance.")


class FeedSpec(Spec):
    """A domain that a node hangs on, and the share of the node's load that it carries."""

    domain: str = Field(description="Name of the domain.")
    share: Share | None = Field(None, description="`50%`; all shares of a node add up to 100 %.")


class NodeGpusSpec(Spec):
    """So many GPUs of one class."""

    gpu_class: str = Field(alias="class", description="A class of this policy, or a built-in one.")
    count: int = Field(ge=1, le=MAX_GPUS_PER_NODE, description="How many.")


class NodeSpec(Spec):
    """A node, or with a range in its name many alike."""

    feeds: Annotated[list[FeedSpec], BeforeValidator(_as_feeds)] = Field(
        min_length=1,
        description="The domain that it hangs on, or several with shares.",
        json_schema_extra=_or_single({"type": "string"}),
    )
    gpus: Annotated[list[NodeGpusSpec], BeforeValidator(_as_list)] = Field(
        min_length=1, description="Its GPUs by class and count.", json_schema_extra=_or_single()
    )
    overhead: DrawW = Field(description="Draw beside the GPUs (CPUs, fans, NICs) at its power supplies' output.")
    boot_overhead: DrawW | None = Field(None, description="The same just after a power cycle; default is `overhead`.")
    loss: Loss | None = Field(None, description="Input over output of its power supplies, 1 or more.")
    psu_efficiency: Efficiency | None = Field(None, description="The same as output over input, `94%` for instance.")
    priority: int = Field(50, ge=0, le=100, description="0 to 100, higher is more important.")
    weight: float = Field(1.0, gt=0, le=1000, description="What one of its tokens is worth against another's.")
    limit: LimitW | None = Field(None, description="What the node may draw at its input.")
    off: bool = Field(False, description="Powered off by an operator's word; its boot reserve is kept.")


class TimingSpec(Spec):
    """Times of the control loop."""

    tick: Seconds | None = Field(None, description="Time between decisions; default 1s.")
    report_period: Seconds | None = Field(None, description="Time between a node's reports; default 1s.")
    settle: Seconds | None = Field(None, description="Longest wait for a reading at a lowered cap; default 5s.")
    lease: Seconds | None = Field(None, description="Time to live of a grant; default 15s.")
    leader_ttl: Seconds | None = Field(None, description="Time to live of a controller's reign; default 5s.")
    watchdog: Seconds | None = Field(None, description="A controller without a tick for so long is ended; default 8s.")


class SettingsSpec(Spec):
    """The keys of a policy beside its sections."""

    version: Literal[1] = Field(description="Version of the format.")
    objective: Literal["tokens"] = Field("tokens", description="What is maximised within the limits.")
    fallback: Fallback = Field("auto", description="Caps without a controller: `auto`, or watts for every GPU.")
    tracking_error: TrackingError = Field(0.02, description="By how much a steady draw may pass its cap; default 2%.")
    dead_band: DrawW = Field(
        5, description="Smaller changes of a cap are not sent unless a limit needs them; default 5 W."
    )
    timing: TimingSpec = Field(TimingSpec(), description="Times of the control loop.")


class PolicySpec(SettingsSpec):
    """A rackpower policy: which domains limit power, which nodes hang on them, which GPUs they hold."""

    domains: dict[str, DomainSpec] = Field(description="The power tree, by name.")
    nodes: dict[str, NodeSpec] = Field(description="The nodes, by name; `gpu-node-[01-18]` stands for eighteen.")
    classes: dict[str, ClassSpec] = Field(
        {}, description="GPU classes, by name; `b200`, `h100`, `mi300x` and `mi355x` are built in and may be changed."
    )
