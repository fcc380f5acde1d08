"""The wheel holds the whole package, installs by itself and starts; `make dist` builds what it says."""

import importlib.metadata
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import denizen as dz

ROOT = Path(__file__).resolve().parents[1]


def output_of(*command: str) -> str:
    """What a command prints; its error output where it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    output_of(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (path,) = folder.glob("denizen-*.whl")
    return path


def test_wheel_holds_every_file_of_the_package(wheel):
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    expected = {name for name in files if "__pycache__" not in name}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected
    assert "denizen/py.typed" in packed
    others = {name for name in packed if Path(name).suffix not in (".py", ".md", ".typed")}
    assert all("/assets/" in name for name in others), others  # nothing that somebody downloaded into the sources


def test_wheel_carries_licence_and_command(wheel):
    archive = zipfile.ZipFile(wheel)
    names = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
    assert "licenses/LICENSE" in names
    assert "denizen = denizen.app:process" in archive.read(names["entry_points.txt"]).decode()


def test_installed_wheel_imports(wheel, tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    output_of(*install, str(wheel))
    code = "import sys; sys.path.insert(0, sys.argv[1]); import denizen; print(denizen.__version__, denizen.__file__)"
    version, place = output_of(sys.executable, "-c", code, str(tmp_path)).split()
    assert version == dz.__version__
    assert Path(place).is_relative_to(tmp_path)


def test_version_is_the_one_installed():
    assert importlib.metadata.version("denizen") == dz.__version__


def test_make_dist_builds_a_wheel_and_an_sdist_that_makes_one(tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    assert "build sdist and wheel into dist/" in makefile
    command = re.search(r"^dist:.*\n\t(.*)$", makefile, re.MULTILINE).group(1)
    program, *words = shlex.split(command.replace("$(BIN)/", ""))
    assert (program, words[-2:]) == ("python", ["-d", "dist"])
    output_of(sys.executable, *words[:-1], str(tmp_path / "dist"))
    (made,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("denizen-*")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(words, cwd=folder, capture_output=True, check=True)
    (again,) = (tmp_path / "again").glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(made).namelist())
