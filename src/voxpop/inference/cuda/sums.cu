// Sums of messages over the answers of each worker, and what workers' beliefs change on their edges.

// Add messages (n, LEVELS) to the sums (m, LEVELS) of their workers, times `sign`; `order` (n)
// lists them worker by worker, or is null. A thread adds up SEGMENT neighbours and adds its sum
// where the worker changes, so that no worker is too busy for one thread; sums of whole numbers do
// not depend on the order.
#define SEGMENT 32
extern "C" __global__ void add_messages(
    const int* worker, const i64* message, const unsigned* order, i64 n, i64 sign, i64* sums) {
    const i64 first = thread_number() * SEGMENT, last = first + SEGMENT < n ? first + SEGMENT : n;
    int owner = -1;
    i64 total[LEVELS];
    for (i64 i = first; i <= last; ++i) {
        const i64 edge = i == last ? -1 : order ? (i64)order[i] : i;
        const int mine = i == last ? -1 : worker[edge];
        if (mine != owner) {
            for (int k = 0; k < LEVELS; ++k) {
                if (owner >= 0)
                    atomicAdd((u64*)sums + (i64)owner * LEVELS + k, (u64)(sign * total[k]));
                total[k] = 0;
            }
            owner = mine;
        }
        for (int k = 0; k < LEVELS && i < last; ++k) total[k] += message[edge * LEVELS + k];
    }
}

// Take `shift` (m) off every worker's bias, in all messages about it.
extern "C" __global__ void recentre(
    const int* worker, const double* precision, const double* shift, i64 n, double* pull) {
    const i64 i = thread_number();
    if (i < n) pull[i] -= precision[i] * shift[worker[i]];
}

// Sum numbers (n) over the answers of each worker, a thread a worker; `order` lists them worker by
// worker.
extern "C" __global__ void sum_by_worker(
    const int* worker, const double* per_edge, const unsigned* order, i64 n, i64 n_workers,
    double* out) {
    const i64 mine = thread_number();
    if (mine >= n_workers) return;
    i64 low = 0, high = n;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (worker[order[middle]] < mine) low = middle + 1;
        else high = middle;
    }
    double total = 0.0;
    for (; low < n && worker[order[low]] == mine; ++low) total += per_edge[order[low]];
    out[mine] = total;
}

// Some levels of the messages (E, width), at the edges (n): out[i, k] = message[at[i], level[k]].
extern "C" __global__ void gather(
    const i64* message, const i64* at, const i64* level, i64 n, i64 width, i64 n_levels, i64* out) {
    const i64 i = thread_number();
    if (i < n * n_levels) out[i] = message[at[i / n_levels] * width + level[i % n_levels]];
}

// Some rows of a table of `width` words of 32 bits a row, there and back: part[i] = whole[row[i]].
extern "C" __global__ void take_rows(
    const int* whole, const i64* row, i64 n, i64 width, int* part) {
    const i64 i = thread_number();
    if (i < n * width) part[i] = whole[row[i / width] * width + i % width];
}

extern "C" __global__ void put_rows(const int* part, const i64* row, i64 n, i64 width, int* whole) {
    const i64 i = thread_number();
    if (i < n * width) whole[row[i / width] * width + i % width] = part[i];
}

// Add up `per` rows of a table (n, width) at a time, in their order.
extern "C" __global__ void add_up(const double* table, i64 n, i64 width, i64 per, double* out) {
    const i64 i = thread_number(), part = i / width, column = i % width;
    if (part * per >= n) return;
    double total = 0.0;
    for (i64 row = part * per; row < n && row < (part + 1) * per; ++row)
        total += table[row * width + column];
    out[i] = total;
}
