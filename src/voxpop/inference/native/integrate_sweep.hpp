// The messages of a row to its workers about level and bias, and about its class and truth.
#pragma once

#include "integrate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Sums over the rows of a chunk, as in IntegralFound.
struct ChunkCounts {
    vec* pairs;  // (C, G, K), less the mixing
    double *classes, *components, pull, precision;

    ChunkCounts(const Tables& t, Workspace& workspace) : t_(t) {
        const int64_t n_pairs = t.law.C * t.law.G * t.k_vectors;
        pairs = (vec*)workspace.slot(10, lanes * n_pairs + t.law.C + t.law.J);
        classes = (double*)(pairs + n_pairs), components = classes + t.law.C;
    }

    void clear() {
        for (int64_t i = 0; i < t_.law.C * t_.law.G * t_.k_vectors; ++i) pairs[i] = all(0.0);
        for (int64_t i = 0; i < t_.law.C + t_.law.J; ++i) classes[i] = 0.0;
        pull = precision = 0.0;
    }

    void write(double* out) const {
        const Law& law = t_.law;
        for (int64_t c = 0; c < law.C; ++c)
            for (int64_t k = 0; k < law.K; ++k)
                for (int64_t g = 0; g < law.G; ++g)
                    *out++ = ((double*)(pairs + (c * law.G + g) * t_.k_vectors))[k] *
                             law.mixing(c, k, g);
        for (int64_t i = 0; i < law.C + law.J; ++i) *out++ = classes[i];
        out[0] = pull, out[1] = precision;
    }

private:
    const Tables& t_;
};

// Moments of an answer's bias, up to the factor `total`.
struct BiasSums {
    double total, first, second;
};

// M30, M31: the integrals (C, G) of one answer, and its bias, given x and g a Gaussian, mixed over
// both. The cavities (C, n) stand at the beginning of the row's scratch.
//
//     b | x, g ~ N(w (a_u - x), w v_g),   w = gamma_u / (v_g + gamma_u)
inline BiasSums integrate_answer(
    const Integrand& r, int64_t u, const Gaussians& gaussians, double* integral) {
    const Law& law = r.law;
    const int64_t n = r.n;
    vec *cavity = r.scratch, *pulled = cavity + law.C * n, *twice = pulled + law.C * n;
    const double spread = r.spread(u);
    const bool is_biased = spread > 0.0;
    for (int64_t c = 0; is_biased && c < law.C; ++c)
        for (int64_t q = 0; q < n; ++q) {
            const vec distance = all(r.centre(u)) - r.x[q];
            pulled[c * n + q] = cavity[c * n + q] * distance;
            twice[c * n + q] = pulled[c * n + q] * distance;
        }
    BiasSums sums{0.0, 0.0, 0.0};
    vec by_first = all(0.0), by_second = all(0.0);
    for (int64_t c = 0; c < law.C; ++c) {
        const vec *whole = cavity + c * n, *once = pulled + c * n, *square = twice + c * n;
        for (int64_t g = 0; g < law.G; ++g) {
            integral[c * law.G + g] = 0.0;
            if (!r.t.is_used(c, g)) continue;
            const NodeRange range = gaussians.range[g];
            const vec* gauss = gaussians.at + g * n;
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
            const double found = sum(total), share = r.shares(u, c)[g];
            integral[c * law.G + g] = found;
            sums.total += share * found;
            if (!is_biased) continue;
            const double weight = spread / r.variance[u * law.G + g];
            by_first = fma(all(share * weight), first, by_first);
            by_second = fma(all(share * weight * weight), second, by_second);
            sums.second += share * weight * law.given.variance[g] * found;
        }
    }
    sums.first = sum(by_first), sums.second += sum(by_second);
    return sums;
}

