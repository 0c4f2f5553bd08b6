"""`det store`: maintain the platform's home."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from determined._contracts.home import SETTINGS_FILE
from determined.cli._commands.errors import ERROR, OK
from determined.cli._commands.group import Group
from determined.cli._commands.options import confirm, json_option, yes_option
from determined.cli._commands.platform import platform
from determined.cli._present.tables import Output, output_options, show, show_json, size_text
from determined.errors import RefusedError

_SHOWN_TAKERS = 20


@click.group(cls=Group)
def store() -> None:
    """Disk usage, clean-up, backup, checks and rebuilding of the platform's home."""


@store.verb("df")
@output_options
def df(output: Output) -> None:
    """Show the disk usage of the home, by kind and by experiment.

    Checkpoints count for their experiment wherever they are. `disk_limit` in platform.yaml limits
    what the home may take.
    """
    from determined.platform.homes.disk_limit import find_limit
    from determined.platform.homes.disk_usage import shares, usage

    with platform(wake=False) as service:
        home, parts, limit = service.home, usage(service.home), find_limit(service.home)
        takers = shares(home, service.reader) if service.has_store else []
    found = [(part.what, part.num_bytes, part.path) for part in parts]
    if output == "table":
        found.append(("total", sum(part.num_bytes for part in parts), home.path))
    if limit is not None:
        found.append(("disk_limit", limit, home.path / SETTINGS_FILE))
    if output != "table":
        found += [
            (f"experiment {taker.experiment_id}", taker.total, home.experiment(taker.experiment_id))
            for taker in takers
        ]
    rows = [[what, size_text(size), str(path)] for what, size, path in found]
    data = [{"what": what, "bytes": size, "path": str(path)} for what, size, path in found]
    show(["What", "Size", "Path"], rows, output, data)
    if output == "table" and takers:
        click.echo("")
        table = [
            [taker.experiment_id, taker.name, size_text(taker.checkpoints), size_text(taker.files)]
            for taker in takers[:_SHOWN_TAKERS]
        ]
        show(["Experiment", "Name", "Checkpoints", "Runs, logs, events"], table)


