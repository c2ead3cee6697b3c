"""Formulas of numbers and names with ``+ - * /``, ``log()`` and parentheses, such as ``rate * width / 1e6``. Pure.

What is true counts as 1, else as 0: an option, or ``(direction == 'both')``. They come from workloads and from files of
others, so nothing in them is executed: their syntax tree is walked.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

LONGEST = 200
"""Most characters of a formula, so that none nests deeply."""
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LOG = "log"
_ALLOWED = "only numbers, names, + - * /, log(), (name == 'text') and parentheses are allowed"


def names(formula: str) -> frozenset[str]:
    """The names in ``formula``. Raises InputError for anything that is not a formula."""
    nodes = list(ast.walk(_parse(formula)))
    functions = {node.func for node in nodes if isinstance(node, ast.Call)}
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and node not in functions)


def choices(formula: str) -> frozenset[tuple[str, str]]:
    """The names in ``formula`` that are compared with a text, each with the text."""
    compared = (node for node in ast.walk(_parse(formula)) if isinstance(node, ast.Compare))
    return frozenset((ast.unparse(node.left), ast.literal_eval(node.comparators[0])) for node in compared)


def evaluate(formula: str, values: Mapping[str, float | str | None]) -> float:
    """The value of ``formula``, with ``values`` for its names.

    Raises InputError for anything that is not a formula, for a name without a value or whose value is no number, and if
    the result is not finite.
    """
    try:
        value = _value(_parse(formula), values)
    except ZeroDivisionError:
        raise InputError(f"formula {short(repr(formula))}: it divides by zero") from None
    except ValueError:
        raise InputError(f"formula {short(repr(formula))}: only positive numbers have a logarithm") from None
    except KeyError as error:
        known = ", ".join(name for name, value in values.items() if isinstance(value, int | float)) or "none"
        raise InputError(f"formula {short(repr(formula))}: unknown name {error}; there are {known}") from None
    if not math.isfinite(value):
        raise InputError(f"formula {short(repr(formula))}: its value is {value}; it must be finite")
    return value


def _parse(formula: str) -> ast.expr:
    """The syntax tree, with nothing but the parts of a formula in it."""
    where = f"formula {short(repr(formula))}"
    if "#" in formula:
        raise InputError(f"{where}: it has a comment; {_ALLOWED}")
    if len(formula) > LONGEST:
        raise InputError(f"{where}: it has {len(formula)} characters; at most {LONGEST} are allowed")
    try:
        tree = ast.parse(formula, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{where}: it cannot be read: {error}") from None
    if not _is_part(tree):
        raise InputError(f"{where}: {_ALLOWED}")
    return tree


def _is_part(node: ast.expr) -> bool:
    """Whether a formula may have it, and all that it consists of."""
    match node:
        case ast.BinOp(left=left, op=operation, right=right):
            return type(operation) in _OPERATIONS and _is_part(left) and _is_part(right)
        case ast.Call(func=ast.Name(id=name), args=[number], keywords=[]):
            return name == _LOG and _is_part(number)
        case ast.Compare(left=ast.Name(), ops=[ast.Eq()], comparators=[ast.Constant(value=str())]) | ast.Name():
            return True
        case ast.Constant(value=value):
            return type(value) in (int, float)
    return False


def _value(node: ast.expr, values: Mapping[str, float | str | None]) -> float:
    match node:
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left, values), _value(right, values))
        case ast.Call(args=[number]):
            return math.log(_value(number, values))
        case ast.Compare(left=ast.Name(id=name), comparators=[ast.Constant(value=text)]):
            return float(values[name] == text)
        case ast.Name(id=name):
            value = values[name]
            if not isinstance(value, int | float):
                raise KeyError(name)
            return float(value)
        case ast.Constant(value=int() | float() as number):
            return float(number)
    raise TypeError(f"{ast.dump(node)} is no part of a formula")
