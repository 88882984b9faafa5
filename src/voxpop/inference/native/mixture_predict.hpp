// Each answer as predicted by all others of its row.
#pragma once

#include "mixture.hpp"
#include "mixture_integrand.hpp"

namespace voxpop::VOXPOP_VARIANT {

// M32: density of the answer, probability of a lower one, and where the others see x; with that
// and its noise its variance.
//
//     density ∝ Σ_cg share_cg ∫ cavity_uc(x) N_ug(x) dx
//     PIT     ∝ Σ_cg share_cg ∫ cavity_uc(x) Φ((a_u - x) / sqrt(v_g + gamma_u)) dx
inline void predict_answer(
    const MixtureRow& r, int64_t u, int64_t at, const MixturePrediction& p) {
    const MixtureTables& t = r.t;
    const int64_t n = r.n;
    vec *cavity = r.scratch, *mixed = cavity + t.C * n;
    r.cavities(u, cavity);
    vec mass = all(0.0), first = all(0.0), second = all(0.0), density = all(0.0), below = all(0.0);
    double noise = 0.0;
    for (int64_t c = 0; c < t.C; ++c) {
        vec of_class = all(0.0);
        for (int64_t q = 0; q < n; ++q) {
            const vec here = cavity[c * n + q], pulled = here * r.x[q];
            of_class = of_class + here, first = first + pulled;
            second = fma(pulled, r.x[q], second);
        }
        mass = mass + of_class;
        const double* share = (double*)(r.share + (u * t.C + c) * t.g_vectors);
        double spread = 0.0;
        for (int64_t g = 0; g < t.G; ++g)
            spread += share[g] * r.variance[u * t.g_vectors * lanes + g];
        noise += spread * sum(of_class);
    }
    for (int64_t g = 0; g < t.G; ++g) {
        for (int64_t q = 0; q < n; ++q) mixed[q] = all(0.0);
        for (int64_t c = 0; c < t.C; ++c) {
            const vec share = all(((double*)(r.share + (u * t.C + c) * t.g_vectors))[g]);
            for (int64_t q = 0; q < n; ++q) mixed[q] = fma(share, cavity[c * n + q], mixed[q]);
        }
        const NodeRange range = r.range[u * t.G + g];
        const vec* gauss = r.gauss + (u * t.G + g) * n;
        for (int64_t q = range.first; q < range.last; ++q)
            density = fma(mixed[q], gauss[q], density);
        // Φ is 1 below the first node in reach of the answer, and 0 above the last.
        const double sd = __builtin_sqrt(r.variance[u * t.g_vectors * lanes + g]);
        const double *x = (double*)r.x, from = r.centre[u] - 8.5 * sd, to = r.centre[u] + 39.0 * sd;
        int64_t q = 0;
        for (; q < n && x[q * lanes + lanes - 1] < from; ++q) below = below + mixed[q];
        for (; q < n && x[q * lanes] < to; ++q) {
            vec unused;
            below = fma(mixed[q], normal(r.distance[u * n + q] * all(1.0 / sd), unused), below);
        }
    }
    // The workers' shares of the levels are known up to a factor.
    double whole = 0.0;
    for (int64_t k = 0; k < t.K; ++k) whole += ((double*)(r.level + u * t.k_vectors))[k];
    const double per_mass = 1.0 / sum(mass), mean = sum(first) * per_mass;
    const double found = sum(density) * per_mass / whole, log_unsafe = __builtin_log(unsafe_sum);
    const double log_density = __builtin_log(found) - 0.91893853320467274178;
    const double pit = sum(below) * per_mass / whole;
    const double variance = sum(second) * per_mass - mean * mean;
    const double truth_variance = variance > 0.0 ? variance : 0.0;
    p.log_density[at] = log_density > log_unsafe ? log_density : log_unsafe;
    p.pit[at] = pit > 1.0 ? 1.0 : pit;
    p.mean[at] = mean, p.truth_variance[at] = truth_variance;
    p.variance[at] = truth_variance + noise * per_mass / whole;
}

inline void predict_mixture(
    const MixtureGrid& grid, const MixtureRows& rows, const MixturePrediction& prediction,
    int64_t first_chunk, int64_t last_chunk, Workspace& workspace) {
    const MixtureTables t(grid, workspace);
    MixtureRow r(t, rows, workspace);
    const int64_t last = last_chunk * rows_per_chunk;
    for (int64_t row = first_chunk * rows_per_chunk; row < last && row < rows.n_rows; ++row) {
        r.open(row);
        for (int64_t u = 0; u < r.degree; ++u)
            predict_answer(r, u, row * r.degree + u, prediction);
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
