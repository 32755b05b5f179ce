"""The live workbook: change a yellow cell in a spreadsheet program, and every figure follows, without Python.

Every formula is printed from the recorded one that the program computes with (`planner.notation.excel`), over named
cells and the columns of tables; beside it stands the value that the program computed. `contents` decides what is shown;
`live_plan`, `subject`, `condensed` and `ranked` put words in the place of numbers; `ranges` and `contract_rules` say
what cells may hold; `book` writes cells, and each sheet has its module.
"""

from __future__ import annotations

import os
from typing import Any

from planner.plan import Plan

__all__ = ["read_workbook", "write_workbook"]


def write_workbook(what: Any, path: str | os.PathLike[str]) -> None:
    """Write a workbook of a plan or a model, of several, or of a frame of cases.

    Of several the first, a `Plan` or a model, is planned; the others, models, stand beside it in every other sheet. A
    model is anything that `load` takes. A frame is what `sweep` returns, or a table with a column ``name`` or ``model``
    and columns of a load.
    Raises `UsageError` for what cannot be shown and for a file that cannot be written.
    """
    from planner.workbook import crossovers, formulas, hardware, inputs, model, results, scenarios, start
    from planner.workbook.book import writing
    from planner.workbook.contents import contents

    made = contents(what)
    with writing(path) as book:
        for sheet in (start, inputs, model, hardware, results, scenarios, crossovers, formulas):
            sheet.write(book, made)


def read_workbook(path: str | os.PathLike[str]) -> Plan:
    """The plan of a workbook, with the numbers that stand in its yellow cells now.

    Raises `InputError` with the file, the cell and the rule for one that is damaged, was not written by the planner, or
    holds an input that cannot be.
    """
    from planner.workbook.reading import read

    return read(path)
