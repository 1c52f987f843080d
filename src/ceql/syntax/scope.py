"""The meaning of the names in a query: streams, event types, attributes, variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ceql.errors import Span, did_you_mean, listing
from ceql.schema import ANY_STREAM, UNKNOWN_TYPE, Attributes, EventType, Schema, Stream, kind_of
from ceql.syntax import ast
from ceql.syntax.mistakes import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


ANY_TYPE = ""
"""Stands for the types of a stream that does not declare them."""


def sources_of(query: ast.Query, schema: Schema) -> dict[str, Stream]:
    """Return the streams that FROM names."""
    sources: dict[str, Stream] = {}
    known = {stream.name: stream for stream in schema.streams}
    for name in query.sources:
        if name.text in sources:
            raise Mistake(f"stream '{name.text}' is named twice in FROM", name.span)
        if schema.is_unknown:
            sources[name.text] = Stream(name.text, {})
        elif ANY_STREAM in known:
            sources[name.text] = Stream(name.text, known[ANY_STREAM].columns)
        elif name.text in known:
            sources[name.text] = known[name.text]
        else:
            hint = did_you_mean(name.text, known) or f"streams are {listing(known)}"
            raise Mistake(f"unknown stream '{name.text}'", name.span, hint)
    if ANY_STREAM in known and len(sources) > 1:
        hint = "name one stream, or give the events as a dict of tables"
        raise Mistake("FROM lists several streams, but the events are one table", query.sources[1].span, hint)
    return sources


@dataclass
class Names:
    """The names that a formula introduces, in order of appearance, each with its first place.

    `columns` are the names that SELECT * shows: AS variables, and types of atoms under no AS. Names that an outer
    PROJECT drops do not count, so the columns hold every marked event. Names under NOT and WITHOUT hold no event.
    """

    variables: dict[str, ast.Name] = field(default_factory=dict)
    atoms: dict[tuple[str | None, str | None], ast.Atom] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)

    def introduced(self, name: str) -> ast.Name | None:
        """Return where a variable or event type first appears."""
        of_type = (atom.event_type for (_, event_type), atom in self.atoms.items() if event_type == name)
        return self.variables.get(name) or next(of_type, None)

    @property
    def known(self) -> list[str]:
        """Every name that can be a variable."""
        return [*self.columns, *(event_type for _, event_type in self.atoms if event_type is not None)]


def names_in(formula: ast.Formula) -> Names:
    """Return the variables and atoms of a formula."""
    names = Names()
    pending: list[tuple[ast.Formula, frozenset[str] | None, bool]] = [(formula, None, False)]
    while pending:
        node, kept, has_column = pending.pop()
        if isinstance(node, ast.Atom):
            names.atoms.setdefault(_atom_key(node), node)
            event_type = None if node.event_type is None else node.event_type.text
            if event_type is not None and not has_column and (kept is None or event_type in kept):
                names.columns.setdefault(event_type)
        elif isinstance(node, ast.As):
            names.variables.setdefault(node.variable.text, node.variable)
            if kept is None or node.variable.text in kept:
                names.columns.setdefault(node.variable.text)
                has_column = True
        elif isinstance(node, ast.Project):
            listed = frozenset(name.text for name in node.variables)
            kept = listed if kept is None else kept & listed
        pending += [(child, kept_below, has_column) for child, kept_below in reversed(_below(node, kept))]
    return names


def _below(node: ast.Formula, kept: frozenset[str] | None) -> list[tuple[ast.Formula, frozenset[str] | None]]:
    """Return the parts of a node with the names they may keep: what must not happen keeps none."""
    nothing: frozenset[str] = frozenset()
    if isinstance(node, ast.Without):
        return [(node.formula, kept), (node.absent, nothing)]
    kept = nothing if isinstance(node, ast.Absence) else kept
    return [(child, kept) for child in node.children() if isinstance(child, ast.Formula)]


def _atom_key(atom: ast.Atom) -> tuple[str | None, str | None]:
    names = (atom.stream, atom.event_type)
    stream, event_type = (None if name is None else name.text for name in names)
    return stream, event_type


class Owner(NamedTuple):
    """The owner of an attribute, in the words of errors."""

    lacks: str
    has: str

    @classmethod
    def of(cls, variable: str, types: Iterable[EventType]) -> Owner:
        """Return a variable as the owner; if it holds one event type, the type is the owner."""
        names = sorted({event_type for _, event_type in types})
        if names == [ANY_TYPE]:
            return cls("events have no", "they have")
        if len(names) == 1:
            return cls(f"event type {names[0]} has no", f"{names[0]} has")
        return cls(f"'{variable}' ({listing(names)}) has no", f"'{variable}' has")


PATTERN = Owner("no event type in the pattern has an", "they have")


class Scope:
    """The streams in FROM and the names in the pattern: what identifiers may refer to.

    `named` collects the attributes that were looked up.
    """

    def __init__(self, sources: dict[str, Stream], names: Names) -> None:
        self.sources = sources
        self.names = names
        self.named: set[str] = set()
        self.is_unknown = all(not stream.columns and stream.event_types is None for stream in sources.values())
        self._types = {key: self._types_of(atom) for key, atom in names.atoms.items()}
        order = dict.fromkeys(pair for types in self._types.values() for pair in sorted(types))
        self._order = {pair: index for index, pair in enumerate(order)}
        self.pattern_types = frozenset(order)
        named = (types for (_, event_type), types in self._types.items() if event_type is not None)
        self.named_types = frozenset().union(*named) or self.pattern_types
        """The types that the pattern names. Any other event is seen only if it has what WITHIN measures."""

    def types_of(self, atom: ast.Atom) -> frozenset[EventType]:
        """Return the (stream, type) pairs that an atom may match."""
        return self._types[_atom_key(atom)]

    def _types_of(self, atom: ast.Atom) -> frozenset[EventType]:
        if atom.stream is not None and atom.stream.text not in self.sources:
            hint = did_you_mean(atom.stream.text, self.sources) or f"FROM lists {listing(self.sources)}"
            raise Mistake(f"stream '{atom.stream.text}' is not in FROM", atom.stream.span, hint)
        streams = [atom.stream.text] if atom.stream is not None else list(self.sources)
        declared = {name: self.sources[name].event_types for name in streams}
        if atom.event_type is None:
            return frozenset((name, known) for name, types in declared.items() for known in types or (ANY_TYPE,))
        event_type = atom.event_type.text
        found = frozenset(
            (name, event_type) for name, types in declared.items() if types is None or event_type in types
        )
        if not found:
            known = [known for types in declared.values() for known in types or ()]
            hint = did_you_mean(event_type, known) or f"event types are {listing(known)}"
            message = f"unknown event type '{event_type}'"
            if atom.stream is not None:
                message = f"stream '{atom.stream.text}' has no event type '{event_type}'"
            raise Mistake(message, atom.event_type.span, hint)
        return found

    def ordered(self, types: Iterable[EventType]) -> Iterator[tuple[str, Attributes]]:
        """Yield event types with their attributes, in the order in which the pattern names them."""
        for stream, event_type in sorted(types, key=self._order.__getitem__):
            yield event_type, self.sources[stream].attributes_of(event_type)

    def declared(self) -> dict[EventType, Attributes]:
        """Return the attributes of each event type that a declaration names."""
        return {
            (stream.name, event_type): attributes
            for stream in self.sources.values()
            for event_type, attributes in (stream.event_types or {}).items()
        }

    def attributes_of(self, types: Iterable[EventType]) -> dict[str, pa.DataType]:
        """Return the attributes of some event types, each with the type that fits all of them.

        An attribute whose types do not fit together has type null.
        """
        merged: dict[str, pa.DataType] = {}
        for attributes in {id(attributes): attributes for _, attributes in self.ordered(types)}.values():
            for name, data_type in attributes.items():
                merged[name] = data_type if name not in merged else _common_type(merged[name], data_type)
        return merged

    def type_of_attribute(self, name: ast.Name, types: frozenset[EventType], owner: Owner) -> pa.DataType:
        """Return an attribute's type on events of some types, or raise if no event in the pattern has it."""
        self.named.add(name.text)
        if self.is_unknown:
            return UNKNOWN_TYPE
        own = self.attributes_of(types)
        available = own if name.text in own else self.attributes_of(self.pattern_types)
        if name.text not in available:
            hint = did_you_mean(name.text, own or available)
            has = f"{owner.has}: {listing(own)}" if own else None
            message = f"{owner.lacks} attribute '{name.text}'"
            raise Mistake(message, name.span, " ".join(filter(None, (hint, has))) or None)
        self.check_one_type(name.text, types, name.span)
        return available[name.text]

    def check_one_type(self, name: str, types: frozenset[EventType], span: Span) -> None:
        """Refuse an attribute that means different things on different event types."""
        kinds = {
            pair: kind_of(attributes[name]).value
            for pair in sorted(types, key=self._order.__getitem__)
            if name in (attributes := self.sources[pair[0]].attributes_of(pair[1]))
        }
        if len(set(kinds.values())) > 1 and pa.types.is_null(self.attributes_of(types)[name]):
            has_streams = len({stream for stream, _ in kinds}) > 1
            uses = ", ".join(
                f"{kind} in {f'{stream}>' if has_streams else ''}{event_type}"
                for (stream, event_type), kind in kinds.items()
            )
            raise Mistake(f"attribute '{name}' has several types: {uses}", span, "give them different names")


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the Arrow type that holds the values of both, null if there is none."""
    if left == right:
        return left
    if kind_of(left) is not kind_of(right) and not (kind_of(left).is_numeric and kind_of(right).is_numeric):
        return UNKNOWN_TYPE
    try:
        schemas = [pa.schema([("a", data_type)]) for data_type in (left, right)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("a").type
    except pa.ArrowTypeError:
        return UNKNOWN_TYPE


def part_type(whole: pa.DataType, part: ast.Name, path: str) -> pa.DataType:
    """Return the type of a part of an attribute, which `path` names; of what is not known, nothing is known."""
    if pa.types.is_null(whole):
        return UNKNOWN_TYPE
    if not pa.types.is_struct(whole):
        raise Mistake(f"'{path}' has no parts: it is of type {kind_of(whole).value}", part.span)
    names = [field.name for field in whole]
    if part.text not in names:
        hint = " ".join(filter(None, (did_you_mean(part.text, names), f"it has: {listing(names)}")))
        raise Mistake(f"'{path}' has no part '{part.text}'", part.span, hint)
    return whole.field(part.text).type
