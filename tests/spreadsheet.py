"""A spreadsheet's reading, written from its rules: a sign binds tighter than ^, and ^ goes from left to right."""

import math
import operator
import re
from fractions import Fraction

TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?(?:E[+-]\d+)?|[a-z_][a-z0-9_]*|MIN|MAX|INT|[-+*/^(),])")
FUNCTIONS = {"MIN": min, "MAX": max, "INT": lambda x: Fraction(math.floor(x))}


def calculated_by_a_spreadsheet(text, cells):
    assert text.startswith("=")
    tokens = TOKEN.findall(text[1:])
    assert "".join(tokens) == text[1:]
    tokens.append("")

    def chain(operand, operators):
        value = operand()
        while tokens[0] in operators:
            value = operators[tokens.pop(0)](value, operand())
        return value

    def total():
        return chain(product, {"+": operator.add, "-": operator.sub})

    def product():
        return chain(power, {"*": operator.mul, "/": operator.truediv})

    def power():
        return chain(signed, {"^": lambda a, b: a ** int(b)})

    def signed():
        if tokens[0] == "-":
            tokens.pop(0)
            return -signed()
        token = tokens.pop(0)
        if token in FUNCTIONS:
            arguments = []
            while tokens.pop(0) != ")":  # the opening bracket, and then the commas
                arguments.append(total())
            return FUNCTIONS[token](*arguments)
        if token == "(":
            value = total()
            assert tokens.pop(0) == ")"
            return value
        return cells[token] if token in cells else Fraction(token)

    value = total()
    assert tokens == [""]
    return value
