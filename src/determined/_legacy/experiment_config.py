"""Read access to an experiment configuration with every default in its place."""

from __future__ import annotations

from typing import Any


class ExperimentConfig(dict[str, Any]):
    """A dictionary with one method per setting that training code reads."""

    def debug_enabled(self) -> bool:
        """Whether `debug` asks for more output; off by default."""
        return bool(self.get("debug", False))

    def scheduling_unit(self) -> int:
        """Batches between two reports of training metrics; 100 by default."""
        return int(self.get("scheduling_unit", 100))

    def slots_per_trial(self) -> int:
        """Processes, with one device each, of a trial; 1 by default."""
        return int(self._section("resources").get("slots_per_trial", 1))

    def native_parallel_enabled(self) -> bool:
        """Whether `resources.native_parallel` was set; nothing depends on it."""
        return bool(self._section("resources").get("native_parallel", False))

    def experiment_seed(self) -> int:
        """The seed of the experiment; 0 by default."""
        return int(self._section("reproducibility").get("experiment_seed", 0))

    def average_training_metrics_enabled(self) -> bool:
        """Whether training metrics are averaged over ranks; they always are."""
        return bool(self._section("optimizations").get("average_training_metrics", True))

    def profiling_enabled(self) -> bool:
        """Whether to measure where the time goes; off by default."""
        return bool(self._section("profiling").get("enabled", False))

    def profiling_interval(self) -> tuple[int, int | None]:
        """The first batch to profile, and the last one (None: until the end)."""
        profiling = self._section("profiling")
        return int(profiling.get("begin_on_batch", 0)), profiling.get("end_after_batch")

    def profiling_sync_timings(self) -> bool:
        """Whether timings wait for the accelerator; on by default."""
        return bool(self._section("profiling").get("sync_timings", True))

    def get_records_per_epoch(self) -> int | None:
        """Records of one epoch, or None when the configuration leaves it open (0 or absent)."""
        records = self.get("records_per_epoch")
        return int(records) if records else None

    def get_min_validation_period(self) -> dict[str, int]:
        """How often to validate, as `{unit: number}`; empty: only at the end."""
        return dict(self._section("min_validation_period"))

    def get_min_checkpoint_period(self) -> dict[str, int]:
        """How often to save, as `{unit: number}`; empty: only at the end."""
        return dict(self._section("min_checkpoint_period"))

    def get_searcher_metric(self) -> str:
        """The validation metric that decides; ValueError without one."""
        metric = self._section("searcher").get("metric")
        if not isinstance(metric, str):
            raise ValueError(f"searcher.metric: expected the name of a metric, got {metric!r}.")
        return metric

    def get_optimizations_config(self) -> dict[str, Any]:
        """The `optimizations` section: accumulation and compression of gradients."""
        return dict(self._section("optimizations"))

    def get_checkpoint_storage(self) -> dict[str, Any]:
        """The `checkpoint_storage` section."""
        return dict(self._section("checkpoint_storage"))

    def get_entrypoint(self) -> str | list[str]:
        """What to start: `module:Class`, or a command."""
        entrypoint = self.get("entrypoint")
        if isinstance(entrypoint, str):
            return entrypoint
        if isinstance(entrypoint, list) and all(isinstance(word, str) for word in entrypoint):
            return list(entrypoint)
        raise ValueError(f"entrypoint: expected a str or a list of str, got {entrypoint!r}.")

    def _section(self, name: str) -> dict[str, Any]:
        """A section; an absent or empty (null) one reads as having no settings."""
        return self.get(name) or {}
