"""CREATE STREAM to schema, checked against the data's columns if they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ceql.errors import did_you_mean, listing
from ceql.schema import ANY_STREAM, Attributes, Kind, Schema, Stream, kind_of
from ceql.syntax import ast
from ceql.syntax.mistakes import Mistake

if TYPE_CHECKING:
    from collections.abc import Collection

TYPES = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "integer": pa.int64(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "smallint": pa.int16(),
    "double": pa.float64(),
    "float": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
"""The types that an attribute may be declared with, besides `decimal(precision, scale)`."""

DEFAULT_DECIMAL = (38, 18)
MAX_PRECISION = 38


def declared_schema(
    declarations: tuple[ast.StreamDeclaration, ...], given: Schema, sources: Collection[str] = ()
) -> Schema:
    """Return the schema that CREATE STREAM declares.

    If the columns of a stream in FROM (`sources`) are known, each declared attribute must be one of them and of the
    declared kind. It keeps the column's own type, because results have the types of the data.
    """
    streams: dict[str, Stream] = {}
    for declaration in declarations:
        name = declaration.name
        if name.text in streams:
            raise Mistake(f"stream '{name.text}' is declared twice", name.span)
        streams[name.text] = _stream(declaration, _columns_of(name.text, given) if name.text in sources else None)
    return Schema(tuple(streams.values()))


def _columns_of(stream: str, given: Schema) -> Attributes | None:
    for candidate in given.streams:
        if candidate.name in (stream, ANY_STREAM):
            return candidate.columns
    return None


def _stream(declaration: ast.StreamDeclaration, columns: Attributes | None) -> Stream:
    event_types: dict[str, Attributes] = {}
    for event in declaration.events:
        if event.name.text in event_types:
            raise Mistake(f"event type '{event.name.text}' is declared twice", event.name.span)
        attributes: dict[str, pa.DataType] = {}
        for attribute in event.attributes:
            if attribute.name.text in attributes:
                raise Mistake(f"attribute '{attribute.name.text}' is declared twice", attribute.name.span)
            attributes[attribute.name.text] = _attribute_type(attribute, columns)
        event_types[event.name.text] = attributes
    return Stream(declaration.name.text, columns or {}, event_types)


def _attribute_type(declaration: ast.AttributeDeclaration, columns: Attributes | None) -> pa.DataType:
    declared = _declared_type(declaration)
    if columns is None:
        return declared
    name = declaration.name.text
    if name not in columns:
        hint = did_you_mean(name, columns) or f"the columns are {listing(columns)}"
        raise Mistake(f"attribute '{name}' is declared, but the events have no such column", declaration.span, hint)
    kind = kind_of(columns[name])
    if kind not in (kind_of(declared), Kind.UNKNOWN):
        fitting = next((word for word, data_type in TYPES.items() if kind_of(data_type) is kind), None)
        raise Mistake(
            f"attribute '{name}' is declared as {declaration.type_name.text}, but the column is of type {kind.value}",
            declaration.span,
            f"declare it as {fitting}" if fitting else None,
        )
    return columns[name]


def _declared_type(declaration: ast.AttributeDeclaration) -> pa.DataType:
    word = declaration.type_name.text.lower()
    if word == "decimal":
        precision, scale = (*declaration.arguments, 0)[:2] if declaration.arguments else DEFAULT_DECIMAL
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            limit = f"precision goes from 1 to {MAX_PRECISION}, scale up to the precision"
            message = f"attribute '{declaration.name.text}' cannot be decimal({precision}, {scale})"
            raise Mistake(message, declaration.span, limit)
        return pa.decimal128(precision, scale)
    if word not in TYPES:
        hint = did_you_mean(word, [*TYPES, "decimal"]) or f"types are {listing([*TYPES, 'decimal'], limit=20)}"
        raise Mistake(f"unknown type '{declaration.type_name.text}'", declaration.type_name.span, hint)
    if declaration.arguments:
        raise Mistake(f"type {declaration.type_name.text} takes no arguments", declaration.span, "only decimal does")
    return TYPES[word]
