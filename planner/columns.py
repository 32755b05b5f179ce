"""Recorded formulas compiled to columns: many figures of many scenarios at the speed of NumPy, or a little above.

`compile_columns` turns several formulas into one straight list of steps, each a NumPy function over a chunk of rows.
What is exact about it stands in `planner.forms`. It is fast because equal steps are computed once, whichever formula
they belong to; because their room is used again when nobody needs it; and because in a grid of two axes a step runs
only over the rows that what it reads varies in.

No program text is made of the formulas, so a word can do nothing but name a column. All columns are read and returned
in float64, see `planner.arithmetic`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

from planner.arithmetic import Value, column, plain, read
from planner.errors import InputError
from planner.forms import Values
from planner.quantities import described

CHUNK = 65_536
"""Rows that are computed at a time: few enough for the caches, enough to make the steps themselves cost nothing."""

Step: TypeAlias = tuple[str, tuple[int, ...], int]
"""The name of a NumPy function, the slots that it reads and the slot that it writes."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Compiled formulas; called with a frame or a mapping, it returns a float64 array for each formula.

    >>> from planner.arithmetic import ceil_div, word
    >>> blocks = compile_columns({"blocks": ceil_div(word("context"), word("block"))})
    >>> blocks({"context": [1, 16, 17], "block": 16})
    {'blocks': array([1., 1., 2.])}
    """

    trees: Mapping[str, Value]
    words: tuple[str, ...]
    constants: tuple[float, ...]
    n_registers: int
    steps: tuple[Step, ...]

    def __call__(self, frame: Mapping[str, Any], rows: int | None = None) -> dict[str, Any]:
        """Compute all formulas for every row.

        A mapping may hold numbers beside columns; they are folded in exactly before anything is computed. `rows` is the
        length of the result where there are only numbers. A row that divides by zero gets an infinity or a NaN.

        Raises `InputError` for a column that is absent, not numeric, or of another length.
        """
        import numpy

        missing = [described(word) for word in self.words if word not in frame]
        if missing:
            raise InputError(f"the table has no {', no '.join(missing)}")
        given = {word: frame[word] for word in self.words}
        numbers = {word: _number(word, value) for word, value in given.items() if numpy.ndim(value) == 0}
        if numbers:
            length = _rows({word: given[word] for word in self.words if word not in numbers}, rows)
            return _compile(self.trees, numbers)(frame, length)

        shape = (1, _rows(given, rows))
        out = {name: numpy.empty(shape) for name in self.trees}
        for name, values in self.grid({word: _row(word, values) for word, values in given.items()}, shape, out).items():
            if values is not out[name]:
                out[name][...] = values
        return {name: values[0] for name, values in out.items()}

    def grid(
        self, columns: Mapping[str, Any], shape: tuple[int, int], out: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Compute all formulas over `shape` = [outer, inner] rows, each only as often as what it depends on varies.

        A column is an array [outer, inner], [outer, 1] or [1, inner]. So is a result, or it is [1, 1]; one that varies
        both ways is computed in the array that `out` has for it. What depends on one side alone costs next to nothing,
        and a figure of all rows is then one product or sum more.
        """
        import numpy

        given = [columns[word] for word in self.words]
        first_result = len(self.constants) + len(given)
        first_register = first_result + len(self.trees)
        varies = [(False, False)] * len(self.constants) + [(n != 1, m != 1) for n, m in map(numpy.shape, given)]
        varies += [(False, False)] * (len(self.trees) + self.n_registers)
        steps = []
        for name, reads, writes in self.steps:
            varies[writes] = any(varies[slot][0] for slot in reads), any(varies[slot][1] for slot in reads)
            steps.append((getattr(numpy, name), reads, writes, varies[writes]))

        results = []
        for slot, name in enumerate(self.trees, first_result):
            natural = tuple(n if varied else 1 for n, varied in zip(shape, varies[slot], strict=True))
            results.append(out[name] if out and name in out and natural == shape else numpy.empty(natural))
        rooms = [numpy.empty(min(CHUNK, math.prod(shape))) for _ in range(self.n_registers)]
        with numpy.errstate(all="ignore"):
            for tile in _tiles(shape):
                slots = [
                    *self.constants,
                    *(_numeric(word, _cut(c, tile)) for word, c in zip(self.words, given, strict=True)),
                    *(_cut(result, tile) for result in results),
                    *rooms,
                ]
                sizes = [part.stop - part.start for part in tile]
                for function, reads, writes, (outer, inner) in steps:
                    target = slots[writes]
                    if writes >= first_register:
                        n, m = sizes[0] if outer else 1, sizes[1] if inner else 1
                        target = rooms[writes - first_register][: n * m].reshape(n, m)
                    function(*[slots[slot] for slot in reads], out=target)
                    slots[writes] = target
        return dict(zip(self.trees, results, strict=True))


