// Enumeration where most workers have settled on a level; see kernels/active.py. One task per lane.
//
// Arrays of a task's workers are in an order of its own, the free ones first, so that lanes do the
// same. Logs are to base 2. A worker's levels are numbered from the likeliest down.
#pragma once

#include "enumerate_logs.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Squares (Q/2) beyond which no task is settled, and the least doubt counted; see choose_free.
constexpr double most_squares = 600.0, least_doubt = 1e-300;
// Stands for no bound.
constexpr double unbounded = 1e300;
// Weights of changes are cut here: products of two of them must not overflow.
constexpr double highest_change = 400.0;
// A message below the first log contradicts a level that the worker's others leave above the
// second: it must then be more precise than this kernel can; see kernels/active.py.
constexpr double contradicting = -40.0, still_possible = -40.0;

struct LevelTable {
    double *precision, *log_level, *root;  // 1/s, log2 s, s^(d/2)
};

struct ActiveArrays {
    LevelTable level;
    vec *value, *prior_mean, *incoming, *out;
    ivec* old;
    vec *doubt, *second, *bound;            // of doubt_workers
    vec *message, *to_precision, *to_log, *rank;  // (l, K): of level f; number of level k
    vec *precision, *away, *squared, *sum;  // (l, ...)
    vec *delta, *after, *per_after, *share, *step, *cost, *change, *weight, *total;  // (l, K)
    vec *top, *scratch;
};

inline ActiveArrays carve_active(const Enumeration& e, const Messages& m, Workspace& workspace) {
    const int64_t degree = m.degree, K = m.n_levels, d = e.dimension, each = degree * K;
    const int64_t n = 2 * degree * d + d + 17 * each + 5 * degree + 1 + 2 * K;
    vec* next = (vec*)workspace.slot(5, lanes * n + 3 * K);
    auto take = [&next](int64_t n) { return (next += n) - n; };
    ActiveArrays s;
    s.value = take(degree * d), s.away = take(degree * d), s.prior_mean = take(d);
    s.old = (ivec*)take(each), s.bound = take(1), s.scratch = take(2 * K);
    vec** by_level[] = {&s.incoming, &s.out, &s.message, &s.rank, &s.to_precision, &s.to_log,
                        &s.delta, &s.after, &s.per_after, &s.share, &s.step, &s.cost, &s.change,
                        &s.weight, &s.total, &s.top};
    for (vec** array : by_level) *array = take(each);
    vec** by_worker[] = {&s.doubt, &s.second, &s.precision, &s.squared, &s.sum};
    for (vec** array : by_worker) *array = take(degree);
    s.level.precision = (double*)next, s.level.log_level = s.level.precision + K;
    s.level.root = s.level.log_level + K;
    for (int64_t k = 0; k < K; ++k) {
        s.level.precision[k] = 1.0 / e.levels[k];
        s.level.log_level[k] = log2_e * __builtin_log(e.levels[k]);
        s.level.root[k] = __builtin_pow(e.levels[k], 0.5 * (double)d);
    }
    return s;
}

// Take up the tasks of a block: the messages of their workers, and their values.
template <int LEVELS>
[[gnu::noinline]] inline void open_block(
    const Enumeration& e, const Messages& m, const Block& block, ActiveArrays& s) {
    receive<LEVELS>(m, block, s.old, s.incoming);
    gather(e.value, m.degree * e.dimension, block, (double*)s.value);
    if (e.prior_precision > 0.0)
        gather(e.prior_mean, e.dimension, block, (double*)s.prior_mean);
}

// x where a is level k, else y; levels are small whole numbers.
inline vec where_level(vec a, int64_t k, vec x, vec y) {
    return where_above(absolute(a - all((double)k)), all(0.5), y, x);
}

