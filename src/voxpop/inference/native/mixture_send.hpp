// What a row says to its workers about level and bias, and about its class and truth.
#pragma once

#include "mixture_integrand.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Room for the sums of one answer and of a chunk.
struct MixtureSums {
    vec *integral;  // (C, G): ∫ cavity_uc(x) p(c) N_ug(x) dx
    vec *message;   // (K)
    vec *pairs;     // (C, G, K), over the answers of a chunk

    MixtureSums(const MixtureTables& t, Workspace& workspace) {
        const int64_t n_pairs = t.C * t.G * t.k_vectors;
        integral = (vec*)workspace.slot(4, lanes * (t.C * t.g_vectors + t.k_vectors + n_pairs));
        message = integral + t.C * t.g_vectors, pairs = message + t.k_vectors;
    }
};

// Moments of an answer's bias, up to the factor `total`.
struct BiasSums {
    double total, first, second;
};

// M30, M31: the integrals of one answer, and its bias, given x and g a Gaussian, mixed over both.
//
//     b | x, g ~ N(w (a_u - x), w v_g),   w = gamma_u / (v_g + gamma_u)
inline BiasSums integrate_answer(const MixtureRow& r, int64_t u, vec* integral) {
    const MixtureTables& t = r.t;
    const int64_t n = r.n;
    vec *cavity = r.scratch, *pulled = cavity + t.C * n, *twice = pulled + t.C * n;
    const vec* distance = r.distance + u * n;
    const bool is_biased = r.spread[u] > 0.0;
    for (int64_t c = 0; is_biased && c < t.C; ++c)
        for (int64_t q = 0; q < n; ++q) {
            pulled[c * n + q] = cavity[c * n + q] * distance[q];
            twice[c * n + q] = pulled[c * n + q] * distance[q];
        }
    BiasSums sums{0.0, 0.0, 0.0};
    vec by_first = all(0.0), by_second = all(0.0);
    for (int64_t c = 0; c < t.C; ++c) {
        const vec *whole = cavity + c * n, *once = pulled + c * n, *square = twice + c * n;
        const double* share = (double*)(r.share + (u * t.C + c) * t.g_vectors);
        for (int64_t g = 0; g < t.G; ++g) {
            ((double*)(integral + c * t.g_vectors))[g] = 0.0;
            if (!t.is_used(c, g)) continue;
            const NodeRange range = r.range[u * t.G + g];
            const vec* gauss = r.gauss + (u * t.G + g) * n;
            vec total = all(0.0), first = all(0.0), second = all(0.0);
            if (is_biased)
                for (int64_t q = range.first; q < range.last; ++q) {
                    total = fma(gauss[q], whole[q], total);
                    first = fma(gauss[q], once[q], first);
                    second = fma(gauss[q], square[q], second);
                }
            else
                for (int64_t q = range.first; q < range.last; ++q)
                    total = fma(gauss[q], whole[q], total);
            const double found = sum(total);
            ((double*)(integral + c * t.g_vectors))[g] = found;
            sums.total += share[g] * found;
            const double weight =
                r.spread[u] / r.variance[u * t.g_vectors * lanes + g];
            by_first = fma(all(share[g] * weight), first, by_first);
            by_second = fma(all(share[g] * weight * weight), second, by_second);
            sums.second += share[g] * weight * t.variance[g] * found;
        }
    }
    sums.first = sum(by_first), sums.second += sum(by_second);
    return sums;
}

// The message about the level in logs throughout, where no level explains the answer.
//
//     m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] ∫ cavity_uc(x) N_ug(x) dx
inline void send_answer_in_logs(const MixtureRow& r, int64_t u, vec* integral, double* out) {
    const MixtureTables& t = r.t;
    const vec* distance = r.distance + u * r.n;
    for (int64_t c = 0; c < t.C; ++c)
        for (int64_t g = 0; g < t.G; ++g) {
            const double v = r.variance[u * t.g_vectors * lanes + g];
            const vec rate = all(-0.5 / v);
            vec top = all(log_nothing), total = all(0.0);
            for (int64_t q = 0; q < r.n; ++q)
                top = max(top, fma(distance[q] * distance[q], rate, r.log_cavity(c, u, q)));
            const double highest = largest(top);
            for (int64_t q = 0; q < r.n; ++q)
                total = total + exp(fma(distance[q] * distance[q], rate, r.log_cavity(c, u, q)) -
                                    all(highest));
            ((double*)(integral + c * t.g_vectors))[g] =
                highest + __builtin_log(sum(total)) - 0.5 * __builtin_log(v) + r.log_class[c];
        }
    for (int64_t k = 0; k < t.K; ++k) {
        double top = log_nothing, total = 0.0;
        for (int pass = 0; pass < 2; ++pass)
            for (int64_t c = 0; c < t.C; ++c)
                for (int64_t g = 0; g < t.G; ++g) {
                    const double term =
                        ((double*)(integral + c * t.g_vectors))[g] +
                        ((double*)(t.log_by_level + (c * t.K + k) * t.g_vectors))[g];
                    if (pass == 0)
                        top = term > top ? term : top;
                    else
                        total += __builtin_exp(term - top);
                }
        out[k] = top + __builtin_log(total);
    }
}

