// The answers of a row and the prior of its truth as functions of the truth; see kernels/nodes.py.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Terms below 2^this of the largest one are left out of a sum; thousands of them do not show.
constexpr double negligible = -64.0;
// Shares below this may have lost terms to underflow; their largest term then stands for them.
constexpr double unsafe_share = 1e-290;
constexpr double infinite = __builtin_huge_val();

// What is integrated on the nodes, and so where they have to be; see nodes.py.
enum class Aim { messages, predictions, posterior };

inline int64_t vectors(int64_t n) { return (n + lanes - 1) / lanes; }

// What the integrals of a group have in common, as the loops read it.
struct Law {
    int64_t C, K, G, J;
    const IntegralLaw& given;
    double accuracy, spare;  // what weighs nothing, and minus its log2
    double alpha;            // step in units of a sd (M14)

    explicit Law(const IntegralLaw& g)
        : C(g.n_classes), K(g.n_levels), G(g.n_variances), J(g.n_prior), given(g),
          accuracy(g.accuracy), spare(-log2_e * __builtin_log(g.accuracy)),
          alpha(3.14159265358979323846 * __builtin_sqrt(2.0 / __builtin_log(2.0 / g.accuracy))) {}

    double mixing(int64_t c, int64_t k, int64_t g) const {
        return given.mixing[(c * K + k) * G + g];
    }
};

// The functions of a block of rows, one row per lane: first the answers', then the prior's.
//
//     F_u(x) = Σ_g 2^(height_g - rate_g (x - centre_u)²)                                  (M12)
struct Functions {
    const Law& law;
    int64_t degree, L, M;  // answers; functions; room for the components of one
    Aim aim;
    double depth = infinite;  // how far below the largest a log message still counts, in nats
    vec *centre;           // (L)
    vec *variance, *rate;  // (L, M): v_g + gamma_u; (log2 e) / (2 variance)
    vec *half_log;         // (L, M): log2 of the sd
    vec *share, *height;   // (C, L, M): of the variances; log2 of share / sqrt(variance)
    vec *spread;           // (degree): gamma_u
    vec *incoming, *level; // (degree, K): log messages of the workers, in nats, and linear
    vec *log_class;        // (C), in nats

    Functions(const Law& law, int64_t degree, Workspace& workspace, Aim aim = Aim::messages)
        : law(law), degree(degree), L(degree + (law.J > 0)), M(law.G > law.J ? law.G : law.J),
          aim(aim) {
        const int64_t n = L * M;
        const int64_t n_incoming = 2 * degree * law.K;
        vec* next =
            (vec*)workspace.slot(3, lanes * (L + degree + n_incoming + (3 + 2 * law.C) * n + law.C));
        auto take = [&next](int64_t size) { return (next += size) - size; };
        centre = take(L), spread = take(degree), variance = take(n), rate = take(n);
        half_log = take(n);
        share = take(law.C * n), height = take(law.C * n), log_class = take(law.C);
        incoming = take(degree * law.K), level = take(degree * law.K);
    }

    int64_t size(int64_t u) const { return u < degree ? law.G : law.J; }

    // Take up the answers of a block, whose workers' messages are in `incoming`.
    void open(const IntegralRows& rows, const Messages& m, const Block& block) {
        depth = -m.floor;
        gather(rows.value, degree, block, (double*)centre);
        gather(rows.log_class, law.C, block, (double*)log_class);
        for (int64_t u = 0; u < degree; ++u) spread[u] = all(0.0);
        if (rows.bias != nullptr) take_bias(rows, m, block);
        for (int64_t u = 0; u < degree; ++u) open_answer(u);
        if (law.J > 0) {
            gather(rows.prior_mean, 1, block, (double*)(centre + degree));
            for (int64_t j = 0; j < law.J; ++j) {
                set_variance(degree, j, all(law.given.prior_variance[j]));
                for (int64_t c = 0; c < law.C; ++c)
                    set_share(c, degree, j, all(law.given.prior_weight[j]));
            }
        }
    }

