"""Wrong configurations, and what is said about each: every error, with line and column."""

# ruff: noqa: E501  (messages are one line)

from __future__ import annotations

# Lines after an entrypoint and a searcher, so they start in line 3.
AFTER_THE_SEARCHER: list[tuple[str, list[str]]] = [
    (
        "batches_per_step: 100",
        ["3:1: batches_per_step: unknown key (it is now called scheduling_unit)"],
    ),
    (
        "checkpoint_storage: {type: hdfs, hdfs_url: x, hdfs_path: /y}",
        [
            "3:28: checkpoint_storage.type: expected shared_fs, directory, s3, gcs or azure, got 'hdfs' (it was removed; mount it and use shared_fs)"
        ],
    ),
    (
        "hyperparameters:\n  model: {type: resnet, depth: 3}",
        [
            "4:17: hyperparameters.model.type: expected const, int, double, log, log_int or categorical, got 'resnet' (a group cannot have a hyperparameter called `type`)"
        ],
    ),
    (
        "environment: {environment_variables: {WANDB_MODE: offline}}",
        [
            '3:39: environment.environment_variables.WANDB_MODE: unknown key (write a list: ["WANDB_MODE=..."])'
        ],
    ),
    ("name: 2024", ['3:7: name: expected text, got 2024 (quote it: "2024")']),
    ("name: [a]", ["3:7: name: expected text, got a list"]),
    ("descripton: typo", ["3:1: descripton: unknown key (did you mean description?)"]),
    ("description: {a: 1}", ["3:14: description: expected text, got a mapping"]),
    ("labels: vision", ["3:9: labels: expected a list, got 'vision'"]),
    ("labels: [a, 3]", ['3:13: labels[1]: expected text, got 3 (quote it: "3")']),
    ("labels: {a: 1}", ["3:9: labels: expected a list, got a mapping"]),
    ("labels: [null]", ["3:10: labels[0]: expected text, got null"]),
    ("data: 5", ["3:7: data: expected a mapping, got 5"]),
    ("data: [a]", ["3:7: data: expected a mapping, got a list"]),
    ("workspace: Research", ["3:1: workspace: needs `project` as well: both or neither"]),
    ("project: CV", ["3:1: project: needs `workspace` as well: both or neither"]),
    ("workspace: 1\nproject: x", ['3:12: workspace: expected text, got 1 (quote it: "1")']),
    (
        "hyperparameters: [1]",
        ["3:18: hyperparameters: expected a mapping of names to values or ranges, got a list"],
    ),
    (
        "hyperparameters: 3",
        ["3:18: hyperparameters: expected a mapping of names to values or ranges, got 3"],
    ),
    (
        "hyperparameters:\n  lr: {type: itn, minval: 1, maxval: 2}",
        [
            "4:14: hyperparameters.lr.type: expected const, int, double, log, log_int or categorical, got 'itn' (did you mean int?)"
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: 5, maxval: 2}",
        ["4:27: hyperparameters.lr.minval: expected less than maxval (2), got 5"],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: 2, maxval: 2}",
        ["4:27: hyperparameters.lr.minval: expected less than maxval (2), got 2"],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: 0.5, maxval: 2}",
        ["4:27: hyperparameters.lr.minval: expected an integer, got 0.5"],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: 1}",
        ["4:3: hyperparameters.lr.maxval: missing; expected an integer"],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: 1, maxval: 4, count: 0}",
        ["4:48: hyperparameters.lr.count: expected an integer >= 1, got 0"],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: 1, maxval: 4, base: 10}",
        ["4:41: hyperparameters.lr.base: does not belong here; log takes it"],
    ),
    (
        "hyperparameters:\n  lr: {type: int, minval: true, maxval: 4}",
        ["4:27: hyperparameters.lr.minval: expected an integer, got true"],
    ),
    (
        "hyperparameters:\n  lr: {type: double, minval: '0.1', maxval: 4}",
        [
            "4:30: hyperparameters.lr.minval: expected a number, got '0.1' (it is text; write digits without quotes)"
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: double, minval: .nan, maxval: 4}",
        ["4:30: hyperparameters.lr.minval: expected a number, got nan"],
    ),
    (
        "hyperparameters:\n  lr: {type: double, minval: 0, maxval: .inf}",
        ["4:41: hyperparameters.lr.maxval: expected a number, got inf"],
    ),
    (
        "hyperparameters:\n  lr: {type: double, min: 0, maxval: 1}",
        ["4:22: hyperparameters.lr.min: unknown key (did you mean minval?)"],
    ),
    (
        "hyperparameters:\n  lr: {type: log, minval: -4, maxval: -1, base: 0}",
        ["4:49: hyperparameters.lr.base: expected a number > 0, got 0"],
    ),
    (
        "hyperparameters:\n  lr: {type: log, minval: -4, maxval: -1, base: 1}",
        [
            "4:49: hyperparameters.lr.base: expected a number other than 1, whose powers are all 1, got 1"
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: log, minval: -4, maxval: 400, base: 10}",
        [
            "4:39: hyperparameters.lr.maxval: 10 to the power of 400 is out of range (minval and maxval are exponents)"
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: log, minval: -1, maxval: -4, base: 10}",
        ["4:27: hyperparameters.lr.minval: expected less than maxval (-4), got -1"],
    ),
    (
        "hyperparameters:\n  lr: {type: categorical, vals: []}",
        ["4:33: hyperparameters.lr.vals: expected a list that is not empty, got an empty list"],
    ),
    (
        "hyperparameters:\n  lr: {type: categorical, vals: 3}",
        ["4:33: hyperparameters.lr.vals: expected a list that is not empty, got 3"],
    ),
    (
        "hyperparameters:\n  lr: {type: categorical}",
        ["4:3: hyperparameters.lr.vals: missing; expected a list that is not empty"],
    ),
    (
        "hyperparameters:\n  lr: {type: categorical, val: [1]}",
        [
            "4:3: hyperparameters.lr.vals: missing; expected a list that is not empty",
            "4:27: hyperparameters.lr.val: does not belong here; const takes it",
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: const}",
        ["4:3: hyperparameters.lr.val: missing; expected any value"],
    ),
    (
        "hyperparameters:\n  lr: {type: const, val: 1, count: 2}",
        [
            "4:29: hyperparameters.lr.count: does not belong here; int, double, log or log_int takes it"
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: null}",
        [
            "4:8: hyperparameters.lr.type: missing; expected const, int, double, log, log_int or categorical"
        ],
    ),
    (
        "hyperparameters:\n  lr: {type: 5}",
        [
            "4:14: hyperparameters.lr.type: expected const, int, double, log, log_int or categorical, got 5 (a group cannot have a hyperparameter called `type`)"
        ],
    ),
    (
        "hyperparameters:\n  optimizer:\n    type:\n      name: sgd",
        [
            "6:7: hyperparameters.optimizer.type: expected const, int, double, log, log_int or categorical, got a mapping (a group cannot have a hyperparameter called `type`)"
        ],
    ),
    (
        "hyperparameters:\n  optimizer:\n    lr: {type: log, minval: a, maxval: 1}",
        ["5:29: hyperparameters.optimizer.lr.minval: expected a number, got 'a'"],
    ),
    (
        "hyperparameters:\n  a:\n    b:\n      c: {type: duble, minval: 0, maxval: 1}",
        [
            "6:17: hyperparameters.a.b.c.type: expected const, int, double, log, log_int or categorical, got 'duble' (did you mean double?)"
        ],
    ),
    ("resources: 4", ["3:12: resources: expected a mapping, got 4"]),
    (
        "resources: {slots: two}",
        ["3:20: resources.slots: expected an integer >= 0, got 'two'"],
    ),
    (
        "resources: {slots_per_trial: -1}",
        ["3:30: resources.slots_per_trial: expected an integer >= 0, got -1"],
    ),
    (
        "resources: {slots_per_trial: two}",
        ["3:30: resources.slots_per_trial: expected an integer >= 0, got 'two'"],
    ),
    (
        "resources: {slots_per_trial: 1.5}",
        ["3:30: resources.slots_per_trial: expected an integer >= 0, got 1.5"],
    ),
    (
        "resources: {slots_per_trials: 2}",
        ["3:13: resources.slots_per_trials: unknown key (did you mean slots_per_trial?)"],
    ),
    (
        "resources: {slots_per_trial: 4, max_slots: 2}",
        [
            "3:44: resources.max_slots: expected at least slots_per_trial (4), got 2 (no trial could ever start)"
        ],
    ),
    (
        "resources: {max_slots: 0}",
        [
            "3:24: resources.max_slots: expected at least slots_per_trial (1), got 0 (no trial could ever start)"
        ],
    ),
    (
        "resources: {priority: 0}",
        ["3:23: resources.priority: expected an integer >= 1 and <= 99, got 0"],
    ),
    (
        "resources: {priority: 100}",
        ["3:23: resources.priority: expected an integer >= 1 and <= 99, got 100"],
    ),
    ("resources: {weight: 0}", ["3:21: resources.weight: expected a number > 0, got 0"]),
    (
        "resources: {resource_pool: 3}",
        ['3:28: resources.resource_pool: expected text, got 3 (quote it: "3")'],
    ),
    (
        "resources: {shm_size: lots}",
        [
            "3:23: resources.shm_size: expected bytes, or a size such as 4G, 128M or 1.5GiB, got 'lots'"
        ],
    ),
    (
        "resources: {shm_size: -1}",
        ["3:23: resources.shm_size: expected bytes, or a size such as 4G, 128M or 1.5GiB, got -1"],
    ),
    (
        "resources: {devices: [{host_path: /dev/x}]}",
        ["3:23: resources.devices[0].container_path: missing; expected text"],
    ),
    (
        "resources: {devices: [/dev/x]}",
        [
            "3:23: resources.devices[0]: expected a mapping, or text as host_path:container_path:mode, got '/dev/x'"
        ],
    ),
    (
        "resources: {is_single_node: maybe}",
        ["3:29: resources.is_single_node: expected true or false, got 'maybe'"],
    ),
    (
        "resources: {trials_per_slot: 0}",
        ["3:30: resources.trials_per_slot: expected an integer >= 1, got 0"],
    ),
    (
        "resources: {slots_per_trial: 2, trials_per_slot: 4}",
        [
            "3:50: resources.trials_per_slot: trials of 2 slots cannot share a slot (set slots_per_trial to 1)"
        ],
    ),
    (
        "resources: {max_trials: 4}",
        ["3:13: resources.max_trials: unknown key (it belongs to `searcher`)"],
    ),
    ("checkpoint_storage: /tmp/x", ["3:21: checkpoint_storage: expected a mapping, got '/tmp/x'"]),
    (
        "checkpoint_storage: {type: ftp, bucket: x}",
        [
            "3:28: checkpoint_storage.type: expected shared_fs, directory, s3, gcs or azure, got 'ftp'"
        ],
    ),
    (
        "checkpoint_storage: {type: s3}",
        ["3:1: checkpoint_storage.bucket: missing; expected text that is not empty"],
    ),
    (
        "checkpoint_storage: {type: s3, bucket: ''}",
        ["3:40: checkpoint_storage.bucket: expected text that is not empty, got ''"],
    ),
    (
        "checkpoint_storage: {type: s3, bucket: b, prefix: a/../b}",
        ["3:51: checkpoint_storage.prefix: expected a prefix without `..`, got 'a/../b'"],
    ),
    (
        "checkpoint_storage:\n  type: s3\n  bucket: b\n  secret_key: 12345",
        ["6:15: checkpoint_storage.secret_key: expected text, got ********"],
    ),
    (
        "checkpoint_storage: {type: shared_fs}",
        ["3:1: checkpoint_storage.host_path: missing; expected an absolute path"],
    ),
    (
        "checkpoint_storage: {type: shared_fs, host_path: data}",
        ["3:50: checkpoint_storage.host_path: expected an absolute path, got 'data'"],
    ),
    (
        "checkpoint_storage: {type: shared_fs, host_path: /data, storage_path: /database}",
        [
            "3:71: checkpoint_storage.storage_path: expected a subdirectory of host_path (/data), got '/database'"
        ],
    ),
    (
        "checkpoint_storage: {type: shared_fs, host_path: /data, storage_path: ../x}",
        [
            "3:71: checkpoint_storage.storage_path: expected a subdirectory of host_path (/data), got '../x'"
        ],
    ),
    (
        "checkpoint_storage: {type: directory, host_path: /x, container_path: /y}",
        ["3:39: checkpoint_storage.host_path: does not belong here; shared_fs takes it"],
    ),
    (
        "checkpoint_storage: {type: gcs, bucket: b, access_key: x}",
        ["3:44: checkpoint_storage.access_key: does not belong here; s3 takes it"],
    ),
    (
        "checkpoint_storage: {type: azure, container: c}",
        ["3:1: checkpoint_storage: expected connection_string or account_url, got neither"],
    ),
    (
        "checkpoint_storage:\n  type: azure\n  container: c\n  account_url: a\n  connection_string: b",
        [
            "6:3: checkpoint_storage.account_url: expected connection_string or account_url, got both"
        ],
    ),
    (
        "checkpoint_storage: {save_trial_best: -1}",
        ["3:39: checkpoint_storage.save_trial_best: expected an integer >= 0, got -1"],
    ),
    (
        "checkpoint_storage: {save_trial_best: all}",
        ["3:39: checkpoint_storage.save_trial_best: expected an integer >= 0, got 'all'"],
    ),
    (
        "checkpoint_storage: {gc: always}",
        ["3:26: checkpoint_storage.gc: expected end or continuous, got 'always'"],
    ),
    (
        "checkpoint_storage: {type: 3}",
        [
            "3:28: checkpoint_storage.type: expected shared_fs, directory, s3, gcs or azure, got 3 (did you mean s3?)"
        ],
    ),
    (
        "checkpoint_policy: latest",
        ["3:20: checkpoint_policy: expected best, all or none, got 'latest'"],
    ),
    ("checkpoint_policy: true", ["3:20: checkpoint_policy: expected best, all or none, got true"]),
    ("max_restarts: -1", ["3:15: max_restarts: expected an integer >= 0, got -1"]),
    ("max_restarts: many", ["3:15: max_restarts: expected an integer >= 0, got 'many'"]),
    ("max_restarts: true", ["3:15: max_restarts: expected an integer >= 0, got true"]),
    ("max_restart: 3", ["3:1: max_restart: unknown key (did you mean max_restarts?)"]),
    (
        "max_restarts: '3'",
        [
            "3:15: max_restarts: expected an integer >= 0, got '3' (it is text; write digits without quotes)"
        ],
    ),
    (
        "max_wall_time: soon",
        [
            "3:16: max_wall_time: expected seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h, got 'soon'"
        ],
    ),
    (
        "max_wall_time: 0",
        [
            "3:16: max_wall_time: expected seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h, got 0"
        ],
    ),
    (
        "max_wall_time: -5",
        [
            "3:16: max_wall_time: expected seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h, got -5"
        ],
    ),
    (
        "max_trial_wall_time: 3w",
        [
            "3:22: max_trial_wall_time: expected seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h, got '3w'"
        ],
    ),
    (
        "max_wall_time: .inf",
        [
            "3:16: max_wall_time: expected seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h, got inf"
        ],
    ),
    ("preemption_timeout: -1", ["3:21: preemption_timeout: expected an integer >= 0, got -1"]),
    (
        "preemption_timeout: 5m",
        ["3:21: preemption_timeout: expected an integer >= 0, got '5m'"],
    ),
    (
        "min_validation_period: 100",
        [
            "3:24: min_validation_period: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got 100"
        ],
    ),
    (
        "min_validation_period: {batch: 10}",
        [
            "3:24: min_validation_period: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got {batch: 10}"
        ],
    ),
    (
        "min_validation_period: {batches: 10, epochs: 1}",
        [
            "3:24: min_validation_period: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got {batches: 10, epochs: 1}"
        ],
    ),
    (
        "min_validation_period: {}",
        [
            "3:24: min_validation_period: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got an empty mapping"
        ],
    ),
    (
        "min_checkpoint_period: {epochs: -1}",
        [
            "3:24: min_checkpoint_period: expected exactly one of {batches: n}, {records: n} or {epochs: n}, with n an integer >= 0, got {epochs: -1}"
        ],
    ),
    (
        "min_checkpoint_period: {epochs: one}",
        [
            "3:24: min_checkpoint_period: expected exactly one of {batches: n}, {records: n} or {epochs: n}, with n an integer >= 0, got {epochs: 'one'}"
        ],
    ),
    ("scheduling_unit: 0", ["3:18: scheduling_unit: expected an integer >= 1, got 0"]),
    ("scheduling_unit: 1.5", ["3:18: scheduling_unit: expected an integer >= 1, got 1.5"]),
    ("records_per_epoch: -5", ["3:20: records_per_epoch: expected an integer >= 0, got -5"]),
    (
        "perform_initial_validation: yes",
        [
            "3:29: perform_initial_validation: expected true or false, got 'yes' (in YAML 1.2 this is text; write true)"
        ],
    ),
    (
        "perform_initial_validation: 1",
        ["3:29: perform_initial_validation: expected true or false, got 1"],
    ),
    ("reproducibility: 5", ["3:18: reproducibility: expected a mapping, got 5"]),
    ("reproducibility: {seed: 5}", ["3:19: reproducibility.seed: unknown key"]),
    (
        "reproducibility: {experiment_seed: -1}",
        [
            "3:36: reproducibility.experiment_seed: expected an integer >= 0 and <= 4294967295, got -1"
        ],
    ),
    (
        "reproducibility: {experiment_seed: 4294967296}",
        [
            "3:36: reproducibility.experiment_seed: expected an integer >= 0 and <= 4294967295, got 4294967296"
        ],
    ),
    (
        "reproducibility: {experiment_seed: x}",
        [
            "3:36: reproducibility.experiment_seed: expected an integer >= 0 and <= 4294967295, got 'x'"
        ],
    ),
    (
        "debug: on",
        ["3:8: debug: expected true or false, got 'on' (in YAML 1.2 this is text; write true)"],
    ),
    (
        "debug: 'true'",
        ["3:8: debug: expected true or false, got 'true' (it is text; remove the quotes)"],
    ),
    ("profiling: {enabled: 1}", ["3:22: profiling.enabled: expected true or false, got 1"]),
    (
        "profiling: {begin_on_batch: 10, end_after_batch: 5}",
        ["3:50: profiling.end_after_batch: expected at least begin_on_batch (10), got 5"],
    ),
    ("profiling: {enable: true}", ["3:13: profiling.enable: unknown key (did you mean enabled?)"]),
    ("profiling: true", ["3:12: profiling: expected a mapping, got true"]),
    (
        "optimizations: {aggregation_frequency: 0}",
        ["3:40: optimizations.aggregation_frequency: expected an integer >= 1, got 0"],
    ),
    (
        "optimizations: {mixed_precision: O4}",
        ["3:34: optimizations.mixed_precision: expected O0, O1, O2 or O3, got 'O4'"],
    ),
    (
        "optimizations: {mixed_precision: 0}",
        ["3:34: optimizations.mixed_precision: expected O0, O1, O2 or O3, got 0"],
    ),
    (
        "optimizations: {aggregation: 2}",
        ["3:17: optimizations.aggregation: unknown key (did you mean aggregation_frequency?)"],
    ),
    (
        "optimizations: {average_training_metrics: no}",
        [
            "3:43: optimizations.average_training_metrics: expected true or false, got 'no' (in YAML 1.2 this is text; write false)"
        ],
    ),
    (
        "environment: {environment_variables: FOO=1}",
        [
            "3:38: environment.environment_variables: expected a list of NAME=VALUE, or such lists by device, got 'FOO=1'"
        ],
    ),
    (
        "environment:\n  environment_variables:\n    - A=1\n    - 5",
        [
            '6:7: environment.environment_variables[1]: expected an environment variable as NAME=VALUE, got 5 (quote it: "5")'
        ],
    ),
    (
        "environment:\n  environment_variables:\n    - A: 1",
        [
            '5:7: environment.environment_variables[0]: expected an environment variable as NAME=VALUE, got a mapping (write "A=...")'
        ],
    ),
    (
        "environment: {environment_variables: {tpu: [A=1]}}",
        ["3:39: environment.environment_variables.tpu: unknown key (did you mean cpu?)"],
    ),
    (
        "environment: {environment_variables: {cpu: A=1}}",
        ["3:44: environment.environment_variables.cpu: expected a list, got 'A=1'"],
    ),
    (
        "environment: {environment_variables: ['=x']}",
        [
            "3:39: environment.environment_variables[0]: expected an environment variable as NAME=VALUE, got '=x'"
        ],
    ),
    (
        "environment: {environment_variable: []}",
        [
            "3:15: environment.environment_variable: unknown key (did you mean environment_variables?)"
        ],
    ),
    (
        "environment: {python: 3.11}",
        ['3:23: environment.python: expected text, got 3.11 (quote it: "3.11")'],
    ),
    (
        "environment: {python: /a, virtualenv: /b}",
        ["3:27: environment.virtualenv: give python or virtualenv, not both"],
    ),
    (
        "environment: {warm_start: sometimes}",
        ["3:27: environment.warm_start: expected true or false, got 'sometimes'"],
    ),
    (
        "environment: {image: [a]}",
        ["3:22: environment.image: expected text, or a mapping by device, got a list"],
    ),
    (
        "environment: {image: {cpu: 1}}",
        ["3:22: environment.image: expected text, or a mapping by device, got {cpu: 1}"],
    ),
    (
        "environment: {registry_auth: secret}",
        ["3:30: environment.registry_auth: expected a mapping, got ********"],
    ),
    ("environment: {ports: 80}", ["3:22: environment.ports: expected a mapping, got 80"]),
    ("environment: {pod_spec: x}", ["3:25: environment.pod_spec: expected a mapping, got 'x'"]),
    (
        "environment: {add_capabilities: SYS_ADMIN}",
        ["3:33: environment.add_capabilities: expected a list, got 'SYS_ADMIN'"],
    ),
    ("log_policies: {name: x}", ["3:15: log_policies: expected a list, got a mapping"]),
    ("log_policies: [oom]", ["3:16: log_policies[0]: expected a mapping, got 'oom'"]),
    (
        "log_policies:\n  - name: a\n    pattern: '('",
        ["5:14: log_policies[0].pattern: expected a regular expression, got '('"],
    ),
    (
        "log_policies:\n  - name: a\n  - name: a",
        ["5:11: log_policies[1].name: another policy has the name 'a'"],
    ),
    (
        "log_policies:\n  - action: cancel_retries",
        ["4:5: log_policies[0].name: missing; expected text that is not empty"],
    ),
    (
        "log_policies:\n  - name: a\n    action: retry",
        ["5:13: log_policies[0].action: expected cancel_retries or exclude_node, got 'retry'"],
    ),
    (
        "log_policies:\n  - pattern: x\n    action: {type: cancel}",
        [
            "5:20: log_policies[0].action.type: expected cancel_retries or exclude_node, got 'cancel'"
        ],
    ),
    (
        "log_policies:\n  - name: a\n    patern: x",
        ["5:5: log_policies[0].patern: unknown key (did you mean pattern?)"],
    ),
    (
        "log_policies:\n  - name: ''",
        ["4:11: log_policies[0].name: expected text that is not empty, got ''"],
    ),
    (
        "retention_policy: {log_retention_days: -2}",
        [
            "3:40: retention_policy.log_retention_days: expected an integer >= -1 and <= 32767, got -2"
        ],
    ),
    (
        "retention_policy: {log_retention_days: 40000}",
        [
            "3:40: retention_policy.log_retention_days: expected an integer >= -1 and <= 32767, got 40000"
        ],
    ),
    ("retention_policy: 30", ["3:19: retention_policy: expected a mapping, got 30"]),
    ("bind_mounts: /data", ["3:14: bind_mounts: expected a list, got '/data'"]),
    (
        "bind_mounts: [{host_path: /a}]",
        ["3:15: bind_mounts[0].container_path: missing; expected text"],
    ),
    (
        "bind_mounts: [{host_path: /a, container_path: /b, ro: true}]",
        ["3:51: bind_mounts[0].ro: unknown key"],
    ),
    ("bind_mounts: [/a:/b]", ["3:15: bind_mounts[0]: expected a mapping, got '/a:/b'"]),
    (
        "integrations: {on_end: []}",
        [
            "3:24: integrations.on_end: expected a command: text, or a list of arguments, got an empty list"
        ],
    ),
    (
        "integrations: {on_fail: x}",
        ["3:16: integrations.on_fail: unknown key (did you mean on_failure?)"],
    ),
    (
        "integrations: {on_end: 5}",
        ["3:24: integrations.on_end: expected a command: text, or a list of arguments, got 5"],
    ),
    ("integrations: https://x", ["3:15: integrations: expected a mapping, got 'https://x'"]),
    ("slurm: [a]", ["3:8: slurm: expected a mapping, got a list"]),
    ("pbs: 1", ["3:6: pbs: expected a mapping, got 1"]),
    ("metric: loss", ["3:1: metric: unknown key (it belongs to `searcher`)"]),
    ("slots_per_trial: 2", ["3:1: slots_per_trial: unknown key (it belongs to `resources`)"]),
    ("max_trials: 3", ["3:1: max_trials: unknown key (it belongs to `searcher`)"]),
    ("searchers: {}", ["3:1: searchers: unknown key (did you mean searcher?)"]),
    ("Name: x", ["3:1: Name: unknown key (did you mean name?)"]),
]

