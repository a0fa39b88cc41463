"""Small faults put into a module, one at a time: what a good test must notice."""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

N = TypeVar("N", bound=ast.AST)
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_LOGGING = {"debug", "info", "warning", "error", "exception", "log"}


class Mutant(NamedTuple):
    """A module with one fault."""

    line: int
    what: str
    source: str


def mutants_of(source: str) -> list[Mutant]:
    """All, in the order of their lines; what is only told to a log, and what only types need, is left alone."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    idle = {id(inner) for node in nodes if _is_idle(node) for inner in ast.walk(node)}
    made: list[Mutant] = []
    for place, node in enumerate(nodes):
        if id(node) in idle:
            continue
        for what, change in _changes(node):
            broken = copy.deepcopy(tree)
            twin = [it for it in ast.walk(broken) if isinstance(it, ast.expr | ast.stmt)][place]
            change(twin)
            made.append(Mutant(node.lineno, what, ast.unparse(ast.fix_missing_locations(broken))))
    return sorted(made)


def _is_idle(node: ast.AST) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    if isinstance(node, ast.Expr):
        call = node.value
        is_log = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGING
        return isinstance(call, ast.Constant) or is_log
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(("__", "_log"))


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """What can be done to a node, each with the words for it."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _FLIPPED:
        other = _FLIPPED[type(node.ops[0])]
        yield f"{ast.unparse(node)[:60]}: {other.__name__}", _on(ast.Compare, lambda it: it.ops.__setitem__(0, other()))
    if isinstance(node, ast.BoolOp):
        swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{ast.unparse(node)[:60]}: {swapped.__name__}", _on(ast.BoolOp, lambda it: setattr(it, "op", swapped()))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)[:60]}: no not", _on(ast.UnaryOp, lambda it: setattr(it, "op", ast.UAdd()))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        more = node.value + 1
        yield f"{node.value} is {more}", _on(ast.Constant, lambda it: setattr(it, "value", more))
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield f"{ast.unparse(node)[:60]}: None", _on(ast.Return, lambda it: setattr(it, "value", ast.Constant(None)))
    if isinstance(node, ast.Raise):
        yield f"no {ast.unparse(node)[:60]}", _on(ast.Raise, _do_nothing)


def _on(kind: type[N], change: Callable[[N], object]) -> Callable[[ast.AST], None]:
    def apply(node: ast.AST) -> None:
        assert isinstance(node, kind)
        change(node)

    return apply


def _do_nothing(node: ast.Raise) -> None:
    """A raise that raises nothing: it stands where the statement stood, as `if False: raise`."""
    kept = ast.Raise(node.exc, node.cause)
    node.__class__ = ast.If  # type: ignore[assignment]  # the node's parent keeps it as it is
    vars(node).update(test=ast.Constant(value=False), body=[kept], orelse=[])
