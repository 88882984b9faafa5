// The inputs of a sweep: plain structs that the instruction-set variants and the module share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace voxpop {

// The messages of a group of tasks with equally many answers, and what their workers believe.
struct Messages {
    int64_t n_tasks;
    int64_t degree;         // answers of a task
    int64_t n_levels;
    const int32_t* worker;  // (n_tasks, degree)
    const int64_t* sums;    // (n_workers, n_levels), in units of the quantum
    const double* log_weights;
    double quantum;
    double floor;           // lowest log message kept
    double damping;
    int64_t* message;       // (n_tasks, degree, n_levels), in and out
};

// One half of a task's workers: how the weighted mean of their answers and the sum of squares
// about it grow when one worker after the other joins, for every configuration of levels.
struct Half {
    int64_t n_workers;
    int64_t n_configurations;
    int64_t widest;      // configuration in which every worker has the widest level
    int64_t tree_size;   // Σ_t n_levels^t, t = 0 .. n_workers
    const double* gain;  // w / W', the newcomer's share of the mean
    const double* cost;  // -(log2 e)/2 · w W / W', of the squared distance of the newcomer
};

enum class Factor { recompute, fill, read };

// Enumeration of a group: tables that depend on the model and the degree only, and values.
struct Enumeration {
    int64_t dimension;
    Half left, right;
    const int32_t* row;        // of each left configuration: equal for equal numbers of levels
    const double* pair;        // (rows, right but its last worker, 2): cost, and W_p / W_ap
    const double* join;        // (rows, right, 2): cost of the squared distance, and offset
    const double* meet;        // (rows, right, 2): W_b / W and 1 / W
    const double* levels;
    double prior_precision;    // 0 for a flat prior
    const double* value;       // (n_tasks, degree, dimension)
    const double* prior_mean;  // (n_tasks, dimension)
    Factor factor_use;
    double* factor;            // (n_blocks, left, right, lanes) or null
    // Where only configurations that can matter are summed over: the most to leave out, and how
    // many workers may be free; tasks with more are enumerated.
    double accuracy;
    int64_t most_free;
};

// Sums over rows are taken in chunks of this many rows and then over the chunks in their order, so
// that no number of threads changes a bit.
constexpr int64_t rows_per_chunk = 16;

// What the integrals of a group have in common: see Law of kernels/integrate.py.
struct IntegralLaw {
    int64_t n_classes, n_levels, n_variances, n_prior;
    const double *variance, *mixing;              // (variances), (classes, levels, variances)
    const double *prior_variance, *prior_weight;  // (prior)
    double accuracy, bias_damping;
};

// Rows (one coordinate of one task each) with equally many answers. Either all truths are known or
// none. Without bias the last four are null.
struct IntegralRows {
    int64_t n_rows, degree;
    const double* value;                         // (rows, degree)
    const double *prior_mean, *low, *high;       // (rows): centre of the prior, bounds of the truth
    const double* known;                         // (rows): the truth, or not a number
    const double* log_class;                     // (rows, classes)
    const double *bias, *bias_precision;         // (workers): beliefs about the biases
    double *edge_precision, *edge_pull;          // (rows, degree): messages about them, in and out
};

// What a sweep over rows finds beside the messages: see Outgoing of kernels/integrate.py.
struct IntegralFound {
    double* evidence;  // (rows, classes)
    double* counts;    // (chunks, n_counts) or null: pairs, classes, components, pull, precision
};

inline int64_t n_counts(const IntegralLaw& law) {
    return law.n_classes * law.n_levels * law.n_variances + law.n_classes + law.n_prior + 2;
}

// Rows of any degree in which moments are matched: see MatchInputs of kernel_set.py. Sums over rows
// are taken in chunks, as above.
struct MatchInputs {
    int64_t n_rows, n_edges, most, chunk;        // most answers of a row; rows of a chunk
    const int64_t* ptr;                          // (rows + 1)
    const double* value;                         // (edges)
    const double *prior_mean, *known;            // (rows)
    const double* log_class;                     // (rows, classes)
    double *site, *prior_site;                   // (classes, edges), (classes, rows), in and out
    const bool* sending;                         // (rows) or null
    const double *bias, *bias_precision;         // (workers), or null
    double *edge_precision, *edge_pull;          // (edges), in and out, or null
};

struct MatchFound {
    double* evidence;  // (rows, classes)
    double* moved;     // (chunks): squared change of the truths' means, in sds
    double* counts;    // (chunks, n_counts) or null
};

// Each answer as predicted by the others: see LeftOut of kernels/integrate.py.
struct LeftOut {
    // (rows, degree); without `pit`, which takes as long as all others, if it is null
    double *log_density, *pit, *mean, *truth_variance, *bias, *variance;
};

// Answers of a group, to be expressed as distances from the middle one of their task (origin), in
// units of a power of two.
struct Centring {
    int64_t n_tasks, degree, dimension;
    const double* value;  // (n_tasks, degree, dimension)
    double per_unit;
    double* away;         // like value
    double* origin;       // (n_tasks, dimension)
};

// The posterior that is wanted of the truths of a group; its messages stay.
struct Truths {
    Messages messages;
    int64_t n_probabilities;
    const double* probabilities;
    const double* standard;       // quantiles of the standard normal distribution
    double* estimate;             // (n_tasks, dimension)
    double* variance;             // (n_tasks, dimension)
    double* quantile;             // (n_tasks, dimension, n_probabilities)
};

// Scratch memory of one thread; a slot stays valid until it is asked for again.
class Workspace {
public:
    Workspace() = default;
    Workspace(const Workspace&) = delete;
    ~Workspace();
    // At least this many doubles on a 64-byte boundary; a larger slot keeps its content.
    double* slot(int number, size_t n_doubles);

private:
    static constexpr int n_slots = 11;
    double* memory_[n_slots] = {};
    size_t size_[n_slots] = {};
};

// Kernels work on some of the blocks of `lanes` tasks, or of the chunks of rows; sweeps return the
// largest change of a message, as a probability.
template <class... Given>
using Sweep = double (*)(Given..., int64_t first, int64_t last, int64_t* new_sums, Workspace&);
template <class... Given>
using Work = void (*)(Given..., int64_t first, int64_t last, Workspace&);
using Elementary = void (*)(const double* x, double* out, int64_t n);

// One instruction set's version of the kernels.
struct Variant {
    const char* name;
    int lanes;
    Sweep<const Enumeration&, const Messages&> enumerate, active, guess;
    Work<const Enumeration&, const Truths&> enumerate_posterior, active_posterior;
    Sweep<const IntegralLaw&, const IntegralRows&, const Messages&, const IntegralFound&> integrate;
    Work<const IntegralLaw&, const IntegralRows&, const Truths&, double*> integrate_posterior;
    Work<const IntegralLaw&, const IntegralRows&, const Messages&, const LeftOut&>
        integrate_predict;
    Sweep<const IntegralLaw&, const MatchInputs&, const Messages&, const MatchFound&> match;
    Work<const IntegralLaw&, const MatchInputs&, const Messages&, const LeftOut&> match_predict;
    Work<const Centring&> centre;
    Elementary exp, exp2, log;
};

}  // namespace voxpop