# Lines after an entrypoint, so they start in line 2.
SEARCHERS: list[tuple[str, list[str]]] = [
    ("", ["searcher: missing; expected a mapping"]),
    ("searcher:", ["2:1: searcher: missing; expected a mapping"]),
    ("searcher: single", ["2:11: searcher: expected a mapping, got 'single'"]),
    ("searcher: [single]", ["2:11: searcher: expected a mapping, got a list"]),
    (
        "searcher: {metric: loss}",
        [
            "2:1: searcher.name: missing; expected single, random, grid, async_halving, adaptive_asha, pbt or custom"
        ],
    ),
    (
        "searcher: {name: single}",
        ["2:1: searcher.metric: missing; expected text that is not empty"],
    ),
    (
        "searcher: {name: sinlge, metric: loss}",
        [
            "2:18: searcher.name: expected single, random, grid, async_halving, adaptive_asha, pbt or custom, got 'sinlge' (did you mean single?)"
        ],
    ),
    (
        "searcher: {name: 5, metric: loss}",
        [
            "2:18: searcher.name: expected single, random, grid, async_halving, adaptive_asha, pbt or custom, got 5"
        ],
    ),
    (
        "searcher: {name: [random], metric: loss}",
        [
            "2:18: searcher.name: expected single, random, grid, async_halving, adaptive_asha, pbt or custom, got a list (did you mean random?)"
        ],
    ),
    (
        "searcher: {name: async_halving, metric: loss, max_trials: 4, max_time: 9, time_metric: a, num_rungs: 600}",
        [
            "2:102: searcher.num_rungs: 600 rungs, each 4.0 times as long as the last, are too many (use 504 or fewer)"
        ],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 4, max_time: 9, time_metric: a, bracket_rungs: [2, 700]}",
        [
            "2:106: searcher.bracket_rungs: 700 rungs, each 4.0 times as long as the last, are too many (use 504 or fewer)"
        ],
    ),
    (
        "searcher: {name: custom, metric: loss, class: 'a:B', sampler: tpe}",
        ["2:54: searcher.sampler: a custom search draws no samples from a model (remove it)"],
    ),
    (
        "searcher: {name: single, metric: 5}",
        ['2:34: searcher.metric: expected text that is not empty, got 5 (quote it: "5")'],
    ),
    (
        "searcher: {name: single, metric: ''}",
        ["2:34: searcher.metric: expected text that is not empty, got ''"],
    ),
    (
        "searcher: {name: single, metric: [loss]}",
        ["2:34: searcher.metric: expected text that is not empty, got a list"],
    ),
    (
        "searcher: {name: single, metric: loss, max_trials: 3}",
        [
            "2:40: searcher.max_trials: does not belong here; random, async_halving or adaptive_asha takes it"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, smaller_is_better: yes}",
        [
            "2:59: searcher.smaller_is_better: expected true or false, got 'yes' (in YAML 1.2 this is text; write true)"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, smaller_is_beter: true}",
        ["2:40: searcher.smaller_is_beter: unknown key (did you mean smaller_is_better?)"],
    ),
    (
        "searcher: {name: single, metric: loss, source_trial_id: 1, source_checkpoint_uuid: abc}",
        [
            "2:60: searcher.source_checkpoint_uuid: give source_trial_id or source_checkpoint_uuid, not both"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, source_trial_id: 0}",
        ["2:57: searcher.source_trial_id: expected an integer >= 1, got 0"],
    ),
    (
        "searcher: {name: single, metric: loss, max_length: 0}",
        [
            "2:52: searcher.max_length: expected an integer >= 1, or {batches: n}, {records: n} or {epochs: n}, got 0"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, max_length: {batches: 0}}",
        ["2:52: searcher.max_length: expected a length of at least 1, got {batches: 0}"],
    ),
    (
        "searcher: {name: single, metric: loss, max_length: {steps: 5}}",
        [
            "2:52: searcher.max_length: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got {steps: 5}"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, max_length: ten}",
        [
            "2:52: searcher.max_length: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got 'ten'"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, max_length: {batches: 1, epochs: 2}}",
        [
            "2:52: searcher.max_length: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got {batches: 1, epochs: 2}"
        ],
    ),
    (
        "searcher: {name: random, metric: loss}",
        ["2:1: searcher.max_trials: missing; expected an integer >= 1"],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 0}",
        ["2:52: searcher.max_trials: expected an integer >= 1, got 0"],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: ten}",
        ["2:52: searcher.max_trials: expected an integer >= 1, got 'ten'"],
    ),
    (
        "searcher: {name: random, metric: loss, max_trial: 10}",
        ["2:40: searcher.max_trial: unknown key (did you mean max_trials?)"],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 5, max_concurrent_trials: -1}",
        ["2:78: searcher.max_concurrent_trials: expected an integer >= 0, got -1"],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 5, sampler: tpee}",
        [
            "2:64: searcher.sampler: expected random, auto, tpe, gp, cmaes or qmc, got 'tpee' (did you mean tpe?)"
        ],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 5, mode: standard}",
        ["2:55: searcher.mode: does not belong here; adaptive_asha takes it"],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 5, time_metric: epochs}",
        [
            "2:55: searcher.time_metric: does not belong here; async_halving, adaptive_asha or pbt takes it"
        ],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 5, stop_when: {no_improvement_for: soon}}",
        [
            "2:87: searcher.stop_when.no_improvement_for: expected `20 trials`, or another number >= 1, got 'soon'"
        ],
    ),
    (
        "searcher: {name: random, metric: loss, max_trials: 5, stop_when: {max_total_units: 0}}",
        ["2:84: searcher.stop_when.max_total_units: expected an integer >= 1, got 0"],
    ),
    (
        "searcher: {name: single, metric: loss, stop_when: {max_total_units: 9}}",
        [
            "2:40: searcher.stop_when: does not belong here; random, grid, async_halving or adaptive_asha takes it"
        ],
    ),
    (
        "searcher: {name: grid, metric: loss}",
        ["hyperparameters: a grid search needs hyperparameters, and there are none"],
    ),
    (
        "searcher: {name: grid, metric: loss, max_trials: 5}\nhyperparameters: {a: 1}",
        [
            "2:38: searcher.max_trials: does not belong here; random, async_halving or adaptive_asha takes it"
        ],
    ),
    (
        "searcher: {name: grid, metric: loss}\nhyperparameters:\n  lr: {type: double, minval: 0, maxval: 1}",
        [
            "4:3: hyperparameters.lr.count: missing; a grid search needs the number of points in this range"
        ],
    ),
    (
        "searcher: {name: grid, metric: loss}\nhyperparameters:\n  a:\n    lr: {type: log, minval: 0, maxval: 1}",
        [
            "5:5: hyperparameters.a.lr.count: missing; a grid search needs the number of points in this range"
        ],
    ),
    (
        "searcher: {name: grid, metric: loss}\nhyperparameters:\n  a: {type: categorical, vals: [1, 2, 1]}",
        ["4:39: hyperparameters.a.vals[2]: 1 is listed twice: the grid would have equal trials"],
    ),
    (
        "searcher: {name: async_halving, metric: loss, max_trials: 5, num_rungs: 3}",
        [
            "2:1: searcher.max_time: missing; expected an integer >= 1",
            "2:1: searcher.time_metric: missing; expected text that is not empty",
        ],
    ),
    (
        "searcher: {name: async_halving, metric: loss, max_trials: 5, max_time: 10, time_metric: epochs}",
        ["2:1: searcher.num_rungs: missing; expected an integer >= 1"],
    ),
    (
        "searcher: {name: async_halving, metric: loss, max_trials: 5, num_rungs: 0, max_time: 10, time_metric: epochs}",
        ["2:73: searcher.num_rungs: expected an integer >= 1, got 0"],
    ),
    (
        "searcher: {name: async_halving, metric: loss, max_trials: 5, num_rungs: 2, max_time: 10, time_metric: epochs, divisor: 1}",
        ["2:120: searcher.divisor: expected a number > 1, got 1"],
    ),
    (
        "searcher: {name: async_halving, metric: loss, max_trials: 5, num_rungs: 2, max_time: 10, time_metric: epochs, max_rungs: 3}",
        ["2:111: searcher.max_rungs: does not belong here; adaptive_asha takes it"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5}",
        [
            "2:1: searcher.max_time: missing; expected an integer >= 1",
            "2:1: searcher.time_metric: missing; expected text that is not empty",
        ],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 10}",
        ["2:1: searcher.time_metric: missing; expected text that is not empty"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, time_metric: epochs}",
        ["2:1: searcher.max_time: missing; expected an integer >= 1"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 0, time_metric: epochs}",
        ["2:72: searcher.max_time: expected an integer >= 1, got 0"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 2.5, time_metric: epochs}",
        ["2:72: searcher.max_time: expected an integer >= 1, got 2.5"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 10, time_metric: epochs, mode: fast}",
        ["2:103: searcher.mode: expected standard, aggressive or conservative, got 'fast'"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 10, time_metric: epochs, bracket_rungs: 3}",
        ["2:112: searcher.bracket_rungs: expected a list, got 3"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 10, time_metric: epochs, bracket_rungs: [0]}",
        ["2:113: searcher.bracket_rungs[0]: expected an integer >= 1, got 0"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: 10, time_metric: epochs, stop_once: 1}",
        ["2:108: searcher.stop_once: expected true or false, got 1"],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_length: {epoch: 3}}",
        [
            "2:1: searcher.max_time: missing; expected an integer >= 1",
            "2:1: searcher.time_metric: missing; expected text that is not empty",
            "2:74: searcher.max_length: expected exactly one of {batches: n}, {records: n} or {epochs: n}, got {epoch: 3}",
        ],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 5, max_time: {epochs: 3}}",
        [
            "2:1: searcher.time_metric: missing; expected text that is not empty",
            "2:72: searcher.max_time: expected an integer >= 1, got a mapping",
        ],
    ),
    (
        "searcher: {name: adaptive, metric: loss, max_trials: 5}",
        [
            "2:18: searcher.name: `adaptive` was removed and is not valid for new experiments (use adaptive_asha)"
        ],
    ),
    (
        "searcher: {name: adaptive_simple, metric: loss}",
        [
            "2:18: searcher.name: `adaptive_simple` was removed and is not valid for new experiments (use adaptive_asha)"
        ],
    ),
    (
        "searcher: {name: sync_halving, metric: loss, num_rungs: 3}",
        [
            "2:18: searcher.name: `sync_halving` was removed and is not valid for new experiments (use async_halving)"
        ],
    ),
    (
        "searcher: {name: custom, metric: loss, unit: batches}",
        ["2:1: searcher.class: missing; expected a class as `module:Class`"],
    ),
    (
        "searcher: {name: pbt, metric: loss, population_size: 40, num_rounds: 10}",
        [
            "2:1: searcher.interval: missing; expected an integer >= 1",
            "2:1: searcher.max_time: missing; expected an integer >= 1",
            "2:18: searcher.name: nothing would change from member to member (give at least one hyperparameter a range)",
            "2:37: searcher.population_size: unknown key (did you mean population?)",
            "2:58: searcher.num_rounds: unknown key (write `max_time`, the rounds times `interval`)",
        ],
    ),
    (
        "searcher: {name: pbt, metric: loss, population: 4, interval: 10, max_time: 45}\n"
        "hyperparameters: {lr: {type: double, minval: 1, maxval: 2}, n: 3}",
        ["2:76: searcher.max_time: expected a multiple of interval (10), got 45 (use 40 or 50)"],
    ),
    (
        "searcher: {name: pbt, metric: loss, population: 4, interval: 10, max_time: 5}\n"
        "hyperparameters: {lr: {type: double, minval: 1, maxval: 2}, n: 3}",
        ["2:76: searcher.max_time: expected a multiple of interval (10), got 5 (use 10)"],
    ),
    (
        "searcher: {name: pbt, metric: loss, population: 4, interval: 10, max_time: 40, inherit: [n]}\n"
        "hyperparameters: {lr: {type: double, minval: 1, maxval: 2}, n: 3}",
        ["2:89: searcher.inherit: 'n' is not a searched hyperparameter (these are: lr)"],
    ),
    (
        "searcher: {name: pbt, metric: loss, population: 4, interval: 10, max_time: 40, inherit: [lr]}\n"
        "hyperparameters: {lr: {type: double, minval: 1, maxval: 2}, n: 3}",
        ["2:89: searcher.inherit: nothing would change from member to member (inherit fewer)"],
    ),
    (
        "searcher: {name: pbt, metric: loss, population: 4, interval: 10, max_time: 40, perturb: [1, 1]}\n"
        "hyperparameters: {lr: {type: double, minval: 1, maxval: 2}, n: 3}",
        ["2:89: searcher.perturb: a factor of 1 changes nothing (for example [0.8, 1.25])"],
    ),
    (
        "searcher: {name: pbt, metric: loss, population: 4, interval: 10, max_time: 40}\n"
        "hyperparameters: {a: {lr: {type: categorical, vals: [1]}}}",
        [
            "2:18: searcher.name: nothing would change from member to member (give at least one hyperparameter a range)"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, direction: maximize}",
        [
            "2:40: searcher.direction: unknown key (write `smaller_is_better: false` to maximize the metric, `true` to minimize it)"
        ],
    ),
    (
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 4, max_time: 4, time_metric: epochs, mode: max}",
        [
            "2:102: searcher.mode: expected standard, aggressive or conservative, got 'max' (write `smaller_is_better: false` to maximize the metric, `true` to minimize it)"
        ],
    ),
    (
        "searcher: {name: single, metric: loss, max_steps: 5}",
        [
            "2:40: searcher.max_steps: unknown key (a step was 100 batches; write `max_length: {batches: n}`)"
        ],
    ),
    (
        "searcher: {name: custom, metric: loss, class: Method}",
        ["2:47: searcher.class: expected a class as `module:Class`, got 'Method'"],
    ),
    (
        "searcher: {name: custom, metric: loss, class: 'a b:C'}",
        ["2:47: searcher.class: expected a class as `module:Class`, got 'a b:C'"],
    ),
]