// The message about the level in logs throughout, where levels do not explain the answer.
//
//     m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] ∫ cavity_uc(x) N_ug(x) dx
inline void send_answer_in_logs(const Integrand& r, int64_t u, double* integral, double* out) {
    const Law& law = r.law;
    for (int64_t c = 0; c < law.C; ++c)
        for (int64_t g = 0; g < law.G; ++g) {
            const double v = r.variance[u * law.G + g];
            const vec rate = all(-0.5 / v);
            vec top = all(log_nothing), total = all(0.0);
            for (int pass = 0; pass < 2; ++pass) {
                const vec highest = all(largest(top));
                for (int64_t q = 0; q < r.n; ++q) {
                    const vec d = all(r.centre(u)) - r.x[q];
                    const vec term = fma(d * d, rate, r.log_cavity(c, u, q));
                    if (pass == 0)
                        top = max(top, term);
                    else
                        total = total + exp(term - highest);
                }
            }
            integral[c * law.G + g] = largest(top) + __builtin_log(sum(total)) -
                                      0.5 * __builtin_log(v) + r.log_class(c);
        }
    for (int64_t k = 0; k < law.K; ++k) {
        double top = log_nothing, total = 0.0;
        for (int pass = 0; pass < 2; ++pass)
            for (int64_t c = 0; c < law.C; ++c)
                for (int64_t g = 0; g < law.G; ++g) {
                    const double term =
                        integral[c * law.G + g] +
                        ((double*)(r.t.log_by_level + (c * law.K + k) * r.t.g_vectors))[g];
                    if (pass == 0)
                        top = term > top ? term : top;
                    else
                        total += __builtin_exp(term - top);
                }
        out[k] = top + __builtin_log(total);
    }
}

// Log m(k) from the integrals. Where all levels underflow, or any does whose message counts down to
// `floor`, they are computed again in logs.
inline void send_answer(
    const Integrand& r, int64_t u, double* integral, double floor, vec* message, double* out) {
    const Tables& t = r.t;
    const Law& law = r.law;
    for (int64_t k = 0; k < t.k_vectors; ++k) message[k] = all(0.0);
    for (int64_t c = 0; c < law.C; ++c)
        for (int64_t g = 0; g < law.G; ++g) {
            const vec found = all(integral[c * law.G + g]);
            const vec* mixing = t.by_variance + (c * law.G + g) * t.k_vectors;
            for (int64_t k = 0; k < t.k_vectors; ++k)
                message[k] = fma(found, mixing[k], message[k]);
        }
    double highest = 0.0, lowest = infinite;
    for (int64_t k = 0; k < law.K; ++k) {
        const double mine = ((double*)message)[k];
        highest = mine > highest ? mine : highest, lowest = mine < lowest ? mine : lowest;
    }
    if (highest < unsafe_sum || (lowest < unsafe_sum && floor < __builtin_log(unsafe_sum))) {
        send_answer_in_logs(r, u, integral, out);
        return;
    }
    for (int64_t k = 0; k < t.k_vectors; ++k) message[k] = log(max(message[k], all(unsafe_sum)));
    for (int64_t k = 0; k < law.K; ++k) out[k] = ((double*)message)[k];
}

// Count the answer at every class, level and variance: m_u(k) I_cg / total, less the mixing.
inline void count_answer(
    const Integrand& r, int64_t u, double total, const double* integral, vec* pairs) {
    const vec* level = r.level + u * r.t.k_vectors;
    for (int64_t i = 0; i < r.law.C * r.law.G; ++i)
        for (int64_t k = 0; k < r.t.k_vectors; ++k)
            pairs[i * r.t.k_vectors + k] =
                fma(all(integral[i] / total), level[k], pairs[i * r.t.k_vectors + k]);
}

// M31: divide the belief about the bias with the answer, its mean moved by `shift`, by the belief
// without it, of mean `old` and variance `before`.
inline void put_bias(
    double before, double old, double shift, double variance, double damping,
    double& edge_precision, double& edge_pull) {
    variance = variance < 1e-12 * before ? 1e-12 * before : variance;
    variance = variance > before ? before : variance;
    double precision = 1.0 / variance - 1.0 / before;
    precision = precision > 1e-9 / before ? precision : 1e-9 / before;
    const double pull = (old + shift) * (precision + 1.0 / before) - old / before;
    edge_precision = damping * edge_precision + (1.0 - damping) * precision;
    edge_pull = damping * edge_pull + (1.0 - damping) * pull;
}

inline void send_bias(
    const Integrand& r, int64_t u, const BiasSums& found, double value, double damping,
    double& edge_precision, double& edge_pull) {
    // Where everything underflows, nothing is learned about the bias: it stays as it was.
    const bool lost = found.total < unsafe_sum;
    const double before = r.spread(u), shift = lost ? 0.0 : found.first / found.total;
    const double variance = lost ? before : found.second / found.total - shift * shift;
    put_bias(before, value - r.centre(u), shift, variance, damping, edge_precision, edge_pull);
}

