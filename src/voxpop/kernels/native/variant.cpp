// The kernels for one instruction set; compiled once for each, with the flags that it needs.
#include "enumerate_posterior.hpp"
#include "integrate_posterior.hpp"
#include "prune.hpp"

namespace voxpop::VOXPOP_VARIANT {

// One sweep over some blocks of tasks in D dimensions with LEVELS levels (0: any number of them).
template <int D, int LEVELS>
static double enumerate_blocks(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels, d = D ? D : e.dimension;
    const int64_t n_messages = m.degree * K;
    const int64_t n_factor = e.left.n_configurations * e.right.n_configurations;
    EnumerationArrays s = carve(e, m, workspace);
    const vec* right_message = s.message + e.left.n_workers * K;
    vec* right_out = s.out + e.left.n_workers * K;
    Change change;
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        auto grow = [&] {
            gather(e.value, m.degree * d, block, (double*)s.value);
            gather(e.prior_mean, d, block, (double*)s.prior_mean);
            grow_halves<D>(e, K, s);
        };
        listen(m, K, block, s.old, s.incoming);
        for (int64_t j = 0; j < n_messages; ++j) s.message[j] = exp(s.incoming[j]);
        grow_joint(e.left, K, s.message, s.left_joint);
        grow_joint(e.right, K, right_message, s.right_joint);
        vec* factor = (vec*)e.factor + (e.factor ? number * n_factor : 0);
        if (e.factor_use == Factor::read) {
            contract<D, Factor::read>(e, s, factor);
        } else {
            grow();
            if (e.factor_use == Factor::fill)
                contract<D, Factor::fill>(e, s, factor);
            else
                contract<D, Factor::recompute>(e, s, factor);
        }
        leave_one_out(e.left, K, s.message, s.left_joint, s.seen_by_left, s.out);
        leave_one_out(e.right, K, right_message, s.right_joint, s.seen_by_right, right_out);
        vec smallest = s.out[0];
        for (int64_t j = 1; j < n_messages; ++j) smallest = min(smallest, s.out[j]);
        for (int64_t j = 0; j < n_messages; ++j) s.out[j] = log(s.out[j]);
        if (any_above(all(unsafe), smallest)) {
            if (e.factor_use == Factor::read) grow();
            send_in_logs(e, m, s, workspace, s.message);
            for (int64_t j = 0; j < n_messages; ++j)
                s.out[j] = where_above(all(unsafe), smallest, s.message[j], s.out[j]);
        }
        speak(m, K, block, s.old, s.out, new_sums, change, s.scratch);
    }
    return change.largest;
}

// The common numbers of dimensions and levels are known to the compiler, so that loops unroll.
template <int D>
static double enumerate_in(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    switch (m.n_levels) {
        case 2: return enumerate_blocks<D, 2>(e, m, first_block, last_block, new_sums, workspace);
        case 3: return enumerate_blocks<D, 3>(e, m, first_block, last_block, new_sums, workspace);
        default: return enumerate_blocks<D, 0>(e, m, first_block, last_block, new_sums, workspace);
    }
}

static double enumerate(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    switch (e.dimension) {
        case 1: return enumerate_in<1>(e, m, first_block, last_block, new_sums, workspace);
        case 2: return enumerate_in<2>(e, m, first_block, last_block, new_sums, workspace);
        default: return enumerate_in<0>(e, m, first_block, last_block, new_sums, workspace);
    }
}

