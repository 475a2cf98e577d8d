"""Puts the sources of the page (export/web) into the package, where they are data.

Everything else is in pyproject.toml, which cannot say this.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PAGE = Path("export", "web")
INSIDE = Path("keras_luong", "export", "page")  # keras_luong.export.web looks there
NO_SOURCES = ("node_modules", "dist", "tests")


class WithPage(build_py):
    """What `pip install` and a wheel hold; a checkout that is edited has its own."""

    def run(self) -> None:
        """Copies the modules, and the page."""
        super().run()
        if not self.editable_mode:
            inside = Path(self.build_lib, INSIDE)
            shutil.rmtree(inside, ignore_errors=True)
            shutil.copytree(PAGE, inside, ignore=shutil.ignore_patterns(*NO_SOURCES))


setup(cmdclass={"build_py": WithPage})
