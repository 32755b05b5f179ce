"""The block equations of a decoder, as LaTeX and as plain text, and its whole contract as a document.

>>> import planner
>>> for equation in equations(planner.load("gpt2"))[-2:]:
...     print(equation)
final_norm: N(x) = (x - mean(x)) / √(var(x) + 1 · 10^-5) ⊙ γ + β
output: logits = N(x) E^T
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner import folds
from planner.branch_equations import branch, escaped, given, matrices, more, norm_line
from planner.components.embedding import Embedding
from planner.contract import Architecture, Layer
from planner.editing import flatten
from planner.notation import latex_number as number
from planner.notation import plain


@dataclass(frozen=True, slots=True)
class Equation:
    """One line of the block equations and where in the contract it belongs. It is written once: as LaTeX."""

    label: str
    latex: str

    @property
    def text(self) -> str:
        """The line without LaTeX."""
        return plain(self.latex)

    def __str__(self) -> str:
        return f"{self.label}: {self.text}"


def equations(architecture: Architecture) -> list[Equation]:
    """What a decoder computes from a token t at position i to its logits, one line after the other."""
    return [Equation(place, latex) for place, latex in _lines(architecture)]


def _lines(model: Architecture) -> Iterator[tuple[str, str]]:
    d_model = model.d_model
    for line in _embedding(model.embedding, model.vocab_size, d_model):
        yield "embedding", line
    if model.streams is not None:
        kind = escaped(model.streams.kind)
        yield "streams", rf"\text{{several residuals x, mixed around each branch: {kind}}}"
        for line in more(model.streams, ()):
            yield "streams", line
    if model.pattern is not None:
        yield "layers", rf"\text{{in the order {escaped(', '.join(model.pattern))}, again and again}}"
    for index, layer in enumerate(model.layers):
        place, kind = f"layers[{index}]", "" if layer.label is None else f", {escaped(layer.label)}"
        yield place, rf"\text{{in {layer.count} of {model.n_layers} layers{kind}}}"
        for line in _residual(layer):
            yield place, line
        yield f"{place}.norm", norm_line(layer.norm)
        for name, symbol in (("mixer", "A"), ("feed_forward", "F")):
            if getattr(layer, name) is not None:
                for line in branch(getattr(layer, name), symbol, d_model):
                    yield f"{place}.{name}", line
        for number_, extra in enumerate(layer.extras):
            for line in matrices(extra, "B", d_model):
                yield f"{place}.extras[{number_}]", line
    if model.final_norm is not None:
        yield "final_norm", norm_line(model.final_norm)
    yield "output", _output(model)


def _embedding(part: Embedding, vocab_size: Any, d_model: Any) -> Iterator[str]:
    width = d_model if part.width is None else part.width
    shapes: dict[str, tuple[Any, ...]] = {"E": (vocab_size, width)}
    value = "E_t" if part.scale is None else rf"{number(part.scale)} \, E_t"
    if part.width is not None:
        value, shapes["W_{in}"] = f"{value} W_{{in}}", (width, d_model)
    if part.learned_positions is not None:
        value += rf" + P_{{i + {part.position_offset}}}" if part.position_offset else " + P_i"
        shapes["P"] = (part.learned_positions + part.position_offset, d_model)
    yield f"x = {value}{given(shapes)}"
    if part.norm is not None:
        yield rf"x \leftarrow N(x), \quad {norm_line(part.norm)}"
    yield from more(part, "width scale norm learned_positions position_offset")


def _residual(layer: Layer) -> Iterator[str]:
    """The order of norms and additions, as the table of `Layer` has it."""
    branches = [(symbol, part) for symbol, part in (("A", layer.mixer), ("F", layer.feed_forward)) if part is not None]
    stream = "x" if layer.stream_scale is None else rf"{number(layer.stream_scale)} \, x"
    factor = "" if layer.residual_scale is None else rf"{number(layer.residual_scale)} \, "
    if layer.residual.startswith("parallel"):
        added = " + ".join(f"{factor}{symbol}(n)" for symbol, _ in branches)
        each = r" \quad \text{(each with its own } N \text{)}" if layer.residual == "parallel_two_norms" else ""
        yield rf"n = N(x){each}"
        yield rf"x \leftarrow {stream} + {added}"
    else:
        for symbol, part in branches:
            yield from _branch_sum(layer.residual, symbol, stream, factor, own_norms=part.own_norms)
    if layer.output_scale:
        yield r"x \leftarrow c \, x"


def _branch_sum(residual: str, symbol: str, stream: str, factor: str, *, own_norms: bool) -> Iterator[str]:
    """One branch and its addition to the residual."""
    match residual:
        case "normed":
            yield r"x \leftarrow N(x)"
            yield rf"x \leftarrow {stream} + {factor}{symbol}(x)"
        case "post":
            yield rf"x \leftarrow N({stream} + {factor}{symbol}(x))"
        case "reordered":
            yield rf"x \leftarrow {stream} + {factor}N({symbol}(x))"
        case _:
            value = f"{symbol}(x)" if own_norms else f"{symbol}(N(x))"
            yield rf"x \leftarrow {stream} + {factor}{f'N({value})' if residual == 'sandwich' else value}"


def _output(model: Architecture) -> str:
    output, width = model.output, model.embedding.width
    shapes: dict[str, tuple[Any, ...]] = {}
    value = "x" if model.final_norm is None else "N(x)"
    if width is not None:
        value, shapes["W_{out}"] = rf"{value} W_{{out}}", (model.d_model, width)
    if not output.tied:
        shapes["W"] = (model.d_model if width is None else width, model.vocab_size)
    value += (r" E^T" if output.tied else " W") + (" + b" if output.bias else "")
    if output.scale is not None:
        value = rf"{number(output.scale)} \, {f'({value})' if output.bias else value}"
    if output.soft_cap is not None:
        value = rf"{number(output.soft_cap)} \tanh\left(\frac{{{value}}}{{{number(output.soft_cap)}}}\right)"
    rest = "".join(rf", \quad {line}" for line in more(output, "tied bias scale soft_cap"))
    return rf"\operatorname{{logits}} = {value}{given(shapes)}{rest}"


def contract_document(architecture: Architecture) -> str:
    """The contract on a page of Markdown: what it adds up to, every field with its value, and the block equations."""
    parts, written = architecture.parts(), equations(architecture)
    total, active = folds.parameters(parts), folds.parameters(parts, active=True)
    lines = [
        f"# {_cell(architecture.title or architecture.name)}",
        "",
        f"{architecture.n_layers:,} layers, {total:,} parameters, of which a token uses {active:,}.",
    ]
    for heading, fields in _sections(architecture).items():
        rows = (f"| {path} | {_cell(value)} |" for path, value in fields)
        lines += ["", f"## {heading}", "", "| field | value |", "|---|---|", *rows]
    width = max(len(equation.label) for equation in written)
    table = (f"{line.label:{width}}  {line.text}" for line in written)
    lines += ["", "## Block equations", "", "```text", *table, "```"]
    lines += ["", "The same in LaTeX:", "", "```latex", *(line.latex for line in written), "```", ""]
    return "\n".join(lines)


def _sections(architecture: Architecture) -> dict[str, list[tuple[str, Any]]]:
    """Every field of the contract by the part that it is in."""
    sections: dict[str, list[tuple[str, Any]]] = {"The whole": []}
    for path, value in flatten(architecture):
        part, _, rest = path.partition(".")
        sections.setdefault(part if rest else "The whole", []).append((path, value))
    return sections


def _cell(value: Any) -> str:
    """A value as a cell of a Markdown table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    text = ", ".join(map(_cell, value)) if isinstance(value, tuple) else str(value)
    return " ".join(text.split()).replace("|", "\\|")
