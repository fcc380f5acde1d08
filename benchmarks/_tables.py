"""Each part of the benchmark as a table."""

import _report as report


def show_check(result):
    head = ["contestant", "agents", "runs", "attack", "theory", "tolerance", ""]
    rows = [
        [
            r["name"],
            f"{r['agents']:,}",
            len(r["attacks"]),
            *(f"{r[k]:.4f}" for k in ("mean", "expected", "tolerance")),
            "pass" if r["pass"] else "MISS",
        ]
        for r in result["rows"]
    ]
    return report.table("Attack rates against theory", head, rows)


def show_seir(size):
    head = ["contestant", "CPU ms/step", "median", "wall ms/step", "median", "runs", "CPU vs denizen", "peak MiB"]
    rows = []
    for r in size["rows"]:
        factor = r.get("cpu_ratio_to denizen", {}).get("median")
        rows.append(
            [
                r["name"],
                *(report.show(r[k][m]) for k in ("cpu", "wall") for m in ("min", "median")),
                r["cpu"]["runs"],
                "-" if factor is None else f"{report.show(factor)}x",
                f"{r['peak_mib']:.0f}",
            ]
        )
    return report.table(f"SEIR, {size['agents']:,} agents, {size['steps']} steps", head, rows)


def show_covid(result):
    head = ["city", "profile", "days", "CPU ms/step", "median", "wall ms/step", "median", "infected", "peak MiB"]
    rows = [
        [
            r["city"],
            r["profile"],
            r["days"],
            *(report.show(r[k][m]) for k in ("cpu", "wall") for m in ("min", "median")),
            f"{r['infected']:,.0f}",
            f"{r['peak_mib']:.0f}",
        ]
        for r in result["rows"]
    ]
    spec = report.show(result["agenttorch_cpu_ms"])
    rows.append(["AgentTorch 0.6, Astoria (not run here)", "as shipped", 21, spec, "-", "-", "-", "-", "-"])
    return report.table("COVID", head, rows)


def show_replicates(result):
    head = ["city", "days", "1: CPU ms/step", "64: CPU ms/step", "times one (CPU)", "times one (wall)", "peak MiB"]
    rows = [
        [
            r["city"],
            r["days"],
            report.show(r["one"]["cpu"]["min"]),
            report.show(r["batch"]["cpu"]["min"]),
            report.show(r["cpu_ratio"]["median"]),
            report.show(r["wall_ratio"]["median"]),
            f"{r['peak_mib']:.0f}",
        ]
        for r in result["rows"]
    ]
    return report.table("64 replicates of COVID (reference profile) in one batch", head, rows)


def show_load(result):
    head = ["file", "edges", "wall s", "median", "CPU s", "peak MiB"]
    rows = [
        [
            r["file"],
            f"{r['edges']:,}",
            report.show(r["wall"]["min"]),
            report.show(r["wall"]["median"]),
            report.show(r["cpu"]["min"]),
            f"{r['peak_mib']:.0f}",
        ]
        for r in result["rows"]
    ]
    return report.table("Load and initialise 1M agents, 10M edges", head, rows)


def show_active(size):
    head = ["infectious", "CPU ms/step", "above the intercept"]
    fit = size["fit"]
    rows = [
        [f"{p['active']:,}", report.show(p["cpu"]["min"]), report.show(p["cpu"]["min"] - fit["intercept"])]
        for p in size["points"]
    ]
    text = (
        f"\nUp to 3 % infectious: CPU ms/step = {report.show(fit['intercept'])} + "
        f"{report.show(1e6 * fit['slope'])} ns x infectious, R^2 = {fit['r2']:.4f}\n"
    )
    return report.table(f"SEIR, {size['agents']:,} agents, infectious held constant", head, rows) + text


def show_startup(result):
    head = ["what", "median s", "min s"]
    rows = [[f"import {k}", *(report.show(v[m]) for m in ("median", "min"))] for k, v in result["import"].items()]
    for cache in ("warm", "cold"):
        for key, v in result[cache].items():
            rows.append(
                [f"{key.replace('_', ' ')}, kernel cache {cache}", report.show(v["median"]), report.show(v["min"])]
            )
    return report.table("Start-up; load and first step count from after `import denizen`", head, rows)
