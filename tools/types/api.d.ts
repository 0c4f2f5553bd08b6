// Made by `python -m tools.api_types` from the API's description. Do not edit.

declare namespace Api {
  type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

  /** The best trial, and the line that loads it. */
  type BestShape = {
    trial_id: number;
    hparams: Record<string, Json>;
    metric: string | null;
    value: Number | null;
    steps: number | null;
    checkpoint_uuid: string | null;
    load: string;
  };

  type BracketShape = {
    number: number;
    max_trials: number;
    rungs: RungShape[];
  };

  type ChartShape = {
    title: string;
    unit: string;
    total: number;
    series: CurveShape[];
  };

  /** A checkpoint; `metric` is the searcher's metric in the validation at its step. */
  type CheckpointShape = {
    uuid: string;
    trial_id: number | null;
    experiment_id: number | null;
    state: string;
    steps: number;
    size: number;
    metric: Number | null;
    time: Number;
    files: Record<string, number>;
    storage: string;
    registered: RegisteredShape[];
    load: string;
  };

  type CheckpointsShape = {
    total: number;
    rows: CheckpointShape[];
  };

  type CodeShape = {
    files: FileShape[];
    truncated: boolean;
  };

  /** A column that a table can show, and whether its rows differ in it. */
  type ColumnShape = {
    key: string;
    label: string;
    differs: boolean;
  };

  type ColumnsShape = {
    available: ColumnShape[];
  };

  type CompareShape = {
    trials: ComparedTrial[];
    differs: DifferencesShape;
    metrics: MetricName[];
  };

  /** A trial with the name of its experiment. */
  type ComparedTrial = {
    id: number;
    experiment_id: number;
    state: string;
    reason: string;
    progress: Number;
    hparams: Record<string, Json>;
    best_validation: Number | null;
    best_steps: number | null;
    latest_validation: Number | null;
    latest_steps: number | null;
    steps: number;
    restarts: number;
    runs: number;
    created: Number;
    started: Number | null;
    ended: Number | null;
    duration: Number | null;
    checkpoint_count: number;
    checkpoint_size: number;
    rung: number | null;
    bracket: number | null;
    decision: string;
    columns: Record<string, Json>;
    experiment_name: string;
  };

  /** Cells in rows of y and columns of x; edges of ranges, or categories. */
  type ContourShape = {
    x: Json[];
    y: Json[];
    x_is_range: boolean;
    y_is_range: boolean;
    z: ((Number | null)[])[];
    count: number[][];
  };

  /** Means over equal time intervals, with the extremes of each interval. */
  type CurveShape = {
    name: string;
    x: Number[];
    y: Number[];
    min: Number[];
    max: Number[];
  };

  type DecisionShape = {
    time: Number;
    sentence: string;
  };

  type DiffShape = {
    config: string;
    code: FileDiff[];
    hparams: Record<string, Json[]>;
    truncated: boolean;
  };

  /** Values in the order of the trials, by name; null where a trial has none. */
  type DifferencesShape = {
    hparams: Record<string, Json[]>;
    metrics: Record<string, Json[]>;
    config: Record<string, Json[]>;
  };

  /** An action was accepted; `state` is the current one. */
  type DoneShape = {
    ok: boolean;
    state: string;
  };

  /** The error of a failed trial: the line of its log, if known, and the traceback. */
  type ErrorShape = {
    line: number | null;
    text: string;
  };

  type EventShape = {
    time: Number;
    level: string;
    kind: string;
    text: string;
    trial_id: number | null;
  };

  /** An experiment with everything that its page shows first. */
  type ExperimentDetail = {
    id: number;
    name: string;
    description: string;
    labels: string[];
    state: string;
    reason: string;
    progress: Number;
    owner: string;
    project: ProjectName;
    searcher: SearcherName;
    best_validation: Number | null;
    best_trial_id: number | null;
    trials: number;
    states: Record<string, number>;
    created: Number;
    started: Number | null;
    ended: Number | null;
    duration: Number | null;
    archived: boolean;
    unmanaged: boolean;
    checkpoint_count: number;
    checkpoint_size: number;
    columns: Record<string, Json>;
    notes: string;
    parent_id: number | null;
    config: Record<string, Json>;
    config_yaml: string;
    environment: Record<string, Json>;
    best: BestShape | null;
    slot_seconds: Number;
    events: EventShape[];
    metrics: MetricName[];
    hparams: HparamShape[];
  };

