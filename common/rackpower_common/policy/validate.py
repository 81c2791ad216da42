"""One part of a policy file against its pydantic model: every error in our words and at its place."""

from __future__ import annotations

import typing
from types import NoneType
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rackpower_common.policy.problems import Findings, Place, did_you_mean, one_of
from rackpower_common.policy.spec import Spec
from rackpower_common.policy.tree import Mapping, Scalar, Sequence, Tree, describe, find, plain
from rackpower_common.quantity import quoted

S = TypeVar("S", bound=Spec)

_NEAR_KEYS = {
    "efficiency": "psu_efficiency",
    "cap": "limit",
    "budget": "limit",
    "max": "limit",
    "power_limit": "limit",
    "feed": "feeds",
    "domain": "feeds",
    "gpu": "gpus",
    "children": "parent",
    "weights": "weight",
    "n": "count",
    "model": "models",
    "name": "class",
}
"""Keys that people write from habit, for hints only."""


def validate(model: type[S], tree: Tree, key: Place, label: str, findings: Findings) -> S | None:
    """Check a tree against a model.

    Args:
        model: What it should be.
        tree: What was written.
        key: Place of the key that the tree belongs to, where missing keys are reported.
        label: What it is, in words: ``node `gpu-1` ``.
        findings: Where problems go.

    Returns:
        The model, None when there was an error.
    """
    if not isinstance(tree, Mapping):
        findings.error(tree.place, f"{label} is a mapping of keys to values, not {describe(tree)}", _keys_hint(model))
        return None
    empty = _report_empty(tree, label, findings)
    try:
        spec = model.model_validate(plain(tree))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if not isinstance(detail["input"], NoneType):
                _report(model, tree, key, label, detail, findings)
        return None
    return None if empty else spec


def _report_empty(tree: Tree, label: str, findings: Findings) -> bool:
    """Report keys without a value, which may not pass for keys left out; return whether there were any."""
    if isinstance(tree, Sequence):
        return sum(_report_empty(item, label, findings) for item in tree.items) > 0
    if not isinstance(tree, Mapping):
        return False
    found = False
    for key, entry in tree.entries.items():
        if isinstance(entry.value, Scalar) and entry.value.value is None:
            hint = "write one, or remove the key"
            if key[:1].isdigit():
                hint = "within `{}` a comma ends a value: write numbers without commas"
            findings.error(entry.place, f"{label}: {quoted(key)} has no value", hint)
            found = True
        else:
            found = _report_empty(entry.value, label, findings) or found
    return found


def _report(model: type[Spec], tree: Tree, key: Place, label: str, detail: ErrorDetails, findings: Findings) -> None:
    """Turn one of pydantic's errors into a problem."""
    path = tuple(detail["loc"])
    kind = detail["type"]
    at, at_key, whole = find(tree, path)
    if kind == "missing":
        _, owner_key, _ = find(tree, path[:-1])
        place = key if len(path) == 1 else owner_key
        field = path[-1]
        described = _description(_model_at(model, path[:-1]), str(field))
        findings.error(place, f"{_inside(label, path[:-1])} lacks `{field}`", described)
    elif kind == "extra_forbidden":
        known = _keys(_model_at(model, path[:-1]))
        word = str(path[-1])
        otherwise = f"known keys: {one_of(known)}"
        near = _NEAR_KEYS.get(word, "")
        hint = f"did you mean `{near}`?" if near in known else did_you_mean(word, known, otherwise)
        if word == "<<":
            hint = "merge keys are not supported: write alike nodes as one range, `gpu-node-[01-18]` for instance"
        findings.error(at_key, f"unknown key {quoted(word)} in {_inside(label, path[:-1])}", hint)
    else:
        place = at.place if whole or path else key
        message, hint = _words(detail, at)
        findings.error(place, f"{_inside(label, path[:-1])}: `{_field(path)}`: {message}", hint)


_WORDS: Final = {
    "string_type": ("a text is expected, not {written}", "put it in quotes"),
    "int_type": ("a whole number is expected, not {written}", ""),
    "int_from_float": ("a whole number is expected, not {written}", ""),
    "bool_type": ("`true` or `false` is expected, not {written}", "write one of the two, nothing else"),
    "float_type": ("a number is expected, not {written}", ""),
    "finite_number": ("{written} is not a finite number", ""),
    "greater_than_equal": ("{written} is below {ge}", ""),
    "greater_than": ("{written} is not above {gt}", ""),
    "less_than_equal": ("{written} is above {le}", ""),
    "list_type": ("a list is expected, not {written}", "write `- ` before each item"),
    "model_type": ("a mapping of keys to values is expected, not {written}", ""),
    "dict_type": ("a mapping of keys to values is expected, not {written}", ""),
    "too_short": ("the list is empty", "name at least one"),
    "literal_error": ("{written} is not {expected}", ""),
    "quantity": ("{text}", "{hint}"),
}
"""Message and hint by pydantic's type of error."""


def _words(detail: ErrorDetails, at: Tree) -> tuple[str, str]:
    """Return message and hint for an error in a value."""
    message, hint = _WORDS.get(detail["type"], ("{written}: {reason}", ""))
    reason = detail["msg"][:1].lower() + detail["msg"][1:]
    bounds = {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in detail.get("ctx", {}).items()
    }
    context = {"written": describe(at), "reason": reason} | bounds
    return message.format_map(context), hint.format_map(context)


def _inside(label: str, path: tuple[str | int, ...]) -> str:
    """Return where in a section: ``node `gpu-1`, `gpus` item 2``."""
    words = [label, *(f"`{step}`" if isinstance(step, str) else f"item {step + 1}" for step in path)]
    return ", ".join(words).replace(", item", " item")


def _field(path: tuple[str | int, ...]) -> str:
    names = [step for step in path if isinstance(step, str)]
    return names[-1] if names else "value"


def _model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the model that stands at a path below `model`."""
    for step in path:
        if isinstance(step, str):
            for name, field in model.model_fields.items():
                if step == (field.alias or name):
                    model = _model_in(field.annotation) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model within an annotation such as ``list[Model] | None``."""
    if typing.get_origin(annotation) is None and isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    for inner in typing.get_args(annotation):
        found = _model_in(inner)
        if found is not None:
            return found
    return None


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _keys_hint(model: type[BaseModel]) -> str:
    return f"known keys: {one_of(_keys(model))}"


def _description(model: type[BaseModel], key: str) -> str:
    for name, field in model.model_fields.items():
        if key == (field.alias or name):
            text = (field.description or "").rstrip(".")
            example = _EXAMPLES.get(key, "")
            return f"{text[:1].lower()}{text[1:]}{example}" if text else ""
    return ""


_EXAMPLES = {
    "limit": "; write `limit: 60 kW` for instance",
    "overhead": "; write `overhead: 2800 W` for instance",
    "count": "; write `count: 8` for instance",
    "feeds": "; write `feeds: rack-1` for instance",
    "gpus": "; write `gpus: [{class: h100, count: 8}]` for instance",
}
