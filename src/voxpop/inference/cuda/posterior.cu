// The posterior of the truths of enumerated tasks, and quantiles of Gaussian mixtures; a team a
// task. See kernels/posterior.py.

// Components below this share of a mixture, divided by their number, are left out of quantiles.
#define DROPPED_MASS 1e-9
// Quantiles are found to this share of the narrowest component's sd.
#define QUANTILE_TOLERANCE 1e-9
#define MOST_STEPS 200

// Components of the mixture of one task, of which lanes take every LANES-th: weights that sum to 1,
// sd, and means by coordinate.
struct Mixture {
    i64 n, room;
    double *weight, *sd, *mean;
};

// Solve Σ_c weight_c Φ((x - mean_c) / sd_c) = p for one coordinate (M9).
//
// A quantile lies between the smallest and the largest of the components' own, of which `standard`
// is that of the standard normal; Newton's method runs inside that bracket and halves it where it
// would leave.
__device__ double mixture_quantile(const Mixture& m, int coordinate, double p, double standard) {
    const double* mean = m.mean + coordinate * m.room;
    double low = 1e300, high = -1e300, average = 0.0, spread = 0.0, narrowest = 1e300;
    for (i64 c = lane_number(); c < m.n; c += LANES) {
        const double own = standard * m.sd[c] + mean[c];
        low = fmin(low, own), high = fmax(high, own), narrowest = fmin(narrowest, m.sd[c]);
        average += m.weight[c] * mean[c];
    }
    low = team_min(low), high = team_max(high), narrowest = team_min(narrowest);
    average = team_sum(average);
    for (i64 c = lane_number(); c < m.n; c += LANES) {
        const double away = mean[c] - average;
        spread += m.weight[c] * (away * away + m.sd[c] * m.sd[c]);
    }
    double x = standard * sqrt(team_sum(spread)) + average;
    x = fmin(fmax(x, low), high);
    for (int step = 0; step < MOST_STEPS; ++step) {
        double below = 0.0, slope = 0.0;
        for (i64 c = lane_number(); c < m.n; c += LANES) {
            const double z = (x - mean[c]) / m.sd[c];
            below += m.weight[c] * normcdf(z);
            slope += m.weight[c] / m.sd[c] * exp(-0.5 * z * z);
        }
        const double error = team_sum(below) - p;
        slope = team_sum(slope) * 0.39894228040143267794;
        if (error < 0.0) low = x;
        else high = x;
        double next = x - error / slope;
        // Comparisons with a step that is no number fail, and halve.
        if (!(next > low && next < high)) next = 0.5 * (low + high);
        const double moved = fabs(next - x);
        x = next;
        if (moved <= QUANTILE_TOLERANCE * narrowest) break;
    }
    return x;
}

// M5 to M9: the mixture over all configurations. `last` (K^l, 2) are w / W of the last worker and
// 1 / W of all; `workspace` has room for a mixture a team.
extern "C" __global__ void enumerate_posterior(
    const double* value, const double* prior_mean, const Entry* table, const double* last,
    i64 n_tasks, const int* worker, i64* message, const i64* sums, const double* log_weights,
    double quantum, const double* probabilities, const double* standard, int n_probabilities,
    double* workspace, double* estimate, double* variance, double* quantile) {
    const i64 n_teams = (i64)gridDim.x * blockDim.x / LANES, team = thread_number() / LANES;
    const i64 n = N_CONFIGURATIONS;
    Mixture mixture{0, n, workspace + team * n * (2 + DIMENSION), nullptr, nullptr};
    mixture.sd = mixture.weight + n, mixture.mean = mixture.sd + n;
    const Messages m{worker, message, sums, log_weights, quantum, 0.0, 0.0};
    Task t;
    t.table = table;
    for (i64 task = team; task < n_tasks; task += n_teams) {
        double start_mean[DIMENSION];
        open_task(t, task, value, prior_mean, start_mean);
        for (int u = 0; u < DEGREE; ++u)
            receive(m, task * DEGREE + u, LEVELS, 1, t.message[u]);
        // Log belief, variance and mean of the truth in every configuration.
        double top = LOG_NOTHING;
        for (i64 c = lane_number(); c < n; c += LANES) {
            double mean[DIMENSION];
            for (int j = 0; j < DIMENSION; ++j) mean[j] = start_mean[j];
            double belief = fit(t, c, mean);
            i64 rest = c;
            for (int u = DEGREE - 1; u >= 0; --u, rest /= LEVELS)
                belief += t.message[u][rest % LEVELS];
            mixture.weight[c] = belief, mixture.sd[c] = sqrt(last[2 * c + 1]);
            for (int j = 0; j < DIMENSION; ++j)
                mixture.mean[j * n + c] =
                    mean[j] + last[2 * c] * (t.value[DEGREE - 1][j] - mean[j]);
            top = fmax(top, belief);
        }
        top = team_max(top);
        double whole = 0.0, own = 0.0;
        for (i64 c = lane_number(); c < n; c += LANES) {
            mixture.weight[c] = exp(mixture.weight[c] - top);
            whole += mixture.weight[c], own += mixture.weight[c] * last[2 * c + 1];
        }
        whole = team_sum(whole), own = team_sum(own) / whole;
        double total = 0.0;
        for (int j = 0; j < DIMENSION; ++j) {
            const double* mean = mixture.mean + j * n;
            double first = 0.0, second = 0.0;
            for (i64 c = lane_number(); c < n; c += LANES) first += mixture.weight[c] * mean[c];
            first = team_sum(first) / whole;
            for (i64 c = lane_number(); c < n; c += LANES)
                second += mixture.weight[c] * (mean[c] - first) * (mean[c] - first);
            second = team_sum(second) / whole + own;
            if (lane_number() == 0)
                estimate[task * DIMENSION + j] = first, variance[task * DIMENSION + j] = second;
        }
        // Every lane brings those of its components that matter to the front of its own.
        i64 kept = lane_number();
        for (i64 c = lane_number(); c < n; c += LANES) {
            if (!(mixture.weight[c] > DROPPED_MASS / (double)n * whole)) continue;
            total += mixture.weight[c];
            mixture.weight[kept] = mixture.weight[c], mixture.sd[kept] = mixture.sd[c];
            for (int j = 0; j < DIMENSION; ++j)
                mixture.mean[j * n + kept] = mixture.mean[j * n + c];
            kept += LANES;
        }
        mixture.n = kept;
        total = team_sum(total);
        for (i64 c = lane_number(); c < kept; c += LANES) mixture.weight[c] /= total;
        for (int j = 0; j < DIMENSION; ++j)
            for (int i = 0; i < n_probabilities; ++i) {
                const double found = mixture_quantile(mixture, j, probabilities[i], standard[i]);
                if (lane_number() == 0)
                    quantile[(task * DIMENSION + j) * n_probabilities + i] = found;
            }
        team_sync();
    }
}
