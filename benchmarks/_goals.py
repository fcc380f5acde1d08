"""The goals of the project, what was measured for each, and the Markdown page of a result file."""

import _report as report
from _tables import show_active, show_check, show_covid, show_load, show_replicates, show_seir, show_startup


def _seir(everything, agents, peer, ours="denizen"):
    for size in everything.get("seir", {}).get("sizes", []):
        for row in size["rows"]:
            if size["agents"] == agents and row["name"] == peer and f"cpu_ratio_to {ours}" in row:
                return row[f"cpu_ratio_to {ours}"]["median"]
    return None


def goals(everything):
    """Rows of (goal, measured, target, met or None where not measured)."""
    rows = []

    def row(goal, got, target, unit, at_most=True):
        met = None if got is None else (got <= target if at_most else got >= target)
        rows.append({"goal": goal, "got": got, "target": target, "unit": unit, "at_most": at_most, "met": met})

    first = [r for r in everything.get("covid", {}).get("rows", []) if not r["city"].startswith("synthetic")]
    for profile in ("intended", "reference"):
        for days in (21, 180):
            got = [r["cpu"]["min"] for r in first if r["profile"] == profile and r["days"] == days]
            row(f"COVID on Astoria, {profile}, {days} days", got[0] if got else None, 1.7, "CPU-ms/step")
    row("SEIR at 100,000 against Starsim (newest 3.x)", _seir(everything, 100_000, "Starsim"), 25, "times", False)
    row("SEIR at 100,000 against Starsim 3.3.4", _seir(everything, 100_000, "Starsim 3.3"), 25, "times", False)
    row("SEIR at 100,000 against JAX segment_sum", _seir(everything, 100_000, "JAX segment_sum"), 2, "times", False)
    for r in everything.get("replicates", {}).get("rows", []):
        row(f"64 replicates of Astoria, {r['days']} days", r["cpu_ratio"]["median"], 25, "times one")
    for r in everything.get("load", {}).get("rows", []):
        row(f"1M agents, 10M edges from {r['file']}", r["wall"]["median"], 3, "s")
    start = everything.get("startup")
    row("import denizen after torch", start and start["import"]["denizen"]["median"], 0.5, "s")
    for cache in ("warm", "cold"):
        row(f"first step after import, kernel cache {cache}", start and start[cache]["first_step"]["median"], 3, "s")
    return rows


def show_goals(everything):
    rows = []
    for r in goals(everything):
        verdict = {True: "met", False: "MISSED", None: "not measured"}[r["met"]]
        bound = f"{'<=' if r['at_most'] else '>='} {r['target']:g} {r['unit']}"
        rows.append([r["goal"], "-" if r["got"] is None else report.show(r["got"]), bound, verdict])
    return report.table("Goals", ["goal", "measured", "target", ""], rows)


def write_markdown(path, everything):
    """Write the page beside the result file and return its goals."""
    goals_table = show_goals(everything)
    machine = everything["machine"]
    parts = [
        "## Results\n",
        f"Written by `benchmarks/simulate_cpu.py` from `{path.name}`; do not edit. {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['system']}.\n",
        goals_table,
    ]
    shows = {
        "check": lambda s: [show_check(s)],
        "seir": lambda s: [show_seir(size) for size in s["sizes"]],
        "covid": lambda s: [show_covid(s)],
        "replicates": lambda s: [show_replicates(s)],
        "load": lambda s: [show_load(s)],
        "active": lambda s: [show_active(size) for size in s["sizes"]],
        "startup": lambda s: [show_startup(s)],
    }
    for name, show in shows.items():
        if name in everything:
            section = everything[name]
            parts += show(section)
            parts.append(
                f"*{name}: {section['date']}, commit {section['commit']}, {section['threads']} thread(s), load average "
                f"{section['load'][0][0]} before and {section['load'][1][0]} after.*\n"
            )
    versions = everything.get("seir", everything.get("check", {})).get("versions", {})
    if versions:
        rows = [[name, ", ".join(f"{k} {v}" for k, v in found.items())] for name, found in versions.items()]
        parts.append(report.table("Versions", ["contestant", "versions"], rows))
    path.with_suffix(".md").write_text("\n".join(parts))
    return goals_table
