// Which variants were compiled, which of them this processor can run, and sweeps over threads.
#pragma once

#include <functional>
#include <vector>

#include "sweeps.hpp"

namespace voxpop {

// Variants that this processor can run, the fastest first.
const std::vector<const Variant*>& variants();

// Run a sweep over blocks on several threads, each over its own share of the blocks and with its
// own sums, which are whole numbers: no number of threads changes the result.
using RangeSweep =
    std::function<double(int64_t first, int64_t last, int64_t* new_sums, Workspace& workspace)>;
// `work` is about how many nanoseconds one thread would need: little work is left to few threads.
double sweep_on_threads(
    int64_t n_blocks, double work, int n_threads, int64_t n_sums, int64_t* new_sums,
    const RangeSweep& sweep);

}  // namespace voxpop
