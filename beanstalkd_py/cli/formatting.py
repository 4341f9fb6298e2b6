"""Numbers and times in few characters, for narrow columns."""

from __future__ import annotations

_UNITS = ("", "k", "M", "G", "T", "P", "E")


def short_number(value: float, width: int) -> str:
    """Format a count in at most `width` characters (4 or more): 123456, 1.23M."""
    text = str(int(value))
    if len(text) <= width:
        return text
    scaled = float(value)
    for unit in _UNITS:
        if scaled < 999.5:
            texts = (f"{scaled:.{decimals}f}{unit}" for decimals in (2, 1, 0))
            return next(text for text in texts if len(text) <= width)
        scaled /= 1000
    return ">" * width


def short_rate(value: float | None, width: int) -> str:
    """Format a rate per second, with one decimal below 100; None is -."""
    if value is None:
        return "-"
    if 0 < value < 99.95:
        return f"{value:.1f}"
    return short_number(round(value), width)


def short_time(seconds: float | None) -> str:
    """Format seconds in at most 6 characters: 0.2s, 42s, 3m05s, 2h40m, 3d04h, 1200d; None is -."""
    if seconds is None:
        return "-"
    if 0 < seconds < 9.95 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days >= 100:
        return f"{days}d"
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"
