"""What of a run decides which commands are sent: the same settings send the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from .profiles import Profile


@dataclass(frozen=True)
class Settings:
    """One of `jobs` and `size` is 0; `size` is bytes of entries, without copies and notes."""

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
    """Pauses are divided by this; 0: there are none."""

    def to_json(self) -> dict[str, object]:
        """For the first line of the log."""
        return {
            "jobs": self.jobs,
            "bytes": self.size,
            "seed": self.seed,
            "tubes": self.tubes,
            "profile": self.profile.name,
            "producers": self.producers,
            "consumers": self.consumers,
            "truncate": self.truncate,
            "max_job_size": self.max_job_size,
            "speed": self.speed,
        }
