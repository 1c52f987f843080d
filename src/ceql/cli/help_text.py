"""Commands whose help shows flags as they are given: without a value."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command of the command line."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, of which flags name no type of a value."""
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Commands below a name."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, of which flags name no type of a value."""
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(params: Any) -> Any:
    for parameter in params:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return params
