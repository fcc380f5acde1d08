"""The parser's own completion, as docs/guides/command-line.md tells to set it up."""

import shutil
import subprocess

import pytest

from denizen import app

ASK = """
source {file}
COMP_WORDS=({words}) COMP_CWORD={last}
_tyro_denizen
printf '%s ' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("python3") is None, reason="needs bash and python3")
def test_bash_completes_commands_flags_and_choices(tmp_path, monkeypatch):
    file = tmp_path / "denizen"
    monkeypatch.setattr("sys.argv", ["denizen", "--tyro-write-completion", "bash", str(file)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code in (0, None)
    for words, expected in (
        (("denizen", "re"), {"report", "resume"}),
        (("denizen", "run", "--pop"), {"--population"}),
        (("denizen", "run", "--device", ""), {"auto", "cpu", "cuda"}),
    ):
        program = ASK.format(file=file, words=" ".join(word or "''" for word in words), last=len(words) - 1)
        done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=False)
        assert set(done.stdout.split()) == expected, done.stderr