  /** A row of the table of experiments. */
  type ExperimentShape = {
    id: number;
    name: string;
    description: string;
    labels: string[];
    state: string;
    reason: string;
    progress: Number;
    owner: string;
    project: ProjectName;
    searcher: SearcherName;
    best_validation: Number | null;
    best_trial_id: number | null;
    trials: number;
    states: Record<string, number>;
    created: Number;
    started: Number | null;
    ended: Number | null;
    duration: Number | null;
    archived: boolean;
    unmanaged: boolean;
    checkpoint_count: number;
    checkpoint_size: number;
    columns: Record<string, Json>;
  };

  /** A page of the table of experiments. */
  type ExperimentsShape = {
    total: number;
    rows: ExperimentShape[];
    columns: ColumnsShape;
  };

  /** A file; without text if it is binary. */
  type FileContent = {
    path: string;
    text: string | null;
    binary: boolean;
    truncated: boolean;
    size: number;
  };

  /** A file that was added, removed or changed; no `diff` if it is binary or too large. */
  type FileDiff = {
    path: string;
    change: string;
    diff: string;
  };

  type FileShape = {
    path: string;
    size: number;
  };

  /** A hyperparameter as configured; `differs` says whether trials differ in it. */
  type HparamShape = {
    name: string;
    type: string;
    values: Json[] | null;
    minval: Number | null;
    maxval: Number | null;
    base: Number | null;
    differs: boolean;
  };

  /** The share of each hyperparameter; `note` says why there are none, or how reliable it is. */
  type ImportanceShape = {
    method: string;
    metric: string | null;
    trials: number;
    values: Record<string, Number>;
    note: string;
  };

  /** A line of a log; lines count from 1 over all runs of the trial. */
  type LineShape = {
    line: number;
    time: Number | null;
    level: string | null;
    rank: number | null;
    source: string;
    text: string;
    trial_id: number;
  };

  /** A unified diff of two logs; `note` says if only their beginnings were compared. */
  type LogDiffShape = {
    diff: string;
    note: string;
  };

  /** A page of a log: `next` and `previous` are where to continue, null at the ends. */
  type LogShape = {
    lines: LineShape[];
    first: number | null;
    last: number | null;
    total: number;
    next: number | null;
    previous: number | null;
  };

  /** Lines of many trials by time; `line` counts within the run that `source` names. */
  type MergedShape = {
    lines: LineShape[];
    next: string | null;
    previous: string | null;
  };

  /** A metric; `batches` says whether some trial has per-batch values too. */
  type MetricName = {
    group: string;
    name: string;
    batches: boolean;
  };

  /** A metric of a trial; `batches` says whether there are per-batch values too. */
  type MetricShape = {
    group: string;
    name: string;
    last: Json;
    min: Number | null;
    max: Number | null;
    count: number | null;
    batches: boolean;
  };

  type ModelDetail = {
    id: number;
    name: string;
    description: string;
    labels: string[];
    owner: string;
    workspace: string;
    archived: boolean;
    created: Number;
    updated: Number;
    metadata: Record<string, Json>;
    num_versions: number;
    latest: VersionShape | null;
    versions: VersionShape[];
  };

  /** The action is done; `version` is the version it was about. */
  type ModelDone = {
    ok: boolean;
    model: string;
    version: number | null;
  };

  type ModelShape = {
    id: number;
    name: string;
    description: string;
    labels: string[];
    owner: string;
    workspace: string;
    archived: boolean;
    created: Number;
    updated: Number;
    metadata: Record<string, Json>;
    num_versions: number;
    latest: VersionShape | null;
  };

