"""The commands that `denizen` has, and of each words that are understood, but cannot be done."""

# With a part of what is said of them.
WRONG = {
    "hello": (["hello", "--steps", "20"], "--steps 20: expected a whole number from 21"),
    "run": (["run", "sir", "--set", "infect_rate=x"], "--set infect_rate=x"),
    "list": (["list", "nowhere"], "there is no folder nowhere"),
    "show": (["show", "nowhere"], "nowhere does not exist"),
    "resume": (["resume", "nowhere"], "nowhere does not exist"),
    "report": (["report", "nowhere"], "nowhere does not exist"),
    "models": (["models", "--steps", "3"], "--steps"),
    "calibrate": (["calibrate", "sir"], "--targets FILE.csv is needed"),
    "train": (["train", "cartpole", "--set", "gamma=2"], "gamma"),
    "train dotgat": (["train", "dotgat", "--agents", "0"], "agents"),
    "evaluate": (["evaluate", "nowhere"], "run folder nowhere does not exist"),
    "watch": (["watch", "nowhere"], "run folder nowhere does not exist"),
    "compare": (["compare", "nowhere", "elsewhere"], "run folder nowhere does not exist"),
    "sweep": (["sweep", "sir"], "which sets? give one of --grid NAME=V,V"),
    "export": (["export", "nowhere", "--csv"], "run folder nowhere does not exist"),
    "experiment": (["experiment", "goodhart", "--modes", "prox"], "did you mean 'proxy'"),
    "ui": (["ui", "nowhere"], "there is no folder nowhere"),
    "check": (["check", "nowhere.py:Epidemic"], "there is no file nowhere.py"),
    "profile": (["profile", "nowhere.py:make"], "there is no file nowhere.py"),
    "doctor": (["doctor", "nowhere.py:make"], "there is no file nowhere.py"),
    "bench": (["bench", "nowhere.py:make"], "there is no file nowhere.py"),
    "equivalent": (["equivalent", "nowhere.py:A", "nowhere.py:B", "--shape", "2,4"], "there is no file nowhere.py"),
}
COMMANDS = tuple(WRONG)
