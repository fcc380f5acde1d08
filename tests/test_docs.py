"""README and docs say what is true: Python snippets run, shell snippets name targets, commands and flags that exist.

A Python block runs with the names of the blocks above it on the same page. What cannot run carries
`<!--- skip: next "reason" -->` above it, or another fence language (`text`, `pycon`).
"""

import ast
import contextlib
import functools
import importlib
import re
import shlex
from itertools import takewhile
from pathlib import Path
from unittest import SkipTest

import pytest
import yaml
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

import denizen
import notebooks
from denizen import app
from denizen.zoo import ModelEntry, WorldEntry, entries

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [ROOT / "docs", ROOT / "src"]  # the models of the zoo carry a README each
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(page for top in FOLDERS for page in top.rglob("*.md"))]
PAGES = [page for page in PAGES if page.parent != notebooks.FOLDER]  # see test_notebooks.py
IDS = [str(page.relative_to(ROOT)) for page in PAGES]

SHELL_BLOCK = re.compile(r"^[ \t]*```(?:bash|sh|shell|console)[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
# Programs that a snippet may call without a check of ours.
FOREIGN = {"cd", "cp", "git", "mkdir", "pip", "python", "python3", "export", "torchrun", "ls"}
# Of the parser, which no help names; tests/app/test_completion.py
PARSERS_OWN = {"--tyro-write-completion"}


LONG = (
    "docs/guides/calibrate.md",
    "docs/guides/data.md",
    "docs/guides/foraging.md",
    "docs/guides/gradients.md",
    "docs/guides/grpo.md",
    "docs/guides/self-play.md",
    "docs/guides/training-helpers.md",
    "docs/guides/training.md",
)  # five to fifteen seconds each
RUN = [pytest.param(page, marks=[pytest.mark.slow] * (name in LONG)) for page, name in zip(PAGES, IDS, strict=True)]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", LONG)
def test_snippets_of_long_pages_name_what_exists(name):
    """What they import and take of `dz`, in the run that leaves the pages themselves out."""
    for block in BLOCK.findall((ROOT / name).read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, one.name) for one in node.names), ast.unparse(node)
            elif isinstance(node, ast.Attribute) and re.fullmatch(r"dz\.[\w.]+", text := ast.unparse(node)):
                functools.reduce(getattr, text.split(".")[1:], denizen)


@pytest.mark.parametrize("page", RUN, ids=IDS)
def test_python_snippets_run(page, tmp_path, monkeypatch, inside):
    monkeypatch.chdir(tmp_path)  # run folders written by a snippet stay out of the repository
    inside.short_rounds(1e-3)  # seconds; what a snippet measures is not compared
    document = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()]).parse(page)
    for example in document.examples():
        with contextlib.suppress(SkipTest):  # one skipped block, not the rest of the page
            example.evaluate()


def shell_commands(page: Path) -> list[list[str]]:
    """The commands of a page's shell blocks, as words, without comments, prompts and output."""
    commands = []
    for block in SHELL_BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        prompted = any(line.startswith("$ ") for line in lines)
        for line in lines:
            if prompted and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)  # VARIABLE=value in front of a command
            if words:
                commands.append(words)
    return commands


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def help_text(words: list[str], monkeypatch, capsys) -> str:
    """What `denizen WORDS --help` prints; fails where that is an error."""
    monkeypatch.setattr("sys.argv", ["denizen", *words, "--help"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        app.main()
    printed = capsys.readouterr()
    assert stop.value.code in (0, None), f"denizen {' '.join(words)} --help: {printed.err}"
    return printed.out


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_shell_snippets_name_what_exists(page, monkeypatch, capsys):
    for words in shell_commands(page):
        program, arguments = Path(words[0]).name, list(takewhile(lambda word: word != "--", words[1:]))
        if program == "make":
            targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
            assert set(targets) <= make_targets(), f"{page.name}: {shlex.join(words)}"
        elif program == "denizen":
            command = list(takewhile(lambda word: not word.startswith("-"), arguments))
            flags = {word.partition("=")[0] for word in arguments if word.startswith("--") and word != "--help"}
            offered = {*re.findall(r"--[\w-]+", help_text(command, monkeypatch, capsys)), *PARSERS_OWN}
            assert flags <= offered, f"{page.name}: {shlex.join(words)}"
        else:
            assert program in FOREIGN, f"{page.name}: unknown program {program!r}; fix the snippet or add it to FOREIGN"


def test_readme_has_exactly_two_set_up_commands():
    made = [shlex.join(words) for words in shell_commands(ROOT / "README.md") if words[0] == "make"]
    assert sorted(made) == ["make demo", "make test"]


def nav_pages(entry: object) -> list[str]:
    """The page paths of a nested `nav` of mkdocs.yml."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in nav_pages(part)]


def test_navigation_lists_every_page_once():
    """Zensical's strict build checks links and references, not the navigation."""
    listed = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


TITLED_FILE = re.compile(r'^```csv title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def test_example_population_is_whole(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs/guides/populations.md"
    files = TITLED_FILE.findall(page.read_text(encoding="utf-8"))
    for name, content in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert [name for name, _ in files] == ["town/people.csv", "town/networks/contacts.csv"]
    command = next(words for words in shell_commands(page) if words[:3] == ["denizen", "run", "covid"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [*command, "--device", "cpu", "--no-compile", "--out", "seen"])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code in (0, None), capsys.readouterr().err
    assert (tmp_path / "seen/report.html").exists()


def test_gallery_shows_the_whole_zoo():
    page, commands = ROOT / "docs/gallery.md", shell_commands(ROOT / "docs/gallery.md")
    told = page.read_text(encoding="utf-8")
    zoo = {"run": entries(ModelEntry), "train": entries(WorldEntry)}
    names = [name for found in zoo.values() for name in found]
    assert commands == [["denizen", verb, name] for verb, found in zoo.items() for name in found]
    for name in names:
        assert 500 < (ROOT / f"docs/gallery/{name}.png").stat().st_size <= 25_000, f"make gallery: {name}"
        assert f"](gallery/{name}.png)" in told
    for name, one in {**zoo["run"], **zoo["train"]}.items():
        assert f"**{name}**: {one.about}\n" in told
    assert sorted(path.stem for path in (ROOT / "docs/gallery").iterdir()) == sorted(names)


def test_pictures_of_the_home_page_are_small():
    home = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"!\[[^]]+\]\(([^)]+)\)", home)) == ["breakout.gif", "hello.png"]
    assert (ROOT / "docs/hello.png").stat().st_size <= 60_000
    assert (ROOT / "docs/breakout.gif").stat().st_size <= 300_000


def test_citation_has_what_its_schema_asks_for():
    """Of version 1.2.0 of the Citation File Format: the required keys, and those of ours."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= cited.keys()
    assert all(author.keys() & {"name", "family-names"} for author in cited["authors"])
    assert cited["version"] == denizen.__version__
    assert cited["license"] == "Apache-2.0"
    assert "CITATION.cff" in (ROOT / "README.md").read_text(encoding="utf-8")