  type ModelsShape = {
    total: number;
    rows: ModelShape[];
  };

  /** A number; NaN and infinities are strings. */
  type Number = number | "NaN" | "Infinity" | "-Infinity";

  type OutcomeShape = {
    ok?: boolean;
    state?: string;
    error?: string;
  };

  /** The outcomes of an action on many experiments, by id. */
  type OutcomesShape = {
    results: Record<string, OutcomeShape>;
  };

  type OwnerShape = {
    id: number;
    name: string;
    state: string;
    unmanaged: boolean;
    searcher: SearcherName;
  };

  /** A part of training, the seconds it took, and its share of the time. */
  type PartShape = {
    what: string;
    seconds: Number;
    share: Number;
    calls: number | null;
  };

  /** All trials of a search, column by column. */
  type PointsShape = {
    ids: number[];
    states: string[];
    values: (Number | null)[];
    steps: number[];
    hparams: Record<string, Json[]>;
  };

  type Problem = {
    error: string;
    next?: string;
  };

  type ProfileShape = {
    rows: PartShape[];
    batches: number | null;
    advice: string[];
    note: string;
  };

  /** A project, and where it is. */
  type ProjectName = {
    id: number;
    name: string;
    workspace_id: number;
    workspace: string;
  };

  type ProjectShape = {
    id: number;
    workspace_id: number;
    workspace: string;
    name: string;
    description: string;
    archived: boolean;
  };

  type ProjectsShape = {
    rows: ProjectShape[];
  };

  type QueueShape = {
    slots: SlotShape[];
    running: RunningShape[];
    waiting: WaitingShape[];
    waiting_total: number;
    left_out: string[];
  };

  type RegisteredShape = {
    model: string;
    version: number;
  };

  /** One run of a trial. */
  type RunShape = {
    run_id: number;
    state: string;
    created: Number;
    started: Number | null;
    ended: Number | null;
    steps_completed: number;
    exit_code: number | null;
    reason: string;
    host: string;
    slots: number[];
    from_checkpoint: string | null;
    environment: string;
    differences: string[];
  };

  /** A trial at a rung; `metric` is null if it failed there. */
  type RungRow = {
    trial_id: number;
    rank: number;
    metric: Number | null;
    outcome: string;
    sentence: string;
  };

  /** A rung: how many results it has, how many trials continued, and the best trials. */
  type RungShape = {
    units: number;
    seen: number;
    kept: number;
    rows: RungRow[];
  };

  /** The rungs of a search; methods without rungs have no brackets. */
  type RungsShape = {
    method: string;
    metric: string | null;
    unit: string;
    brackets: BracketShape[];
    steps: StepShape[];
  };

  type RunningShape = {
    trial_id: number;
    experiment_id: number | null;
    name: string;
    slots: number[];
    since: Number;
    host: string;
  };

  /** An experiment's searcher and its metric. */
  type SearcherName = {
    name: string;
    metric: string | null;
    smaller_is_better: boolean;
  };

  /** What a page requests first. */
  type SessionShape = {
    csrf: string;
    version: string;
    home: string;
    user: string;
    supervisor: SupervisorShape;
    slots: SlotsShape;
    counts: Record<string, number>;
    verbs: string[];
  };

  /** A slot; several trials may share it. */
  type SlotShape = {
    id: number;
    kind: string;
    name: string;
    node: string;
    used_by: UserShape | null;
    users: UserShape[];
  };

  type SlotsShape = {
    total: number;
    used: number;
  };

  /** A small curve: the searcher's metric of the best trial. */
  type SparkShape = {
    metric: string;
    y: Number[];
  };

  /** A decision of the search. */
  type StepShape = {
    number: number;
    time: Number;
    trial_id: number | null;
    sentence: string;
  };

  /** Whether a supervisor is running. */
  type SupervisorShape = {
    alive: boolean;
    pid: number | null;
    text: string;
  };

  type SystemShape = {
    charts: ChartShape[];
  };

  /** Its address, as seen from the dashboard's machine; of many trials it shows the best. */
  type TensorBoardShape = {
    url: string;
    shown: number;
    trials: number;
  };

