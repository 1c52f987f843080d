"""Query text to AST, by Lark's LALR parser over `grammar.lark`.

Parsing, tree building and the depth check are iterative, so neither a flat query of megabytes nor a query of many
parentheses exhausts the stack. Later stages may recurse, because nesting is bounded here.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib import resources
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from lark import Lark, Token, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.visitors import Transformer_NonRecursive

from ceql.errors import Span, did_you_mean
from ceql.syntax import ast
from ceql.syntax.mistakes import BRACKETS, CLAUSES, CLOSERS, ORDER_HINT, Mistake, span_of, syntax_mistake
from ceql.syntax.times import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark.tree import Meta

MAX_NESTING = 200
"""Deepest nesting of parentheses and operators; later stages recurse, and Python's stack is limited."""

MAX_NUMBER_LENGTH = 400
"""Longest number in characters; doubles end at 309 digits, so a longer number is a mistake."""

MAX_COUNT = 2**63 - 1
"""Largest number of events that WITHIN and LIMIT may name."""

UNBOUNDED_HINT = "leave WITHIN out for no limit"

_UNIT_HINTS = {
    "m": "m could be minutes or months: write min for minutes",
    "mo": "months differ in length: write days",
    "month": "months differ in length: write days",
    "months": "months differ in length: write days",
    "y": "years differ in length: write days",
    "year": "years differ in length: write days",
    "years": "years differ in length: write days",
    "w": "write weeks",
}
"""What to write in place of units that do not exist."""

_UNIT_SYNONYMS = {
    "ns": "nanosecond",
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
}


def parse(text: str) -> ast.Query:
    """Return the tree of a query, or raise `QueryError` at the first mistake.

    >>> print(parse("select * from S where A as x; B within 2 events"))
    SELECT *
    FROM S
    WHERE A AS x ; B
    WITHIN 2 EVENTS
    """
    try:
        _check_characters(text)
        tree = _lark().parse(text)
        query = cast("ast.Query", _TreeBuilder(visit_tokens=False).transform(tree))
        _check_depth(query)
    except Mistake as mistake:
        raise mistake.at(text) from None
    except VisitError as error:
        if isinstance(error.orig_exc, Mistake):
            raise error.orig_exc.at(text) from None
        raise
    except UnexpectedInput as error:
        raise syntax_mistake(error, _tokens_before(error, text), text).at(text) from None
    return query


def _check_characters(text: str) -> None:
    """Refuse halves of surrogate pairs: Python's strings may contain them, but texts of events cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise Mistake(
            f"stray character U+{code:04X} (half of a character)", Span(error.start, error.start + 1), "delete it"
        ) from None


class _BoundedNesting:
    """Lark's hook between lexer and parser: refuses brackets nested too deeply."""

    always_accept = ()

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = 0
        for token in stream:
            if token.type in CLOSERS:
                depth += 1
                if depth > MAX_NESTING:
                    _refuse_nesting(span_of(token))
            elif token.type in BRACKETS:
                depth -= 1
            yield token


def _refuse_nesting(span: Span) -> NoReturn:
    hint = "chains of ; : OR and AND need no parentheses, and may be long"
    raise Mistake(f"the query is nested deeper than {MAX_NESTING} levels here", span, hint)


def _check_depth(query: ast.Query) -> None:
    level: list[ast.Node] = [query]
    for _ in range(MAX_NESTING + 2):
        level = [child for node in level for child in node.children()]
        if not level:
            return
    _refuse_nesting(level[0].span)


@cache
def _lark() -> Lark:
    grammar = resources.files("ceql.syntax").joinpath("grammar.lark").read_text(encoding="utf-8")
    postlex = cast("Any", _BoundedNesting())
    # PERF: to make the parser's tables takes 0.12 s of CPU in every process, to read them 0.01 s.
    return Lark(grammar, parser="lalr", propagate_positions=True, postlex=postlex, cache=_tables_file())


