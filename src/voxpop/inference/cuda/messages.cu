// Incoming and outgoing messages of tasks; see kernel_set.py.
//
// Where tasks are computed by several threads, LANES neighbours of a warp are a team.

typedef long long i64;
typedef unsigned long long u64;

// Stands for the log of nothing where differences of logs are taken.
#define LOG_NOTHING -1e300

__device__ __forceinline__ i64 thread_number() {
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ int lane_number() { return (int)(threadIdx.x % LANES); }

__device__ __forceinline__ unsigned team_mask() {
    const unsigned one = LANES == 32 ? 0xffffffffu : (1u << LANES) - 1u;
    return one << (threadIdx.x % 32 / LANES * LANES);
}

__device__ __forceinline__ void team_sync() { __syncwarp(team_mask()); }

// All lanes get the same bits: neighbours add the same two numbers in every step.
__device__ __forceinline__ double team_sum(double x) {
    for (int o = LANES / 2; o > 0; o /= 2) x += __shfl_xor_sync(team_mask(), x, o, LANES);
    return x;
}

__device__ __forceinline__ double team_max(double x) {
    for (int o = LANES / 2; o > 0; o /= 2) x = fmax(x, __shfl_xor_sync(team_mask(), x, o, LANES));
    return x;
}

__device__ __forceinline__ double team_min(double x) { return -team_max(-x); }

// The input of all tasks in one sweep (SweepState), and the messages of some of them (Edges).
struct Messages {
    const int* worker;
    i64* message;
    const i64* sums;
    const double* log_weights;
    double quantum, floor, damping;
};

// M4: log of a worker's belief without the message at `edge`, largest entry 0; entries are `step`
// apart.
//
//     incoming[k] = (sums[worker, k] - message[k]) quantum + log weight[k] - max over k
__device__ __forceinline__ void receive(
    const Messages& m, i64 edge, int K, int step, double* incoming) {
    const i64 *sums = m.sums + (i64)m.worker[edge] * K, *own = m.message + edge * K;
    double top = LOG_NOTHING;
    for (int k = 0; k < K; ++k) {
        const double mine = (double)(sums[k] - own[k]) * m.quantum + m.log_weights[k];
        incoming[k * step] = mine, top = fmax(top, mine);
    }
    for (int k = 0; k < K; ++k) incoming[k * step] -= top;
}

// Normalise, clip, damp and round a log message, and store it in place of that at `edge`. Returns
// how far that moves it as a probability, or less if that is surely no more than `known`.
//
//     x = max(log m - max over k, floor),  new = round(((1 - damping) x + damping old) / quantum)
__device__ __forceinline__ double send(
    const Messages& m, i64 edge, int K, int step, double* log_message, double known) {
    i64* own = m.message + edge * K;
    double top = LOG_NOTHING, highest = LOG_NOTHING, lowest = -LOG_NOTHING;
    double top_before = LOG_NOTHING, top_after = LOG_NOTHING;
    for (int k = 0; k < K; ++k) top = fmax(top, log_message[k * step]);
    for (int k = 0; k < K; ++k) {
        const double before = (double)own[k] * m.quantum;
        double x = fmax(log_message[k * step] - top, m.floor);
        if (m.damping != 0.0) x = (1.0 - m.damping) * x + m.damping * before;
        const double after = rint(x / m.quantum) * m.quantum;
        log_message[k * step] = after;
        highest = fmax(highest, after - before), lowest = fmin(lowest, after - before);
        top_before = fmax(top_before, before), top_after = fmax(top_after, after);
    }
    double change = 0.0;
    // A softmax moves by at most a quarter of the range of the moves of its arguments.
    if (0.25 * (highest - lowest) > known) {
        double sum_before = 0.0, sum_after = 0.0;
        for (int k = 0; k < K; ++k) {
            sum_before += exp((double)own[k] * m.quantum - top_before);
            sum_after += exp(log_message[k * step] - top_after);
        }
        for (int k = 0; k < K; ++k) {
            const double p = exp((double)own[k] * m.quantum - top_before) / sum_before;
            change = fmax(change, fabs(exp(log_message[k * step] - top_after) / sum_after - p));
        }
    }
    for (int k = 0; k < K; ++k) own[k] = (i64)rint(log_message[k * step] / m.quantum);
    return change;
}

// Numbers that are not negative sort as their bits do.
__device__ __forceinline__ void raise_change(double* change, double found) {
    if (found > *change) atomicMax((u64*)change, (u64)__double_as_longlong(found));
}
