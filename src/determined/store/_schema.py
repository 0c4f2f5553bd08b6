"""The tables of the store, version by version.

A released version is never edited: a change is a new entry at the end of MIGRATIONS. The version
of a store (`PRAGMA user_version`) is the number of entries that were applied to it.
"""

from __future__ import annotations

_VERSION_1 = """
CREATE TABLE setting(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE workspace(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  archived INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL);
CREATE TABLE project(
  id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id INTEGER NOT NULL REFERENCES workspace(id),
  name TEXT NOT NULL, description TEXT NOT NULL DEFAULT '', notes TEXT NOT NULL DEFAULT '[]',
  owner TEXT NOT NULL, archived INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL,
  UNIQUE(workspace_id, name));
INSERT INTO workspace(name, owner, created) VALUES ('Uncategorized', '', 0);
INSERT INTO project(workspace_id, name, owner, created) VALUES (1, 'Uncategorized', '', 0);

CREATE TABLE experiment(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id INTEGER NOT NULL DEFAULT 1 REFERENCES project(id),
  parent_id INTEGER, owner TEXT NOT NULL, name TEXT NOT NULL,
  description TEXT NOT NULL DEFAULT '', labels TEXT NOT NULL DEFAULT '[]',
  notes TEXT NOT NULL DEFAULT '', config TEXT NOT NULL, original_config TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', progress REAL NOT NULL DEFAULT 0,
  archived INTEGER NOT NULL DEFAULT 0, unmanaged INTEGER NOT NULL DEFAULT 0,
  external_id TEXT UNIQUE, snapshot_id TEXT, environment TEXT NOT NULL DEFAULT '{}',
  searcher_metric TEXT, smaller_is_better INTEGER NOT NULL DEFAULT 1,
  searcher_state TEXT, priority INTEGER, max_slots INTEGER, weight REAL,
  created REAL NOT NULL, started REAL, ended REAL,
  num_trials INTEGER NOT NULL DEFAULT 0, gc_is_due INTEGER NOT NULL DEFAULT 0,
  checkpoint_count INTEGER NOT NULL DEFAULT 0, checkpoint_size INTEGER NOT NULL DEFAULT 0,
  best_validation REAL, best_trial_id INTEGER);
CREATE INDEX experiment_with_garbage ON experiment(id) WHERE gc_is_due;
CREATE INDEX experiment_by_state ON experiment(state);
CREATE INDEX experiment_by_project ON experiment(project_id, id);

CREATE TABLE trial(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  experiment_id INTEGER NOT NULL REFERENCES experiment(id) ON DELETE CASCADE,
  request_id TEXT NOT NULL, task_id TEXT NOT NULL UNIQUE, external_id TEXT,
  seed INTEGER NOT NULL, hparams TEXT NOT NULL, state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT '', early_exit TEXT,
  progress REAL NOT NULL DEFAULT 0, restarts INTEGER NOT NULL DEFAULT 0,
  run_id INTEGER NOT NULL DEFAULT 0, total_batches INTEGER NOT NULL DEFAULT 0,
  best_validation REAL, best_validation_steps INTEGER,
  latest_validation REAL, latest_validation_steps INTEGER,
  warm_start_checkpoint TEXT, metadata TEXT NOT NULL DEFAULT '{}',
  is_held INTEGER NOT NULL DEFAULT 0, last_error TEXT NOT NULL DEFAULT '',
  not_before REAL NOT NULL DEFAULT 0,
  checkpoint_count INTEGER NOT NULL DEFAULT 0, checkpoint_size INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL, started REAL, ended REAL,
  UNIQUE(experiment_id, request_id));
CREATE INDEX trial_by_experiment ON trial(experiment_id, id);
CREATE INDEX trial_by_best ON trial(experiment_id, best_validation, id);
CREATE INDEX trial_by_state ON trial(state);

CREATE TABLE run(
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, run_id INTEGER NOT NULL,
  allocation_id TEXT NOT NULL UNIQUE, folder TEXT NOT NULL, host TEXT NOT NULL DEFAULT '',
  slots TEXT NOT NULL DEFAULT '[]', steps_completed INTEGER NOT NULL DEFAULT 0,
  from_checkpoint TEXT, acknowledged INTEGER NOT NULL DEFAULT 0, exit_code INTEGER,
  preempted TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '', created REAL NOT NULL, started REAL, ended REAL,
  heartbeat REAL, PRIMARY KEY(trial_id, run_id)) WITHOUT ROWID;
CREATE INDEX run_unfinished ON run(trial_id) WHERE ended IS NULL;

CREATE TABLE journal(
  path TEXT PRIMARY KEY, trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  run_id INTEGER NOT NULL, offset INTEGER NOT NULL, damage TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE INDEX journal_by_run ON journal(trial_id, run_id);

CREATE TABLE search_step(
  experiment_id INTEGER NOT NULL REFERENCES experiment(id) ON DELETE CASCADE,
  number INTEGER NOT NULL, time REAL NOT NULL, event TEXT NOT NULL, actions TEXT NOT NULL,
  sentence TEXT NOT NULL, PRIMARY KEY(experiment_id, number)) WITHOUT ROWID;

CREATE TABLE report(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, run_id INTEGER NOT NULL,
  grp TEXT NOT NULL, steps INTEGER NOT NULL, time REAL NOT NULL, metrics TEXT NOT NULL,
  batches BLOB, archived INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX report_by_key ON report(trial_id, grp, steps, run_id);
CREATE INDEX report_by_trial ON report(trial_id, id);

CREATE TABLE summary(
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  grp TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, last TEXT NOT NULL,
  count INTEGER, sum, min, max, PRIMARY KEY(trial_id, grp, name)) WITHOUT ROWID;

CREATE TABLE series(
  id INTEGER PRIMARY KEY, trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  grp TEXT NOT NULL, name TEXT NOT NULL, per_batch INTEGER NOT NULL, run_id INTEGER NOT NULL,
  UNIQUE(trial_id, grp, name, per_batch, run_id));
CREATE TABLE tail(
  series_id INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE, number INTEGER NOT NULL,
  count INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(series_id, number)) WITHOUT ROWID;
CREATE TABLE chunk(
  series_id INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE, number INTEGER NOT NULL,
  count INTEGER NOT NULL, first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
  first_time REAL NOT NULL, last_time REAL NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY(series_id, number));
CREATE INDEX chunk_range ON chunk(
  series_id, number, count, first_step, last_step, first_time, last_time);
CREATE TABLE pyramid(
  series_id INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE, level INTEGER NOT NULL,
  number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY(series_id, level, number)) WITHOUT ROWID;
CREATE TABLE cut(
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, run_id INTEGER NOT NULL,
  grp TEXT NOT NULL, per_batch INTEGER NOT NULL, steps INTEGER NOT NULL,
  PRIMARY KEY(trial_id, run_id, grp, per_batch)) WITHOUT ROWID;

CREATE TABLE sample(
  id INTEGER PRIMARY KEY, trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE,
  run_id INTEGER NOT NULL, grp TEXT NOT NULL, time REAL NOT NULL, samples TEXT NOT NULL);
CREATE INDEX sample_by_trial ON sample(trial_id, grp, time);

CREATE TABLE checkpoint(
  uuid TEXT PRIMARY KEY, trial_id INTEGER REFERENCES trial(id) ON DELETE CASCADE,
  experiment_id INTEGER REFERENCES experiment(id) ON DELETE CASCADE,
  run_id INTEGER, task_id TEXT NOT NULL, allocation_id TEXT NOT NULL, state TEXT NOT NULL,
  steps_completed INTEGER NOT NULL, resources TEXT NOT NULL, metadata TEXT NOT NULL,
  size INTEGER NOT NULL, storage TEXT NOT NULL DEFAULT '{}', report_time REAL NOT NULL);
CREATE INDEX checkpoint_by_trial ON checkpoint(trial_id, state, steps_completed);
CREATE INDEX checkpoint_by_experiment ON checkpoint(experiment_id, report_time, uuid);
CREATE TABLE task_using(
  trial_id INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, what TEXT NOT NULL,
  identifier TEXT NOT NULL, time REAL NOT NULL,
  PRIMARY KEY(what, identifier, trial_id)) WITHOUT ROWID;

CREATE TABLE model(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL DEFAULT '', metadata TEXT NOT NULL DEFAULT '{}',
  labels TEXT NOT NULL DEFAULT '[]', owner TEXT NOT NULL,
  workspace_id INTEGER NOT NULL DEFAULT 1 REFERENCES workspace(id),
  archived INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, updated REAL NOT NULL);
CREATE TABLE model_version(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  model_id INTEGER NOT NULL REFERENCES model(id) ON DELETE CASCADE, number INTEGER NOT NULL,
  checkpoint_uuid TEXT NOT NULL REFERENCES checkpoint(uuid), name TEXT NOT NULL DEFAULT '',
  comment TEXT NOT NULL DEFAULT '', notes TEXT NOT NULL DEFAULT '',
  metadata TEXT NOT NULL DEFAULT '{}', created REAL NOT NULL, UNIQUE(model_id, number));
CREATE INDEX model_version_by_checkpoint ON model_version(checkpoint_uuid);

CREATE TABLE event(
  id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL,
  level TEXT NOT NULL, experiment_id INTEGER REFERENCES experiment(id) ON DELETE CASCADE,
  trial_id INTEGER REFERENCES trial(id) ON DELETE CASCADE, run_id INTEGER,
  text TEXT NOT NULL, details TEXT NOT NULL DEFAULT '{}');
CREATE INDEX event_by_experiment ON event(experiment_id, id);
CREATE INDEX event_by_trial ON event(trial_id, id);

CREATE TABLE command(
  number INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, verb TEXT NOT NULL,
  arguments TEXT NOT NULL, sender TEXT NOT NULL, created REAL NOT NULL,
  answered REAL, is_ok INTEGER, answer TEXT);
CREATE INDEX command_unanswered ON command(number) WHERE answered IS NULL;
"""

