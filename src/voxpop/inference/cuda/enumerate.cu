// Joint enumeration: sum over all configurations of the levels of a task's workers; one thread a
// task. See kernels/enumerate.py. DEGREE workers, LEVELS levels, DIMENSION coordinates.
//
// Workers join one by one. With W the precision of those before, the prior's included, and w that
// of the one who joins, the mean and the sum of squares Q of a configuration become
//
//     mean + w / (W + w) (A - mean),   Q + W w / (W + w) |A - mean|²
//
// so that nothing cancels. The table has two numbers for every configuration of the first workers:
// -W w / (W + w) / 2 and w / (W + w); of all workers, the second is -d/2 (log W + Σ log s) less a
// constant, with which no factor is far above that of the widest levels.

// Linear sums below this may have lost terms: exp(-460), while numbers end near exp(-700).
#define UNSAFE 1e-200
// Tables up to this size are copied next to the processors.
#define MOST_SHARED 2048

#define N_CONFIGURATIONS power(DEGREE)
__host__ __device__ constexpr i64 power(int n) { return n == 0 ? 1 : LEVELS * power(n - 1); }
// Where the entries of the first n workers begin, and how many there are in all.
__host__ __device__ constexpr i64 start(int n) { return n == 0 ? 0 : start(n - 1) + power(n); }
#define N_ENTRIES start(DEGREE)

struct Entry {
    double cost, gain;
};

struct Task {
    const Entry* table;
    double value[DEGREE][DIMENSION];
    double message[DEGREE][LEVELS];  // linear, largest entry 1
    double out[DEGREE][LEVELS];
};

__device__ __forceinline__ double squared_distance(const double* a, const double* b) {
    double total = 0.0;
    for (int j = 0; j < DIMENSION; ++j) total += (a[j] - b[j]) * (a[j] - b[j]);
    return total;
}

// M3: sum over the levels of workers U and on, given the configuration `prefix` of those before;
// `product` is that of their messages. Adds to the messages to all of them.
template <int U>
struct Walk {
    static __device__ __forceinline__ double level(
        Task& t, int k, i64 prefix, const double* mean, double exponent, double squared,
        double product) {
        constexpr i64 first = start(U);
        const Entry entry = t.table[first + prefix * LEVELS + k];
        double next[DIMENSION];
        for (int j = 0; j < DIMENSION; ++j)
            next[j] = mean[j] + entry.gain * (t.value[U][j] - mean[j]);
        const double sum = Walk<U + 1>::all(
            t, prefix * LEVELS + k, next, exponent + entry.cost * squared, product * t.message[U][k]);
        t.out[U][k] += sum * product;
        return sum * t.message[U][k];
    }

    static __device__ __forceinline__ double all(
        Task& t, i64 prefix, const double* mean, double exponent, double product) {
        const double squared = squared_distance(t.value[U], mean);
        double total = 0.0;
        if (U + 2 >= DEGREE) {
#pragma unroll
            for (int k = 0; k < LEVELS; ++k)
                total += level(t, k, prefix, mean, exponent, squared, product);
        } else {
#pragma unroll 1
            for (int k = 0; k < LEVELS; ++k)
                total += level(t, k, prefix, mean, exponent, squared, product);
        }
        return total;
    }
};

template <>
struct Walk<DEGREE - 1> {
    static __device__ __forceinline__ double all(
        Task& t, i64 prefix, const double* mean, double exponent, double product) {
        const double squared = squared_distance(t.value[DEGREE - 1], mean);
        constexpr i64 first = start(DEGREE - 1);
        double total = 0.0;
#pragma unroll
        for (int k = 0; k < LEVELS; ++k) {
            const Entry entry = t.table[first + prefix * LEVELS + k];
            const double factor = exp(exponent + entry.cost * squared + entry.gain);
            t.out[DEGREE - 1][k] += factor * product;
            total += factor * t.message[DEGREE - 1][k];
        }
        return total;
    }
};

// Exponent of one configuration; `mean` starts as the prior's and becomes that of all workers but
// the last.
__device__ __forceinline__ double fit(const Task& t, i64 number, double* mean) {
    double exponent = 0.0;
    i64 place = N_CONFIGURATIONS, size = 1;
    const Entry* entries = t.table;
    for (int u = 0; u < DEGREE; ++u) {
        // The configuration of the first u + 1 workers.
        place /= LEVELS, size *= LEVELS;
        const Entry entry = entries[number / place];
        entries += size;
        exponent += entry.cost * squared_distance(t.value[u], mean);
        if (u == DEGREE - 1) return exponent + entry.gain;
        for (int j = 0; j < DIMENSION; ++j) mean[j] += entry.gain * (t.value[u][j] - mean[j]);
    }
    return exponent;
}

