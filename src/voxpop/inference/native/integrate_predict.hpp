// Each answer as predicted by all others of its row.
#pragma once

#include "integrate.hpp"
#include "mixture.hpp"

namespace voxpop::VOXPOP_VARIANT {

// M32: density of the answer, probability of a lower one, moments of x given the others, and from
// these and the noise the variance of the answer.
//
//     density ∝ Σ_cg share_cg ∫ cavity_uc(x) N_ug(x) dx
//     PIT     ∝ Σ_cg share_cg ∫ cavity_uc(x) Φ((a_u - x) / sqrt(v_g + gamma_u)) dx
inline void predict_answer(Integrand& r, int64_t u, double value, int64_t at, const LeftOut& out) {
    const Law& law = r.law;
    const int64_t n = r.n;
    vec *cavity = r.scratch, *mixed = cavity + law.C * n;
    r.cavities(u, cavity);
    const Gaussians gaussians = r.gaussians(u);
    vec mass = all(0.0), first = all(0.0), second = all(0.0), density = all(0.0), below = all(0.0);
    double noise = 0.0;
    for (int64_t c = 0; c < law.C; ++c) {
        vec of_class = all(0.0);
        for (int64_t q = 0; q < n; ++q) {
            const vec here = cavity[c * n + q], pulled = here * r.x[q];
            of_class = of_class + here, first = first + pulled;
            second = fma(pulled, r.x[q], second);
        }
        mass = mass + of_class;
        double spread = 0.0;
        for (int64_t g = 0; g < law.G; ++g)
            spread += r.shares(u, c)[g] * r.variance[u * law.G + g];
        noise += spread * sum(of_class);
    }
    for (int64_t g = 0; g < law.G; ++g) {
        for (int64_t q = 0; q < n; ++q) mixed[q] = all(0.0);
        for (int64_t c = 0; c < law.C; ++c) {
            const vec share = all(r.shares(u, c)[g]);
            for (int64_t q = 0; q < n; ++q) mixed[q] = fma(share, cavity[c * n + q], mixed[q]);
        }
        const NodeRange range = gaussians.range[g];
        for (int64_t q = range.first; q < range.last; ++q)
            density = fma(mixed[q], gaussians.at[g * n + q], density);
        if (out.pit == nullptr) continue;
        // Φ is 1 below the first node in reach of the answer, and 0 above the last.
        const double sd = __builtin_sqrt(r.variance[u * law.G + g]), centre = r.centre(u);
        const double *x = (double*)r.x, from = centre - 8.5 * sd, to = centre + 39.0 * sd;
        int64_t q = 0;
        for (; q < n && x[q * lanes + lanes - 1] < from; ++q) below = below + mixed[q];
        for (; q < n && x[q * lanes] < to; ++q) {
            vec unused;
            const vec z = (all(centre) - r.x[q]) * all(1.0 / sd);
            below = fma(mixed[q], normal(z, unused), below);
        }
    }
    // The workers' shares of the levels are known up to a factor.
    double whole = 0.0;
    for (int64_t k = 0; k < law.K; ++k) whole += ((double*)(r.level + u * r.t.k_vectors))[k];
    const double per_mass = 1.0 / sum(mass), mean = sum(first) * per_mass;
    const double found = sum(density) * per_mass / whole, log_unsafe = __builtin_log(unsafe_sum);
    const double log_density = __builtin_log(found) - 0.91893853320467274178;
    const double pit = sum(below) * per_mass / whole;
    const double variance = sum(second) * per_mass - mean * mean;
    const double truth_variance = variance > 0.0 ? variance : 0.0;
    out.log_density[at] = log_density > log_unsafe ? log_density : log_unsafe;
    if (out.pit != nullptr) out.pit[at] = pit > 1.0 ? 1.0 : pit;
    out.mean[at] = mean, out.truth_variance[at] = truth_variance;
    out.bias[at] = value - r.centre(u);
    out.variance[at] = truth_variance + noise * per_mass / whole;
}

static void integrate_predict(
    const IntegralLaw& given, const IntegralRows& rows, const Messages& m, const LeftOut& out,
    int64_t first_chunk, int64_t last_chunk, Workspace& workspace) {
    const Law law(given);
    const Tables t(law, workspace);
    Functions f(law, rows.degree, workspace, Aim::predictions);
    Integrand r(t, f, workspace);
    ivec* old = (ivec*)workspace.slot(7, lanes * rows.degree * law.K);
    for_blocks(rows, m, f, first_chunk, last_chunk, 1.0, old, workspace,
               [&](const Block& block, const Nodes& nodes) {
        for (int lane = 0; lane < block.n_rows; ++lane) {
            r.open(lane, nodes);
            for (int64_t u = 0; u < r.degree; ++u) {
                const int64_t at = block.row[lane] * r.degree + u;
                predict_answer(r, u, rows.value[at], at, out);
            }
        }
    });
}

}  // namespace voxpop::VOXPOP_VARIANT
