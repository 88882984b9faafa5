// The functions of x that every sum over the nodes of one row is made of; lanes are nodes.
//
// With v_g the variances, gamma_u the spread of an answer, and the mixing of class c (M29):
//
//     N_ug(x) = N(a_u | x, v_g + gamma_u),  F_uc(x) = Σ_kg m_u(k) mixing[c, k, g] N_ug(x)
//     P_c(x) = prior(x) Π_u F_uc(x),        cavity_uc(x) = P_c(x) / F_uc(x)
#pragma once

#include "elementary.hpp"
#include "mixtures.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The same as in mixture.py, where they are explained.
constexpr double unsafe_sum = 1e-250, negligible_nats = 40.0;
// Stands for the log of nothing where differences of logs are taken.
constexpr double log_nothing = -1e300;
constexpr double infinite = __builtin_huge_val();

inline int64_t vectors(int64_t n) { return (n + lanes - 1) / lanes; }

// The mixing as the loops read it, padded to whole vectors.
struct MixtureTables {
    int64_t C, K, G, k_vectors, g_vectors;
    const double* variance;
    vec *by_level, *by_variance;  // (C, K, G) and (C, G, K)
    vec* log_by_level;            // (C, K, G)

    // Whether any level of a class takes a variance.
    bool is_used(int64_t c, int64_t g) const { return used_[c * G + g] > 0.0; }

    MixtureTables(const MixtureGrid& grid, Workspace& workspace) {
        C = grid.n_classes, K = grid.n_levels, G = grid.n_variances, variance = grid.variance;
        k_vectors = vectors(K), g_vectors = vectors(G);
        const int64_t n_level = C * K * g_vectors, n_variance = C * G * k_vectors;
        by_level = (vec*)workspace.slot(0, lanes * (2 * n_level + n_variance) + C * G);
        log_by_level = by_level + n_level, by_variance = log_by_level + n_level;
        used_ = (double*)(by_variance + n_variance);
        for (int64_t i = 0; i < C * G; ++i) used_[i] = 0.0;
        for (int64_t i = 0; i < n_level; ++i)
            by_level[i] = all(0.0), log_by_level[i] = all(log_nothing);
        for (int64_t i = 0; i < n_variance; ++i) by_variance[i] = all(0.0);
        for (int64_t c = 0; c < C; ++c)
            for (int64_t k = 0; k < K; ++k)
                for (int64_t g = 0; g < G; ++g) {
                    const double share = grid.mixing[(c * K + k) * G + g];
                    used_[c * G + g] += share;
                    ((double*)(by_level + (c * K + k) * g_vectors))[g] = share;
                    ((double*)(by_variance + (c * G + g) * k_vectors))[k] = share;
                    if (share > 0.0)
                        ((double*)(log_by_level + (c * K + k) * g_vectors))[g] =
                            __builtin_log(share);
                }
    }

private:
    double* used_;
};

// Nodes from `first` to before `last`, in vectors.
struct NodeRange {
    int64_t first, last;
};

// One row: its numbers, and its functions at all nodes.
class MixtureRow {
public:
    const MixtureTables& t;
    const int64_t degree, stride;  // stride: nodes of all rows, given
    int64_t n_nodes = 0, n = 0;    // nodes of this row, and vectors of them
    const double *centre, *spread, *incoming, *log_class;
    vec *x, *log_weight;
    vec *level, *share;      // (degree, K), (degree, C, G)
    double* variance;        // (degree, G), v_g + gamma_u, padded with 1
    vec *distance, *gauss;   // (degree, n), (degree, G, n)
    vec *log_f, *log_p;      // (C, degree, n), (C, n)
    vec* scratch;            // (3, C, n)
    NodeRange* range;        // (degree, G)

    MixtureRow(const MixtureTables& tables, const MixtureRows& rows, Workspace& workspace)
        : t(tables), degree(rows.degree), stride(rows.n_nodes), rows_(rows) {
        const int64_t most = vectors(stride), g = t.g_vectors, l = degree;
        const int64_t small = l * (t.k_vectors + (t.C + 3) * g + 2 * vectors(t.G)) + g;
        vec* next = (vec*)workspace.slot(1, lanes * (small + most * (2 + l + 4 * t.C + t.C * l)));
        auto take = [&next](int64_t size) { return (next += size) - size; };
        level = take(l * t.k_vectors), share = take(l * t.C * g);
        variance = (double*)take(l * g), log_share_ = take(g), log_variance_ = take(l * g);
        range = (NodeRange*)take(2 * l * vectors(t.G));
        x = take(most), log_weight = take(most), distance = take(l * most);
        log_f = take(t.C * l * most), log_p = take(t.C * most), scratch = take(3 * t.C * most);
        gauss = (vec*)workspace.slot(2, lanes * l * t.G * most);
        flags_ = (char*)workspace.slot(3, vectors(l * most) * lanes);
    }