// W, distances of answers from the weighted mean, their squares; returns Q.
[[gnu::noinline]] inline vec fit(
    const Enumeration& e, int64_t degree, ActiveArrays& s, vec& total) {
    const int64_t d = e.dimension;
    vec squares = all(0.0);
    total = all(e.prior_precision);
    for (int64_t u = 0; u < degree; ++u) {
        total = total + s.precision[u];
        s.squared[u] = all(0.0);
    }
    const vec per_total = all(1.0) / total;
    for (int64_t j = 0; j < d; ++j) {
        vec pull = e.prior_precision > 0.0 ? all(e.prior_precision) * s.prior_mean[j] : all(0.0);
        for (int64_t u = 0; u < degree; ++u) pull = fma(s.precision[u], s.value[u * d + j], pull);
        const vec mean = pull * per_total;
        for (int64_t u = 0; u < degree; ++u) {
            const vec away = s.value[u * d + j] - mean;
            s.away[u * d + j] = away, s.squared[u] = fma(away, away, s.squared[u]);
        }
        if (e.prior_precision > 0.0) {
            const vec away = s.prior_mean[j] - mean;
            squares = fma(away * away, all(e.prior_precision), squares);
        }
    }
    for (int64_t u = 0; u < degree; ++u) squares = fma(s.precision[u], s.squared[u], squares);
    return squares;
}

// M26: the best levels, the doubts that remain, and a bound on their weight.
//
//     R_v = Σ_{k≠b} m_v(k) max(1, (s_b / s_k)^(d/2)),   1/2 (Σ R_v)² e^(Q/2) <= accuracy
//
// Returns the largest weight of what is left out if nobody is free.
template <int LEVELS>
[[gnu::noinline]] inline vec doubt_workers(
    const Enumeration& e, int64_t degree, int64_t n_levels, ActiveArrays& s) {
    const int64_t K = LEVELS ? LEVELS : n_levels;
    vec sum = all(0.0), total;
    for (int64_t u = 0; u < degree; ++u) {
        const vec* mine = s.incoming + u * K;
        vec top = mine[0], best = all(0.0), root = all(s.level.root[0]);
        vec precision = all(s.level.precision[0]);
        for (int64_t k = 1; k < K; ++k) {
            best = where_above(mine[k], top, all((double)k), best);
            root = where_above(mine[k], top, all(s.level.root[k]), root);
            precision = where_above(mine[k], top, all(s.level.precision[k]), precision);
            top = max(top, mine[k]);
        }
        vec doubt = all(0.0), second = all(0.0), next = all(log_nothing);
        for (int64_t k = 0; k < K; ++k) {
            const vec gain = max(root * all(1.0 / s.level.root[k]), all(1.0));
            const vec other = where_level(best, k, all(log_nothing), mine[k]);
            const vec term = exp(other) * gain;
            doubt = doubt + term;
            second = where_above(other, next, term, second);
            next = max(next, other);
        }
        s.precision[u] = precision, s.second[u] = second;
        s.doubt[u] = max(doubt, all(least_doubt));
        sum = sum + s.doubt[u];
    }
    const vec squares = all(0.5) * fit(e, degree, s, total);
    const vec bound = all(0.5) * exp(min(squares, all(most_squares)));
    s.bound[0] = where_above(squares, all(most_squares), all(unbounded), bound);
    return where_above(squares, all(most_squares), all(unbounded), sum * sum * bound);
}

// How many workers of one task stay free, or -1; `order` gets all workers, those first.
inline int64_t choose_free(
    const Enumeration& e, int64_t degree, const ActiveArrays& s, int lane, int64_t* order) {
    double bound = s.bound[0][lane], of_free = 0.0;
    if (bound == unbounded) return -1;
    for (int64_t u = 0; u < degree; ++u) order[u] = u;
    for (int64_t f = 0;; ++f) {
        double rest = of_free;
        int64_t largest = f;
        for (int64_t u = f; u < degree; ++u) {
            rest += s.doubt[order[u]][lane];
            if (s.doubt[order[u]][lane] > s.doubt[order[largest]][lane]) largest = u;
        }
        if (rest * rest * bound <= e.accuracy) return f;
        if (f == e.most_free || f == degree) return -1;
        const int64_t chosen = order[largest];
        for (int64_t u = largest; u > f; --u) order[u] = order[u - 1];
        order[f] = chosen;
        const double doubt = s.doubt[chosen][lane], second = s.second[chosen][lane];
        of_free += doubt > second ? doubt - second : 0.0;
        bound *= 1.0 + second;
    }
}

