"""The compiler: text to `Query`, the frozen program that every backend runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ceql.automaton.build import build
from ceql.automaton.cea import CEA
from ceql.automaton.passes import keep_gap_free, select, simplify
from ceql.errors import CeqlError
from ceql.explain.automata import render_automaton
from ceql.explain.plans import explain_plan
from ceql.explain.trees import render_tree
from ceql.parameters import NO_PARAMETERS, Parameters
from ceql.schema import Schema, column_names
from ceql.syntax import ast
from ceql.syntax.bind import bind
from ceql.syntax.mistakes import Mistake
from ceql.syntax.parser import parse
from ceql.syntax.plan import Plan
from ceql.visible import visible_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

Stage = Literal["ast", "plan", "automaton"]
Format = Literal["text", "dot", "mermaid", "svg"]


@dataclass(frozen=True)
class Draft:
    """A parsed query that is not yet bound to the columns of its events."""

    text: str
    tree: ast.Query = field(repr=False, compare=False)
    parameters: Parameters = NO_PARAMETERS

    def given(self, params: Mapping[str, object] | None) -> Draft:
        """Return the query with the values of some parameters."""
        return replace(self, parameters=self.parameters.updated(Parameters.of(params))) if params else self

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams that FROM names."""
        return tuple(name.text for name in self.tree.sources)

    @property
    def canonical(self) -> str:
        """The query in one fixed layout, without comments."""
        return str(self.tree)

    def plan(self, schema: Schema, time_column: str | None, order_by: tuple[str, ...]) -> Plan:
        """Return the query's plan for events with this schema, or raise `QueryError` if it does not fit them."""
        try:
            return bind(self.tree, schema, time_column=time_column, order_by=order_by, parameters=self.parameters)
        except Mistake as mistake:
            raise mistake.at(self.text) from None

    def bind(self, schema: Schema, time_column: str | None, order_by: tuple[str, ...]) -> Query:
        """Return the query compiled for events with this schema, or raise `QueryError` if it does not fit them."""
        plan = self.plan(schema, time_column, order_by)
        automaton = select(build(plan.formula), plan)
        if plan.strategy is ast.Strategy.STRICT:
            automaton = keep_gap_free(automaton)
        return Query(self, plan, simplify(automaton), schema, time_column, order_by)


@dataclass(frozen=True)
class Query:
    """A compiled query, made by `ceql.compile`: immutable, picklable, bound to one schema.

    `text`, `schema`, `time_column` and `order_by` are the arguments of `ceql.compile`.
    """

    draft: Draft
    plan: Plan = field(repr=False)
    automaton: CEA = field(repr=False)
    schema: Schema = field(repr=False)
    time_column: str | None = None
    order_by: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self.draft.text

    @property
    def tree(self) -> ast.Query:
        """The query as it was read, before names and types were resolved."""
        return self.draft.tree

    @property
    def result_schema(self) -> pa.Schema:
        """The Arrow schema of the matches, with one row per match."""
        return self.plan.result_schema

    def explain(self, stage: Stage = "plan", *, format: Format = "text") -> str:
        """Return a stage of the compilation as text, as a graph in DOT or Mermaid, or the automaton as SVG.

        The text of the plan ends with what the query costs per event, and why.
        """
        if format == "svg" and stage == "ast":
            raise ValueError("only the automaton is drawn as SVG: choose stage 'automaton'")
        if format == "svg" and stage in ("plan", "automaton"):
            return self._drawn()
        return visible_lines(self._explained(stage, format))

    def _explained(self, stage: str, format: str) -> str:
        if stage == "ast":
            return render_tree(self.tree.formula, format)
        if stage == "plan":
            return (
                explain_plan(self.plan, self.automaton) if format == "text" else render_tree(self.plan.formula, format)
            )
        if stage == "automaton":
            return render_automaton(self.automaton, format)
        raise ValueError(f"unknown stage {stage!r}: choose 'ast', 'plan' or 'automaton'")

    def _repr_svg_(self) -> str | None:
        from ceql.pictures.automaton_svg import is_drawn

        return self._drawn() if is_drawn(self.automaton) else None

    def _drawn(self) -> str:
        # PERF: imported only for a picture, which saves 70 ms at the start for all others.
        from ceql.pictures.automaton_svg import automaton_svg

        return automaton_svg(self.automaton)

    def __reduce__(self) -> tuple[object, ...]:
        # Compiling again is cheap, and does not depend on the depth of the trees.
        return _compile, (self.text, self.schema, self.time_column, self.order_by, self.draft.parameters)


def compile(
    text: str | PathLike[str],
    schema: object = None,
    *,
    time_column: str | None = None,
    order_by: str | Sequence[str] = (),
    params: Mapping[str, object] | None = None,
) -> Query:
    """Return the compiled query, or raise `QueryError` saying what is wrong and where.

    Args:
        text: the query, with CREATE STREAM declarations before it if there are any; or the path of its file.
        schema: what the events look like: an Arrow or Spark schema, events as `ceql.match` or
            `ceql.spark.match` take them, or a dict of these by stream. Without it, and without declarations, names and
            types of attributes are not checked, and you can explain the query but not run it.
        time_column: the attribute that durations in WITHIN and FOR measure.
        order_by: the attribute, or attributes, that order the events.
        params: the values of the query's parameters: `{"limit": 5}` for `$limit`. A value may be a list, an Arrow
            array or a table with one column, for `IN $blocklist`.
    """
    known = Schema.unknown() if schema is None else Schema.of(schema)
    return _compile(query_text(text), known, time_column, column_names(order_by), Parameters.of(params))


def query_text(given: str | PathLike[str]) -> str:
    """Return the text of a query: a string is the text itself, any other path names its file."""
    if isinstance(given, str):
        return given
    if not isinstance(given, PathLike):
        raise CeqlError(f"a query is text, the path of a file, or the result of ceql.compile, not {_named(given)}")
    try:
        return Path(given).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CeqlError(f"the query {given} is not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise CeqlError(f"cannot read the query {given}: {error.strerror or error}") from None
    except ValueError as error:
        raise CeqlError(f"cannot read the query {given}: {error}") from None


def streams_in(text: str) -> tuple[str, ...]:
    """Return the streams in a query's FROM: binding the query needs their columns."""
    return _draft(text).sources


def normal_text(text: str) -> str:
    """Return a query in one fixed layout, so that queries that differ only in spaces, comments or capitals are equal.

    >>> normal_text("select *  from S where A") == normal_text("SELECT * FROM S WHERE A -- any")
    True
    """
    return _draft(text).canonical


def order_options(
    query: Query | str | PathLike[str], time_column: str | None, order_by: str | Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the time column and `order_by` of a run; if they are not given, those of the compiled query."""
    columns = column_names(order_by)
    if not isinstance(query, Query):
        return time_column, columns
    return time_column or query.time_column, columns or query.order_by


def _named(given: object) -> str:
    return "None" if given is None else type(given).__name__


def _compile(
    text: str, schema: Schema, time_column: str | None, order_by: tuple[str, ...], parameters: Parameters
) -> Query:
    return replace(read_draft(text), parameters=parameters).bind(schema, time_column, order_by)


def read_draft(given: str | PathLike[str]) -> Draft:
    """Return a parsed query, or raise `QueryError` if the text is not a query."""
    return _draft(query_text(given))


@lru_cache(maxsize=32)
def _draft(text: str) -> Draft:
    # PERF: kept, because parsing takes several milliseconds, and the same query is often matched again.
    return Draft(text, parse(text))
