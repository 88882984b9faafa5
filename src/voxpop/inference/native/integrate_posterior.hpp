// What is known of the truth of a row, from the density on its nodes.
#pragma once

#include "integrate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The posterior's quantiles interpolate between nodes, and so want them closer.
constexpr double quantile_refinement = 3.0;

// Cubic through both ends of the unit interval with the slopes given there.
inline double hermite(double t, double start, double end, double rise, double fall) {
    return start * (1 + 2 * t) * (1 - t) * (1 - t) + rise * t * (1 - t) * (1 - t) +
           end * t * t * (3 - 2 * t) - fall * t * t * (1 - t);
}

// The density of one row: share p and weight of every node x, and the mass below each node.
struct Density {
    int64_t n;
    const double *x, *weight, *p;
    double* below;

    // The mass between two nodes, by the cubic that has p as its slopes at both ends.
    void add_up() {
        below[0] = 0.0;
        for (int64_t q = 0; q + 1 < n; ++q) {
            double mass = 0.5 * (p[q] + p[q + 1]) + (slope(q) - slope(q + 1)) / 12.0;
            below[q + 1] = below[q] + (mass > 0.0 ? mass : 0.0);
        }
    }
    double slope(int64_t q) const {
        if (n < 2) return 0.0;
        if (q == 0) return p[1] - p[0];
        if (q == n - 1) return p[n - 1] - p[n - 2];
        return 0.5 * (p[q + 1] - p[q - 1]);
    }

    // Where the mass below reaches a share: cubic in the node number, for the mass and for x.
    double quantile(double probability) const {
        if (n < 2) return x[0];
        const double target = probability * below[n - 1];
        int64_t first = 0, last = n - 1;
        while (last - first > 1) {
            int64_t middle = (first + last) / 2;
            (below[middle] <= target ? first : last) = middle;
        }
        double low = 0.0, high = 1.0;
        for (int step = 0; step < 50; ++step) {
            double t = 0.5 * (low + high);
            double reached = hermite(t, below[first], below[last], p[first], p[last]);
            (reached < target ? low : high) = t;
        }
        // Weights are known up to a factor; the step between the nodes gives it.
        double mean = 0.5 * (weight[first] + weight[last]);
        double scale = mean > 0.0 ? (x[last] - x[first]) / mean : 0.0;
        return hermite(0.5 * (low + high), x[first], x[last], weight[first] * scale,
                       weight[last] * scale);
    }
};

// Mass of every node in place of log P_0, and the probabilities of the classes.
inline const vec* posterior_mass(Integrand& r, double* classes) {
    const Law& law = r.law;
    vec highest = all(-infinite);
    for (int64_t c = 0; c < law.C; ++c)
        for (int64_t q = 0; q < r.n; ++q)
            highest = max(highest, r.log_p[c * r.n + q] + all(r.log_class(c)));
    const vec top = all(largest(highest));
    double whole = 0.0;
    for (int64_t c = 0; c < law.C; ++c) {
        vec total = all(0.0);
        for (int64_t q = 0; q < r.n; ++q) {
            const vec mass = exp(r.log_p[c * r.n + q] + all(r.log_class(c)) - top);
            total = total + mass;
            r.log_p[q] = c == 0 ? mass : r.log_p[q] + mass;
        }
        classes[c] = sum(total), whole += classes[c];
    }
    for (int64_t c = 0; c < law.C; ++c) classes[c] /= whole;
    for (int64_t q = 0; q < r.n; ++q) r.log_p[q] = r.log_p[q] * all(1.0 / whole);
    return r.log_p;
}

static void integrate_posterior(
    const IntegralLaw& given, const IntegralRows& rows, const Truths& t, double* classes,
    int64_t first_chunk, int64_t last_chunk, Workspace& workspace) {
    const Law law(given);
    const Tables tables(law, workspace);
    Functions f(law, rows.degree, workspace, Aim::posterior);
    Integrand r(tables, f, workspace);
    ivec* old = (ivec*)workspace.slot(7, lanes * rows.degree * law.K);
    for_blocks(rows, t.messages, f, first_chunk, last_chunk, quantile_refinement, old, workspace,
               [&](const Block& block, const Nodes& nodes) {
        for (int lane = 0; lane < block.n_rows; ++lane) {
            const int64_t row = block.row[lane];
            r.open(lane, nodes);
            const vec* p = posterior_mass(r, classes + row * law.C);
            vec mean = all(0.0), square = all(0.0);
            for (int64_t q = 0; q < r.n; ++q) mean = fma(p[q], r.x[q], mean);
            const vec centre = all(sum(mean));
            for (int64_t q = 0; q < r.n; ++q)
                square = fma(p[q] * (r.x[q] - centre), r.x[q] - centre, square);
            Density density{r.n_nodes, (double*)r.x, (double*)r.weight, (const double*)p,
                            (double*)r.scratch};
            density.add_up();
            t.estimate[row] = centre[0], t.variance[row] = sum(square);
            for (int64_t i = 0; i < t.n_probabilities; ++i)
                t.quantile[row * t.n_probabilities + i] = density.quantile(t.probabilities[i]);
        }
    });
}

}  // namespace voxpop::VOXPOP_VARIANT
