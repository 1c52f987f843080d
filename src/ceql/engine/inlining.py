"""Puts the bodies of small functions into the function that calls them, before Numba sees it.

An inlined function has at most one `return`, as its last statement. If it is more than one expression, a call of it
is a statement, or all that a statement assigns.

PERF: Numba can inline, too, but copies every body several times, and keeps a variable for every argument. With that,
and with code for keys and rivals in every kernel, the first match with an empty cache took 8.4 instead of 5.0 s of CPU
(two busy cores, by turns).
"""

from __future__ import annotations

import ast
import copy
import linecache
import sys
from functools import lru_cache
from types import FunctionType
from typing import Any

MARK = "is_inlined"


def inlined(function: Any) -> Any:
    """Return a function that becomes a part of each compiled function that calls it.

    PERF: what is done for every event has a name so, but costs no call.
    """
    setattr(function, MARK, True)
    return function


def merged(function: Any, *, given: dict[str, bool] | None = None) -> Any:
    """Return a function that does the same, but does not call inlined functions.

    If a parameter is annotated with a NamedTuple, its fields are read once, at the beginning. Where `given` says
    whether a parameter is something or None, and it is never assigned, statements for the other case are left out.
    """
    names = function.__globals__
    if not any(is_inlined(names.get(name)) for name in function.__code__.co_names):
        return function
    definition = copy.deepcopy(_definition(function))
    changed = _assigned(definition.body)
    merger = _Merger(function, {name: value for name, value in (given or {}).items() if name not in changed})
    definition.decorator_list = []
    reads = _FieldReads(
        {name for name, kind in function.__annotations__.items() if hasattr(names.get(kind), "_fields")}
    )
    body = [reads.visit(statement) for statement in merger.statements(definition.body)]
    definition.body = [*reads.statements(), *body]
    module = ast.fix_missing_locations(ast.Module([definition], []))
    made: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec", dont_inherit=True), merger.names, made)
    result = made[function.__name__]
    assert isinstance(result, FunctionType)
    result.__module__, result.__annotations__ = function.__module__, function.__annotations__
    return result


def is_inlined(value: object) -> bool:
    """Whether a value is an inlined function."""
    return isinstance(value, FunctionType) and hasattr(value, MARK)


def _definition(function: FunctionType) -> ast.FunctionDef:
    return _definitions(function.__code__.co_filename, function.__module__)[function.__name__]


@lru_cache
def _definitions(file: str, module: str) -> dict[str, ast.FunctionDef]:
    lines = linecache.getlines(file, vars(sys.modules[module]))
    found = ast.parse("".join(lines), file).body
    return {node.name: node for node in found if isinstance(node, ast.FunctionDef)}