// The same in logs throughout: slower, and safe for any finite input. Writes log messages to `out`,
// with `incoming` the log messages received.
__device__ __noinline__ void send_in_logs(
    Task& t, const double* prior_mean, const double (*incoming)[LEVELS]) {
    double top[DEGREE][LEVELS];
    for (int u = 0; u < DEGREE; ++u)
        for (int k = 0; k < LEVELS; ++k) top[u][k] = LOG_NOTHING, t.out[u][k] = 0.0;
    for (i64 c = 0; c < N_CONFIGURATIONS; ++c) {
        double mean[DIMENSION];
        for (int j = 0; j < DIMENSION; ++j) mean[j] = prior_mean[j];
        double belief = fit(t, c, mean);
        i64 rest = c;
        for (int u = DEGREE - 1; u >= 0; --u, rest /= LEVELS) belief += incoming[u][rest % LEVELS];
        rest = c;
        for (int u = DEGREE - 1; u >= 0; --u, rest /= LEVELS) {
            double &highest = top[u][rest % LEVELS], &sum = t.out[u][rest % LEVELS];
            if (belief > highest) {
                sum = sum * exp(highest - belief) + 1.0, highest = belief;
            } else {
                sum += exp(belief - highest);
            }
        }
    }
    // A worker's own message is constant on a slice, so subtracting its log is exact.
    for (int u = 0; u < DEGREE; ++u)
        for (int k = 0; k < LEVELS; ++k)
            t.out[u][k] = top[u][k] + log(t.out[u][k]) - incoming[u][k];
}

// Answers of a task, and where the walk through its configurations starts: a flat prior has no mean.
__device__ __forceinline__ void open_task(
    Task& t, i64 task, const double* value, const double* prior_mean, double* mean) {
    for (int u = 0; u < DEGREE; ++u)
        for (int j = 0; j < DIMENSION; ++j)
            t.value[u][j] = value[(task * DEGREE + u) * DIMENSION + j];
    for (int j = 0; j < DIMENSION; ++j)
        mean[j] = prior_mean ? prior_mean[task * DIMENSION + j] : t.value[0][j];
}

extern "C" __global__ void enumerate_sweep(
    const double* value, const double* prior_mean, const Entry* table, i64 widest, i64 n_tasks,
    const int* worker, i64* message, const i64* sums, const double* log_weights, double quantum,
    double floor, double damping, double* change) {
    Task t;
    t.table = table;
    constexpr i64 n_entries = N_ENTRIES;
    if constexpr (n_entries <= MOST_SHARED) {
        __shared__ Entry nearby[n_entries <= MOST_SHARED ? n_entries : 1];
        for (int i = threadIdx.x; i < n_entries; i += blockDim.x) nearby[i] = table[i];
        __syncthreads();
        t.table = nearby;
    }
    const i64 task = thread_number();
    if (task >= n_tasks) return;
    const Messages m{worker, message, sums, log_weights, quantum, floor, damping};
    double mean[DIMENSION], incoming[DEGREE][LEVELS];
    open_task(t, task, value, prior_mean, mean);
    for (int u = 0; u < DEGREE; ++u) {
        receive(m, task * DEGREE + u, LEVELS, 1, incoming[u]);
        for (int k = 0; k < LEVELS; ++k) t.message[u][k] = exp(incoming[u][k]), t.out[u][k] = 0.0;
    }
    double aside[DIMENSION];
    for (int j = 0; j < DIMENSION; ++j) aside[j] = mean[j];
    // No configuration has a smaller sum of squares than that of the widest levels.
    const double highest = fit(t, widest, aside) - t.table[N_ENTRIES - N_CONFIGURATIONS + widest].gain;
    Walk<0>::all(t, 0, mean, -highest, 1.0);
    bool is_safe = true;
    for (int u = 0; u < DEGREE; ++u)
        for (int k = 0; k < LEVELS; ++k) is_safe = is_safe && t.out[u][k] >= UNSAFE;
    if (is_safe) {
        for (int u = 0; u < DEGREE; ++u)
            for (int k = 0; k < LEVELS; ++k) t.out[u][k] = log(t.out[u][k]);
    } else {
        send_in_logs(t, mean, incoming);
    }
    double moved = 0.0;
    const double known = *change;
    for (int u = 0; u < DEGREE; ++u)
        moved = fmax(moved, send(m, task * DEGREE + u, LEVELS, 1, t.out[u], known));
    raise_change(change, moved);
}
