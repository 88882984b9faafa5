// Each answer as predicted by all others of its row, with moments matched.

// M93: each answer as predicted by all others of its row; `out` is (6, n_edges).
__device__ void predict_answer(MatchTeam& t, int u, bool with_pit, double* out) {
    const Law& law = t.law;
    double top = LOG_NOTHING, reach = LOG_NOTHING, whole = 0.0, density = 0.0;
    double mean = 0.0, variance = 0.0, noise = 0.0, pit = 0.0;
    for (int c = 0; c < law.C; ++c) {
        top = fmax(top, t.log_without(c, u));
        reach = fmax(reach, t.matched[c * t.L + u].total);
    }
    for (int c = 0; c < law.C; ++c) {
        const Matched& matched = t.matched[c * t.L + u];
        const double share = exp(t.log_without(c, u) - top);
        double below = 0.0, wide = 0.0;
        for (int g = 0; g < law.G; ++g) {
            const double mine = t.share(c, u, g), v = t.variance(u, g);
            if (!(mine > 0.0)) continue;
            wide += mine * v;
            if (with_pit) below += mine * normcdf(matched.distance / sqrt(v + matched.more()));
        }
        whole += share, density += share * exp(matched.total - reach);
        mean += share * (t.centre[u] - matched.distance), variance += share * matched.more();
        pit += share * below, noise += share * wide;
    }
    mean /= whole;
    for (int c = 0; c < law.C; ++c) {
        const double away = t.centre[u] - t.matched[c * t.L + u].distance - mean;
        variance += exp(t.log_without(c, u) - top) * away * away;
    }
    const i64 edge = t.first + u, size = t.rows.n_edges;
    out[edge] = fmax(reach + log(density / whole) - 0.91893853320467274178, -700.0);
    out[size + edge] = fmin(fmax(pit / whole, 0.0), 1.0);
    out[2 * size + edge] = mean, out[3 * size + edge] = variance / whole;
    out[4 * size + edge] = t.rows.value[edge] - t.centre[u];
    out[5 * size + edge] = (variance + noise) / whole;
}

extern "C" __global__ void match_predict(
    LAW, MATCH_ROWS, MESSAGES, double* workspace, int with_pit, double* out) {
    TAKE_LAW TAKE_MATCH_ROWS TAKE_MESSAGES
    MatchTeam t(law, rows, m, workspace);
    for (i64 row = t.number; row < n_rows; row += t.n_teams) {
        t.open(row);
        for (int u = lane_number(); u < t.degree; u += LANES)
            predict_answer(t, u, with_pit != 0, out);
        team_sync();
    }
}