@store.verb("prune")
@click.option("--workdirs", is_flag=True, help="Working folders of ended runs as well.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@yes_option
@json_option
def prune(workdirs: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete what no experiment needs: code, and leftovers of interrupted commands.

    With --workdirs, also the folders in which ended runs worked, with whatever they wrote there.
    Records, logs and checkpoints stay.
    """
    from determined.platform.homes.disk_usage import find_kept, find_waste, remove

    if as_json and not (dry_run or yes):
        raise click.UsageError("--json needs --dry-run or --yes.")
    with platform(wake=False) as service:
        waste, kept = [], []
        if service.has_store:
            kept = find_kept(service.home, service.reader, workdirs=workdirs)
            found = find_waste(service.home, service.reader, workdirs=workdirs)
            waste = [item for item in found if service.supervised.may_delete(item.path)]
        if as_json:
            show_json([{"path": w.path, "bytes": w.num_bytes, "reason": w.reason} for w in waste])
        elif not waste:
            click.echo("Nothing to remove.")
        else:
            rows = [[str(w.path), size_text(w.num_bytes), w.reason] for w in waste]
            show(["Path", "Size", "Reason"], rows)
        if kept and not as_json:
            rows = [[str(item.path), size_text(item.num_bytes), item.reason] for item in kept]
            click.echo("Kept, although no experiment needs it:")
            show(["Path", "Size", "Why"], rows)
        if dry_run or not waste:
            return
        confirm("Remove these?", yes)
        freed = remove(waste)
        if not as_json:
            click.echo(f"Freed {size_text(freed)}.")


@store.verb("backup")
@click.argument("target", type=click.Path(path_type=Path))
@json_option
def backup(target: Path, as_json: bool) -> None:
    """Copy all records to the new file TARGET, while experiments run."""
    from determined.store import backup as copy

    with platform(wake=False) as service:
        copy(service.home.path, target)
        size = target.stat().st_size
        if as_json:
            show_json({"path": target, "bytes": size})
        else:
            click.echo(f"Wrote {target} ({size_text(size)})")


@store.verb("check")
@json_option
def check(as_json: bool) -> int:
    """Check that the records are intact; the exit code is 0 if they are."""
    from determined.store import check as find_faults

    with platform(wake=False) as service:
        faults = find_faults(service.home.path) if service.has_store else []
        if as_json:
            show_json(faults)
            return ERROR if faults else OK
        if not service.has_store:
            click.echo("There are no records yet.")
            return OK
        for fault in faults:
            click.echo(fault, err=True)
        if not faults:
            click.echo(f"{service.home.path / 'store.db'} is intact.")
        return ERROR if faults else OK


@store.verb("adopt")
@yes_option
@json_option
def adopt(yes: bool, as_json: bool) -> None:
    """Make a copy of a home a home of its own.

    Experiments that had not ended are paused: `det experiment activate` continues them. Checkpoints
    outside the copy belong to the home that it was copied from: they are used, but never deleted.
    """
    if as_json and not yes:
        raise click.UsageError("--json needs --yes.")
    with platform(wake=False) as service:
        if service.supervised.original is not None:
            confirm(f"Make {service.home.path} a home of its own?", yes)
        foreign = service.supervised.adopt()
    if as_json:
        show_json({"home": service.home.path, "foreign_checkpoints": foreign})
        return
    click.echo(f"{service.home.path} is a home of its own now.")
    if foreign:
        click.echo(f"{foreign} checkpoints are outside it: they will never be deleted from here.")


@store.verb("import")
@click.argument("other", metavar="OTHER_HOME", type=click.Path(path_type=Path, file_okay=False))
@click.option("--experiment", "numbers", type=int, multiple=True, help="Only this one; repeatable.")
@json_option
def import_(other: Path, numbers: tuple[int, ...], as_json: bool) -> int:
    """Copy the experiments of OTHER_HOME into this home, with all that belongs to them.

    They get ids of their own here. Repeated, it brings only what is missing: after an interruption,
    or when there are more experiments, trials or checkpoints. Nothing is overwritten, and
    OTHER_HOME is only read. Experiments that have not ended there are refused.
    """
    from determined.platform.maintenance.importing import import_home

    with platform(wake=False) as service:
        if service.supervised.original is not None:
            raise RefusedError("A copy of a home cannot import: `det store adopt` it first.")
        service.close()
        result = import_home(service.home, other, numbers)
    if as_json:
        show_json(dataclasses.asdict(result))
    for done in [] if as_json else result.imported:
        what = "is new" if done.is_new else "has grown" if done.has_grown else "is here already"
        click.echo(f"Experiment {done.number} {what}: here it is {done.experiment_id}.")
    for words in result.refused:
        click.echo(f"{words[:1].upper()}{words[1:]}.", err=True)
    return ERROR if result.refused else OK


@store.verb("rebuild")
@yes_option
@json_option
def rebuild(yes: bool, as_json: bool) -> None:
    """Rebuild the records when they are damaged, lost or older than the folders in the home.

    Whatever can still be read is kept; the rest comes from the configurations, journals, logs and
    exit codes in the experiments' folders. The old records are kept as store.db.damaged-TIME.
    Runs continue.
    """
    from determined.platform.maintenance.rebuild.rebuild import rebuild as make_anew

    if as_json and not yes:
        raise click.UsageError("--json needs --yes.")
    with platform(wake=False) as service:
        confirm(f"Rebuild the records of {service.home.path}?", yes)
        result = make_anew(service.home)
    if as_json:
        show_json(dataclasses.asdict(result))
        return
    if result.old is not None:
        click.echo(f"The old records are now {result.old}.")
    for table, error in sorted(result.damage.items()):
        click.echo(f"{table}: could only be read in part ({error}).")
    for what in result.restored:
        click.echo(f"Restored from its folder: {what}.")
    for what in result.lost:
        click.echo(f"Lost: {what}.", err=True)
    click.echo(
        f"Rebuilt: {result.experiments} experiments; journals of {result.reread} trials reread."
    )
