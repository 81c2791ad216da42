"""Curve shapes fitted to power-cap sweeps, from a CSV file, and a class's curve with such a shape.

A shape is (b, c) of r(P) = 1 − b(1 − P/Pn)^c. Because P stands over the natural draw Pn, a shape measured on one
board gives a curve for another: scaled to that class's natural draw.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rackpower_common.model.identity import ClassName
from rackpower_common.model.policy import Curve, GpuClass, Policy
from rackpower_common.policy.problems import Findings, Place, PolicyError, did_you_mean
from rackpower_common.quantity import quoted

COLUMNS: Final = ("group", "id", "points", "natural_draw_w", "b", "c", "rmse", "max_error")
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_RMSE: Final = 0.05
"""A fit further off than this says little about the slope; the median of 267 sweeps is 0.015."""
MIN_POINTS: Final = 4


@dataclass(frozen=True, slots=True)
class CurveShape:
    """One fitted sweep.

    `natural_draw_w` is the measured board's Pn; `rmse` and `max_error` are shares of the peak; `points` is the number
    of caps that were measured.
    """

    group: str
    id: str
    points: int
    natural_draw_w: float
    b: float
    c: float
    rmse: float
    max_error: float

    def rate(self, share_of_natural_draw: float) -> float:
        """Return tokens/s as a share of the peak at P/Pn, within 0 and 1."""
        below = min(max(1.0 - share_of_natural_draw, 0.0), 1.0)
        return max(0.0, 1.0 - self.b * math.pow(below, self.c))

    @property
    def zero_at(self) -> float:
        """Return P/Pn where the fitted rate reaches 0; 0 when it never does."""
        return max(0.0, 1.0 - math.pow(1.0 / self.b, 1.0 / self.c)) if self.b > 1.0 else 0.0


def load_curves(path: Path) -> tuple[CurveShape, ...]:
    """Read a CSV file of fitted sweeps.

    Args:
        path: A file with a header that has at least the columns of `COLUMNS`, in any order.

    Returns:
        Every sweep, in the order of the file.

    Raises:
        PolicyError: The file cannot be read or is no such file; each problem names its line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        findings = Findings()
        findings.error(Place(str(path)), f"the curves cannot be read: {error.strerror or error}", "")
        raise PolicyError(findings.in_order()) from None
    return parse_curves(str(path), content)


def parse_curves(name: str, content: bytes) -> tuple[CurveShape, ...]:
    """Read the bytes of a CSV file of fitted sweeps; see `load_curves`."""
    findings = Findings()
    shapes: list[CurveShape] = []
    seen: dict[str, int] = {}
    for line, row in _rows(name, content, findings):
        shape = _shape(Place(name, line), row, findings)
        if shape is None:
            continue
        if shape.id in seen:
            message = f"id {quoted(shape.id)} is already on line {seen[shape.id]}"
            findings.error(Place(name, line), message, "keep one of them")
        seen[shape.id] = line
        shapes.append(shape)
    if not shapes and not findings.failed:
        findings.error(Place(name, 1), "there is no curve in the file", "")
    if findings.failed:
        raise PolicyError(findings.in_order())
    return tuple(shapes)


def usable(
    shapes: Iterable[CurveShape], max_rmse: float = MAX_RMSE, min_points: int = MIN_POINTS
) -> tuple[CurveShape, ...]:
    """Return the shapes whose fit is close enough, in order.

    Args:
        shapes: What was read.
        max_rmse: The largest root mean square error, as a share of the peak.
        min_points: The least number of caps measured.
    """
    return tuple(shape for shape in shapes if shape.rmse <= max_rmse and shape.points >= min_points)


def with_shape(curve: Curve, shape: CurveShape) -> Curve:
    """Return a class's curve bent to a measured shape.

    Natural draw and peak stay the class's own. `lowest_w` rises to where the shape gives nothing any more.
    """
    lowest_w = max(curve.lowest_w, math.ceil(shape.zero_at * curve.natural_draw_w))
    return replace(curve, b=shape.b, c=shape.c, lowest_w=float(min(lowest_w, curve.natural_draw_w)))


