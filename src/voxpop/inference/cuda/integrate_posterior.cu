// The posterior of the truth of a row, from the density on its nodes.

// Cubic through both ends of the unit interval with the slopes given there.
__device__ __forceinline__ double hermite(
    double t, double start, double end, double rise, double fall) {
    return start * (1 + 2 * t) * (1 - t) * (1 - t) + rise * t * (1 - t) * (1 - t) +
           end * t * t * (3 - 2 * t) - fall * t * t * (1 - t);
}

__device__ __forceinline__ double slope_at(const double* p, int n, int q) {
    if (q == 0) return p[1] - p[0];
    if (q == n - 1) return p[n - 1] - p[n - 2];
    return 0.5 * (p[q + 1] - p[q - 1]);
}

// Where the mass below reaches a share: cubic in the node number, for the mass and for x.
__device__ double node_quantile(
    const Nodes& nodes, const double* p, const double* below, double probability) {
    const int n = nodes.n;
    if (n < 2) return nodes.x[0];
    const double target = probability * below[n - 1];
    int first = 0, last = n - 1;
    while (last - first > 1) {
        const int middle = (first + last) / 2;
        if (below[middle] <= target) first = middle;
        else last = middle;
    }
    double low = 0.0, high = 1.0;
    for (int step = 0; step < 50; ++step) {
        const double t = 0.5 * (low + high);
        if (hermite(t, below[first], below[last], p[first], p[last]) < target) low = t;
        else high = t;
    }
    // Weights are known up to a factor; the step between the nodes gives it.
    const double rise = exp(nodes.log_weight[first]), fall = exp(nodes.log_weight[last]);
    const double mean = 0.5 * (rise + fall);
    const double scale = mean > 0.0 ? (nodes.x[last] - nodes.x[first]) / mean : 0.0;
    return hermite(0.5 * (low + high), nodes.x[first], nodes.x[last], rise * scale, fall * scale);
}

extern "C" __global__ void integrate_posterior(
    LAW, ROWS, MESSAGES, int room, double* workspace, const double* probabilities,
    int n_probabilities, double* estimate, double* variances, double* quantile, double* classes) {
    TAKE_LAW TAKE_ROWS TAKE_MESSAGES
    Team team(law, degree, room, Aim::posterior, workspace);
    Nodes& nodes = team.nodes;
    team.for_rows(law, rows, m, QUANTILE_REFINEMENT, [&](i64 row) {
        const double* log_class = team.f.log_class;
        double *p = nodes.scratch, *below = nodes.log_p;
        double top = LOG_NOTHING, whole = 0.0, first = 0.0, second = 0.0;
        for (int c = 0; c < law.C; ++c)
            for (int q = lane_number(); q < nodes.n; q += LANES)
                top = fmax(top, nodes.log_p[c * room + q] + log_class[c]);
        top = team_max(top);
        for (int c = 0; c < law.C; ++c) {
            double total = 0.0;
            for (int q = lane_number(); q < nodes.n; q += LANES) {
                const double mass = exp(nodes.log_p[c * room + q] + log_class[c] - top);
                p[q] = c == 0 ? mass : p[q] + mass;
                total += mass;
            }
            total = team_sum(total), whole += total;
            if (lane_number() == 0) classes[row * law.C + c] = total;
        }
        team_sync();
        for (int c = lane_number(); c < law.C; c += LANES) classes[row * law.C + c] /= whole;
        for (int q = lane_number(); q < nodes.n; q += LANES) {
            p[q] /= whole;
            first += p[q] * nodes.x[q];
        }
        first = team_sum(first);
        for (int q = lane_number(); q < nodes.n; q += LANES)
            second += p[q] * (nodes.x[q] - first) * (nodes.x[q] - first);
        second = team_sum(second);
        team_sync();
        // The mass between two nodes, by the cubic that has p as its slopes at both ends.
        if (lane_number() == 0) {
            estimate[row] = first, variances[row] = second, below[0] = 0.0;
            for (int q = 0; q + 1 < nodes.n; ++q) {
                const double mass = 0.5 * (p[q] + p[q + 1]) +
                                    (slope_at(p, nodes.n, q) - slope_at(p, nodes.n, q + 1)) / 12.0;
                below[q + 1] = below[q] + fmax(mass, 0.0);
            }
        }
        team_sync();
        for (int i = lane_number(); i < n_probabilities; i += LANES)
            quantile[row * n_probabilities + i] = node_quantile(nodes, p, below, probabilities[i]);
    });
}
