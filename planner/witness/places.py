"""Every single layer of a decoder with its bill, where the contract lists kinds of layers with their counts."""

from __future__ import annotations

from collections.abc import Iterator

from planner.bill import Part, Tensor
from planner.contract import Architecture


def placed(model: Architecture) -> Iterator[tuple[str, Part]]:
    """(place, part): the part ``layers[0].mixer`` of the third layer has the place ``layers.2.mixer``."""
    parts = [part for part in model.parts() if part.module == "body"]
    yield from ((part.path, part) for part in parts if not part.path.startswith("layers["))
    for number, index in enumerate(model.indices()):
        kind = f"layers[{index}]"
        for part in parts:
            if part.path == kind or part.path.startswith(f"{kind}."):
                yield f"layers.{number}{part.path.removeprefix(kind)}", part


def key(place: str, id: str) -> str:
    """The name of a tensor among all of a decoder: a leading slash leaves the place."""
    return id[1:] if id.startswith("/") else f"{place}.{id}".lstrip(".")


def stored(model: Architecture) -> dict[str, Tensor]:
    """Every tensor that a checkpoint holds by its name, a shared one once."""
    return {key(place, tensor.id): tensor for place, part in placed(model) for tensor in part.bill.tensors}


def shape(tensor: Tensor) -> tuple[int, ...]:
    """The array's shape: equal tensors under one id are stacked."""
    return (tensor.copies, *tensor.shape) if tensor.used is not None or tensor.copies != 1 else tensor.shape