    // Take up one row and work out all of its functions.
    void open(int64_t row) {
        const int64_t l = degree;
        centre = rows_.centre + row * l, spread = rows_.spread + row * l;
        incoming = rows_.incoming + row * l * t.K, log_class = rows_.log_class + row * t.C;
        take_nodes(rows_.x + row * stride, rows_.log_weight + row * stride);
        for (int64_t u = 0; u < l; ++u) {
            weigh(u);
            add_gaussians(u);
        }
        const double bounded = log(all(unsafe_sum))[0];
        for (int64_t c = 0; c < t.C; ++c) {
            vec lowest = all(0.0);
            for (int64_t i = c * l * n; i < (c + 1) * l * n; ++i) {
                log_f[i] = log(max(log_f[i], all(unsafe_sum)));
                lowest = min(lowest, log_f[i]);
            }
            multiply(c);
            if (any_above(all(bounded) + all(1e-9), lowest)) redo_in_logs(c, bounded);
        }
    }

    vec log_cavity(int64_t c, int64_t u, int64_t q) const {
        return log_p[c * n + q] - log_f[(c * degree + u) * n + q];
    }

    // What all others than u say of x, every class weighed in: cavity_uc(x) p(c), largest one 1.
    // Returns the log of the factor taken out.
    double cavities(int64_t u, vec* linear) const {
        double top = -infinite;
        for (int64_t c = 0; c < t.C; ++c) {
            vec highest = all(-infinite);
            for (int64_t q = 0; q < n; ++q) highest = max(highest, log_cavity(c, u, q));
            const double found = largest(highest) + log_class[c];
            top = found > top ? found : top;
        }
        for (int64_t c = 0; c < t.C; ++c)
            for (int64_t q = 0; q < n; ++q)
                linear[c * n + q] = exp(log_cavity(c, u, q) + all(log_class[c] - top));
        return top;
    }

private:
    const MixtureRows& rows_;
    vec *log_share_, *log_variance_;
    char* flags_;

    // Nodes past a row's end weigh nothing and are left out; the last vector is filled up.
    void take_nodes(const double* from, const double* weights) {
        n_nodes = stride;
        while (n_nodes > 1 && weights[n_nodes - 1] == -infinite) --n_nodes;
        n = vectors(n_nodes);
        for (int64_t q = 0; q < n * lanes; ++q) {
            ((double*)x)[q] = from[q < n_nodes ? q : n_nodes - 1];
            ((double*)log_weight)[q] = q < n_nodes ? weights[q] : -infinite;
        }
    }

    // Shares of the variances in an answer: share_cg = Σ_k m_u(k) mixing[c, k, g].
    void weigh(int64_t u) {
        vec* mine = level + u * t.k_vectors;
        for (int64_t k = 0; k < t.k_vectors * lanes; ++k)
            ((double*)mine)[k] = k < t.K ? incoming[u * t.K + k] : -infinite;
        for (int64_t k = 0; k < t.k_vectors; ++k) mine[k] = exp(mine[k]);
        for (int64_t c = 0; c < t.C; ++c) {
            vec* out = share + (u * t.C + c) * t.g_vectors;
            for (int64_t g = 0; g < t.g_vectors; ++g) {
                out[g] = all(0.0);
                for (int64_t k = 0; k < t.K; ++k)
                    out[g] = fma(t.by_level[(c * t.K + k) * t.g_vectors + g],
                                 all(((double*)mine)[k]), out[g]);
            }
        }
        double* v = variance + u * t.g_vectors * lanes;
        for (int64_t g = 0; g < t.g_vectors * lanes; ++g)
            v[g] = g < t.G ? t.variance[g] + spread[u] : 1.0;
        for (int64_t g = 0; g < t.g_vectors; ++g)
            log_variance_[u * t.g_vectors + g] = log(((vec*)v)[g]);
    }

    // N_ug(x) = 2^(-(log2 e)/2 (d²/v + ln v)) where that is not 0, and F_uc(x) in place of its log.
    void add_gaussians(int64_t u) {
        vec *d = distance + u * n, *squared = scratch;
        for (int64_t q = 0; q < n; ++q) {
            d[q] = all(centre[u]) - x[q];
            squared[q] = d[q] * d[q];
        }
        for (int64_t c = 0; c < t.C; ++c)
            for (int64_t q = 0; q < n; ++q) log_f[(c * degree + u) * n + q] = all(0.0);
        NodeRange near{0, n};
        for (int64_t g = 0; g < t.G; ++g) {
            const double v = variance[u * t.g_vectors * lanes + g];
            const double log_v = ((double*)(log_variance_ + u * t.g_vectors))[g];
            const double rate = 0.5 * log2_e / v, height = -0.5 * log2_e * log_v;
            const double room = height - lowest_power;
            near = within(near, centre[u], room > 0.0 ? __builtin_sqrt(room / rate) : 0.0);
            range[u * t.G + g] = near;
            vec *out = gauss + (u * t.G + g) * n, *f = log_f + u * n;
            auto share_of = [&](int64_t c) {
                return all(((double*)(share + (u * t.C + c) * t.g_vectors))[g]);
            };
            const vec first = share_of(0);
            for (int64_t q = near.first; q < near.last; ++q) {
                out[q] = exp2(fma(squared[q], all(-rate), all(height)));
                f[q] = fma(first, out[q], f[q]);
            }
            for (int64_t c = 1; c < t.C; ++c) {
                const vec other = share_of(c);
                f += degree * n;
                if (!t.is_used(c, g)) continue;
                for (int64_t q = near.first; q < near.last; ++q) f[q] = fma(other, out[q], f[q]);
            }
        }
    }

