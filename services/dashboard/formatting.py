"""Amounts as people read them. Tables of figures stay aligned: the number of digits does not jump."""

from datetime import UTC, datetime

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
STEP = 1024
NONE = "\N{EN DASH}"
LONGEST_TEXT = 300


def size(amount_bytes: float | None) -> str:
    """Bytes, such as 256.6 MiB."""
    if amount_bytes is None:
        return NONE
    amount, unit = float(amount_bytes), 0
    while abs(amount) >= STEP and unit < len(BYTE_UNITS) - 1:
        amount, unit = amount / STEP, unit + 1
    return f"{amount:.0f} {BYTE_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {BYTE_UNITS[unit]}"


def count(amount: float | None) -> str:
    """A number of things, such as 134.5 M."""
    if amount is None:
        return NONE
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(amount) >= limit:
            return f"{amount / (1e3 if unit == 'k' else limit):.1f} {unit}"
    return f"{amount:g}"


def duration(seconds: float | None) -> str:
    """A span of time in its two largest units, such as 1 h 05 min."""
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days} d {hours_left:02d} h"
    if hours:
        return f"{hours} h {minutes_left:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def figure(value: float | None, digits: int = 2) -> str:
    """A measured figure; very large ones by their magnitude."""
    if value is None:
        return NONE
    return f"{value:.1e}" if abs(value) >= 1e6 else f"{value:,.{digits}f}"  # noqa: PLR2004


def share(value: float | None, digits: int = 1) -> str:
    """A part of one, in percent."""
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def shortened(text: str) -> str:
    """The beginning of a text that may be endless."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def clock(moment: datetime) -> str:
    """A moment for readers without JavaScript; the page's script shows it in their own zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(moment: datetime) -> str:
    """A moment for programs, as `<time datetime>` has it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
