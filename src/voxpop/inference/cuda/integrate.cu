// Integration over the truth, a team a row; see kernels/integrate.py. Here lanes are nodes.
//
// CLASSES and VARIANCES are the sizes of the mixing where they are known at compilation, else 0;
// MOST_CLASSES and MOST_VARIANCES are no less than they.

// Linear sums below this may have lost terms to underflow and are done again in logs.
#define UNSAFE_SUM 1e-250
// A lane rescales its sums when a cavity is above the largest so far by more nats than this.
#define RESCALE 200.0
// The posterior's quantiles interpolate between nodes, and so want them closer.
#define QUANTILE_REFINEMENT 3.0

// Rows to integrate over (RowInputs); without bias its pointers are null. `todo` lists the rows to
// do, or is null; `left` gets those with more nodes than there is room for, and `n_left` how many.
struct Rows {
    i64 n;
    int degree;
    const double *value, *prior_mean, *low, *high, *known, *log_class;
    const double *bias, *bias_precision;
    double *edge_precision, *edge_pull;
    const i64* todo;
    i64 *left, *n_left;
};

// The nodes of a row, and what the product of all functions is there: in logs, (n), (n), (n),
// (C, n); `scratch` is (C + 1, n).
struct Nodes {
    int n, room;
    double *x, *log_weight, *log_prior, *log_p, *scratch;
};

__host__ __device__ inline i64 nodes_size(const Law& law, i64 room) {
    return room * (4 + 2 * law.C);
}

// Beside functions and nodes, a team has room for the messages (K, degree) of a row, and for the
// integrals (C, G) of one answer.
__host__ __device__ inline i64 team_size(const Law& law, i64 degree, i64 room) {
    return functions_size(law, degree) + nodes_size(law, room) + law.K * degree +
           law.C * law.G;
}

#define N_CLASSES (CLASSES ? CLASSES : law.C)
#define N_VARIANCES (VARIANCES ? VARIANCES : law.G)

// The Gaussians N_ug of an answer at x, and F_uc = Σ_g share_cg N_ug (M29).
struct Answer {
    double gauss[MOST_VARIANCES];

    __device__ __forceinline__ void open(const Functions& f, const Law& law, int u, double x) {
        const double squared = (f.centre[u] - x) * (f.centre[u] - x);
#pragma unroll
        for (int g = 0; g < N_VARIANCES; ++g) {
            const double rate = f.rate[(i64)g * f.L + u];
            gauss[g] = exp(-rate * squared) * f.per_sd[(i64)g * f.L + u];
        }
    }

    __device__ __forceinline__ double function(
        const Functions& f, const Law& law, int u, int c) const {
        const double* share = f.share + (i64)c * f.M * f.L + u;
        double total = 0.0;
#pragma unroll
        for (int g = 0; g < N_VARIANCES; ++g) total += share[(i64)g * f.L] * gauss[g];
        return total;
    }
};

// log F_uc(x) in logs throughout, where F underflows.
__device__ __noinline__ double log_sum(const Functions& f, const Law& law, int u, int c, double x) {
    const double squared = (f.centre[u] - x) * (f.centre[u] - x);
    double top = LOG_NOTHING, total = 0.0;
    for (int g = 0; g < law.G; ++g) {
        double highest = LOG_NOTHING, sum = 0.0;
        for (int pass = 0; pass < 2; ++pass)
            for (int k = 0; k < law.K; ++k) {
                const double mixing = law.mixing[((i64)c * law.K + k) * law.G + g];
                if (!(mixing > 0.0)) continue;
                const double term = f.incoming[(i64)k * f.degree + u] + log(mixing);
                if (pass == 0) highest = fmax(highest, term);
                else sum += exp(term - highest);
            }
        if (!(sum > 0.0)) continue;
        const double v = f.variance[(i64)g * f.L + u];
        const double term = highest + log(sum) - 0.5 * (squared / v + log(v));
        if (term > top) total = total * exp(top - term) + 1.0, top = term;
        else total += exp(term - top);
    }
    return top + log(total);
}

__device__ __forceinline__ double log_answer(
    const Answer& a, const Functions& f, const Law& law, int u, int c, double x) {
    const double found = a.function(f, law, u, c);
    return found < UNSAFE_SUM ? log_sum(f, law, u, c, x) : log(found);
}

__device__ double log_prior(const Functions& f, const Law& law, double x) {
    if (law.J == 0) return 0.0;
    double unused;
    return log_function(f, law, 0, f.degree, x, unused);
}

