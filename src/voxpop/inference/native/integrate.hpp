// The functions of x that every sum over the nodes of one row is made of; lanes are nodes.
//
// With v_g the variances, gamma_u the spread of an answer, and the mixing of class c (M29):
//
//     N_ug(x) = N(a_u | x, v_g + gamma_u),  F_uc(x) = Σ_kg m_u(k) mixing[c, k, g] N_ug(x)
//     P_c(x) = prior(x) Π_u F_uc(x),        cavity_uc(x) = P_c(x) / F_uc(x)
#pragma once

#include "nodes.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Linear sums below this may have lost terms to underflow and are done again in logs.
constexpr double unsafe_sum = 1e-250;
// Gaussians of a row are kept between the two passes over its answers up to this many vectors, which
// a processor's cache holds; beyond it they are computed twice.
constexpr int64_t most_kept = (int64_t)1 << 17;

// The mixing as the loops read it, padded to whole vectors.
struct Tables {
    const Law& law;
    int64_t k_vectors, g_vectors;
    vec *by_variance, *log_by_level;  // (C, G, K), (C, K, G)

    Tables(const Law& law, Workspace& workspace)
        : law(law), k_vectors(vectors(law.K)), g_vectors(vectors(law.G)) {
        const int64_t n_level = law.C * law.K * g_vectors, n_variance = law.C * law.G * k_vectors;
        by_variance = (vec*)workspace.slot(0, lanes * (n_level + n_variance) + law.C * law.G);
        log_by_level = by_variance + n_variance;
        used_ = (double*)(log_by_level + n_level);
        for (int64_t i = 0; i < law.C * law.G; ++i) used_[i] = 0.0;
        for (int64_t i = 0; i < n_level; ++i) log_by_level[i] = all(log_nothing);
        for (int64_t i = 0; i < n_variance; ++i) by_variance[i] = all(0.0);
        for (int64_t c = 0; c < law.C; ++c)
            for (int64_t k = 0; k < law.K; ++k)
                for (int64_t g = 0; g < law.G; ++g) {
                    const double share = law.mixing(c, k, g);
                    used_[c * law.G + g] += share;
                    ((double*)(by_variance + (c * law.G + g) * k_vectors))[k] = share;
                    if (share > 0.0)
                        ((double*)(log_by_level + (c * law.K + k) * g_vectors))[g] =
                            __builtin_log(share);
                }
    }

    // Whether any level of a class takes a variance.
    bool is_used(int64_t c, int64_t g) const { return used_[c * law.G + g] > 0.0; }

private:
    double* used_;
};

// Nodes from `first` to before `last`, in vectors.
struct NodeRange {
    int64_t first, last;
};

// The Gaussians of one answer at all nodes (G, n); a node out of range has none.
struct Gaussians {
    vec* at;
    NodeRange* range;  // (G)
};

// One row: its numbers, and its functions at all nodes.
class Integrand {
public:
    const Tables& t;
    const Law& law;
    const Functions& f;
    const int64_t degree;
    int64_t n_nodes = 0, n = 0;  // nodes, and vectors of them
    vec *x, *weight, *log_prior;
    vec *level;                  // (degree, K)
    double *share, *variance;    // (degree, C, G), (degree, G)
    vec *log_f, *log_p;          // (C, degree, n), (C, n)
    vec* scratch;                // (3, C, n)

    Integrand(const Tables& tables, const Functions& functions, Workspace& workspace)
        : t(tables), law(tables.law), f(functions), degree(functions.degree),
          workspace_(workspace) {}

    // Take up one row of a block and compute all of its functions.
    void open(int lane, const Nodes& nodes) {
        row_ = lane;
        n_nodes = nodes.n[lane], n = vectors(n_nodes);
        carve();
        for (int64_t q = 0; q < n * lanes; ++q) {
            const int64_t from = q < n_nodes ? q : n_nodes - 1;
            ((double*)x)[q] = nodes.x[from][lane];
            ((double*)weight)[q] = q < n_nodes ? nodes.weight[from][lane] : 0.0;
        }
        for (int64_t q = 0; q < n; ++q) log_prior[q] = all(0.0);
        if (law.J > 0)
            for (int64_t q = 0; q < n; ++q) log_prior[q] = log_of_prior(x[q]);
        for (int64_t u = 0; u < degree; ++u) {
            take_answer(u);
            add_answer(u);
        }
        for (int64_t q = 0; q < n; ++q) {
            // Past the end nodes weigh nothing.
            const vec start = where_above(
                weight[q], all(0.0), log(max(weight[q], all(1e-300))), all(-infinite));
            for (int64_t c = 0; c < law.C; ++c) {
                vec total = all(0.0);
                for (int64_t u = 0; u < degree; ++u)
                    total = total + log_f[(c * degree + u) * n + q];
                log_p[c * n + q] = start + log_prior[q] + total;
            }
        }
    }

