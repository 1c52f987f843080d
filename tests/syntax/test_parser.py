"""What the parser must read, how tightly things bind, and where each node says it stands."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import ceql
from ceql.syntax import ast
from ceql.syntax.ast import Consumption, Strategy
from ceql.syntax.parser import MAX_NESTING, UNITS, parse

IDENTITY = Path(__file__).parents[1] / "fixtures" / "identity.txt"


def formula(text: str) -> ast.Formula:
    return parse(f"SELECT * FROM S WHERE {text}").formula


def condition(text: str) -> ast.Condition:
    tree = formula(f"A FILTER {text}")
    assert isinstance(tree, ast.Filter)
    return tree.condition


def predicate(text: str) -> ast.Predicate:
    tree = condition(f"A[{text}]")
    assert isinstance(tree, ast.VariableCondition)
    return tree.predicate


def clauses(text: str) -> ast.Query:
    return parse(f"SELECT * FROM S WHERE A {text}")


# --- printing -----------------------------------------------------------------------

IDENTICAL = [line for line in IDENTITY.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("line", IDENTICAL)
def test_prints_back_unchanged(line: str) -> None:
    text = line.replace(" | ", "\n")
    tree = parse(text)
    assert str(tree) == text
    assert parse(str(tree)) == tree


# --- spellings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("select * from S where A", "SELECT * FROM S WHERE A"),
        ("SeLeCt AlL * fRoM S wHeRe A", "SELECT * FROM S WHERE A"),
        ("SELECT ALL x FROM S WHERE A AS x", "SELECT x FROM S WHERE A AS x"),
        ("SELECT none FROM S WHERE A", "SELECT NONE FROM S WHERE A"),
        ("SELECT*FROM S WHERE(A)", "SELECT * FROM S WHERE A"),
        ("SELECT * FROM S WHERE ((((A))))", "SELECT * FROM S WHERE A"),
        ("\n\t SELECT *\r\nFROM S\u00a0WHERE A \n", "SELECT * FROM S WHERE A"),
        ("-- first\nSELECT * FROM S WHERE A -- last", "SELECT * FROM S WHERE A"),
        ("SELECT /* a; b */ * FROM S WHERE A /**/ ; /* * / */ B", "SELECT * FROM S WHERE A ; B"),
        ("SELECT * FROM S WHERE A --;\n; B", "SELECT * FROM S WHERE A ; B"),
        ("SELECT * FROM S WHERE `A`", "SELECT * FROM S WHERE A"),
        ("SELECT * FROM S WHERE A: B", "SELECT * FROM S WHERE A : B"),
        ("SELECT * FROM S WHERE A:+:B", "SELECT * FROM S WHERE (A:+) : B"),
        ("SELECT * FROM S WHERE A : (B)+", "SELECT * FROM S WHERE A : B+"),
        ("SELECT * FROM S WHERE A PARTITION BY [a, b], [c]", "SELECT * FROM S WHERE A PARTITION BY [a], [b], [c]"),
        ("SELECT * FROM S WHERE A CONSUME BY none", "SELECT * FROM S WHERE A"),
        ("SELECT * FROM S WHERE A CONSUME BY partition", "SELECT * FROM S WHERE A CONSUME BY PARTITION"),
        ("SELECT * FROM S WHERE A WITHIN 1 event", "SELECT * FROM S WHERE A WITHIN 1 EVENTS"),
        ("SELECT * FROM S WHERE A WITHIN 90 MIN", "SELECT * FROM S WHERE A WITHIN 90 minutes"),
        ("SELECT * FROM S WHERE A WITHIN 1 h 1 ms [t]", "SELECT * FROM S WHERE A WITHIN 1 hour 1 millisecond [t]"),
        (
            "CREATE STREAM S { EVENT A { a: int, }, } SELECT * FROM S WHERE A",
            "create stream S {event A {a:int}} select * from S where A",
        ),
    ],
)
def test_spellings_of_one_query(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x == 1", "x = 1"),
        ("x <> 1", "x != 1"),
        ('s = "a"', "s = 'a'"),
        ('s = "it\'s"', "s = 'it''s'"),
        ('s = "say ""no"""', "s = 'say \"no\"'"),
        ("x=-1", "x = -1"),
        ("x - 1>2", "x - 1 > 2"),
        ("x in{1,2}", "x IN {1, 2}"),
        ("x IN {1..9}", "x IN {1 .. 9}"),
        ("x IN {1.5..2.5}", "x IN {1.5 .. 2.5}"),
        ("x IN {.5...9}", "x IN {0.5 .. 0.9}"),
        ("x is not null and TRUE", "x IS NOT NULL AND TRUE"),
        ("((x)) = ((1))", "x = 1"),
        ("x = 1e3", "x = 1000.0"),
        ("x = 1.E0", "x = 1.0"),
        ("x > 1--comment\n", "x > 1"),
    ],
)
def test_spellings_of_one_predicate(text: str, same: str) -> None:
    assert predicate(text) == predicate(same)


