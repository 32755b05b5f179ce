"""LaTeX and spreadsheet text: brackets, order, numbers; a spreadsheet's own reading is re-read in `test_formula`."""

from fractions import Fraction

import pytest

from planner.arithmetic import ceil_div, exact_div, floor_div, maximum, minimum, word
from planner.notation import excel, latex, latex_number

A, B, C = map(word, ("past", "new", "window"))
LETTERS = {"past": "P", "new": "T", "window": "w^R"}

CASES = [
    (A + B - C, r"P + T - w^R", "past+new-window"),
    (A - (B + C), r"P - \left(T + w^R\right)", "past-(new+window)"),
    (A - (B - C), r"P - \left(T - w^R\right)", "past-(new-window)"),
    (A * (B + 1), r"P \left(T + 1\right)", "past*(new+1)"),
    (A * 3, r"P \cdot 3", "past*3"),
    (A * (B * C), r"P T w^R", "past*(new*window)"),
    (A * (B / C), r"P \frac{T}{w^R}", "past*(new/window)"),
    (A / (B * C), r"\frac{P}{T w^R}", "past/(new*window)"),
    (A / B / C, r"\frac{\frac{P}{T}}{w^R}", "past/new/window"),
    (A / (B / C), r"\frac{P}{\frac{T}{w^R}}", "past/(new/window)"),
    (exact_div(A * (A + 1), 2), r"\frac{P \left(P + 1\right)}{2}", "past*(past+1)/2"),
    (-(A**2), r"-P^{2}", "-(past^2)"),
    (B - A**2, r"T - P^{2}", "new-past^2"),
    ((-A) ** 2, r"\left(-P\right)^{2}", "(-past)^2"),
    (B * -A, r"T \left(-P\right)", "new*(-past)"),
    (C**2, r"\left(w^R\right)^{2}", "window^2"),
    ((A / B) ** 2, r"\left(\frac{P}{T}\right)^{2}", "(past/new)^2"),
    (A**-1, r"P^{-1}", "past^(-1)"),
    ((1 - A / B) ** C, r"\left(1 - \frac{P}{T}\right)^{w^R}", "IFERROR((1-past/new)^window,0)"),
    (0.75 ** (A * B), r"0.75^{P T}", "IFERROR(0.75^(past*new),0)"),
    (A + -2, r"P + \left(-2\right)", "past+(-2)"),
    (A * Fraction(2, 3), r"P \cdot \frac{2}{3}", "past*(2/3)"),
    (A * 0.5, r"P \cdot 0.5", "past*0.5"),
    (A * 1e-7, r"P \cdot 1 \cdot 10^{-7}", "past*1E-07"),
    (minimum(A, B + C), r"\min\left(P, T + w^R\right)", "MIN(past,new+window)"),
    (maximum(A, 1) ** 2, r"\left(\max\left(P, 1\right)\right)^{2}", "MAX(past,1)^2"),
    (ceil_div(A, B) * B, r"\left\lceil \frac{P}{T} \right\rceil T", "(-INT(-past/new))*new"),
    (ceil_div(A + 1, B * C), r"\left\lceil \frac{P + 1}{T w^R} \right\rceil", "-INT(-(past+1)/(new*window))"),
    (floor_div(A, B / C), r"\left\lfloor \frac{P}{\frac{T}{w^R}} \right\rfloor", "INT(past/(new/window))"),
]


@pytest.mark.parametrize(("tree", "in_latex", "in_excel"), CASES, ids=[case[2] for case in CASES])
def test_brackets_stand_where_they_are_needed(tree, in_latex, in_excel):
    assert latex(tree, LETTERS.__getitem__) == in_latex
    assert excel(tree, str) == in_excel


def test_a_cell_may_be_a_table_column():
    assert excel(2 * A, lambda name: f"Plan[@{name}]") == "2*Plan[@past]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (1024, "1{,}024"),
        (10**20, "100" + "{,}000" * 6),
        (4.0, "4"),
        (1e12, "1" + "{,}000" * 4),
        (0.5625, "0.5625"),
        (3.5e20, r"3.5 \cdot 10^{20}"),
        (Fraction(1, 3), r"\frac{1}{3}"),
        (float("inf"), r"\infty"),
    ],
)
def test_numbers_are_grouped_and_exact(value, text):
    assert latex_number(value) == text