    // Vectors with a node no further than this from an answer; found from the last such range.
    NodeRange within(NodeRange near, double answer, double away) const {
        const double *at = (double*)x, low = answer - away, high = answer + away;
        while (near.first > 0 && at[near.first * lanes - 1] >= low) --near.first;
        while (near.first < n && at[near.first * lanes + lanes - 1] < low) ++near.first;
        while (near.last < n && at[near.last * lanes] <= high) ++near.last;
        while (near.last > 0 && at[(near.last - 1) * lanes] > high) --near.last;
        if (near.last < near.first) near.last = near.first;
        return near;
    }

    // log P_c(x) = log weight(x) + Σ_u log F_uc(x)
    void multiply(int64_t c) {
        for (int64_t q = 0; q < n; ++q) {
            vec total = all(0.0);
            for (int64_t u = 0; u < degree; ++u)
                total = total + log_f[(c * degree + u) * n + q];
            log_p[c * n + q] = log_weight[q] + total;
        }
    }

    // Where F underflowed it stands at a bound above it. Where with that bound the node could
    // matter to anybody else's cavity, it is worked out again in logs, until none could.
    void redo_in_logs(int64_t c, double bounded) {
        const double* f = (double*)(log_f + c * degree * n);
        for (int64_t i = 0; i < degree * n * lanes; ++i) flags_[i] = f[i] <= bounded;
        for (bool redone = true; redone;) {
            redone = false;
            vec* matters = scratch;
            for (int64_t q = 0; q < n; ++q) matters[q] = all(0.0);
            // How many workers' cavities a node may matter to; of its own it is taken off below.
            for (int64_t u = 0; u < degree; ++u) {
                const vec floor = cavity_floor(c, u);
                for (int64_t q = 0; q < n; ++q)
                    matters[q] =
                        matters[q] + keep_above(log_cavity(c, u, q), floor, all(1.0));
            }
            for (int64_t u = 0; u < degree; ++u) {
                const char* flag = flags_ + u * n * lanes;
                if (__builtin_memchr(flag, 1, n_nodes) == nullptr) continue;
                const vec own_floor = cavity_floor(c, u);
                bool ready = false;
                for (int64_t q = 0; q < n_nodes; ++q) {
                    if (!flag[q]) continue;
                    const double own = log_cavity(c, u, q / lanes)[q % lanes];
                    if (((double*)matters)[q] - (own > own_floor[0]) < 0.5) continue;
                    if (!ready) take_log_shares(u, c);
                    ready = redone = true;
                    ((double*)(log_f + (c * degree + u) * n))[q] = log_sum(u, q);
                    flags_[u * n * lanes + q] = 0;
                }
            }
            multiply(c);
        }
    }

    vec cavity_floor(int64_t c, int64_t u) const {
        vec highest = all(-infinite);
        for (int64_t q = 0; q < n; ++q) highest = max(highest, log_cavity(c, u, q));
        return all(largest(highest) - negligible_nats);
    }

    // log share_cg = log Σ_k m_u(k) mixing[c, k, g], less half the log of the variance.
    void take_log_shares(int64_t u, int64_t c) {
        for (int64_t g = 0; g < t.g_vectors; ++g) {
            const vec* mixing = t.log_by_level + c * t.K * t.g_vectors + g;
            vec top = all(log_nothing), total = all(0.0);
            for (int64_t k = 0; k < t.K; ++k)
                top = max(top, all(incoming[u * t.K + k]) + mixing[k * t.g_vectors]);
            for (int64_t k = 0; k < t.K; ++k)
                total = total + exp(all(incoming[u * t.K + k]) + mixing[k * t.g_vectors] - top);
            log_share_[g] =
                top + log(total) - all(0.5) * log_variance_[u * t.g_vectors + g];
        }
    }

    // log F_uc(x) = log Σ_g exp(log share_cg - (d²/v + ln v) / 2)
    double log_sum(int64_t u, int64_t q) const {
        const double d = ((double*)(distance + u * n))[q];
        const vec half = all(-0.5 * d * d), *v = (vec*)(variance + u * t.g_vectors * lanes);
        vec top = all(log_nothing), total = all(0.0);
        for (int64_t g = 0; g < t.g_vectors; ++g) top = max(top, log_share_[g] + half / v[g]);
        const vec highest = all(largest(top));
        for (int64_t g = 0; g < t.g_vectors; ++g)
            total = total + exp(log_share_[g] + half / v[g] - highest);
        return highest[0] + log(all(sum(total)))[0];
    }
};

}  // namespace voxpop::VOXPOP_VARIANT