@pytest.mark.parametrize("word", ["event", "events", "stream", "type", "any", "all", "last", "next", "max", "strict"])
def test_soft_words_are_names_everywhere(word: str) -> None:
    text = (
        f"CREATE STREAM {word} {{ EVENT {word} {{ {word}: int }} }} SELECT {word}[{word}] FROM {word} "
        f"WHERE {word}>{word} AS {word} FILTER {word}[{word}.{word} > 1] PARTITION BY [{word}] WITHIN 1 [{word}]"
    )
    tree = parse(text)
    assert parse(str(tree)) == tree
    assert tree.select.selected == (ast.Selected(ast.Name(word), (ast.Name(word),)),)
    assert tree.select.strategy is Strategy.ALL


@pytest.mark.parametrize("word", sorted(ast.RESERVED))
def test_reserved_words_are_names_between_backticks(word: str) -> None:
    text = f"SELECT `{word}` FROM `{word}` WHERE A AS `{word}` FILTER `{word}`[`{word}` = 1] PARTITION BY [`{word}`]"
    tree = parse(text)
    assert tree.partition_by == (ast.Name(word),)
    assert parse(str(tree)) == tree
    with pytest.raises(ceql.QueryError, match=rf"(?i){word}"):
        parse(f"SELECT * FROM S WHERE A AS {word}")


@pytest.mark.parametrize(
    ("quoted", "name"), [("`a b`", "a b"), ("`a``b`", "a`b"), ("`'`", "'"), ("`é--/*`", "é--/*"), ("` `", " ")]
)
def test_backtick_names(quoted: str, name: str) -> None:
    assert formula(quoted) == ast.Atom(ast.Name(name))
    assert str(formula(quoted)) == quoted


@pytest.mark.parametrize("name", ["Größe", "事件", "имя", "x1", "_x", "selectx", "as_", "e\u0301tat", "ª"])
def test_names_of_all_alphabets(name: str) -> None:
    if "\u0301" in name:
        # A combining mark is no letter: such names need backticks.
        name = f"`{name}`"
    assert str(formula(f"{name} AS {name}")) == f"{name} AS {name}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("-1", -1),
        ("9223372036854775808", 2**63),
        ("1.", Decimal("1")),
        (".5", Decimal("0.5")),
        ("1.50", Decimal("1.50")),
        ("1e3", Decimal("1000")),
        ("2.5E-3", Decimal("0.0025")),
        ("'1'", "1"),
        ("true", True),
        ("False", False),
        ("null", None),
    ],
)
def test_constants(text: str, value: object) -> None:
    tree = predicate(f"x = {text}")
    assert isinstance(tree, ast.Compare)
    assert isinstance(tree.right, ast.Constant)
    assert (type(tree.right.value), tree.right.value) == (type(value), value)


@pytest.mark.parametrize("unit", UNITS)
def test_units_in_all_their_forms(unit: str) -> None:
    for form in (unit, unit + "s", unit.upper(), unit.capitalize() + "s"):
        assert clauses(f"WITHIN 3 {form}").window == ast.DurationWindow(((3, unit + "s"),))


@pytest.mark.parametrize(("word", "strategy"), [(one.value.lower(), one) for one in Strategy])
def test_strategies(word: str, strategy: Strategy) -> None:
    assert parse(f"SELECT {word} * FROM S WHERE A").select.strategy is strategy


@pytest.mark.parametrize(("word", "consumption"), [(one.value.lower(), one) for one in Consumption])
def test_consumption(word: str, consumption: Consumption) -> None:
    assert clauses(f"CONSUME BY {word}").consumption is consumption


# --- binding strength ---------------------------------------------------------------


