"""The zoo is what a user could have written: it takes from denizen what is public, and nothing else."""

import ast
from pathlib import Path

import pytest

import denizen.zoo

ZOO = Path(denizen.zoo.__file__).parent


def private(file):
    """What a file imports of denizen, outside the zoo, that is private: modules, or names of them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "denizen" and "zoo" not in parts[:2] and any(part.startswith("_") for part in parts):
                yield name if isinstance(node, ast.Import) else node.module


@pytest.mark.parametrize("file", sorted(ZOO.rglob("*.py")), ids=lambda file: file.relative_to(ZOO).as_posix())
def test_the_zoo_imports_what_is_public(file):
    assert not set(private(file))