  /** A trial with everything that its page shows first. */
  type TrialDetail = {
    id: number;
    experiment_id: number;
    state: string;
    reason: string;
    progress: Number;
    hparams: Record<string, Json>;
    best_validation: Number | null;
    best_steps: number | null;
    latest_validation: Number | null;
    latest_steps: number | null;
    steps: number;
    restarts: number;
    runs: number;
    created: Number;
    started: Number | null;
    ended: Number | null;
    duration: Number | null;
    checkpoint_count: number;
    checkpoint_size: number;
    rung: number | null;
    bracket: number | null;
    decision: string;
    columns: Record<string, Json>;
    experiment: OwnerShape;
    metrics: MetricShape[];
    run_list: RunShape[];
    error: ErrorShape | null;
    best_checkpoint: string | null;
    load: string;
    seed: number;
    metadata: Record<string, Json>;
    decisions: DecisionShape[];
  };

  /** A row of a table of trials. */
  type TrialShape = {
    id: number;
    experiment_id: number;
    state: string;
    reason: string;
    progress: Number;
    hparams: Record<string, Json>;
    best_validation: Number | null;
    best_steps: number | null;
    latest_validation: Number | null;
    latest_steps: number | null;
    steps: number;
    restarts: number;
    runs: number;
    created: Number;
    started: Number | null;
    ended: Number | null;
    duration: Number | null;
    checkpoint_count: number;
    checkpoint_size: number;
    rung: number | null;
    bracket: number | null;
    decision: string;
    columns: Record<string, Json>;
  };

  /** A page of a table of trials. */
  type TrialsShape = {
    total: number;
    rows: TrialShape[];
  };

  type UserShape = {
    trial_id: number;
    experiment_id: number | null;
    name: string;
  };

  /** A version of a model, and where its checkpoint came from. */
  type VersionShape = {
    number: number;
    name: string;
    comment: string;
    notes: string;
    metadata: Record<string, Json>;
    created: Number;
    checkpoint_uuid: string;
    trial_id: number | null;
    experiment_id: number | null;
    steps: number | null;
    size: number | null;
    state: string;
    load: string;
  };

  type WaitingShape = {
    experiment_id: number;
    trial_id: number;
    name: string;
    slots: number;
    priority: number;
    why: string;
  };

  type WorkspaceShape = {
    id: number;
    name: string;
    owner: string;
    archived: boolean;
  };

  type WorkspacesShape = {
    rows: WorkspaceShape[];
  };

