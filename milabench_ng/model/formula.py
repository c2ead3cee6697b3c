"""Formulas of numbers and names with ``+ - * /``, ``log()`` and parentheses, such as ``rate * width / 1e6``. Pure.

They come from workloads and from files of others, so nothing in them is executed: their syntax tree is walked.
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
_PARTS = (ast.BinOp, ast.Name, ast.Load, ast.Constant, ast.Call, *_OPERATIONS)
_LOG = "log"
_ALLOWED = "only numbers, names, + - * /, log() and parentheses are allowed"


def names(formula: str) -> frozenset[str]:
    """The names in ``formula``. Raises InputError for anything that is not a formula."""
    nodes = list(ast.walk(_parse(formula)))
    functions = {node.func for node in nodes if isinstance(node, ast.Call)}
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and node not in functions)


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """The value of ``formula``, with ``values`` for its names.

    Raises InputError for anything that is not a formula, for a name without a value, and if the result is not finite.
    """
    try:
        value = _value(_parse(formula), values)
    except ZeroDivisionError:
        raise InputError(f"formula {short(repr(formula))}: it divides by zero") from None
    except ValueError:
        raise InputError(f"formula {short(repr(formula))}: only positive numbers have a logarithm") from None
    except KeyError as error:
        known = ", ".join(values) or "none"
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
    for node in ast.walk(tree):
        strange = not isinstance(node, _PARTS) or (
            isinstance(node, ast.Constant) and type(node.value) not in (int, float)
        )
        if strange or (isinstance(node, ast.Call) and not _is_log(node)):
            raise InputError(f"{where}: {_ALLOWED}")
    return tree


def _is_log(call: ast.Call) -> bool:
    """Whether it is the natural logarithm of one number."""
    return isinstance(call.func, ast.Name) and call.func.id == _LOG and len(call.args) == 1 and not call.keywords


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left, values), _value(right, values))
        case ast.Call(args=[number]):
            return math.log(_value(number, values))
        case ast.Name(id=name):
            return float(values[name])
        case ast.Constant(value=int() | float() as number):
            return float(number)
    raise TypeError(f"{ast.dump(node)} is no part of a formula")