def with_curves(policy: Policy, shapes: Mapping[ClassName, CurveShape]) -> Policy:
    """Return a policy whose classes have these shapes; classes that are not named keep their curves."""
    classes = tuple(_with_shape_of(gpu_class, shapes) for gpu_class in policy.classes)
    return replace(policy, classes=classes)


def shapes_for(classes: Sequence[GpuClass], shapes: Sequence[CurveShape]) -> Mapping[ClassName, CurveShape]:
    """Give each class a shape: one whose group or id names the class, else the shapes in turn.

    Args:
        classes: The policy's classes; they are served in the order of their names.
        shapes: Usable shapes.

    Returns:
        A shape for every class, the same for the same arguments; empty when there is none to give.
    """
    if not shapes:
        return {}
    chosen: dict[ClassName, CurveShape] = {}
    for index, name in enumerate(sorted(gpu_class.name for gpu_class in classes)):
        named = (shape for shape in shapes if name.lower() in f"{shape.group} {shape.id}".lower())
        chosen[name] = next(named, shapes[index % len(shapes)])
    return chosen


def _with_shape_of(gpu_class: GpuClass, shapes: Mapping[ClassName, CurveShape]) -> GpuClass:
    shape = shapes.get(gpu_class.name)
    return gpu_class if shape is None else replace(gpu_class, curve=with_shape(gpu_class.curve, shape))


def _rows(name: str, content: bytes, findings: Findings) -> Iterable[tuple[int, dict[str, str]]]:
    """Yield line numbers and cells by column; what is wrong with the file as a whole is noted."""
    if len(content) > MAX_BYTES:
        findings.error(Place(name), f"the file is larger than {MAX_BYTES:,} bytes", "this is no list of curves")
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        findings.error(
            Place(name, line), f"the file is not UTF-8: byte 0x{content[error.start]:02x}", "save it as UTF-8"
        )
        return
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if not _check_header(name, header, findings):
            return
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                message = f"{len(cells)} cells, the header has {len(header)}"
                findings.error(Place(name, reader.line_num), message, "check the commas")
                continue
            yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        findings.error(Place(name, reader.line_num), f"this is not CSV: {error}", "check the quotes")


def _check_header(name: str, header: list[str], findings: Findings) -> bool:
    missing = [column for column in COLUMNS if column not in header]
    for column in missing:
        extra = [cell for cell in header if cell not in COLUMNS]
        near = did_you_mean(column, extra)
        hint = f"{near[:-1]} in the header?" if near else f"the first line is `{','.join(COLUMNS)}`"
        findings.error(Place(name, 1), f"column {quoted(column)} is missing", hint)
    return not missing


def _shape(place: Place, row: Mapping[str, str], findings: Findings) -> CurveShape | None:
    """Read one row; every bad cell is noted."""
    numbers: dict[str, float] = {}
    lowest = {"points": 1.0, "natural_draw_w": 1.0, "b": 0.0, "c": 1.0, "rmse": 0.0, "max_error": 0.0}
    for column, least in lowest.items():
        try:
            number = float(row[column])
        except ValueError:
            findings.error(place, f"{column} {quoted(row[column])} is not a number", "")
            continue
        if not math.isfinite(number):
            findings.error(place, f"{column} {quoted(row[column])} is not a finite number", "")
        elif number < least:
            findings.error(place, f"{column} {quoted(row[column])} is below {least:g}", "")
        else:
            numbers[column] = number
    if not row["id"]:
        findings.error(place, "the id is empty", "every curve has a name of its own")
    if len(numbers) < len(lowest) or not row["id"]:
        return None
    points = int(numbers.pop("points"))
    return CurveShape(group=row["group"], id=row["id"], points=points, **numbers)