// Log evidence for each class; where sums are wanted also the row's classes and prior components.
inline void weigh_classes(const Integrand& r, double* evidence, ChunkCounts* counts) {
    const Law& law = r.law;
    vec highest = all(-infinite);
    for (int64_t i = 0; i < law.C * r.n; ++i) highest = max(highest, r.log_p[i]);
    const vec top = all(largest(highest));
    vec *joint = r.scratch, *mass = joint + law.C * r.n;
    double whole = 0.0;
    for (int64_t c = 0; c < law.C; ++c) {
        vec total = all(0.0);
        for (int64_t q = 0; q < r.n; ++q) {
            joint[c * r.n + q] = exp(r.log_p[c * r.n + q] - top);
            total = total + joint[c * r.n + q];
        }
        const double found = sum(total);
        // The log of zero would be infinite.
        evidence[c] = __builtin_log(found > 1e-300 ? found : 1e-300);
        whole += found * __builtin_exp(r.log_class(c));
    }
    if (counts == nullptr) return;
    whole = whole > 1e-300 ? whole : 1e-300;
    for (int64_t q = 0; q < r.n; ++q) mass[q] = all(0.0);
    for (int64_t c = 0; c < law.C; ++c) {
        const vec factor = all(__builtin_exp(r.log_class(c)) / whole);
        vec total = all(0.0);
        for (int64_t q = 0; q < r.n; ++q) {
            total = fma(factor, joint[c * r.n + q], total);
            mass[q] = fma(factor, joint[c * r.n + q], mass[q]);
        }
        counts->classes[c] += sum(total);
    }
    const RowFunctions row{r.f, r.lane()};
    for (int64_t j = 0; j < law.J; ++j) {
        const double rate = row.rate(r.degree, j), height = row.height(0, r.degree, j);
        vec total = all(0.0), pull = all(0.0);
        for (int64_t q = 0; q < r.n; ++q) {
            const vec away = r.x[q] - all(row.centre(r.degree));
            const vec log_share =
                fma(away * away, all(-rate), all(height)) - r.log_prior[q] * all(log2_e);
            const vec part = mass[q] * exp2(log_share);
            total = total + part, pull = fma(part, away, pull);
        }
        counts->components[j] += sum(total);
        counts->pull += sum(pull) / law.given.prior_variance[j];
        counts->precision += sum(total) / law.given.prior_variance[j];
    }
}

static double integrate(
    const IntegralLaw& given, const IntegralRows& rows, const Messages& m,
    const IntegralFound& found, int64_t first_chunk, int64_t last_chunk, int64_t* new_sums,
    Workspace& workspace) {
    const Law law(given);
    const int64_t K = law.K, degree = rows.degree, n_messages = degree * K;
    const Tables t(law, workspace);
    Functions f(law, degree, workspace);
    Integrand r(t, f, workspace);
    ChunkCounts counts(t, workspace);
    vec* out = (vec*)workspace.slot(
        7, lanes * (2 * n_messages + 2 * K + t.k_vectors) + law.C * law.G + K);
    vec *scratch = out + n_messages, *message = scratch + 2 * K;
    ivec* old = (ivec*)(message + t.k_vectors);
    double *integral = (double*)(old + n_messages), *mine = integral + law.C * law.G;
    Change change;
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
        counts.clear();
        for_blocks(rows, m, f, chunk, chunk + 1, 1.0, old, workspace,
                   [&](const Block& block, const Nodes& nodes) {
            for (int lane = 0; lane < block.n_rows; ++lane) {
                const int64_t row = block.row[lane];
                r.open(lane, nodes);
                for (int64_t u = 0; u < degree; ++u) {
                    r.cavities(u, r.scratch);
                    const BiasSums sums = integrate_answer(r, u, r.gaussians(u), integral);
                    if (found.counts != nullptr && sums.total >= unsafe_sum)
                        count_answer(r, u, sums.total, integral, counts.pairs);
                    if (rows.bias != nullptr)
                        send_bias(r, u, sums, rows.value[row * degree + u], given.bias_damping,
                                  rows.edge_precision[row * degree + u],
                                  rows.edge_pull[row * degree + u]);
                    send_answer(r, u, integral, m.floor, message, mine);
                    for (int64_t k = 0; k < K; ++k) out[u * K + k][lane] = mine[k];
                }
                weigh_classes(r, found.evidence + row * law.C,
                              found.counts == nullptr ? nullptr : &counts);
            }
            // A repeated row: its messages are dropped, but must be valid numbers.
            for (int lane = block.n_rows; lane < lanes; ++lane)
                for (int64_t j = 0; j < n_messages; ++j) out[j][lane] = out[j][lane - 1];
            send<0>(m, block, old, out, new_sums, change, scratch);
        });
        if (found.counts != nullptr) counts.write(found.counts + chunk * n_counts(given));
    }
    return change.largest;
}

}  // namespace voxpop::VOXPOP_VARIANT