// Bring `width` numbers of each worker of one lane into an order, or (`back`) out of it.
inline void reorder(
    vec* array, int64_t width, int64_t degree, int lane, const int64_t* order, bool back,
    vec* room) {
    double *numbers = (double*)array + lane, *copy = (double*)room;
    for (int64_t j = 0; j < degree * width; ++j) copy[j] = numbers[j * lanes];
    for (int64_t u = 0; u < degree; ++u)
        for (int64_t j = 0; j < width; ++j) {
            const int64_t from = back ? u : order[u], to = back ? order[u] : u;
            numbers[(to * width + j) * lanes] = copy[from * width + j];
        }
}

// Precision, log and message of the levels of all workers, the likeliest first.
template <int LEVELS>
[[gnu::noinline]] inline void line_up(int64_t degree, int64_t n_levels, ActiveArrays& s) {
    const int64_t K = LEVELS ? LEVELS : n_levels;
    for (int64_t u = 0; u < degree; ++u) {
        const vec* mine = s.incoming + u * K;
        for (int64_t k = 0; k < K; ++k) {
            vec rank = all(0.0);
            for (int64_t i = 0; i < k; ++i)
                rank = rank + where_above(mine[k], mine[i], all(0.0), all(1.0));
            for (int64_t i = k + 1; i < K; ++i)
                rank = rank + where_above(mine[i], mine[k], all(1.0), all(0.0));
            s.rank[u * K + k] = rank;
        }
        for (int64_t f = 0; f < K; ++f) {
            vec message = mine[0], precision = all(s.level.precision[0]);
            vec log_level = all(s.level.log_level[0]);
            for (int64_t k = 1; k < K; ++k) {
                const vec rank = s.rank[u * K + k];
                message = where_level(rank, f, mine[k], message);
                precision = where_level(rank, f, all(s.level.precision[k]), precision);
                log_level = where_level(rank, f, all(s.level.log_level[k]), log_level);
            }
            s.message[u * K + f] = message * all(log2_e);
            s.to_precision[u * K + f] = precision, s.to_log[u * K + f] = log_level;
        }
    }
}

// Whether free worker u is at its second level in a configuration of the free ones.
inline bool at_second(int64_t number, int64_t u, int64_t n_free) {
    return u < n_free && (number >> u & 1);
}

// The first level that worker u may change to; none where a free one is at its second.
inline int64_t first_change(int64_t number, int64_t u, int64_t n_free, int64_t K) {
    return u >= n_free ? 1 : at_second(number, u, n_free) ? K : 2;
}

// Settle on one configuration of the free workers' levels: its weight, and that of single changes.
//
//     log C'/C = -d/2 log(W' s' / (W s)) - δ/2 W/W' |e|²,   δ = 1/s' - 1/s,  W' = W + δ
//
// Where nobody is FREE all loops over levels are equally long, and unroll. Weights are needed where
// PAIRS of changes are added up.
template <int LEVELS, bool FREE, bool PAIRS>
[[gnu::noinline]] inline vec settle(
    const Enumeration& e, int64_t degree, int64_t n_levels, int64_t n_free, int64_t number,
    ActiveArrays& s) {
    const int64_t K = LEVELS ? LEVELS : n_levels;
    const double half_d = 0.5 * (double)e.dimension;
    vec log_weight = all(0.0), total;
    for (int64_t u = 0; u < degree; ++u) {
        const int64_t j = u * K + (FREE && at_second(number, u, n_free));
        s.precision[u] = s.to_precision[j];
        log_weight = log_weight + s.message[j] - all(half_d) * s.to_log[j];
    }
    const vec squares = fit(e, degree, s, total);
    log_weight = log_weight - all(half_d) * log2(total) - all(0.5 * log2_e) * squares;
    const vec per_total = all(1.0) / total;
    for (int64_t u = 0; u < degree; ++u) {
        s.sum[u] = all(0.0);
        for (int64_t f = FREE ? first_change(number, u, n_free, K) : 1; f < K; ++f) {
            const int64_t j = u * K + f;
            const vec delta = s.to_precision[j] - s.precision[u], after = total + delta;
            s.delta[j] = delta, s.after[j] = after, s.share[j] = after * per_total;
            s.per_after[j] = all(1.0) / after, s.step[j] = delta * s.per_after[j];
            s.cost[j] = all(0.5 * log2_e) * s.step[j] * total * s.squared[u];
            const vec ratio = log2(s.share[j]) + s.to_log[j] - s.to_log[u * K];
            s.change[j] = fma(ratio, all(-half_d), -s.cost[j]);
            if constexpr (!PAIRS) continue;
            const vec weight = s.message[j] - s.message[u * K] + s.change[j];
            s.weight[j] = exp2(min(weight, all(highest_change)));
            s.sum[u] = s.sum[u] + s.weight[j];
        }
    }
    return log_weight;
}

