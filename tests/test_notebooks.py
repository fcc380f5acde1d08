"""The notebooks of the docs run, say nothing on stderr, and have the pages that belong to them."""

from pathlib import Path

import pytest

import notebooks

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

LARGEST = 60 * 1024  # bytes of a picture
each_notebook = pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_the_page_belongs_to_the_notebook(path: Path) -> None:
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    digest = notebooks.digest(notebooks.read(path))
    assert f"digest {digest} -->" in page.partition("\n")[0], "the notebook has changed; run: make notebooks"
    assert f"]({path.name})" in page  # to download
    pictures = list((notebooks.FOLDER / path.stem).glob("*.png"))
    assert pictures
    for picture in pictures:
        assert f"]({path.stem}/{picture.name})" in page
        assert picture.stat().st_size <= LARGEST


@each_notebook
def test_the_notebook_is_kept_without_outputs(path: Path) -> None:
    kept = path.read_text(encoding="utf-8")
    assert kept == nbformat.writes(notebooks.read(path)) + "\n", "run: make notebooks"


@pytest.mark.slow
@each_notebook
def test_the_notebook_runs_without_a_word_on_stderr(path: Path) -> None:
    notebook = notebooks.read(path)
    notebooks.run(notebook)
    assert notebooks.complaints(notebook) == []
    shape = notebooks.Page(path.stem, notebook)
    assert len(shape.pictures) == len(list((notebooks.FOLDER / path.stem).glob("*.png")))
    assert "/tmp/" not in shape.text
