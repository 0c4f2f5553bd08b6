// Made by `python -m tools.api_types` from the API's description. Do not edit.

declare namespace Api {
  type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
  type Number = number | "NaN" | "Infinity" | "-Infinity";

  type Problem = {
    error: string;
    next?: string;
  };

  /** An action was accepted; `state` is the current one. */
  type AcceptedJson = {
    ok: boolean;
    state: string;
  };

  /** A page of the table of all trials, and the columns that it can show. */
  type AllTrialsJson = {
    total: number;
    rows: OwnedTrial[];
    columns: ColumnsJson;
  };

  /** The best trial, and the line that loads it. */
  type BestJson = {
    trial_id: number;
    hparams: Record<string, Json>;
    metric: string | null;
    value: Number | null;
    steps: number | null;
    checkpoint_uuid: string | null;
    load: string;
  };

  type BracketJson = {
    number: number;
    max_trials: number;
    rungs: RungJson[];
  };

  /** Counts between limits, of which there is one more. */
  type BucketsJson = {
    limits: Number[];
    counts: Number[];
  };

  type ChartJson = {
    title: string;
    unit: string;
    total: number;
    series: CurveJson[];
  };

  /** A checkpoint; `metric` is the searcher's metric in the validation at its step. */
  type CheckpointJson = {
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
    registered: RegisteredJson[];
    load: string;
  };

  type CheckpointsJson = {
    total: number;
    rows: CheckpointJson[];
  };

  type CodeJson = {
    files: FileJson[];
    truncated: boolean;
  };

  /** A column that a table can show, and whether its rows differ in it. */
  type ColumnJson = {
    key: string;
    label: string;
    differs: boolean;
  };

  type ColumnsJson = {
    available: ColumnJson[];
  };

  type CompareJson = {
    trials: ComparedTrial[];
    differs: DifferencesJson;
    metrics: MetricName[];
  };