def shown(node: ast.Node) -> str:
    """Return a tree with parentheses around every operator, chains kept whole."""
    match node:
        case ast.As():
            return f"({shown(node.formula)} AS {node.variable})"
        case ast.Iteration():
            return f"({shown(node.formula)}{ast.repetition_text(node.gap, node.least, node.most)})"
        case ast.Sequence():
            first, *rest = map(shown, node.parts)
            following = (f" {gap.value} {part}" for gap, part in zip(node.gaps, rest, strict=True))
            return f"({first}{''.join(following)})"
        case ast.Or() | ast.AnyCondition() | ast.AnyPredicate():
            return f"({' OR '.join(map(shown, node.parts))})"
        case ast.AllConditions() | ast.AllPredicates():
            return f"({' AND '.join(map(shown, node.parts))})"
        case ast.Filter():
            return f"({shown(node.formula)} FILTER {shown(node.condition)})"
        case ast.Project():
            return f"({shown(node.formula)} PROJECT [{', '.join(map(str, node.variables))}])"
        case ast.VariableCondition():
            return f"{node.variable}[{shown(node.predicate)}]"
        case ast.Not():
            return f"(NOT {shown(node.predicate)})"
        case ast.Compare():
            return f"({shown(node.left)} {node.operator} {shown(node.right)})"
        case ast.Between():
            return f"({shown(node.value)} BETWEEN {shown(node.low)} AND {shown(node.high)})"
        case ast.Arithmetic():
            first, *rest = map(shown, node.operands)
            return f"({first}{''.join(f' {sign} {part}' for sign, part in zip(node.operators, rest, strict=True))})"
        case ast.Negative():
            return f"(-{shown(node.value)})"
    return str(node)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("A ; B ; C", "(A ; B ; C)"),
        ("A ; B : C", "(A ; B : C)"),
        ("A ; (B ; C)", "(A ; (B ; C))"),
        ("(A ; B) ; C", "((A ; B) ; C)"),
        ("A OR B OR C", "(A OR B OR C)"),
        ("A ; B OR C : D", "((A ; B) OR (C : D))"),
        ("A ; B+", "(A ; (B+))"),
        ("A ; B AS x", "(A ; (B AS x))"),
        ("A AS x+", "((A AS x)+)"),
        ("A+ AS x", "((A+) AS x)"),
        ("A+:+", "((A+):+)"),
        ("A OR B+", "(A OR (B+))"),
        ("A:+ : B", "((A:+) : B)"),
        ("A ; B FILTER A[x = 1]", "((A ; B) FILTER A[(x = 1)])"),
        ("A OR B FILTER A[x = 1]", "((A OR B) FILTER A[(x = 1)])"),
        ("A OR (B FILTER B[x = 1])", "(A OR (B FILTER B[(x = 1)]))"),
        ("A PROJECT [A] FILTER A[x = 1]", "((A PROJECT [A]) FILTER A[(x = 1)])"),
        ("A FILTER A[x = 1] PROJECT []", "((A FILTER A[(x = 1)]) PROJECT [])"),
        ("A FILTER A[p] AND A[q] OR A[r]", "(A FILTER ((A[p] AND A[q]) OR A[r]))"),
        ("A FILTER A[p] OR A[q] AND A[r]", "(A FILTER (A[p] OR (A[q] AND A[r])))"),
        ("A FILTER (A[p] OR A[q]) AND A[r]", "(A FILTER ((A[p] OR A[q]) AND A[r]))"),
    ],
)
def test_binding_of_formulas(text: str, tree: str) -> None:
    assert shown(formula(text)) == tree
    assert shown(formula(tree)) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("p OR q AND r", "(p OR (q AND r))"),
        ("p AND q OR r AND s", "((p AND q) OR (r AND s))"),
        ("NOT p AND q", "((NOT p) AND q)"),
        ("NOT x = 1", "(NOT (x = 1))"),
        ("NOT p OR NOT q", "((NOT p) OR (NOT q))"),
        ("x = 1 AND y < 2", "((x = 1) AND (y < 2))"),
        ("x + 1 < y * 2", "((x + 1) < (y * 2))"),
        ("x + y * z - 1 = 0", "((x + (y * z) - 1) = 0)"),
        ("x * y + z / 2 % 3 = 0", "(((x * y) + (z / 2 % 3)) = 0)"),
        ("-x * y = 0", "(((-x) * y) = 0)"),
        ("-x - -y = 0", "(((-x) - (-y)) = 0)"),
        ("- 1 = x", "(-1 = x)"),
        ("x BETWEEN 1 AND 2 AND p", "((x BETWEEN 1 AND 2) AND p)"),
        ("x BETWEEN y + 1 AND z OR p", "((x BETWEEN (y + 1) AND z) OR p)"),
        ("(x = 1) = (y = 1)", "((x = 1) = (y = 1))"),
    ],
)
def test_binding_of_predicates(text: str, tree: str) -> None:
    assert shown(predicate(text)) == tree
    assert shown(predicate(tree)) == tree


