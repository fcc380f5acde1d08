"""A training of agents that talk, interrupted after an epoch."""


def test_an_interrupted_training_says_how_to_go_on(tmp_path, command_line, monkeypatch):
    def interrupted(*args, **named):
        raise KeyboardInterrupt

    words = ["train", "dotgat", "--processes", "30", "--batch", "8", "--times", "6", "--features", "4", "--epochs", "2"]
    monkeypatch.setattr("denizen.app._train_dotgat._reporter", lambda console: interrupted)
    code, _, err = command_line(*words, "--agents", "3", "--hidden", "8", "--out", tmp_path / "run")
    assert code == 130
    assert f"1 epochs are safe, go on with: denizen resume {tmp_path / 'run'}" in err
