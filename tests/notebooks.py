"""The notebooks of the docs: run in kernels of their own, and made into pages. `make notebooks` runs this file.

`docs/notebooks/NAME.ipynb` is the source and keeps no outputs. `NAME.md` and the pictures in `NAME/` are made of it, as
Zensical renders Markdown alone. The page says by a digest of the cells which notebook it belongs to.
"""

import base64
import hashlib
import io
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PATIENCE = 600  # seconds of a cell; on a machine that others use, seconds become minutes
IMAGE = re.compile(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]*)">')
STYLE = re.compile(r"<style.*?</style>\s*", re.DOTALL)  # pandas writes one for each frame


def read(path: Path) -> Any:
    """A notebook without what running it leaves behind."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def digest(notebook: Any) -> str:
    """Of the cells' kinds and sources."""
    told = "\0".join(f"{cell.cell_type}\n{cell.source}" for cell in notebook.cells)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def run(notebook: Any) -> None:
    """Run all cells in a new kernel, in an empty folder; a cell that fails raises `CellExecutionError`."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sockets:
        config = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/at"})  # over TCP it warns
        options = {"timeout": PATIENCE, "startup_timeout": PATIENCE, "resources": {"metadata": {"path": folder}}}
        NotebookClient(notebook, kernel_name="python3", config=config, **options).execute()


def complaints(notebook: Any) -> list[str]:
    """What a run notebook wrote to stderr."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]


class Page:
    """The page of a notebook that has run.

    Attributes:
        text: Markdown.
        pictures: PNG by path, relative to the page.
    """

    def __init__(self, name: str, notebook: Any) -> None:
        self.name = name
        self.pictures: dict[str, bytes] = {}
        made = f"<!-- made by `make notebooks` of {name}.ipynb, digest {digest(notebook)} -->"
        self.text = "\n\n".join([made, *(part.strip() for cell in notebook.cells for part in self._parts(cell))]) + "\n"

    def _parts(self, cell: Any) -> Iterator[str]:
        if cell.cell_type == "markdown":
            yield cell.source
            return
        yield f"```python\n{cell.source}\n```"
        for output in cell.outputs:
            yield self._output(output)

    def _output(self, output: Any) -> str:
        if output.output_type == "stream":
            return f"```text\n{output.text.rstrip()}\n```"
        data = output.data
        if "text/html" in data:
            shown = STYLE.sub("", data["text/html"]).replace('<pre style="', '<pre style="font-size: 0.65rem; ')
            return IMAGE.sub(lambda found: self._picture(found[2], found[1]), shown)
        if "image/png" in data:
            return self._picture(data["image/png"], "figure")
        return f"```text\n{data['text/plain']}\n```"

    def _picture(self, encoded: str, alt: str) -> str:
        path = f"{self.name}/{len(self.pictures) + 1}.png"
        self.pictures[path] = _small(base64.b64decode(encoded))
        return f"\n\n![{alt}]({path})"


def _small(picture: bytes) -> bytes:
    """A PNG in 64 colours, which curves and letters do not tell from all."""
    from PIL import Image  # comes with matplotlib

    small = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def main() -> None:
    """Run every notebook, write its page, and leave it without outputs."""
    import nbformat

    for path in NOTEBOOKS:
        notebook = read(path)
        nbformat.write(notebook, path)
        run(notebook)
        page = Page(path.stem, notebook)
        shutil.rmtree(FOLDER / path.stem, ignore_errors=True)
        path.with_suffix(".md").write_text(page.text, encoding="utf-8")
        for place, data in page.pictures.items():
            (FOLDER / place).parent.mkdir(exist_ok=True)
            (FOLDER / place).write_bytes(data)
        sizes = ", ".join(f"{len(data) / 1024:.0f} KB" for data in page.pictures.values())
        print(f"{path.stem}: pictures {sizes or 'none'}", *complaints(notebook))


if __name__ == "__main__":
    main()
