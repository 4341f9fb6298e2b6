"""Profiles and settings, which determine the commands. Shares are from 0 to 1."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Profile:
    """The behaviour of clients. A step is one batch of one connection, or two."""

    name: str
    help: str
    put_least: int = 5
    put_most: int = 100
    """Jobs in a step of a producer."""
    burst: float = 0.02
    """Share of producer steps that are bursts of `burst_jobs`."""
    burst_jobs: int = 1000
    backlog: int = 2000
    """Ready jobs around which producers and consumers balance."""
    bury: float = 0.01
    """Share of most tubes; some bury ten times as much."""
    release: float = 0.04
    release_later: float = 0.02
    touch: float = 0.05
    delayed: float = 0.03
    disconnect: float = 0.01
    operator: float = 0.08
    timed: float = 0.02
    """Share of jobs in timed phases, at most `timed_most`."""
    timed_most: int = 3000
    left: float = 0.02
    """Share of jobs that are ready at the end."""
    quiet_s: float = 0.2
    """Mean pause between two steps, before --speed."""
    work_s: float = 0.02
    """Median time between reserve and finish, before --speed."""


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("mixed", "some of everything"),
        Profile(
            "bursts",
            "queues that fill at once and are worked off",
            burst=0.3,
            backlog=10_000,
            quiet_s=1.0,
        ),
        Profile(
            "steady",
            "even load, few mishaps",
            put_least=20,
            put_most=40,
            burst=0.0,
            backlog=500,
            bury=0.001,
            release=0.01,
            release_later=0.005,
            quiet_s=0.05,
        ),
        Profile(
            "failing",
            "workers that bury, release, stop and lose their connection",
            bury=0.06,
            release=0.2,
            release_later=0.1,
            disconnect=0.08,
            timed=0.08,
            operator=0.15,
        ),
        Profile("backlog", "half of the jobs are still there in the end", backlog=10**9, left=0.5),
    )
}


@dataclass(frozen=True)
class Settings:
    """Equal settings send equal commands. One of `jobs` and `size`, in bytes of entries, is 0."""

    jobs: int
    size: int
    seed: int
    tubes: int
    profile: Profile
    producers: int
    consumers: int
    truncate: int
    max_job_size: int
    speed: float
    """Divisor of pauses; 0 means none."""

    def to_json(self) -> dict[str, object]:
        fields = asdict(self)
        fields |= {"bytes": fields.pop("size"), "profile": self.profile.name}
        return fields
