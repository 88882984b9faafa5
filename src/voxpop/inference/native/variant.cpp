// The kernels for one instruction set; compiled once for each, with the flags that it needs.
#include "active_sweep.hpp"
#include "centre.hpp"
#include "integrate_posterior.hpp"

namespace voxpop::VOXPOP_VARIANT {

static double integrate(
    const Integration& g, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    const int64_t K = m.n_levels, degree = m.degree, n_messages = degree * K;
    IntegralBlocks blocks(g, degree, K, workspace);
    vec* out = (vec*)workspace.slot(7, lanes * (3 * n_messages + 2 * K));
    vec *sums = out + n_messages, *scratch = sums + n_messages;
    ivec* old = (ivec*)(scratch + 2 * K);
    Change change;
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        listen<0>(m, K, block, old, blocks.height);
        const Tasks tasks = blocks.open(g, block);
        const Nodes nodes = place_nodes(tasks, block.n_rows, 1.0, workspace);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            const Workers workers = tasks.workers(lane);
            IntegralArrays s = open_integral(nodes, lane, workers, workspace);
            multiply_workers(s, workers);
            for (int64_t u = 0; u < degree; ++u)
                integrate_cavity(s, workers, u, (double*)(out + u * K) + lane,
                                 (double*)(sums + u * K) + lane);
        }
        // A repeated task: nobody hears it, but its numbers must be sound.
        for (int lane = block.n_rows; lane < lanes; ++lane)
            for (int64_t j = 0; j < n_messages; ++j)
                out[j][lane] = out[j][lane - 1], sums[j][lane] = sums[j][lane - 1];
        for (int64_t j = 0; j < n_messages; ++j)
            out[j] = (out[j] + log2(sums[j]) - all(blocks.log_scale[j % K])) * all(ln_2);
        speak<0>(m, K, block, old, out, new_sums, change, scratch);
    }
    return change.largest;
}

static void enumerate_posterior(
    const Enumeration& e, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    for (int64_t number = first_block; number < last_block; ++number)
        enumerate_posterior_of(e, t, Block(number, t.heard.n_tasks), workspace);
}

static void integrate_posterior(
    const Integration& g, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    const Messages& m = t.heard;
    IntegralBlocks blocks(g, m.degree, m.n_levels, workspace);
    ivec* old = (ivec*)workspace.slot(7, lanes * m.degree * m.n_levels);
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        listen<0>(m, m.n_levels, block, old, blocks.height);
        const Tasks tasks = blocks.open(g, block);
        const Nodes nodes = place_nodes(tasks, block.n_rows, g.refinement, workspace);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            const Workers workers = tasks.workers(lane);
            IntegralArrays s = open_integral(nodes, lane, workers, workspace);
            multiply_workers(s, workers);
            vec highest = all(-1e300), total = all(0.0), mean = all(0.0), square = all(0.0);
            for (int64_t q = 0; q < s.n; ++q) highest = max(highest, s.total[q]);
            const vec top = all(largest(highest));
            for (int64_t q = 0; q < s.n; ++q) {
                s.total[q] = exp2(s.total[q] - top);
                total = total + s.total[q];
            }
            const vec per_total = all(1.0 / sum(total));
            for (int64_t q = 0; q < s.n; ++q) {
                s.total[q] = s.total[q] * per_total;
                mean = fma(s.total[q], s.x[q], mean);
            }
            const vec centre = all(sum(mean));
            for (int64_t q = 0; q < s.n; ++q)
                square = fma(s.total[q] * (s.x[q] - centre), s.x[q] - centre, square);
            double *below = (double*)s.cavity, *weight = (double*)s.squared;
            for (int64_t q = 0; q < s.n_nodes; ++q) weight[q] = nodes.weight[q][lane];
            Density density{s.n_nodes, (double*)s.x, weight, (double*)s.total, below};
            density.add_up();
            const int64_t row = block.row[lane];
            t.estimate[row] = centre[0], t.variance[row] = sum(square);
            for (int64_t i = 0; i < t.n_probabilities; ++i)
                t.quantile[row * t.n_probabilities + i] = density.quantile(t.probabilities[i]);
        }
    }
}

// Apply a function to n numbers; the last few go through one padded vector.
template <typename F>
static void map(const double* x, double* out, int64_t n, F function) {
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) *(loose*)(out + i) = function(load(x + i));
    if (i == n) return;
    vec rest = all(1.0);
    for (int lane = 0; lane < n - i; ++lane) rest[lane] = x[i + lane];
    rest = function(rest);
    for (int lane = 0; lane < n - i; ++lane) out[i + lane] = rest[lane];
}

static void exp_all(const double* x, double* out, int64_t n) {
    map(x, out, n, [](vec v) { return exp(v); });
}
static void exp2_all(const double* x, double* out, int64_t n) {
    map(x, out, n, [](vec v) { return exp2(v); });
}
static void log_all(const double* x, double* out, int64_t n) {
    map(x, out, n, [](vec v) { return log(v); });
}

extern const MixtureKernels mixture_kernels;
extern const Variant variant;
const Variant variant = {
    VOXPOP_VARIANT_NAME, lanes, enumerate, integrate, active, guess, active_posterior,
    enumerate_posterior, integrate_posterior, centre, exp_all, exp2_all, log_all,
    &mixture_kernels};

}  // namespace voxpop::VOXPOP_VARIANT
