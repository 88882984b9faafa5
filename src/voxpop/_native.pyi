"""The compiled kernels; sources in kernels/native."""

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.kernel_set import Workers

class Tables:
    def __init__(
        self, levels: list[float], degree: int, dimension: int, prior_precision: float
    ) -> None: ...
    @property
    def n_configurations(self) -> int: ...

class SweepState:
    def __init__(
        self,
        sums: WorkerSums,
        log_weights: Floats,
        quantum: float,
        floor: float,
        damping: float,
    ) -> None: ...

class Wanted:
    def __init__(
        self,
        probabilities: Floats,
        standard: Floats,
        estimate: Floats,
        variance: Floats,
        quantile: Floats,
    ) -> None: ...

def instruction_sets() -> list[str]: ...
def lanes(instruction_set: str = "") -> int: ...
def enumerate_sweep(
    tables: Tables,
    value: Floats,
    prior_mean: Floats,
    state: SweepState,
    worker: Workers,
    message: WorkerSums,
    new_sums: WorkerSums,
    factor: Floats | None,
    fill: bool,
    n_threads: int,
    instruction_set: str = "",
) -> float: ...
def active_sweep(
    tables: Tables,
    levels: Floats,
    value: Floats,
    prior_mean: Floats,
    prior_precision: float,
    accuracy: float,
    most_free: int,
    guess: bool,
    state: SweepState,
    worker: Workers,
    message: WorkerSums,
    new_sums: WorkerSums,
    n_threads: int,
    instruction_set: str = "",
) -> float: ...
def active_posterior(
    tables: Tables,
    levels: Floats,
    value: Floats,
    prior_mean: Floats,
    prior_precision: float,
    accuracy: float,
    most_free: int,
    state: SweepState,
    worker: Workers,
    message: WorkerSums,
    wanted: Wanted,
    n_threads: int,
    instruction_set: str = "",
) -> None: ...
def integrate_sweep(
    value: Floats,
    prior_mean: Floats,
    prior_variance: float,
    levels: Floats,
    accuracy: float,
    state: SweepState,
    worker: Workers,
    message: WorkerSums,
    new_sums: WorkerSums,
    n_threads: int,
    instruction_set: str = "",
) -> float: ...
def enumerate_posterior(
    tables: Tables,
    value: Floats,
    prior_mean: Floats,
    state: SweepState,
    worker: Workers,
    message: WorkerSums,
    wanted: Wanted,
    n_threads: int,
    instruction_set: str = "",
) -> None: ...
def integrate_posterior(
    value: Floats,
    prior_mean: Floats,
    prior_variance: float,
    levels: Floats,
    accuracy: float,
    refinement: float,
    state: SweepState,
    worker: Workers,
    message: WorkerSums,
    wanted: Wanted,
    n_threads: int,
    instruction_set: str = "",
) -> None: ...
def centre(
    value: Floats,
    per_unit: float,
    away: Floats,
    origin: Floats,
    n_threads: int,
    instruction_set: str = "",
) -> None: ...
def exp(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def exp2(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def log(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def mixture_place(
    centre: Floats,
    narrow: Floats,
    wide: Floats,
    prior_centre: Floats,
    prior_narrow: float,
    prior_variance: float,
    low: Floats,
    high: Floats,
    accuracy: float,
    n_threads: int,
    instruction_set: str = "",
) -> tuple[Floats, Floats]: ...
def mixture_send(
    variance: Floats,
    mixing: Floats,
    centre: Floats,
    spread: Floats,
    incoming: Floats,
    log_class: Floats,
    x: Floats,
    log_weight: Floats,
    message: Floats,
    evidence: Floats,
    shift: Floats,
    shift_variance: Floats,
    mass: Floats,
    pairs: Floats,
    n_threads: int,
    instruction_set: str = "",
) -> None: ...
def mixture_predict(
    variance: Floats,
    mixing: Floats,
    centre: Floats,
    spread: Floats,
    incoming: Floats,
    log_class: Floats,
    x: Floats,
    log_weight: Floats,
    log_density: Floats,
    pit: Floats,
    mean: Floats,
    truth_variance: Floats,
    answer_variance: Floats,
    n_threads: int,
    instruction_set: str = "",
) -> None: ...
