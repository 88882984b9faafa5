"""The compiled kernels; sources in inference/native."""

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.kernel_set import Workers

class Machine:
    def __init__(self, threads: int = 1, instruction_set: str = "") -> None: ...
    @property
    def lanes(self) -> int: ...

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

class Tables:
    def __init__(
        self, levels: list[float], degree: int, dimension: int, prior_precision: float
    ) -> None: ...
    @property
    def n_configurations(self) -> int: ...

class Tasks:
    def __init__(self, tables: Tables, value: Floats, prior_mean: Floats) -> None: ...
    def enumerate(
        self,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        new_sums: WorkerSums,
        factor: Floats | None,
        fill: bool,
        machine: Machine,
    ) -> float: ...
    def enumerate_posterior(
        self,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        wanted: Wanted,
        machine: Machine,
    ) -> None: ...

class PrunedTasks(Tasks):
    def __init__(
        self,
        tables: Tables,
        levels: Floats,
        value: Floats,
        prior_mean: Floats,
        prior_precision: float,
        accuracy: float,
        most_free: int,
    ) -> None: ...
    def prune(
        self,
        guess: bool,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        new_sums: WorkerSums,
        machine: Machine,
    ) -> float: ...
    def prune_posterior(
        self,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        wanted: Wanted,
        machine: Machine,
    ) -> None: ...

class Bias:
    def __init__(
        self,
        mean: Floats,
        precision: Floats,
        edge_precision: Floats,
        edge_pull: Floats,
        damping: float,
    ) -> None: ...

class Rows:
    def __init__(
        self,
        variance: Floats,
        mixing: Floats,
        prior_variance: Floats,
        prior_weight: Floats,
        accuracy: float,
        value: Floats,
        prior_mean: Floats,
        low: Floats,
        high: Floats,
        known: Floats,
        log_class: Floats,
        bias: Bias | None,
    ) -> None: ...
    def integrate(
        self,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        new_sums: WorkerSums,
        evidence: Floats,
        counts: Floats | None,
        machine: Machine,
    ) -> float: ...
    def posterior(
        self,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        wanted: Wanted,
        classes: Floats,
        machine: Machine,
    ) -> None: ...
    def predict(
        self,
        state: SweepState,
        worker: Workers,
        message: WorkerSums,
        out: Floats,
        machine: Machine,
    ) -> None: ...

def instruction_sets() -> list[str]: ...
def centre(
    value: Floats, per_unit: float, away: Floats, origin: Floats, machine: Machine
) -> None: ...
def exp(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def exp2(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def log(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