    int lane() const { return row_; }
    double centre(int64_t u) const { return pick(f.centre, u); }
    double spread(int64_t u) const { return pick(f.spread, u); }
    double incoming(int64_t u, int64_t k) const { return pick(f.incoming, u * law.K + k); }
    double log_class(int64_t c) const { return pick(f.log_class, c); }
    const double* shares(int64_t u, int64_t c) const { return share + (u * law.C + c) * law.G; }

    vec log_cavity(int64_t c, int64_t u, int64_t q) const {
        return log_p[c * n + q] - log_f[(c * degree + u) * n + q];
    }

    // The cavity distributions of x without answer u, by class: cavity_uc(x) p(c), the largest 1.
    void cavities(int64_t u, vec* linear) const {
        double top = -infinite;
        for (int64_t c = 0; c < law.C; ++c) {
            vec highest = all(-infinite);
            for (int64_t q = 0; q < n; ++q) highest = max(highest, log_cavity(c, u, q));
            const double found = largest(highest) + log_class(c);
            top = found > top ? found : top;
        }
        for (int64_t c = 0; c < law.C; ++c)
            for (int64_t q = 0; q < n; ++q)
                linear[c * n + q] = exp(log_cavity(c, u, q) + all(log_class(c) - top));
    }

    // The Gaussians of an answer, kept or computed again.
    Gaussians gaussians(int64_t u) {
        Gaussians found = room(u);
        if (!is_kept_) evaluate(u, found);
        return found;
    }

private:
    Workspace& workspace_;
    int row_ = 0;
    bool is_kept_ = true;
    vec *gauss_, *log_share_, *squared_;
    NodeRange* range_;

    double pick(const vec* numbers, int64_t i) const { return ((const double*)(numbers + i))[row_]; }

    void carve() {
        const int64_t l = degree, C = law.C, G = law.G;
        is_kept_ = l * G * n <= most_kept;
        const int64_t kept = is_kept_ ? l : 1;
        const int64_t small = l * t.k_vectors + vectors(l * C * G) + vectors(l * G) + t.g_vectors +
                              vectors(2 * kept * G);
        vec* next = (vec*)workspace_.slot(8, lanes * (small + n * (4 + C * l + 4 * C)));
        auto take = [&next](int64_t size) { return (next += size) - size; };
        level = take(l * t.k_vectors), share = (double*)take(vectors(l * C * G));
        variance = (double*)take(vectors(l * G)), log_share_ = take(t.g_vectors);
        range_ = (NodeRange*)take(vectors(2 * kept * G));
        x = take(n), weight = take(n), log_prior = take(n), squared_ = take(n);
        log_f = take(C * l * n), log_p = take(C * n), scratch = take(3 * C * n);
        gauss_ = (vec*)workspace_.slot(9, lanes * kept * G * n);
    }

    Gaussians room(int64_t u) const {
        const int64_t at = is_kept_ ? u * law.G : 0;
        return Gaussians{gauss_ + at * n, range_ + at};
    }

    vec log_of_prior(vec at) const {
        const RowFunctions row{f, row_};
        const vec away = at - all(row.centre(degree));
        vec top = all(log_nothing), total = all(0.0);
        for (int64_t j = 0; j < law.J; ++j)
            top = max(top, fma(away * away, all(-row.rate(degree, j)), all(row.height(0, degree, j))));
        for (int64_t j = 0; j < law.J; ++j)
            total = total + exp2(fma(away * away, all(-row.rate(degree, j)),
                                     all(row.height(0, degree, j))) - top);
        return (top + log2(total)) * all(ln_2);
    }

    void take_answer(int64_t u) {
        for (int64_t k = 0; k < t.k_vectors * lanes; ++k)
            ((double*)(level + u * t.k_vectors))[k] =
                k < law.K ? pick(f.level, u * law.K + k) : 0.0;
        for (int64_t g = 0; g < law.G; ++g) {
            variance[u * law.G + g] = pick(f.variance, u * f.M + g);
            for (int64_t c = 0; c < law.C; ++c)
                share[(u * law.C + c) * law.G + g] = pick(f.share, (c * f.L + u) * f.M + g);
        }
    }