  type Get<Address> =
    Address extends `/api/experiments/${number}/code/file` ? { parameters: "path"; body: undefined; answer: FileContent } :
    Address extends `/api/trials/${number}/logs/diff` ? { parameters: "other" | "numbers"; body: undefined; answer: LogDiffShape } :
    Address extends `/api/experiments/${number}/checkpoints` ? { parameters: "limit" | "offset"; body: undefined; answer: CheckpointsShape } :
    Address extends `/api/experiments/${number}/code` ? { parameters: never; body: undefined; answer: CodeShape } :
    Address extends `/api/experiments/${number}/contour` ? { parameters: "x" | "y" | "bins"; body: undefined; answer: ContourShape } :
    Address extends `/api/experiments/${number}/diff` ? { parameters: "other"; body: undefined; answer: DiffShape } :
    Address extends `/api/experiments/${number}/importance` ? { parameters: "metric" | "smaller"; body: undefined; answer: ImportanceShape } :
    Address extends `/api/experiments/${number}/logs` ? { parameters: "after" | "tail" | "limit" | "search" | "level" | "rank" | "since" | "until"; body: undefined; answer: MergedShape } :
    Address extends `/api/experiments/${number}/points` ? { parameters: never; body: undefined; answer: PointsShape } :
    Address extends `/api/experiments/${number}/rungs` ? { parameters: never; body: undefined; answer: RungsShape } :
    Address extends `/api/experiments/${number}/trials` ? { parameters: "limit" | "offset" | "state" | "sort" | "order" | "columns"; body: undefined; answer: TrialsShape } :
    Address extends `/api/trials/${number}/checkpoints` ? { parameters: "limit" | "offset"; body: undefined; answer: CheckpointsShape } :
    Address extends `/api/trials/${number}/logs` ? { parameters: "from_line" | "tail" | "limit" | "regex" | "search" | "level" | "rank" | "since" | "until"; body: undefined; answer: LogShape } :
    Address extends `/api/trials/${number}/profile` ? { parameters: never; body: undefined; answer: ProfileShape } :
    Address extends `/api/trials/${number}/system` ? { parameters: "px"; body: undefined; answer: SystemShape } :
    Address extends `/api/experiments/sparks` ? { parameters: "ids" | "px"; body: undefined; answer: Record<string, SparkShape> } :
    Address extends `/api/experiments/${number}` ? { parameters: never; body: undefined; answer: ExperimentDetail } :
    Address extends `/api/models/${string}` ? { parameters: never; body: undefined; answer: ModelDetail } :
    Address extends `/api/trials/${number}` ? { parameters: never; body: undefined; answer: TrialDetail } :
    Address extends `/api/compare` ? { parameters: "trials"; body: undefined; answer: CompareShape } :
    Address extends `/api/experiments` ? { parameters: "limit" | "offset" | "search" | "state" | "label" | "project" | "workspace" | "archived" | "unmanaged" | "metric_min" | "metric_max" | "sort" | "order" | "columns"; body: undefined; answer: ExperimentsShape } :
    Address extends `/api/models` ? { parameters: never; body: undefined; answer: ModelsShape } :
    Address extends `/api/projects` ? { parameters: never; body: undefined; answer: ProjectsShape } :
    Address extends `/api/queue` ? { parameters: never; body: undefined; answer: QueueShape } :
    Address extends `/api/series` ? { parameters: "keys" | "x" | "from" | "to" | "px" | "smooth"; body: undefined; answer: ArrayBuffer } :
    Address extends `/api/session` ? { parameters: never; body: undefined; answer: SessionShape } :
    Address extends `/api/workspaces` ? { parameters: never; body: undefined; answer: WorkspacesShape } :
    never;

  type Post<Address> =
    Address extends `/api/models/${string}/versions/${number}/delete` ? { parameters: never; body: undefined; answer: ModelDone } :
    Address extends `/api/experiments/${number}/${string}` ? { parameters: never; body: undefined; answer: DoneShape } :
    Address extends `/api/models/${string}/delete` ? { parameters: never; body: undefined; answer: ModelDone } :
    Address extends `/api/models/${string}/versions` ? { parameters: never; body: {
      checkpoint_uuid: string;
    }; answer: ModelDone } :
    Address extends `/api/trials/${number}/kill` ? { parameters: never; body: undefined; answer: DoneShape } :
    Address extends `/api/experiments/verbs` ? { parameters: never; body: {
      verb: "pause" | "activate" | "cancel" | "kill" | "archive" | "unarchive" | "delete" | "label" | "unlabel";
      ids: number[];
      label?: string;
    }; answer: OutcomesShape } :
    Address extends `/api/models` ? { parameters: never; body: {
      name: string;
      description?: string;
      labels?: string[];
    }; answer: ModelDone } :
    Address extends `/api/tensorboard` ? { parameters: never; body: {
      experiments?: number[];
      trials?: number[];
    }; answer: TensorBoardShape } :
    never;

  type Patch<Address> =
    Address extends `/api/models/${string}/versions/${number}` ? { parameters: never; body: {
      name?: string;
      comment?: string;
      notes?: string;
    }; answer: ModelDone } :
    Address extends `/api/experiments/${number}` ? { parameters: never; body: {
      name?: string;
      description?: string;
      notes?: string;
      labels?: string[];
    }; answer: DoneShape } :
    Address extends `/api/models/${string}` ? { parameters: never; body: {
      description?: string;
      labels?: string[];
      archived?: boolean;
    }; answer: ModelDone } :
    never;
}