// Take up a row: incoming messages, functions, nodes. Returns whether there was room.
__device__ bool open_row(
    Functions& f, Nodes& nodes, const Law& law, const Rows& rows, const Messages& m, i64 row,
    double refinement) {
    f.log_class = rows.log_class + row * law.C;
    for (int u = lane_number(); u < f.degree; u += LANES) {
        const i64 edge = row * f.degree + u;
        receive(m, edge, law.K, f.degree, f.incoming + u);
        f.centre[u] = rows.value[edge], f.spread[u] = 0.0;
        if (rows.bias) {
            // M31: the cavity belief about a bias, and the answer less its mean.
            const int worker = m.worker[edge];
            const double precision = rows.bias_precision[worker] - rows.edge_precision[edge];
            const double pull =
                rows.bias[worker] * rows.bias_precision[worker] - rows.edge_pull[edge];
            f.spread[u] = 1.0 / fmax(precision, 1e-300);
            f.centre[u] -= pull * f.spread[u];
        }
        open_answer(f, law, u);
    }
    if (law.J > 0 && lane_number() == 0) open_prior(f, law, rows.prior_mean[row]);
    team_sync();
    if (isfinite(rows.known[row])) {
        nodes.n = 1;
        if (lane_number() == 0) nodes.x[0] = rows.known[row], nodes.log_weight[0] = 0.0;
        team_sync();
    } else {
        nodes.n = place_nodes(f, law, rows.low[row], rows.high[row], refinement, nodes.room,
                              nodes.x, nodes.log_weight);
    }
    return nodes.n >= 0;
}

// log P_c = log of the weight, the prior and all F_uc at every node.
__device__ void multiply_functions(const Functions& f, Nodes& nodes, const Law& law) {
    for (int q = lane_number(); q < nodes.n; q += LANES) {
        const double x = nodes.x[q];
        double log_p[MOST_CLASSES];
        nodes.log_prior[q] = log_prior(f, law, x);
#pragma unroll
        for (int c = 0; c < N_CLASSES; ++c) log_p[c] = 0.0;
        Answer a;
        for (int u = 0; u < f.degree; ++u) {
            a.open(f, law, u, x);
#pragma unroll
            for (int c = 0; c < N_CLASSES; ++c) log_p[c] += log_answer(a, f, law, u, c, x);
        }
#pragma unroll
        for (int c = 0; c < N_CLASSES; ++c)
            nodes.log_p[c * nodes.room + q] = nodes.log_weight[q] + nodes.log_prior[q] + log_p[c];
    }
    team_sync();
}

// The team of a thread, and its part of the workspace.
struct Team {
    i64 number, n_teams;
    Functions f;
    Nodes nodes;
    double *out, *integral;

    __device__ Team(const Law& law, int degree, int room, Aim aim, double* workspace) {
        number = thread_number() / LANES, n_teams = (i64)gridDim.x * blockDim.x / LANES;
        f.degree = degree, f.L = degree + (law.J > 0), f.M = law.G > law.J ? law.G : law.J;
        f.aim = aim;
        double* next = workspace + number * team_size(law, degree, room);
        carve_functions(f, law, next);
        next += functions_size(law, degree);
        nodes.room = room, nodes.x = carve(next, room), nodes.log_weight = carve(next, room);
        nodes.log_prior = carve(next, room), nodes.log_p = carve(next, (i64)law.C * room);
        nodes.scratch = carve(next, (i64)(law.C + 1) * room);
        out = carve(next, (i64)law.K * degree), integral = next;
    }

    // Call visit(row) for the rows of this team that there is room for.
    template <typename Visit>
    __device__ __forceinline__ void for_rows(
        const Law& law, const Rows& rows, const Messages& m, double refinement, Visit visit) {
        for (i64 i = number; i < rows.n; i += n_teams) {
            const i64 row = rows.todo ? rows.todo[i] : i;
            if (open_row(f, nodes, law, rows, m, row, refinement)) {
                multiply_functions(f, nodes, law);
                visit(row);
            } else if (lane_number() == 0) {
                rows.left[atomicAdd((u64*)rows.n_left, 1ull)] = row;
            }
            team_sync();
        }
    }
};

// How many numbers a team needs.
extern "C" __global__ void measure_team(
    int n_classes, int n_levels, int n_variances, int n_prior, int degree, int room, i64* size) {
    const Law law{n_classes, n_levels, n_variances, n_prior, nullptr, nullptr, nullptr, nullptr, 0.0,
                  0.0};
    *size = team_size(law, degree, room);
}

#define ROWS i64 n_rows, int degree, const double *value, const double *prior_mean, \
             const double *low, const double *high, const double *known, const double *log_class, \
             const double *bias, const double *bias_precision, double *edge_precision, \
             double *edge_pull, const i64 *todo, i64 *left, i64 *n_left
#define TAKE_ROWS const Rows rows{n_rows, degree, value, prior_mean, low, high, known, log_class, \
                                  bias, bias_precision, edge_precision, edge_pull, todo, left, \
                                  n_left};
