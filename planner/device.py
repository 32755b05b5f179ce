"""One accelerator: what it has and does, in base units, each figure with its source and how far to trust it.

Two facts are kept apart that are often mixed. `memory_bytes` is what the driver hands out, and the planner plans with
it; the number on the box is `marketing_memory_bytes`. A peak is the dense one: the sparse figure of a data sheet, twice
as large, is kept only beside it, so that nobody takes it for a discovery. What is not published is absent, never 0.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from planner import storage
from planner.errors import ContractError, InputError, UnknownName, suggest
from planner.units import show

GIVEN = "given"  # provenance and confidence of a figure from a user's own file

COMPUTE_FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "mxfp6", "mxfp4", "nvfp4", "int4")
"""What matrix units multiply in; fp32 is the rate of the vector units where nothing faster keeps its precision."""

# Figure -> unit, smallest and largest. Chips of 230 MB and wafers of 21 PB/s lie within; `80`, `80e6` and `989e9` do
# not: as far as the range of what was built allows it, a figure that is a prefix out does not pass.
BOUNDS = {
    "memory_bytes": ("B", 1e8, 1e13),
    "marketing_memory_bytes": ("B", 1e8, 1e13),
    "bandwidth_bytes_per_s": ("B/s", 1e10, 1e17),
    "link_bytes_per_s": ("B/s", 1e9, 1e14),
    "pair_link_bytes_per_s": ("B/s", 1e9, 1e14),
    "network_bytes_per_s": ("B/s", 1e8, 1e14),
    "host_bytes_per_s": ("B/s", 1e9, 1e13),
    "domain_size": ("1", 1, 1e5),
    "machine_size": ("1", 1, 1e5),
    "power_w": ("W", 1, 1e5),
    "peak_flops": ("FLOP/s", 1e12, 1e18),
}
MACHINE_SIZE = 8
"""Devices of a machine whose file does not say: what servers of PCIe cards hold at most (NVIDIA-certified systems)."""

_OPTIONAL = frozenset(BOUNDS) - {"memory_bytes", "bandwidth_bytes_per_s", "domain_size", "peak_flops"}
_USABLE = (0.5, 1.08)  # of the number on the box: a laptop keeps a third to itself, a GB read as GiB gives 1.074
_PROVENANCES = ("datasheet", "measured", "assumed", GIVEN)
_CONFIDENCES = ("A", "B", "C", "D", GIVEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Where one figure of a device comes from.

    `provenance`: datasheet (the vendor prints it; the confidence says whether it was read there), measured (a device
    reports it), assumed (nobody publishes it; the note says how it was taken), given (by the user). `confidence`: A to
    D, as `presets/hardware_sources.toml` explains.
    `sparse` is the peak with structured sparsity that the same source prints.
    """

    source: str
    confidence: str
    provenance: str
    note: str | None = None
    sparse: float | None = None

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ContractError("has no source")
        for word, known in ((self.provenance, _PROVENANCES), (self.confidence, _CONFIDENCES)):
            if word not in known:
                raise ContractError(f"{word!r} is none of {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device, in base units; links and networks count one direction of one device, all its links together.

    `domain_size` is the number of devices that the scale-up link joins, 1 if there is none. Beyond it the devices of a
    machine (`machine_size`, taken to be 8 where a file does not say) exchange over its PCIe, `host_bytes_per_s`, which
    leads to the host's memory, too; further ones over the network. `pair_link_bytes_per_s` is stated where each
    two devices have links of their own and no switch. Absent figures are None, absent peaks are not in `peak_flops`.
    Raises `ContractError` for a figure that is zero, negative, NaN or out by a prefix.
    """

    name: str
    title: str
    vendor: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    peak_flops: Mapping[str, float] = field(hash=False)
    marketing_memory_bytes: int | None = None
    link_bytes_per_s: float | None = None
    pair_link_bytes_per_s: float | None = None
    domain_size: int = 1
    machine_size: int | None = None
    network_bytes_per_s: float | None = None
    host_bytes_per_s: float | None = None
    power_w: float | None = None
    unified_memory: bool = False
    interconnect: str | None = None
    launch_year: int | None = None
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        for name in BOUNDS:
            value = getattr(self, name)
            if name == "peak_flops":
                for format, peak in value.items():
                    if format not in COMPUTE_FORMATS:
                        near = suggest(format, COMPUTE_FORMATS)
                        raise ContractError(f"{format!r:.60} is no compute format{near}", "peak_flops")
                    _check(f"peak_flops.{format}", peak, BOUNDS[name])
            elif value is not None or name not in _OPTIONAL:
                _check(name, value, BOUNDS[name])
        if self.marketing_memory_bytes is not None:
            share = self.memory_bytes / self.marketing_memory_bytes
            if not _USABLE[0] <= share <= _USABLE[1]:
                raise ContractError(
                    f"memory_bytes = {show(self.memory_bytes, 'GB')} is {share:.4g} of marketing_memory_bytes = "
                    f"{show(self.marketing_memory_bytes, 'GB')}; a driver hands out {_USABLE[0]} to {_USABLE[1]} of it"
                )
        for name, fact in self.facts.items():
            if fact.sparse is not None and not fact.sparse > self.peak_flops[name.removeprefix("peak_flops.")]:
                raise ContractError(f"the dense peak is not below the sparse one, {show(fact.sparse, 'FLOP/s')}", name)

    def peak(self, format: str) -> float:
        """Dense FLOP/s in a compute format. Raises `UnknownName`, or `InputError` where no peak is published."""
        if format not in COMPUTE_FORMATS:
            raise UnknownName("compute format", format, COMPUTE_FORMATS)
        if format not in self.peak_flops:
            raise InputError(
                f"{self.name} has no published {format} peak (it has {', '.join(self.peak_flops) or 'none at all'}); "
                f'compute in another format, or state {format} under [peak_flops] in a file with base = "{self.name}"'
            )
        return self.peak_flops[format]

    @property
    def peer_bytes_per_s(self) -> float | None:
        """Bytes a second that one device sends to one other of its domain: behind a switch, over all of its links."""
        return self.link_bytes_per_s if self.pair_link_bytes_per_s is None else self.pair_link_bytes_per_s

    @property
    def group_size(self) -> int:
        """Devices that a decoder can be divided over without a network: those of a domain, or else of a machine."""
        if self.host_bytes_per_s is None:
            return self.domain_size
        return max(self.domain_size, MACHINE_SIZE if self.machine_size is None else self.machine_size)

    def domains(self, devices: int) -> int:
        """Domains of the scale-up link over which so many devices lie."""
        return -(-devices // self.domain_size)

    def route(self, devices: int) -> str:
        """The figure that bounds an exchange among so many: the scale-up link, a machine's PCIe, or the network."""
        if devices <= self.domain_size:
            return "link_bytes_per_s"
        return "host_bytes_per_s" if devices <= self.group_size else "network_bytes_per_s"

    def compute_format(self, stored: str) -> str:
        """The format in which this device multiplies a tensor stored in `stored`, such as ``awq-g128`` or ``fp8``.

        The rule has two halves. Whether the *activations* are quantised too belongs to the stored format and is data
        (`presets/compute_formats.toml`); whether there are units for it belongs to the device and is its peaks. Where
        either says no, the weights are unpacked to 16 bits on the way to the matrix units: fewer bytes, the same FLOPs.
        """
        rule = _compute_formats()
        choices: list[str] = [*rule["quantised"].get(storage.find(stored).name, ()), *rule["otherwise"]]
        published = [format for format in choices if format in self.peak_flops]
        if not published:
            self.peak(choices[0])  # says which peak is missing
        return published[0]


def _check(name: str, value: Any, bounds: tuple[str, float, float]) -> None:
    unit, low, high = bounds
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ContractError(f"{name} = {value!r:.60} is not a number")
    if not low <= value <= high:
        raise ContractError(
            f"{name} = {show(float(value), unit)} is not between {show(low, unit)} and {show(high, unit)}; "
            "is it in base units, or written with its unit?"
        )


@functools.cache
def _compute_formats() -> Mapping[str, Any]:
    return tomllib.loads(files("planner.presets").joinpath("compute_formats.toml").read_text("utf-8"))
