// The posterior of the truth of a row, from the density on its nodes.
#pragma once

#include "integrate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The posterior's quantiles interpolate between nodes, and so want them closer.
constexpr double quantile_refinement = 3.0;

// Cubic through both ends of the unit interval with the slopes given there, and its slope at t.
struct Cubic {
    vec start, end, rise, fall;

    vec at(vec t, vec& slope) const {
        const vec climb = end - start, bend = rise + fall - all(2.0) * climb;
        const vec turn = all(3.0) * climb - all(2.0) * rise - fall;
        slope = fma(t, fma(t, all(3.0) * bend, all(2.0) * turn), rise);
        return fma(t, fma(t, fma(t, bend, turn), rise), start);
    }
};

// Accuracy of a place between two nodes, and most steps: as many as halving alone would take.
constexpr double between_nodes = 1e-12;
constexpr int most_halvings = 40;

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

    // Where the mass below reaches shares of it, one in each lane: cubic in the node number, for the
    // mass and for x. Newton's method runs inside a bracket and halves it where it would leave.
    vec quantiles(vec probability) const {
        if (n < 2) return all(x[0]);
        const vec target = probability * all(below[n - 1]), zero = all(0.0), one = all(1.0);
        Cubic mass, place;
        for (int lane = 0; lane < lanes; ++lane) {
            int64_t first = 0, last = n - 1;
            while (last - first > 1) {
                const int64_t middle = (first + last) / 2;
                (below[middle] <= target[lane] ? first : last) = middle;
            }
            mass.start[lane] = below[first], mass.end[lane] = below[last];
            mass.rise[lane] = p[first], mass.fall[lane] = p[last];
            place.start[lane] = x[first], place.end[lane] = x[last];
            place.rise[lane] = weight[first], place.fall[lane] = weight[last];
        }
        vec low = zero, high = one, t = all(0.5), open = one;
        for (int step = 0; step < most_halvings && any_above(open, zero); ++step) {
            vec slope;
            const vec missing = target - mass.at(t, slope);
            low = where_above(missing, zero, t, low), high = where_above(missing, zero, high, t);
            const vec half = all(0.5) * (low + high), ahead = t + missing / slope;
            // Comparisons with a step that is not a number fail, and halve the bracket.
            vec next = where_above(ahead, low, ahead, half);
            next = where_above(high, next, next, half);
            const vec moved = absolute(next - t);
            // A lane that has converged stays as it is.
            t = where_above(open, zero, next, t);
            open = where_above(moved, all(between_nodes), open, zero);
        }
        // Weights are known up to a factor; the step between the nodes gives it.
        const vec mean = all(0.5) * (place.rise + place.fall);
        const vec scale = where_above(mean, zero, (place.end - place.start) / mean, zero);
        place.rise = place.rise * scale, place.fall = place.fall * scale;
        vec slope;
        return place.at(t, slope);
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
            for (int64_t first = 0; first < t.n_probabilities; first += lanes) {
                const int64_t last = t.n_probabilities - 1;
                vec probability;
                for (int lane = 0; lane < lanes; ++lane)
                    probability[lane] = t.probabilities[first + lane < last ? first + lane : last];
                const vec found = density.quantiles(probability);
                for (int lane = 0; lane < lanes && first + lane <= last; ++lane)
                    t.quantile[row * t.n_probabilities + first + lane] = found[lane];
            }
        }
    });
}

}  // namespace voxpop::VOXPOP_VARIANT
