"""The whole decoder, on one screen. S new positions, D the width of the residual stream, V the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from planner.components.arrays import Array
from planner.contract import Architecture, Layer
from planner.witness.run import PartRun


def forward(model: Architecture, run: PartRun) -> Array:
    """Logits of the positions that the pass emits: [S] tokens -> [emitted, V]."""
    x = model.embedding.forward(run.part("embedding"))  # [S] -> [S, D]
    streams = model.streams
    if streams is not None:
        x = streams.spread(x, run.part("streams"))  # [S, D] -> [S, n, D]
    for number, index in enumerate(model.indices()):
        layer = LayerSteps(model.layers[index], run.layer(number, index, model.layers[index].label))
        x = layer(x) if streams is None else streams.layer(x, layer, layer.run.part("streams"))  # [S, D] or [S, n, D]
    if streams is not None:
        x = streams.joined(x, run.part("streams"))  # [S, n, D] -> [S, D]
    if model.final_norm is not None:
        x = model.final_norm.forward(x, run, "final_norm")  # [S, D]
    return model.output.forward(x, run.part("output"))  # [S, D] -> [emitted, V]


@dataclass(frozen=True, slots=True)
class LayerSteps:
    """One layer, in the residual order that `Layer` writes down. Everything is [S, D] -> [S, D]."""

    layer: Layer
    run: PartRun

    def __call__(self, x: Array) -> Array:
        x = self.body(x)  # [S, D]
        x = x + self.extra("end", x)  # [S, D]
        return x * self.run.weight("output_scale") if self.layer.output_scale else x

    @property
    def names(self) -> tuple[str, ...]:
        """Its branches."""
        return self.layer.branch_names

    def body(self, x: Array) -> Array:
        """Mixer and feed-forward, each with its norms and its residual sum."""
        layer, total = self.layer, x
        for name in self.names:
            read, out = self.branch(name, x)  # [S, D] -> [S, D], [S, D]
            base = read if layer.residual == "normed" else total  # [S, D]
            scale = layer.stream_scale if total is x else None  # parallel branches are added to one stream
            total = out + (base if scale is None else base * scale)  # [S, D]
            if layer.residual == "post":
                total = self.normed(f"{name}_output_norm", total)  # [S, D]
            if name == "mixer" and self.has("mixer_output"):
                total = (total + self.extra("mixer_output", read)) * 0.5**0.5  # [S, D]
            x = x if layer.residual.startswith("parallel") else total  # [S, D]
        return total

    def branch(self, name: str, x: Array) -> tuple[Array, Array]:
        """What a branch reads, its norm that is, and what it adds to the stream."""
        layer = self.layer
        if name == "mixer":
            x = x + self.extra("mixer_input", x)  # [S, D]
        read = self.normed("norm" if layer.residual == "parallel" else f"{name}_norm", x)  # [S, D]
        out = getattr(layer, name).forward(read, self.run.part(name))  # [S, D] -> [S, D]
        if layer.residual != "post":
            out = self.normed(f"{name}_output_norm", out)  # [S, D]
        return read, out if layer.residual_scale is None else out * layer.residual_scale

    def normed(self, id: str, x: Array) -> Array:
        """One of the layer's norms, where it has it."""
        return self.layer.norm.forward(x, self.run, id) if id in self.layer.norm_ids() else x

    def has(self, place: str) -> bool:
        """Whether an extra stands in a place."""
        return any(extra.place == place for extra in self.layer.extras)

    def extra(self, place: str, x: Array) -> Array | float:
        """The sum of what the extras in a place give, 0 where there are none."""
        extras = enumerate(self.layer.extras)
        return sum(e.forward(x, self.run.part(f"extras[{i}]")) for i, e in extras if e.place == place)