static double integrate(
    const Integration& g, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    const int64_t K = m.n_levels, degree = m.degree, n_messages = degree * K;
    const NodeRule rule(g, degree, K);
    vec* value = (vec*)workspace.slot(0, lanes * (degree + 1 + 3 * n_messages + 2 * K) + 2 * K);
    vec *prior_mean = value + degree, *incoming = prior_mean + 1, *out = incoming + n_messages;
    ivec* old = (ivec*)(out + n_messages);
    vec* scratch = (vec*)(old + n_messages);
    double *rate = (double*)(scratch + 2 * K), *log_scale = rate + K;
    for (int64_t k = 0; k < K; ++k) {
        rate[k] = 0.5 * log2_e / g.levels[k];
        log_scale[k] = 0.5 * log2_e * __builtin_log(g.levels[k]);
    }
    Change change;
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        listen(m, K, block, old, incoming);
        gather(g.value, degree, block, (double*)value);
        gather(g.prior_mean, 1, block, (double*)prior_mean);
        for (int64_t u = 0; u < degree; ++u)
            for (int64_t k = 0; k < K; ++k)
                incoming[u * K + k] = incoming[u * K + k] * all(log2_e) - all(log_scale[k]);
        const Nodes nodes = place_nodes(rule, value, *prior_mean, degree, workspace);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            const Workers workers{
                degree, K, (double*)value + lane, (double*)incoming + lane, rate};
            IntegralArrays s = open_integral(nodes, lane, rule, (*prior_mean)[lane], degree,
                                             workspace);
            leave_out_nodes(s, workers, workspace);
            multiply_workers(s, workers);
            for (int64_t u = 0; u < degree; ++u)
                integrate_cavity(s, workers, u, log_scale, (double*)(out + u * K) + lane);
        }
        // A repeated task: nobody hears it, but its numbers must be sound.
        for (int lane = block.n_rows; lane < lanes; ++lane)
            for (int64_t j = 0; j < n_messages; ++j) out[j][lane] = out[j][lane - 1];
        for (int64_t j = 0; j < n_messages; ++j) out[j] = out[j] * all(ln_2);
        speak(m, K, block, old, out, new_sums, change, scratch);
    }
    return change.largest;
}

static void enumerate_posterior(
    const Enumeration& e, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    const int64_t K = t.n_levels, d = e.dimension, q = t.n_probabilities;
    const Messages m{t.n_tasks, t.degree, K, nullptr, nullptr, nullptr, 0, 0, 0, nullptr};
    EnumerationArrays a = carve(e, m, workspace);
    PosteriorArrays s = carve_posterior(e, workspace);
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, t.n_tasks);
        gather(e.value, t.degree * d, block, (double*)a.value);
        gather(e.prior_mean, d, block, (double*)a.prior_mean);
        gather(t.incoming, t.degree * K, block, (double*)a.message);
        for (int64_t j = 0; j < t.degree * K; ++j) a.message[j] = a.message[j] * all(log2_e);
        grow_halves<0>(e, K, a);
        believe(e, K, a, s);
        const Means means(e, a);
        take_moments(e, means, s);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            const Mixture mixture = mixture_of(e, means, s, lane);
            for (int64_t j = 0; j < d; ++j) {
                const int64_t at = block.row[lane] * d + j;
                t.estimate[at] = s.estimate[j][lane], t.variance[at] = s.variance[j][lane];
                for (int64_t first = 0; first < q; first += lanes) {
                    // Lanes past the last probability repeat it.
                    vec p, standard;
                    for (int i = 0; i < lanes; ++i) {
                        const int64_t from = first + i < q ? first + i : q - 1;
                        p[i] = t.probabilities[from], standard[i] = t.standard[from];
                    }
                    const vec found = mixture_quantile(mixture, j, p, standard);
                    for (int i = 0; i < lanes && first + i < q; ++i)
                        t.quantile[at * q + first + i] = found[i];
                }
            }
        }
    }
}

static void integrate_posterior(
    const Integration& g, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    const int64_t K = t.n_levels, degree = t.degree;
    const NodeRule rule(g, degree, K);
    vec* value = (vec*)workspace.slot(0, lanes * (degree + 1 + degree * K) + K);
    vec *prior_mean = value + degree, *incoming = prior_mean + 1;
    double* rate = (double*)(incoming + degree * K);
    for (int64_t k = 0; k < K; ++k) rate[k] = 0.5 * log2_e / g.levels[k];
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, t.n_tasks);
        gather(g.value, degree, block, (double*)value);
        gather(g.prior_mean, 1, block, (double*)prior_mean);
        gather(t.incoming, degree * K, block, (double*)incoming);
        for (int64_t u = 0; u < degree; ++u)
            for (int64_t k = 0; k < K; ++k)
                incoming[u * K + k] =
                    (incoming[u * K + k] - all(0.5 * __builtin_log(g.levels[k]))) * all(log2_e);
        const Nodes nodes = place_nodes(rule, value, *prior_mean, degree, workspace);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            const Workers workers{degree, K, (double*)value + lane, (double*)incoming + lane, rate};
            IntegralArrays s =
                open_integral(nodes, lane, rule, (*prior_mean)[lane], degree, workspace);
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
    VOXPOP_VARIANT_NAME, lanes, enumerate, integrate, enumerate_posterior, integrate_posterior,
    exp_all, exp2_all, log_all, &mixture_kernels};

}  // namespace voxpop::VOXPOP_VARIANT
