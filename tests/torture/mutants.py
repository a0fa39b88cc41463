"""Mutants of a module: each has one small fault that a good test must notice."""

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

N = TypeVar("N", bound=ast.AST)
_REPLACED_OPERATORS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_LOGGING = {"debug", "info", "warning", "error", "exception", "log"}


class Mutant(NamedTuple):
    line: int
    description: str
    source: str
    span: frozenset[int]  # lines of the changed statement: a test that reaches one of them may notice
    function_lines: frozenset[int]  # lines of the enclosing function, or the span if there is none


def generate_mutants(source: str) -> list[Mutant]:
    """Generate all mutants, ordered by line.

    Exclude code that cannot change the behaviour, such as annotations, docstrings and `__slots__`. Exclude log calls,
    which no guarantee covers.
    """
    tree = ast.parse(source)
    nodes = _find_nodes(tree)
    excluded = {id(inner) for node in ast.walk(tree) for part in _find_excluded(node) for inner in ast.walk(part)}
    spans = {id(inner): _get_lines(node) for node in nodes if _is_simple(node) for inner in ast.walk(node)}
    spans |= {id(inner): lines for node in tree.body if (lines := _find_uses(node, tree)) for inner in ast.walk(node)}
    functions = {id(inner): _get_lines(node) for node in nodes if _is_function(node) for inner in ast.walk(node)}
    mutants: list[Mutant] = []
    for index, node in enumerate(nodes):
        if id(node) in excluded:
            continue
        for description, change in _generate_changes(node):
            broken = copy.deepcopy(tree)
            change(_find_nodes(broken)[index])
            span = spans.get(id(node), _get_lines(node))
            function_lines = functions.get(id(node), span)
            mutants.append(
                Mutant(node.lineno, description, ast.unparse(ast.fix_missing_locations(broken)), span, function_lines)
            )
    return sorted(mutants, key=lambda mutant: (mutant.line, mutant.description))


def _find_nodes(tree: ast.AST) -> list[ast.expr | ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]


def _is_simple(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt) and not hasattr(node, "body")


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _get_lines(node: ast.expr | ast.stmt) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _find_uses(node: ast.stmt, tree: ast.Module) -> frozenset[int]:
    """Return the lines that use a constant of the module; none if other modules use it."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    used = (it for it in ast.walk(tree) if isinstance(it, ast.Name) and it.id in names and it not in targets)
    return frozenset(it.lineno for it in used)


def _find_excluded(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that have no effect other than logging."""
    if isinstance(node, ast.AnnAssign | ast.arg):
        return [node.annotation] if node.annotation is not None else []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.returns] if node.returns is not None else []
    if isinstance(node, ast.Expr):
        call = node.value
        is_log = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGING
        return [node] if isinstance(call, ast.Constant) or is_log else []
    return [node] if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(("__", "_log")) else []


def _generate_changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    for index, operator in enumerate(node.ops if isinstance(node, ast.Compare) else ()):
        other = _REPLACED_OPERATORS[type(operator)]
        nth = f" ({index + 1})" if index else ""
        yield (
            f"{ast.unparse(node)[:60]}: {other.__name__}{nth}",
            _change(ast.Compare, partial(_replace_operator, index, other())),
        )
    if isinstance(node, ast.BoolOp):
        swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield (
            f"{ast.unparse(node)[:60]}: {swapped.__name__}",
            _change(ast.BoolOp, lambda it: setattr(it, "op", swapped())),
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)[:60]}: no not", _change(ast.UnaryOp, _negate)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        more = node.value + 1
        yield f"{node.value} is {more}", _change(ast.Constant, lambda it: setattr(it, "value", more))
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        is_flag = isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
        other_value = ast.UnaryOp(ast.Not(), node.value) if is_flag else ast.Constant(None)
        description = f"{ast.unparse(node)[:60]}: {ast.unparse(other_value)}"
        yield description, _change(ast.Return, lambda it: setattr(it, "value", other_value))
    if isinstance(node, ast.Raise):
        yield f"no {ast.unparse(node)[:60]}", _change(ast.Raise, _do_nothing)


def _change(kind: type[N], change: Callable[[N], object]) -> Callable[[ast.AST], None]:
    def apply(node: ast.AST) -> None:
        assert isinstance(node, kind)
        change(node)

    return apply


def _replace_operator(index: int, operator: ast.cmpop, node: ast.Compare) -> None:
    node.ops[index] = operator


def _negate(node: ast.UnaryOp) -> None:
    node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _do_nothing(node: ast.Raise) -> None:
    """Replace a raise statement by `if False: raise`."""
    original = ast.Raise(node.exc, node.cause)
    node.__class__ = ast.If  # type: ignore[assignment]  # its parent refers to this object
    vars(node).update(test=ast.Constant(value=False), body=[original], orelse=[])