// M25: add up the changes of two settled workers, each seen from the other.
//
//     total[u, f] = 1 + Σ_{v≠u} Σ_g weight[v, g] E,   E = (W_u W_v / (W W_uv))^(d/2) 2^(cost_v - cost_v|u)
//
// total[u, 0] is what u sees where it stays.
template <int D, int LEVELS, bool FREE>
[[gnu::noinline]] inline void add_pairs(
    int64_t degree, int64_t dimension, int64_t n_levels, int64_t n_free, int64_t number,
    ActiveArrays& s) {
    const int64_t d = D ? D : dimension, K = LEVELS ? LEVELS : n_levels;
    for (int64_t j = 0; j < degree * K; ++j) s.total[j] = all(1.0);
    for (int64_t u = 0; u < degree; ++u)
        for (int64_t v = u + 1; v < degree; ++v) {
            s.total[u * K] = s.total[u * K] + s.sum[v];
            s.total[v * K] = s.total[v * K] + s.sum[u];
            const int64_t first_u = FREE ? first_change(number, u, n_free, K) : 1;
            const int64_t first_v = FREE ? first_change(number, v, n_free, K) : 1;
#pragma GCC unroll 2
            for (int64_t of_u = first_u; of_u < K; ++of_u) {
                const int64_t f = u * K + of_u;
                const vec step = s.step[f], after = s.after[f], weight = s.weight[f];
                vec squared = all(0.0), seen = s.total[f];
                for (int64_t j = 0; j < d; ++j) {
                    const vec away = s.away[v * d + j] - step * s.away[u * d + j];
                    squared = fma(away, away, squared);
                }
                squared = squared * after * all(0.5 * log2_e);
#pragma GCC unroll 2
                for (int64_t of_v = first_v; of_v < K; ++of_v) {
                    const int64_t g = v * K + of_v;
                    const vec per_both = all(1.0) / (after + s.delta[g]);
                    const vec ratio = after * s.share[g] * per_both;
                    vec exponent = s.cost[g] - s.delta[g] * squared * per_both, e;
                    if constexpr (D == 0)
                        exponent = fma(log2(ratio), all(0.5 * (double)d), exponent);
                    e = exp2_nearly(min(exponent, all(highest_change)));
                    if constexpr (D == 1) e = e * sqrt(ratio);
                    if constexpr (D == 2) e = e * ratio;
                    seen = fma(s.weight[g], e, seen);
                    s.total[g] = fma(weight, e, s.total[g]);
                }
                s.total[f] = seen;
            }
        }
}

// Add 2^exponent times a factor to 2^top times a sum, or if nobody is FREE let it be the sum.
template <bool FREE>
inline void add_in_logs(vec exponent, vec factor, vec& top, vec& sum) {
    if constexpr (!FREE) return (void)(top = exponent, sum = factor);
    const vec higher = max(exponent, top);
    sum = sum * exp2(top - higher) + factor * exp2(exponent - higher);
    top = higher;
}