// m(k) from the integrals, and its log; a level 500 nats below another is out of the question, by
// however much more, but where all are, their differences count.
inline void send_answer(const MixtureRow& r, int64_t u, const MixtureSums& s, double* out) {
    const MixtureTables& t = r.t;
    for (int64_t k = 0; k < t.k_vectors; ++k) s.message[k] = all(0.0);
    for (int64_t c = 0; c < t.C; ++c)
        for (int64_t g = 0; g < t.G; ++g) {
            const vec found = all(((double*)(s.integral + c * t.g_vectors))[g]);
            const vec* mixing = t.by_variance + (c * t.G + g) * t.k_vectors;
            for (int64_t k = 0; k < t.k_vectors; ++k)
                s.message[k] = fma(found, mixing[k], s.message[k]);
        }
    vec highest = all(0.0);
    for (int64_t k = 0; k < t.k_vectors; ++k) highest = max(highest, s.message[k]);
    if (largest(highest) < unsafe_sum) {
        send_answer_in_logs(r, u, s.integral, out);
    } else {
        for (int64_t k = 0; k < t.k_vectors; ++k)
            s.message[k] = log(max(s.message[k], all(unsafe_sum)));
        for (int64_t k = 0; k < t.K; ++k) out[k] = ((double*)s.message)[k];
    }
    double top = out[0];
    for (int64_t k = 1; k < t.K; ++k) top = out[k] > top ? out[k] : top;
    for (int64_t k = 0; k < t.K; ++k) out[k] -= top;
}

// Count the answer at every class, level and variance: m_u(k) I_cg / total, less the mixing.
inline void count_answer(const MixtureRow& r, int64_t u, double total, const MixtureSums& s) {
    const MixtureTables& t = r.t;
    const vec* level = r.level + u * t.k_vectors;
    for (int64_t c = 0; c < t.C; ++c)
        for (int64_t g = 0; g < t.G; ++g) {
            const vec found = all(((double*)(s.integral + c * t.g_vectors))[g] / total);
            vec* pairs = s.pairs + (c * t.G + g) * t.k_vectors;
            for (int64_t k = 0; k < t.k_vectors; ++k) pairs[k] = fma(found, level[k], pairs[k]);
        }
}

// Probability of every class and node, and log evidence for each class.
inline void weigh_classes(const MixtureRow& r, double* mass, double* evidence) {
    const MixtureTables& t = r.t;
    vec highest = all(-infinite);
    for (int64_t i = 0; i < t.C * r.n; ++i) highest = max(highest, r.log_p[i]);
    const vec top = all(largest(highest));
    double whole = 0.0;
    for (int64_t c = 0; c < t.C; ++c) {
        vec total = all(0.0);
        for (int64_t q = 0; q < r.n; ++q) {
            r.scratch[c * r.n + q] = exp(r.log_p[c * r.n + q] - top);
            total = total + r.scratch[c * r.n + q];
        }
        const double found = sum(total);
        // Ten times the smallest number: log of nothing at all would be infinite.
        evidence[c] = __builtin_log(found > 1e-300 ? found : 1e-300);
        whole += found * __builtin_exp(r.log_class[c]);
    }
    whole = whole > 1e-300 ? whole : 1e-300;
    for (int64_t c = 0; c < t.C; ++c) {
        const double factor = __builtin_exp(r.log_class[c]) / whole;
        const double* joint = (double*)(r.scratch + c * r.n);
        double* out = mass + c * r.stride;
        for (int64_t q = 0; q < r.n_nodes; ++q) out[q] = joint[q] * factor;
        for (int64_t q = r.n_nodes; q < r.stride; ++q) out[q] = 0.0;
    }
}

inline void send_row(MixtureRow& r, int64_t row, const MixtureHeard& heard, const MixtureSums& s) {
    const MixtureTables& t = r.t;
    r.open(row);
    for (int64_t u = 0; u < r.degree; ++u) {
        const int64_t at = row * r.degree + u;
        r.cavities(u, r.scratch);
        const BiasSums found = integrate_answer(r, u, s.integral);
        // Where everything underflows, nothing is learned about the bias: it stays as it was.
        const bool lost = found.total < unsafe_sum;
        const double shift = lost ? 0.0 : found.first / found.total;
        const double variance =
            lost ? r.spread[u] : found.second / found.total - shift * shift;
        heard.shift[at] = shift, heard.shift_variance[at] = variance > 0.0 ? variance : 0.0;
        if (!lost) count_answer(r, u, found.total, s);
        send_answer(r, u, s, heard.message + at * t.K);
    }
    weigh_classes(r, heard.mass + row * t.C * r.stride, heard.evidence + row * t.C);
}

inline void send_mixture(
    const MixtureGrid& grid, const MixtureRows& rows, const MixtureHeard& heard,
    int64_t first_chunk, int64_t last_chunk, Workspace& workspace) {
    const MixtureTables t(grid, workspace);
    MixtureRow r(t, rows, workspace);
    const MixtureSums s(t, workspace);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
        for (int64_t i = 0; i < t.C * t.G * t.k_vectors; ++i) s.pairs[i] = all(0.0);
        const int64_t first = chunk * rows_per_chunk, last = first + rows_per_chunk;
        for (int64_t row = first; row < last && row < rows.n_rows; ++row)
            send_row(r, row, heard, s);
        double* out = heard.pairs + chunk * t.C * t.K * t.G;
        for (int64_t c = 0; c < t.C; ++c)
            for (int64_t k = 0; k < t.K; ++k)
                for (int64_t g = 0; g < t.G; ++g)
                    out[(c * t.K + k) * t.G + g] =
                        ((double*)(s.pairs + (c * t.G + g) * t.k_vectors))[k] *
                        grid.mixing[(c * t.K + k) * t.G + g];
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
