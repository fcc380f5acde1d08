"""What a finding costs where the step cannot be timed without it: from launches, bytes, and why the device stood still.

Every estimate is bounded by what the step can gain: work that is saved on the device shortens a step only as far as the
device is what is waited for.
"""

from denizen.perf._doctor.diagnosis import ESTIMATE, NOTE, Cost, Diagnosis
from denizen.perf._doctor.report import DoctorReport
from denizen.perf._doctor.roofline import BUSY_SHARE, Roofline
from denizen.perf._profile.gaps import COPY, LAUNCH, READ

_BUSY = 0.8  # of a step: fewer launches do not shorten it
_IDLE = {"host-sync-": READ, "d2h-accumulate": READ, "h2d-": COPY, "roundtrip": READ, "loader-pin": COPY}


def estimated(one: Diagnosis, report: DoctorReport) -> Cost | None:
    """An estimate, by the kind of finding; None where there is nothing to compute it from."""
    roof, step = report.roofline, report.step_seconds or 0.0
    if roof is None or not step:
        return None
    if one.kind in ("launch-bound", "optimizer-unfused"):
        found = _launches(one, roof, step)
    elif one.needless or one.flops:
        found = _moved(one, roof, step)
    else:
        found = _waits(one, report, roof)
    if found is None:
        return None
    seconds, basis = min(found[0], step), found[1]
    return Cost(seconds, seconds, seconds, seconds / step, ESTIMATE, basis)


def _launches(one: Diagnosis, roof: Roofline, step: float) -> tuple[float, str] | None:
    """Launches of a loop, by the host's cost of one, where launching takes the time.

    That cost is the least: a launch through Python takes indexing and views along. A loop has its part, by launches, of
    the time in which the device stood still for launches.
    """
    if not roof.launch or (roof.busy is not None and roof.busy > _BUSY):
        return None
    seconds, basis = one.count * roof.launch, f"{one.count} launches at {1e6 * roof.launch:.1f} µs each"
    idle = sum(roof.idle.values()) if roof.idle else 0.0
    if one.kind == "launch-bound" and roof.busy is not None and roof.idle and idle and roof.launches:
        share = roof.idle.get(LAUNCH, 0.0) / idle * min(1.0, one.count / roof.launches)
        if (waited := step * (1 - roof.busy) * share) > seconds:
            return waited, f"{one.count} of {roof.launches} launches, for which the device stood still"
    return seconds, basis


def _moved(one: Diagnosis, roof: Roofline, step: float) -> tuple[float, str] | None:
    """Bytes that need not be moved, and products in a wider type, at the measured rates of the device."""
    if not roof.bandwidth or (roof.busy is not None and roof.busy < BUSY_SHARE):
        return None
    seconds, basis = one.needless / roof.bandwidth, f"{one.needless:,} bytes at {roof.bandwidth / 1e9:,.0f} GB/s"
    if one.flops and roof.peak and roof.peak64:
        seconds += one.flops * max(0.0, 1 / roof.peak64 - 1 / roof.peak)
        basis += f", {one.flops / 1e9:.3g} GFLOP in float64 at {roof.peak64 / 1e12:.3g} TFLOP/s"
    late = step - roof.launches * (roof.launch or 0.0) if roof.busy is not None else step
    return min(seconds, max(0.0, late)), basis


def _waits(one: Diagnosis, report: DoctorReport, roof: Roofline) -> tuple[float, str] | None:
    """A wait or a copy: its part, by count, of the time in which the device stood still for such."""
    cause = next((cause for kind, cause in _IDLE.items() if one.kind.startswith(kind)), None)
    if cause is None or not roof.idle or one.level == NOTE:
        return None
    alike = [kind for kind, other in _IDLE.items() if other == cause]
    counts = sum(other.count for other in report.findings if other.kind.startswith(tuple(alike)))
    idle = roof.idle.get(cause, 0.0)
    return idle * one.count / max(1, counts), f"its part of {1e3 * idle:.3g} ms that the device stood still ({cause})"