class _Merger(ast.NodeTransformer):
    """Replaces calls of inlined functions, and collects the globals of all that was merged."""

    def __init__(self, function: FunctionType, given: dict[str, bool]) -> None:
        self.names = dict(function.__globals__)
        self._given = given
        self._own_names = function.__code__.co_varnames
        self._n_calls = 0

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements without such calls."""
        return [new for statement in body for new in self._statement(statement)]

    def _chosen(self, statement: ast.If) -> list[ast.stmt] | None:
        """Return the branch that is taken, if it is known which one is."""
        match statement.test:
            case ast.Compare(ast.Name(name), [ast.Is() | ast.IsNot() as operator], [ast.Constant(None)]):
                if name in self._given:
                    return statement.body if self._given[name] == isinstance(operator, ast.IsNot) else statement.orelse
        return None

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.If) and (chosen := self._chosen(statement)) is not None:
            return self.statements(chosen)
        call = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
        function = self._called(call) if isinstance(call, ast.Call) else None
        if function is None or _is_expression(function):
            for name, value in ast.iter_fields(statement):
                if name in ("body", "orelse"):
                    setattr(statement, name, self.statements(value))
                elif isinstance(value, ast.AST):
                    setattr(statement, name, self.visit(value))
            return [statement]
        assert isinstance(call, ast.Call)
        call.args = [self.visit(argument) for argument in call.args]
        *body, last = self.statements(self._body(function, call.args))
        if isinstance(last, ast.Return) and isinstance(statement, ast.Assign):
            assert last.value is not None
            last = ast.copy_location(ast.Assign(statement.targets, last.value), statement)
        assert not isinstance(last, ast.Return)
        return [*body, last]

    def visit_Call(self, call: ast.Call) -> ast.expr:
        """Replace the call of an inlined expression."""
        self.generic_visit(call)
        function = self._called(call)
        if function is None:
            return call
        assert _is_expression(function), f"a call of {function.__name__} is not a statement"
        (result,) = self._body(function, call.args)
        assert isinstance(result, ast.Return)
        assert result.value is not None
        changed = self.visit(result.value)
        assert isinstance(changed, ast.expr)
        return changed

    def _called(self, call: ast.Call) -> FunctionType | None:
        function = self.names.get(call.func.id) if isinstance(call.func, ast.Name) else None
        return function if is_inlined(function) else None

    def _body(self, function: FunctionType, arguments: list[ast.expr]) -> list[ast.stmt]:
        """Return the body of a function, with arguments and other local names in their places."""
        code = function.__code__
        for name in code.co_names:
            if name in function.__globals__:
                value = function.__globals__[name]
                assert self.names.setdefault(name, value) is value, f"{name} has two meanings"
                assert name not in self._own_names, f"{name} is also a variable"
        body = copy.deepcopy(_definition(function).body[1:])
        changed = _assigned(body)
        self._n_calls += 1
        places: dict[str, ast.expr] = {name: ast.Name(f"{name}_{self._n_calls}") for name in code.co_varnames}
        first = []
        for name, argument in zip(code.co_varnames[: code.co_argcount], arguments, strict=True):
            # Arguments of an inlined expression have no effect, so that they may be computed more than once.
            if name not in changed and (isinstance(argument, ast.Name | ast.Constant) or _is_expression(function)):
                places[name] = argument
            else:
                target = ast.Name(f"{name}_{self._n_calls}", ast.Store())
                first.append(ast.copy_location(ast.Assign([target], argument), argument))
        return first + [_Renaming(places).visit(statement) for statement in body]


class _Renaming(ast.NodeTransformer):
    def __init__(self, places: dict[str, ast.expr]) -> None:
        self._places = places

    def visit_Name(self, name: ast.Name) -> ast.expr:
        place = self._places.get(name.id)
        if isinstance(place, ast.Name):
            return ast.copy_location(ast.Name(place.id, name.ctx), name)
        return name if place is None else copy.deepcopy(place)


class _FieldReads(ast.NodeTransformer):
    """Replaces fields of some parameters by variables."""

    def __init__(self, parameters: set[str]) -> None:
        self._parameters = parameters
        self._found: dict[str, ast.Attribute] = {}

    def visit_Attribute(self, attribute: ast.Attribute) -> ast.expr:
        self.generic_visit(attribute)
        of = attribute.value
        if not isinstance(of, ast.Name) or of.id not in self._parameters:
            return attribute
        name = f"{of.id}_{attribute.attr}"
        self._found[name] = attribute
        return ast.copy_location(ast.Name(name, ast.Load()), attribute)

    def statements(self) -> list[ast.stmt]:
        """Return the statements that read the fields."""
        return [ast.Assign([ast.Name(name, ast.Store())], field) for name, field in self._found.items()]


def _is_expression(function: FunctionType) -> bool:
    """Whether a function is a docstring and one `return`."""
    return len(_definition(function).body) == 2 and isinstance(_definition(function).body[1], ast.Return)


def _assigned(body: list[ast.stmt]) -> set[str]:
    nodes = (node for statement in body for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
