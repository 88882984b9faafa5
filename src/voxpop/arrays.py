"""Types of the arrays that everything here passes on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
Index = NDArray[np.int64]
Ids = NDArray[Any]
Mask = NDArray[np.bool_]
WorkerSums = NDArray[np.int64]
"""Log messages added up per worker and level, in units of a quantum (M16)."""