  /** A trial with the name of its experiment, and by what that is measured. */
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
    searcher: SearcherName;
  };

  /** Cells in rows of y and columns of x; edges of ranges, or categories. */
  type ContourJson = {
    x: Json[];
    y: Json[];
    x_is_range: boolean;
    y_is_range: boolean;
    z: ((Number | null)[])[];
    count: number[][];
  };

  /** Means over equal time intervals, with the extremes of each interval. */
  type CurveJson = {
    name: string;
    x: Number[];
    y: Number[];
    min: Number[];
    max: Number[];
  };

  type DecisionJson = {
    time: Number;
    sentence: string;
  };

  type DiffJson = {
    config: string;
    code: FileDiff[];
    hparams: Record<string, Json[]>;
    truncated: boolean;
  };

  /** Values in the order of the trials, by name; null where a trial has none. `config` has only what all of them set: the keys of one searcher say nothing of another. */
  type DifferencesJson = {
    hparams: Record<string, Json[]>;
    metrics: Record<string, Json[]>;
    config: Record<string, Json[]>;
  };

  /** The error of a failed trial: the line of its log, if known, and the traceback. */
  type ErrorJson = {
    trial_id: number;
    line: number | null;
    text: string;
  };

  type EventJson = {
    time: Number;
    level: string;
    kind: string;
    text: string;
    trial_id: number | null;
  };

  type ExperimentChanges = {
    name?: string;
    description?: string;
    notes?: string;
    labels?: string[];
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
    best: BestJson | null;
    error: ErrorJson | null;
    slot_seconds: Number;
    events: EventJson[];
    metrics: MetricName[];
    hparams: HparamJson[];
  };

  /** A row of the table of experiments. */
  type ExperimentJson = {
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
  type ExperimentsJson = {
    total: number;
    rows: ExperimentJson[];
    columns: ColumnsJson;
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

  type FileJson = {
    path: string;
    size: number;
  };

  /** Where a fork would start, in words, and how many batches would be trained again. */
  type ForkStartJson = {
    text: string;
    batches_again: number;
  };

  /** The experiment of a new fork. */
  type ForkedJson = {
    experiment_id: number;
  };

  /** A hyperparameter as configured; `differs` says whether trials differ in it. */
  type HparamJson = {
    name: string;
    type: string;
    values: Json[] | null;
    minval: Number | null;
    maxval: Number | null;
    base: Number | null;
    differs: boolean;
  };

  /** The share of each hyperparameter; `note` says why there are none, or how reliable it is. */
  type ImportanceJson = {
    method: string;
    metric: string | null;
    trials: number;
    values: Record<string, Number>;
    note: string;
  };

  /** A line of a log; lines count from 1 over all runs of the trial. */
  type LineJson = {
    line: number;
    time: Number | null;
    level: string | null;
    rank: number | null;
    source: string;
    text: string;
    trial_id: number;
  };

  /** The parent of a fork, null for other trials, and the forks of a trial. */
  type LineageJson = {
    parent: RelativeJson | null;
    forks: RelativeJson[];
  };

  /** A unified diff of two logs; `note` says if only their beginnings were compared. */
  type LogDiffJson = {
    diff: string;
    note: string;
  };

  /** A page of a log: `next` and `previous` are where to continue, null at the ends. */
  type LogJson = {
    lines: LineJson[];
    first: number | null;
    last: number | null;
    total: number;
    next: number | null;
    previous: number | null;
  };

  type ManyVerbs = {
    verb: "pause" | "activate" | "cancel" | "kill" | "archive" | "unarchive" | "delete" | "label" | "unlabel";
    ids: number[];
    label?: string;
  };

  /** All tags; `complete` is false while files are still being read: ask again. */
  type MediaJson = {
    tags: MediaTagJson[];
    complete: boolean;
    note: string;
  };

  /** A tag, and the steps at which there is something; of very many, some. */
  type MediaTagJson = {
    kind: string;
    folder: string;
    tag: string;
    steps: number[];
  };

  /** What a tag has at a step. */
  type MediaValueJson = {
    step: number;
    time: Number;
    images: PictureJson[];
    texts: string[];
    histogram: BucketsJson | null;
    problem: string;
  };

  /** Lines of many trials by time; `line` counts within the run that `source` names. */
  type MergedJson = {
    lines: LineJson[];
    next: string | null;
    previous: string | null;
  };

  /** A metric of a trial; `batches` says whether there are per-batch values too. */
  type MetricJson = {
    group: string;
    name: string;
    last: Json;
    min: Number | null;
    max: Number | null;
    count: number | null;
    batches: boolean;
  };

  /** A metric; `batches` says whether some trial has per-batch values too. */
  type MetricName = {
    group: string;
    name: string;
    batches: boolean;
  };

  type ModelChanges = {
    description?: string;
    labels?: string[];
    archived?: boolean;
  };

  /** The action is done; `version` is the version it was about. */
  type ModelCompleted = {
    ok: boolean;
    model: string;
    version: number | null;
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
    latest: VersionJson | null;
    versions: VersionJson[];
  };

  type ModelJson = {
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
    latest: VersionJson | null;
  };

  type ModelsJson = {
    total: number;
    rows: ModelJson[];
  };

  /** What to fork a trial with. */
  type NewFork = {
    at: number;
    hparams?: Record<string, Json>;
    name?: string;
  };

  type NewModel = {
    name: string;
    description?: string;
    labels?: string[];
  };

  type NewVersion = {
    checkpoint_uuid: string;
  };

  type OutcomeJson = {
    ok?: boolean;
    state?: string;
    error?: string;
  };

  /** The outcomes of an action on many experiments, by id. */
  type OutcomesJson = {
    results: Record<string, OutcomeJson>;
  };

  /** A trial, and the experiment that it belongs to. */
  type OwnedTrial = {
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
    searcher: SearcherName;
  };

  type OwnerJson = {
    id: number;
    name: string;
    state: string;
    unmanaged: boolean;
    searcher: SearcherName;
  };

  /** A part of training, the seconds it took, and its share of the time. */
  type PartJson = {
    what: string;
    seconds: Number;
    share: Number;
    calls: number | null;
  };

  /** A partition of a batch system; `size` is that of its largest node. */
  type PartitionJson = {
    name: string;
    is_default: boolean;
    nodes: number;
    idle: number;
    down: number;
    size: string;
  };

  /** An image of a value; `problem` says why it is not shown. */
  type PictureJson = {
    width: number;
    height: number;
    problem: string;
  };

  /** All trials of a search, column by column. */
  type PointsJson = {
    ids: number[];
    states: string[];
    values: (Number | null)[];
    steps: number[];
    hparams: Record<string, Json[]>;
  };

  type ProfileJson = {
    rows: PartJson[];
    batches: number | null;
    advice: string[];
    note: string;
  };

  type ProjectJson = {
    id: number;
    workspace_id: number;
    workspace: string;
    name: string;
    description: string;
    archived: boolean;
  };

  /** A project, and where it is. */
  type ProjectName = {
    id: number;
    name: string;
    workspace_id: number;
    workspace: string;
  };

  type ProjectsJson = {
    rows: ProjectJson[];
  };

  type QueueJson = {
    slots: SlotJson[];
    running: RunningJson[];
    waiting: WaitingJson[];
    waiting_total: number;
    left_out: string[];
    partitions: PartitionJson[];
  };

  type RegisteredJson = {
    model: string;
    version: number;
  };

  /** The trial on the other side of a fork, and in words how the two are related. */
  type RelativeJson = {
    trial_id: number;
    experiment_id: number;
    at: number;
    text: string;
  };

  /** One run of a trial. */
  type RunJson = {
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

  /** A rung: how many results it has, how many trials continued, and the best trials. */
  type RungJson = {
    units: number;
    seen: number;
    kept: number;
    rows: RungRow[];
  };

  /** A trial at a rung; `metric` is null if it failed there. */
  type RungRow = {
    trial_id: number;
    rank: number;
    metric: Number | null;
    outcome: string;
    sentence: string;
  };

  /** The rungs of a search; methods without rungs have no brackets. */
  type RungsJson = {
    method: string;
    metric: string | null;
    unit: string;
    brackets: BracketJson[];
    steps: StepJson[];
  };

  /** A run; `job` is what a batch system calls it, which has no slots here. */
  type RunningJson = {
    trial_id: number;
    experiment_id: number | null;
    name: string;
    slots: number[];
    since: Number;
    host: string;
    job: string;
  };

  /** An experiment's searcher and its metric. */
  type SearcherName = {
    name: string;
    metric: string | null;
    smaller_is_better: boolean;
  };

  type Selection = {
    experiments?: number[];
    trials?: number[];
  };

  /** What a page requests first. */
  type SessionJson = {
    csrf: string;
    version: string;
    home: string;
    user: string;
    supervisor: SupervisorJson;
    slots: SlotsJson;
    counts: Record<string, number>;
    verbs: string[];
  };

  /** A slot; several trials may share it. */
  type SlotJson = {
    id: number;
    kind: string;
    name: string;
    node: string;
    used_by: UserJson | null;
    users: UserJson[];
  };

  type SlotsJson = {
    total: number;
    used: number;
  };

  /** A small curve: the searcher's metric of the best trial. */
  type SparkJson = {
    metric: string;
    y: Number[];
  };

  /** A decision of the search. */
  type StepJson = {
    number: number;
    time: Number;
    trial_id: number | null;
    sentence: string;
  };

  /** Whether a supervisor is running. */
  type SupervisorJson = {
    alive: boolean;
    pid: number | null;
    text: string;
  };

  type SystemJson = {
    charts: ChartJson[];
  };

  /** Its address, as seen from the dashboard's machine; of many trials it shows the best. */
  type TensorBoardJson = {
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
    experiment: OwnerJson;
    metrics: MetricJson[];
    run_list: RunJson[];
    error: ErrorJson | null;
    best_checkpoint: string | null;
    load: string;
    seed: number;
    metadata: Record<string, Json>;
    decisions: DecisionJson[];
    lineage: LineageJson;
  };

  /** A row of a table of trials. */
  type TrialJson = {
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
  type TrialsJson = {
    total: number;
    rows: TrialJson[];
  };

  type UserJson = {
    trial_id: number;
    experiment_id: number | null;
    name: string;
  };

  type VersionChanges = {
    name?: string;
    comment?: string;
    notes?: string;
  };

  /** A version of a model, and where its checkpoint came from. */
  type VersionJson = {
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

  type WaitingJson = {
    experiment_id: number;
    trial_id: number;
    name: string;
    slots: number;
    priority: number;
    why: string;
  };

  type WorkspaceJson = {
    id: number;
    name: string;
    owner: string;
    archived: boolean;
  };

  type WorkspacesJson = {
    rows: WorkspaceJson[];
  };

  type Get<Address> =
    Address extends `/api/experiments/${number}/code/file` ? { parameters: "path"; body: undefined; answer: FileContent } :
    Address extends `/api/trials/${number}/logs/diff` ? { parameters: "other" | "numbers"; body: undefined; answer: LogDiffJson } :
    Address extends `/api/trials/${number}/media/value` ? { parameters: "kind" | "tag" | "step" | "folder"; body: undefined; answer: MediaValueJson } :
    Address extends `/api/experiments/${number}/checkpoints` ? { parameters: "limit" | "offset"; body: undefined; answer: CheckpointsJson } :
    Address extends `/api/experiments/${number}/code` ? { parameters: never; body: undefined; answer: CodeJson } :
    Address extends `/api/experiments/${number}/contour` ? { parameters: "x" | "y" | "bins"; body: undefined; answer: ContourJson } :
    Address extends `/api/experiments/${number}/diff` ? { parameters: "other"; body: undefined; answer: DiffJson } :
    Address extends `/api/experiments/${number}/importance` ? { parameters: "metric" | "smaller"; body: undefined; answer: ImportanceJson } :
    Address extends `/api/experiments/${number}/logs` ? { parameters: "after" | "tail" | "limit" | "search" | "level" | "rank" | "since" | "until"; body: undefined; answer: MergedJson } :
    Address extends `/api/experiments/${number}/points` ? { parameters: never; body: undefined; answer: PointsJson } :
    Address extends `/api/experiments/${number}/rungs` ? { parameters: never; body: undefined; answer: RungsJson } :
    Address extends `/api/experiments/${number}/trials` ? { parameters: "limit" | "offset" | "state" | "sort" | "order" | "columns"; body: undefined; answer: TrialsJson } :
    Address extends `/api/trials/${number}/checkpoints` ? { parameters: "limit" | "offset"; body: undefined; answer: CheckpointsJson } :
    Address extends `/api/trials/${number}/fork` ? { parameters: "at"; body: undefined; answer: ForkStartJson } :
    Address extends `/api/trials/${number}/logs` ? { parameters: "from_line" | "tail" | "limit" | "regex" | "search" | "level" | "rank" | "since" | "until"; body: undefined; answer: LogJson } :
    Address extends `/api/trials/${number}/media` ? { parameters: never; body: undefined; answer: MediaJson } :
    Address extends `/api/trials/${number}/profile` ? { parameters: never; body: undefined; answer: ProfileJson } :
    Address extends `/api/trials/${number}/system` ? { parameters: "px"; body: undefined; answer: SystemJson } :
    Address extends `/api/experiments/sparks` ? { parameters: "ids" | "px"; body: undefined; answer: Record<string, SparkJson> } :
    Address extends `/api/experiments/${number}` ? { parameters: never; body: undefined; answer: ExperimentDetail } :
    Address extends `/api/models/${string}` ? { parameters: never; body: undefined; answer: ModelDetail } :
    Address extends `/api/trials/${number}` ? { parameters: never; body: undefined; answer: TrialDetail } :
    Address extends `/api/compare` ? { parameters: "trials"; body: undefined; answer: CompareJson } :
    Address extends `/api/experiments` ? { parameters: "limit" | "offset" | "search" | "state" | "label" | "project" | "workspace" | "archived" | "unmanaged" | "metric" | "metric_min" | "metric_max" | "sort" | "order" | "columns"; body: undefined; answer: ExperimentsJson } :
    Address extends `/api/models` ? { parameters: never; body: undefined; answer: ModelsJson } :
    Address extends `/api/projects` ? { parameters: never; body: undefined; answer: ProjectsJson } :
    Address extends `/api/queue` ? { parameters: never; body: undefined; answer: QueueJson } :
    Address extends `/api/series` ? { parameters: "keys" | "x" | "from" | "to" | "px" | "smooth"; body: undefined; answer: ArrayBuffer } :
    Address extends `/api/session` ? { parameters: never; body: undefined; answer: SessionJson } :
    Address extends `/api/trials` ? { parameters: "limit" | "offset" | "project" | "search" | "metric" | "archived" | "state" | "hparams" | "sort" | "order" | "columns"; body: undefined; answer: AllTrialsJson } :
    Address extends `/api/workspaces` ? { parameters: never; body: undefined; answer: WorkspacesJson } :
    never;

  type Post<Address> =
    Address extends `/api/models/${string}/versions/${number}/delete` ? { parameters: never; body: undefined; answer: ModelCompleted } :
    Address extends `/api/experiments/${number}/${string}` ? { parameters: never; body: undefined; answer: AcceptedJson } :
    Address extends `/api/models/${string}/delete` ? { parameters: never; body: undefined; answer: ModelCompleted } :
    Address extends `/api/models/${string}/versions` ? { parameters: never; body: NewVersion; answer: ModelCompleted } :
    Address extends `/api/trials/${number}/fork` ? { parameters: never; body: NewFork; answer: ForkedJson } :
    Address extends `/api/trials/${number}/kill` ? { parameters: never; body: undefined; answer: AcceptedJson } :
    Address extends `/api/experiments/verbs` ? { parameters: never; body: ManyVerbs; answer: OutcomesJson } :
    Address extends `/api/models` ? { parameters: never; body: NewModel; answer: ModelCompleted } :
    Address extends `/api/tensorboard` ? { parameters: never; body: Selection; answer: TensorBoardJson } :
    never;

  type Patch<Address> =
    Address extends `/api/models/${string}/versions/${number}` ? { parameters: never; body: VersionChanges; answer: ModelCompleted } :
    Address extends `/api/experiments/${number}` ? { parameters: never; body: ExperimentChanges; answer: AcceptedJson } :
    Address extends `/api/models/${string}` ? { parameters: never; body: ModelChanges; answer: ModelCompleted } :
    never;
}