def _tables_file() -> str | bool:
    """Return where the parser's tables are kept: beside Python's compiled files, which are trusted as much.

    Lark makes them anew if the file is damaged, cannot be written, or belongs to another grammar or version.
    """
    file = Path(cache_from_source(__file__)).with_suffix(".tables")
    try:
        file.parent.mkdir(exist_ok=True)
    except OSError:
        return False
    return str(file)


def _tokens_before(error: UnexpectedInput, text: str) -> list[Token]:
    """Return the tokens up to a syntax error. They are lexed again, because the parser keeps none."""
    is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    tokens = []
    try:
        for token in _lark().lex(text if is_end else text[: error.pos_in_stream]):
            tokens.append(token)
    except (UnexpectedInput, Mistake):
        pass
    return tokens


def _over(meta: Meta) -> Span:
    return Span(meta.start_pos, meta.end_pos)


# --- from Lark's tree to ours -------------------------------------------------------


@v_args(meta=True)
class _TreeBuilder(Transformer_NonRecursive):  # type: ignore[type-arg]
    """One method per grammar rule; children come as AST nodes, tokens, or None where optional."""

    def start(self, meta: Meta, children: list[Any]) -> ast.Query:
        *declarations, query = children
        return ast.Query(
            tuple(declarations),
            query.select,
            query.sources,
            query.formula,
            query.partition_by,
            query.window,
            query.consumption,
            query.limit,
            span=query.span,
        )

    def stream_declaration(self, meta: Meta, children: list[Any]) -> ast.StreamDeclaration:
        name, *events = children
        present = tuple(event for event in events if event is not None)
        return ast.StreamDeclaration(_name(name), present, span=_over(meta))

    def event_declaration(self, meta: Meta, children: list[Any]) -> ast.EventDeclaration:
        name, *attributes = children
        present = tuple(attribute for attribute in attributes if attribute is not None)
        return ast.EventDeclaration(_name(name), present, span=_over(meta))

    def attribute_declaration(self, meta: Meta, children: list[Any]) -> ast.AttributeDeclaration:
        name, type_name, *arguments = children
        numbers = tuple(_count(argument, "type argument") for argument in arguments if argument is not None)
        return ast.AttributeDeclaration(_name(name), _name(type_name), numbers, span=_over(meta))

    def query(self, meta: Meta, children: list[Any]) -> ast.Query:
        strategy, selection, sources, formula, *clauses = children
        select = ast.Select(strategy or ast.Strategy.ALL, selection[0], span=selection[1])
        found = _in_order(clauses)
        return ast.Query(
            (),
            select,
            sources,
            formula,
            found.get("PARTITION BY", ()),
            found.get("WITHIN"),
            found.get("CONSUME BY", ast.Consumption.NONE),
            found.get("LIMIT"),
            span=_over(meta),
        )

    def strategy(self, meta: Meta, children: list[Any]) -> ast.Strategy:
        also = "; put a name with a space between backticks"
        return cast("ast.Strategy", _word(children[0], ast.Strategy, "selection strategy", also))

    def select_all(self, meta: Meta, children: list[Any]) -> tuple[None, Span]:
        return None, _over(meta)

    def selection(self, meta: Meta, children: list[Any]) -> tuple[tuple[ast.Selected, ...], Span]:
        none = next((item.variable for item in children if _is_none(item.variable)), None)
        if none is None:
            return tuple(children), _over(meta)
        if len(children) > 1 or children[0].attributes is not None:
            hint = f"write `{none.text}` if it is a variable"
            raise Mistake(f"'{none.text}' selects nothing, so it must stand alone", none.span, hint)
        return (), _over(meta)

    def selected(self, meta: Meta, children: list[Any]) -> ast.Selected:
        variable, attributes = children
        return ast.Selected(_name(variable), attributes, span=_over(meta))

    def partition_by(self, meta: Meta, children: list[Any]) -> _Clause:
        _, *lists = children
        return _Clause("PARTITION BY", _over(meta), tuple(name for names in lists for name in names))

    def within(self, meta: Meta, children: list[Any]) -> _Clause:
        return _Clause("WITHIN", _over(meta), _window(children[0], "WITHIN", _over(meta)))

    def extent(self, meta: Meta, children: list[Any]) -> _Extent:
        *quantities, attribute = children
        return _Extent(quantities, _name(attribute) if attribute is not None else None, _over(meta))

    def quantity(self, meta: Meta, children: list[Any]) -> _Quantity:
        minus, number, unit = children
        return _Quantity(_number(number), unit, ("-" if minus is not None else "") + number, _over(meta))

    def consume_by(self, meta: Meta, children: list[Any]) -> _Clause:
        return _Clause("CONSUME BY", _over(meta), _word(children[0], ast.Consumption, "consumption policy"))

    def limit(self, meta: Meta, children: list[Any]) -> _Clause:
        minus, number = children
        count = 0 if minus is not None else _count(number, "LIMIT")
        if count == 0:
            written = ("-" if minus is not None else "") + number
            raise Mistake(f"LIMIT {written} keeps no match", _over(meta), "leave LIMIT out, or give 1 or more")
        return _Clause("LIMIT", _over(meta), count)

    def filter(self, meta: Meta, children: list[Any]) -> ast.Filter:
        return ast.Filter(*children, span=_over(meta))

    def project(self, meta: Meta, children: list[Any]) -> ast.Project:
        formula, variables = children
        return ast.Project(formula, variables or (), span=_over(meta))

    def disjunction(self, meta: Meta, children: list[Any]) -> ast.Or:
        return ast.Or(tuple(children), span=_over(meta))

    def sequence(self, meta: Meta, children: list[Any]) -> ast.Sequence:
        gaps = tuple(map(ast.Gap, children[1::2]))
        return ast.Sequence(tuple(children[::2]), gaps, span=_over(meta))

    def absence(self, meta: Meta, children: list[Any]) -> ast.Absence:
        _, formula, extent = children
        window = None if extent is None else _window(extent, "FOR", extent.span)
        return ast.Absence(formula, window, span=_over(meta))

    def permutation(self, meta: Meta, children: list[Any]) -> ast.Permutation:
        return ast.Permutation(tuple(children), span=_over(meta))

    def without(self, meta: Meta, children: list[Any]) -> ast.Without:
        return ast.Without(*children, span=_over(meta))

    def as_variable(self, meta: Meta, children: list[Any]) -> ast.As:
        formula, variable = children
        return ast.As(formula, _name(variable), span=_over(meta))

    def repetition(self, meta: Meta, children: list[Any]) -> ast.Iteration:
        formula, sign = children
        if sign == "?" and isinstance(formula, ast.Iteration) and formula.span.start == meta.start_pos:
            hint = f"leave it out, or write ({formula})? if the part may be missing"
            raise Mistake("'?' cannot make a repetition lazy: all matches are found", span_of(sign), hint)
        gap, least, most = sign[:-1], int(sign[-1] == "+"), 1 if sign[-1] == "?" else None
        return _iteration(formula, gap, least, most, _over(meta))

    def exactly(self, meta: Meta, children: list[Any]) -> ast.Iteration:
        formula, brace, number = children
        count = _count(number, "repetition")
        return _iteration(formula, brace[:-1], count, count, _over(meta))

    def at_least(self, meta: Meta, children: list[Any]) -> ast.Iteration:
        formula, brace, low, high = children
        most = None if high is None else _count(high, "repetition")
        return _iteration(formula, brace[:-1], _count(low, "repetition"), most, _over(meta))

    def atom(self, meta: Meta, children: list[Any]) -> ast.Atom:
        stream, _, event_type, predicate = children
        if event_type.type == "ANY_EVENT" and stream is not None:
            hint = "write _ for any event, or a type of the stream"
            raise Mistake(f"'{stream}>_' is not possible: _ is an event of any stream", _over(meta), hint)
        name = None if event_type.type == "ANY_EVENT" else _name(event_type)
        return ast.Atom(name, _name(stream) if stream is not None else None, predicate, span=_over(meta))

    def any_condition(self, meta: Meta, children: list[Any]) -> ast.AnyCondition:
        return ast.AnyCondition(tuple(children), span=_over(meta))

    def all_conditions(self, meta: Meta, children: list[Any]) -> ast.AllConditions:
        return ast.AllConditions(tuple(children), span=_over(meta))

    def variable_condition(self, meta: Meta, children: list[Any]) -> ast.VariableCondition:
        variable, predicate = children
        return ast.VariableCondition(_name(variable), predicate, span=_over(meta))

    def any_predicate(self, meta: Meta, children: list[Any]) -> ast.AnyPredicate:
        return ast.AnyPredicate(tuple(children), span=_over(meta))

    def all_predicates(self, meta: Meta, children: list[Any]) -> ast.AllPredicates:
        return ast.AllPredicates(tuple(children), span=_over(meta))

    def not_(self, meta: Meta, children: list[Any]) -> ast.Not:
        return ast.Not(children[1], span=_over(meta))

    def compare(self, meta: Meta, children: list[Any]) -> ast.Compare:
        left, operator, right = children
        same = {"==": "=", "<>": "!="}
        return ast.Compare(left, same.get(operator, str(operator)), right, span=_over(meta))

    def in_set(self, meta: Meta, children: list[Any]) -> ast.InSet:
        value, negation, *items = children
        if items == [None]:
            raise Mistake("IN {} is never true", _over(meta), "list at least one value")
        return ast.InSet(value, tuple(items), negation is not None, span=_over(meta))

    def in_range(self, meta: Meta, children: list[Any]) -> ast.InRange:
        value, negation, low, high = children
        return ast.InRange(value, low, high, negation is not None, span=_over(meta))

    def between(self, meta: Meta, children: list[Any]) -> ast.Between:
        value, negation, low, high = children
        return ast.Between(value, low, high, negation is not None, span=_over(meta))

    def in_list(self, meta: Meta, children: list[Any]) -> ast.InList:
        value, negation, values = children
        return ast.InList(
            value, ast.Parameter(values[1:], span=span_of(values)), negation is not None, span=_over(meta)
        )

    def like(self, meta: Meta, children: list[Any]) -> ast.Like:
        value, negation, word, pattern = children
        constant = self.parameter(meta, [pattern]) if pattern.type == "PARAMETER" else self.string(meta, [pattern])
        constant = replace(constant, span=span_of(pattern))
        return ast.Like(
            value, constant, word.type == "RLIKE", negation is not None, word.type == "ILIKE", span=_over(meta)
        )

    def call(self, meta: Meta, children: list[Any]) -> ast.Call:
        name, *arguments = children
        function = ast.Name(name.upper(), span=span_of(name))
        return ast.Call(function, () if arguments == [None] else tuple(arguments), span=_over(meta))

    def branch(self, meta: Meta, children: list[Any]) -> ast.Branch:
        return ast.Branch(*children, span=_over(meta))

    def case(self, meta: Meta, children: list[Any]) -> ast.Case:
        compared, *branches, otherwise = children
        return ast.Case(compared, tuple(branches), otherwise, span=_over(meta))

    def is_null(self, meta: Meta, children: list[Any]) -> ast.IsNull:
        value, negation, _ = children
        return ast.IsNull(value, negation is not None, span=_over(meta))

    def sum(self, meta: Meta, children: list[Any]) -> ast.Arithmetic:
        return ast.Arithmetic(tuple(children[::2]), tuple(map(str, children[1::2])), span=_over(meta))

    product = sum

    def negative(self, meta: Meta, children: list[Any]) -> ast.Predicate:
        value = children[1]
        if isinstance(value, ast.Constant) and _is_unsigned_number(value.value):
            return ast.Constant(-cast("int | Decimal", value.value), span=_over(meta))
        return ast.Negative(value, span=_over(meta))

    def negative_number(self, meta: Meta, children: list[Any]) -> ast.Constant:
        return ast.Constant(-_number(children[1]), span=_over(meta))

    def attribute(self, meta: Meta, children: list[Any]) -> ast.Attribute:
        first, *others = map(_name, children)
        if not others:
            return ast.Attribute(first, span=_over(meta))
        return ast.Attribute(others[0], first, tuple(others[1:]), span=_over(meta))

    def number(self, meta: Meta, children: list[Any]) -> ast.Constant:
        return ast.Constant(_number(children[0]), span=_over(meta))

    def parameter(self, meta: Meta, children: list[Any]) -> ast.Parameter:
        return ast.Parameter(children[0][1:], span=_over(meta))

    def length(self, meta: Meta, children: list[Any]) -> _Quantity:
        number, unit = children
        return _Quantity(_number(number), unit, str(number), _over(meta))

    def duration(self, meta: Meta, children: list[Any]) -> ast.Duration:
        return ast.Duration(tuple((part.amount, _unit(part, "")) for part in children), span=_over(meta))

    def string(self, meta: Meta, children: list[Any]) -> ast.Constant:
        return ast.Constant(_unquoted(children[0]), span=_over(meta))

    def named_constant(self, meta: Meta, children: list[Any]) -> ast.Constant:
        return ast.Constant({"TRUE": True, "FALSE": False, "NULL": None}[children[0].type], span=_over(meta))

    def name_list(self, meta: Meta, children: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(_name(token) for token in children)


def _iteration(formula: ast.Formula, gap: str, least: int, most: int | None, span: Span) -> ast.Iteration:
    if most is not None and most < least:
        raise Mistake(f"{{{least},{most}}} allows no number of rounds", span, "the smaller number comes first")
    if most == 0:
        raise Mistake("{0} repeats a part no time, so it matches nothing", span, "leave it out, or write NOT before it")
    # A single round has no gap.
    return ast.Iteration(formula, ast.Gap(gap or ";") if most != 1 else ast.Gap.ANY, least, most, span=span)


class _Clause:
    """One of the optional clauses, before their order is checked."""

    def __init__(self, keyword: str, span: Span, value: object) -> None:
        self.keyword, self.span, self.value = keyword, span, value


class _Quantity:
    """A number with a unit, as in `30 minutes`; `written` is the number as the user wrote it."""

    def __init__(self, amount: int | Decimal, unit: Token | None, written: str, span: Span) -> None:
        self.amount, self.unit, self.written, self.span = amount, unit, written, span

    @property
    def counts_events(self) -> bool:
        return self.unit is not None and self.unit.lower() in ("event", "events")


class _Extent:
    """What stands after WITHIN and FOR, as in `1 hour 30 minutes [t]`."""

    def __init__(self, quantities: list[_Quantity], attribute: ast.Name | None, span: Span) -> None:
        self.quantities, self.attribute, self.span = quantities, attribute, span


def _in_order(clauses: list[_Clause]) -> dict[str, Any]:
    found: dict[str, _Clause] = {}
    for clause in clauses:
        if clause.keyword in found:
            earlier = found[clause.keyword].span
            raise Mistake(f"{clause.keyword} is given twice", clause.span, related=earlier)
        for other in found.values():
            if CLAUSES.index(other.keyword) > CLAUSES.index(clause.keyword):
                raise Mistake(
                    f"{clause.keyword} must come before {other.keyword}",
                    clause.span,
                    ORDER_HINT,
                    other.span,
                )
        found[clause.keyword] = clause
    return {keyword: clause.value for keyword, clause in found.items()}


def _window(extent: _Extent, keyword: str, span: Span) -> ast.Window:
    quantities, attribute = extent.quantities, extent.attribute
    for quantity in quantities:
        if quantity.written.startswith("-"):
            smallest = "the smallest window is 0" if keyword == "WITHIN" else "the shortest time is 0"
            raise Mistake(f"{keyword} {quantity.written} is negative", quantity.span, smallest)
    first = quantities[0]
    if len(quantities) == 1 and first.counts_events:
        if keyword == "FOR":
            hint = "write a duration, as in FOR 10 minutes, or a number of an attribute, as in FOR 10 [t]"
            raise Mistake("FOR cannot count events", span, hint)
        return _events_window(first, attribute, span)
    if len(quantities) == 1 and first.unit is None:
        if attribute is None:
            choices = [f"{first.written} {unit}" for unit in ("EVENTS", "seconds", "[attribute]")]
            known = choices if keyword == "WITHIN" else choices[1:]
            hint = f"write {', '.join(known[:-1])} or {known[-1]}"
            raise Mistake(f"{keyword} {first.written} has no unit", span, hint)
        return ast.AttributeWindow(first.amount, attribute, span=span)
    return ast.DurationWindow(tuple((q.amount, _unit(q, keyword)) for q in quantities), attribute, span=span)


def _events_window(quantity: _Quantity, attribute: ast.Name | None, span: Span) -> ast.EventsWindow:
    if attribute is not None:
        raise Mistake(f"a window in EVENTS takes no attribute '{attribute.text}'", attribute.span)
    if not isinstance(quantity.amount, int):
        raise Mistake(f"WITHIN {quantity.written} EVENTS is not a whole number", quantity.span)
    if quantity.amount > MAX_COUNT:
        raise Mistake(f"WITHIN {quantity.written} EVENTS is too large", quantity.span, UNBOUNDED_HINT)
    return ast.EventsWindow(quantity.amount, span=span)


def _unit(quantity: _Quantity, keyword: str) -> str:
    if quantity.unit is None:
        raise Mistake(f"'{quantity.written}' has no unit of time", quantity.span, f"units are {', '.join(UNITS)}")
    if quantity.counts_events:
        hint = "give either a number of EVENTS or a duration" if keyword == "WITHIN" else "give a duration"
        raise Mistake(f"'{quantity.unit}' is not a unit of time", span_of(quantity.unit), hint)
    word = quantity.unit.lower()
    unit = _UNIT_SYNONYMS.get(word) or word.removesuffix("s")
    unit = _UNIT_SYNONYMS.get(unit, unit)
    if unit not in UNITS:
        also = ["events"] if keyword == "WITHIN" else []
        known = [*(unit + "s" for unit in UNITS), *UNITS, *also]
        units = " and ".join([", ".join(UNITS), *also])
        hint = _UNIT_HINTS.get(word) or did_you_mean(word, known) or f"units are {units}"
        raise Mistake(f"unknown unit '{quantity.unit}'", span_of(quantity.unit), hint)
    return unit if quantity.amount == 1 else unit + "s"


def _word(token: Token, choices: Any, what: str, also: str = "") -> Any:
    try:
        return choices[token.upper()]
    except KeyError:
        words = ", ".join(choice.name for choice in choices)
        hint = did_you_mean(token, [choice.name for choice in choices]) or f"choose from {words}{also}"
        raise Mistake(f"unknown {what} '{token}'", span_of(token), hint) from None


def _name(token: Token) -> ast.Name:
    text = token[1:-1].replace("``", "`") if token.type == "QUOTED_NAME" else str(token)
    return ast.Name(text, span=span_of(token))


def _is_none(name: ast.Name) -> bool:
    """Whether a name is the word NONE. With backticks it is a variable, and two characters longer than its text."""
    return name.text.lower() == "none" and name.span.end - name.span.start == len(name.text)


def _unquoted(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _number(token: Token) -> int | Decimal:
    if len(token) > MAX_NUMBER_LENGTH:
        raise Mistake(f"the number '{token[:12]}...' has more than {MAX_NUMBER_LENGTH} characters", span_of(token))
    if token.isdecimal():
        return int(token)
    try:
        number = Decimal(str(token))
    except InvalidOperation:
        number = Decimal("inf")
    if not number.is_finite() or not -MAX_NUMBER_LENGTH < number.adjusted() < MAX_NUMBER_LENGTH:
        raise Mistake(f"the number '{token}' is out of range", span_of(token))
    return number


def _count(token: Token, what: str) -> int:
    number = _number(token)
    if not isinstance(number, int):
        raise Mistake(f"{what} {token} is not a whole number", span_of(token))
    if number > MAX_COUNT:
        raise Mistake(f"{what} {token} is too large", span_of(token))
    return number


def _is_unsigned_number(value: ast.ConstantValue) -> bool:
    if isinstance(value, Decimal):
        return not value.is_signed()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