# --- long and deep ------------------------------------------------------------------

SHAPES = {
    ";": ("{}", "Order_Placed", " ; "),
    ":": ("{}", "Order_Placed", " : "),
    "OR": ("{}", "Order_Placed", " OR "),
    "AND of conditions": ("A FILTER {}", "A[price >= 100.25]", " AND "),
    "OR of conditions": ("A FILTER {}", "A[price >= 100.25]", " OR "),
    "AND of predicates": ("A FILTER A[{}]", "price >= 100.25", " AND "),
    "OR of predicates": ("A FILTER A[{}]", "price >= 100.25", " OR "),
    "sum": ("A FILTER A[{} > 1]", "price", " + "),
    "set": ("A FILTER A[price IN {{{}}}]", "100.25", ", "),
}
LENGTHS = dict.fromkeys(SHAPES, 100_000) | {";": 1_000_000, "AND of predicates": 1_000_000}


@pytest.mark.parametrize("shape", SHAPES)
def test_flat_queries_may_be_long(shape: str) -> None:
    template, piece, separator = SHAPES[shape]
    n_parts = LENGTHS[shape] // len(piece + separator) + 1
    text = "SELECT * FROM S WHERE " + template.format(separator.join([piece] * n_parts))
    assert len(text) >= LENGTHS[shape]
    query = ceql.compile(text)
    assert n_parts in {len(value) for node in walk(query.tree.formula) for value in chains(node)}
    assert query.automaton.n_states == (n_parts + 1 if shape in ";:" else 2)


def chains(node: ast.Node) -> Iterator[tuple[object, ...]]:
    yield from (value for name in node.__dataclass_fields__ if isinstance(value := getattr(node, name), tuple))


def walk(node: ast.Node) -> Iterator[ast.Node]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children()


@pytest.mark.parametrize(
    ("opening", "inside", "closing"),
    [
        ("(", "A", ")"),
        ("", "A", "+"),
        ("", "A", " AS x"),
        ("", "A", " FILTER A[x = 1]"),
        ("A ; (", "A", ")"),
        ("A OR (", "A", ")"),
    ],
)
def test_nesting_is_bounded(opening: str, inside: str, closing: str) -> None:
    # Each round may be two levels deep in the tree, so a third of the bound is always allowed.
    n_levels = MAX_NESTING // 3
    assert isinstance(formula(opening * n_levels + inside + closing * n_levels), ast.Formula)
    with pytest.raises(ceql.QueryError, match="nested deeper than 200 levels"):
        formula(opening * 2 * MAX_NESTING + inside + closing * 2 * MAX_NESTING)


# --- spans --------------------------------------------------------------------------

SPANNED = """CREATE STREAM S { EVENT A { a: int, d: decimal(10, 2) } }
SELECT NEXT x[a, d], `y z`, x
FROM S, T -- a comment
WHERE ( S>A AS x ; B+ : C ) AS `y z` OR (D FILTER D[a = 1 AND NOT s LIKE 'p%'])
  FILTER x[a + 1 > -(x.b) OR c IN {1, 'two'}] AND (x[d BETWEEN 1 AND 2.5] OR `y z`[e IN {1 .. 2} AND f IS NULL])
  PROJECT [x, `y z`]
PARTITION BY [k], [m]
WITHIN 10 [t]"""