def compile_columns(trees: Mapping[str, Value]) -> Columns:
    """Compile recorded formulas, or numbers, by name."""
    return _compile(trees, {})


def _compile(trees: Mapping[str, Value], numbers: Mapping[str, Value]) -> Columns:
    values, done = Values(numbers), dict[int, Any]()
    results = [values.of(read(tree, values.word, values.number, values.operation, done)) for tree in trees.values()]
    return _scheduled(trees, values, results)


def _rows(columns: Mapping[str, Any], rows: int | None) -> int:
    lengths = {word: len(values) for word, values in columns.items()}
    if len({*lengths.values(), *(() if rows is None else (rows,))}) > 1:
        asked = "" if rows is None else f"; {rows} rows are asked for"
        raise InputError(f"columns differ in length: {', '.join(f'{w} has {n}' for w, n in lengths.items())}{asked}")
    return next(iter(lengths.values()), 1 if rows is None else rows)


def _number(word: str, value: Any) -> Any:
    """One number of a mapping, as it is or as an array of no dimensions."""
    item = getattr(value, "item", lambda: value)()
    if not isinstance(item, Real):
        raise InputError(f"{described(word)} = {item!r} is not a number")
    return plain(item)


def _row(word: str, values: Any) -> Any:
    """A column of a table as the one row of a grid."""
    import numpy

    array = numpy.asarray(values)
    if array.ndim != 1:
        raise _not_numeric(word)
    return array[None]


def _numeric(word: str, values: Any) -> Any:
    try:
        return column(values)
    except (TypeError, ValueError):
        raise _not_numeric(word) from None


def _not_numeric(word: str) -> InputError:
    return InputError(f"column {described(word)} holds something that is not a number")


def _tiles(shape: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Parts of a grid, none of more than CHUNK rows."""
    outer, inner = shape
    width = max(min(inner, CHUNK), 1)
    height = CHUNK // width
    for i in range(0, outer, height):
        for j in range(0, inner, width):
            yield slice(i, min(i + height, outer)), slice(j, min(j + width, inner))


def _cut(array: Any, tile: tuple[slice, slice]) -> Any:
    """An array's part in a tile; a side of 1 serves all rows."""
    n, m = array.shape
    return array[tile[0] if n != 1 else slice(1), tile[1] if m != 1 else slice(1)]


def _scheduled(trees: Mapping[str, Value], values: Values, results: list[int]) -> Columns:
    """Put what the results need in order, each value in a slot: constants, words, results, then registers.

    A value comes just before the first step that needs it, so that a long sum is added up as its terms are computed.
    """
    entries, order, waiting = values.entries, dict[int, None](), results[::-1]
    while waiting:
        op, operands = entries[waiting[-1]]
        first = [] if op in ("word", "number") else [operand for operand in operands if operand not in order]
        if first:
            waiting += first[::-1]
        else:
            order[waiting.pop()] = None

    def leaves(kind: str) -> dict[int, Any]:
        return {value: entries[value][1][0] for value in order if entries[value][0] == kind}

    constants, words = leaves("number"), leaves("word")
    slot_of = {value: slot for slot, value in enumerate((*constants, *words))}
    result_slots = range(len(slot_of), len(slot_of) + len(results))
    own = dict(zip(results, result_slots, strict=True))

    computed = [value for value in order if value not in slot_of]
    uses = Counter([*results, *(operand for value in computed for operand in set(entries[value][1]))])
    steps: list[Step] = []
    free: list[int] = []
    n_slots = result_slots.stop
    for value in computed:
        op, operands = entries[value]
        for operand in set(operands):
            uses[operand] -= 1
            if uses[operand] == 0 and slot_of[operand] >= result_slots.stop:
                free.append(slot_of[operand])  # also for this step: NumPy sees that they share their room
        if value in own:
            slot_of[value] = own[value]
        elif free:
            slot_of[value] = free.pop()
        else:
            slot_of[value] = n_slots
            n_slots += 1
        steps.append((op, tuple(slot_of[operand] for operand in operands), slot_of[value]))
    for slot, value in zip(result_slots, results, strict=True):
        if slot_of[value] != slot:
            steps.append(("positive", (slot_of[value],), slot))
    n_registers = n_slots - result_slots.stop
    return Columns(trees, tuple(words.values()), tuple(constants.values()), n_registers, tuple(steps))
