"""A recorded formula as text: LaTeX in the order in which it was written, and the formula of a spreadsheet cell.

Both are one `read` of the record. Its results are texts with their precedence, so that brackets stand where they are
needed and nowhere else.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TypeAlias

from planner.arithmetic import Value, read

Text: TypeAlias = tuple[str, int]
"""A piece of text and how tightly its outermost operation binds."""

# What begins with a minus sign binds least: it is bracketed wherever it is not alone.
NEGATIVE, SUM, PRODUCT, POWER, ATOM = range(5)


def latex(tree: Value, letter: Callable[[str], str]) -> str:
    r"""Return the LaTeX of a recorded formula; `letter` gives the LaTeX of a word, or of the number in its place.

    >>> from planner.arithmetic import triangle, word
    >>> print(latex(2 * word("n_heads") * triangle(word("new")), {"n_heads": "H_q", "new": "T"}.__getitem__))
    2 H_q \frac{T \left(T + 1\right)}{2}
    """
    text, _ = read(tree, lambda word: _latex_atom(letter(word)), _latex_number, lambda op, *args: _LATEX[op](*args))
    return str(text)


def excel(tree: Value, cell: Callable[[str], str]) -> str:
    """Return a recorded formula as a spreadsheet has it, without the leading ``=``; `cell` names the cell of a word.

    A spreadsheet reads -x^2 as the square of -x, so a power is bracketed behind a minus sign. Rounding is by ``INT``,
    which goes down on both sides of zero. A power that is too small for a float is 0, which LibreOffice calls an error.

    >>> from planner.arithmetic import ceil_div, word
    >>> excel(ceil_div(word("context"), 16) * 16, lambda word: f"[@{word}]")
    '(-INT(-[@context]/16))*16'
    """
    text, _ = read(tree, lambda word: (cell(word), ATOM), _excel_number, lambda op, *args: _EXCEL[op](*args))
    return str(text)


def latex_number(value: Value) -> str:
    r"""Return a number as LaTeX shows it: whole numbers in groups of three, others as short as Python has them.

    >>> latex_number(131072), latex_number(2.5e-7)
    ('131{,}072', '2.5 \\cdot 10^{-7}')
    """
    if isinstance(value, Fraction):
        return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    text = f"{value:.15g}" if isinstance(value, float) else f"{value:,}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        text = f"{int(value):,}"
    mantissa, exponent = text.partition("e")[::2]
    scaled = rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa
    return scaled.replace(",", "{,}").replace("inf", r"\infty")


def _latex_atom(text: str) -> Text:
    # A letter with a superscript cannot take a second one, and a number with a power of ten is a product.
    return text, PRODUCT if r"\cdot" in text else POWER if "^" in text else ATOM


def _latex_number(value: Value) -> Text:
    text, binding = _latex_atom(latex_number(value))
    return text, NEGATIVE if value < 0 else binding


def _excel_number(value: Value) -> Text:
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}", NEGATIVE if value < 0 else PRODUCT
    return repr(value).upper(), NEGATIVE if value < 0 else ATOM


def _in_latex(text: Text, at_least: int) -> str:
    return text[0] if text[1] >= at_least else rf"\left({text[0]}\right)"


def _in_excel(text: Text, at_least: int) -> str:
    return text[0] if text[1] >= at_least else f"({text[0]})"


def _latex_product(a: Text, b: Text) -> Text:
    left, right = _in_latex(a, PRODUCT), _in_latex(b, PRODUCT)
    dot = r"\cdot " if re.match(r"\d|\\frac\{\d", right) else ""
    return f"{left} {dot}{right}", PRODUCT


def _latex_quotient(a: Text, b: Text) -> Text:
    return rf"\frac{{{a[0]}}}{{{b[0]}}}", POWER


def _excel_quotient(a: Text, b: Text) -> Text:
    return f"{_in_excel(a, PRODUCT)}/{_in_excel(b, POWER)}", PRODUCT


def _excel_power(a: Text, b: Text) -> Text:
    power = f"{_in_excel(a, ATOM)}^{_in_excel(b, ATOM)}"
    return (power, POWER) if b[0].lstrip("-").isdigit() else (f"IFERROR({power},0)", ATOM)


_LATEX: dict[str, Callable[..., Text]] = {
    "+": lambda a, b: (f"{_in_latex(a, SUM)} + {_in_latex(b, SUM)}", SUM),
    "-": lambda a, b: (f"{_in_latex(a, SUM)} - {_in_latex(b, PRODUCT)}", SUM),
    "neg": lambda a: (f"-{_in_latex(a, PRODUCT)}", NEGATIVE),
    "*": _latex_product,
    "/": _latex_quotient,
    "exact_div": _latex_quotient,
    "**": lambda a, b: (f"{_in_latex(a, ATOM)}^{{{b[0]}}}", POWER),
    "minimum": lambda a, b: (rf"\min\left({a[0]}, {b[0]}\right)", POWER),
    "maximum": lambda a, b: (rf"\max\left({a[0]}, {b[0]}\right)", POWER),
    "ceil_div": lambda a, b: (rf"\left\lceil {_latex_quotient(a, b)[0]} \right\rceil", ATOM),
    "floor_div": lambda a, b: (rf"\left\lfloor {_latex_quotient(a, b)[0]} \right\rfloor", ATOM),
}

_EXCEL: dict[str, Callable[..., Text]] = {
    "+": lambda a, b: (f"{_in_excel(a, SUM)}+{_in_excel(b, SUM)}", SUM),
    "-": lambda a, b: (f"{_in_excel(a, SUM)}-{_in_excel(b, PRODUCT)}", SUM),
    "neg": lambda a: (f"-{_in_excel(a, ATOM)}", NEGATIVE),
    # A bracket on the right keeps the order of rounding: a*(b/c) is not (a*b)/c to the last bit.
    "*": lambda a, b: (f"{_in_excel(a, PRODUCT)}*{_in_excel(b, POWER)}", PRODUCT),
    "/": _excel_quotient,
    "exact_div": _excel_quotient,
    "**": _excel_power,
    "minimum": lambda a, b: (f"MIN({a[0]},{b[0]})", ATOM),
    "maximum": lambda a, b: (f"MAX({a[0]},{b[0]})", ATOM),
    "ceil_div": lambda a, b: (f"-INT(-{_in_excel(a, ATOM)}/{_in_excel(b, POWER)})", NEGATIVE),
    "floor_div": lambda a, b: (f"INT({_excel_quotient(a, b)[0]})", ATOM),
}


_SIGNS = dict(
    odot="⊙", cdot="·", times="×", leftarrow="←", le="≤", sum="Σ", lfloor="⌊", rfloor="⌋", bmod="mod", left="",
    right="", Big="", alpha="α", beta="β", gamma="γ", sigma="σ", theta="θ", quad="\t",
) | {"in": "∈", ",": " ", " ": " "}  # fmt: skip
_BARE = re.compile(r"[-√]?[\w.]*")


def plain(latex: str) -> str:
    r"""Return a line of LaTeX, as this program writes it, as plain text.

    >>> plain(r"z = \frac{q_i \cdot k_j}{\sqrt{128}}, \quad W \in \mathbb{R}^{4{,}096 \times 8}")
    'z = (q_i · k_j) / √128,  W ∈ R^(4,096 × 8)'
    """
    text = _plain(iter(re.findall(r"\\[A-Za-z]+|\\.|.", latex)))
    text = re.sub(r" +", " ", text).replace("⌊ ", "⌊").replace(" ⌋", "⌋").replace("( ", "(").replace(" )", ")")
    return re.sub(r" ?\t ?", "  ", text).strip()


def _plain(tokens: Iterator[str]) -> str:
    """The text up to the brace that closes, or to the end."""
    text = ""
    for token in tokens:
        if token == "}":
            break
        match token:
            case "{":
                text += _plain(tokens)
            case "^" | "_":
                text += token + _bracketed(_argument(tokens))
            case r"\frac":
                text += f"{_bracketed(_argument(tokens))} / {_bracketed(_argument(tokens))}"
            case r"\sqrt":
                text += f"√{_bracketed(_argument(tokens))}"
            case r"\operatorname" | r"\text" | r"\mathbb" | r"\mathrm":
                text += _argument(tokens)
            case _ if token.startswith("\\"):
                text += _SIGNS.get(token[1:], token[1:])
            case _:
                text += token
    return text


def _argument(tokens: Iterator[str]) -> str:
    token = next(tokens)
    return _plain(tokens) if token == "{" else _SIGNS.get(token[1:], token[1:]) if token.startswith("\\") else token


def _bracketed(text: str) -> str:
    return text if _BARE.fullmatch(text) or text.startswith("√(") else f"({text})"