_VERSION_2 = """
CREATE TABLE deletion(
  uuid TEXT PRIMARY KEY REFERENCES checkpoint(uuid) ON DELETE CASCADE,
  globs TEXT NOT NULL, failure TEXT NOT NULL DEFAULT '');
ALTER TABLE project ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE model ADD COLUMN last_version INTEGER NOT NULL DEFAULT 0;
UPDATE model SET last_version=
  (SELECT coalesce(max(number), 0) FROM model_version v WHERE v.model_id=model.id);
"""

# Queries of every tick and every client must not slow down with each finished experiment.
_VERSION_3 = """
CREATE INDEX experiment_unfinished ON experiment(id) WHERE ended IS NULL;
CREATE INDEX experiment_with_calls ON experiment(id) WHERE instr(environment, '"calls"');
"""

# A copy of a home must not delete what it shares with the home, nor be imported twice.
_VERSION_4 = """
ALTER TABLE checkpoint ADD COLUMN is_foreign INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experiment ADD COLUMN origin TEXT;
CREATE UNIQUE INDEX experiment_by_origin ON experiment(origin) WHERE origin IS NOT NULL;
"""

# A fork refers to its parent, so nobody deletes what it needs of it.
_VERSION_5 = """
CREATE TABLE fork(
  trial_id INTEGER PRIMARY KEY REFERENCES trial(id) ON DELETE CASCADE,
  parent_trial_id INTEGER NOT NULL REFERENCES trial(id), at INTEGER NOT NULL,
  checkpoint_uuid TEXT, changed TEXT NOT NULL DEFAULT '{}', seed INTEGER,
  is_checked INTEGER NOT NULL DEFAULT 0);
CREATE INDEX fork_by_parent ON fork(parent_trial_id, at);
CREATE INDEX fork_by_checkpoint ON fork(checkpoint_uuid);
"""

# What checkpoints held, tensor by tensor, for when their files are gone. The last column: nothing
# that lists checkpoints reads the pages that it takes.
_VERSION_6 = """
ALTER TABLE checkpoint ADD COLUMN hashes TEXT NOT NULL DEFAULT '';
"""

MIGRATIONS: tuple[str, ...] = (
    *(_VERSION_1, _VERSION_2, _VERSION_3),
    *(_VERSION_4, _VERSION_5, _VERSION_6),
)
