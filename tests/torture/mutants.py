"""Small faults put into a module, one at a time: what a good test must notice."""

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial
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
    span: frozenset[int]  # the lines of what is broken; whoever reaches one of them may notice
    around: frozenset[int]  # those of the function that it is in, or where there is none the same


def mutants_of(source: str) -> list[Mutant]:
    """All, in the order of their lines.

    Left out is what cannot change what the module does: annotations, docstrings, `__slots__` and the like; and what is
    only told to a log, which no promise is about.
    """
    tree = ast.parse(source)
    nodes = _nodes_of(tree)
    idle = {id(inner) for node in ast.walk(tree) for part in _idle_parts(node) for inner in ast.walk(part)}
    spans = {id(inner): _lines_of(node) for node in nodes if _is_simple(node) for inner in ast.walk(node)}
    spans |= {id(inner): lines for node in tree.body if (lines := _uses_of(node, tree)) for inner in ast.walk(node)}
    functions = {id(inner): _lines_of(node) for node in nodes if _is_function(node) for inner in ast.walk(node)}
    made: list[Mutant] = []
    for place, node in enumerate(nodes):
        if id(node) in idle:
            continue
        for what, change in _changes(node):
            broken = copy.deepcopy(tree)
            change(_nodes_of(broken)[place])
            span = spans.get(id(node), _lines_of(node))
            around = functions.get(id(node), span)
            made.append(Mutant(node.lineno, what, ast.unparse(ast.fix_missing_locations(broken)), span, around))
    return sorted(made, key=lambda mutant: (mutant.line, mutant.what))


def _nodes_of(tree: ast.AST) -> list[ast.expr | ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]


def _is_simple(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt) and not hasattr(node, "body")


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _lines_of(node: ast.expr | ast.stmt) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _uses_of(node: ast.stmt, tree: ast.Module) -> frozenset[int]:
    """The lines that use a constant of the module, none where it is used elsewhere."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    used = (it for it in ast.walk(tree) if isinstance(it, ast.Name) and it.id in names and it not in targets)
    return frozenset(it.lineno for it in used)


def _idle_parts(node: ast.AST) -> list[ast.AST]:
    """What of a node does nothing, or nothing but write to a log."""
    if isinstance(node, ast.AnnAssign | ast.arg):
        return [node.annotation] if node.annotation is not None else []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.returns] if node.returns is not None else []
    if isinstance(node, ast.Expr):
        call = node.value
        is_log = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGING
        return [node] if isinstance(call, ast.Constant) or is_log else []
    return [node] if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(("__", "_log")) else []


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """What can be done to a node, each with the words for it."""
    for place, operator in enumerate(node.ops if isinstance(node, ast.Compare) else ()):
        other = _FLIPPED[type(operator)]
        nth = f" ({place + 1})" if place else ""
        yield f"{ast.unparse(node)[:60]}: {other.__name__}{nth}", _on(ast.Compare, partial(_compare_by, place, other()))
    if isinstance(node, ast.BoolOp):
        swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{ast.unparse(node)[:60]}: {swapped.__name__}", _on(ast.BoolOp, lambda it: setattr(it, "op", swapped()))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)[:60]}: no not", _on(ast.UnaryOp, _negate)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        more = node.value + 1
        yield f"{node.value} is {more}", _on(ast.Constant, lambda it: setattr(it, "value", more))
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        is_flag = isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
        other_value = ast.UnaryOp(ast.Not(), node.value) if is_flag else ast.Constant(None)
        what = f"{ast.unparse(node)[:60]}: {ast.unparse(other_value)}"
        yield what, _on(ast.Return, lambda it: setattr(it, "value", other_value))
    if isinstance(node, ast.Raise):
        yield f"no {ast.unparse(node)[:60]}", _on(ast.Raise, _do_nothing)


def _on(kind: type[N], change: Callable[[N], object]) -> Callable[[ast.AST], None]:
    def apply(node: ast.AST) -> None:
        assert isinstance(node, kind)
        change(node)

    return apply


def _compare_by(place: int, operator: ast.cmpop, node: ast.Compare) -> None:
    node.ops[place] = operator


def _negate(node: ast.UnaryOp) -> None:
    node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _do_nothing(node: ast.Raise) -> None:
    """A raise that raises nothing: it stands where the statement stood, as `if False: raise`."""
    kept = ast.Raise(node.exc, node.cause)
    node.__class__ = ast.If  # type: ignore[assignment]  # the node's parent keeps it as it is
    vars(node).update(test=ast.Constant(value=False), body=[kept], orelse=[])
