// What the kernels of a rich noise model work on; kernels/mixture.py is their twin in numpy.
#pragma once

#include "sweeps.hpp"

namespace voxpop {

// Sums over rows are taken in chunks of so many rows and then over the chunks in their order, so
// that no number of threads changes a bit.
constexpr int64_t rows_per_chunk = 16;

// Variances of the mixture, and their shares by class of difficulty and level.
struct MixtureGrid {
    int64_t n_classes, n_levels, n_variances;
    const double* variance;
    const double* mixing;  // (classes, levels, variances)
};

// Rows (one coordinate of one task each) with equally many answers; nodes ascend.
struct MixtureRows {
    int64_t n_rows, degree, n_nodes;
    const double* centre;      // (rows, degree)
    const double* spread;      // (rows, degree)
    const double* incoming;    // (rows, degree, levels), logs with largest entry 0
    const double* log_class;   // (rows, classes)
    const double* x;           // (rows, nodes)
    const double* log_weight;  // (rows, nodes), -inf past a row's end
};

struct MixtureHeard {
    double* message;                // (rows, degree, levels)
    double* evidence;               // (rows, classes)
    double *shift, *shift_variance; // (rows, degree)
    double* mass;                   // (rows, classes, nodes)
    double* pairs;                  // (chunks, classes, levels, variances)
};

struct MixturePrediction {
    double *log_density, *pit, *mean, *truth_variance, *variance;  // (rows, degree)
};

// What decides where the nodes of rows lie.
struct MixtureReach {
    int64_t n_rows, degree;
    const double* centre;        // (rows, degree)
    const double* narrow;        // (rows, degree), smallest variance of each answer
    const double* wide;          // (rows,), the largest
    const double* prior_centre;  // (rows,)
    double prior_narrow, prior_variance;  // smallest and largest, infinite without a prior
    const double *low, *high;    // (rows,), bounds of the truth, infinite where there are none
    double accuracy;
};

// Nodes of a block of rows, one row per lane: number q of a lane is x[q * lanes + lane].
struct MixtureNodes {
    int64_t n;
    const double *x, *log_weight;
};

// One instruction set's version.
struct MixtureKernels {
    MixtureNodes (*place)(const MixtureReach&, int64_t block, Workspace&);
    void (*send)(const MixtureGrid&, const MixtureRows&, const MixtureHeard&, int64_t first_chunk,
                 int64_t last_chunk, Workspace&);
    void (*predict)(const MixtureGrid&, const MixtureRows&, const MixturePrediction&,
                    int64_t first_chunk, int64_t last_chunk, Workspace&);
};

}  // namespace voxpop
