"""Long formulas in steps: what would not fit a cell is computed in several, each a formula that can be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.arithmetic import Value, Written, read, word

LONGEST = 40
"""Operands of one formula: with structured references of some fifty characters each, far below a cell's 8,192."""


@dataclass
class Steps:
    """Formulas by the words of their cells, in the order in which they are computed; equal ones are one step.

    >>> from planner.notation import excel
    >>> steps = Steps("step", longest=2)
    >>> root = steps.split(word("context") * word("batch") * 2 + word("context") * word("batch"))
    >>> [excel(tree, str) for tree in (*steps.trees.values(), root)]
    ['context*batch', 'step_1*2', 'step_2+step_1']
    """

    prefix: str
    longest: int = LONGEST
    trees: dict[str, Value] = field(default_factory=dict)
    _known: dict[Any, str] = field(default_factory=dict)
    _keys: dict[Any, int] = field(default_factory=dict)

    def split(self, tree: Value) -> Value:
        """The formula over the words of steps; a short one stays as it is."""
        root, _, _ = read(
            tree, lambda name: (word(name), 1, self._key(name)), lambda n: (n, 1, self._key(n)), self._operation
        )
        return root

    def _operation(self, op: str, *args: tuple[Value, int, int]) -> tuple[Value, int, int]:
        key = self._key((op, *(key for _, _, key in args)))
        if key in self._known:
            return word(self._known[key]), 1, key
        parts = list(args)
        while sum(size for _, size, _ in parts) > self.longest:
            longest = max(range(len(parts)), key=lambda i: parts[i][1])
            if parts[longest][1] == 1:
                break
            parts[longest] = self._step(parts[longest])
        return Written(op, *(tree for tree, _, _ in parts)), sum(size for _, size, _ in parts), key

    def _step(self, part: tuple[Value, int, int]) -> tuple[Value, int, int]:
        tree, _, key = part
        if key not in self._known:
            self._known[key] = f"{self.prefix}_{len(self.trees) + 1}"
            self.trees[self._known[key]] = tree
        return word(self._known[key]), 1, key

    def _key(self, content: Any) -> int:
        """A number for each distinct subtree, so that equal ones are found without printing them."""
        tagged = (type(content).__name__, content)
        return self._keys.setdefault(tagged, len(self._keys))