    // N_ug(x) = 2^(-(log2 e)/2 (d²/v + ln v)) where that is not 0.
    void evaluate(int64_t u, const Gaussians& out) {
        const RowFunctions row{f, row_};
        for (int64_t q = 0; q < n; ++q) {
            const vec d = all(centre(u)) - x[q];
            squared_[q] = d * d;
        }
        const vec ends = max(squared_[0], squared_[n - 1]);
        const double furthest = largest(ends);
        NodeRange near{0, n};
        for (int64_t g = 0; g < law.G; ++g) {
            const double rate = row.rate(u, g), height = -pick(f.half_log, u * f.M + g);
            const double room = height - lowest_power;
            near = furthest * rate < room
                       ? NodeRange{0, n}
                       : within(near, centre(u), room > 0.0 ? __builtin_sqrt(room / rate) : 0.0);
            out.range[g] = near;
            vec* at = out.at + g * n;
            for (int64_t q = near.first; q < near.last; ++q)
                at[q] = exp2(fma(squared_[q], all(-rate), all(height)));
        }
    }

    // log F_uc(x) for all classes; in logs throughout where F would underflow.
    void add_answer(int64_t u) {
        const Gaussians mine = room(u);
        evaluate(u, mine);
        for (int64_t c = 0; c < law.C; ++c) {
            vec* out = log_f + (c * degree + u) * n;
            for (int64_t q = 0; q < n; ++q) out[q] = all(0.0);
            for (int64_t g = 0; g < law.G; ++g) {
                if (!t.is_used(c, g)) continue;
                const vec part = all(shares(u, c)[g]), *at = mine.at + g * n;
                for (int64_t q = mine.range[g].first; q < mine.range[g].last; ++q)
                    out[q] = fma(part, at[q], out[q]);
            }
            bool ready = false;
            for (int64_t q = 0; q < n; ++q) {
                const vec sums = out[q];
                out[q] = log(max(sums, all(unsafe_sum)));
                if (!any_above(all(unsafe_sum), sums)) continue;
                if (!ready) take_log_shares(u, c), ready = true;
                out[q] = where_above(all(unsafe_sum), sums, log_sum(u, x[q]), out[q]);
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

    // log share_cg = log Σ_k m_u(k) mixing[c, k, g], less half the log of the variance.
    void take_log_shares(int64_t u, int64_t c) {
        for (int64_t g = 0; g < t.g_vectors; ++g) {
            const vec* mixing = t.log_by_level + c * law.K * t.g_vectors + g;
            vec top = all(log_nothing), total = all(0.0), log_variance = all(0.0);
            for (int lane = 0; lane < lanes && g * lanes + lane < law.G; ++lane)
                log_variance[lane] = __builtin_log(variance[u * law.G + g * lanes + lane]);
            for (int64_t k = 0; k < law.K; ++k)
                top = max(top, all(incoming(u, k)) + mixing[k * t.g_vectors]);
            for (int64_t k = 0; k < law.K; ++k)
                total = total + exp(all(incoming(u, k)) + mixing[k * t.g_vectors] - top);
            log_share_[g] = top + log(total) - all(0.5) * log_variance;
        }
    }

    // log F_uc(x) = log Σ_g exp(log share_cg - (d²/v + ln v) / 2)
    vec log_sum(int64_t u, vec at) const {
        const vec d = all(centre(u)) - at, half = all(-0.5) * d * d;
        const double *part = (double*)log_share_, *v = variance + u * law.G;
        vec top = all(log_nothing), total = all(0.0);
        for (int64_t g = 0; g < law.G; ++g)
            top = max(top, fma(half, all(1.0 / v[g]), all(part[g])));
        for (int64_t g = 0; g < law.G; ++g)
            total = total + exp(fma(half, all(1.0 / v[g]), all(part[g])) - top);
        return top + log(total);
    }
};

// Nodes of a block of rows; of rows whose truth is known, the truth alone.
inline Nodes nodes_of(
    const Functions& f, const IntegralRows& rows, const Block& block, double refinement,
    Workspace& workspace) {
    if (rows.known[block.row[0]] != rows.known[block.row[0]])
        return place_nodes(f, rows, block, refinement, workspace);
    Nodes nodes{(vec*)workspace.slot(1, lanes), (vec*)workspace.slot(2, lanes), {}};
    gather(rows.known, 1, block, (double*)nodes.x);
    nodes.weight[0] = all(1.0);
    for (int lane = 0; lane < lanes; ++lane) nodes.n[lane] = 1;
    return nodes;
}

// Call visit(block, nodes) for every block of some chunks of rows, with `f` the functions of its rows;
// `old` has room for the messages of a block.
template <typename F>
inline void for_blocks(
    const IntegralRows& rows, const Messages& m, Functions& f, int64_t first_chunk,
    int64_t last_chunk, double refinement, ivec* old, Workspace& workspace, F visit) {
    const int64_t per_chunk = rows_per_chunk / lanes;
    for (int64_t number = first_chunk * per_chunk; number < last_chunk * per_chunk; ++number) {
        if (number * lanes >= rows.n_rows) break;
        const Block block(number, rows.n_rows);
        receive<0>(m, block, old, f.incoming);
        f.open(rows, m, block);
        visit(block, nodes_of(f, rows, block, refinement, workspace));
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
