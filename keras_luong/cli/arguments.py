"""Fields of dataclasses as a command line's arguments, for cyclopts.

Cyclopts reads a function's signature; `signature` makes one of dataclasses: a panel of
the help for each, a parameter for each field, and its text from the class's docstring.

Of tyro, jsonargparse and cyclopts, cyclopts is the one whose errors can be caught and
said in our own words, and which tells what was given from what was left to its default.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import cyclopts
import docstring_parser

from keras_luong.config.fields import choices_of, hints_of, kinds_of

WORDS = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}
_ONLY_BY_PLACE = inspect.Parameter.POSITIONAL_ONLY
_ONLY_BY_NAME = inspect.Parameter.KEYWORD_ONLY


def signature(
    panels: Mapping[str, type],
    defaults: Mapping[str, Any] | None = None,
    positional: Sequence[str] = (),
    exclusive: Sequence[str] = (),
    repeated: Sequence[str] = (),
    complete: bool = True,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> inspect.Signature:
    """The signature whose arguments are the fields of some dataclasses.

    Args:
        panels: Title in the help → dataclass.
        defaults: Other defaults than the dataclasses', by field.
        positional: Fields that are given by their place.
        exclusive: Fields of which one at most can be given.
        repeated: Lists that take one value each time that they are given.
        complete: Whether defaults are what counts where nothing is given, so that flags
            have an opposite, as --no-shared, and help says none.
        shown: What help says in place of a default, by field.
    """
    exclude = cyclopts.Group(
        validator=cyclopts.validators.MutuallyExclusive(), show=False
    )
    parameters: dict[str, inspect.Parameter] = {}
    show = _shown if complete else _shown_unless_none
    for order, (title, config_class) in enumerate(panels.items()):
        panel = cyclopts.Group(title, sort_key=order)
        hints, texts = hints_of(config_class), _texts(config_class)
        for field in _own_fields(config_class):
            name, hint = field.name, hints[field.name]
            about = cyclopts.Parameter(
                help=texts[name],
                negative=None if complete else "",
                # The last one counts, so that aliases and scripts can be overruled.
                allow_repeating=True,
                # At least one where there are several; none at all is not the default.
                consume_multiple=_consumed(hint, name in repeated),
                group=(panel, exclude) if name in exclusive else panel,
                converter=_converter(hint),
                show_default=_saying(shown[name]) if name in shown else show,
            )
            parameters[name] = inspect.Parameter(
                name,
                _ONLY_BY_PLACE if name in positional else _ONLY_BY_NAME,
                default=(defaults or {}).get(name, _default(field)),
                annotation=Annotated[_plain(hint), about],
            )
    places = [*positional, *(name for name in parameters if name not in positional)]
    return inspect.Signature([parameters[name] for name in places])


def _own_fields(config_class: type) -> list[dataclasses.Field[Any]]:
    """The fields that a dataclass declares itself; those above have panels too."""
    own = vars(config_class).get("__annotations__", {})
    return [field for field in dataclasses.fields(config_class) if field.name in own]


def _shown(value: Any) -> Any:
    """A default as help shows it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def _saying(text: str) -> Callable[[Any], str]:
    return lambda default: text


def _shown_unless_none(value: Any) -> Any:
    return "" if value is None or value is False else _shown(value)


def _default(field: dataclasses.Field[Any]) -> Any:
    missing = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if missing else field.default


def _texts(config_class: type) -> dict[str, str]:
    """What the docstring says of each field."""
    style = docstring_parser.DocstringStyle.GOOGLE
    params = docstring_parser.parse(inspect.getdoc(config_class) or "", style).params
    return {x.arg_name: " ".join((x.description or "").split()) for x in params}


def _plain(hint: Any) -> Any:
    """A type without what `keras_luong.config.fields` says of numbers."""
    kinds = [
        typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
        for kind in kinds_of(hint)
    ]
    return typing.Union[tuple(kinds)]  # noqa: UP007 (of a list)


def _consumed(hint: Any, is_repeated: bool) -> Any:
    """How many values a list takes at once: any number, but not none by mistake."""
    return False if is_repeated else 0 if type(None) in kinds_of(hint) else 1


def metavar(hint: Any) -> str:
    """What help shows for a value: "INT|none"; nothing for a flag.

    Example:
        >>> from keras_luong.cli.arguments import metavar
        >>> metavar(int | None)
        'INT|none'
    """
    names: list[str] = []
    for kind in kinds_of(_plain(hint)):
        if typing.get_origin(kind) is Literal:
            choices = typing.get_args(kind)
            names += choices if len(choices) == 1 else ["NAME"]
        elif kind is bool:
            return ""
        elif typing.get_origin(kind) is tuple:
            first, *rest = typing.get_args(kind)
            several = "..." if Ellipsis in rest else f" {metavar(first)}" * len(rest)
            names.append(f"{metavar(first)}{several}")
        else:
            names.append("none" if kind is type(None) else kind.__name__.upper())
    return "|".join(names)


def in_words(hint: Any) -> str:
    """A type as a sentence says it: "a whole number or none"."""
    choices = choices_of(hint)
    words = [WORDS[kind] for kind in kinds_of(_plain(hint)) if kind in WORDS]
    words += [*choices, *(["none"] if type(None) in kinds_of(hint) else [])]
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _converter(hint: Any) -> Callable[[Any, Sequence[Any]], Any] | None:
    """Stricter than cyclopts: 1.5 is no int, and none is no path; None for its own."""
    kinds = kinds_of(_plain(hint))
    if bool in kinds:
        return None
    for kind in kinds:
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            return lambda _, tokens: tuple(_read(x.value, element) for x in tokens)
    return lambda _, tokens: _read(tokens[0].value, hint)


def _read(word: str, hint: Any) -> Any:
    """The value that a word of the command line stands for."""
    kinds = kinds_of(_plain(hint))
    if type(None) in kinds and word.lower() == "none":
        return None
    if word in choices_of(hint):
        return word
    if str in kinds and any("\ud800" <= letter <= "\udfff" for letter in word):
        raise ValueError(f"must be UTF-8. Received: {word!a}")  # as paths need not be
    for kind in kinds:
        try:
            if kind in WORDS:
                return kind(word)
        except ValueError:
            pass
    raise ValueError(f"must be {in_words(hint)}. Received: {word}")