// Write the log messages (natural, not normalised) of a block to `out`.
template <int LEVELS, bool FREE>
inline void expand(
    const Enumeration& e, int64_t degree, int64_t n_levels, int64_t n_free,
    decltype(&add_pairs<0, LEVELS, FREE>) add_pairs, ActiveArrays& s) {
    const int64_t K = LEVELS ? LEVELS : n_levels;
    // Sums over configurations of the free workers: in `top` and `out`.
    if constexpr (FREE)
        for (int64_t j = 0; j < degree * K; ++j)
            s.top[j] = all(log_nothing), s.out[j] = all(0.0);
    line_up<LEVELS>(degree, K, s);
    for (int64_t number = 0; number < (FREE ? 1 << n_free : 1); ++number) {
        const vec log_weight = settle<LEVELS, FREE, true>(e, degree, K, n_free, number, s);
        add_pairs(degree, e.dimension, K, n_free, number, s);
        for (int64_t u = 0; u < degree; ++u) {
            // A worker's own message is not part of the cavity.
            const int64_t stays = u * K + (FREE && at_second(number, u, n_free));
            const vec others = log_weight - s.message[stays];
            add_in_logs<FREE>(others, s.total[u * K], s.top[stays], s.out[stays]);
            for (int64_t f = FREE ? first_change(number, u, n_free, K) : 1; f < K; ++f) {
                const int64_t j = u * K + f;
                add_in_logs<FREE>(others + s.change[j], s.total[j], s.top[j], s.out[j]);
            }
        }
    }
    for (int64_t j = 0; j < degree * K; ++j) s.top[j] = (s.top[j] + log2(s.out[j])) * all(ln_2);
    for (int64_t u = 0; u < degree; ++u)
        for (int64_t k = 0; k < K; ++k) {
            vec found = s.top[u * K];
            for (int64_t f = 1; f < K; ++f)
                found = where_level(s.rank[u * K + k], f, s.top[u * K + f], found);
            s.out[u * K + k] = found;
        }
}

// 1 in the lanes of tasks that contradict a level which is still possible.
template <int LEVELS>
[[gnu::noinline]] inline vec contradicts(int64_t degree, int64_t n_levels, const ActiveArrays& s) {
    const int64_t K = LEVELS ? LEVELS : n_levels;
    vec found = all(0.0);
    for (int64_t u = 0; u < degree; ++u) {
        vec top = s.out[u * K];
        for (int64_t k = 1; k < K; ++k) top = max(top, s.out[u * K + k]);
        for (int64_t j = u * K; j < (u + 1) * K; ++j) {
            const vec possible = where_above(s.incoming[j], all(still_possible), all(1.0), all(0.0));
            found = max(found, where_above(all(contradicting), s.out[j] - top, possible, all(0.0)));
        }
    }
    return found;
}

// M27: rough messages from the others' average and its variance.
template <int LEVELS>
inline void guess_block(const Enumeration& e, int64_t degree, int64_t n_levels, ActiveArrays& s) {
    const int64_t d = e.dimension, K = LEVELS ? LEVELS : n_levels;
    const vec one = all(1.0);
    vec total = all(e.prior_precision), noise = total;
    for (int64_t u = 0; u < degree; ++u) {
        vec sum = all(0.0), precision = all(0.0), variance = all(0.0);
        for (int64_t k = 0; k < K; ++k) {
            const vec share = exp(s.incoming[u * K + k]);
            sum = sum + share;
            precision = fma(share, all(s.level.precision[k]), precision);
            variance = fma(share, all(e.levels[k]), variance);
        }
        const vec per_sum = one / sum;
        s.precision[u] = precision * per_sum;
        s.sum[u] = s.precision[u] * s.precision[u] * variance * per_sum;
        total = total + s.precision[u], noise = noise + s.sum[u];
    }
    vec* pull = s.top;
    for (int64_t j = 0; j < d; ++j) {
        pull[j] = e.prior_precision > 0.0 ? all(e.prior_precision) * s.prior_mean[j] : all(0.0);
        for (int64_t u = 0; u < degree; ++u)
            pull[j] = fma(s.precision[u], s.value[u * d + j], pull[j]);
    }
    for (int64_t u = 0; u < degree; ++u) {
        // What one worker leaves of a sum is never all lost to rounding.
        const vec per_rest = one / max(total - s.precision[u], all(1e-12) * total);
        const vec spread = max(noise - s.sum[u], all(0.0)) * per_rest * per_rest;
        vec squared = all(0.0);
        for (int64_t j = 0; j < d; ++j) {
            const vec value = s.value[u * d + j];
            const vec away = value - (pull[j] - s.precision[u] * value) * per_rest;
            squared = fma(away, away, squared);
        }
        for (int64_t k = 0; k < K; ++k) {
            const vec variance = all(e.levels[k]) + spread;
            s.out[u * K + k] = all(-0.5) * fma(log(variance), all((double)d), squared / variance);
        }
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