TEXTS = {
    ast.StreamDeclaration: ["CREATE STREAM S { EVENT A { a: int, d: decimal(10, 2) } }"],
    ast.EventDeclaration: ["EVENT A { a: int, d: decimal(10, 2) }"],
    ast.AttributeDeclaration: ["a: int", "d: decimal(10, 2)"],
    ast.Selected: ["x[a, d]", "`y z`", "x"],
    ast.Atom: ["S>A", "B", "C", "D"],
    ast.As: ["S>A AS x", "( S>A AS x ; B+ : C ) AS `y z`"],
    ast.Iteration: ["B+"],
    ast.Sequence: ["S>A AS x ; B+ : C"],
    ast.VariableCondition: [
        "D[a = 1 AND NOT s LIKE 'p%']",
        "x[a + 1 > -(x.b) OR c IN {1, 'two'}]",
        "x[d BETWEEN 1 AND 2.5]",
        "`y z`[e IN {1 .. 2} AND f IS NULL]",
    ],
    ast.AnyCondition: ["x[d BETWEEN 1 AND 2.5] OR `y z`[e IN {1 .. 2} AND f IS NULL]"],
    ast.AnyPredicate: ["a + 1 > -(x.b) OR c IN {1, 'two'}"],
    ast.AllPredicates: ["a = 1 AND NOT s LIKE 'p%'", "e IN {1 .. 2} AND f IS NULL"],
    ast.Not: ["NOT s LIKE 'p%'"],
    ast.Like: ["s LIKE 'p%'"],
    ast.Compare: ["a = 1", "a + 1 > -(x.b)"],
    ast.InSet: ["c IN {1, 'two'}"],
    ast.InRange: ["e IN {1 .. 2}"],
    ast.Between: ["d BETWEEN 1 AND 2.5"],
    ast.IsNull: ["f IS NULL"],
    ast.Arithmetic: ["a + 1"],
    ast.Negative: ["-(x.b)"],
    ast.Attribute: ["a", "s", "a", "x.b", "c", "d", "e", "f"],
    ast.Constant: ["1", "'p%'", "1", "1", "'two'", "1", "2.5", "1", "2"],
    ast.AttributeWindow: ["WITHIN 10 [t]"],
}


@pytest.mark.parametrize("kind", TEXTS, ids=lambda kind: kind.__name__)
def test_spans_cover_what_a_node_was_read_from(kind: type[ast.Node]) -> None:
    found = [node for node in walk(parse(SPANNED)) if isinstance(node, kind)]
    assert sorted(SPANNED[node.span.start : node.span.end] for node in found) == sorted(TEXTS[kind])


def test_spans_of_names() -> None:
    names = [node for node in walk(parse(SPANNED)) if isinstance(node, ast.Name)]
    assert len(names) > 30
    for name in names:
        assert SPANNED[name.span.start : name.span.end] in (name.text, f"`{name.text}`")


def test_spans_of_what_covers_all_to_its_left() -> None:
    starts = {
        type(node): SPANNED[node.span.start :].split()[0]
        for node in walk(parse(SPANNED).formula)
        if isinstance(node, ast.Project | ast.Or | ast.AllConditions)
    }
    ends = {
        type(node): SPANNED[: node.span.end].split()[-1]
        for node in walk(parse(SPANNED).formula)
        if isinstance(node, ast.Project | ast.Or | ast.AllConditions)
    }
    assert starts == {ast.Project: "(", ast.Or: "(", ast.AllConditions: "x[a"}
    assert ends == {ast.Project: "z`]", ast.Or: "'p%'])", ast.AllConditions: "NULL])"}


def test_children_lie_inside_their_parents() -> None:
    n_checked = 0
    for node in walk(parse(SPANNED).formula):
        for child in node.children():
            n_checked += 1
            assert node.span.start <= child.span.start < child.span.end <= node.span.end
    assert n_checked > 50


@pytest.mark.parametrize(
    ("clause", "kind"),
    [("WITHIN 3 EVENTS", ast.EventsWindow), ("WITHIN 1 hour 30 min [t]", ast.DurationWindow)],
)
def test_spans_of_windows(clause: str, kind: type[ast.Window]) -> None:
    text = f"SELECT * FROM S WHERE A\n  {clause}  LIMIT 3"
    window = parse(text).window
    assert isinstance(window, kind)
    assert text[window.span.start : window.span.end] == clause


def test_spans_take_no_part_in_equality() -> None:
    assert formula("A ;   B") == formula("A;B")
    assert hash(formula("A ;   B")) == hash(formula("A;B"))
    assert formula("A ; B") != formula("A : B")


@pytest.mark.parametrize("piece", ["a", "''"])
def test_long_strings_take_memory_in_proportion(piece: str) -> None:
    text = f"SELECT * FROM S WHERE A AS x FILTER x[s = '{piece * 500_000}']"
    parse("SELECT * FROM S WHERE A")
    tracemalloc.start()
    parse(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(text)