# Whole files; the error that matters in each.
WHOLE_FILES: list[tuple[str, list[str]]] = [
    ("", ["expected a mapping of keys to values, got an empty file"]),
    ("# nothing\n", ["expected a mapping of keys to values, got an empty file"]),
    ("null", ["1:1: expected a mapping of keys to values, got an empty file"]),
    ("just text", ["1:1: expected a mapping of keys to values, got 'just text'"]),
    ("- a\n- b", ["1:1: expected a mapping of keys to values, got a list"]),
    ("42", ["1:1: expected a mapping of keys to values, got 42"]),
    ("{}", ["1:1: expected a mapping of keys to values, got an empty mapping"]),
    ("a: 1\n---\nb: 2", ["2:1: a second document starts here; a configuration is one"]),
    ("a: [1, 2", ["2:1: not YAML: did not find expected ',' or ']'"]),
    ("a: 1\n b: 2", ["2:3: not YAML: mapping values are not allowed in this context"]),
    (
        "\ta: 1",
        [
            "1:1: not YAML: found character that cannot start any token (indent with spaces, not tabs)"
        ],
    ),
    (
        "name: x\n\tdebug: true",
        [
            "2:1: not YAML: found a tab character that violates indentation (indent with spaces, not tabs)"
        ],
    ),
    ("a: &x {b: *x}", ["1:11: a.b: unknown alias `*x`"]),
    ("a: *nothing", ["1:4: a: unknown alias `*nothing`"]),
    (
        "name: !!python/name:os.system x",
        ["1:7: name: the tag `!!python/name:os.system` is not allowed here; write a plain value"],
    ),
    (
        "name: !!python/object/apply:os.system ['true']",
        [
            "1:7: name: the tag `!!python/object/apply:os.system` is not allowed here; write a plain value"
        ],
    ),
    ("name: !custom x", ["1:7: name: the tag `!custom` is not allowed here; write a plain value"]),
    ("data: !!set {a, b}", ["1:7: data: the tag `!!set` is not allowed here; write a plain value"]),
    (
        "data: !!binary aGk=",
        ["1:7: data: the tag `!!binary` is not allowed here; write a plain value"],
    ),
    ("name: !!int x", ["1:7: name: the tag `!!int` is not allowed here; write a plain value"]),
    ("? [a, b]\n: c", ["1:3: a key must be a plain word"]),
    ("name: a\nname: b", ["2:1: name: duplicate key, first given in line 1"]),
    (
        "searcher: {name: single, name: random}",
        ["1:1: searcher.metric: missing; expected text that is not empty"],
    ),
    ("data: {a: 1, b: {c: 1, c: 2}}", ["1:24: data.b.c: duplicate key, first given in line 1"]),
    ("name: 'open", ["1:12: not YAML: found unexpected end of stream"]),
    ("name: @x", ["1:7: not YAML: found character that cannot start any token"]),
    ("name: %x", ["1:7: not YAML: found character that cannot start any token"]),
    ("name: x: y", ["1:8: not YAML: mapping values are not allowed in this context"]),
    ("key without colon", ["1:1: expected a mapping of keys to values, got 'key without colon'"]),
    ("data: {<<: 5}", ["1:12: data: `<<` takes a mapping or a list of mappings"]),
    ("a: \x01", ["1:4: not YAML: control characters are not allowed"]),
    (
        "entrypoint: 5\nsearcher: {name: single, metric: m}",
        ["1:13: entrypoint: expected a command: text, or a list of arguments, got 5"],
    ),
    (
        "entrypoint: []\nsearcher: {name: single, metric: m}",
        ["1:13: entrypoint: expected a command: text, or a list of arguments, got an empty list"],
    ),
    (
        "entrypoint: ''\nsearcher: {name: single, metric: m}",
        ["1:13: entrypoint: expected a command: text, or a list of arguments, got ''"],
    ),
    (
        "entrypoint: [python3, 5]\nsearcher: {name: single, metric: m}",
        ['1:23: entrypoint[1]: expected an argument of the command, got 5 (quote it: "5")'],
    ),
    (
        "entrypoint: [python3, ' ', true, [x]]\nsearcher: {name: single, metric: m}",
        ["1:23: entrypoint[1]: expected an argument of the command, got ' '"],
    ),
    (
        "entrypoint: [python3, [x]]\nsearcher: {name: single, metric: m}",
        ["1:23: entrypoint[1]: expected an argument of the command, got a list"],
    ),
    (
        "entrypoint: {a: b}\nsearcher: {name: single, metric: m}",
        ["1:13: entrypoint: expected a command: text, or a list of arguments, got {a: 'b'}"],
    ),
    (
        "searcher: {name: single, metric: m}",
        ["entrypoint: missing; expected a command (for example `entrypoint: python3 train.py`)"],
    ),
    (
        "entrypoint: model:Trial\nsearcher: {name: single, metric: m}",
        [
            "2:1: searcher.max_length: missing; says how long to train a trial class (for example `max_length: {batches: 1000}`)"
        ],
    ),
    (
        "entrypoint: python3 -m determined.launch.torch_distributed --trial m:T\nsearcher: {name: random, metric: m, max_trials: 2}",
        [
            "2:1: searcher.max_length: missing; says how long to train a trial class (for example `max_length: {batches: 1000}`)"
        ],
    ),
    (
        "data: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        ["1:71: nested more than 64 levels deep"],
    ),
]
