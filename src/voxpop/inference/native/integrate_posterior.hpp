// What is known of the truth of a one-dimensional task, from the density on its nodes.
#pragma once

#include "integrate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Cubic through both ends of the unit interval with the slopes given there.
inline double hermite(double t, double start, double end, double rise, double fall) {
    return start * (1 + 2 * t) * (1 - t) * (1 - t) + rise * t * (1 - t) * (1 - t) +
           end * t * t * (3 - 2 * t) - fall * t * t * (1 - t);
}

// The density of one task: share p and weight of every node x, and the mass below each node.
struct Density {
    int64_t n;
    const double *x, *weight;
    double *p, *below;

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

}  // namespace voxpop::VOXPOP_VARIANT