    // Highest of a component over the classes.
    vec highest(int64_t u, int64_t g) const {
        vec found = height[u * M + g];
        for (int64_t c = 1; c < law.C; ++c) found = max(found, height[(c * L + u) * M + g]);
        return found;
    }

private:
    // M31: the cavity belief about a bias, and the answer less its mean.
    void take_bias(const IntegralRows& rows, const Messages& m, const Block& block) {
        for (int lane = 0; lane < lanes; ++lane) {
            const int64_t first = block.row[lane] * degree;
            for (int64_t u = 0; u < degree; ++u) {
                const int32_t worker = m.worker[first + u];
                const double precision =
                    rows.bias_precision[worker] - rows.edge_precision[first + u];
                const double pull = rows.bias[worker] * rows.bias_precision[worker] -
                                    rows.edge_pull[first + u];
                const double variance = 1.0 / (precision > 1e-300 ? precision : 1e-300);
                spread[u][lane] = variance;
                centre[u][lane] -= pull * variance;
            }
        }
    }

    void set_variance(int64_t u, int64_t g, vec v) {
        variance[u * M + g] = v, rate[u * M + g] = all(0.5 * log2_e) / v;
        half_log[u * M + g] = all(0.5) * log2(v);
    }

    void set_share(int64_t c, int64_t u, int64_t g, vec found) {
        const int64_t at = (c * L + u) * M + g;
        share[at] = found;
        vec log_share = log2(max(found, all(unsafe_share)));
        if (any_above(all(unsafe_share), found))
            log_share = where_above(
                found, all(unsafe_share), log_share,
                u < degree ? largest_term(c, u, g) : all(log_nothing));
        height[at] = log_share - half_log[u * M + g];
    }

    // log2 of the largest term of a share.
    vec largest_term(int64_t c, int64_t u, int64_t g) const {
        vec found = all(log_nothing);
        for (int64_t k = 0; k < law.K; ++k)
            if (law.mixing(c, k, g) > 0.0)
                found = max(found, fma(incoming[u * law.K + k], all(log2_e),
                                       all(log2_e * __builtin_log(law.mixing(c, k, g)))));
        return found;
    }

    // Shares of the variances in an answer: share_cg = Σ_k m_u(k) mixing[c, k, g].
    void open_answer(int64_t u) {
        vec* mine = level + u * law.K;
        for (int64_t k = 0; k < law.K; ++k) mine[k] = exp(incoming[u * law.K + k]);
        for (int64_t g = 0; g < law.G; ++g) {
            set_variance(u, g, all(law.given.variance[g]) + spread[u]);
            for (int64_t c = 0; c < law.C; ++c) {
                vec total = all(0.0);
                for (int64_t k = 0; k < law.K; ++k)
                    total = fma(mine[k], all(law.mixing(c, k, g)), total);
                set_share(c, u, g, total);
            }
        }
    }
};

// The functions of one row of a block; lanes are points.
struct RowFunctions {
    const Functions& f;
    int lane;

    double at(const vec* numbers, int64_t i) const { return ((const double*)(numbers + i))[lane]; }
    double centre(int64_t u) const { return at(f.centre, u); }
    double rate(int64_t u, int64_t g) const { return at(f.rate, u * f.M + g); }
    double height(int64_t c, int64_t u, int64_t g) const {
        return at(f.height, (c * f.L + u) * f.M + g);
    }

    // M12: log2 of a function at some squared distances from its centre, and the mean precision of
    // its components there.
    vec log_function(int64_t c, int64_t u, vec squared, vec& precision) const {
        const int64_t n = f.size(u);
        vec top = all(log_nothing), total = all(0.0), sum = all(0.0);
        for (int64_t g = 0; g < n; ++g)
            top = max(top, fma(squared, all(-rate(u, g)), all(height(c, u, g))));
        for (int64_t g = 0; g < n; ++g) {
            const vec exponent = fma(squared, all(-rate(u, g)), all(height(c, u, g))) - top;
            if (!any_above(exponent, all(negligible))) continue;
            const vec term = exp2(exponent);
            total = total + term, sum = fma(term, all(rate(u, g)), sum);
        }
        precision = all(2.0 * ln_2) * sum / total;
        return top + log2(total);
    }
};

}  // namespace voxpop::VOXPOP_VARIANT
