"""The compiled kernels; sources in inference/native."""

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.kernel_set import Edges, MatchInputs, RowInputs, SweepState
from voxpop.inference.kernels.integrate import Law
from voxpop.inference.kernels.posterior import Posterior

class Machine:
    def __init__(self, threads: int = 1, instruction_set: str = "") -> None: ...
    @property
    def lanes(self) -> int: ...

class Tables:
    def __init__(
        self, levels: list[float], degree: int, dimension: int, prior_precision: float, /
    ) -> None: ...
    @property
    def n_configurations(self) -> int: ...

class Tasks:
    def __init__(
        self,
        tables: Tables,
        value: Floats,
        prior_mean: Floats,
        machine: Machine,
        factor: Floats | None = None,
        accuracy: float = 0.0,
        most_free: int = 0,
    ) -> None: ...
    def enumerate(self, state: SweepState, edges: Edges, new_sums: WorkerSums, /) -> float: ...
    def prune(self, state: SweepState, edges: Edges, new_sums: WorkerSums, /) -> float: ...
    def guess(self, state: SweepState, edges: Edges, new_sums: WorkerSums, /) -> float: ...
    def posterior(
        self,
        is_pruned: bool,
        state: SweepState,
        edges: Edges,
        probabilities: Floats,
        standard: Floats,
        room: Posterior,
        /,
    ) -> None: ...

def integrate(
    law: Law,
    rows: RowInputs,
    state: SweepState,
    edges: Edges,
    new_sums: WorkerSums,
    evidence: Floats,
    counts: Floats | None,
    machine: Machine,
    /,
) -> float: ...
def integrate_posterior(
    law: Law,
    rows: RowInputs,
    state: SweepState,
    edges: Edges,
    probabilities: Floats,
    standard: Floats,
    room: Posterior,
    classes: Floats,
    machine: Machine,
    /,
) -> None: ...
def integrate_predict(
    law: Law,
    rows: RowInputs,
    state: SweepState,
    edges: Edges,
    out: Floats,
    with_pit: bool,
    machine: Machine,
    /,
) -> None: ...
def match(
    law: Law,
    rows: MatchInputs,
    state: SweepState,
    edges: Edges,
    new_sums: WorkerSums,
    evidence: Floats,
    counts: Floats | None,
    machine: Machine,
    /,
) -> float: ...
def match_predict(
    law: Law,
    rows: MatchInputs,
    state: SweepState,
    edges: Edges,
    out: Floats,
    with_pit: bool,
    machine: Machine,
    /,
) -> None: ...
def instruction_sets() -> list[str]: ...
def centre(
    value: Floats, per_unit: float, away: Floats, origin: Floats, machine: Machine, /
) -> None: ...
def exp(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def exp2(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
def log(x: Floats, out: Floats, instruction_set: str = "") -> None: ...
