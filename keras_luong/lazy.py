"""Names and packages that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any


def lazy_names(
    package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package that imports nothing.

    Its names are listed once, in the `__init__.pyi` beside its `__init__.py`, by lines
    such as `from package.module import Name as Name`, which type checkers and editors
    read as well.

    Args:
        package: The package's name.

    Returns:
        `__getattr__`, which knows the package's modules too; `__dir__`; `__all__`.

    Example:
        >>> from keras_luong.lazy import lazy_names
        >>> get, _, names = lazy_names("keras_luong.text")
        >>> "Corpus" in names, get("Corpus").__module__
        (True, 'keras_luong.text.corpus')
    """
    module = sys.modules[package]
    stub = pkgutil.get_data(package, "__init__.pyi")  # in a zip file too
    imports = [x for x in ast.parse(stub or b"").body if isinstance(x, ast.ImportFrom)]
    places = {name.name: str(x.module) for x in imports for name in x.names}

    def get(name: str) -> Any:
        place = places.get(name, package)
        if place != package:
            value = getattr(importlib.import_module(place), name)
            setattr(module, name, value)
            return value
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=module) from None

    return get, lambda: [*vars(module), *places], sorted(places)


def needed(module: str, what: str, extra: str) -> Any:
    """Imports a module of a package that an extra installs.

    Args:
        module: The module.
        what: What needs which package, as "PO needs translate-toolkit".
        extra: The extra.

    Raises:
        ImportError: If it is not installed; it says what to install.

    Example:
        >>> from keras_luong.lazy import needed
        >>> needed("json", "It needs json", "plots").loads("1")
        1
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{what}, which is not installed: pip install "keras-luong[{extra}]"'
        ) from error
